"""The programs that install others, uv and Go: the machine's own, or pinned ones in the cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from .cache import Artefact, Builder
from .progress import CommandFailed

CI = Path(__file__).resolve().parents[2]
PINS = CI / "pins"


def uv(builder: Builder) -> Path:
    """The pinned uv, installed first if need be."""
    builder.make(UV)
    return builder.root / "uv" / "bin" / "uv"


def unpack(builder: Builder, name: str, into: Path) -> None:
    """Installs the packages of pins/<name>.txt, and nothing that they depend on, as plain files."""
    how = ("--no-deps", "--require-hashes", "--target", into)
    builder.run(name, uv(builder), "pip", "install", *how, "-r", PINS / f"{name}.txt")


def _build_uv(builder: Builder, into: Path) -> None:
    """Gets uv by the machine's pip, or by one in a venv; a bare Debian has neither."""
    requirements = ("-r", PINS / "uv.txt", "--no-deps", "--require-hashes", "--target", into)
    python: str | Path = sys.executable
    if not _works(python, "-m", "pip", "--version"):
        venv = into / "venv"
        if not _works(python, "-c", "import ensurepip"):
            install_debian(builder, "uv", "python3-venv", f"{python} has neither pip nor venv")
        builder.run("uv", python, "-m", "venv", venv)
        python = venv / "bin" / "python"
    builder.run("uv", python, "-m", "pip", "install", "--disable-pip-version-check", *requirements)
    shutil.rmtree(into / "venv", ignore_errors=True)


def install_debian(builder: Builder, name: str, package: str, lacks: str) -> None:
    """Installs a package of Debian's that a registry cannot give, for the artefact `name`.

    Raises:
        CommandFailed: this is not Debian's root; it says what the machine `lacks` and what to do.
    """
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise CommandFailed(
            f"{lacks}: install it (on Debian or Ubuntu: sudo apt-get install {package}) "
            "and run this again"
        )
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    builder.run(name, "apt-get", "update", env=quiet)
    install = ("install", "-y", "--no-install-recommends")
    builder.run(name, "apt-get", *install, package, env=quiet)


def _works(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def find_go(builder: Builder) -> Path:
    """The machine's Go if it is new enough for ci/tools/go.mod, else the pinned one."""
    wanted = _go_version((CI / "tools" / "go.mod").read_text(encoding="utf-8"))
    found = shutil.which("go")
    if found is not None:
        version = subprocess.run(
            [found, "env", "GOVERSION"], capture_output=True, text=True, check=False
        )
        if _go_version(version.stdout) >= wanted:
            return Path(found)
    builder.make(GO)
    return builder.root / "go" / "go" / "bin" / "go"


def _go_version(text: str) -> tuple[int, ...]:
    """The numbers of `go 1.26.0` (go.mod) or `go1.26.8` (go env); () when there are none."""
    match = re.search(r"^go ?(\d+(?:\.\d+)*)", text, re.MULTILINE)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _build_go(builder: Builder, into: Path) -> None:
    unpack(builder, "go", into)
    for tool in [*into.glob("go/bin/*"), *into.glob("go/pkg/tool/*/*")]:
        tool.chmod(0o755)


def pins(*names: str) -> tuple[Path, ...]:
    """Files in ci/pins."""
    return tuple(PINS / name for name in names)


UV = Artefact("uv", "the package installer, a few seconds", pins("uv.txt"), _build_uv, "bin/uv")
GO = Artefact(
    "go",
    "a Go toolchain, since the machine has none that fits",
    pins("go.txt"),
    _build_go,
    "go/bin/go",
)
