"""What the chart itself says: its default values, and its facts about flags, names and nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .errors import ConvertError

CHECKOUT = Path(__file__).resolve().parents[4] / "charts" / "dpd"


@dataclass(frozen=True)
class Chart:
    """The parts of a chart's folder that a conversion looks at.

    Attributes:
        values: the default values.
        flags: files/flags.yaml.
        environment: files/environment.yaml, patterns of names and what to do instead.
        instances: files/instances.yaml, what a node of each type has.
        models: Hugging Face ids of the models that the chart has numbers of.
        names: files/names.yaml, patterns of names that AWS gives.
        schema: values.schema.json.
    """

    values: Mapping[str, Any]
    flags: Mapping[str, Mapping[str, Any]]
    environment: Sequence[Mapping[str, str]]
    instances: Mapping[str, Mapping[str, int | None]]
    models: tuple[str, ...]
    names: Mapping[str, str]
    schema: Mapping[str, Any]

    def instead_of(self, variable: str, value: str = "") -> str | None:
        """Return what to do instead of setting a variable so, or None when it is free."""
        return self._fact(variable, value).get("instead")

    def secret(self, variable: str) -> str | None:
        """Return how to give a variable that is taken by reference alone, or None."""
        return self._fact(variable).get("secret")

    def _fact(self, variable: str, value: str = "") -> Mapping[str, str]:
        fits = (
            one
            for one in self.environment
            if re.search(one["pattern"], variable) and re.search(one.get("values", ""), value)
        )
        return next(fits, {})

    def is_zone(self, text: str) -> bool:
        """Whether a text is the name of an availability zone."""
        return re.search(self.names["zone"], text) is not None

    def takes(self, key: str, value: str | int | float) -> bool:
        """Whether the schema takes a text or a number at a dotted key, or in its list."""
        place = self.schema
        for part in key.split("."):
            place = self._resolved(place.get("properties", {}).get(part, {}))
        return _fits(self._resolved(place.get("items", place)), value)

    def is_amount(self, value: Any) -> bool:
        """Whether the schema takes a value as an amount of a resource, such as 64Gi."""
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            return False
        return _fits(self.schema["definitions"]["quantity"], value)

    def _resolved(self, place: Mapping[str, Any]) -> Mapping[str, Any]:
        name = place.get("$ref", "").rpartition("/")[2]
        return self.schema["definitions"][name] if name else place

    def _nodes(self, instance_types: Sequence[str]) -> list[Mapping[str, int | None]]:
        return [self.instances.get(name.removeprefix("ml."), {}) for name in instance_types]

    def unknown(self, instance_types: Sequence[str]) -> list[str]:
        """Return those of some instance types that the catalogue does not have."""
        nodes = zip(instance_types, self._nodes(instance_types), strict=True)
        return [name for name, node in nodes if not node]

    def has_memory(self, instance_types: Sequence[str]) -> bool:
        """Whether the catalogue has the GPU memory of each of some types, and there are some."""
        nodes = self._nodes(instance_types)
        return bool(nodes) and all(node.get("gpuMiB") for node in nodes)

    def node(self, instance_types: Sequence[str]) -> dict[str, int]:
        """Return what a node has, by the catalogue's names, as far as all types agree on it."""
        nodes = self._nodes(instance_types)
        if not nodes:
            return {}
        return {
            name: amount
            for name, amount in nodes[0].items()
            if amount is not None and all(node.get(name) == amount for node in nodes)
        }


def _fits(place: Mapping[str, Any], value: str | int | float) -> bool:
    """Whether a place of the schema takes a text or a number."""
    if isinstance(value, str):
        fits = re.search(place.get("pattern", ""), value) is not None
        return fits and len(value) <= place.get("maxLength", len(value))
    return bool(place.get("minimum", value) <= value <= place.get("maximum", value))


def read_chart(folder: Path = CHECKOUT) -> Chart:
    """Read a chart's folder.

    Raises:
        ConvertError: the folder is not the chart's.
    """

    def read(name: str) -> Any:
        return yaml.safe_load((folder / name).read_text(encoding="utf-8"))

    try:
        return Chart(
            values=read("values.yaml"),
            flags=read("files/flags.yaml"),
            environment=read("files/environment.yaml"),
            instances=read("files/instances.yaml"),
            models=tuple(read("files/models.yaml")),
            names=read("files/names.yaml"),
            schema=json.loads((folder / "values.schema.json").read_text(encoding="utf-8")),
        )
    except FileNotFoundError as error:
        raise ConvertError(
            f"{folder} is not the dpd chart ({error.filename} is missing); "
            "give the chart's folder with --chart"
        ) from None
