"""LMCache's PD protocol: what a prefiller is told, and what the engines report back.

The only module that knows this protocol's fields; another KV protocol would stand beside it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from .addresses import join_address
from .config import Receiver
from .engines import Engine


class Notice(msgspec.Struct, tag="ProxyNotif", frozen=True):
    """One rank's report that its part of a transfer has landed, or why it has not.

    left_to_decoder: there was no room for this prompt beside the others of its request.
    """

    req_id: str
    rank: int = 0
    ranks: int = 1
    error: str = ""
    left_to_decoder: bool = False


class Release(msgspec.Struct, tag=True, frozen=True):
    """Word to a decoder that the requests of these transfers have ended, served or not."""

    transfer_ids: list[str]


_decoder = msgspec.msgpack.Decoder(Notice)


def read_notice(message: bytes) -> Notice:
    """Decode an engine's message.

    Raises:
        ValueError: it is not a notice.
    """
    notice = _decoder.decode(message)
    if not 0 <= notice.rank < notice.ranks:
        raise ValueError(f"rank {notice.rank} of {notice.ranks} ranks")
    return notice


class LMCachePD:
    """Makes transfer ids, the parameters of prefill legs, and releases.

    Args:
        reply_to: "ip:port" where engines send their notices; part of every transfer id.
        receiver: the decoders' KV ports.
    """

    def __init__(self, reply_to: str, receiver: Receiver) -> None:
        self._reply_to = reply_to
        self._receiver = receiver

    def new_transfer_ids(self, prompts: int) -> list[str]:
        """Return an id for each prompt of one request, that no other transfer of any router has.

        The decoder tells by what is before the last dash which prompts are served together.
        """
        request = uuid.uuid4().hex
        return [f"{self._reply_to}/{request}-{prompt}" for prompt in range(prompts)]

    def transfer_params(self, transfer_id: str, decoder: Engine) -> Mapping[str, Any]:
        """Return the body fields that make a prefiller push its KV to a decoder."""
        return {
            "kv_transfer_params": {
                "disagg_spec": {
                    "req_id": transfer_id,
                    "receiver_host": decoder.ip,
                    "receiver_init_port": list(self._receiver.init_ports),
                    "receiver_alloc_port": list(self._receiver.alloc_ports),
                },
            }
        }

    def release_address(self, decoder: Engine) -> str:
        """Return "ip:port" of a decoder's first rank, which takes releases for all of them."""
        return join_address(decoder.ip, self._receiver.alloc_ports[0])

    def release(self, transfer_ids: list[str]) -> bytes:
        """Return the message that the requests of these transfers have ended."""
        return msgspec.msgpack.encode(Release(transfer_ids))
