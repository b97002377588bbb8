"""Volumes become directories, and only whole paths are led to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dpd_local.mounts import Mounts, materialise
from dpd_local.pods import Configuration, Pod, PodError

CONFIGURATION = Configuration(
    config_maps={
        "plugin": {"package.py": b"PLACE = '/tmp'\n", "unused": b""},
        "settings": {"engine.yaml": b"scratch: /tmp/x\nmodel: /models/tiny\n"},
    },
    secrets={"key": {"token": b"s3cret"}},
)


def mounts_of(directory: Path, volumes: list[dict[str, Any]], **mounts: str) -> Mounts:
    pod = Pod(
        name="decode-0",
        metadata={},
        spec={
            "volumes": volumes,
            "containers": [
                {"volumeMounts": [{"name": n, "mountPath": p} for n, p in mounts.items()]}
            ],
        },
    )
    host_paths = {"/var/lib/dpd": directory / "cache"}
    return materialise(pod, CONFIGURATION, "127.70.1.2", directory / "pod", host_paths)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/tmp", "/L/tmp"),
        ("/tmp/", "/L/tmp/"),
        ("--cache=/tmp/a", "--cache=/L/tmp/a"),
        ("/tmp:/tmp/b", "/L/tmp:/L/tmp/b"),
        ('{"path":"/tmp/a"}', '{"path":"/L/tmp/a"}'),
        ("/tmpfs", "/tmpfs"),
        ("/tmp-old /tmp.old", "/tmp-old /tmp.old"),
        ("/var/tmp", "/var/tmp"),
        ("http://host/tmp", "http://host/tmp"),
        ("fs://host:1/tmp/a", "fs://host:1/L/tmp/a"),
        ("/home/dpd/hf/x", "/L/hf/x"),
        ("/home/dpd/other", "/L/home/other"),
    ],
)
def test_a_mount_path_is_replaced_only_where_it_is_a_whole_path(text: str, expected: str) -> None:
    mounts = Mounts(
        {"/tmp": Path("/L/tmp"), "/home/dpd": Path("/L/home"), "/home/dpd/hf": Path("/L/hf")}
    )
    assert mounts.rewrite(text) == expected


def test_a_place_that_was_put_in_is_not_replaced_again() -> None:
    assert Mounts({"/tmp": Path("/tmp/run/tmp")}).rewrite("/tmp/a") == "/tmp/run/tmp/a"


def test_config_map_items_land_at_their_paths_and_no_other_key_does(tmp_path: Path) -> None:
    items = [{"key": "package.py", "path": "package/__init__.py"}]
    volume = {"name": "code", "configMap": {"name": "plugin", "items": items}}
    mounts = mounts_of(tmp_path, [volume], code="/opt/python")
    place = mounts.directories["/opt/python"]
    assert [str(p.relative_to(place)) for p in place.rglob("*.*")] == ["package/__init__.py"]


def test_settings_files_name_local_places_and_code_arrives_as_it_is(tmp_path: Path) -> None:
    volumes = [
        {"name": "code", "configMap": {"name": "plugin"}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "models", "hostPath": {"path": "/var/lib/dpd/models"}},
    ]
    mounts = mounts_of(
        tmp_path, volumes, code="/opt", settings="/etc/dpd", scratch="/tmp", models="/models"
    )
    assert (mounts.directories["/opt"] / "package.py").read_text() == "PLACE = '/tmp'\n"
    assert (mounts.directories["/etc/dpd"] / "engine.yaml").read_text() == (
        f"scratch: {tmp_path}/pod/scratch/x\nmodel: {tmp_path}/cache/models/tiny\n"
    )


def test_projected_sources_share_one_directory(tmp_path: Path) -> None:
    sources = [
        {"secret": {"name": "key"}},
        {"configMap": {"name": "settings"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    volume = {"name": "all", "projected": {"sources": sources}}
    place = mounts_of(tmp_path, [volume], all="/etc/all").directories["/etc/all"]
    assert sorted(file.name for file in place.iterdir()) == ["engine.yaml", "name", "token"]
    assert (place / "name").read_text() == "decode-0"


def test_a_volume_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "x"}}
    with pytest.raises(PodError, match="volume data: persistentVolumeClaim is not supported"):
        mounts_of(tmp_path, [claim], data="/data")
    with pytest.raises(PodError, match="volume c: no configMap gone"):
        mounts_of(tmp_path, [{"name": "c", "configMap": {"name": "gone"}}], c="/c")
