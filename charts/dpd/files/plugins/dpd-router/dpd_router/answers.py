"""Answers that the router itself gives, in the shape of OpenAI's errors."""

from __future__ import annotations

import json
from collections.abc import Mapping

from aiohttp import web
from multidict import CIMultiDict


class Refused(Exception):
    """A request ends here with this answer; code is a metric label."""

    def __init__(
        self, status: int, message: str, *, code: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = CIMultiDict(headers or {})

    @property
    def body(self) -> bytes:
        """The JSON body for the client."""
        return error_body(self.status, str(self))


class EngineError(Refused):
    """An engine refused a leg; its own status, headers and body go to the client.

    private: the client is at fault, and the body repeats what is between router and engines.
    """

    def __init__(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str],
        *,
        code: str,
        private: bool = False,
    ) -> None:
        super().__init__(status, f"the engine answered {status}", code=code, headers=headers)
        self._body = body
        self.private = private

    @property
    def body(self) -> bytes:
        """The engine's own bytes."""
        return self._body


_TYPES = {
    400: "BadRequestError",
    404: "NotFoundError",
    413: "RequestTooLargeError",
    502: "BadGatewayError",
    503: "ServiceUnavailableError",
    504: "GatewayTimeoutError",
}


def error_body(status: int, message: str) -> bytes:
    """Return an error as the engines write it."""
    kind = _TYPES.get(status, "InternalServerError" if status >= 500 else "BadRequestError")
    error = {"message": message, "type": kind, "param": None, "code": status}
    return json.dumps({"error": error}).encode()


def error_response(refused: Refused) -> web.Response:
    """Return the HTTP answer for a refusal."""
    headers = refused.headers.copy()
    headers.setdefault("Content-Type", "application/json")
    return web.Response(status=refused.status, body=refused.body, headers=headers)
