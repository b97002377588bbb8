"""Checks of the PD wiring: what the chart asked for, against what the engine was given.

LMCache drops unknown keys, ignores settings of an older form, turns what it can't read into None,
and carries on without PD when it can't start. Each of these leaves a healthy engine that neither
sends nor receives KV, so each of them ends the process here.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import yaml
from packaging.version import Version

Role = Literal["prefill", "decode"]

# The names that each side has for a role: ours, LMCache's pd_role, vLLM's kv_role.
_PD_ROLE = {"prefill": "sender", "decode": "receiver"}
_KV_ROLE = {"prefill": "kv_producer", "decode": "kv_consumer"}

# In-process LMCache reads the K/V layout of later versions wrongly (LMCache#4463, vllm#52617).
_FIRST_BROKEN_VLLM = (0, 26)

# Environment of LMCache before 0.3, and of its examples: it does nothing now.
_OLD_NAMES = (
    "LMCACHE_ENABLE_NIXL",
    "LMCACHE_ENABLE_XPYD",
    "LMCACHE_NIXL_ROLE",
    "LMCACHE_NIXL_RECEIVER_",
    "LMCACHE_NIXL_PEER_",
    "NIXL_ROLE",
    "NIXL_RECEIVER_",
)

_ALLOCATION_TIMEOUT = "dpd_allocation_timeout_seconds"
_PULL_TIMEOUT = "dpd_pull_timeout_seconds"


class WiringError(Exception):
    """The engine can't pass KV as configured. The message names setting, value and way out."""


@dataclass(frozen=True)
class Wiring:
    """What the chart asked of this engine.

    Attributes:
        role: prefill or decode.
        config_file: LMCache's configuration file.
        config: its content.
        allocation_timeout: seconds a prefiller waits for room in the receive buffer.
        pull_timeout: seconds landed KV is kept for a request that does not come.
    """

    role: Role
    config_file: Path
    config: dict[str, Any]
    allocation_timeout: float
    pull_timeout: float


def read_wiring(env: Mapping[str, str]) -> Wiring | None:
    """Check the environment and LMCache's configuration file, before anything heavy is loaded.

    Returns:
        None if DPD_ROLE is not set: this engine is not one of ours.

    Raises:
        WiringError: settings are missing or wrong; the message has a line for each.
    """
    role = env.get("DPD_ROLE")
    if not role:
        return None
    if role not in ("prefill", "decode"):
        raise WiringError(f"DPD_ROLE is {role!r}: it must be prefill or decode")
    path = env.get("LMCACHE_CONFIG_FILE", "")
    problems = list(_problems_of_environment(env))
    config: dict[str, Any] = {}
    try:
        config = _read_yaml(path)
        problems += _problems_of_config(role, path, config, env)
    except WiringError as error:
        problems.append(str(error))
    if problems:
        raise WiringError("\n".join(problems))
    extra = config["extra_config"]
    return Wiring(
        role=cast(Role, role),
        config_file=Path(path),
        config=config,
        allocation_timeout=float(extra[_ALLOCATION_TIMEOUT]),
        pull_timeout=float(extra[_PULL_TIMEOUT]),
    )


def check_vllm_version(version: str, own_kv_layout: bool) -> None:
    """Refuse a vLLM whose KV layout LMCache's in-process connector reads wrongly.

    Args:
        version: vLLM's version.
        own_kv_layout: this plugin's own connector reads the KV cache, not LMCache's.

    Raises:
        WiringError: the version is not usable.
    """
    if own_kv_layout:
        return
    if Version(version).release >= _FIRST_BROKEN_VLLM:
        raise WiringError(
            f"vLLM is {version}: from 0.26 on, LMCacheConnectorV1 returns wrong KV without an "
            "error (LMCache#4463). Use an image with vLLM 0.25 or older, such as "
            "lmcache/vllm-openai:v0.4.3"
        )


