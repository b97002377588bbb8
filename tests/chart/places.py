"""The places of the chart's values, and what may stand there: by the schema, or from a pool."""

from __future__ import annotations

import functools
import json
import math
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from .conftest import CHART, Values

Place = tuple[str, ...]
Schema = dict[str, Any]

SCHEMA: Schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
INSTANCES: Values = yaml.safe_load((CHART / "files/instances.yaml").read_text(encoding="utf-8"))
ROLES = ("prefill", "decode")

PEERS = [
    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},
    {"ipBlock": {"cidr": "10.0.0.0/8"}},
    {"podSelector": {}},
]
PROBES = [
    {"exec": {"command": ["true"]}, "httpGet": None},
    {"tcpSocket": {"port": 8000}, "httpGet": None},
    {"httpGet": {"path": "/x", "port": 8000}},
    {"periodSeconds": 7},
]
CONTAINERS = [
    {"name": "first", "image": "busybox:1", "command": ["true"]},
    {"name": "second", "image": "busybox:1", "restartPolicy": "Always"},
    {"name": "third", "image": "busybox:1", "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}]},
]
CONTEXTS = [{"runAsUser": 1001}, {"runAsGroup": None}, {"seLinuxOptions": {"level": "s0:c1,c2"}}]

# What the schema passes through, or where most that it allows would be refused: by the last key
# of the place, or the last two. Of a list: its items.
POOL: dict[str, list[Any]] = {
    "affinity": [
        {
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                    }
                ]
            }
        },
        {"podAntiAffinity": None},
        {"podAffinity": {}},
    ],
    "args": [
        "--enforce-eager",
        "--max-num-seqs=8",
        "--gpu-memory-utilization=0.5",
        "--max-num-batched-tokens",
        "8192",
        '--override-generation-config={"a": "b c"}',
        "--kv-cache-dtype=fp8",
    ],
    "claims": [{"name": "gpu"}],
    "clients": PEERS,
    "fieldRef": [{"fieldPath": "metadata.name"}],
    "fileKeyRef": [{"volumeName": "data", "path": "a", "key": "b"}],
    "global": [{}, {"anything": {"of": ["the", "parent"]}}],
    "initContainers": CONTAINERS,
    "instanceTypes": [*INSTANCES, "ml.p5.48xlarge", "ml.p5en.48xlarge", "p99.metal"],
    "lifecycle": [
        {"preStop": {"sleep": {"seconds": 10}}},
        {"preStop": {"exec": {"command": ["true"]}}},
        {"preStop": None},
        {"postStart": {"exec": {"command": ["true"]}}},
    ],
    "livenessProbe": PROBES,
    "metrics": [
        {
            "type": "Pods",
            "pods": {
                "metric": {"name": "load"},
                "target": {"type": "AverageValue", "averageValue": "4"},
            },
        },
        {
            "type": "Resource",
            "resource": {
                "name": "memory",
                "target": {"type": "Utilization", "averageUtilization": 50},
            },
        },
    ],
    "networkPolicy.metrics": PEERS,
    "parentRefs": [{"name": "gateway"}, {"name": "gateway", "namespace": "b", "sectionName": "c"}],
    "podSecurityContext": [*CONTEXTS, {"sysctls": [{"name": "a", "value": "b"}]}, {"fsGroup": 7}],
    "readinessProbe": PROBES,
    "resourceClaims": [
        {"name": "gpu", "resourceClaimTemplateName": "gpu"},
        {"name": "nic", "resourceClaimName": "nic"},
    ],
    "resourceFieldRef": [{"resource": "limits.memory"}],
    "securityContext": [*CONTEXTS, {"capabilities": {"add": ["SYS_PTRACE"]}}],
    "sidecars": CONTAINERS,
    "startupProbe": PROBES,
    "tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute"}],
    "triggers": [
        {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "60"}},
        {
            "type": "cron",
            "metadata": {"start": "0 8 * * *", "end": "0 9 * * *", "timezone": "UTC"},
        },
    ],
    "volumeMounts": [
        {"name": "data", "mountPath": "/data"},
        {"name": "data", "mountPath": "/more", "readOnly": True, "subPath": "a"},
        {"name": "cache", "mountPath": "/cache"},
    ],
    "volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "cache", "hostPath": {"path": "/mnt/cache"}},
        {"name": "secret", "secret": {"secretName": "a", "items": [{"key": "a", "path": "b"}]}},
        {"name": "data", "csi": {"driver": "s3.csi.aws.com", "volumeAttributes": {"a": "b"}}},
    ],
}

