"""LMCache's PD backend, with keys that become visible only when their bytes have landed."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lmcache.logging import init_logger
from lmcache.utils import TORCH_DTYPE_TO_STR_DTYPE, CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_management import MemoryFormat, MemoryObj
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.pd_backend import PDBackend

from dpd_vllm import compat, messages
from dpd_vllm.buffer import ReceiveBuffer, Usage
from dpd_vllm.channel import NixlWrites
from dpd_vllm.fingerprint import fingerprint, revision
from dpd_vllm.nodes import of_all_ranks
from dpd_vllm.receiver import Receiver
from dpd_vllm.sender import Receivers, Sender

logger = init_logger(__name__)

# A write that takes longer is given up. It must end before the receiver may reuse its pages.
_WRITE_SHARE_OF_PULL_TIMEOUT = 0.5


class _Pages:
    """The pages of LMCache's transfer buffer, a chunk each."""

    def __init__(self, backend: LandedPDBackend, shape: Sequence[int], dtype: torch.dtype) -> None:
        self._backend = backend
        self._shape = list(shape)
        self._dtype = dtype
        self._allocator = compat.page_allocator(backend)
        self.total = len(self._allocator.paged_buffers)

    def free_count(self) -> int:
        return len(self._allocator.free_blocks)

    def take(self, tokens: int) -> MemoryObj:
        fmt = MemoryFormat.KV_2LTD
        shape = list(self._shape)
        shape[fmt.token_dim()] = tokens
        page = self._backend.allocate(torch.Size(shape), self._dtype, fmt)
        assert page is not None, "the receive buffer handed out more pages than it has"
        return page

    def give_back(self, page: MemoryObj) -> None:
        page.ref_count_down()

    def is_read(self, page: MemoryObj) -> bool:
        return page.get_ref_count() > 1


class LandedPDBackend(PDBackend):
    """A PDBackend whose receiver publishes a chunk when it has landed, not when it is allocated.

    Each rank has one. Which role it plays comes from `pd_role` in LMCache's configuration.
    """

    def __init__(self, config: LMCacheEngineConfig, metadata: LMCacheMetadata) -> None:
        extra = config.extra_config or {}
        self._allocation_timeout = float(extra["dpd_allocation_timeout_seconds"])
        self._pull_timeout = float(extra["dpd_pull_timeout_seconds"])
        self._alloc_ports: Sequence[int] = config.pd_peer_alloc_port or ()
        self._metadata = metadata
        self.chunk_size = config.chunk_size
        self._ranks = compat.sending_ranks(config, metadata)
        self.sender: Sender | None = None
        self.buffer: ReceiveBuffer[CacheEngineKey, MemoryObj] | None = None
        self._receiver: Receiver[CacheEngineKey, MemoryObj] | None = None
        super().__init__(config, metadata)

    def usage(self) -> Usage | None:
        """Return how the receive buffer is used; None on a prefiller."""
        return self.buffer.usage() if self.buffer else None

    def _fingerprint(self) -> dict[str, str]:
        return fingerprint(
            model=self._metadata.model_name,
            kv_shape=self._metadata.kv_shape,
            kv_dtype=str(self._metadata.kv_dtype),
            ranks=self._metadata.world_size,
            chunk_size=self.chunk_size,
            revision=revision(),
            vllm_version=compat.VLLM_VERSION,
            lmcache_version=compat.LMCACHE_VERSION,
        )

    # ---- prefiller ----

    def _init_sender(self) -> None:
        self.sender = Sender(
            channel=NixlWrites(self.transfer_channel),
            fingerprint=self._fingerprint(),
            rank=self.tp_rank,
            ranks=self._ranks,
            allocation_timeout=self._allocation_timeout,
            write_timeout=self._pull_timeout * _WRITE_SHARE_OF_PULL_TIMEOUT,
            logger=logger,
        )

    def batched_submit_put_task(
        self,
        keys: Sequence[CacheEngineKey],
        memory_objs: list[MemoryObj],
        transfer_spec: Any = None,
        on_complete_callback: Callable[[CacheEngineKey], None] | None = None,
    ) -> None:
        """Send chunks to the decoder that the request names, and return when they have landed.

        A request without `disagg_spec` (a health check, a warm-up) sends nothing. LMCache keeps
        its own references to `memory_objs` until this returns.
        """
        if self.sender is not None and transfer_spec is not None and keys:
            fmt = memory_objs[0].meta.fmt
            shape = list(memory_objs[0].meta.shape)
            shape[fmt.token_dim()] = self.chunk_size
            self.sender.send(
                transfer_spec.req_id,
                Receivers(
                    transfer_spec.receiver_host,
                    transfer_spec.receiver_init_port,
                    transfer_spec.receiver_alloc_port,
                ),
                [key.to_string() for key in keys],
                memory_objs,
                self.chunks(transfer_spec.total_tokens),
                shape,
                memory_objs[-1].meta.shape[fmt.token_dim()],
                TORCH_DTYPE_TO_STR_DTYPE[memory_objs[0].meta.dtype],
                fmt.value,
            )
        if on_complete_callback is not None:
            for key in keys:
                on_complete_callback(key)

    def chunks(self, tokens: int) -> int:
        """Return how many chunks a prompt of `tokens` tokens has."""
        return math.ceil(tokens / self.chunk_size)

    # ---- decoder ----

    def _init_receiver(self) -> None:
        shape = self._metadata.get_shapes(self.chunk_size)[0]
        pages = _Pages(self, shape, self._metadata.kv_dtype)
        self.buffer = ReceiveBuffer(pages, self._pull_timeout)
        boot_id = uuid.uuid4().hex
        here = messages.RankAt(self.pd_config.peer_host, boot_id)
        # Of MLA the first rank alone has a backend, so there is nobody to ask.
        ranks = [here] if self._ranks == 1 else of_all_ranks(here)
        ports = self._alloc_ports[: len(ranks)]
        addresses = [f"{at.host}:{port}" for at, port in zip(ranks, ports, strict=True)]
        self._receiver = Receiver(
            f"{self.pd_config.peer_host}:{self.pd_config.peer_alloc_port}",
            self.buffer,
            self._fingerprint(),
            to_key=CacheEngineKey.from_string,
            page_number=lambda page: page.meta.address,
            chunk_size=self.chunk_size,
            boot_id=boot_id,
            ranks=ranks,
            others=addresses[1:] if self.tp_rank == 0 else (),
            log=logger.error,
        )

    def contains(self, key: CacheEngineKey, pin: bool = False) -> bool:
        """Tell whether a chunk has landed. `pin` is ignored: landed pages are kept while wanted."""
        return self.buffer is not None and self.buffer.contains(key)

    def get_blocking(self, key: CacheEngineKey) -> MemoryObj | None:
        """Return a landed chunk with a reference for the caller, or None: vLLM then computes it."""
        if self.buffer is None:
            return None
        return self.buffer.page(key, hold=lambda page: page.ref_count_up())

    def remove(self, key: CacheEngineKey, force: bool = True) -> bool:
        """Note that a request has copied the chunk out. LMCache drops its reference after this."""
        return self.buffer is not None and self.buffer.fetched(key)

    def put(self, key: CacheEngineKey, mem_obj: MemoryObj) -> None:
        """Not used: keys are published by `ReceiveBuffer.landed` alone."""
        raise NotImplementedError("keys become visible when their bytes have landed")

    def close(self) -> None:
        """Stop the receiver, then what LMCache started."""
        if self._receiver is not None:
            self._receiver.close()
        super().close()
