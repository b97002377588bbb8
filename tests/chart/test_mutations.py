"""Every value of the chart counts, and changes nothing that it should not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from .conftest import CHART, Helm, Values
from .places import (
    DEFAULTS,
    ROLES,
    SCHEMA,
    Place,
    chart_without_code,
    get,
    merged,
    others,
    pooled,
    put,
    schema_at,
)

# What a place needs beside it to count; the longest prefix is taken, `*` is engines or a role.
PVC = {"model": {"source": {"type": "pvc", "pvc": {"claimName": "a"}}}}
FSX = {"fileSystemId": "fs-1", "dnsName": "a.b", "mountName": "c"}
COMPANY: dict[str, Values] = {
    "*.autoscaling": {"*": {"autoscaling": {"type": "keda"}}, "prometheusAddress": "http://a"},
    "*.autoscaling.metrics": {"*": {"autoscaling": {"type": "hpa"}}},
    "*.volumeMounts": {"*": {"volumes": [{"name": "data", "emptyDir": {}}]}},
    "cache.l2": {"cache": {"l2": {"type": "redis", "address": "redis:6379"}}},
    "cache.l2.urlSecret": {"cache": {"l2": {"type": "redis", "urlSecret": {"name": "a"}}}},
    "model.source.fsx": {"model": {"source": {"type": "fsx", "fsx": FSX}}},
    "model.source.hostPath": {
        "model": {"source": {"type": "hostPath", "hostPath": {"path": "/a"}}}
    },
    "model.source.huggingFace.tokenSecret": {
        "model": {"source": {"huggingFace": {"tokenSecret": {"name": "a"}}}}
    },
    "model.source.image": {"model": {"source": {"type": "image", "image": {"reference": "a:b"}}}},
    "model.source.path": PVC,
    "model.source.pvc": PVC,
    "model.source.s3": {"model": {"source": {"type": "s3", "s3": {"bucket": "bucket"}}}},
    "placement.placementGroup": {"placement": {"placementGroup": {"name": "a"}}},
    "prometheusAddress": {
        "engines": {"autoscaling": {"type": "keda"}},
        "prometheusAddress": "http://a",
    },
    "router.autoscaling": {"router": {"autoscaling": {"type": "hpa"}}},
    "router.autoscaling.triggers": {"router": {"autoscaling": {"type": "keda"}}},
    "router.httpRoute": {"router": {"httpRoute": {"enabled": True, "parentRefs": [{"name": "a"}]}}},
    "router.ingress": {"router": {"ingress": {"enabled": True, "hosts": ["a.b"]}}},
    "router.volumeMounts": {"router": {"volumes": [{"name": "data", "emptyDir": {}}]}},
}

# What stands at a place instead, where the schema and the pool do not tell; by its last key.
ALTERNATES: dict[str, Any] = {
    "env": [{"name": "CHANGED", "value": "yes"}],
    "envFrom": [{"secretRef": {"name": "changed"}}],
    "image": {"tag": "changed"},
    "imagePullSecrets": [{"name": "changed"}],
    "resources": {"requests": {"cpu": "3"}},
    "shape": {"weightBytes": 10**14},  # it is read to refuse what cannot fit
    "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "changed", "whenUnsatisfiable": "DoNotSchedule"}
    ],
}
# Of these the first that the schema takes.
TEXTS = ("{}x", "changed", "/changed", "http://changed", "changed:8000", "fs-0", "3Gi")
TEXTS += (f"sha256:{'c' * 64}", "us-west-2a")

# What a place may change, as a pattern for all that changes; the longest prefix counts. Pod/<name>
# is the pod template of a workload, Deployment/<name> the rest of it. What is not named here: a
# component's key changes its pods alone.
PODS = "Pod/NAME"
SELF = "Deployment/NAME"
SCALING = "(HorizontalPodAutoscaler|ScaledObject|Deployment)/NAME"
CONFIGURED = "(ConfigMap|Pod)/NAME"
OF_A_COMPONENT = {
    "annotations": SELF,
    "autoscaling": SCALING,
    "podDisruptionBudget": "PodDisruptionBudget/NAME",
    "replicas": SELF,
    "serviceAccount": r"Pod/NAME|ServiceAccount/[\w-]+",
    "strategy": SELF,
}
ROUTER_ALONE = {
    "engines": CONFIGURED,
    "httpRoute": "HTTPRoute/NAME",
    "ingress": "Ingress/NAME",
    "mode": CONFIGURED,
    "service": "Service/NAME",
    "threshold": CONFIGURED,
    "timeouts": CONFIGURED,
    "tls": "(ConfigMap|Pod|Service)/NAME",
}
BOTH = "demo-dpd-(prefill|decode)"
ALL = "demo-dpd-(prefill|decode|router)"
MAY_CHANGE = {
    "bindAddress": f"Pod/{ALL}|ConfigMap/demo-dpd-router",
    "cache": "(ConfigMap|Pod)/demo-dpd-prefill",
    "commonAnnotations": r"(?!Pod/).*",
    "commonLabels": r".*",
    # An engine pairs only with those of its own image: both roles' pods know which that is.
    "decode.image": f"Pod/{BOTH}",
    "fullnameOverride": r".*",
    "global": "",
    "image": f"Pod/{ALL}",
    "imagePullSecrets": f"Pod/{ALL}",
    "instanceTypes": f"Pod/{BOTH}",
    "kvTransfer": f"(ConfigMap|Pod)/{BOTH}",
    "kvTransfer.allocationTimeoutSeconds": "(ConfigMap|Pod)/demo-dpd-(prefill|decode|router)",
    "kvTransfer.backend": f"(ConfigMap|Pod|NetworkPolicy)/{BOTH}",
    "kvTransfer.ports.alloc": "(ConfigMap|Pod|NetworkPolicy)/demo-dpd-(decode|router)",
    "kvTransfer.ports.init": "(ConfigMap|Pod|NetworkPolicy)/demo-dpd-(decode|router)",
    "kvTransfer.ports.notify": "(ConfigMap|Pod|NetworkPolicy)/demo-dpd-router",
    "model": f"Pod/{ALL}|ConfigMap/demo-dpd-router",
    # An engine over several nodes is another kind of workload, with a Service for its pods.
    "model.pipelineParallelSize": rf"[A-Z]\w+/{BOTH}|(ConfigMap|Pod)/demo-dpd-router",
    "model.source.fsx": rf"Pod/{ALL}|PersistentVolume(Claim)?/[\w-]+",
    "model.source.s3": rf"(Pod|ConfigMap)/{ALL}|PersistentVolume(Claim)?/[\w-]+",
    "nameOverride": r".*",
    "networkPolicy": f"NetworkPolicy/{ALL}",
    "placement": f"Pod/{BOTH}",
    "podSecurityContext": f"Pod/{ALL}",
    "prefill.image": f"Pod/{BOTH}",
    "prometheusAddress": f"ScaledObject/{BOTH}",
    "securityContext": f"Pod/{ALL}",
}
for component, name in {
    "engines": BOTH,
    **{role: f"demo-dpd-{role}" for role in ("prefill", "decode", "router")},
}.items():
    own = OF_A_COMPONENT | (ROUTER_ALONE if component == "router" else {})
    MAY_CHANGE[component] = PODS.replace("NAME", name)
    MAY_CHANGE |= {f"{component}.{key}": own[key].replace("NAME", name) for key in own}

NOT_READ = {("global",)}  # the parent's, as values.yaml says
# Places that a refusal does not name, since another value is at fault, and what it names.
BLAMED = {("model", "shape"): "bytes of weights"}


def leaves(values: Any, above: Place = ()) -> Iterator[Place]:
    """The places that hold no map with keys of its own."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key)


