"""What is put in place of LMCache's own parts, on the real LMCache."""

from __future__ import annotations

import pytest
import torch
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.token_database import ChunkedTokenDatabase, TokenDatabase

from dpd_vllm import compat


def keys_of(revision: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names under which LMCache files the KV of a prompt of two chunks and a rest."""
    monkeypatch.setenv("DPD_REVISION", revision)
    metadata = LMCacheMetadata(
        model_name="some/model",
        world_size=1,
        local_world_size=1,
        worker_id=0,
        local_worker_id=0,
        kv_dtype=torch.float32,
        kv_shape=(4, 2, 256, 2, 64),
    )
    database = ChunkedTokenDatabase(LMCacheEngineConfig.from_defaults(chunk_size=256), metadata)
    tokens = torch.arange(600)
    return [key.to_string() for _, _, key in database.process_tokens(tokens)]


def test_kv_of_another_revision_has_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TokenDatabase, "_make_key_by_hash", TokenDatabase._make_key_by_hash)
    compat._keep_revisions_apart()
    first = keys_of("0123456789ab", monkeypatch)
    assert len(set(first)) == 2
    assert keys_of("0123456789ab", monkeypatch) == first
    assert not set(keys_of("ba9876543210", monkeypatch)) & set(first)
