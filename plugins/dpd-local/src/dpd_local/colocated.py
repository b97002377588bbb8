"""The reference: one engine that does prefill and decode itself, made from the decode pod."""

from __future__ import annotations

import copy

from dpd_local.pods import Pod

# What wires an engine into disaggregation: our plugin's path and settings, and LMCache's.
_WIRING = ("LMCACHE_", "DPD_")


def colocated_from(decode: Pod) -> Pod:
    """Return a pod "colocated-0": the decode pod's command without any KV transfer.

    Everything that decides the tokens (model, dtype, batch sizes) stays as the decoder has it.
    """
    spec = copy.deepcopy(decode.spec)
    container = spec["containers"][0]
    container["args"] = [
        word for word in container["args"] if not word.startswith("--kv-transfer-config=")
    ]
    container["env"] = [
        variable
        for variable in container["env"]
        if variable["name"] != "PYTHONPATH" and not variable["name"].startswith(_WIRING)
    ]
    metadata = copy.deepcopy(decode.metadata)
    metadata.setdefault("labels", {})["app.kubernetes.io/component"] = "colocated"
    return Pod(name="colocated-0", metadata=metadata, spec=spec)
