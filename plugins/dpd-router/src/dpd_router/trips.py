"""What the router notes about one request on its way."""

from __future__ import annotations

import re
import time
import uuid
from dataclasses import dataclass, field

from aiohttp import web

_UNCLEAN = re.compile(r"[^A-Za-z0-9._:-]")
MAX_ID_LENGTH = 128


def clean_id(given: object) -> str:
    """Return a client's request id without what could forge log lines; empty if nothing is left."""
    if not isinstance(given, str):
        return ""
    return _UNCLEAN.sub("", given[: 16 * MAX_ID_LENGTH])[:MAX_ID_LENGTH]


@dataclass(slots=True)
class Trip:
    """One request: who asked, since when, and the headers its answer gets.

    prompt_tokens is the sum over its prompts, 0 if they were not counted.
    """

    request: web.Request
    id: str
    path: str = "direct"
    prompt_tokens: int = 0
    prefill_seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def start(cls, request: web.Request) -> Trip:
        """Note a request's arrival."""
        trip = cls(request, clean_id(request.headers.get("X-Request-Id")) or uuid.uuid4().hex)
        trip.headers["x-request-id"] = trip.id
        return trip

    def rename(self, request_id: str) -> None:
        """Use another id."""
        self.id = self.headers["x-request-id"] = request_id

    @property
    def seconds(self) -> float:
        """Seconds since the request arrived."""
        return time.monotonic() - self.began

    @property
    def path_and_query(self) -> str:
        """The request's target as the client wrote it."""
        return self.request.rel_url.raw_path_qs

    @property
    def media_type(self) -> str:
        """The body's content type without parameters, as the engine reads it."""
        return self.request.headers.get("Content-Type", "").lower().split(";")[0]

    @property
    def may_be_json(self) -> bool:
        """Whether an engine may read the body as JSON; without a content type some paths do."""
        kind = self.media_type.strip()
        return kind in ("", "application/json") or kind.endswith("+json")

    @property
    def client_left(self) -> bool:
        """Whether the client has closed its connection."""
        return self.request.transport is None or self.request.transport.is_closing()
