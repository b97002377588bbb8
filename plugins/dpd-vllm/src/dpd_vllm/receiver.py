"""The decoder's side of a transfer: answers prefillers on the allocation port of one rank."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic

import zmq

from dpd_vllm import messages
from dpd_vllm.buffer import Denied, K, P, ReceiveBuffer
from dpd_vllm.fingerprint import difference

_POLL = 200  # milliseconds between looks at whether to stop
# A key has some hundred bytes, and a million tokens in chunks of 16 have 62,500. ZeroMQ cuts the
# connection of a peer that sends more than this.
_MAX_MESSAGE_BYTES = 64 * 1024**2


def _connected(context: zmq.Context[Any], address: str) -> zmq.Socket[bytes]:
    """Return a socket to another rank's receiver, which need not wait for its answers."""
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(f"tcp://{address}")
    return socket


class Receiver(Generic[K, P]):
    """Serves one allocation port in a thread of its own. No message can keep it waiting.

    Args:
        address: `host:port` to bind.
        buffer: the receive buffer.
        fingerprint: what both engines must agree on.
        to_key: LMCache's key from its text.
        page_number: the number of a page, as the writer addresses it.
        chunk_size: tokens of a full chunk.
        boot_id: of this process: another one for each start.
        ranks: where all ranks of this engine are, this one included.
        others: `host:port` of the ranks that this one tells what routers released.

    Raises:
        zmq.ZMQError: the address can't be bound.
    """

    def __init__(
        self,
        address: str,
        buffer: ReceiveBuffer[K, P],
        fingerprint: dict[str, str],
        to_key: Callable[[str], K],
        page_number: Callable[[P], int],
        chunk_size: int,
        boot_id: str,
        ranks: Sequence[messages.RankAt],
        others: Sequence[str] = (),
        context: zmq.Context[Any] | None = None,
        log: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.boot_id = boot_id
        self._ranks = list(ranks)
        self._buffer = buffer
        self._fingerprint = fingerprint
        self._to_key = to_key
        self._page_number = page_number
        self._chunk_size = chunk_size
        self._log = log
        self._running = True
        context = context or zmq.Context.instance()
        self._socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _MAX_MESSAGE_BYTES)
        self._socket.bind(f"tcp://{address}")
        self._others = [_connected(context, other) for other in others]
        self._thread = threading.Thread(target=self._serve, name="dpd-receiver", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and release the port."""
        self._running = False
        self._thread.join()

    def _serve(self) -> None:
        try:
            while self._running:
                if not self._socket.poll(_POLL):
                    continue
                frames = self._socket.recv_multipart()
                try:
                    answer = self._answer(messages.decode_to_decoder(b"".join(frames)))
                except Exception as error:  # a REP socket must answer, or it never hears again
                    self._log(f"message refused: {error!r}")
                    answer = self._refuse(f"message not understood: {error}")
                self._socket.send(messages.encode(answer))
        finally:
            for socket in (self._socket, *self._others):
                socket.close()

    def _answer(self, message: messages.ToDecoder) -> messages.FromDecoder:
        if isinstance(message, messages.Allocate):
            return self._allocate(message)
        if isinstance(message, messages.Landed):
            if message.boot_id != self.boot_id:
                return self._refuse("the decoder restarted while KV was being written to it")
            if not self._buffer.landed(message.ticket):
                return self._refuse(f"ticket {message.ticket} is unknown or timed out")
            return messages.Done(self.boot_id)
        if isinstance(message, messages.Where):
            return messages.Ranks(self.boot_id, self._ranks)
        if isinstance(message, messages.Reserve):
            return self._reserve(message)
        if isinstance(message, messages.Release):
            self._release(message)
        else:
            self._buffer.abandon(*messages.attempt_of(message.transfer_id), message.unwritten)
        return messages.Done(self.boot_id)

    def _reserve(self, message: messages.Reserve) -> messages.FromDecoder:
        if not message.tokens or len(message.tokens) != len(message.transfer_ids):
            return self._refuse("tokens must be one for each of transfer_ids")
        if min(message.tokens) < 1:
            return self._refuse(f"a prompt has {min(message.tokens)} tokens")
        # A router that was killed can't release what it had under way; one at its address shows it.
        if gone := self._buffer.of_earlier_starts(message.transfer_ids[0]):
            self._release(messages.Release(gone))
        chunks = [math.ceil(tokens / self._chunk_size) for tokens in message.tokens]
        result = self._buffer.reserve(message.transfer_ids, chunks)
        if isinstance(result, Denied):
            return messages.Refused(self.boot_id, result.reason, result.then)
        return messages.Reserved(self.boot_id, result)

    def _release(self, message: messages.Release) -> None:
        for transfer_id in message.transfer_ids:
            self._buffer.release(transfer_id)
        for socket in self._others:
            # Nothing hangs on an answer: what a rank does not hear of, its time-out frees.
            with contextlib.suppress(zmq.Again):
                while True:
                    socket.recv_multipart(zmq.DONTWAIT)
            with contextlib.suppress(zmq.Again):
                socket.send_multipart([b"", messages.encode(message)], zmq.DONTWAIT)

    def _allocate(self, message: messages.Allocate) -> messages.FromDecoder:
        if message.boot_id not in ("", self.boot_id):
            return self._refuse("another process of the decoder is meant")
        if differs := difference(message.fingerprint, self._fingerprint):
            return self._refuse(differs)
        if not 0 < message.last_chunk_tokens <= self._chunk_size:
            return self._refuse(
                f"the last chunk has {message.last_chunk_tokens} tokens, a chunk holds 1 to "
                f"{self._chunk_size}"
            )
        keys: Sequence[K] = [self._to_key(key) for key in message.keys]
        tokens = [self._chunk_size] * (len(keys) - 1) + [message.last_chunk_tokens]
        result = self._buffer.allocate(
            *messages.attempt_of(message.transfer_id),
            keys,
            tokens,
            message.remaining_chunks,
            message.again,
        )
        if isinstance(result, Denied):
            return messages.Refused(self.boot_id, result.reason, result.then)
        pages = [self._page_number(page) for page in result.pages]
        return messages.Allocated(self.boot_id, result.ticket, result.already_landed, pages)

    def _refuse(self, reason: str) -> messages.Refused:
        return messages.Refused(self.boot_id, reason, "fail")
