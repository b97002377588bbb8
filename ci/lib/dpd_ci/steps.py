"""The checks of `make test`, each a function that runs its tools and counts what they found."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .artefacts import kubeconform_flags, kubernetes_versions
from .counting import Count, count_junit
from .progress import Clock, run, tail
from .toolchains import CI

ROOT = CI.parent
CHART = Path("charts/dpd")
HELMS = ("helm3", "helm4")


class Runner:
    """Runs one step's commands in the checkout, with their output in the step's log."""

    def __init__(self, name: str, cache: Path, scratch: Path, clock: Clock) -> None:
        self.cache = cache
        self.scratch = scratch / name
        self.scratch.mkdir(parents=True)
        self.log = self.scratch / "log"
        self.log.touch()
        self._name = name
        self._clock = clock
        self._env = {
            "PATH": f"{cache}/bin:{cache}/engine/bin:{os.environ.get('PATH', os.defpath)}",
            "DPD_CACHE": str(cache),
            "RUFF_CACHE_DIR": str(cache / "ruff"),
            "MYPY_CACHE_DIR": str(cache / "mypy"),
            "PYTHONUNBUFFERED": "1",
            "GOGC": "400",  # Helm and the like end before their garbage matters
        }

    def __call__(self, *command: str | Path) -> int:
        """Runs a command and returns its exit status."""
        program = shutil.which(command[0], path=self._env["PATH"])
        if program is None:
            self.say(f"{command[0]} is missing: ci/install test installs it")
            return 127
        return run(
            (program, *command[1:]),
            clock=self._clock,
            log=self.log,
            note=self._note,
            env=self._env,
            cwd=ROOT,
        )

    def check(self, *command: str | Path) -> Count:
        """Runs a command that is one check."""
        return Count(passed=1) if self(*command) == 0 else Count(failed=1)

    def say(self, text: str) -> None:
        """Adds a line to the log."""
        with self.log.open("a", encoding="utf-8") as log:
            log.write(text + "\n")

    def _note(self) -> str:
        return f"{self._name}: {tail(self.log, 1)}"


def scratch_folder(cache: Path) -> Path:
    """A new folder for one run's logs and reports; those of runs older than three days go."""
    runs = cache / "test"
    runs.mkdir(parents=True, exist_ok=True)
    for run_folder in runs.iterdir():
        if time.time() - run_folder.stat().st_mtime > 3 * 24 * 3600:
            shutil.rmtree(run_folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=time.strftime("%Y%m%d-%H%M%S-"), dir=runs))


@dataclass(frozen=True)
class Step:
    """A named check; `engines` says that it starts real ones."""

    name: str
    run: Callable[[Runner], Count]
    engines: bool = False


def values_files() -> list[Path | None]:
    """The chart's defaults (None) and every file in values/."""
    return [None, *sorted(path.relative_to(ROOT) for path in (ROOT / "values").glob("*.yaml"))]


def _with(values: Path | None) -> tuple[str | Path, ...]:
    return () if values is None else ("-f", values)


def _template(runner: Runner, helm: str, values: Path | None, version: str) -> Path | None:
    """Renders the chart into a file; None when it does not render."""
    out = runner.scratch / f"{helm}-{version}-{values.stem if values else 'defaults'}"
    command = ("template", "demo", CHART, "--kube-version", version, "--output-dir", out)
    return out if runner(helm, *command, *_with(values)) == 0 else None


def _generated(runner: Runner) -> Count:
    return runner.check(ROOT / "ci" / "generate", "--check")


def _helm_lint(runner: Runner) -> Count:
    count = Count()
    for helm in HELMS:
        for values in values_files():
            count += runner.check(helm, "lint", "--strict", CHART, *_with(values))
    return count


def _helm_alike(runner: Runner) -> Count:
    """Both major versions of Helm render the same manifests."""
    count = Count()
    version = kubernetes_versions()[-1]
    for values in values_files():
        three, four = (_template(runner, helm, values, version) for helm in HELMS)
        rendered = three is not None and four is not None
        alike = rendered and runner("diff", "-rB", str(three), str(four)) == 0
        count += Count(passed=1) if alike else Count(failed=1)
    return count


def _ct_lint(runner: Runner) -> Count:
    return runner.check("ct", "lint", "--config", "ci/ct.yaml", "--charts", CHART)


def _helm_unittest(runner: Runner) -> Count:
    report = runner.scratch / "junit.xml"
    status = runner(
        "helm-unittest", "--strict", "--output-type", "JUnit", "--output-file", report, CHART
    )
    return count_junit(report, status)


def _metaschema(runner: Runner) -> Count:
    return runner.check("check-jsonschema", "--check-metaschema", CHART / "values.schema.json")


def _kubeconform(runner: Runner) -> Count:
    """Every values file, rendered for each version, fits that version's strict schemas."""
    count = Count()
    for version in kubernetes_versions():
        rendered = [_template(runner, "helm4", values, version) for values in values_files()]
        count += Count(failed=rendered.count(None))
        count += _fits(runner, version, *filter(None, rendered))
    return count + _argocd_examples(runner)


def _argocd_examples(runner: Runner) -> Count:
    """The Applications and ApplicationSets in values/argocd, which Helm does not see."""
    folder = Path("values/argocd")
    if not (ROOT / folder).is_dir():
        return Count()
    examples = sorted(path.relative_to(ROOT) for path in (ROOT / folder).glob("*.yaml"))
    if not examples:
        runner.say(f"{folder} holds no *.yaml")
        return Count(failed=1)
    return _fits(runner, kubernetes_versions()[-1], *examples)


def _fits(runner: Runner, version: str, *manifests: Path) -> Count:
    """Checks files and folders in one go, since reading the schemas takes longest."""
    status = runner("kubeconform", *kubeconform_flags(runner.cache, version), *manifests)
    return Count(passed=len(manifests)) if status == 0 else Count(failed=1)


def _ruff(runner: Runner) -> Count:
    return runner.check("ruff", "check", "--output-format=concise")


def _ruff_format(runner: Runner) -> Count:
    return runner.check("ruff", "format", "--check", "--diff")


def _mypy(runner: Runner) -> Count:
    return runner.check("mypy")


def _pytest(runner: Runner, *selection: str) -> Count:
    report = runner.scratch / "junit.xml"
    cache = f"cache_dir={runner.cache / 'pytest'}"
    status = runner(
        "pytest", "-v", "--durations=10", "-o", cache, f"--junitxml={report}", *selection
    )
    return count_junit(report, status)


def _pytest_quick(runner: Runner) -> Count:
    """A process per core, at most four; a file's tests stay in one, with what they share."""
    spread = ("-n", "logical", "--maxprocesses=4", "--dist=loadfile", "--no-loadscope-reorder")
    return _pytest(runner, "-m", "not slow", *spread)


def _pytest_slow(runner: Runner) -> Count:
    return _pytest(runner, "-m", "slow")


STEPS = (
    Step("generated", _generated),
    Step("helm-lint", _helm_lint),
    Step("helm-alike", _helm_alike),
    Step("ct-lint", _ct_lint),
    Step("helm-unittest", _helm_unittest),
    Step("metaschema", _metaschema),
    Step("kubeconform", _kubeconform),
    Step("ruff", _ruff),
    Step("ruff-format", _ruff_format),
    Step("mypy", _mypy),
    Step("pytest-quick", _pytest_quick),
    Step("pytest-slow", _pytest_slow, engines=True),
)
