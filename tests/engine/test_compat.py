"""What is put in place of LMCache's own parts, on the real LMCache."""

from __future__ import annotations

import pytest
import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.token_database import ChunkedTokenDatabase, TokenDatabase

from dpd_vllm import compat


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> ChunkedTokenDatabase:
    """What names the KV of chunks of 256 tokens, with our part in it."""
    monkeypatch.setattr(TokenDatabase, "_make_key_by_hash", TokenDatabase._make_key_by_hash)
    compat._keep_revisions_apart()
    metadata = LMCacheMetadata(
        model_name="/model/some@main",
        world_size=1,
        local_world_size=1,
        worker_id=0,
        local_worker_id=0,
        kv_dtype=torch.float32,
        kv_shape=(4, 2, 256, 2, 64),
    )
    return ChunkedTokenDatabase(LMCacheEngineConfig.from_defaults(chunk_size=256), metadata)


def test_kv_of_another_revision_has_other_names(
    database: ChunkedTokenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names(revision: str) -> list[str]:
        monkeypatch.setenv("DPD_REVISION", revision)
        keys = database.process_tokens(torch.arange(512))
        return [key.to_string() for _, _, key in keys]

    first = names("0123456789ab")
    assert len(set(first)) == 2
    assert names("0123456789ab") == first
    assert not set(names("ba9876543210")) & set(first)


def test_a_key_is_the_same_after_its_way_to_the_decoder(database: ChunkedTokenDatabase) -> None:
    for _, _, key in database.process_tokens(torch.arange(512)):
        assert CacheEngineKey.from_string(key.to_string()) == key
