"""The caches of KV beside the prefillers' GPUs."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from .conversion import Conversion
from .errors import ConvertError

_SPEC = "kvCacheSpec.l2CacheSpec"
_REDIS_PORT = 6379


def convert(conversion: Conversion) -> None:
    """Write whether prefillers keep KV in their memory, and the store that they share."""
    backend = conversion.get(f"{_SPEC}.l2CacheBackend")
    url = conversion.get(f"{_SPEC}.l2CacheLocalUrl")
    first = conversion.get("kvCacheSpec.enableL1Cache")
    if first is not None:
        conversion.set("cache.l1.enabled", first)
    if not conversion.get("kvCacheSpec.enableL2Cache"):
        for path, value in (("l2CacheBackend", backend), ("l2CacheLocalUrl", url)):
            if value:
                reason = "enableL2Cache is not true, so there is no such cache"
                conversion.leave(f"{_SPEC}.{path}", _shown(value), reason)
        return
    if str(backend).lower() != "redis" or not url:
        reason = (
            "only redis with an address can be carried over; tieredstorage only runs under "
            "HyperPod's operator. Set cache.l2 to a Redis, an LMCache server or a shared folder"
        )
        for path, value in (
            ("kvCacheSpec.enableL2Cache", True),
            (f"{_SPEC}.l2CacheBackend", backend),
            (f"{_SPEC}.l2CacheLocalUrl", url and _shown(url)),
        ):
            if value:
                conversion.leave(path, value, reason)
        return
    conversion.set("cache.l2.type", "redis")
    if first is False:
        reason = (
            "a store is behind the cache in memory, which stays on; cache.l1.sizeGiB is its size"
        )
        conversion.leave("kvCacheSpec.enableL1Cache", first, reason)
    conversion.set("cache.l1.enabled", True)
    parts = _split(url if "//" in url else f"redis://{url}")
    plain = parts.scheme == "redis" and not (parts.path.strip("/") or parts.query)
    if plain and parts.hostname and not (parts.username or parts.password):
        conversion.set("cache.l2.address", f"{parts.hostname}:{parts.port or _REDIS_PORT}")
        return
    secret = f"{conversion.manifest.name}-kv-store"
    conversion.set("cache.l2.urlSecret.name", secret)
    conversion.leave(
        f"{_SPEC}.l2CacheLocalUrl",
        _shown(url),
        "more than host and port, which only a Secret holds: kubectl create secret generic "
        f"{secret} -n {conversion.manifest.namespace} --from-literal=url=THE_URL",
    )


def _split(url: str) -> SplitResult:
    """Return the parts of a URL.

    Raises:
        ConvertError: it is none. The URL is not repeated, for it may hold a password.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises on what is no port
    except ValueError as error:
        raise ConvertError(
            f"spec.{_SPEC}.l2CacheLocalUrl is no URL ({error}); write it as redis://host:port"
        ) from None
    return parts


def _shown(text: str) -> str:
    """Return a URL without its password."""
    password = _split(text).password
    return text.replace(f":{password}@", ":***@") if password else text
