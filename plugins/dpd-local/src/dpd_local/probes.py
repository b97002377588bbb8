"""Readiness, liveness and startup probes, as the kubelet counts them."""

from __future__ import annotations

import http.client
import socket
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpd_local.pods import Pod, PodError

Check = Callable[[], str]  # returns "" for success, else what was wrong


@dataclass
class Probe:
    """One probe with its count.

    Attributes:
        check: does it once.
        due: when to do it next, seconds on the monotonic clock.
        passed: None until a threshold was reached for the first time.
        message: what was wrong the last time.
    """

    check: Check
    due: float
    period: float
    failure_threshold: int
    success_threshold: int
    passed: bool | None = None
    message: str = ""
    _run: int = 0

    def run(self, now: float) -> None:
        """Do the check and count it: `passed` changes when a threshold is reached."""
        self.due = now + self.period
        self.message = self.check()
        good = not self.message
        # A run of equal results is counted up for successes and down for failures.
        if good:
            self._run = max(self._run, 0) + 1
        else:
            self._run = min(self._run, 0) - 1
        if self._run >= self.success_threshold:
            self.passed = True
        elif -self._run >= self.failure_threshold:
            self.passed = False


def probe_of(pod: Pod, kind: str, ip: str, now: float) -> Probe | None:
    """Return the container's probe of a kind ("readinessProbe", …), or None.

    Raises:
        PodError: a probe that is neither httpGet nor tcpSocket.
    """
    settings = pod.container.get(kind)
    if not settings:
        return None
    timeout = float(settings.get("timeoutSeconds", 1))
    if "httpGet" in settings:
        check = _http_check(pod, settings["httpGet"], ip, timeout)
    elif "tcpSocket" in settings:
        check = _tcp_check(ip, _port(pod, settings["tcpSocket"]["port"]), timeout)
    else:
        raise PodError(f"pod {pod.name}: {kind}: only httpGet and tcpSocket can be done here")
    return Probe(
        check=check,
        due=now + float(settings.get("initialDelaySeconds", 0)),
        period=float(settings.get("periodSeconds", 10)),
        failure_threshold=int(settings.get("failureThreshold", 3)),
        success_threshold=int(settings.get("successThreshold", 1)),
    )


def _port(pod: Pod, port: int | str) -> int:
    if isinstance(port, int):
        return port
    for named in pod.container.get("ports") or []:
        if named.get("name") == port:
            return int(named["containerPort"])
    raise PodError(f"pod {pod.name}: a probe names port {port}, which no container port has")


def _http_check(pod: Pod, settings: Mapping[str, Any], ip: str, timeout: float) -> Check:
    port, path = _port(pod, settings["port"]), str(settings.get("path", "/"))
    headers = {item["name"]: item["value"] for item in settings.get("httpHeaders") or []}
    host = settings.get("host") or ip

    def check() -> str:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
        try:
            connection.request("GET", urllib.parse.quote(path, safe="/?&=%"), headers=headers)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return f"GET http://{host}:{port}{path}: {error}"
        finally:
            connection.close()
        return "" if 200 <= status < 400 else f"GET http://{host}:{port}{path}: status {status}"

    return check


def _tcp_check(ip: str, port: int, timeout: float) -> Check:
    def check() -> str:
        try:
            socket.create_connection((ip, port), timeout=timeout).close()
        except OSError as error:
            return f"connect {ip}:{port}: {error}"
        return ""

    return check