def check_engine(
    wiring: Wiring,
    *,
    kv_role: str | None,
    ranks: int,
    prefix_caching: bool,
    block_size: int,
    lora: bool = False,
    mla_stages: int = 1,
) -> None:
    """Check vLLM's own settings against the wiring.

    Args:
        wiring: what the chart asked for.
        kv_role: of --kv-transfer-config.
        ranks: tensor parallel x pipeline parallel.
        prefix_caching: whether vLLM's own cache is on.
        block_size: tokens of a block of vLLM's KV cache.
        lora: whether adapters are on.
        mla_stages: pipeline stages of a model with MLA; 1 for others.

    Raises:
        WiringError: a setting is wrong.
    """
    if kv_role != _KV_ROLE[wiring.role]:
        raise WiringError(
            f"kv_role of --kv-transfer-config is {kv_role}: with DPD_ROLE={wiring.role} it must be "
            f"{_KV_ROLE[wiring.role]}"
        )
    if lora:
        raise WiringError(
            "--enable-lora is on: chunk keys do not hold the adapter, so KV of one adapter would "
            "be read by another. Start the engines without it"
        )
    if mla_stages > 1:
        raise WiringError(
            f"--pipeline-parallel-size is {mla_stages}: of a model with MLA the first rank alone "
            "sends KV, and layers of later stages would be missing. Set "
            "model.pipelineParallelSize to 1"
        )
    if wiring.role == "decode":
        for key in ("pd_peer_init_port", "pd_peer_alloc_port"):
            ports = wiring.config[key]
            if len(ports) != ranks:
                raise WiringError(
                    f"{key} of {wiring.config_file} lists {len(ports)} ports: tensor parallel x "
                    f"pipeline parallel is {ranks}, and each rank needs its own"
                )
        if prefix_caching:
            raise WiringError(
                "--enable-prefix-caching is on: vLLM's own cache would hide received KV from "
                "LMCache. Start the decoder with --no-enable-prefix-caching"
            )
    chunk_size = int(wiring.config["chunk_size"])
    if chunk_size % block_size:
        raise WiringError(
            f"chunk_size of {wiring.config_file} is {chunk_size}: it must be a multiple of vLLM's "
            f"--block-size, which is {block_size}"
        )


def check_loaded(wiring: Wiring, loaded: Mapping[str, Any], known: Collection[str]) -> None:
    """Check that LMCache uses what its configuration file says.

    Args:
        wiring: the file's content.
        loaded: LMCache's settings by name, after environment and extra config were applied.
        known: the names that this LMCache has.

    Raises:
        WiringError: a key is unknown to LMCache, or something overrode it.
    """
    if loaded.get("use_layerwise"):
        raise WiringError(
            "use_layerwise is true in LMCache: its PD does not support it. Remove "
            "LMCACHE_USE_LAYERWISE and lmcache.use_layerwise in kv_connector_extra_config"
        )
    for key, asked in wiring.config.items():
        if key not in known:
            raise WiringError(
                f"{key} of {wiring.config_file} is unknown to this LMCache, which would ignore it"
            )
        if key != "extra_config" and loaded.get(key) != asked:
            raise WiringError(
                f"{key} is {loaded.get(key)!r} in LMCache but {asked!r} in {wiring.config_file}: "
                f"LMCACHE_{key.upper()} or lmcache.{key} in kv_connector_extra_config overrides "
                "it. Remove that"
            )


def check_ports_free(host: str, ports: Collection[int]) -> None:
    """Check that the receiver's ports can be bound now; LMCache binds one of them in a thread.

    Raises:
        WiringError: a port is taken, or the host is not an address of this pod.
    """
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise WiringError(
                    f"the receiver can't listen on {host}:{port}: {error.strerror}. Check "
                    "kvTransfer.ports and that LMCACHE_PD_PEER_HOST is the pod's own IP"
                ) from error


