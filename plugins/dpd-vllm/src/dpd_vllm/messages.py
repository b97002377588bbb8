"""What a prefiller, a decoder and a router say to each other, in msgpack.

Prefiller to decoder, on the decoder's allocation port (ZMQ REQ to REP, one port per rank):
`Allocate` is answered by `Allocated` or `Refused`; `Landed` and `Abandon` by `Done`; `Where` by
`Ranks`.
Prefiller to router (ZMQ PUSH to PULL): `Notice`, one per rank that stores KV.
Router to decoder, on the first rank's allocation port: `Reserve`, answered by `Reserved` or
`Refused`, before it has a prefiller compute anything; and `Release`, answered by `Done`, of which
the first rank tells the others.

A router's transfer ids are of the form `host:port/start-unique`. When a prompt is sent to a
prefiller again, or to another one, prefillers get the same id with the number of the attempt
behind it, `host:port/start-unique.2`, for the earlier attempt may still be at work.
"""

from __future__ import annotations

from typing import Literal

import msgspec

# What to do without pages: ask again, for the buffer is full now; stop, for nobody wants this KV
# any more; or fail.
Then = Literal["ask_again", "stop", "fail"]


class Allocate(msgspec.Struct, tag=True, frozen=True):
    """Ask for a page for each chunk of KV that is about to be written."""

    transfer_id: str
    fingerprint: dict[str, str]  # what both engines must agree on, see fingerprint.py
    keys: list[str]  # LMCache's chunk keys, in prompt order
    remaining_chunks: int  # chunks of this prompt still to come, these included
    shape: list[int]  # of a full chunk, in LMCache's KV_2LTD order
    last_chunk_tokens: int  # tokens in the last of `keys`
    dtype: str
    fmt: int
    again: bool = False  # an earlier answer was not heard, so nothing is written by it
    boot_id: str = ""  # of the process that is meant, if that is known


class Allocated(msgspec.Struct, tag=True, frozen=True):
    """Pages are reserved; nothing is visible to the decoder before `Landed`."""

    boot_id: str  # differs for each start of the decoder's process
    ticket: int
    already_landed: list[int]  # indexes into `keys` that need not be written
    pages: list[int]  # page numbers for the other keys, in order


class Refused(msgspec.Struct, tag=True, frozen=True):
    """No page was reserved."""

    boot_id: str
    reason: str
    then: Then


class Landed(msgspec.Struct, tag=True, frozen=True):
    """All writes of this ticket are complete."""

    boot_id: str  # of the process that gave the ticket: a later one numbers anew
    ticket: int


class Abandon(msgspec.Struct, tag=True, frozen=True):
    """The prefiller won't complete this attempt at a transfer."""

    transfer_id: str
    unwritten: bool = False  # no write of this attempt is under way, nor will one be


class Reserve(msgspec.Struct, tag=True, frozen=True):
    """Ask for room for the prompts of one request, by transfer."""

    transfer_ids: list[str]
    tokens: list[int]  # of each prompt


class Reserved(msgspec.Struct, tag=True, frozen=True):
    """There is room for the first so many prompts; for none, ask again: the buffer is full now."""

    boot_id: str
    prompts: int


class Release(msgspec.Struct, tag=True, frozen=True):
    """The requests of these transfers have ended, served or not: nobody wants their KV."""

    transfer_ids: list[str]


class Where(msgspec.Struct, tag=True, frozen=True):
    """Ask where the ranks of this decoder are: a request names the host of the first one alone."""


class RankAt(msgspec.Struct, frozen=True):
    """One rank of a decoder."""

    host: str
    boot_id: str


class Ranks(msgspec.Struct, tag=True, frozen=True):
    """Answer to `Where`: all ranks of the decoder, in their order."""

    boot_id: str
    ranks: list[RankAt]


class Done(msgspec.Struct, tag=True, frozen=True):
    """Answer to `Landed`, `Abandon` and `Release`."""

    boot_id: str


class Notice(msgspec.Struct, tag="ProxyNotif", frozen=True):
    """Tell the router that one rank's KV of a request has landed, or why it never will.

    The tag and `req_id` are LMCache's own (`ProxyNotif` in its pd_backend.py).
    """

    req_id: str  # the transfer id
    rank: int = 0
    ranks: int = 1  # how many different ranks will report
    error: str = ""  # not empty: the transfer failed


ToDecoder = Allocate | Landed | Abandon | Reserve | Release | Where
FromDecoder = Allocated | Refused | Reserved | Done | Ranks

_to_decoder = msgspec.msgpack.Decoder(ToDecoder)
_from_decoder = msgspec.msgpack.Decoder(FromDecoder)

encode = msgspec.msgpack.encode


def decode_to_decoder(data: bytes) -> ToDecoder:
    """Decode a prefiller's message. Raises msgspec.DecodeError on anything else."""
    return _to_decoder.decode(data)


def decode_from_decoder(data: bytes) -> FromDecoder:
    """Decode a decoder's answer. Raises msgspec.DecodeError on anything else."""
    return _from_decoder.decode(data)


def router_address(transfer_id: str) -> str:
    """Return the `host:port` of the router that made a transfer id (`host:port/unique`).

    Raises:
        ValueError: the id names no router.
    """
    address, slash, unique = transfer_id.rpartition("/")
    host, colon, port = address.rpartition(":")
    if not (slash and unique and colon and host and port.isdigit()):
        raise ValueError(f"transfer id {transfer_id!r} is not of the form host:port/unique")
    return address


def attempt_of(transfer_id: str) -> tuple[str, int]:
    """Return the transfer that a prefiller's id is of, and its attempt: 1 without a number."""
    address, slash, rest = transfer_id.rpartition("/")
    unique, _, number = rest.partition(".")
    return address + slash + unique, int(number) if number.isdecimal() else 1


def router_start(transfer_id: str) -> tuple[str, str]:
    """Return the router of a transfer id and which of its starts made it (`host:port/start-…`).

    The start is empty if the id names none.
    """
    address, _, unique = transfer_id.rpartition("/")
    start, dash, _ = unique.partition("-")
    return address, start if dash else ""
