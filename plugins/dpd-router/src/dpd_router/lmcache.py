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
    """One rank's report that its part of a transfer has landed, or why it has not."""

    req_id: str
    rank: int = 0
    ranks: int = 1
    error: str = ""

    @property
    def of(self) -> tuple[str, int]:
        """The transfer, and the number of the attempt at it."""
        address, slash, rest = self.req_id.rpartition("/")
        unique, _, number = rest.partition(".")
        return address + slash + unique, int(number) if number.isdecimal() else 1


class Reserve(msgspec.Struct, tag=True, frozen=True):
    """Question to a decoder: is there room for the prompts of one request, of so many tokens?"""

    transfer_ids: list[str]
    tokens: list[int]


class Reserved(msgspec.Struct, tag=True, frozen=True):
    """Answer: for the first so many prompts there is; 0 means not now."""

    prompts: int


class Denied(msgspec.Struct, tag="Refused", frozen=True):
    """Answer: never, and why."""

    reason: str


class Release(msgspec.Struct, tag=True, frozen=True):
    """Word to a decoder that the requests of these transfers have ended, served or not."""

    transfer_ids: list[str]


_decoder = msgspec.msgpack.Decoder(Notice)
_answer = msgspec.msgpack.Decoder(Reserved | Denied)
# What decoders of earlier releases, which reserve nothing, say to a question.
_STRANGE = "message not understood"


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
    """Makes transfer ids, the parameters of prefill legs, and what a decoder is told and asked.

    Args:
        reply_to: "ip:port" where engines send their notices; part of every transfer id.
        receiver: the decoders' KV ports.
    """

    def __init__(self, reply_to: str, receiver: Receiver) -> None:
        self._reply_to = reply_to
        self._start = uuid.uuid4().hex[:8]
        self._receiver = receiver

    def new_transfer_id(self) -> str:
        """Return an id that no other transfer of any router has.

        A decoder sees by it which of two processes at one address made it.
        """
        return f"{self._reply_to}/{self._start}-{uuid.uuid4().hex}"

    def attempt_id(self, transfer_id: str, attempt: int) -> str:
        """Return the id that a prefiller gets with an attempt at a transfer, the first of them 1.

        Each has its own, since an earlier one may still be at work.
        """
        return transfer_id if attempt == 1 else f"{transfer_id}.{attempt}"

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

    def decoder_address(self, decoder: Engine) -> str:
        """Return "ip:port" of a decoder's first rank, which routers speak with."""
        return join_address(decoder.ip, self._receiver.alloc_ports[0])

    def reserve(self, transfer_ids: list[str], tokens: list[int]) -> bytes:
        """Return the question for room for one request's prompts."""
        return msgspec.msgpack.encode(Reserve(transfer_ids, tokens))

    def read_reserved(self, answer: bytes, prompts: int) -> int:
        """Return for how many of a question's prompts there is room.

        Raises:
            ValueError: there never will be, or this is no answer.
        """
        reserved = _answer.decode(answer)
        if isinstance(reserved, Denied):
            if reserved.reason.startswith(_STRANGE):
                return prompts
            raise ValueError(reserved.reason)
        return min(reserved.prompts, prompts)

    def release(self, transfer_ids: list[str]) -> bytes:
        """Return the message that the requests of these transfers have ended."""
        return msgspec.msgpack.encode(Release(transfer_ids))
