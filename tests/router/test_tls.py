"""HTTPS with the certificate of a mounted Secret, which is renewed while the router runs."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.router.conftest import HOST, Stage
from tests.router.secrets_made import MountedSecret, Pair

from dpd_router.certificate import Certificate
from dpd_router.config import Tls
from dpd_router.sections import ConfigError

OLD, NEW = Pair("old"), Pair("new")
WAY_OUT = "; name a Secret of type kubernetes.io/tls in router.tls.secretName"


@pytest.fixture
def secret(tmp_path: Path) -> MountedSecret:
    made = MountedSecret(tmp_path)
    made.hold(OLD.pem, OLD.key)
    return made


def files(secret: MountedSecret) -> Tls:
    return Tls(secret.tls["certFile"], secret.tls["keyFile"])


async def served(port: int, server_name: str | None = None) -> bytes:
    """The certificate that a new connection is given."""
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(
        HOST, port, ssl=trusting, server_hostname=server_name or ""
    )
    der: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return der


@pytest.mark.parametrize("prompt", [[1] * 5, [1] * 30])
async def test_answers_and_streams_come_over_https(
    stage: Stage, secret: MountedSecret, prompt: list[int]
) -> None:
    await stage.router(tls=secret.tls)
    stage.decoders[0].does.pause = 0.05
    async with stage.post("/v1/completions", {"prompt": prompt}, ssl=OLD.client()) as response:
        assert response.status == 200
        assert response.headers["x-dpd-prompt-tokens"] == str(len(prompt))
        assert (await response.json())["choices"][0]["text"] == "Hello you"
    body = {"prompt": prompt, "stream": True}
    async with stage.post("/v1/completions", body, ssl=OLD.client()) as response:
        events = [chunk async for chunk, _ in response.content.iter_chunks()]
    assert len(events) >= 3
    sent = [event async for event in stage.decoders[0].events(stage.decoders[0].seen[-1], False)]
    assert b"".join(events) == b"".join(sent)


async def test_a_client_that_trusts_another_certificate_is_not_served(
    stage: Stage, secret: MountedSecret
) -> None:
    await stage.router(tls=secret.tls)
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await stage.client.get(stage.url + "/health", ssl=NEW.client())


async def test_the_port_does_not_speak_plain_http(stage: Stage, secret: MountedSecret) -> None:
    await stage.router(tls=secret.tls)
    reader, writer = await asyncio.open_connection(HOST, stage.port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b"HTTP" not in await reader.read()
    writer.close()


async def test_the_server_offers_http_1_1_and_nothing_older_than_tls_1_2(
    stage: Stage, secret: MountedSecret
) -> None:
    await stage.router(tls=secret.tls)
    client = OLD.client()
    client.set_alpn_protocols(["h2", "http/1.1"])
    _, writer = await asyncio.open_connection(HOST, stage.port, ssl=client)
    assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    writer.close()
    old = OLD.client()
    with pytest.deprecated_call():
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError):
        await asyncio.open_connection(HOST, stage.port, ssl=old)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_an_answer_that_broke_off_does_not_look_whole_over_https(
    stage: Stage, secret: MountedSecret, version: str
) -> None:
    await stage.router(tls=secret.tls)

    async def break_off(request: web.Request, seen: Any) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"data: half")
        assert request.transport is not None
        request.transport.abort()
        return response

    stage.decoders[0].does.handle = break_off
    reader, writer = await asyncio.open_connection(HOST, stage.port, ssl=OLD.client())
    body = b'{"prompt": [1, 2], "stream": true}'
    writer.write(
        b"POST /v1/completions HTTP/%s\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (version.encode(), len(body), body)
    )
    if version == "1.1":
        answer = await reader.read()
        assert answer.endswith(b"data: half\r\n")  # a chunk, and no last one
    else:
        with pytest.raises(ConnectionResetError):
            await reader.read()
            await reader.read()
    writer.close()


async def test_a_renewed_certificate_is_served_without_a_restart(
    stage: Stage, secret: MountedSecret
) -> None:
    await stage.router(tls=secret.tls)
    decoder = stage.decoders[0]
    decoder.does.words, decoder.does.pause = ["word "] * 20, 0.5
    body = {"prompt": [1] * 30, "stream": True}
    async with stage.post("/v1/completions", body, ssl=OLD.client()) as response:
        await response.content.readany()
        secret.hold(NEW.pem, NEW.key)
        async with asyncio.timeout(8):
            while await served(stage.port) != NEW.der:
                await asyncio.sleep(0.2)
        assert await served(stage.port, "router.example") == NEW.der
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
    async with stage.client.get(stage.url + "/ready", ssl=NEW.client()) as ready:
        assert ready.status == 200
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        async with aiohttp.ClientSession() as client:
            await client.get(stage.url + "/ready", ssl=OLD.client())


def handshake(certificate: Certificate) -> bytes:
    """The certificate that a client is given, in memory."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up),
        certificate.context.wrap_bio(up, down, server_side=True),
    ]
    for end in ends * 3:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
    der = ends[0].getpeercert(binary_form=True)
    assert der is not None
    return der