# Characters that Helm's own YAML can carry: Helm 3 cannot even hand on a control character.
LETTERS = st.characters(exclude_categories=["Cc", "Cn", "Co", "Cs"])
LINES = st.sampled_from("\n\t")
# Texts that YAML or a template would take for something else.
RISKY = (
    "true",
    "n",
    "null",
    "0",
    "012",
    "1e3",
    "0x1f",
    "1_0",
    "2001-01-01",
    "1:30",
    "~",
    "=",
    "<<",
)
RISKY += ("a: b", "a #b", "- a", "*a", "{{ .Values }}", "%s%d", "$(A)", "'", '"', "\\n", " a ", "|")

# Names for a map's keys where the schema's pattern allows any.
NAMES = {
    "/": ["nvidia.com/gpu", "vpc.amazonaws.com/efa", "example.com/fpga"],
    "^[^/]+$": ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi"],
}


def chart_without_code(folder: Path) -> Path:
    """A copy of the chart with empty plugins, whose code is most of what renders."""
    chart = Path(shutil.copytree(CHART, folder / "dpd"))
    for file in (chart / "files" / "plugins").rglob("*.*"):
        if file.is_file():
            file.write_bytes(b"")
    return chart


def resolved(schema: Schema) -> Schema:
    """A schema without `$ref` and `allOf` at its top."""
    parts = [schema, *schema.get("allOf", [])]
    made: Schema = {}
    for part in parts:
        if "$ref" in part:
            part = {**resolved(SCHEMA["definitions"][part["$ref"].rsplit("/", 1)[1]]), **part}
        made |= {key: value for key, value in part.items() if key not in ("$ref", "allOf")}
    return made


def schema_at(place: Sequence[str]) -> Schema | None:
    """The schema of a place; None where it says nothing, as inside what it passes through.

    The key `[]` is any item of a list.
    """
    schema = resolved(SCHEMA)
    for key in place:
        if key == "[]" and "items" in schema:
            schema = resolved(schema["items"])
        elif key not in schema.get("properties", {}):
            patterns = schema.get("patternProperties", {})
            matching = [pattern for pattern in patterns if re.search(pattern, key)]
            if not matching:
                return None
            schema = resolved(patterns[matching[0]])
        else:
            schema = resolved(schema["properties"][key])
    return schema


def pooled(place: Sequence[str]) -> list[Any] | None:
    """What the pool has for a place."""
    return POOL.get(".".join(place[-2:])) or POOL.get(place[-1]) if place else None


def places(values: Any, above: Place = ()) -> Iterator[Place]:
    """Every key of the values, at any depth."""
    for key, value in values.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from places(value, (*above, key))


def every_place() -> list[Place]:
    """The places of values.yaml, and those of engines once more for each role."""
    shared = list(places(DEFAULTS["engines"]))
    return [*places(DEFAULTS), *((role, *place) for role in ROLES for place in shared)]


def get(values: Any, place: Sequence[str]) -> Any:
    """The value at a place; None where there is none."""
    for key in place:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def put(values: Any, place: Sequence[str], value: Any) -> Values:
    """A copy of values in which another one stands at a place."""
    if not place:
        return value  # type: ignore[no-any-return]
    base = values if isinstance(values, dict) else {}
    return {**base, place[0]: put(base.get(place[0]), place[1:], value)}


def merged(defaults: Any, values: Any) -> Any:
    """Values over defaults as Helm merges them; null takes a key away."""
    if not (isinstance(defaults, dict) and isinstance(values, dict)):
        return values
    both = {
        **defaults,
        **{key: merged(defaults.get(key), value) for key, value in values.items()},
    }
    return {key: value for key, value in both.items() if value is not None}


