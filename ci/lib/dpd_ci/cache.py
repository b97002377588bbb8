"""The cache folder and its artefacts, each made anew only when its pins change.

An artefact is built in a temporary folder and renamed into place with its stamp inside, so a folder
with a stamp is whole, whenever an install was interrupted.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .progress import Clock, CommandFailed, run, tail

STAMP = ".dpd-stamp"


def cache_root() -> Path:
    """The cache folder: $DPD_CACHE, else ~/.cache/dpd."""
    return Path(os.environ.get("DPD_CACHE") or Path.home() / ".cache" / "dpd").absolute()


@dataclass(frozen=True)
class Artefact:
    """A folder in the cache.

    Attributes:
        name: of the folder.
        says: what it is and about how long it takes, for the person who waits.
        pins: the files that decide its content.
        build: fills an empty folder.
        needs: a path in it that must exist: a venv breaks when the machine loses its Python.
        recipe: raised when `build` changes in a way that makes older folders unfit.
        free_gb: gigabytes that must be free before it is built.
        grows: `build` brings what an older folder holds up to date, and so gets a copy of it.
    """

    name: str
    says: str
    pins: tuple[Path, ...]
    build: Callable[[Builder, Path], None]
    needs: str
    recipe: int = 1
    free_gb: float = 0.5
    grows: bool = False

    def stamp(self) -> str:
        """A hash over the pins and the recipe."""
        digest = hashlib.sha256(f"{self.name} {self.recipe}".encode())
        for pin in self.pins:
            digest.update(pin.read_bytes())
        return digest.hexdigest()


class Builder:
    """Makes artefacts in the cache, one program at a time."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root = root
        self.clock = clock
        self._lock_fds: tuple[int, ...] = ()

    def is_fresh(self, artefact: Artefact) -> bool:
        """Whether the artefact is there and of these pins."""
        folder = self.root / artefact.name
        try:
            stamp = (folder / STAMP).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return False
        return stamp == artefact.stamp() and (folder / artefact.needs).exists()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Holds the cache's lock; a second install waits here for the first."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / ".lock").open("a") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.clock.say(f"another install is using {self.root}: waiting for it")
                fcntl.flock(handle, fcntl.LOCK_EX)
            self._lock_fds = (handle.fileno(),)
            try:
                yield
            finally:
                self._lock_fds = ()

    def make(self, artefact: Artefact) -> None:
        """Builds the artefact unless it is fresh. The caller holds the lock.

        Raises:
            CommandFailed: a command of its build failed, or the disk is too full.
        """
        if self.is_fresh(artefact):
            return
        self.clock.say(f"{artefact.name}: {artefact.says}")
        folder, new, old = (self.root / f"{artefact.name}{end}" for end in ("", ".new", ".old"))
        grows = artefact.grows and (folder / artefact.needs).exists()
        if not grows:
            self._check_disk(artefact)
        self._log(artefact.name).write_bytes(b"")
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        if grows:
            shutil.copytree(folder, new, symlinks=True, copy_function=os.link)
            (new / STAMP).unlink(missing_ok=True)
        else:
            new.mkdir()
        before = self.clock.seconds
        artefact.build(self, new)
        (new / STAMP).write_text(artefact.stamp() + "\n", encoding="ascii")
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
        self.clock.say(f"{artefact.name}: done in {self.clock.seconds - before:.0f} s")

    def _check_disk(self, artefact: Artefact) -> None:
        free_gb = shutil.disk_usage(self.root).free / 1e9
        if free_gb < artefact.free_gb:
            raise CommandFailed(
                f"{artefact.name} needs {artefact.free_gb:.0f} GB of free disk in {self.root}, "
                f"which has {free_gb:.1f} GB: free some, or set DPD_CACHE to a folder elsewhere"
            )

    def run(self, name: str, *command: str | Path, env: dict[str, str] | None = None) -> None:
        """Runs a command of a build.

        Raises:
            CommandFailed: its status is not 0.
        """
        log = self._log(name)
        status = run(
            command,
            clock=self.clock,
            log=log,
            note=lambda: f"{name}: {tail(log, 1)}",
            env=env,
            pass_fds=self._lock_fds,
        )
        if status != 0:
            raise CommandFailed(
                f"{name}: {Path(command[0]).name} ended with status {status}; the log is {log}, "
                f"its last lines:\n{tail(log, 25)}"
            )

    def link(self, name: str, target: Path) -> None:
        """Makes bin/`name` a link to `target`, at once and whatever was there."""
        link = self.root / "bin" / name
        if link.is_symlink() and os.readlink(link) == str(target):
            return
        link.parent.mkdir(parents=True, exist_ok=True)
        new = link.with_name(f".{name}.{os.getpid()}")
        new.symlink_to(target)
        new.replace(link)

    def _log(self, name: str) -> Path:
        logs = self.root / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        return logs / f"install-{name}.log"
