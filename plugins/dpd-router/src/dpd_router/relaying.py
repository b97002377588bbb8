"""Passing a decoder's answer to the client, byte by byte as it comes."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Callable, Mapping

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from .engines import Engine
from .upstream import answer_headers, sorted_errors

_log = logging.getLogger(__name__)


class Aborted(Exception):
    """The client's connection was cut because the engine's answer broke off."""

    def __init__(self, reason: str, response: web.StreamResponse) -> None:
        super().__init__(reason)
        self.response = response


async def relay(
    request: web.Request,
    upstream: aiohttp.ClientResponse,
    engine: Engine,
    *,
    added: Mapping[str, str],
    on_first_byte: Callable[[], None],
) -> web.StreamResponse:
    """Copy status, headers and body of an engine's answer to the client.

    Args:
        request: the client's.
        upstream: the engine's answer, its body not read yet.
        engine: where it comes from.
        added: headers to set on top of the engine's.
        on_first_byte: called once, before the first byte of the body is passed on.

    Raises:
        Aborted: the engine's answer broke off after it had begun. The client's connection is
            closed without a proper end, so that it cannot take the part for the whole.
    """
    headers: CIMultiDict[str] = answer_headers(upstream.headers)
    for name, value in added.items():
        headers[name] = value
    response = web.StreamResponse(status=upstream.status, headers=headers)
    length = upstream.headers.get("Content-Length")
    if length is not None and length.isascii() and length.isdigit():
        response.content_length = int(length)
    await response.prepare(request)
    try:
        chunks = upstream.content.iter_any()
        first = True
        while True:
            with sorted_errors(engine):
                chunk = await anext(chunks, None)
            if chunk is None:
                break
            if first:
                on_first_byte()
                first = False
            await response.write(chunk)
    except ConnectionError:
        raise  # the client's own: it left
    except Exception as error:
        _cut(request)
        raise Aborted(str(error), response) from error
    await response.write_eof()
    return response


def _cut(request: web.Request) -> None:
    """Close the client's connection where it stands."""
    transport = request.transport
    if transport is None:
        return
    if request.version >= aiohttp.HttpVersion11:
        # What was passed on still goes out; the missing last chunk tells the client.
        transport.close()
    else:
        # Without chunks an orderly close would look like the end of the answer: reset instead.
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
