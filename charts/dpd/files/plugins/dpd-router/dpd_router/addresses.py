"""Writing and reading "host:port"."""

from __future__ import annotations


def split_address(address: object) -> tuple[str, int]:
    """Split "host:port" (or "[ipv6]:port") into its two parts.

    Raises:
        ValueError: it is not of that form.
    """
    if isinstance(address, str):
        host, colon, port = address.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536:
            if bracketed:
                return host[1:-1], int(port)
            if ":" not in host and "/" not in host:
                return host, int(port)
    raise ValueError(f'{address!r} is not "host:port"')


def join_address(host: str, port: int) -> str:
    """Return "host:port", with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
