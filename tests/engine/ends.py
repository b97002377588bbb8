"""Both ends of a transfer in one process: our sender and receiver over real sockets."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
import zmq
from tests.engine.pages import Pages

from dpd_vllm.buffer import ReceiveBuffer
from dpd_vllm.messages import RankAt, Release, ToDecoder, encode
from dpd_vllm.receiver import Receiver
from dpd_vllm.sender import Receivers, Sender, TransferError

HOST = "127.0.0.1"
CHUNK = 256  # tokens
FINGERPRINT = {"model": "m", "hash_seed": "1", "chunk_size": "256"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _is_free(host: str, port: int) -> bool:
    """Tell whether a port can be bound: ZMQ closes it a moment after its socket."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


class Events:
    """What happened, in order, on all threads."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __iter__(self) -> Iterator[str]:
        return iter(self.seen)

    def add(self, event: str) -> None:
        self.seen.append(event)


class RecordedBuffer(ReceiveBuffer[str, int]):
    """The receive buffer, which also says when it is called."""

    def __init__(self, pages: Pages, events: Events) -> None:
        super().__init__(pages, pull_timeout=300.0)
        self._events = events

    def allocate(self, transfer_id: str, attempt: int, keys: Sequence[str], *rest: Any) -> Any:
        answer = super().allocate(transfer_id, attempt, keys, *rest)
        self._events.add(f"{type(answer).__name__.lower()} {''.join(keys)}")
        return answer

    def landed(self, ticket: int) -> bool:
        known = super().landed(ticket)
        self._events.add("landed" if known else "not landed")
        return known


class DecoderEnd:
    """A decoder's rank: receiver, buffer, and memory by page."""

    def __init__(
        self,
        pages: int,
        events: Events,
        context: zmq.Context[Any],
        port: int,
        host: str = HOST,
        boot_id: str = "",
        ranks: Sequence[RankAt] = (),
        others: Sequence[str] = (),
    ):
        self.events = events
        self.port = port
        self.host = host
        boot_id = boot_id or uuid.uuid4().hex
        self.memory: dict[int, str] = {}
        self.buffer = RecordedBuffer(Pages(pages), events)
        self.log: list[str] = []
        self.receiver: Receiver[str, int] = Receiver(
            f"{host}:{self.port}",
            self.buffer,
            FINGERPRINT,
            to_key=lambda text: text,
            page_number=lambda page: page,
            chunk_size=CHUNK,
            boot_id=boot_id,
            ranks=ranks or [RankAt(host, boot_id)],
            others=others,
            context=context,
            log=self.log.append,
        )

    @property
    def address(self) -> Receivers:
        return Receivers(self.host, [self.port + 1], [self.port])

    def holds(self, keys: str) -> list[str | None]:
        """Return the bytes of each chunk that can be seen, None for one that can't."""
        pages = [self.buffer.page(key, lambda page: None) for key in keys]
        return [None if page is None else self.memory.get(page, "garbage") for page in pages]


