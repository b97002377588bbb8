"""What the demo tried: its verdicts and its table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpd_local.client import Answer


@dataclass(frozen=True)
class Row:
    """One request of the demo, sent to the router and to the colocated engine.

    Attributes:
        kind: what was asked, for the table.
        disaggregated: which path it must take.
        answer: the router's.
        received: tokens of KV that the decoder took from the prefiller.
        equal: whether the token ids are the colocated engine's.
    """

    kind: str
    disaggregated: bool
    answer: Answer
    received: int
    equal: bool

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with it, in words."""
        path = self.answer.headers.get("x-dpd-path", "unknown")
        wanted = "disaggregated" if self.disaggregated else "direct"
        if path != wanted:
            reason = self.answer.headers.get("x-dpd-reason", "no reason given")
            yield f"{self.kind}: went {path}, not {wanted} ({reason})"
        if self.disaggregated and not self.received:
            yield f"{self.kind}: the decoder received no KV"
        if not self.disaggregated and self.received:
            yield f"{self.kind}: the decoder received KV for a short prompt"
        if not self.equal:
            yield f"{self.kind}: the tokens differ from the colocated engine's"


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text, one line each, below their headings."""
    heads = ("", "prompt tokens", "path", "prefill", "KV received", "TTFT", "total", "tokens equal")
    lines: list[Sequence[str]] = [heads]
    for row in rows:
        answer = row.answer
        prefill = answer.headers.get("x-dpd-prefill-seconds")
        lines.append(
            (
                row.kind,
                str(answer.prompt_tokens),
                answer.headers.get("x-dpd-path", "?"),
                _milliseconds(float(prefill) if prefill else None),
                str(row.received),
                _milliseconds(answer.first_seconds),
                _milliseconds(answer.total_seconds),
                "yes" if row.equal else "NO",
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n" + "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f} ms"
