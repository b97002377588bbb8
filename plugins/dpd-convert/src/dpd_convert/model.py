"""The model: its names, and where engines get it from."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .arguments import Arguments
from .conversion import Conversion
from .errors import ConvertError
from .folders import Folders, mounted_at
from .shapes import a_map

_CONFIG = "modelSourceConfig"
# Where the chart mounts a model.
_MOUNT = "/model"
_MOUNTPOINT = "the Mountpoint for Amazon S3 CSI driver, which the cluster must have,"

# By modelSourceType: the fields that it reads, and our type and keys below model.source.
_SOURCES: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "s3": ("s3Storage", "s3", {"bucketName": "s3.bucket", "region": "s3.region"}),
    "fsx": (
        "fsxStorage",
        "fsx",
        {
            "fileSystemId": "fsx.fileSystemId",
            "dnsName": "fsx.dnsName",
            "mountName": "fsx.mountName",
        },
    ),
    "huggingface": (
        "huggingFaceModel",
        "huggingFace",
        {
            "tokenSecretRef.name": "huggingFace.tokenSecret.name",
            "tokenSecretRef.key": "huggingFace.tokenSecret.key",
        },
    ),
    "kubernetesVolume": ("", "", {}),
}


# The volumes that the chart knows: our type, and our keys for theirs.
_VOLUMES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "persistentVolumeClaim": ("pvc", {"claimName": "claimName"}),
    "hostPath": ("hostPath", {"path": "path"}),
    "image": ("image", {"reference": "reference", "pullPolicy": "pullPolicy"}),
}


def convert(conversion: Conversion, arguments: Arguments) -> Folders:
    """Write the model's names and source; return where its folder was and is."""
    kind = conversion.required(f"{_CONFIG}.modelSourceType")
    if kind not in _SOURCES:
        raise ConvertError(
            f"{conversion.manifest.source}: spec.{_CONFIG}.modelSourceType is {kind}, but must be "
            f"one of {', '.join(_SOURCES)}; correct it"
        )
    name = conversion.required("modelName")
    field, ours, keys = _SOURCES[kind]
    if field and not conversion.get(f"{_CONFIG}.{field}"):
        conversion.required(f"{_CONFIG}.{field}")
    _leave_other_sources(conversion, kind, field)
    if kind == "huggingface":
        conversion.set("model.name", conversion.required(f"{_CONFIG}.{field}.modelId"))
        conversion.set("model.servedName", name)
        if revision := conversion.get(f"{_CONFIG}.{field}.commitSHA"):
            conversion.set("model.revision", revision)
    else:
        conversion.set("model.name", name)
        _say_known_name(conversion, name)
    if ours:
        conversion.set("model.source.type", ours)
    for theirs, key in keys.items():
        if (value := conversion.get(f"{_CONFIG}.{field}.{theirs}")) not in (None, ""):
            conversion.set(f"model.source.{key}", value)
    if kind == "kubernetesVolume":
        _write_volume(conversion)
    if kind == "fsx" and not all(
        conversion.written(f"model.source.{key}") for key in keys.values()
    ):
        conversion.note(
            "set model.source.fsx.dnsName and model.source.fsx.mountName: `aws fsx "
            "describe-file-systems` shows both"
        )
    _write_access(conversion, kind)
    folders = _write_path(conversion, kind, arguments)
    _leave_mount(conversion, kind, folders)
    return folders


def _leave_other_sources(conversion: Conversion, kind: str, chosen: str) -> None:
    for field, _, _ in _SOURCES.values():
        if field != chosen and conversion.get(f"{_CONFIG}.{field}"):
            reason = f"modelSourceType is {kind}, so this is not looked at"
            conversion.leave(f"{_CONFIG}.{field}", conversion.get(f"{_CONFIG}.{field}"), reason)