@pytest.mark.parametrize(
    ("cert", "key"),
    [
        (NEW.pem, OLD.key),
        (NEW.pem, b""),
        (b"", NEW.key),
        (NEW.pem[:-40], NEW.key),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", NEW.key),
        (NEW.pem, NEW.key_with(b"secret")),
    ],
    ids=["other-key", "no-key", "no-cert", "half-cert", "junk-cert", "locked-key"],
)
def test_a_broken_new_pair_is_logged_once_and_the_old_one_kept(
    secret: MountedSecret, caplog: pytest.LogCaptureFixture, cert: bytes, key: bytes
) -> None:
    certificate = Certificate(files(secret))
    assert handshake(certificate) == OLD.der
    secret.hold(cert, key)
    for _ in range(3):
        certificate.refresh()
    assert handshake(certificate) == OLD.der
    (logged,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert logged.getMessage().startswith("still using the old certificate: listen.tls")
    secret.hold(NEW.pem, NEW.key)
    certificate.refresh()
    assert handshake(certificate) == NEW.der


def test_files_that_go_away_are_logged_and_the_old_pair_kept(
    secret: MountedSecret, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = Certificate(files(secret))
    os.unlink(secret.tls["keyFile"])
    certificate.refresh()
    certificate.refresh()
    assert handshake(certificate) == OLD.der
    assert len(caplog.records) == 1


def test_a_pair_written_over_in_place_is_taken_too(secret: MountedSecret) -> None:
    certificate = Certificate(files(secret))
    Path(secret.tls["keyFile"]).write_bytes(NEW.key)
    certificate.refresh()
    assert handshake(certificate) == OLD.der
    Path(secret.tls["certFile"]).write_bytes(NEW.pem)
    certificate.refresh()
    assert handshake(certificate) == NEW.der


@pytest.mark.parametrize("key", ["certFile", "keyFile"])
def test_a_missing_file_is_named_with_the_way_out(secret: MountedSecret, key: str) -> None:
    file = Path(secret.tls[key])
    file.unlink()
    with pytest.raises(ConfigError) as missing:
        Certificate(files(secret))
    assert str(missing.value) == (
        f"listen.tls.{key}: '{file}' cannot be read: No such file or directory{WAY_OUT}"
    )
    file.mkdir()
    with pytest.raises(ConfigError) as unreadable:
        Certificate(files(secret))
    assert str(unreadable.value) == (
        f"listen.tls.{key}: '{file}' cannot be read: Is a directory{WAY_OUT}"
    )


def test_files_that_do_not_belong_together_are_named_with_the_way_out(
    secret: MountedSecret,
) -> None:
    secret.hold(OLD.pem, NEW.key)
    with pytest.raises(ConfigError) as refused:
        Certificate(files(secret))
    cert, key = secret.tls.values()
    told = str(refused.value)
    assert told.startswith(
        f"listen.tls: '{cert}' and '{key}' are not a certificate and its private key, in PEM and "
        "without a password: [X509: KEY_VALUES_MISMATCH] key values mismatch"
    )
    assert told.endswith(WAY_OUT)