def _read_yaml(path: str) -> dict[str, Any]:
    if not path:
        raise WiringError("LMCACHE_CONFIG_FILE is not set: LMCache would run without PD")
    try:
        content = yaml.safe_load(Path(path).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise WiringError(f"LMCACHE_CONFIG_FILE {path} can't be read: {error}") from error
    if not isinstance(content, dict):
        raise WiringError(f"LMCACHE_CONFIG_FILE {path} holds no settings")
    return content


def _problems_of_environment(env: Mapping[str, str]) -> Iterator[str]:
    for name in env:
        if name.startswith(_OLD_NAMES):
            yield (
                f"{name} is set: LMCache ignores it since 0.3 and would run without PD. Remove it; "
                "the chart writes the settings it stands for"
            )
    seed = env.get("PYTHONHASHSEED", "")
    if not seed.isdigit():
        yield (
            f"PYTHONHASHSEED is {seed or 'not set'}: chunk keys of prefill and decode would never "
            "match. Set one number on every engine (model.hashSeed)"
        )


def _problems_of_config(
    role: str, path: str, config: Mapping[str, Any], env: Mapping[str, str]
) -> Iterator[str]:
    expected: dict[str, Any] = {
        "enable_pd": True,
        "pd_role": _PD_ROLE[role],
        "transfer_channel": "nixl",
        "save_decode_cache": False,
        "nixl_backends": [env.get("DPD_KV_BACKEND", "")],
    }
    source = {"chunk_size": "DPD_CHUNK_SIZE", "nixl_backends": "DPD_KV_BACKEND"}
    chunk_size = env.get("DPD_CHUNK_SIZE", "")
    if chunk_size.isdigit():
        expected["chunk_size"] = int(chunk_size)
    else:
        yield f"DPD_CHUNK_SIZE is {chunk_size or 'not set'}: it must be a whole number"
    for key, value in expected.items():
        if config.get(key) != value:
            name = source.get(key, "DPD_ROLE")
            yield (
                f"{key} of {path} is {config.get(key)!r}: it must be {value!r} with "
                f"{name}={env.get(name)}"
            )
    for name, text in env.items():
        key = name.removeprefix("LMCACHE_").lower()
        if name.startswith("LMCACHE_") and key in config and text != str(config[key]):
            yield (
                f"{name} is {text!r} in the environment, but {key} is {config[key]!r} in {path}: "
                "every engine must have the same. Remove it from the environment"
            )
    if config.get("use_layerwise"):
        yield f"use_layerwise of {path} is true: LMCache's PD does not support it"
    if not _is_int(config.get("pd_buffer_size")) or config["pd_buffer_size"] <= 0:
        yield (
            f"pd_buffer_size of {path} is {config.get('pd_buffer_size')!r}: it must be a whole "
            "number of bytes"
        )
    if config.get("pd_buffer_device") not in ("cpu", "cuda"):
        yield (
            f"pd_buffer_device of {path} is {config.get('pd_buffer_device')!r}: it must be cpu or "
            "cuda"
        )
    yield from _problems_of_timeouts(path, config.get("extra_config"))
    if role == "decode":
        yield from _problems_of_receiver(path, config, env)


def _problems_of_timeouts(path: str, extra: object) -> Iterator[str]:
    for key in (_ALLOCATION_TIMEOUT, _PULL_TIMEOUT):
        value = extra.get(key) if isinstance(extra, dict) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            yield (
                f"extra_config.{key} of {path} is {value!r}: it must be a number of seconds above 0"
            )


def _problems_of_receiver(
    path: str, config: Mapping[str, Any], env: Mapping[str, str]
) -> Iterator[str]:
    host = env.get("LMCACHE_PD_PEER_HOST", "")
    try:
        usable = not ipaddress.ip_address(host).is_unspecified
    except ValueError:
        usable = False
    if not usable:
        yield (
            f"LMCACHE_PD_PEER_HOST is {host or 'not set'}: the receiver binds it and prefillers "
            "connect to it, so it must be the pod's own IP address"
        )
    taken: set[int] = set()
    for key in ("pd_peer_init_port", "pd_peer_alloc_port"):
        ports = config.get(key)
        if not isinstance(ports, list) or not ports:
            yield f"{key} of {path} is {ports!r}: it must list one port for each rank"
            continue
        for port in ports:
            if not _is_int(port) or not 0 < port < 65536:
                yield f"{key} of {path} lists {port!r}, which is no port number"
            elif port in taken:
                yield f"{key} of {path} lists {port}, which is used twice"
            else:
                taken.add(port)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
