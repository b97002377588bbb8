"""Pod IPs: addresses of the loopback network, no two runs on a machine sharing one."""

from __future__ import annotations

import os
import random
import socket


class AddressBlock:
    """A block 127.a.b.0/24, held until closed or until the process ends, however it ends."""

    def __init__(self) -> None:
        """Reserve a free block.

        Raises:
            RuntimeError: every block is taken.
        """
        blocks = [(a, b) for a in range(64, 128) for b in range(256)]
        random.Random(os.getpid()).shuffle(blocks)
        for a, b in blocks:
            # An abstract socket has the very scope of a loopback address, a network namespace,
            # and goes with its process.
            self._reservation = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._reservation.bind(f"\0dpd-local/127.{a}.{b}.0")
            except OSError:
                self._reservation.close()
                continue
            self._prefix = f"127.{a}.{b}"
            break
        else:
            raise RuntimeError("all loopback blocks 127.64.0.0 to 127.127.255.0 are in use")
        self._names: dict[str, str] = {}

    def address(self, name: str) -> str:
        """Return the address of `name`, always the same one.

        Raises:
            RuntimeError: more than 250 names.
        """
        if name not in self._names:
            if len(self._names) == 250:
                raise RuntimeError(f"{self._prefix}.0/24 has no address left for {name}")
            self._names[name] = f"{self._prefix}.{len(self._names) + 2}"
        return self._names[name]

    def close(self) -> None:
        """Give the block back."""
        self._reservation.close()
