"""Python values that JSON gives back as they were: same types, same values."""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 100  # levels of lists and dicts in a user's value
MANIFEST_DEPTH = MAX_DEPTH + 28  # and in a manifest, which holds such values


def check_jsonable(value: object, where: str, *, depth: int = MAX_DEPTH) -> None:
    """Refuse a value that wouldn't come back from JSON exactly as it is.

    Accepted are None, bool, int, float (with nan, the infinities and -0.0), str, and lists and
    dicts with string keys of these, exactly these types: a subclass or a NumPy scalar would come
    back as something else.

    Args:
        value: The value to look at.
        where: What to call it in an error.
        depth: How many levels of lists and dicts it may have.

    Raises:
        TypeError: Naming the place, as in ``progress["a"][2]``.

    Example:
        >>> check_jsonable({"a": [1, 2.0, (3,)]}, "progress")
        Traceback (most recent call last):
        ...
        TypeError: progress["a"][2]: expected None, bool, int, float, str, list or dict, got tuple.
    """
    _check(value, where, depth, [])


def _check(value: object, where: str, depth: int, parents: list[int]) -> None:
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return
    if kind is str:
        _check_text(value, where)
    elif kind is int:
        _check_int(value, where)
    elif kind is list or kind is dict:
        if id(value) in parents:
            raise TypeError(f"{where}: a {kind.__name__} that contains itself.")
        if len(parents) == depth:
            raise TypeError(f"{where}: nested deeper than {depth} levels.")
        parents.append(id(value))
        if kind is list:
            for index, item in enumerate(value):  # type: ignore[arg-type, var-annotated]
                _check(item, f"{where}[{index}]", depth, parents)
        else:
            for key, item in value.items():  # type: ignore[attr-defined]
                if type(key) is not str:
                    raise TypeError(f"{where}: expected str keys, got {key!r}.")
                _check_text(key, where)
                _check(item, f"{where}[{json.dumps(key)}]", depth, parents)
        parents.pop()
    else:
        raise TypeError(
            f"{where}: expected None, bool, int, float, str, list or dict, got {kind.__name__}."
        )


def _check_text(text: Any, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TypeError(f"{where}: {text!a} can't be encoded as UTF-8.") from None


def _check_int(number: Any, where: str) -> None:
    if number.bit_length() < 2048:  # Python converts these whatever its limit is set to
        return
    try:
        str(number)
    except ValueError as error:
        raise TypeError(f"{where}: {error}.") from None


def to_json(value: object) -> bytes:
    """Encode a value that `check_jsonable` accepts.

    Args:
        value: The value.

    Returns:
        UTF-8 text. nan and the infinities are written as Python's ``json`` does: NaN, Infinity.
    """
    return json.dumps(value, ensure_ascii=False, check_circular=False).encode()


def from_json(text: bytes) -> Any:
    """Decode what `to_json` wrote.

    Args:
        text: UTF-8 text, from anywhere.

    Returns:
        The value.

    Raises:
        ValueError: If it isn't JSON, repeats a key, or is nested too deeply.
    """
    try:
        value = json.loads(text.decode(), object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    level = [value]
    for _ in range(MANIFEST_DEPTH + 1):
        level = [
            child
            for node in level
            if type(node) in (dict, list)
            for child in (node.values() if type(node) is dict else node)
        ]
        if not level:
            return value
    raise ValueError("nested too deeply")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key occurs twice")
    return value
