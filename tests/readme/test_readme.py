"""Every command of the README, run for real as far as this machine can.

Without a cluster, Helm renders what it would install, and kubectl parses its command line before it
finds no server; what they name must be in the rendered manifests. curl asks a real router in front
of stub engines. test_demo.py runs the demo, and asks its engines what the README asks of pods.
`make test` is what runs this file.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from tests.readme.document import ROOT, TEXT, commands
from tests.readme.test_statements import BIN
from tests.router.conftest import Stage
from tests.router.tokenizers_made import TEMPLATES, make_tokenizer

# Each command is taken by the tests of one of these; the last two also by those of the demo.
KINDS = {
    "make": r"make ",
    "helm": r"helm ",
    "docker": r"docker ",
    "kubectl": r"kubectl ",
    "router": r".*\bcurl -s.* localhost:8000/",
    "decoder": r"curl -s localhost:8001/metrics \|",
}
NO_SERVER = ("--server=http://127.0.0.1:9",)
UNREACHABLE = re.compile(r"was refused|cluster unreachable", re.I)


def of(kind: str) -> list[str]:
    """The commands of a kind."""
    return [line for line in commands() if re.match(KINDS[kind], line)]


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{BIN}:/usr/bin:/bin", "HOME": "/nonexistent", "HF_TOKEN": "hf_x"}
    options = {"env": environment, "cwd": ROOT, "timeout": 60} | options
    return subprocess.run(command, capture_output=True, text=True, **options)


def words(line: str) -> list[str]:
    """A command's words, without what it is piped to; $NAME is replaced as the shell does."""
    first = re.split(r" \| | &$", line)[0]
    done = run("bash", "-c", f"printf '%s\\n' {first}")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def render(line: str) -> dict[tuple[str, str], Any]:
    """The manifests of a helm install or upgrade, by kind and name."""
    done = run(*words(re.sub(r"^helm (install|upgrade)", "helm template", line)))
    assert done.returncode == 0, done.stderr
    objects = [item for item in yaml.safe_load_all(done.stdout) if item]
    return {(item["kind"].lower(), item["metadata"]["name"]): item for item in objects}


@pytest.fixture(scope="module")
def installed() -> dict[tuple[str, str], Any]:
    """What the README's `helm install` makes."""
    (line,) = [line for line in of("helm") if line.startswith("helm install ")]
    return render(line)