def _say_known_name(conversion: Conversion, name: str) -> None:
    """Say which model of the chart's list this may be; the chart checks memory by its numbers."""

    def plain(text: str) -> str:
        return re.sub(r"[^a-z0-9]+", "-", text.rpartition("/")[2].lower())

    for known in conversion.chart.models:
        if plain(known) == plain(name):
            conversion.note(
                f"if these are the weights of {known}, set model.name to it and model.servedName "
                f"to {name}: the chart then checks that memory is enough"
            )


def _write_access(conversion: Conversion, kind: str) -> None:
    prefetch = conversion.get(f"{_CONFIG}.prefetchEnabled")
    if kind == "s3":
        conversion.set("model.source.s3.access", "copy" if prefetch else "mount")
        reader = "the service accounts of engines and router" if prefetch else _MOUNTPOINT
        conversion.note(f"give {reader} s3:ListBucket and s3:GetObject on the bucket")
    elif prefetch is not None:
        reason = "only for s3; from elsewhere engines read the model where it is"
        conversion.leave(f"{_CONFIG}.prefetchEnabled", prefetch, reason)


def _write_path(conversion: Conversion, kind: str, arguments: Arguments) -> Folders:
    """Write the folder within the source: the model's location, and what args say below it."""
    old = mounted_at(conversion)
    location = str(conversion.get(f"{_CONFIG}.modelLocation") or "")
    if kind == "huggingface" or conversion.written("model.source.type") == "huggingFace":
        if location:
            reason = "modelSourceType does not need it; model.name says which model"
            conversion.leave(f"{_CONFIG}.modelLocation", location, reason)
        return Folders(old)
    below = [item[len(old) :] for _, item in arguments.models if item.startswith(old + "/")]
    place = location.strip("/")
    if path := "/".join(filter(None, (place, *(part.strip("/") for part in below[:1])))):
        conversion.set("model.source.path", path)
    if kind == "s3" and conversion.written("model.source.s3.access") == "copy":
        # Only the model is copied, so that the mount has nothing else.
        return Folders(old + "".join(below[:1]), _MOUNT)
    return Folders(old, f"{_MOUNT}/{place}".rstrip("/"))


def _leave_mount(conversion: Conversion, kind: str, folders: Folders) -> None:
    """Say where the model is now, unless it is still at the manifest's own mount."""
    mount = "worker.modelVolumeMount"
    if (name := conversion.get(f"{mount}.name")) and kind != "kubernetesVolume":
        conversion.leave(f"{mount}.name", name, "the chart has a volume of its own for the model")
    if path := conversion.get(f"{mount}.mountPath"):
        if folders.new:
            reason = f"the model is at {folders.new}, and paths below the old folder say so now"
            conversion.leave(f"{mount}.mountPath", path, reason)
        elif kind == "huggingface":
            reason = "engines fetch the model into HF_HOME; nothing to do unless something reads it"
            conversion.leave(f"{mount}.mountPath", path, reason)


def _write_volume(conversion: Conversion) -> None:
    """Write the source for a volume of the manifest's own."""
    name = conversion.required("worker.modelVolumeMount.name")
    volumes = conversion.maps("kubernetes.volumes")
    volume = next((one for one in volumes if one.get("name") == name), {})
    if not volume:
        raise ConvertError(
            f"{conversion.manifest.source}: spec.worker.modelVolumeMount.name is {name}, but "
            "spec.kubernetes.volumes has no volume of that name; add it, or correct the name"
        )
    for kind, (ours, keys) in _VOLUMES.items():
        if kind in volume:
            source = a_map(volume[kind], f"{kind} of the volume {name}")
            values = {key: source[theirs] for theirs, key in keys.items() if theirs in source}
            conversion.set("model.source", {"type": ours, ours: values})
            break
    else:
        folder = mounted_at(conversion)
        conversion.set("model.name", folder)
        conversion.set("model.servedName", conversion.get("modelName"))
        conversion.set("engines.volumes", [volume])
        conversion.set("engines.volumeMounts", [{"name": name, "mountPath": folder}])
        conversion.note(
            f"the volume {name} is of the engines only; set model.tokenizer to the model's Hugging "
            "Face id, or mount a volume with the tokenizer in the router (router.volumes)"
        )
