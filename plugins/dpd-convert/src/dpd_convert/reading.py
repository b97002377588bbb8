"""Reads manifests, and finds the one to convert."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from .errors import ConvertError

KIND = "InferenceEndpointConfig"
GROUP = "inference.sagemaker.aws.amazon.com"


@dataclass(frozen=True)
class Manifest:
    """An InferenceEndpointConfig.

    Attributes:
        source: the file that it came from, for messages.
        content: the whole manifest.
        others: what else is in the file, as "kind name".
    """

    source: str
    content: Mapping[str, Any]
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.content["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Its namespace; that of kubectl's default when it has none."""
        return str(self.content["metadata"].get("namespace") or "default")

    def get(self, path: str) -> Any:
        """Return the field of the spec at a dotted path; None when it is not there."""
        found: Any = self.content["spec"]
        for key in path.split("."):
            found = found.get(key) if isinstance(found, dict) else None
        return found


def read_manifest(text: str, source: str) -> Manifest:
    """Return the one InferenceEndpointConfig with a pdSpec among the documents of a text.

    Raises:
        ConvertError: the text is not YAML, or has none or several of them.
    """
    try:
        documents = [found for found in yaml.safe_load_all(text) if found is not None]
    except yaml.YAMLError as error:
        raise ConvertError(f"{source} is not YAML: {error}; correct it there") from None
    documents = [item for document in documents for item in _unlisted(document)]
    found = [one for one in documents if isinstance(one, dict) and one.get("kind") == KIND]
    if not found:
        kinds = ", ".join(_kind(document) for document in documents) or "nothing"
        raise ConvertError(f"{source} has no {KIND}, but {kinds}; give a manifest of that kind")
    if len(found) > 1:
        names = ", ".join(map(_name, found))
        raise ConvertError(
            f"{source} has {len(found)} of kind {KIND} ({names}); "
            "give each in a file of its own, since each becomes a release of its own"
        )
    others = (f"{_kind(one)} {_name(one)}" for one in documents if one is not found[0])
    return _checked(Manifest(source, found[0], tuple(others)))


def _unlisted(document: Any) -> list[Any]:
    """The documents of a list, as `kubectl get -o yaml` writes it."""
    if isinstance(document, dict) and document.get("kind") == "List":
        return list(document.get("items") or [])
    return [document]


def _kind(document: Any) -> str:
    if isinstance(document, dict) and document.get("kind"):
        return str(document["kind"])
    return f"a document without kind ({json.dumps(document, default=str)[:40]})"


def _name(document: Any) -> str:
    metadata = document.get("metadata") if isinstance(document, dict) else None
    return str(metadata.get("name")) if isinstance(metadata, dict) else "without name"


def _checked(manifest: Manifest) -> Manifest:
    content, source = manifest.content, manifest.source
    version = str(content.get("apiVersion"))
    if version.partition("/")[0] != GROUP:
        raise ConvertError(
            f"{source}: apiVersion is {version}, but an {KIND} of HyperPod has {GROUP}/v1; "
            "correct it, or give another manifest"
        )
    metadata, spec = content.get("metadata"), content.get("spec")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise ConvertError(f"{source}: metadata.name is missing; it becomes the release's name")
    if not isinstance(spec, dict):
        raise ConvertError(f"{source}: spec is missing; give the whole manifest")
    if not spec.get("pdSpec"):
        raise ConvertError(
            f"{source}: spec.pdSpec is missing, so this endpoint has no prefill and decode to "
            "convert; the dpd chart only runs the two apart. Add a pdSpec with prefillSpec and "
            "decodingSpec first"
        )
    return manifest
