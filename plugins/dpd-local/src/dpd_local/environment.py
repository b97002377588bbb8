"""A container's environment, worked out as the kubelet does it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dpd_local.pods import Configuration, Pod, PodError

_REFERENCE = re.compile(r"\$\$|\$\(([^)]*)\)")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def resolve(pod: Pod, configuration: Configuration, ip: str) -> dict[str, str]:
    """Return the container's variables: envFrom in its order, then env in its order.

    A later one replaces an earlier one of the same name; `$(NAME)` in a value sees only those
    before it.

    Raises:
        PodError: a ConfigMap, Secret, key or field that does not exist, unless optional.
    """
    found: dict[str, str] = {}
    for source in pod.container.get("envFrom") or []:
        prefix = source.get("prefix", "")
        for kind, objects in _sources(configuration).items():
            if reference := source.get(f"{kind}Ref"):
                data = objects.get(reference["name"])
                if data is None and not reference.get("optional"):
                    raise PodError(f"pod {pod.name}: envFrom: no {kind} {reference['name']}")
                found |= {prefix + key: value.decode() for key, value in (data or {}).items()}
    for variable in pod.container.get("env") or []:
        if "valueFrom" in variable:
            value = _value_from(pod, variable, configuration, ip)
            if value is None:
                continue
        else:
            value = expand(str(variable.get("value") or ""), found)
        found[variable["name"]] = value
    return found


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value; an unknown name stays as it is, `$$` gives `$`."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(replace, text)


def field(pod: Pod, path: str, ip: str) -> str:
    """Return the pod's field that a `fieldRef` names.

    Raises:
        PodError: a field that is not known here.
    """
    if keyed := _KEYED.fullmatch(path):
        return str((pod.metadata.get(keyed[1]) or {}).get(keyed[2], ""))
    known = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.metadata.get("namespace", "default"),
        "metadata.uid": pod.uid,
        "spec.nodeName": "localhost",
        "spec.serviceAccountName": pod.spec.get("serviceAccountName", "default"),
        "status.hostIP": "127.0.0.1",
        "status.podIP": ip,
        "status.podIPs": ip,
    }
    if path not in known:
        raise PodError(f"pod {pod.name}: fieldRef {path} is not known; known: {', '.join(known)}")
    return str(known[path])


def _sources(configuration: Configuration) -> dict[str, dict[str, dict[str, bytes]]]:
    return {"configMap": configuration.config_maps, "secret": configuration.secrets}


def _value_from(
    pod: Pod, variable: Mapping[str, Any], configuration: Configuration, ip: str
) -> str | None:
    source = variable["valueFrom"]
    if "fieldRef" in source:
        return field(pod, source["fieldRef"]["fieldPath"], ip)
    for kind, objects in _sources(configuration).items():
        if reference := source.get(f"{kind}KeyRef"):
            data = objects.get(reference["name"], {})
            if reference["key"] in data:
                return data[reference["key"]].decode()
            if reference.get("optional"):
                return None
            raise PodError(
                f"pod {pod.name}: env {variable['name']}: {kind} {reference['name']} has no key "
                f"{reference['key']}"
            )
    raise PodError(
        f"pod {pod.name}: env {variable['name']}: valueFrom {', '.join(source)} is not supported; "
        "fieldRef, configMapKeyRef and secretKeyRef are"
    )
