"""One question to a decoder's allocation port, and its answer."""

from __future__ import annotations

import asyncio

import zmq
import zmq.asyncio


class NoAnswer(Exception):
    """The decoder did not answer; the text says why."""


async def ask(address: str, message: bytes, *, seconds: float) -> bytes:
    """Return a decoder's answer to a message.

    Args:
        address: "ip:port" of the port.
        message: as lmcache.py writes it.
        seconds: how long the decoder may take.

    Raises:
        NoAnswer: it took longer, or the address cannot be used.
    """
    socket = zmq.asyncio.Context.instance().socket(zmq.REQ)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.IPV6, 1 if "[" in address else 0)
    try:
        socket.connect(f"tcp://{address}")
        async with asyncio.timeout(seconds):
            await socket.send(message)
            answer: bytes = await socket.recv()
            return answer
    except TimeoutError:
        raise NoAnswer(f"no answer in {seconds:g} s") from None
    except zmq.ZMQError as error:
        raise NoAnswer(str(error)) from None
    finally:
        socket.close()
