"""The receive buffer's use, from the workers to the engine's /metrics."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from prometheus_client import Gauge
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

from dpd_vllm.buffer import Usage


class TransferStats(KVConnectorStats):
    """A `buffer.Usage`: the one reported last, of whichever rank."""

    @classmethod
    def of(cls, usage: Usage) -> TransferStats:
        """Wrap the usage of one rank."""
        return cls(data=asdict(usage))

    def reset(self) -> None:
        """Forget what was observed."""
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Combine with a later observation, or with that of another rank."""
        if not other.is_empty():
            self.data = other.data
        return self

    def reduce(self) -> dict[str, int | float]:
        """Return the pages by use, for vLLM's log line."""
        return {f"receive buffer pages {name}": count for name, count in self.data.items()}

    def is_empty(self) -> bool:
        """Tell whether nothing was observed."""
        return not self.data


class TransferMetrics(KVConnectorPromMetrics):
    """`dpd:receive_buffer_pages{state}`: total, free, expected, wanted, cached (see buffer.py)."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._pages = self._gauge_cls(
            name="dpd:receive_buffer_pages",
            documentation="Pages of the KV receive buffer of a rank, by use.",
            labelnames=[*self._labelnames, "state"],
            **({"multiprocess_mode": "mostrecent"} if self._gauge_cls is Gauge else {}),
        )

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Set the gauges from a TransferStats' data."""
        labels = self.per_engine_labelvalues[engine_idx]
        for state, pages in transfer_stats_data.items():
            self._pages.labels(*labels, state).set(pages)