class Wire:
    """A `sender.Channel` to decoders of this process. A connection ends with its decoder."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.decoders: dict[str, DecoderEnd] = {}
        self._connected: dict[str, DecoderEnd] = {}
        self.before_write: Callable[[], None] = lambda: None

    def serve(self, decoder: DecoderEnd) -> None:
        self.decoders[decoder.address.of_rank(0).name] = decoder

    def connect(self, peer: str, init_address: str, timeout: float) -> None:
        self._events.add("handshake")
        self._connected[peer] = self.decoders[init_address]

    def write(
        self, peer: str, objects: Sequence[Any], pages: Sequence[int], timeout: float
    ) -> None:
        if self._connected.get(peer) is not self.decoders[peer]:
            raise TransferError("written to a decoder that is gone")
        self.before_write()
        memory = self._connected[peer].memory
        memory.update(zip(pages, objects, strict=True))
        self._events.add(f"written {''.join(objects).lower()}")


class Router:
    """Receives notices as the router does."""

    def __init__(self, events: Events, context: zmq.Context[Any]) -> None:
        self._events = events
        self._socket = context.socket(zmq.PULL)
        self._socket.setsockopt(zmq.RCVTIMEO, 5000)
        self.port = self._socket.bind_to_random_port(f"tcp://{HOST}")

    def transfer(self, name: str) -> str:
        return f"{HOST}:{self.port}/{name}"

    def notice(self) -> dict[str, Any]:
        notice: dict[str, Any] = msgspec.msgpack.decode(self._socket.recv())
        self._events.add("notice")
        return notice

    def silent(self, milliseconds: int = 100) -> bool:
        return not self._socket.poll(milliseconds)

    def close(self) -> None:
        self._socket.close(0)


class Stage:
    """One router, and as many prefillers and decoders as a test makes."""

    def __init__(self) -> None:
        self.events = Events()
        self._ending = ExitStack()
        self.context: zmq.Context[Any] = zmq.Context()
        self._ending.callback(self.context.destroy, linger=0)
        self.wire = Wire(self.events)
        self.router = Router(self.events, self.context)
        self._ending.callback(self.router.close)

    def decoder(self, pages: int = 8, port: int = 0, **more: Any) -> DecoderEnd:
        made = DecoderEnd(pages, self.events, self.context, port or free_port(), **more)
        self._ending.callback(made.receiver.close)
        self.wire.serve(made)
        return made

    def ranks(self, *hosts: str, ports: Sequence[int] = ()) -> list[DecoderEnd]:
        """Start all ranks of a decoder, each on its host."""
        boot_ids = [uuid.uuid4().hex for _ in hosts]
        ranks = [RankAt(host, boot_id) for host, boot_id in zip(hosts, boot_ids, strict=True)]
        ports = ports or [free_port() for _ in hosts]
        at = [f"{host}:{port}" for host, port in zip(hosts, ports, strict=True)]
        return [
            self.decoder(
                port=ports[rank],
                host=host,
                boot_id=boot_ids[rank],
                ranks=ranks,
                others=() if rank else at[1:],
            )
            for rank, host in enumerate(hosts)
        ]

    def restarted(self, decoder: DecoderEnd) -> DecoderEnd:
        """Replace a decoder by one on the same address, with an empty buffer."""
        return self.ranks_restarted([decoder])[0]

    def ranks_restarted(self, decoder: Sequence[DecoderEnd], *hosts: str) -> list[DecoderEnd]:
        """Replace all ranks of a decoder by new ones, on other hosts if those are given."""
        for rank in decoder:
            rank.receiver.close()
        ports = [rank.port for rank in decoder]
        for rank in decoder:
            until(lambda rank=rank: _is_free(rank.host, rank.port))  # type: ignore[misc]
        return self.ranks(*(hosts or [rank.host for rank in decoder]), ports=ports)

    def release(self, decoder: DecoderEnd, *transfers: str) -> dict[str, object]:
        """Say what a router says when the requests of transfers have ended; return the answer."""
        return self.tell(decoder, Release(list(transfers)))

    def tell(self, decoder: DecoderEnd, message: ToDecoder) -> dict[str, object]:
        """Send a decoder a message; return the answer."""
        with self.context.socket(zmq.REQ) as socket:
            socket.setsockopt(zmq.RCVTIMEO, 5000)
            socket.connect(f"tcp://{decoder.host}:{decoder.port}")
            socket.send(encode(message))
            answer: dict[str, object] = msgspec.msgpack.decode(socket.recv())
        return answer

    def sender(
        self, rank: int = 0, ranks: int = 1, allocation_timeout: float = 5.0, **facts: str
    ) -> Sender:
        return Sender(
            self.wire,
            FINGERPRINT | facts,
            rank,
            ranks,
            allocation_timeout,
            write_timeout=5.0,
            context=self.context,
            answer_timeout=0.3,
        )

    def close(self) -> None:
        self._ending.close()


def addresses(ranks: Sequence[DecoderEnd]) -> Receivers:
    """Return what a router says of a decoder: the first rank's host, and the ports of all."""
    ports = [rank.port for rank in ranks]
    return Receivers(ranks[0].host, [port + 1 for port in ports], ports)


def notice_of(transfer: str, error: str = "", rank: int = 0, ranks: int = 1) -> dict[str, object]:
    """Return what a router should hear of a transfer from one rank."""
    return {"type": "ProxyNotif", "req_id": transfer, "rank": rank, "ranks": ranks, "error": error}


def send(
    sender: Sender,
    transfer: str,
    receivers: Receivers,
    keys: str,
    total: int = 0,
    tokens: int = CHUNK,
) -> None:
    """Send chunks named by the letters of `keys`; a chunk's bytes are its key in upper case."""
    total = total or len(keys)
    objects = list(keys.upper())
    shape = [2, 1, CHUNK, 8]
    sender.send(transfer, receivers, list(keys), objects, total, shape, tokens, "float", 1)


def until(true: Callable[[], bool], seconds: float = 5.0, pause: float = 0.005) -> None:
    """Wait for something that another thread or process does; look at it every `pause` seconds."""
    give_up_at = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(pause)