OF_ENGINES = list(leaves(DEFAULTS["engines"]))
PLACES = [*leaves(DEFAULTS), *((role, *place) for role in ROLES for place in OF_ENGINES)]


def longest(table: dict[str, Any], place: Place) -> str | None:
    """The key of a table that is the longest prefix of a place."""
    prefixes = (".".join(place[:length]) for length in range(len(place), 0, -1))
    return next((prefix for prefix in prefixes if prefix in table), None)


def company(place: Place) -> Values:
    """The values that a place needs beside it."""
    owner = place[0] if place[0] in ("engines", *ROLES) else None
    key = longest(COMPANY, place) or longest(COMPANY, ("*", *place[1:]) if owner else ())
    values = COMPANY.get(key or "", {})
    return {owner if name == "*" and owner else name: part for name, part in values.items()}


def another(place: Place, value: Any) -> Any:
    """A value that the schema takes at a place, other than the one there."""
    schema = schema_at(place)
    if place[-1] in ALTERNATES and not isinstance(value, str):
        return ALTERNATES[place[-1]]
    if schema is None:
        return others(value)[0]
    if pool := pooled(place):
        items = [item for item in pool if item not in (value or [])]
        return items[:1] if isinstance(value, list) else items[0]
    if "patternProperties" in schema:
        return {"changed": "yes"}
    if "items" in schema:
        return [another((*place, "[]"), "")]
    valid = Draft7Validator({**schema, "definitions": SCHEMA["definitions"]}).is_valid
    step = schema.get("multipleOf", 1)
    choices: list[Any] = list(schema.get("enum", []))
    if isinstance(value, bool):
        choices = [not value]
    elif isinstance(value, int | float):
        choices = [value + step, value - step]
    elif value is None:
        choices = [5]
    elif not choices:
        choices = [text.format(value) for text in TEXTS]
    return next(choice for choice in choices if choice != value and valid(choice))


