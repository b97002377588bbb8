"""The vLLM command lines of a manifest: values of the model, shared arguments, each role's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .command import shared_words
from .conversion import Conversion
from .flags import Flag, laid_over, last_of_each, meant, split
from .folders import Folders, make_writable, mounted_at

SHARED = "worker.args"
ROLES = {"prefill": "pdSpec.prefillSpec.args", "decode": "pdSpec.decodingSpec.args"}
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


def tokens(text: str) -> int:
    """Return a number of tokens as vLLM reads it: 16384, 16k (16000) or 16K (16384).

    Raises:
        ValueError: it is none, such as "auto".
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([kKmMgG]?)", text)
    if not found:
        raise ValueError(text)
    return int(float(found[1]) * _UNITS[found[2].lower() if "." in found[1] else found[2]])


def positive(text: str) -> int:
    """Return a number of GPUs.

    Raises:
        ValueError: it is none, or less than one.
    """
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


# Flags that are values here, the same for both roles.
VALUES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "--served-model-name": ("model.servedName", str),
    "--tokenizer": ("model.tokenizer", str),
    "--revision": ("model.revision", str),
    "--max-model-len": ("model.maxLen", tokens),
    "--dtype": ("model.dtype", str),
    "--tensor-parallel-size": ("model.tensorParallelSize", positive),
    "--pipeline-parallel-size": ("model.pipelineParallelSize", positive),
}


@dataclass
class Arguments:
    """The flags of a manifest that are not dealt with yet, by where it has them.

    Attributes:
        shared: those of the worker.
        roles: those of prefill and of decode.
        models: what is said to be the model: pairs of a field and an item.
    """

    shared: list[Flag]
    roles: dict[str, list[Flag]]
    models: list[tuple[str, str]] = field(default_factory=list)

    def role(self, role: str) -> list[Flag]:
        """Return what counts for a role."""
        return laid_over(self.shared, self.roles[role])

    def places(self) -> list[tuple[str, list[Flag]]]:
        """Return each list with its field."""
        return [(SHARED, self.shared), *((ROLES[role], own) for role, own in self.roles.items())]

    def in_both(self, flag: Flag) -> bool:
        """Whether both roles have a flag of their own with the same values."""
        return all(flag in own for own in self.roles.values())


def read(conversion: Conversion) -> Arguments:
    """Take the command lines of a manifest apart."""
    shared = shared_words(conversion)
    roles = {role: conversion.texts(at) for role, at in ROLES.items()}
    arguments = Arguments([], {role: [] for role in roles})
    for path, flags, given in (
        (SHARED, arguments.shared, shared),
        *((ROLES[role], arguments.roles[role], given) for role, given in roles.items()),
    ):
        found, before = split(given, conversion.chart.flags["aliases"])
        arguments.models += [(path, item) for item in before]
        counting, again = last_of_each(found)
        for flag in again:
            reason = "given again further on, and vLLM takes the last"
            conversion.leave(path, _shown(conversion, flag), reason)
        for flag in counting:
            if model := _model_behind(conversion, flag, bool(arguments.models)):
                arguments.models.append((path, model))
                flag = replace(flag, values=flag.values[:-1])
            if flag.name != "--model":
                flags.append(flag)
    return arguments


def _model_behind(conversion: Conversion, flag: Flag, found: bool) -> str | None:
    """The model, when it stands behind `--model`, or behind a flag that takes no value."""
    last = flag.values[-1] if flag.values else None
    model = conversion.get("modelSourceConfig.huggingFaceModel.modelId")
    stray = last in (mounted_at(conversion), model) and not _owned(conversion, flag)
    return last if flag.name == "--model" or (stray and not found) else None


def _owned(conversion: Conversion, flag: Flag) -> str | None:
    return meant(flag.name, conversion.chart.flags["owned"])


def _shown(conversion: Conversion, flag: Flag) -> str:
    """Return a flag with its values, unless those are secrets."""
    secret = meant(flag.name, conversion.chart.flags["secret"])
    return flag.written if secret else str(flag)


def convert(conversion: Conversion, arguments: Arguments, folders: Folders) -> None:
    """Write what the arguments say; paths below the model's old folder become those of the new."""
    for _, flags in arguments.places():
        flags[:] = [replace(f, values=tuple(map(folders.moved, f.values))) for f in flags]
    _leave_models(conversion, arguments)
    _take_values(conversion, arguments, folders)
    facts = [conversion.chart.flags[fact] for fact in ("owned", "refused", "secret")]
    _leave(conversion, arguments, {flag: why for fact in facts for flag, why in fact.items()})
    _settle_prefix_caching(conversion, arguments)
    _share(arguments)
    alike = "both roles must write a prompt alike; set it in engines.args"
    shared_only = dict.fromkeys(conversion.chart.flags["sharedOnly"], alike)
    _leave(conversion, Arguments([], arguments.roles), shared_only)
    _keep_room(conversion, arguments)
    for key, flags in (("engines", arguments.shared), *arguments.roles.items()):
        if flags:
            conversion.set(f"{key}.args", [item for flag in flags for item in flag.items])
        for flag in flags:
            if flag.name == "--download-dir" and flag.value.startswith("/"):
                make_writable(conversion, flag.name, flag.value)


