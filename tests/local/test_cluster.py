"""The chart's pods get names, addresses and the wiring between them; engines stand aside here."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from dpd_local import Cluster, Pod
from dpd_local.render import RenderError

# Serves its own command line and environment at every path.
STAND_IN = """
import http.server, json, os, sys
from pathlib import Path
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = {"args": sys.argv[1:], "env": dict(os.environ)}
        if self.path == "/config":
            body = (Path(sys.argv[1])).read_text()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())
    def log_message(self, *_):
        pass
http.server.HTTPServer((os.environ["POD_IP"], 8000), Handler).serve_forever()
"""


def stand_in(pod: Pod) -> None:
    if pod.component == "router":
        pod.container["args"] = [pod.container["command"][-1]]
    pod.container["command"] = ["python3", "-c", STAND_IN]


EVERY_POD = {name: stand_in for name in ("router", "prefill", "decode", "colocated")}


def asked(cluster: Cluster, name: str, path: str = "/") -> dict[str, dict[str, str]]:
    with urllib.request.urlopen(cluster.url(name) + path) as response:
        answer: dict[str, dict[str, str]] = json.load(response)
        return answer


def test_every_pod_is_ready_at_its_own_address_and_the_router_knows_them() -> None:
    with Cluster(prefill=2, colocated=True, edit=EVERY_POD, timeout=30) as cluster:
        names = {"router-0", "prefill-0", "prefill-1", "decode-0", "colocated-0"}
        assert set(cluster.node.pods) == names
        assert len({cluster.pod(name).ip for name in names}) == 5
        config = str(asked(cluster, "router", "/config"))
        for name in ("prefill-0", "prefill-1", "decode-0"):
            assert f"{cluster.pod(name).ip}:8000" in config
        directory = cluster.directory
    assert not directory.exists()


def test_the_colocated_engine_is_the_decoder_without_its_wiring() -> None:
    with Cluster(colocated=True, edit=EVERY_POD, hold=["router", "prefill"], timeout=30) as cluster:
        decode, colocated = asked(cluster, "decode"), asked(cluster, "colocated")
    kept = [word for word in decode["args"] if not word.startswith("--kv-transfer-config")]
    address = {"decode": kept.pop(2), "colocated": list(colocated["args"]).pop(2)}
    assert all(word.startswith("--host=127.") for word in address.values())
    assert [*colocated["args"][:2], *colocated["args"][3:]] == kept
    assert len(decode["args"]) == len(colocated["args"]) + 1
    wiring = {name for name in colocated["env"] if name.startswith(("LMCACHE_", "DPD_", "PYTHONP"))}
    assert wiring == set()
    assert decode["env"]["PYTHONHASHSEED"] == colocated["env"]["PYTHONHASHSEED"] == "0"


def test_what_is_given_for_a_pod_goes_before_what_is_given_for_its_component() -> None:
    with Cluster(
        prefill=2,
        edit=EVERY_POD,
        hold=["router", "decode"],
        pod_env={"prefill": {"A": "all", "B": "all"}, "prefill-1": {"A": "one"}},
        python_path={"prefill-1": [Path("/faults")]},
        timeout=30,
    ) as cluster:
        first, second = (asked(cluster, name)["env"] for name in ("prefill-0", "prefill-1"))
    assert (first["A"], first["B"], second["A"], second["B"]) == ("all", "all", "one", "all")
    assert second["PYTHONPATH"] == "/faults:" + second["PYTHONPATH"].removeprefix("/faults:")
    assert not first["PYTHONPATH"].startswith("/faults")


def test_no_path_of_a_container_is_left_in_an_engines_command_or_environment() -> None:
    with Cluster(edit=EVERY_POD, hold=["router", "prefill"], timeout=30) as cluster:
        engine = asked(cluster, "decode")
    model, settings = Path(engine["args"][0]), Path(engine["env"]["LMCACHE_CONFIG_FILE"])
    assert model.name == "tiny" and (model / "config.json").exists()
    for name in ("HOME", "TMPDIR", "PYTHONPATH"):
        assert engine["env"][name].startswith(str(settings.parents[1]))


def test_values_that_the_chart_refuses_are_told_in_its_words() -> None:
    with pytest.raises(RenderError, match="thresold"):
        Cluster(set_json={"router.thresold": 1})


def test_an_unknown_pod_is_answered_with_those_there_are() -> None:
    cluster = Cluster()
    try:
        with pytest.raises(KeyError, match="no pod decoder; there are decode-0, prefill-0"):
            cluster.pod("decoder")
    finally:
        cluster.close()
