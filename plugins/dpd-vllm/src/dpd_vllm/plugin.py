"""The entry point that vLLM calls in each of its processes."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version
from typing import Any

from dpd_vllm.wiring import WiringError, read_wiring

CONNECTOR = "LMCacheConnectorV1"


def register() -> None:
    """Check the wiring and put our subclass in the place of vLLM's LMCache connector.

    Called before the command line is parsed and before a model is loaded. Without DPD_ROLE the
    engine is not one of ours and nothing changes. LMCache and NIXL are not imported here.
    """
    try:
        wiring = read_wiring(os.environ)
    except WiringError as error:
        sys.exit(f"dpd: {error}")
    if wiring is None:
        return
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    from dpd_vllm import compat

    compat.keep_process_method()
    KVConnectorFactory._registry[CONNECTOR] = _load_connector
    print(
        f"dpd: {wiring.role} with vLLM {version('vllm')} and LMCache {version('lmcache')}",
        file=sys.stderr,
        flush=True,
    )


def _load_connector() -> type[Any]:
    from dpd_vllm.connector import LMCacheConnectorV1

    return LMCacheConnectorV1