def container(manifest: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = manifest["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("line", commands())
def test_every_command_is_of_one_kind_that_is_tested(line: str) -> None:
    assert len([kind for kind, pattern in KINDS.items() if re.match(pattern, line)]) == 1


@pytest.mark.parametrize("line", of("make"))
def test_a_make_command_runs_what_it_says(line: str) -> None:
    done = run(*words(line), "--dry-run")
    assert done.returncode == 0, done.stderr
    known = (ROOT / "ci/lib/dpd_ci/steps.py").read_text(encoding="utf-8")
    if line == "make help":
        done = run(*words(line))
        assert "make demo" in done.stdout
    elif line == "make lint":  # its steps are among those that `make test` runs
        _, _, steps = done.stdout.rpartition("ci/test ")
        assert steps.split()
        assert all(f'Step("{step}"' in known for step in steps.split())
    elif line == "make generate":  # `make test` checks that it would change nothing
        assert done.stdout.splitlines()[-1] == "ci/generate"
        assert 'Step("generated"' in known
    elif line == "make test":
        assert "make test" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    else:
        assert line in ("make demo", "make demo ONCE=1")  # see test_demo.py


@pytest.mark.parametrize("program", ["helm3", "helm4"])
@pytest.mark.parametrize("line", of("helm"))
def test_a_helm_command_renders_or_stops_only_for_want_of_a_cluster(
    line: str, program: str
) -> None:
    command = [BIN / program, *words(line)[1:]]
    assert command[2] == "dpd"
    if line.startswith(("helm install ", "helm upgrade ")):
        done = run(BIN / program, "template", *command[2:])
        assert done.returncode == 0, done.stderr
    done = run(*command)
    if line.startswith("helm template "):
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode != 0
    assert UNREACHABLE.search(done.stderr), done.stderr


def test_the_notes_with_their_warnings_need_no_cluster_in_helm_4(tmp_path: Path) -> None:
    (line,) = re.findall(r"`(helm install [^`]+ --dry-run=client)`", TEXT)
    file = tmp_path / "my.yaml"
    file.write_text("placement: {sameZone: false}", encoding="utf-8")
    _, *said = words(line.replace("my.yaml", str(file)))
    warning = "WARNING: nothing keeps the engines in one Availability Zone"
    done = run(BIN / "helm4", *said)
    assert done.returncode == 0, done.stderr
    assert warning in done.stdout
    rendered = run(BIN / "helm4", "template", *said[1:-1])
    assert rendered.returncode == 0, rendered.stderr
    assert warning not in rendered.stdout + rendered.stderr
    assert UNREACHABLE.search(run(BIN / "helm3", *said).stderr)


def test_the_upgrades_change_what_they_say(installed: dict[tuple[str, str], Any]) -> None:
    for line in of("helm"):
        if "prefill.replicas=3" in line:
            assert render(line)["deployment", "dpd-prefill"]["spec"]["replicas"] == 3
        elif "router.mode=never" in line:
            config = yaml.safe_load(render(line)["configmap", "dpd-router"]["data"]["router.yaml"])
            assert config["routing"]["mode"] == "never"
        elif "router.image" in line:
            router = container(render(line)["deployment", "dpd-router"])
            assert router["command"][0] == "python3"
            assert f"docker push {router['image']}" in of("docker")
        elif line.startswith("helm upgrade "):
            assert render(line) == installed


@pytest.mark.parametrize("line", of("docker"))
def test_a_docker_command_builds_from_a_folder_that_has_what_it_copies(line: str) -> None:
    match words(line):
        case ["docker", "build", "-t", _, folder]:
            text = (ROOT / folder / "Dockerfile").read_text(encoding="utf-8")
            for sources in re.findall(r"^COPY (.+) \S+$", text, re.M):
                assert all((ROOT / folder / source).exists() for source in sources.split())
        case ["docker", "push", image]:
            assert [
                other for other in of("docker") if other.startswith(f"docker build -t {image} ")
            ]
        case _:
            pytest.fail("no rule for this docker command")


@pytest.mark.parametrize("line", of("kubectl"))
def test_a_kubectl_command_names_what_is_there(
    line: str, installed: dict[tuple[str, str], Any]
) -> None:
    said = words(line)
    decoder = installed["deployment", "dpd-decode"]
    match said[1:]:
        case ["create", "secret", "generic", name, literal]:
            done = run(*said, "--dry-run=client", "-o", "yaml")
            secret = yaml.safe_load(done.stdout)
            for role in ("router", "prefill", "decode"):
                pod = container(installed["deployment", f"dpd-{role}"])
                (wanted,) = [v for v in pod["env"] if v["name"] == "HF_TOKEN"]
                ref = wanted["valueFrom"]["secretKeyRef"]
                assert (ref["name"], [ref["key"]]) == (name, list(secret["data"]))
            assert literal == "--from-literal=token=hf_x"
            return
        case ["rollout", "status", target, _] | ["logs", target]:
            assert tuple(target.split("/")) in installed
        case ["port-forward", target, ports]:
            local, remote = ports.split(":")
            spec = installed[tuple(target.split("/"))]["spec"]  # type: ignore[index]
            if target.startswith("service/"):
                assert int(remote) in [port["port"] for port in spec["ports"]]
            else:
                pod_ports = container({"spec": spec})["ports"]
                assert int(remote) in [port["containerPort"] for port in pod_ports]
            assert any(f"localhost:{local}/" in other for other in commands())
        case ["get", "nodes", "-L", *labels]:
            assert all(label in yaml.safe_dump(decoder) for label in labels if label != "-L")
        case ["get", "nodes", "-o", columns]:
            devices = [d.replace("\\", "") for d in re.findall(r"allocatable\.([^,]+)", columns)]
            assert sorted(devices) == sorted(container(decoder)["resources"]["limits"])[-2:]
        case _:
            pytest.fail("no rule for this kubectl command")
    done = run(*said, *NO_SERVER)
    assert done.returncode != 0
    assert UNREACHABLE.search(done.stderr), done.stderr


@pytest_asyncio.fixture
async def routed(tmp_path: Path) -> AsyncIterator[Stage]:
    """A router with the chart's default threshold, in front of a prefiller and a decoder."""
    stage = Stage(make_tokenizer(tmp_path, TEMPLATES["chatml"], bos=False))
    await stage.engines()
    await stage.router(threshold=4096)
    yield stage
    await stage.close()


async def test_the_curl_commands_show_both_paths_and_the_routers_metrics(routed: Stage) -> None:
    answers = []
    for line in of("router"):
        here = line.replace("localhost:8000", f"127.0.0.1:{routed.port}")
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-c", here), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await shell.communicate()
        assert shell.returncode == 0
        answers.append(out.decode())
    short, long_, metrics = answers
    assert "200 OK" in short
    assert "x-dpd-path: direct" in short
    assert "200 OK" in long_
    assert "x-dpd-path: disaggregated" in long_
    for header in ("reason", "prompt-tokens", "prefill-seconds", "transfer-seconds"):
        assert f"x-dpd-{header}: " in long_
    assert "x-request-id: " in long_
    assert 'dpd_router_requests_total{path="disaggregated",reason="long_prompt"} 1.0' in metrics
