"""What OPERATING.md promises, held against the tests and the code that make it so."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.readme.document import OPERATING, ROOT, TEXT, quoted, rows, section
from tests.readme.programs import as_text, texts

from dpd_router.app import REFRESH_SECONDS
from dpd_router.engines import LATE_PROBES
from dpd_router.metrics import Metrics
from dpd_router.probing import PROBE_SECONDS
from dpd_router.releasing import KEPT_SECONDS
from dpd_vllm.buffer import Usage
from dpd_vllm.sender import Sender

ROUTER = ROOT / "plugins" / "dpd-router" / "src" / "dpd_router"
VALUES: dict[str, Any] = yaml.safe_load(
    (ROOT / "charts" / "dpd" / "values.yaml").read_text(encoding="utf-8")
)

# The tests that show what a row of the table of deaths says, by the row's first two cells.
PROOFS: dict[tuple[str, str], list[str]] = {
    ("Prefiller", "before the prompt reached it"): [
        "router/test_errors.py::test_a_dead_prefiller_is_passed_over",
        "router/test_errors.py::test_without_a_prefiller_a_long_prompt_is_a_503",
        "engine/test_restart.py::upgrading",
    ],
    ("Prefiller", "while it computes or sends"): [
        "router/test_deaths.py::test_a_prompt_whose_prefiller_dies_is_taken_over_by_the_next",
        "router/test_deaths.py::test_a_prompt_whose_last_prefiller_dies_is_a_503",
        "router/test_deaths.py::test_a_prompt_whose_prefiller_breaks_new_connections_is_taken_over",
        "router/test_deaths.py::test_a_prompt_that_ends_two_prefillers_does_not_reach_a_third",
        "router/test_errors.py::test_a_prefiller_that_breaks_the_connection_is_a_502",
        "router/test_releases.py::test_a_transfer_that_did_not_land_is_released",
        "engine/test_buffer.py::test_a_released_transfer_frees_what_landed_and_gets_nothing_more",
        "engine/test_buffer.py::test_pages_of_a_writer_that_died_are_freed_after_the_timeout",
    ],
    ("Prefiller", "its engine fails, its server answers 500"): [
        "router/test_errors.py::test_a_prefillers_error_reaches_the_client_unchanged",
    ],
    ("Prefiller", "it falls silent, as when its node is gone"): [
        "router/test_errors.py::test_a_prefiller_that_never_answers_is_a_504_within_the_limit",
        "router/test_releases.py::test_a_transfer_that_did_not_land_is_released",
    ],
    ("Prefiller", "after the KV has landed"): [
        "router/test_deaths.py::test_a_prefiller_that_dies_when_its_kv_has_landed_is_not_missed",
        "router/test_deaths.py::test_a_prefiller_that_is_lost_when_its_kv_has_landed_is_not_missed",
    ],
    ("Decoder", "while a prefiller computes or sends"): [
        "router/test_errors.py::test_a_transfer_reported_as_failed_is_a_503_with_its_reason",
        "router/test_errors.py::test_a_transfer_that_never_lands_is_a_504_within_the_limit",
        "engine/test_transfer.py::"
        "test_a_decoder_that_is_gone_fails_the_transfer_in_the_time_of_two_answers",
        "engine/test_transfer.py::"
        "test_a_failed_write_is_noticed_and_the_next_transfer_shakes_hands_anew",
        "engine/test_transfer.py::test_a_ticket_of_the_decoders_earlier_process_lands_nothing",
    ],
    ("Decoder", "after the KV has landed, before the answer began"): [
        "router/test_deaths.py::test_a_long_prompt_whose_decoder_dies_with_its_kv_is_a_502",
        "router/test_deaths.py::test_a_short_prompt_whose_decoder_dies_is_taken_over_by_the_next",
        "router/test_errors.py::test_a_dead_decoder_is_passed_over_by_short_prompts",
    ],
    ("Decoder", "in the middle of an answer"): [
        "router/test_streams.py::test_a_stream_that_breaks_is_an_aborted_connection",
        "router/test_streams.py::test_a_body_shorter_than_its_length_is_an_aborted_connection",
    ],
    ("Decoder", "it falls silent, as when its node is gone"): [
        "router/test_errors.py::test_a_silent_decoder_is_a_504_after_the_idle_limit",
        "router/test_streams.py::test_a_stream_that_falls_silent_is_an_aborted_connection",
        "router/test_releases.py::test_a_decoder_that_did_not_answer_is_told_once_it_does",
        "engine/test_landing.py::"
        "test_a_decoder_that_stood_still_hears_afterwards_which_clients_left",
    ],
    ("Router", "it is told to stop"): [
        "router/test_process.py::test_sigterm_lets_open_requests_finish",
        "router/test_process.py::test_sigterm_does_not_wait_for_ever",
        "router/test_releases.py::test_a_stopping_router_tells_what_it_has_to",
    ],
    ("Router", "it is killed"): [
        "engine/test_transfer.py::test_an_aborted_request_gives_its_pages_up_and_sends_no_notice",
        "engine/test_transfer.py::"
        "test_a_router_that_came_back_frees_what_its_killed_process_had_under_way",
        "engine/test_buffer.py::"
        "test_landed_chunks_that_nobody_fetches_are_freed_after_the_pull_timeout",
    ],
    ("Client", "it leaves"): [
        "router/test_releases.py::test_a_client_that_leaves_is_released",
        "engine/test_landing.py::test_clients_that_leave_at_any_stage_take_no_room",
    ],
}


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, kinds)}


def deaths() -> list[list[str]]:
    return rows(section("## When a part dies", OPERATING))


@pytest.mark.parametrize("row", deaths(), ids=lambda row: f"{row[0]}: {row[1]}")
def test_each_way_to_die_is_shown_by_tests(row: list[str]) -> None:
    for proof in PROOFS[row[0], row[1]]:
        file, _, name = proof.partition("::")
        assert name in functions(ROOT / "tests" / file), proof


def test_no_proof_is_of_a_row_that_is_gone() -> None:
    assert set(PROOFS) == {(row[0], row[1]) for row in deaths()}


def test_the_times_are_those_of_the_code_and_of_the_values() -> None:
    text = " ".join(section("## When a part dies", OPERATING).split())
    (wait,) = re.findall(r"two waits of (\d+) s", text)
    assert inspect.signature(Sender).parameters["answer_timeout"].default == float(wait)
    assert "for five minutes" in text
    assert KEPT_SECONDS == 5 * 60
    (every,) = re.findall(r"asks every engine every (\d+) seconds", text)
    assert float(every) == REFRESH_SECONDS
    late, seconds = re.findall(r"after (\w+) answers in a row that took more than (\d+)", text)[0]
    assert (late, float(seconds)) == ({3: "three"}[LATE_PROBES], PROBE_SECONDS)
    probes = {name: VALUES["engines"][f"{name}Probe"] for name in ("startup", "liveness")}
    allowed = {name: p["periodSeconds"] * p["failureThreshold"] for name, p in probes.items()}
    assert "startup probe allows half an hour" in text
    assert "stuck is restarted after a minute" in text
    assert allowed == {"startup": 1800, "liveness": 60}
    ready = VALUES["router"]["readinessProbe"]
    assert ready["httpGet"]["path"] == "/ready"  # 503 without an engine of a needed role
    assert ready["periodSeconds"] * ready["failureThreshold"] < 10


def test_each_metric_of_the_router_has_the_labels_that_are_named() -> None:
    labels = {
        name: collector._labelnames
        for name, collector in Metrics().registry._names_to_collectors.items()
        if hasattr(collector, "_labelnames")
    }
    named = re.findall(r"`(dpd_router_\w+)(?:\{([^}]*)\})?`", OPERATING)
    assert len(named) > 20
    for name, inside in named:
        given = [label.partition("=")[0] for label in inside.split(",") if label]
        assert set(given) <= set(labels[name]), name
        if inside and "=" not in inside:
            assert tuple(given) == labels[name]


def test_the_queries_ask_for_what_is_there() -> None:
    quantile, share = re.findall(r"^```text\n((?:histogram|sum).*)\n```$", OPERATING, re.M)
    (name, within) = re.findall(r"rate\((\w+)_bucket\[(\w+)\]\)", quantile)[0]
    page = Metrics()
    page.ttft_seconds.labels("direct").observe(1)
    (family,) = [f for f in page.registry.collect() if f.name == name]
    assert (family.type, within) == ("histogram", "5m")
    (by,) = re.findall(r"by \(([\w, ]+)\)", quantile)
    buckets = [s for s in family.samples if s.name == f"{name}_bucket"]
    assert set(by.split(", ")) == set(buckets[0].labels)
    for other in page.registry.collect():
        assert other.type == "histogram" or not other.name.endswith("_seconds"), other.name
    states = {field.name for field in dataclasses.fields(Usage)}
    asked = re.findall(r'dpd:receive_buffer_pages\{state=~?"([\w|]+)"\}', share)
    assert [set(one.split("|")) for one in asked] == [{"free", "cached"}, {"total"}]
    assert {"free", "cached", "total"} <= states


# What the README says of the router, and the tests that show it.
SHOWN = {
    "the router hands the client's `Authorization` on": (
        "router/test_prefill_leg.py",
        "test_the_prefill_leg_carries_the_clients_authorization",
    ),
    "While only prefillers of another revision answer, a decoder computes long prompts itself": (
        "router/test_revisions.py",
        "test_a_long_prompt_that_finds_no_partner_is_answered_and_counted_and_logged",
    ),
    "while none answers, long prompts get 503": (
        "router/test_errors.py",
        "test_without_a_prefiller_a_long_prompt_is_a_503",
    ),
}


def test_what_the_readme_says_of_the_router_is_shown_by_tests() -> None:
    for words, (file, name) in SHOWN.items():
        assert words in " ".join(TEXT.split())
        assert name in functions(ROOT / "tests" / file)


def test_the_only_engine_of_a_role_goes_before_its_successor_comes() -> None:
    text = " ".join(section("### Upgrade and drain", TEXT).split())
    assert "a role with one replica is away while it loads" in text
    rolling = VALUES["engines"]["strategy"]["rollingUpdate"]
    assert rolling == {"maxSurge": 0, "maxUnavailable": 1}
    assert VALUES["prefill"]["replicas"] == VALUES["decode"]["replicas"] == 1


def test_each_reason_is_one_that_the_router_gives() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in ROUTER.glob("*.py"))
    table = rows(section("### Everything goes to a decoder directly", OPERATING))
    reasons = [reason for row in table for reason in re.findall(r"`(\w+)`", row[0])]
    assert len(reasons) > 10
    for reason in reasons:
        assert re.search(rf'(Decision|Direct|_Uncountable)\(\s*"{reason}"', code), reason


# How the router answers what `upstream` says of an engine: with the statuses of these errors.
BY_UPSTREAM = {
    "… broke the connection: …": "502",
    "cannot connect to …: …": "502",
    "… was silent for too long": "504",
}


def refusals(path: Path) -> list[tuple[str, str]]:
    """Status and text of each error that a module of the router makes."""
    calls = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Call)]
    return [
        (str(call.args[0].value), as_text(call.args[1]))
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "Refused"
        if isinstance(call.args[0], ast.Constant)
    ]


def test_each_message_comes_with_its_status() -> None:
    made = [pair for path in sorted(ROUTER.glob("*.py")) for pair in refusals(path)]
    # What an engine says of a transfer that failed is passed on.
    assert ("503", "The KV transfer failed: …") in made
    engine = ROOT / "plugins" / "dpd-vllm" / "src" / "dpd_vllm"
    passed_on = [text for path in sorted(engine.glob("*.py")) for text in texts(path)]
    for row in rows(section("### A request ends with 502, 503 or 504", OPERATING)):
        for message in quoted(row[0]):
            statuses = {status for status, text in made if message in text}
            if any(message in text for text in passed_on):
                statuses.add("503")
            assert statuses or message in BY_UPSTREAM, message
            assert statuses | {BY_UPSTREAM.get(message, row[1])} == {row[1]}, message
