"""Which Python values a manifest holds, and that they keep their types."""

from __future__ import annotations

import math
from collections import OrderedDict
from enum import IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxsaw.checkpoint.jsonable import MAX_DEPTH, check_jsonable, from_json, to_json

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
)


@given(values)
def test_round_trip(value: Any) -> None:
    check_jsonable(value, "value")
    assert repr(from_json(to_json(value))) == repr(value)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def cycle() -> Any:
    value: dict[str, Any] = {"a": [1]}
    value["a"].append(value)
    return value


class Color(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((1, 2), "p: expected None, bool, int, float, str, list or dict, got tuple."),
        ({"a": [1, 2, b"x"]}, 'p["a"][2]: expected None, bool'),
        ({'q"': {1}}, 'p["q\\""]: expected None, bool, int, float, str, list or dict, got set.'),
        ([np.float64(1)], "p[0]: expected None, bool, int, float, str, list or dict, got float64."),
        ([np.int32(1)], "p[0]: expected None"),
        ([np.zeros(1)], "p[0]: expected None"),
        ([np.str_("a")], "p[0]: expected None"),
        ([Color.RED], "p[0]: expected None"),
        ([OrderedDict()], "p[0]: expected None"),
        ([1j], "p[0]: expected None"),
        ({1: 2}, "p: expected str keys, got 1."),
        ({"a": {None: 2}}, 'p["a"]: expected str keys, got None.'),
        (["\ud800"], "p[0]: '\\ud800' can't be encoded as UTF-8."),
        ({"\udfff": 1}, "p: '\\udfff' can't be encoded as UTF-8."),
        ([10**5000], "p[0]: Exceeds the limit (4300 digits)"),
        (cycle(), 'p["a"][1]: a dict that contains itself.'),
        (nested(MAX_DEPTH + 1), f"{'[0]' * MAX_DEPTH}: nested deeper than {MAX_DEPTH} levels."),
    ],
)
def test_refused(value: Any, message: str) -> None:
    with pytest.raises(TypeError) as error:
        check_jsonable(value, "p")
    assert message in str(error.value)


def test_limits_are_inclusive() -> None:
    shared: list[int] = []
    for value in (nested(MAX_DEPTH), 10**4299, [shared, shared], math.nan):
        check_jsonable(value, "p")
        assert repr(from_json(to_json(value))) == repr(value)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"a": 1, "a": 2}',
        b"\xff",
        b"[" * 200 + b"]" * 200,
        b"[" * 10**6,
        b'{"":' * 10**5,
    ],
)
def test_bad_text(text: bytes) -> None:
    with pytest.raises(ValueError):
        from_json(text)
