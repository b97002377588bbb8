"""Says what became of a manifest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .conversion import Conversion

# Helm takes release names of DNS labels, up to so many characters.
_RELEASE = re.compile(r"[a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?")


def release_of(conversion: Conversion) -> str:
    """Return the name of the release: the manifest's, or dpd when Helm does not take that."""
    name = conversion.manifest.name
    return name if _RELEASE.fullmatch(name) else "dpd"


def install_command(conversion: Conversion, file: str) -> str:
    """Return the command that installs the chart with the values."""
    manifest = conversion.manifest
    command = f"helm install {release_of(conversion)} charts/dpd -n {manifest.namespace} -f {file}"
    if seconds := conversion.get("maxDeployTimeInSeconds"):
        command += f" --wait --timeout {seconds}s"
    return command


def comment(conversion: Conversion, file: str) -> str:
    """Return the comment at the beginning of the values."""
    manifest = conversion.manifest
    return (
        f"Made from the InferenceEndpointConfig {manifest.name} in the namespace "
        f"{manifest.namespace} ({manifest.source}).\n{install_command(conversion, file)}"
    )


def report(conversion: Conversion, values: Mapping[str, Any], file: str) -> str:
    """Return the report: what was carried over, what was not, what to know, how to install.

    Args:
        conversion: what became of the manifest.
        values: the values as they were written, without the chart's defaults.
        file: the name of their file.
    """
    parts = (
        ("Carried over:", _carried(conversion, values)),
        ("Not carried over:", _left(conversion)),
        ("To know before installing:", _notes(conversion)),
        ("Install:", iter([f"  {install_command(conversion, file)}"])),
    )
    texts = ("\n".join([title, *lines]) for title, lines in parts)
    return "\n\n".join(text for text in texts if "\n" in text) + "\n"


def _carried(conversion: Conversion, values: Mapping[str, Any]) -> Iterator[str]:
    left = {one.path for one in conversion.left}
    whole = {one.path for one in conversion.left if one.value == _field(conversion, one.path)}
    for path, keys in conversion.carried:
        written = [key for key in keys if _has(values, key)]
        if path in whole or any(path.startswith((f"{one}.", f"{one}[")) for one in left):
            continue  # what its keys hold is of other fields
        if written:
            yield f"  {path} -> {', '.join(written)}"
        elif not any(f"{one}.".startswith(f"{path}.") for one in left):
            yield f"  {path} -> {', '.join(keys) + ' (the default)' if keys else 'see Install'}"


def _field(conversion: Conversion, path: str) -> Any:
    """Return what the manifest has at a path of the report."""
    return conversion.get(path.removeprefix("spec."))


def _has(values: Mapping[str, Any], key: str) -> bool:
    """Whether values have a dotted key, as far as a list in it."""
    found: Any = values
    for part in key.partition("[]")[0].split("."):
        if not isinstance(found, Mapping) or part not in found:
            return False
        found = found[part]
    return True


def _left(conversion: Conversion) -> Iterator[str]:
    order = conversion.paths
    ranks = {path: rank for rank, path in enumerate(order)}

    def rank(path: str) -> int:
        fits = [
            number
            for known, number in ranks.items()
            if path.startswith(known) or known.startswith(f"{path}.")
        ]
        return min(fits, default=len(order))

    for one in sorted(conversion.left, key=lambda one: rank(one.path)):
        yield f"  {one.path}: {_shown(one.value)}"
        yield f"      {one.reason}"


def _notes(conversion: Conversion) -> Iterator[str]:
    for note in dict.fromkeys(conversion.notes):
        yield f"  - {note}"
    if (name := conversion.manifest.name) != release_of(conversion):
        yield f"  - Helm takes no release name like {name}; choose one of up to 53 a-z, 0-9 and -"


def _shown(value: Any) -> str:
    """Return a value on one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
