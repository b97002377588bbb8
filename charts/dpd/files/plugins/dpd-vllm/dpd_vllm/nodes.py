"""LMCache over several nodes: what it does by Unix sockets and by rank, done to work there.

LMCache's scheduler asks every rank over a Unix socket which chunks it has. The sockets of another
node are out of its reach: each prompt would wait for lookup_timeout_ms and then count as a miss.
And it takes a rank for the number of its GPU, which is only right on the first node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import zmq
from lmcache.v1.lookup_client import factory
from lmcache.v1.rpc.zmq_transport import ZmqReqRepClientTransport, ZmqRouterServerTransport
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorHandshakeMetadata
from vllm.distributed.parallel_state import get_world_group
from vllm.utils.network_utils import get_ip


def of_all_ranks(mine: Any) -> list[Any]:
    """Return what each rank of this engine passes, by rank. All of them must call this."""
    group = get_world_group()
    found: list[Any] = [None] * group.world_size
    torch.distributed.all_gather_object(found, mine, group=group.cpu_group)
    return found


@dataclass
class LookupEndpoints(KVConnectorHandshakeMetadata):
    """Where each rank answers lookups, by rank; empty text if it does not."""

    of_rank: list[str]


class LookupServer(ZmqRouterServerTransport):
    """Also listens on a TCP port of its own choice. Used in LMCache's place on several nodes."""

    def __init__(self, socket_path: str, recv_timeout_ms: int = 1000) -> None:
        super().__init__(socket_path, recv_timeout_ms)
        self.socket.bind(f"tcp://{get_ip()}:*")
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)


class LookupClient(ZmqReqRepClientTransport):
    """Asks by Unix socket until it is told the ranks' endpoints."""

    def reach(self, endpoints: Sequence[str]) -> None:
        """Ask each rank at its TCP endpoint from now on."""
        self.socket_params: list[Any] = [
            params._replace(socket_path=endpoints[params.rank]) for params in self.socket_params
        ]
        self._recreate_all_sockets()

    def _create_socket(self, params: Any) -> zmq.Socket[bytes]:
        if not params.socket_path.startswith("tcp://"):
            return super()._create_socket(params)
        socket: zmq.Socket[bytes] = self.ctx.socket(zmq.REQ)
        socket.setsockopt(zmq.RCVTIMEO, self.timeout_ms)
        socket.setsockopt(zmq.SNDTIMEO, self.timeout_ms)
        socket.connect(params.socket_path)
        return socket


def install(local_rank: int, local_ranks: int) -> None:
    """Put our parts in place of LMCache's. Only for an engine over several nodes.

    Args:
        local_rank: this rank's number on its node, which is that of its GPU.
        local_ranks: ranks on this node.
    """
    factory.ZmqRouterServerTransport = LookupServer
    factory.ZmqReqRepClientTransport = LookupClient
    _use_local_device(local_rank, local_ranks)


def _use_local_device(local_rank: int, local_ranks: int) -> None:
    # Not needed when LMCache takes vLLM's local rank for the device in all three places.
    import lmcache.integration.vllm.utils as vllm_utils
    from lmcache.v1.storage_backend import pd_backend

    device, channel = pd_backend.get_correct_device, pd_backend.CreateTransferChannel

    def local_device(name: str, rank: int) -> str:
        return str(device(name, local_rank))

    def local_channel(*, tp_rank: int, **rest: Any) -> Any:
        return channel(tp_rank=local_rank, **rest)

    pd_backend.get_correct_device = local_device
    pd_backend.CreateTransferChannel = local_channel
    # It also insists there that a node holds exactly one pipeline stage.
    vllm_utils.calculate_local_rank_and_world_size = lambda config: (local_rank, local_ranks)
