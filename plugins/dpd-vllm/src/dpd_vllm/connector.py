"""vLLM's LMCacheConnectorV1, made to fail loudly and to send each chunk once."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.lmcache_connector import (
    LMCacheConnectorV1 as _LMCacheConnectorV1,
)

from dpd_vllm import compat, nodes, wiring
from dpd_vllm.stats import TransferMetrics, TransferStats

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request


class LMCacheConnectorV1(_LMCacheConnectorV1):
    """One is made in vLLM's scheduler and one in each worker.

    Raises:
        WiringError: the engine can't pass KV as the chart asked. vLLM then ends the process.
    """

    def __init__(
        self,
        vllm_config: VllmConfig,
        role: KVConnectorRole,
        kv_cache_config: KVCacheConfig | None = None,
    ) -> None:
        wired = wiring.read_wiring(os.environ)
        if wired is None:
            raise wiring.WiringError("DPD_ROLE is not set")
        parallel = vllm_config.parallel_config
        wiring.check_vllm_version(compat.VLLM_VERSION, own_kv_layout=compat.on_cpu())
        wiring.check_engine(
            wired,
            kv_role=vllm_config.kv_transfer_config.kv_role,
            ranks=parallel.world_size,
            prefix_caching=bool(vllm_config.cache_config.enable_prefix_caching),
            block_size=vllm_config.cache_config.block_size,
            lora=vllm_config.lora_config is not None,
            mla_stages=parallel.pipeline_parallel_size if vllm_config.model_config.use_mla else 1,
        )
        config, known = compat.configuration()
        wiring.check_loaded(wired, vars(config), known)
        compat.adapt(config)
        compat.install()
        spans_nodes = parallel.nnodes_within_dp > 1
        if spans_nodes:
            local_ranks = parallel.local_world_size
            nodes.install(parallel.rank % local_ranks, local_ranks)
        if role == KVConnectorRole.WORKER and wired.role == "decode":
            rank = parallel.rank
            ports = (config.pd_peer_init_port[rank], config.pd_peer_alloc_port[rank])
            wiring.check_ports_free(config.pd_peer_host, ports)
        self._sent: dict[str, int] = {}  # tokens sent so far, by transfer id
        self._transfer_of: dict[str, str] = {}  # transfer id, by vLLM's request id
        self._lookups: nodes.LookupEndpoints | None = None
        super().__init__(vllm_config, role, kv_cache_config)
        self._require_lmcache()
        if spans_nodes and role == KVConnectorRole.WORKER:
            server = self._lmcache_engine.lookup_server
            mine = "" if server is None else server.transport.endpoint
            self._lookups = nodes.LookupEndpoints(nodes.of_all_ranks(mine))

    def get_handshake_metadata(self) -> nodes.LookupEndpoints | None:
        """Return where the ranks answer lookups, for the scheduler; None on one node."""
        return self._lookups

    def set_xfer_handshake_metadata(self, metadata: dict[Any, Any]) -> None:
        """Take what `get_handshake_metadata` returned in the workers, which is all the same."""
        for lookups in metadata.values():
            self._lmcache_engine.lookup_client.transport.reach(lookups.of_rank)
            return

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[Any, Any]) -> None:
        """Take the same by other ranks: later vLLMs give it by pipeline and tensor rank."""
        self.set_xfer_handshake_metadata(metadata)

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Give LMCache the KV cache, and end the process if it then can't start."""
        super().register_kv_caches(kv_caches)
        self._require_lmcache()

    def get_num_new_matched_tokens(
        self, request: Request, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Return how many tokens' KV can be loaded: none if each of them must be computed.

        Of such a request (`prompt_logprobs`, or `echo` with `logprobs`) vLLM reads no prefix cache
        of its own, but asks the connector. Logprobs of loaded tokens would be what the memory
        held before, on which the engine may die.
        """
        if request.skip_reading_prefix_cache:
            return 0, False
        return super().get_num_new_matched_tokens(request, num_computed_tokens)

    def build_connector_meta(self, scheduler_output: SchedulerOutput) -> Any:
        """Build LMCache's metadata, with each prompt's length for the receive buffer's sake."""
        metadata = super().build_connector_meta(scheduler_output)
        trackers = self._lmcache_engine._request_trackers
        for request in metadata.requests:
            if request.disagg_spec is not None:
                request.disagg_spec.total_tokens = trackers[request.req_id].prompt_len
        return metadata

    def wait_for_save(self) -> None:
        """Send the KV of this step, each chunk once, and report transfers that are complete.

        LMCache keeps the progress of a chunked prefill in a copy of `disagg_spec` that is gone
        with the step, so every step would send all earlier chunks again (LMCache#4076).
        """
        backend = compat.pd_backend(self._lmcache_engine)
        sender = None if backend is None else backend.sender
        transfers = [r for r in self._get_connector_metadata().requests if r.disagg_spec]
        if sender is None or not transfers:
            super().wait_for_save()
            return
        for request in transfers:
            spec = request.disagg_spec
            spec.num_transferred_tokens = self._sent.get(spec.req_id, 0)
            self._transfer_of[request.req_id] = spec.req_id
        super().wait_for_save()
        for request in transfers:
            spec = request.disagg_spec
            if spec.is_last_prefill:
                sender.finish(spec.req_id, backend.chunks(spec.total_tokens))
                self._sent.pop(spec.req_id, None)
                self._transfer_of.pop(request.req_id, None)
            else:
                # Of a pipeline LMCache notes this on the last stage alone.
                whole = len(request.token_ids) // backend.chunk_size * backend.chunk_size
                self._sent[spec.req_id] = max(spec.num_transferred_tokens, whole)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """Give up transfers whose request was aborted in the middle of its prompt."""
        for req_id in self._transfer_of.keys() & finished_req_ids:
            transfer_id = self._transfer_of.pop(req_id)
            self._sent.pop(transfer_id, None)
            backend = compat.pd_backend(self._lmcache_engine)
            if backend is not None and backend.sender is not None:
                backend.sender.abandon(transfer_id)
        return super().get_finished(finished_req_ids)

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """Let LMCache finish a request, of which an aborted one may have no token to return.

        With `ret_first_tok` LMCache reads the first output token, and the engine dies if a client
        left during the prefill.
        """
        if request.kv_transfer_params and not request.num_output_tokens:
            request.kv_transfer_params.pop("ret_first_tok", None)
        return super().request_finished(request, block_ids)

    def get_kv_connector_stats(self) -> TransferStats | None:
        """Return how the receive buffer is used, for /metrics."""
        backend = compat.pd_backend(self._lmcache_engine)
        usage = None if backend is None else backend.usage()
        return None if usage is None else TransferStats.of(usage, backend.tp_rank)

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> TransferStats | None:
        """Rebuild the stats in vLLM's API server."""
        return TransferStats(data=data or {})

    @classmethod
    def build_prom_metrics(
        cls,
        vllm_config: VllmConfig,
        metric_types: dict[Any, Any],
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> TransferMetrics:
        """Register our metrics beside vLLM's."""
        return TransferMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def _require_lmcache(self) -> None:
        if reason := compat.init_failure(self._lmcache_engine):
            last_line = reason.strip().splitlines()[-1]
            print(
                f"{reason}\ndpd: LMCache could not start and would recompute every prompt: "
                f"{last_line}. Settings: {os.environ['LMCACHE_CONFIG_FILE']}",
                file=sys.stderr,
                flush=True,
            )
            # Not an exception: threads of a half-started LMCache would keep this process, and with
            # it a pod that never gets ready.
            os._exit(1)
