"""An artefact is made once for its pins, whole or not at all, by one install at a time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpd_ci import cache
from dpd_ci.cache import Artefact, Builder
from dpd_ci.progress import Clock, CommandFailed

LIB = Path(cache.__file__).parents[1]


def build(builder: Builder, into: Path) -> None:
    builder.run("tool", "sh", "-c", f"date +%s%N > {into}/made")


def artefact(pin: Path, how: str = "made") -> Artefact:
    return Artefact("tool", "a test's", (pin,), build, how, free_gb=0)


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path / "cache", Clock())


@pytest.fixture
def pin(tmp_path: Path) -> Path:
    path = tmp_path / "tool.txt"
    path.write_text("tool==1\n", encoding="utf-8")
    return path


def make(builder: Builder, wanted: Artefact) -> str:
    with builder.lock():
        builder.make(wanted)
    return (builder.root / "tool" / "made").read_text(encoding="ascii")


def test_is_made_again_only_when_a_pin_changes(builder: Builder, pin: Path) -> None:
    first = make(builder, artefact(pin))
    assert make(builder, artefact(pin)) == first
    pin.write_text("tool==2\n", encoding="utf-8")
    assert not builder.is_fresh(artefact(pin))
    assert make(builder, artefact(pin)) != first


def test_is_made_again_when_what_it_needs_is_gone(builder: Builder, pin: Path) -> None:
    make(builder, artefact(pin))
    (builder.root / "tool" / "made").unlink()
    assert not builder.is_fresh(artefact(pin))


def test_an_interrupted_build_leaves_the_old_one_and_the_next_install_goes_on(
    builder: Builder, pin: Path
) -> None:
    first = make(builder, artefact(pin))
    pin.write_text("tool==2\n", encoding="utf-8")

    def stop(_: Builder, into: Path) -> None:
        (into / "half").touch()
        raise KeyboardInterrupt

    interrupted = Artefact("tool", "a test's", (pin,), stop, "made", free_gb=0)
    with pytest.raises(KeyboardInterrupt):
        make(builder, interrupted)
    assert (builder.root / "tool" / "made").read_text(encoding="ascii") == first
    assert not builder.is_fresh(artefact(pin))
    make(builder, artefact(pin))
    assert not (builder.root / "tool" / "half").exists()


def test_one_that_grows_starts_from_the_older_folder_which_stays_whole(
    builder: Builder, pin: Path
) -> None:
    def add(builder: Builder, into: Path) -> None:
        builder.run("tool", "sh", "-c", f"echo new >> {into}/$(wc -w < {pin})")

    def growing(how: str = "made") -> Artefact:
        return Artefact("tool", "a test's", (pin,), add, how, free_gb=0, grows=True)

    def content() -> dict[str, str]:
        files = (builder.root / "tool").iterdir()
        return {file.name: file.read_text() for file in files if file.name != cache.STAMP}

    with builder.lock():
        builder.make(growing("1"))
        pin.write_text("tool==1 test==2\n", encoding="utf-8")
        builder.make(growing("1"))
    assert content() == {"1": "new\n", "2": "new\n"}
    assert builder.is_fresh(growing("1"))

    def fail(_: Builder, into: Path) -> None:
        assert (into / "2").exists()
        assert not (into / cache.STAMP).exists()
        (into / "2").unlink()
        raise CommandFailed("no such version")

    pin.write_text("tool==3\n", encoding="utf-8")
    with builder.lock(), pytest.raises(CommandFailed):
        builder.make(Artefact("tool", "a test's", (pin,), fail, "1", grows=True))
    assert content() == {"1": "new\n", "2": "new\n"}

    (builder.root / "tool" / "1").unlink()  # what it needs is gone: nothing to start from
    with builder.lock():
        builder.make(growing("1"))
    assert content() == {"1": "new\n"}


def test_a_failed_command_is_told_with_its_last_lines(builder: Builder, pin: Path) -> None:
    def fail(builder: Builder, _: Path) -> None:
        builder.run("tool", "sh", "-c", "echo no such version; exit 3")

    broken = Artefact("tool", "a test's", (pin,), fail, "made", free_gb=0)
    with pytest.raises(CommandFailed, match=r"(?s)sh ended with status 3.*no such version"):
        make(builder, broken)


def test_a_full_disk_is_told_before_anything_is_built(builder: Builder, pin: Path) -> None:
    huge = Artefact("tool", "a test's", (pin,), build, "made", free_gb=1e9)
    with pytest.raises(CommandFailed, match="DPD_CACHE"):
        make(builder, huge)


def test_a_second_install_waits_for_the_first(builder: Builder) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from dpd_ci.cache import Builder; from dpd_ci.progress import Clock\n"
        "with Builder(Path(sys.argv[1]), Clock()).lock(): print('held', flush=True); time.sleep(1)"
    )
    command = [sys.executable, "-c", script, str(builder.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={"PYTHONPATH": str(LIB)}) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        before = time.monotonic()
        with builder.lock():
            assert time.monotonic() - before > 0.5
