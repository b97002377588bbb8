"""One request to an OpenAI-compatible endpoint, with the times that a user sees."""

from __future__ import annotations

import http.client
import json
import time
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class AnswerError(RuntimeError):
    """The endpoint answered with an error status, or broke off; the message says which."""


@dataclass(frozen=True)
class Answer:
    """What came back.

    Attributes:
        headers: names in lower case.
        prompt_tokens: as the engine counted them.
        token_ids: the generated tokens.
        first_seconds: from sending to the first token; of an answer that was not streamed, None.
        total_seconds: from sending to the end.
    """

    headers: dict[str, str]
    prompt_tokens: int
    token_ids: list[int]
    first_seconds: float | None
    total_seconds: float


def ask(base_url: str, path: str, body: Mapping[str, Any], timeout: float = 300) -> Answer:
    """Send `body` and read the whole answer, streamed or not, as `body` says.

    Args:
        base_url: http://host:port.
        path: /v1/completions or /v1/chat/completions.
        body: without `return_token_ids`, which is added.
        timeout: of each network operation, seconds.

    Raises:
        AnswerError: a status other than 200, or a stream that ends without [DONE].
        OSError: no connection.
    """
    stream = bool(body.get("stream"))
    body = {**body, "return_token_ids": True}
    if stream:
        body["stream_options"] = {"include_usage": True}
    address = urllib.parse.urlsplit(base_url)
    connection = http.client.HTTPConnection(address.netloc, timeout=timeout)
    started = time.monotonic()
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        response = connection.getresponse()
        if response.status != 200:
            text = response.read().decode(errors="replace")
            raise AnswerError(f"{base_url}{path}: status {response.status}: {text}")
        token_ids: list[int] = []
        first: float | None = None
        prompt_tokens = 0
        for chunk in _events(response) if stream else [json.loads(response.read())]:
            for choice in chunk.get("choices") or []:
                if choice.get("token_ids"):
                    first = first or time.monotonic()
                    token_ids += choice["token_ids"]
            if chunk.get("usage"):
                prompt_tokens = chunk["usage"]["prompt_tokens"]
        ended = time.monotonic()
    finally:
        connection.close()
    return Answer(
        headers={name.lower(): value for name, value in response.getheaders()},
        prompt_tokens=prompt_tokens,
        token_ids=token_ids,
        first_seconds=first - started if stream and first else None,
        total_seconds=ended - started,
    )


def _events(response: http.client.HTTPResponse) -> Any:
    """Yield the data of each server-sent event up to [DONE]."""
    for line in response:
        if line.startswith(b"data: "):
            data = line.removeprefix(b"data: ").strip()
            if data == b"[DONE]":
                response.read()
                return
            chunk = json.loads(data)
            if "error" in chunk:
                raise AnswerError(f"the stream broke off: {chunk['error']}")
            yield chunk
    raise AnswerError("the stream ended without [DONE]")