@functools.cache
def fitting_at(place: Place) -> st.SearchStrategy[Any]:
    """Values that the schema allows at a place of values.yaml."""
    schema = schema_at(place)
    if schema is not None:
        return fitting(schema, place)
    default = get(DEFAULTS, place if place[0] not in ROLES else ("engines", *place[1:]))
    return st.sampled_from([default, *others(default)])


def others(default: Any) -> list[Any]:
    """Other values of the kind of one that the schema passes through."""
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, int):
        return [default + 1]
    if isinstance(default, str):
        return [f"{default}x"]
    return [None]


def fitting(schema: Schema, place: Place) -> st.SearchStrategy[Any]:
    """Values that a schema allows; `place` finds them in the pool."""
    schema = resolved(schema)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "anyOf" in schema:
        return st.one_of(*(fitting(part, place) for part in schema["anyOf"]))
    kinds = schema.get("type", "object")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return st.one_of(*(OF_KIND[kind](schema, place) for kind in kinds))


def _object(schema: Schema, place: Place) -> st.SearchStrategy[Any]:
    if pool := pooled(place):
        return st.sampled_from(pool)
    known = schema.get("properties", {})
    patterns = schema.get("patternProperties", {})
    if not known and not patterns:
        return st.just({})
    parts: list[st.SearchStrategy[dict[str, Any]]] = []
    for pattern in patterns:
        values = fitting(schema["patternProperties"][pattern], place)
        names = st.sampled_from(NAMES[pattern]) if pattern in NAMES else text(pattern)
        parts.append(st.dictionaries(names, values, max_size=2))
    if known:
        required = [key for key in schema.get("required", []) if key in known]
        some = st.lists(st.sampled_from(sorted(known)), max_size=3)

        def chosen(keys: list[str]) -> st.SearchStrategy[dict[str, Any]]:
            return st.fixed_dictionaries(
                {key: fitting_at((*place, key)) for key in dict.fromkeys(required + keys)}
            )

        parts.append(some.flatmap(chosen))
    return st.tuples(*parts).map(lambda made: {k: v for part in made for k, v in part.items()})


def _array(schema: Schema, place: Place) -> st.SearchStrategy[Any]:
    pool = pooled(place)
    items = st.sampled_from(pool) if pool else fitting_at((*place, "[]"))
    unique = (lambda it: json.dumps(it, sort_keys=True)) if schema.get("uniqueItems") else None
    return st.lists(items, max_size=3, unique_by=unique)


def _string(schema: Schema, place: Place) -> st.SearchStrategy[Any]:
    made = text(schema["pattern"]) if "pattern" in schema else st.text(LETTERS | LINES, max_size=20)
    low, high = schema.get("minLength", 0), schema.get("maxLength", 10_000)
    return made.filter(lambda it: low <= len(it) <= high)


@functools.cache
def text(pattern: str) -> st.SearchStrategy[str]:
    """Text that a pattern of the schema matches; Python's $ would let a newline pass, Go's not."""
    compiled = re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern))
    risky = [text for text in RISKY if compiled.search(text)]
    made = st.from_regex(compiled, fullmatch=True, alphabet=LETTERS)
    return made | st.sampled_from(risky) if risky else made


def _integer(schema: Schema, place: Place) -> st.SearchStrategy[Any]:
    step = schema.get("multipleOf", 1)
    low, high = schema.get("minimum", 0), schema.get("maximum", 1_000_000)
    if "exclusiveMinimum" in schema:
        low = schema["exclusiveMinimum"] + 1
    return st.integers(-(-low // step), high // step).map(lambda it: it * step)


def _number(schema: Schema, place: Place) -> st.SearchStrategy[Any]:
    low, high = schema.get("minimum", 0.001), schema.get("maximum", 1_000_000)
    thousandths = st.integers(math.ceil(low * 1000), int(high * 1000)).map(lambda it: it / 1000)
    return thousandths | st.integers(math.ceil(low), int(high))


OF_KIND: dict[str, Any] = {
    "null": lambda schema, place: st.none(),
    "boolean": lambda schema, place: st.booleans(),
    "integer": _integer,
    "number": _number,
    "string": _string,
    "array": _array,
    "object": _object,
}