def _leave_models(conversion: Conversion, arguments: Arguments) -> None:
    reason = "the chart writes where the model is, from model.source"
    named = any(_owned(conversion, f) == "--served-model-name" for f in arguments.role("decode"))
    served = conversion.written("model.servedName") or conversion.written("model.name")
    clients = f'; clients that sent it as "model" now send {served}, or your model.servedName'
    for path, item in arguments.models:
        conversion.leave(path, item, reason if named or item == served else reason + clients)


def _take_values(conversion: Conversion, arguments: Arguments, folders: Folders) -> None:
    """Move flags into the values that both roles share; where the roles differ, decode's counts."""
    for name, (key, read_value) in VALUES.items():
        given = {
            role: flag
            for role in arguments.roles
            for flag in arguments.role(role)
            if _owned(conversion, flag) == name
        }
        counting = given.get("decode") or given.get("prefill")
        for path, flags in arguments.places():
            for flag in [flag for flag in flags if _owned(conversion, flag) == name]:
                flags.remove(flag)
                if counting and flag.values != counting.values:
                    reason = f"both roles share {key}, and {counting} was taken"
                    conversion.leave(path, str(flag), reason)
        if counting:
            _write(conversion, counting, key, read_value, folders)


def _write(
    conversion: Conversion,
    flag: Flag,
    key: str,
    read_value: Callable[[str], Any],
    folders: Folders,
) -> None:
    for more in flag.values[1:]:
        reason = f"{key} is one name; let your gateway rewrite the others"
        conversion.leave(SHARED, f"{flag.written}={more}", reason)
    try:
        value = read_value(flag.value)
    except ValueError:
        conversion.leave(SHARED, str(flag), f"not a number that {key} takes; set it")
        return
    if key == "model.tokenizer" and value in (folders.new, conversion.written("model.name")):
        return  # what the chart takes by itself
    source = conversion.written("model.source.type")
    if key == "model.tokenizer" and source != "huggingFace" and not value.startswith("/"):
        reason = (
            f"with model.source.type {source} pods fetch nothing from Hugging Face, so the model's "
            "own folder has to have the tokenizer; or set model.tokenizer to another folder"
        )
        conversion.leave(SHARED, str(flag), reason)
        return
    if key == "model.revision" and source != "huggingFace":
        conversion.leave(SHARED, str(flag), f"only Hugging Face has revisions, {source} has none")
        return
    if key == "model.revision" and conversion.written(key) not in ("", value):
        reason = "huggingFaceModel.commitSHA is another, and was taken; set model.revision"
        conversion.leave(SHARED, str(flag), reason)
        return
    conversion.set(key, value)


def _leave(conversion: Conversion, arguments: Arguments, reasons: Mapping[str, str]) -> None:
    """Take out flags that the chart does not take in these places, and say why."""
    for path, flags in arguments.places():
        for flag in list(flags):
            if name := meant(flag.name, reasons):
                flags.remove(flag)
                conversion.leave(path, _shown(conversion, flag), reasons[name])


def _settle_prefix_caching(conversion: Conversion, arguments: Arguments) -> None:
    """Give the prefillers alone what the chart decides for decoders."""
    facts = conversion.chart.flags["ownedByDecode"]
    for path, flags in ((SHARED, arguments.shared), (ROLES["decode"], arguments.roles["decode"])):
        for flag in list(flags):
            if name := meant(flag.name, facts):
                flags.remove(flag)
                conversion.leave(path, str(flag), f"not for the decoder: {facts[name]}")
                if path == SHARED:
                    own = arguments.roles["prefill"]
                    own[:] = laid_over([flag], own)


def _share(arguments: Arguments) -> None:
    """Move what both roles say alike to the shared arguments."""
    for flag in list(arguments.roles["prefill"]):
        if arguments.in_both(flag):
            for own in arguments.roles.values():
                own.remove(flag)
            arguments.shared[:] = laid_over(arguments.shared, [flag])


def _keep_room(conversion: Conversion, arguments: Arguments) -> None:
    """Leave room for the transfer buffer to the chart: what it works out, or its default's flag."""
    facts = conversion.chart.flags["gpuRoom"]
    if all(any(meant(flag.name, facts) for flag in arguments.role(r)) for r in arguments.roles):
        return
    types = conversion.written("instanceTypes")
    known = conversion.chart.has_memory(types)
    default, _ = split(conversion.chart.values["engines"]["args"], {})
    room = [flag for flag in default if flag.name in facts]
    for flag in room:
        missing = f"spec.worker.args has no {flag.written}, so "
        if known:
            conversion.note(
                f"{missing}the chart works it out: vLLM's own 0.9, less what the transfer buffer "
                f"takes of a GPU of {', '.join(types)}"
            )
        else:
            conversion.note(
                f"{missing}the chart's {flag.value} applies: it leaves room on the GPU for the "
                "transfer buffer. vLLM's own is 0.9"
            )
    if known:
        conversion.set("engines.args", [])
    elif arguments.shared:
        arguments.shared[:0] = room