def parts(manifests: str) -> dict[str, Any]:
    """Objects by kind and name, a workload's pod template as an object of its own."""
    found: dict[str, Any] = {}
    for manifest in filter(None, yaml.load_all(manifests, yaml.CSafeLoader)):
        name = manifest["metadata"]["name"]
        found[f"{manifest['kind']}/{name}"] = manifest
        for template in ("template", "leaderWorkerTemplate"):
            if template in (manifest.get("spec") or {}):
                found[f"Pod/{name}"] = manifest["spec"].pop(template)
    return found


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chart_without_code(tmp_path_factory.mktemp("chart"))


@pytest.fixture(scope="module")
def before(chart: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each set of values in COMPANY makes, filled when first asked for."""
    return {}


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_another_value_changes_what_it_should_or_is_refused_by_name(
    helm4: Helm, chart: Path, before: dict[str, dict[str, Any]], place: Place
) -> None:
    beside = company(place)
    if (key := yaml.safe_dump(beside)) not in before:
        status, out, error = helm4.run(beside, release="demo", chart=chart)
        assert status == 0, error
        before[key] = parts(out)
    shared = ("engines", *place[1:]) if place[0] in ROLES else place
    current = get(merged(DEFAULTS, beside), place)
    value = another(place, get(DEFAULTS, shared) if current is None else current)
    values = put(beside, place, value)
    status, out, error = helm4.run(values, release="demo", chart=chart)
    if status:
        assert "these values cannot be used:" in error, error
        assert BLAMED.get(place, place[-1]) in error, error
        return
    old, new = before[key], parts(out)
    different = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    assert different or place in NOT_READ, f"{value!r} changes nothing"
    allowed = MAY_CHANGE[longest(MAY_CHANGE, place) or ""]
    too_far = {name for name in different if not re.fullmatch(allowed, name)}
    assert not too_far, f"{value!r} changes {sorted(too_far)}; only {allowed} is its matter"


def test_templates_read_only_values_that_there_may_be() -> None:
    read = set()
    for file in (CHART / "templates").iterdir():
        text = file.read_text(encoding="utf-8")
        for definition in re.split(r"(?={{- define)", text):
            read |= {(file.name, chain, owners) for chain, owners in accesses(definition)}
    assert len({chain for _, chain, _ in read}) > 100
    wrong = [
        (file, chain)
        for file, chain, owners in sorted(read)
        if not any(may_be((*owner, *chain)) for owner in owners)
    ]
    assert wrong == []


COMPONENT = (("engines",), ("router",))


def accesses(text: str) -> Iterator[tuple[Place, tuple[Place, ...]]]:
    """The chains of keys that a template reads, each with the places that it may start from."""
    chain = r"((?:\.[A-Za-z0-9]+)*)"
    starts: list[tuple[str, tuple[Place, ...]]] = [
        (r"\.Values", ((),)),
        (r"\(include \"dpd\.values\" [^()]*\| fromJson\)", COMPONENT),
        (r"\(index \.root\.Values \.component\)", COMPONENT),
    ]
    for start, owners in list(starts):
        for name, keys in re.findall(rf"\$(\w+) :?= [$.\w]*{start}{chain} *-?}}}}", text):
            places = tuple((*owner, *keys.split(".")[1:]) for owner in owners)
            starts.append((rf"\${name}\b", places))
    if re.search(r"\$values :?= include \"dpd\.values\"", text):
        starts.append((r"\$values\b", COMPONENT))
    for start, owners in starts:
        for keys in re.findall(rf"{start}{chain}", text):
            yield tuple(keys.split(".")[1:]), owners


def may_be(place: Place) -> bool:
    """Whether the schema lists a place, or passes through what it is in."""
    for length in range(1, len(place) + 1):
        schema = schema_at(place[:length])
        if schema is None:
            return False
        if not schema.keys() & {"properties", "patternProperties"}:
            return length == len(place) or "object" in schema.get("type", "")
    return True
