"""A pod's volumes as directories of this machine, and the paths that lead to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpd_local import environment
from dpd_local.pods import Configuration, Pod, PodError

# Shared memory needs no place of its own: its segments have names that nobody else takes.
LEFT_ALONE = ("/dev/shm",)
# Files of these kinds may name mounted paths; a program's source must arrive as it is.
REWRITTEN_SUFFIXES = (".yaml", ".yml", ".json")
_IN_NAME = r"[\w.~+@%/-]"
_AFTER_NAME = r"[\w.~+@%-]"
_HOST_OF_FOLDER = r"\bfs://[\w.:-]+"  # LMCache's URL of a folder: the host means nothing


class Mounts:
    """Where each mountPath of a container really is.

    Attributes:
        directories: mountPath → local path.
    """

    def __init__(self, directories: Mapping[str, Path]) -> None:
        """Take the places as they are."""
        self.directories = dict(directories)
        longest_first = sorted(self.directories, key=len, reverse=True)
        paths = "|".join(re.escape(path) for path in longest_first) or r"(?!)"
        self._pattern = re.compile(
            rf"({_HOST_OF_FOLDER}|(?<!{_IN_NAME}))({paths})(?!{_AFTER_NAME})"
        )

    def rewrite(self, text: str) -> str:
        """Replace every mountPath in `text` that stands as a whole path or as its beginning."""
        return self._pattern.sub(lambda match: f"{match[1]}{self.directories[match[2]]}", text)


def materialise(
    pod: Pod,
    configuration: Configuration,
    ip: str,
    directory: Path,
    host_paths: Mapping[str, Path],
) -> Mounts:
    """Make the pod's volumes below `directory`.

    Args:
        pod: the pod.
        configuration: where ConfigMap and Secret volumes come from.
        ip: the pod's, for a downwardAPI volume.
        directory: the pod's own; short, since sockets are made below it.
        host_paths: stands for the node's root: a hostPath that is a key (or lies below one) is
            found in the directory given.

    Raises:
        PodError: a volume of an unknown kind, or one that names a missing object.
    """
    volumes = {volume["name"]: volume for volume in pod.spec.get("volumes") or []}
    made: dict[str, Path] = {}
    places: dict[str, Path] = {}
    files: list[Path] = []
    for mount in pod.container.get("volumeMounts") or []:
        if mount["mountPath"] in LEFT_ALONE:
            continue
        name = mount["name"]
        if name not in volumes:
            raise PodError(f"pod {pod.name}: volumeMount {mount['mountPath']}: no volume {name}")
        if name not in made:
            volume = volumes[name]
            if "hostPath" in volume:
                made[name] = _host_path(volume["hostPath"]["path"], host_paths)
            else:
                made[name] = directory / name
                made[name].mkdir(parents=True)
                files += _fill(made[name], volume, pod, configuration, ip)
        places[mount["mountPath"].rstrip("/")] = made[name] / mount.get("subPath", "")
    mounts = Mounts(places)
    for file in files:
        if file.suffix in REWRITTEN_SUFFIXES:
            file.write_text(mounts.rewrite(file.read_text()))
    return mounts


def _host_path(path: str, host_paths: Mapping[str, Path]) -> Path:
    for known, local in host_paths.items():
        if Path(path).is_relative_to(known):
            return local / Path(path).relative_to(known)
    return Path(path)


def _fill(
    target: Path, volume: Mapping[str, Any], pod: Pod, configuration: Configuration, ip: str
) -> Iterator[Path]:
    """Write the files of a volume into the empty directory `target`; yield each."""
    sources = volume["projected"]["sources"] if "projected" in volume else [volume]
    for source in sources:
        for path, content in _files(source, pod, configuration, ip):
            file = target / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            yield file


def _files(
    source: Mapping[str, Any], pod: Pod, configuration: Configuration, ip: str
) -> Iterator[tuple[str, bytes]]:
    if "emptyDir" in source:
        return
    if "downwardAPI" in source:
        for item in source["downwardAPI"].get("items") or []:
            value = environment.field(pod, item["fieldRef"]["fieldPath"], ip)
            yield item["path"], value.encode()
        return
    if "configMap" in source:
        kind, reference, objects = "configMap", source["configMap"], configuration.config_maps
    elif "secret" in source:
        kind, reference, objects = "secret", source["secret"], configuration.secrets
    else:
        kinds = ", ".join(key for key in source if key != "name")
        raise PodError(
            f"pod {pod.name}: volume {source.get('name', '')}: {kinds} is not supported; emptyDir, "
            "hostPath, configMap, secret, projected and downwardAPI are"
        )
    name = reference.get("name") or reference.get("secretName")
    optional = reference.get("optional", False)
    data = objects.get(name)
    if data is None:
        if optional:
            return
        raise PodError(f"pod {pod.name}: volume {source.get('name', '')}: no {kind} {name}")
    if "items" not in reference:
        yield from data.items()
        return
    for item in reference["items"]:
        if item["key"] in data:
            yield item["path"], data[item["key"]]
        elif not optional:
            raise PodError(f"pod {pod.name}: {kind} {name} has no key {item['key']}")
