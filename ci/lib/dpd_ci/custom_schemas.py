"""Turns CustomResourceDefinitions into JSON schemas for kubeconform, as strict as the API server.

usage: python -m dpd_ci.custom_schemas METADATA FOLDER CRD.yaml…

Each version becomes FOLDER/<group>/<kind>_<version>.json. METADATA is what the schemas of
their `metadata` refer to. Rules in CEL (`x-kubernetes-validations`) have no counterpart and
are left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

Schema = dict[str, Any]

# Of a structural schema; what stands inside anyOf and its like only narrows and names no new keys
COPIED = {
    "type", "format", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength",
    "minItems", "maxItems", "required", "anyOf", "oneOf", "allOf", "not",
}  # fmt: skip
LEFT_OUT = {
    "description", "default", "x-kubernetes-validations", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
}  # fmt: skip
TRANSLATED = {
    "properties", "items", "additionalProperties", "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
}  # fmt: skip


def json_schemas(crd: Schema, metadata: str) -> dict[str, Schema]:
    """The strict schemas of a CRD's versions.

    Args:
        crd: a CustomResourceDefinition of apiextensions.k8s.io/v1.
        metadata: reference to the schema of `metadata`.

    Returns:
        Schemas by `<group>/<kind>_<version>.json`, kinds in lower case.

    Raises:
        ValueError: a keyword that this module does not know.
    """
    group, kind = crd["spec"]["group"], crd["spec"]["names"]["kind"].lower()
    made = {}
    for version in crd["spec"]["versions"]:
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"$ref": metadata}
        made[f"{group}/{kind}_{version['name']}.json"] = schema
    return made


def strict(schema: Schema) -> Schema:
    """The JSON schema of a structural schema; objects take no keys but those they list.

    Raises:
        ValueError: a keyword that this module does not know.
    """
    if unknown := schema.keys() - COPIED - LEFT_OUT - TRANSLATED:
        raise ValueError(f"keywords not known: {', '.join(sorted(unknown))}")
    made = {key: value for key, value in schema.items() if key in COPIED}
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    if "properties" in schema:
        made["properties"] = {key: strict(part) for key, part in schema["properties"].items()}
    if "items" in schema:
        made["items"] = strict(schema["items"])
    if schema.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        others = schema.get("additionalProperties", False)
        made["additionalProperties"] = strict(others) if isinstance(others, dict) else others
    return made


def main(metadata: str, folder: str, *crds: str) -> None:
    """Writes the schemas of files that hold one CRD each."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C where it fits this Python
    for crd in crds:
        parsed = yaml.load(Path(crd).read_bytes(), loader)
        for name, schema in json_schemas(parsed, metadata).items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(schema), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
