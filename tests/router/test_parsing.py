"""A body is read exactly as the engine reads it, which uses Python's json module."""

from __future__ import annotations

import json

import pytest

from dpd_router.parsing import BadRequest, parse

VALUES = [
    b"1" * 30,
    b"-" + b"9" * 25,
    b"18446744073709551616",
    b"-0",
    b"-0.0",
    b"0.1e1",
    b"1E5",
    b"1e400",
    b"1e-400",
    b"2.2250738585072011e-308",
    b"9007199254740993.0",
    b"0.30000000000000004",
    b"NaN",
    b"-Infinity",
    b"[true, false, null]",
    b'{"a": 1, "a": 2}',
    b'{"a": 1, "\\u0061": 2}',
    b'{"\xc3\xa9": 1, "e\xcc\x81": 2}',
    b'"\\ud83e\\udd93"',
    b'"\\ud83e"',
    b'"\\udd93\\ud83e"',
    b'"\xed\xa0\x80"',
    b'"\\u0000\\/\x7f"',
    b"[" * 200 + b"]" * 200,
]
NOT_JSON = [
    b"1" * 5000,
    b"01",
    b"+1",
    b".5",
    b"1.",
    b"[1,]",
    b"nulL",
    b"'a'",
    b"{1: 2}",
    b'"\xff"',
    b'"\xc0\x80"',
    b'"\xf4\x90\x80\x80"',
    b'"a\x01"',
    b'"\\x41"',
    b'"open',
    b"1} {",
    b"[" * 100_000 + b"]" * 100_000,
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_is_what_the_engine_takes_it_for(value: bytes) -> None:
    raw = b'{"x": %s}' % value
    parsed = parse(raw)
    # Unlike ==, repr tells 1 from 1.0 and 0.0 from -0.0, and finds NaN like itself.
    assert repr(parsed.body) == repr(json.loads(raw))
    assert parsed.forward == raw


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_transfer_parameters_hide_in_no_encoding(encoding: str) -> None:
    raw = '{"é": "漢", "kv_transfer_params": {"a": 1}}'.encode(encoding)
    parsed = parse(raw)
    assert parsed.body == {"é": "漢"}
    assert json.loads(parsed.forward) == {"é": "漢"}


@pytest.mark.parametrize("value", NOT_JSON, ids=lambda value: repr(value[:20]))
def test_what_the_engine_cannot_read_is_refused_in_its_words(value: bytes) -> None:
    raw = b'{"x": %s}' % value
    with pytest.raises((ValueError, RecursionError)) as engines:
        json.loads(raw)
    with pytest.raises(BadRequest) as refused:
        parse(raw)
    assert str(refused.value) == f"The request body is not valid JSON: {engines.value}"
