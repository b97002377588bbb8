"""Certificates made on the spot, in a folder that changes as that of a mounted Secret does."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

DAY = datetime.timedelta(days=1)


class Pair:
    """A certificate for 127.0.0.1 and router.example, signed by itself, and its private key."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        hosts = [
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            x509.DNSName("router.example"),
        ]
        self._certificate = (
            x509.CertificateBuilder(subject, subject, self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
            .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, SHA256())
        )
        self.der = self._certificate.public_bytes(Encoding.DER)
        self.pem = self._certificate.public_bytes(Encoding.PEM)
        self.key = self.key_with(None)

    def key_with(self, password: bytes | None) -> bytes:
        """The private key in PEM, locked with a password or not."""
        lock = BestAvailableEncryption(password) if password else NoEncryption()
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)

    def client(self) -> ssl.SSLContext:
        """What a client needs that trusts this certificate and no other."""
        return ssl.create_default_context(cadata=self.pem.decode())


class MountedSecret:
    """A folder as the kubelet makes it: the files lead to `..data`, which leads to a version."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions = 0
        for name in ("tls.crt", "tls.key"):
            (folder / name).symlink_to(Path("..data", name))

    @property
    def tls(self) -> dict[str, str]:
        """The section of the router's configuration."""
        return {
            "certFile": str(self._folder / "tls.crt"),
            "keyFile": str(self._folder / "tls.key"),
        }

    def hold(self, cert: bytes, key: bytes) -> None:
        """Swap in a new version, both files at once."""
        self._versions += 1
        version = self._folder / f"..version_{self._versions}"
        version.mkdir()
        (version / "tls.crt").write_bytes(cert)
        (version / "tls.key").write_bytes(key)
        link = self._folder / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self._folder / "..data")
