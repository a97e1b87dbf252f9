"""Where two checkpoints agree, by what their manifests say."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxsaw.checkpoint.state import describe, full_name


class Comparison(NamedTuple):
    """The names of two files, without their values.

    Args:
        first_only: Names that only the first file has.
        second_only: Names that only the second has.
        mismatched: Names whose dtype or shape differ, with both.
        shared: All others, and the member that holds each in the first and in the second file.
    """

    first_only: list[str]
    second_only: list[str]
    mismatched: list[str]
    shared: dict[str, tuple[str, str]]


def compare(first: dict[str, Any], second: dict[str, Any]) -> Comparison:
    """Compare two manifests.

    Args:
        first: A manifest.
        second: Another.

    Returns:
        Which names they share, and how the others differ.
    """
    a, b = _members(first), _members(second)
    result = Comparison(
        [full_name(*key) for key in a if key not in b],
        [full_name(*key) for key in b if key not in a],
        [],
        {},
    )
    for key in a.keys() & b.keys():
        forms = describe_member(first, a[key]), describe_member(second, b[key])
        if forms[0] == forms[1]:
            result.shared[full_name(*key)] = (a[key], b[key])
        else:
            result.mismatched.append(f"{full_name(*key)}: {forms[0]} against {forms[1]}")
    result.mismatched.sort()
    return result._replace(shared=dict(sorted(result.shared.items())))


def describe_member(manifest: dict[str, Any], member: str) -> str:
    """Return the dtype and shape of one array of a file.

    Args:
        manifest: The file's manifest.
        member: The array's key in it.
    """
    entry = manifest["arrays"][member]
    return describe(entry["dtype"], entry["shape"], entry.get("key_impl"))


def _members(manifest: dict[str, Any]) -> dict[tuple[str, str], str]:
    return {
        (name, path): member
        for name, section in manifest["objects"].items()
        for path, member in section["boxes"].items()
    }
