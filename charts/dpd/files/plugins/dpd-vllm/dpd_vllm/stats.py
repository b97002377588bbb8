"""The receive buffer's use, from the workers to the engine's /metrics, and its revision."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

from prometheus_client import Gauge
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from dpd_vllm.buffer import Usage, fullest
from dpd_vllm.fingerprint import revision


class TransferStats(KVConnectorStats):
    """The last `buffer.Usage` of each rank, by the rank's number as text."""

    @classmethod
    def of(cls, usage: Usage, rank: int) -> TransferStats:
        """Wrap the usage of one rank."""
        return cls(data={str(rank): asdict(usage)})

    def reset(self) -> None:
        """Forget what was observed."""
        self.data: dict[str, dict[str, int]] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Combine with a later observation, or with that of another rank."""
        self.data = self.data | other.data
        return self

    def reduce(self) -> dict[str, int | float]:
        """Return the fullest rank's pages by use, for vLLM's log line."""
        return {f"receive buffer pages {use}": count for use, count in _shown(self.data).items()}

    def is_empty(self) -> bool:
        """Tell whether nothing was observed."""
        return not self.data


def _shown(by_rank: dict[str, dict[str, int]]) -> dict[str, int]:
    # One rank is enough to see: room runs out first where most is held.
    usages = [Usage(**usage) for usage in by_rank.values()]
    return asdict(fullest(usages)) if usages else {}


class TransferMetrics(KVConnectorPromMetrics):
    """`dpd:receive_buffer_pages{state}`: total, free, expected, wanted, cached (see buffer.py).

    Of several ranks the fullest one is shown. `dpd:engine_info{revision,role}` is 1 from the
    start: routers pair engines by it.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._pages = self._gauge_cls(
            name="dpd:receive_buffer_pages",
            documentation="Pages of the KV receive buffer of the fullest rank, by use.",
            labelnames=[*self._labelnames, "state"],
            **({"multiprocess_mode": "mostrecent"} if self._gauge_cls is Gauge else {}),
        )

        info = self._gauge_cls(
            name="dpd:engine_info",
            documentation="The revision that prefillers and decoders have alike, and the role.",
            labelnames=[*self._labelnames, "revision", "role"],
            **({"multiprocess_mode": "mostrecent"} if self._gauge_cls is Gauge else {}),
        )
        for labels in self.per_engine_labelvalues.values():
            info.labels(*labels, revision(), os.environ.get("DPD_ROLE", "")).set(1)

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Set the gauges from a TransferStats' data."""
        labels = self.per_engine_labelvalues[engine_idx]
        for state, pages in _shown(transfer_stats_data).items():
            self._pages.labels(*labels, state).set(pages)
