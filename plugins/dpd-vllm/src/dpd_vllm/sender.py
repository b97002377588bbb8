"""The prefiller's side of a transfer: ask for pages, write them, say that they have landed.

The order is what makes it safe: a decoder learns of `Landed` only after NIXL reports every write
of the ticket as done, and the router gets its notice only after the decoder has said `Done`.
A failed transfer never takes the engine down: the router gets a notice with the reason, at once.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
import zmq

from dpd_vllm import messages

_log = logging.getLogger(__name__)

_RETRY_PAUSE = 0.01  # seconds between attempts while the decoder's buffer is full
_MAX_ROUTERS = 256  # sockets kept for notices
_MAX_UNTOLD = 1000  # given up transfers kept for a decoder that does not answer


class TransferError(Exception):
    """This transfer failed; the message goes to the router and the log."""


class NotWanted(TransferError):
    """Nobody wants this KV any more, which is no fault."""


class DecoderLost(TransferError):
    """The decoder did not answer, or not as a decoder does."""


class Channel(Protocol):
    """Moves bytes into a decoder's pages."""

    def connect(self, peer: str, init_address: str, timeout: float) -> None:
        """Exchange NIXL metadata with a decoder, afresh. Raises TransferError."""

    def write(
        self, peer: str, objects: Sequence[Any], pages: Sequence[int], timeout: float
    ) -> None:
        """Write objects into pages and return when all are done. Raises TransferError."""


@dataclass(frozen=True)
class Decoder:
    """Where one rank of a decoder listens. `boot_id` is its process's, if that is known."""

    host: str
    init_port: int
    alloc_port: int
    boot_id: str = ""

    @property
    def name(self) -> str:
        """Return a name unique to this rank's address."""
        return f"{self.host}:{self.init_port}"


@dataclass(frozen=True)
class Receivers:
    """Where the ranks of a decoder listen, as a request's `disagg_spec` says.

    `host` is that of the first rank; the others may be on other nodes.
    """

    host: str
    init_ports: Sequence[int]
    alloc_ports: Sequence[int]

    def of_rank(self, rank: int) -> Decoder:
        """Return where one rank listens if it is on the first rank's host.

        Raises:
            TransferError: a list of ports has none for this rank.
        """
        lists = {"receiver_init_port": self.init_ports, "receiver_alloc_port": self.alloc_ports}
        for name, ports in lists.items():
            if len(ports) <= rank:
                raise TransferError(
                    f"{name} has {len(ports)} port(s), rank {rank} needs one of its own"
                )
        return Decoder(self.host, self.init_ports[rank], self.alloc_ports[rank])


@dataclass
class _Peer:
    socket: zmq.Socket[bytes]
    boot_id: str = ""  # the process that the NIXL handshake was made with


@dataclass
class _Progress:
    chunks_sent: int = 0
    failed: bool = False
    unwritten: bool = True  # no write is under way, as one that took too long may be
    decoder: Decoder | None = None


