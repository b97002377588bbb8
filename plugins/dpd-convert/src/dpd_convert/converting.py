"""A manifest's way through the package: by the table, then part by part."""

from __future__ import annotations

import json

from . import (
    arguments,
    cache,
    entrance,
    environment,
    image,
    labels,
    model,
    placing,
    probes,
    resources,
    scaling,
    volumes,
)
from .chart import Chart
from .conversion import Conversion
from .errors import ConvertError
from .reading import Manifest
from .table import fields

UNKNOWN = (
    "not a field of InferenceEndpointConfig that is known here; look for what it does in the "
    "chart's values.yaml"
)


def convert(manifest: Manifest, chart: Chart) -> Conversion:
    """Return what becomes of a manifest.

    Raises:
        ConvertError: a field has a value of the wrong kind, or one that is needed is missing.
    """
    conversion = Conversion(manifest, chart)
    for path, row, value in fields(manifest.content["spec"]):
        conversion.paths.append(f"spec.{path}")
        if row is None:
            conversion.leave(path, value, UNKNOWN)
        elif not row.takes(value):
            raise ConvertError(
                f"{manifest.source}: spec.{path} is {json.dumps(value, default=str)}, but must be "
                f"of the kind {row.kind}; correct it"
            )
        elif row.how == "left":
            conversion.leave(path, value, row.remark)
        else:
            conversion.carried.append((f"spec.{path}", row.keys))
            if row.how == "copied":
                conversion.set(row.keys[0], value)
    for needed in ("pdSpec.prefillSpec", "pdSpec.decodingSpec"):
        if manifest.get(needed) is None:
            conversion.required(needed)
    _work_out(conversion)
    _refuse(conversion)
    if manifest.others:
        conversion.note(
            f"{manifest.source} also has {', '.join(manifest.others)}, which the chart does not "
            "make; apply them as before"
        )
    return conversion


def _refuse(conversion: Conversion) -> None:
    """Refuse what the chart's schema would refuse, such as a name with a space."""
    for path, keys in conversion.carried:
        value = conversion.get(path.removeprefix("spec."))
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            continue
        for key in keys:
            written = conversion.written(key)
            if written in (value, [value]) and not conversion.chart.takes(key, value):
                raise ConvertError(
                    f"{conversion.manifest.source}: {path} is {json.dumps(value)}, which {key} "
                    "does not take; correct it"
                )


def _work_out(conversion: Conversion) -> None:
    """Run the parts; later ones look at what earlier ones wrote."""
    given = arguments.read(conversion)
    folders = model.convert(conversion, given)
    placing.convert(conversion)
    arguments.convert(conversion, given, folders)
    image.convert(conversion)
    scaling.convert(conversion)
    resources.convert(conversion)
    volumes.convert(conversion)
    environment.convert(conversion, folders)
    probes.convert(conversion)
    cache.convert(conversion)
    entrance.convert(conversion)
    labels.convert(conversion)
    if "maxLen" not in conversion.values["model"]:
        conversion.note(
            "spec.worker.args has no --max-model-len, for which vLLM takes the model's own; "
            f"model.maxLen is {conversion.written('model.maxLen')} unless you set it"
        )
