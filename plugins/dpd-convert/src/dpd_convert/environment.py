"""The environment of the engines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .conversion import Conversion
from .folders import Folders, make_writable
from .shapes import a_map

_PATH = "worker.environmentVariables"

# Variables that are values here, all whole numbers.
_VALUES: Mapping[str, str] = {
    "PD_BUFFER_SIZE": "kvTransfer.bufferSize",
    "LMCACHE_PD_BUFFER_SIZE": "kvTransfer.bufferSize",
    "LMCACHE_CHUNK_SIZE": "kvTransfer.chunkSize",
    "PYTHONHASHSEED": "model.hashSeed",
}
# Variables that the router needs as well, when the model comes from Hugging Face.
_ROUTERS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT")
# Names of folders that programs write to.
_FOLDER = re.compile(r"(_HOME|_CACHE|_CACHE_ROOT|_CACHE_DIR|_MULTIPROC_DIR)$")


def convert(conversion: Conversion, folders: Folders) -> None:
    """Write the environment; what the chart writes itself is left to it."""
    keys: list[str] = []
    for name, variable in _counting(conversion).items():
        instead = conversion.chart.instead_of(name, str(variable.get("value")))
        if name in _VALUES:
            keys += _write_value(conversion, variable, _VALUES[name])
        elif instead:
            conversion.leave(_PATH, variable, instead)
        elif variable.get("value") and (by_reference := conversion.chart.secret(name)):
            conversion.leave(_PATH, name, f"a secret in plain text; {by_reference}")
        else:
            keys += _write(conversion, _moved(variable, folders) | {"name": name})
    if keys:
        conversion.carry(_PATH, keys)


def _counting(conversion: Conversion) -> dict[str, Mapping[str, Any]]:
    """Return the variables by name; of two with one name the last counts."""
    counting: dict[str, Mapping[str, Any]] = {}
    for variable in conversion.maps(_PATH):
        name = str(variable.get("name"))
        if name in counting:
            again = name if conversion.chart.secret(name) else counting.pop(name)
            conversion.leave(_PATH, again, "given again further on, and Kubernetes takes the last")
        counting[name] = variable
    return counting


def _moved(variable: Mapping[str, Any], folders: Folders) -> dict[str, Any]:
    value = variable.get("value")
    if isinstance(value, str):
        return {**variable, "value": folders.moved(value)}
    if isinstance(value, (int, float)):  # Kubernetes takes texts alone; YAML writes true so
        return {**variable, "value": str(value).lower() if isinstance(value, bool) else str(value)}
    return dict(variable)


def _write_value(conversion: Conversion, variable: Mapping[str, Any], key: str) -> list[str]:
    """Write a variable that is a value here; return its key."""
    text = str(variable.get("value"))
    if text.isdecimal() and conversion.chart.takes(key, int(text)):
        conversion.set(key, int(text))
        return [key]
    conversion.leave(_PATH, variable, f"no whole number that {key} takes; set it, in digits")
    return []


def _write(conversion: Conversion, variable: dict[str, Any]) -> list[str]:
    """Write a variable; return the keys of the values that hold it."""
    source = a_map(variable.get("valueFrom"), f"valueFrom of {variable['name']}")
    secret = a_map(source.get("secretKeyRef"), f"secretKeyRef of {variable['name']}")
    from_hub = conversion.written("model.source.type") == "huggingFace"
    if from_hub and variable["name"] == "HF_TOKEN" and secret.get("name"):
        token = {"name": secret["name"], "key": secret.get("key")}
        conversion.set("model.source.huggingFace.tokenSecret", token)
        return ["model.source.huggingFace.tokenSecret"]
    keys = ["engines.env"]
    if from_hub and variable["name"] in _ROUTERS:
        keys.append("router.env")
    for key in keys:
        conversion.set(key, [variable])
    folder = variable.get("value")
    if isinstance(folder, str) and _FOLDER.search(variable["name"]) and folder.startswith("/"):
        make_writable(conversion, variable["name"], folder)
    return keys