class Sender:
    """Sends chunks of KV to decoders, for one rank. Not thread-safe: the worker's thread owns it.

    Args:
        channel: how bytes move.
        fingerprint: what both engines must agree on.
        rank: this rank.
        ranks: how many ranks send KV of each request.
        allocation_timeout: seconds to wait for room in a decoder's buffer.
        write_timeout: seconds for one write to complete.
        answer_timeout: seconds for one answer of a decoder, which never waits before answering.
    """

    def __init__(
        self,
        channel: Channel,
        fingerprint: dict[str, str],
        rank: int,
        ranks: int,
        allocation_timeout: float,
        write_timeout: float,
        context: zmq.Context[Any] | None = None,
        logger: logging.Logger = _log,
        answer_timeout: float = 5.0,
    ) -> None:
        self._channel = channel
        self._fingerprint = fingerprint
        self._rank = rank
        self._ranks = ranks
        self._allocation_timeout = allocation_timeout
        self._write_timeout = write_timeout
        self._answer_timeout = answer_timeout
        self._context = context or zmq.Context.instance()
        self._logger = logger
        self._peers: dict[str, _Peer] = {}
        self._ranks_of: dict[str, list[messages.RankAt]] = {}  # by the name of the first rank
        self._routers: dict[str, zmq.Socket[bytes]] = {}
        self._progress: dict[str, _Progress] = {}
        self._untold: dict[str, deque[messages.Abandon]] = {}  # by the decoder's name

    def send(
        self,
        transfer_id: str,
        receivers: Receivers,
        keys: Sequence[str],
        objects: Sequence[Any],
        total_chunks: int,
        shape: list[int],
        last_chunk_tokens: int,
        dtype: str,
        fmt: int,
    ) -> None:
        """Send the next chunks of a prompt. A failure is told to the router and ends the transfer.

        Args:
            transfer_id: the router's id of this attempt at the prompt's transfer.
            receivers: where to.
            keys: the chunks' keys, in prompt order.
            objects: the chunks' memory, as the channel takes it.
            total_chunks: chunks of the whole prompt.
            shape: shape of a full chunk.
            last_chunk_tokens: tokens in the last of these chunks.
            dtype: LMCache's name of the KV's dtype.
            fmt: LMCache's number of the KV's memory format.
        """
        progress = self._progress.setdefault(transfer_id, _Progress())
        if progress.failed:
            return
        request = messages.Allocate(
            transfer_id=transfer_id,
            fingerprint=self._fingerprint,
            keys=list(keys),
            remaining_chunks=max(total_chunks - progress.chunks_sent, len(keys)),
            shape=shape,
            last_chunk_tokens=last_chunk_tokens,
            dtype=dtype,
            fmt=fmt,
        )
        try:
            self._send_chunks(progress, receivers, request, objects)
            progress.chunks_sent += len(keys)
        except TransferError as error:
            place = self._place(receivers, progress.decoder)
            wanted = not isinstance(error, NotWanted)
            self._fail(transfer_id, progress, f"{place}: {error}", wanted)

    def finish(self, transfer_id: str, total_chunks: int) -> None:
        """Tell the router that a transfer is complete; its last chunk was handed to `send`."""
        progress = self._progress.pop(transfer_id, _Progress())
        if progress.failed:
            return
        if progress.chunks_sent < total_chunks:
            self._fail(
                transfer_id,
                progress,
                f"LMCache gave only {progress.chunks_sent} of {total_chunks} chunks to send: its "
                "transfer buffer was full (raise kvTransfer.bufferSize), or its log says what "
                "failed",
            )
            return
        self._notify(messages.Notice(transfer_id, self._rank, self._ranks))

    def abandon(self, transfer_id: str) -> None:
        """Give up a transfer whose request was aborted before its last chunk. No notice is sent."""
        progress = self._progress.pop(transfer_id, None)
        if progress is not None:
            self._give_up(progress, transfer_id)

    def _fail(self, transfer_id: str, progress: _Progress, error: str, wanted: bool = True) -> None:
        progress.failed = True
        level = logging.ERROR if wanted else logging.INFO
        self._logger.log(level, "KV transfer %s ends: %s", transfer_id, error)
        self._give_up(progress, transfer_id)
        self._notify(messages.Notice(transfer_id, self._rank, self._ranks, error))

    def _send_chunks(
        self,
        progress: _Progress,
        receivers: Receivers,
        request: messages.Allocate,
        objects: Sequence[Any],
    ) -> None:
        give_up_at = time.monotonic() + self._allocation_timeout
        while True:
            asked = time.monotonic()
            decoder, answer = self._ask(progress, receivers, request)
            if isinstance(answer, messages.Allocated):
                break
            if not isinstance(answer, messages.Refused):
                raise DecoderLost(f"unexpected answer {type(answer).__name__}")
            if answer.then == "stop":
                raise NotWanted(answer.reason)
            if answer.then == "fail":
                raise TransferError(answer.reason)
            if time.monotonic() >= give_up_at:
                raise TransferError(
                    f"no room in the receive buffer for {self._allocation_timeout:g} s "
                    f"({answer.reason})"
                )
            time.sleep(_RETRY_PAUSE)
        landed = set(answer.already_landed)
        to_write = [obj for i, obj in enumerate(objects) if i not in landed]
        if to_write:
            self._handshake(decoder, answer.boot_id)
            # The decoder keeps the pages for longer than this, counted from after we asked.
            left = asked + self._write_timeout - time.monotonic()
            if left <= 0:
                raise TransferError(
                    f"no time left to write, {self._write_timeout:g} s after asking"
                )
            try:
                self._channel.write(decoder.name, to_write, answer.pages, left)
            except TransferError:
                progress.unwritten = False
                self._peer(decoder).boot_id = ""  # make the NIXL handshake anew
                raise
        done = self._call(decoder, messages.Landed(answer.boot_id, answer.ticket))
        if isinstance(done, messages.Refused):
            raise TransferError(done.reason)
        if not isinstance(done, messages.Done):
            raise DecoderLost(f"unexpected answer {type(done).__name__}")

    def _ask(
        self, progress: _Progress, receivers: Receivers, request: messages.Allocate
    ) -> tuple[Decoder, messages.FromDecoder]:
        try:
            return self._ask_once(progress, receivers, request)
        except DecoderLost:
            # A restarted decoder loses a request that was on its way, and its ranks may be on
            # other hosts than before: ask again, on a new socket.
            self._ranks_of.pop(receivers.of_rank(0).name, None)
            request = msgspec.structs.replace(request, again=True)
            return self._ask_once(progress, receivers, request)

    def _ask_once(
        self, progress: _Progress, receivers: Receivers, request: messages.Allocate
    ) -> tuple[Decoder, messages.FromDecoder]:
        decoder = progress.decoder = self._find(receivers)
        request = msgspec.structs.replace(request, boot_id=decoder.boot_id)
        answer = self._call(decoder, request)
        self._tell(decoder)
        if decoder.boot_id and answer.boot_id != decoder.boot_id:
            raise DecoderLost(f"rank {self._rank} is not the one that the first rank knows")
        return decoder, answer

    def _find(self, receivers: Receivers) -> Decoder:
        """Return where this rank's peer is. The first rank tells the others, once a start."""
        here = receivers.of_rank(self._rank)
        if self._rank == 0:
            return here
        first = receivers.of_rank(0)
        if first.name not in self._ranks_of:
            answer = self._call(first, messages.Where())
            if isinstance(answer, messages.Refused):
                raise TransferError(answer.reason)
            if not isinstance(answer, messages.Ranks):
                raise DecoderLost(f"unexpected answer {type(answer).__name__}")
            self._ranks_of[first.name] = answer.ranks
        ranks = self._ranks_of[first.name]
        if len(ranks) <= self._rank:
            raise TransferError(f"the decoder has {len(ranks)} rank(s), none for {self._rank}")
        peer = ranks[self._rank]
        return replace(here, host=peer.host, boot_id=peer.boot_id)

    def _handshake(self, decoder: Decoder, boot_id: str) -> None:
        peer = self._peer(decoder)
        if peer.boot_id == boot_id:
            return
        init_address = f"{decoder.host}:{decoder.init_port}"
        self._channel.connect(decoder.name, init_address, self._answer_timeout)
        done = self._call(decoder, messages.Abandon(""))  # of no transfer: who is there now?
        if not isinstance(done, messages.Done) or done.boot_id != boot_id:
            raise DecoderLost("restarted between granting pages and the NIXL handshake")
        peer.boot_id = boot_id

    def _place(self, receivers: Receivers, decoder: Decoder | None) -> str:
        if decoder is None or decoder.host == receivers.host:
            return receivers.host
        return f"{receivers.host}, rank {self._rank} at {decoder.host}"

    def _peer(self, decoder: Decoder) -> _Peer:
        peer = self._peers.get(decoder.name)
        if peer is None:
            socket: zmq.Socket[bytes] = self._context.socket(zmq.REQ)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.RCVTIMEO, int(self._answer_timeout * 1000))
            socket.setsockopt(zmq.SNDTIMEO, int(self._answer_timeout * 1000))
            socket.connect(f"tcp://{decoder.host}:{decoder.alloc_port}")
            peer = self._peers[decoder.name] = _Peer(socket)
        return peer

    def _call(self, decoder: Decoder, request: messages.ToDecoder) -> messages.FromDecoder:
        try:
            peer = self._peer(decoder)
            peer.socket.send(messages.encode(request))
            return messages.decode_from_decoder(peer.socket.recv())
        except zmq.ZMQError as error:
            # A REQ socket that missed its answer can't ask again.
            self._drop_socket(decoder)
            raise DecoderLost(f"no answer in {self._answer_timeout:g} s ({error})") from error
        except msgspec.DecodeError as error:
            self._drop_socket(decoder)
            raise DecoderLost(f"answer not understood ({error})") from error

    def _drop_socket(self, decoder: Decoder) -> None:
        peer = self._peers.pop(decoder.name, None)
        if peer is not None:
            peer.socket.close()

    def _give_up(self, progress: _Progress, transfer_id: str) -> None:
        if progress.decoder is None:
            return
        name = progress.decoder.name
        untold = self._untold.setdefault(name, deque(maxlen=_MAX_UNTOLD))
        untold.append(messages.Abandon(transfer_id, progress.unwritten))
        # One that did not answer is told when it does: don't wait for it now.
        if name in self._peers:
            self._tell(progress.decoder)

    def _tell(self, decoder: Decoder) -> None:
        """Tell a decoder which transfers were given up."""
        untold = self._untold.get(decoder.name)
        with contextlib.suppress(DecoderLost):
            while untold:
                self._call(decoder, untold[0])
                untold.popleft()

    def _notify(self, notice: messages.Notice) -> None:
        try:
            address = messages.router_address(notice.req_id)
        except ValueError as bad:
            self._logger.error("no notice sent: %s", bad)
            return
        try:
            self._router(address).send(messages.encode(notice), zmq.DONTWAIT)
        except zmq.ZMQError as failed:
            self._logger.error("no notice sent to router %s: %s", address, failed)

    def _router(self, address: str) -> zmq.Socket[bytes]:
        socket = self._routers.get(address)
        if socket is None:
            if len(self._routers) >= _MAX_ROUTERS:
                self._routers.pop(next(iter(self._routers))).close()
            socket = self._context.socket(zmq.PUSH)
            socket.setsockopt(zmq.LINGER, 0)
            try:
                socket.connect(f"tcp://{address}")
            except zmq.ZMQError:
                socket.close()
                raise
            self._routers[address] = socket
        return socket
