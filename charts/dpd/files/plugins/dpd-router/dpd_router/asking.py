"""Questions to a decoder's allocation port, and its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import zmq
import zmq.asyncio


class NoAnswer(Exception):
    """The decoder did not answer; the text says why."""


class Line:
    """A connection on which one question is asked at a time, until one gets no answer.

    Args:
        seconds: how long the decoder may take to answer.
    """

    def __init__(self, socket: zmq.asyncio.Socket, seconds: float) -> None:
        self._socket = socket
        self._seconds = seconds

    async def ask(self, message: bytes) -> bytes:
        """Return the decoder's answer to a message of lmcache.py.

        Raises:
            NoAnswer: it took too long.
        """
        try:
            async with asyncio.timeout(self._seconds):
                await self._socket.send(message)
                answer: bytes = await self._socket.recv()
                return answer
        except TimeoutError:
            raise NoAnswer(f"no answer in {self._seconds:g} s") from None
        except zmq.ZMQError as error:
            raise NoAnswer(str(error)) from None


@contextmanager
def line(address: str, seconds: float) -> Iterator[Line]:
    """Connect to the port at "ip:port" for as long as the block runs.

    Raises:
        NoAnswer: the address cannot be used.
    """
    socket = zmq.asyncio.Context.instance().socket(zmq.REQ)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IPV6, 1 if "[" in address else 0)
    try:
        socket.connect(f"tcp://{address}")
    except zmq.ZMQError as error:
        socket.close()
        raise NoAnswer(str(error)) from None
    try:
        yield Line(socket, seconds)
    finally:
        socket.close()
