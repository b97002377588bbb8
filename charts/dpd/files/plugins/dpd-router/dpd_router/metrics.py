"""What the router measures, by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320)


class Metrics:
    """All metrics of one router, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "dpd_router_requests_total",
            "Requests by the path they took and why",
            ["path", "reason"],
            registry=registry,
        )
        self.responses = Counter(
            "dpd_router_responses_total",
            "Ended requests by path and how they ended: a status, aborted, or client_left",
            ["path", "status"],
            registry=registry,
        )
        self.refused = Counter(
            "dpd_router_refused_total",
            "Requests that ended without a decoder's answer, by cause",
            ["cause"],
            registry=registry,
        )
        self.prompt_tokens = Counter(
            "dpd_router_prompt_tokens_total",
            "Prompt tokens counted, by path",
            ["path"],
            registry=registry,
        )
        self.count_mismatches = Counter(
            "dpd_router_count_mismatches_total",
            "Prefill legs whose engine counted other prompt tokens than the router",
            registry=registry,
        )
        self.count_seconds = Histogram(
            "dpd_router_count_seconds",
            "Time to parse and count a request",
            buckets=_SECONDS,
            registry=registry,
        )
        self.room_seconds = Histogram(
            "dpd_router_room_seconds",
            "Time that a request waited for room in a decoder's receive buffer",
            buckets=_SECONDS,
            registry=registry,
        )
        self.prefill_seconds = Histogram(
            "dpd_router_prefill_seconds",
            "Time of a prefill leg until its HTTP answer",
            buckets=_SECONDS,
            registry=registry,
        )
        self.transfer_wait_seconds = Histogram(
            "dpd_router_transfer_wait_seconds",
            "Time from a prefill leg's HTTP answer until its KV had landed",
            buckets=_SECONDS,
            registry=registry,
        )
        self.ttft_seconds = Histogram(
            "dpd_router_ttft_seconds",
            "Time from the arrival of a completion or chat to the first byte of its stream; other "
            "answers have no first token to see",
            ["path"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.in_flight = Gauge(
            "dpd_router_in_flight",
            "Open requests on engines, by role",
            ["role"],
            registry=registry,
        )
        self.in_flight_tokens = Gauge(
            "dpd_router_in_flight_tokens",
            "Prompt tokens of the open requests on engines, by role: of prefillers until they "
            "answer, of decoders until the answer has ended; uncounted prompts add 0",
            ["role"],
            registry=registry,
        )
        self.engines = Gauge(
            "dpd_router_engines",
            "Engines by role and whether they answer",
            ["role", "state"],
            registry=registry,
        )
        self.transfers_waiting = Gauge(
            "dpd_router_transfers_waiting", "Transfers not landed yet", registry=registry
        )
        self.prompts_without_room = Counter(
            "dpd_router_prompts_without_room_total",
            "Prompts that decoders computed, for their receive buffers had no room for them beside "
            "the other prompts of their request",
            registry=registry,
        )
        self.notices_unknown = Counter(
            "dpd_router_notices_unknown_total",
            "Notices for transfers that nobody waits for (any more)",
            registry=registry,
        )
        self.notices_invalid = Counter(
            "dpd_router_notices_invalid_total",
            "Messages on the notice port that are no notices",
            registry=registry,
        )
        self.retries = Counter(
            "dpd_router_upstream_retries_total",
            "Requests sent again because an idle connection had just been closed",
            registry=registry,
        )
        for role in ("prefill", "decode"):
            # Autoscalers take a missing series for an error, and 0 for no load.
            self.in_flight.labels(role).set(0)
            self.in_flight_tokens.labels(role).set(0)

    @contextmanager
    def at_engine(self, role: str, tokens: int) -> Iterator[None]:
        """Count a request of so many prompt tokens as open on an engine while the block runs."""
        with self.in_flight.labels(role).track_inprogress():
            self.in_flight_tokens.labels(role).inc(tokens)
            try:
                yield
            finally:
                self.in_flight_tokens.labels(role).dec(tokens)

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
