"""What a prefiller and a decoder must agree on for KV of the one to be right in the other."""

from __future__ import annotations

import os
from collections.abc import Sequence


def revision() -> str:
    """Return the chart's revision of this engine, from DPD_REVISION; empty without the chart."""
    return os.environ.get("DPD_REVISION", "")


def fingerprint(
    *,
    model: str,
    kv_shape: Sequence[int],
    kv_dtype: str,
    ranks: int,
    chunk_size: int,
    revision: str,
    vllm_version: str,
    lmcache_version: str,
) -> dict[str, str]:
    """Return the facts by name. `hash_seed` probes Python's str hash, which chunk keys use."""
    return {
        "model": model,
        "kv_shape": "x".join(str(n) for n in kv_shape),
        "kv_dtype": kv_dtype,
        "ranks": str(ranks),
        "chunk_size": str(chunk_size),
        "revision": revision,
        "hash_seed": str(hash("dpd")),
        "vllm": vllm_version,
        "lmcache": lmcache_version,
    }


def difference(prefill: dict[str, str], decode: dict[str, str]) -> str:
    """Say where two fingerprints differ, naming each fact and both values; empty if they agree."""
    return ", ".join(
        f"{name} is {prefill.get(name, 'not given')} on the prefiller and "
        f"{decode.get(name, 'not given')} on the decoder"
        for name in sorted(prefill.keys() | decode.keys())
        if prefill.get(name) != decode.get(name)
    )
