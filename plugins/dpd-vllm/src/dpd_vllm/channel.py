"""NIXL between engines: handshakes, and writes into a decoder's memory, each with a time limit."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

import zmq

from dpd_vllm.sender import DecoderLost, TransferError

_POLL = 0.001  # seconds between looks at a write under way
_LOOK = 200  # milliseconds between looks at whether to stop
# NIXL's metadata has some kilobytes, and descriptors of 24 bytes a page.
_MAX_HANDSHAKE_BYTES = 256 * 1024**2


def serve_handshakes(
    socket: zmq.Socket[bytes],
    address: str,
    answer: Callable[[bytes], bytes],
    running: Callable[[], bool],
    log: Callable[[str], None],
) -> None:
    """Answer prefillers that make a NIXL handshake, until `running` is false.

    A message that `answer` raises on gets an empty answer, which no prefiller takes for a good one.

    Args:
        socket: a REP socket, closed at the end.
        address: `host:port` to bind.
        answer: LMCache's answer to a message.
        running: asked between messages.
        log: told of messages that `answer` raises on.
    """
    with socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, _MAX_HANDSHAKE_BYTES)
        socket.bind(f"tcp://{address}")
        while running():
            if not socket.poll(_LOOK):
                continue
            message = b"".join(socket.recv_multipart())
            try:
                reply = answer(message)
            except Exception as error:  # a REP socket must answer, or it never hears again
                log(f"NIXL handshake refused: {error!r}")
                reply = b""
            socket.send(reply)


class NixlWrites:
    """`sender.Channel` over LMCache's NixlChannel.

    Args:
        channel: LMCache's channel, which holds the NIXL agent and the registered memory.
    """

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def connect(self, peer: str, init_address: str, timeout: float) -> None:
        """Exchange NIXL metadata with a decoder; an earlier exchange under this name is replaced.

        Raises:
            DecoderLost: nobody answers within `timeout` seconds.
        """
        host, _, port = init_address.rpartition(":")
        context = self._channel.zmq_context
        try:
            # LMCache's handshake waits for ever: see that somebody listens, and bound its waits.
            socket.create_connection((host, int(port)), timeout).close()
            context.rcvtimeo = int(timeout * 1000)
            self._channel.lazy_init_peer_connection(
                local_id="", peer_id=peer, peer_init_url=init_address
            )
        except (OSError, zmq.ZMQError) as error:
            raise DecoderLost(f"no NIXL handshake with {init_address}: {error}") from error
        except Exception as error:
            raise TransferError(f"NIXL handshake with {init_address} failed: {error}") from error
        finally:
            context.sockopts.pop(zmq.RCVTIMEO, None)

    def write(
        self, peer: str, objects: Sequence[Any], pages: Sequence[int], timeout: float
    ) -> None:
        """Write objects into a decoder's pages; all bytes are there when this returns.

        Raises:
            TransferError: NIXL reports an error, or the write is not done in `timeout` seconds.
        """
        agent = self._channel.nixl_agent
        give_up_at = time.monotonic() + timeout
        try:
            handle = agent.make_prepped_xfer(
                "WRITE",
                self._channel.nixl_wrapper.xfer_handler,
                self._channel.get_local_mem_indices(list(objects)),
                self._channel.remote_xfer_handlers_dict[peer],
                list(pages),
            )
        except Exception as error:
            raise TransferError(f"NIXL refused the write: {error}") from error
        try:
            state = agent.transfer(handle)
            while state == "PROC":
                if time.monotonic() >= give_up_at:
                    raise TransferError(f"the write was not done in {timeout:g} s")
                time.sleep(_POLL)
                state = agent.check_xfer_state(handle)
        except TransferError:
            raise
        except Exception as error:
            raise TransferError(f"the write failed: {error}") from error
        finally:
            # A write that can't be cancelled keeps its handle; its pages stay taken at the decoder
            # for as long again as this time limit.
            with contextlib.suppress(Exception):
                agent.release_xfer_handle(handle)
        if state != "DONE":
            raise TransferError(f"the write failed with state {state}")
