"""One conversion on its way: what was read, what was written, what was left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .chart import Chart
from .errors import ConvertError
from .reading import Manifest
from .shapes import a_map, maps, texts


@dataclass(frozen=True)
class Left:
    """A field, or a part of one, that the values do not have.

    Attributes:
        path: where the manifest has it.
        value: what it is there.
        reason: why the values do not have it, and what to do instead.
    """

    path: str
    value: Any
    reason: str


@dataclass
class Conversion:
    """What the parts of a conversion share.

    Attributes:
        manifest: what is converted.
        chart: what it is converted for.
        paths: the manifest's fields that are set, in its order.
        values: the values so far.
        left: what the values do not have.
        carried: pairs of a field's path and the keys of the values.
        notes: what to know or to do before installing.
    """

    manifest: Manifest
    chart: Chart
    paths: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    carried: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def get(self, path: str) -> Any:
        """Return the field of the manifest's spec at a dotted path; None when it is not there."""
        return self.manifest.get(path)

    def map(self, path: str) -> Mapping[str, Any]:
        """Return a map of the spec; an empty one when it is not there.

        Raises:
            ConvertError: it is no map.
        """
        return a_map(self.get(path), f"spec.{path}")

    def maps(self, path: str) -> list[Mapping[str, Any]]:
        """Return a list of maps of the spec; an empty one when it is not there.

        Raises:
            ConvertError: it is no such list.
        """
        return maps(self.get(path), f"spec.{path}")

    def texts(self, path: str) -> list[str]:
        """Return a list of texts of the spec; an empty one when it is not there.

        Raises:
            ConvertError: it has something else.
        """
        return texts(self.get(path), f"spec.{path}")

    def required(self, path: str) -> Any:
        """Return a field of the manifest's spec.

        Raises:
            ConvertError: it is not there.
        """
        value = self.get(path)
        if value in (None, ""):
            raise ConvertError(
                f"{self.manifest.source}: spec.{path} is missing, which an InferenceEndpointConfig "
                "must have; add it"
            )
        return value

    def written(self, key: str) -> Any:
        """Return the value at a dotted key: one written so far, or the chart's default."""
        for values in (self.values, self.chart.values):
            found: Any = values
            for part in key.split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
            if found is not None:
                return found
        return None

    def set(self, key: str, value: Any) -> None:
        """Write a value at a dotted key; a map goes into the map that is there, a list is added."""
        *parents, last = key.split(".")
        place = self.values
        for parent in parents:
            place = place.setdefault(parent, {})
        if isinstance(value, dict) and isinstance(place.get(last), dict):
            place[last] |= value
        elif isinstance(value, list) and isinstance(place.get(last), list):
            place[last] += value
        else:
            place[last] = value

    def carry(self, path: str, keys: Iterable[str]) -> None:
        """Say which keys hold a field of the spec, more exactly than the table does."""
        exact = (f"spec.{path}", tuple(dict.fromkeys(keys)))
        self.carried = [exact if one[0] == exact[0] else one for one in self.carried]

    def leave(self, path: str, value: Any, reason: str) -> None:
        """Say that a field of the spec is not carried over, and why."""
        self.left.append(Left(f"spec.{path}", value, reason))

    def note(self, text: str) -> None:
        """Say what to know or to do before installing."""
        self.notes.append(text)
