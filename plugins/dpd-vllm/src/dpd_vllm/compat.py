"""Everything that depends on the versions of vLLM, LMCache and NIXL.

Pairs in use: vLLM 0.19.0 with LMCache 0.4.3 (the default image), vLLM 0.32.0 with LMCache 0.5.6
(on a CPU only). Each patch says what it is for and how to see that it is no longer needed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import msgspec
import torch
import zmq
from packaging.version import Version

from dpd_vllm.fingerprint import revision

VLLM_VERSION = version("vllm")
LMCACHE_VERSION = version("lmcache")

_CACHES_FIXED = (0, 5, 6)  # the first LMCache here that needs no `_pair_copies_with_their_keys`
_FORKS_BEFORE = (0, 32)  # the first vLLM here whose workers can't start by a fork on a CPU
_PROCESS_METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
_NIXL_PROGRESS_PAUSE = 500  # microseconds between rounds of NIXL's progress thread
_SHM_BUSY_LOOP = 0.002  # seconds that vLLM's shared-memory queue spins before it sleeps
_SHM_LONGEST_WAIT = 50  # milliseconds of sleep, since a wake-up may be lost


def on_cpu() -> bool:
    """Tell whether vLLM runs on a CPU, where this plugin's connector reads the KV cache."""
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


@functools.cache
def install() -> None:
    """Put our parts in place of LMCache's, once a process, before its engine is built."""
    _install_backend()
    _keep_revisions_apart()
    _answer_every_handshake()
    if Version(LMCACHE_VERSION).release < _CACHES_FIXED:
        _pair_copies_with_their_keys()
    if on_cpu():
        _install_cpu_connector()
        _calm_nixl()
        _calm_shared_memory()


@functools.cache
def keep_process_method() -> None:
    """Start vLLM's processes on a CPU as VLLM_WORKER_MULTIPROC_METHOD says, if it says anything.

    Called in each process before vLLM reads its configuration. vLLM's CPU platform sets "spawn",
    with which every process imports all of vLLM again. vLLM 0.32 can't do without: its workers
    end in `register_triton_kernel_overrides` after a fork, so there vLLM's choice stands.
    """
    asked = os.environ.get(_PROCESS_METHOD)
    if not asked or not on_cpu() or Version(VLLM_VERSION).release >= _FORKS_BEFORE:
        return
    from vllm.platforms.cpu import CpuPlatform

    update = CpuPlatform.check_and_update_config

    def update_and_keep(vllm_config: Any) -> None:
        update(vllm_config)
        os.environ[_PROCESS_METHOD] = asked

    CpuPlatform.check_and_update_config = staticmethod(update_and_keep)


def _install_backend() -> None:
    # LMCache publishes a key when it allocates the page (pd_backend.py, `_allocate_and_put`).
    # Not needed any more when its receiver learns of the end of a write before `put`.
    from lmcache.v1.storage_backend import pd_backend

    from dpd_vllm.backend import LandedPDBackend

    pd_backend.PDBackend = LandedPDBackend


def _keep_revisions_apart() -> None:
    # A store that outlives the engines may hold KV of other weights of the same name and place.
    # Not needed when LMCache's keys say of which weights the KV is. Its key as a text is split at
    # each "@", which the name of a folder may have.
    from lmcache.v1.token_database import TokenDatabase

    make_key = TokenDatabase._make_key_by_hash

    @functools.wraps(make_key)
    def make_key_of_revision(*args: Any, **kwargs: Any) -> Any:
        key = make_key(*args, **kwargs)
        key.model_name = f"{key.model_name.replace('@', '%40')}+{revision()}"
        return key

    TokenDatabase._make_key_by_hash = make_key_of_revision


def _answer_every_handshake() -> None:
    # LMCache's `_init_loop` leaves a message that it can't handle without an answer, and can't
    # read another one then. Not needed when it answers in its `except`.
    from lmcache.logging import init_logger
    from lmcache.v1.transfer_channel.nixl_channel import NixlChannel, NixlMsg, SideMsg

    from dpd_vllm.channel import serve_handshakes

    logger = init_logger("dpd_vllm.channel")

    def init_loop(self: Any) -> None:
        def answer(message: bytes) -> bytes:
            request = msgspec.msgpack.decode(message, type=NixlMsg | SideMsg)
            return msgspec.msgpack.encode(self._handle_init_msg(request))

        socket = self.zmq_context.socket(zmq.REP)
        serve_handshakes(socket, self.peer_init_url, answer, lambda: self.running, logger.error)

    NixlChannel._init_loop = init_loop


def _pair_copies_with_their_keys() -> None:
    # LMCache leaves out chunks that a cache has already, but not their keys, and so files the KV
    # of later chunks under the keys of earlier ones (LMCache#4391, mended in 0.5). One at a time
    # there is nothing to mistake.
    from lmcache.v1.storage_backend import storage_manager

    copy = storage_manager.allocate_and_copy_objects

    @functools.wraps(copy)
    def copy_one_by_one(
        backend: Any, keys: Sequence[Any], objects: Sequence[Any], stream: Any
    ) -> tuple[list[Any], list[Any]]:
        copied_keys: list[Any] = []
        copies: list[Any] = []
        for key, source in zip(keys, objects, strict=False):
            more_keys, more_copies = copy(backend, [key], [source], stream)
            copied_keys += more_keys
            copies += more_copies
        return copied_keys, copies

    storage_manager.allocate_and_copy_objects = copy_one_by_one


