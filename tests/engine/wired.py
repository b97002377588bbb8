"""An engine's environment and LMCache configuration as the chart writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dpd_vllm.wiring import Wiring, WiringError, read_wiring

Change = dict[str, Any]

SHARED: Change = {
    "chunk_size": 256,
    "local_cpu": False,
    "enable_pd": True,
    "transfer_channel": "nixl",
    "nixl_backends": ["UCX"],
    "pd_buffer_size": 34359738368,
    "pd_buffer_device": "cpu",
    "save_decode_cache": False,
    "extra_config": {"dpd_allocation_timeout_seconds": 30, "dpd_pull_timeout_seconds": 300},
}
OF_ROLE: dict[str, Change] = {
    "prefill": {"pd_role": "sender"},
    "decode": {
        "pd_role": "receiver",
        "pd_peer_init_port": [7300, 7301],
        "pd_peer_alloc_port": [7400, 7401],
    },
}
ROLES = pytest.mark.parametrize("role", ["prefill", "decode"])


class Pod:
    """The environment and configuration file that the chart gives an engine, changed by a test."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "lmcache.yaml"

    def env(self, role: str, **changed: str | None) -> dict[str, str]:
        """Return the environment; None takes a name out."""
        usual = {
            "DPD_ROLE": role,
            "DPD_CHUNK_SIZE": "256",
            "DPD_KV_BACKEND": "UCX",
            "PYTHONHASHSEED": "0",
            "LMCACHE_CONFIG_FILE": str(self.file),
            "LMCACHE_TRACK_USAGE": "false",
            **({"LMCACHE_PD_PEER_HOST": "10.0.0.9"} if role == "decode" else {}),
        }
        return {name: value for name, value in (usual | changed).items() if value is not None}

    def write(self, role: str, **changed: Any) -> None:
        """Write the configuration; None takes a key out."""
        content = SHARED | OF_ROLE[role] | changed
        kept = {key: value for key, value in content.items() if value is not None}
        self.file.write_text(yaml.safe_dump(kept))

    def read(self, role: str, env: Change | None = None, config: Change | None = None) -> Wiring:
        self.write(role, **config or {})
        wired = read_wiring(self.env(role, **env or {}))
        assert wired is not None
        return wired

    def refusal(self, role: str, env: Change | None = None, config: Change | None = None) -> str:
        with pytest.raises(WiringError) as refused:
            self.read(role, env, config)
        return str(refused.value).replace(str(self.file), "FILE")
