"""The router's own certificate, for HTTPS: read at start, and again when its files change.

Kubernetes replaces the files of a Secret while the pod runs, whenever the certificate is renewed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from pathlib import Path

from .config import Tls
from .sections import ConfigError

_log = logging.getLogger(__name__)

# Seconds between two looks at the files.
CHECK_SECONDS = 5.0
_WAY_OUT = "name a Secret of type kubernetes.io/tls in router.tls.secretName"


class Certificate:
    """Gives every new connection the certificate that the files held last.

    Raises:
        ConfigError: a file cannot be read, or the two do not belong together.
    """

    def __init__(self, files: Tls) -> None:
        self._files = files
        self._seen = _state(files)
        self._newest = _load(files)
        # What the server keeps; each handshake goes on with the newest one.
        self.context = _load(files)
        self.context.sni_callback = self._use_newest

    def refresh(self) -> None:
        """Read the files again if they have changed; keep the old pair if the new one is broken."""
        state = _state(self._files)
        if state == self._seen:
            return
        self._seen = state
        try:
            self._newest = _load(self._files)
        except ConfigError as error:
            _log.error("still using the old certificate: %s", error)
        else:
            _log.info("new connections get the new certificate of %s", self._files.cert_file)

    async def keep_current(self, *, every: float) -> None:
        """Refresh every so many seconds; runs until cancelled."""
        while True:
            await asyncio.sleep(every)
            self.refresh()

    def _use_newest(
        self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext
    ) -> None:
        """Take part in a handshake; OpenSSL calls this whether or not the client named a host."""
        connection.context = self._newest


def _load(files: Tls) -> ssl.SSLContext:
    for key, file in (("certFile", files.cert_file), ("keyFile", files.key_file)):
        try:
            Path(file).read_bytes()
        except OSError as error:
            raise ConfigError(
                f"listen.tls.{key}: {file!r} cannot be read: {error.strerror}; {_WAY_OUT}"
            ) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without an empty password OpenSSL would ask the terminal for that of a locked key.
        context.load_cert_chain(files.cert_file, files.key_file, password="")
    except OSError as error:
        raise ConfigError(
            f"listen.tls: {files.cert_file!r} and {files.key_file!r} are not a certificate and its "
            f"private key, in PEM and without a password: {error}; {_WAY_OUT}"
        ) from None
    return context


def _state(files: Tls) -> list[object]:
    """Return what changes when a file does, or is put in another's place."""
    found: list[object] = []
    for file in (files.cert_file, files.key_file):
        try:
            status = os.stat(file)
        except OSError as error:
            found.append(error.errno)
        else:
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return found