def _install_cpu_connector() -> None:
    # LMCache: "No supported cpu connector found". Not needed when CreateGPUConnector serves CPUs.
    import lmcache.integration.vllm.utils as vllm_utils
    import lmcache.v1.gpu_connector as gpu_connector
    from lmcache.v1.kv_layer_groups import KVLayerGroupInfo

    from dpd_vllm.cpu import CPUConnector

    def create(config: Any, metadata: Any, *args: Any, **kwargs: Any) -> CPUConnector:
        num_layers, _, _, heads, head_dim = metadata.kv_shape
        return CPUConnector(num_layers, heads * head_dim)

    gpu_connector.CreateGPUConnector = create
    if not hasattr(vllm_utils, "get_vllm_torch_dev"):  # LMCache 0.5
        return
    # LMCache 0.4 counts GPUs to tell nodes apart; all ranks of a CPU engine are on one node.
    no_gpu = SimpleNamespace(device_count=lambda: 1 << 16, set_device=lambda index: None)
    vllm_utils.get_vllm_torch_dev = lambda: (no_gpu, "cpu")
    # LMCache 0.4 reads the hidden size off the GPU's KV shape; a CPU's is as split_kv says.
    KVLayerGroupInfo.hidden_dim_size = property(lambda group: group.shape[2] * group.shape[4])


def _calm_nixl() -> None:
    # NIXL's Python API sets pthrDelay = 0: its progress thread then keeps one core busy.
    # Not needed when nixl_agent_config takes the delay.
    from nixl import _api

    make_agent = _api.nixlBind.nixlAgent

    def make_calm_agent(name: str, config: Any) -> Any:
        config.pthrDelay = _NIXL_PROGRESS_PAUSE
        return make_agent(name, config)

    _api.nixlBind.nixlAgent = make_calm_agent


def _calm_shared_memory() -> None:
    # The queue between vLLM's processes spins for a second after each message, on cores that the
    # model needs. Not needed on machines with more cores than processes.
    from vllm.distributed.device_communicators import shm_broadcast

    spin = getattr(shm_broadcast, "SpinCondition", None)
    if spin is None:
        return
    make, wait = spin.__init__, spin.wait

    @functools.wraps(make)
    def make_calm(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self.busy_loop_s = _SHM_BUSY_LOOP

    @functools.wraps(wait)
    def wait_briefly(self: Any, timeout_ms: int | None = None) -> None:
        wait(self, min(timeout_ms or _SHM_LONGEST_WAIT, _SHM_LONGEST_WAIT))

    spin.__init__, spin.wait = make_calm, wait_briefly


def split_kv(cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return views of K and V, each [blocks, heads, block_size, head_dim], of one CPU layer."""
    if cache.dim() == 5:  # vLLM to 0.25: [2, blocks, heads, block_size, head_dim]
        return cache[0], cache[1]
    blocks, heads, block_size, both = cache.shape  # later: K and V of a block side by side
    halves = cache.view(blocks, heads, 2 * block_size, both // 2)
    return halves[:, :, :block_size], halves[:, :, block_size:]


def page_allocator(backend: Any) -> Any:
    """Return LMCache's PagedTensorMemoryAllocator of a PD backend."""
    allocators = backend.memory_allocator
    on_host = backend.pd_config.buffer_device == "cpu"
    return allocators.cpu_allocator if on_host else allocators.gpu_allocator


def sending_ranks(config: Any, metadata: Any) -> int:
    """Return how many ranks send KV of each request: all, or for MLA the first alone."""
    first_only = config.get_extra_config_value("save_only_first_rank", metadata.use_mla)
    return 1 if first_only and metadata.use_mla else int(metadata.world_size)


def init_failure(lmcache: Any) -> str:
    """Return why LMCache could not start, or an empty text.

    LMCache swallows the error and goes on in "degraded mode (recompute)".
    """
    manager = lmcache._manager
    return str(manager._init_failed_reason) if manager._init_failed else ""


def pd_backend(lmcache: Any) -> Any:
    """Return the PD backend of a worker's LMCache, or None in the scheduler."""
    engine = lmcache.lmcache_engine
    if engine is None or engine.storage_manager is None:
        return None
    return engine.storage_manager.storage_backends.get("PDBackend")


def adapt(config: Any) -> None:
    """Set what LMCache wants to be told and what our backend settles in its own way."""
    # LMCache's sender insists on one proxy; our notices go to the router of each transfer id.
    config.pd_proxy_host = config.pd_proxy_host or "unused"
    config.pd_proxy_port = config.pd_proxy_port or 1
    if hasattr(config, "pd_backend_mode"):  # LMCache 0.5: the async backend is another class
        config.pd_backend_mode = "sync"


def configuration() -> tuple[Any, frozenset[str]]:
    """Return LMCache's configuration of this process and the names of all its settings."""
    from lmcache.integration.vllm.utils import lmcache_get_or_create_config
    from lmcache.v1.config import _CONFIG_DEFINITIONS

    return lmcache_get_or_create_config(), frozenset(_CONFIG_DEFINITIONS)
