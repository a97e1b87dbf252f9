"""Look at checkpoints from the command line: ``python -m jaxsaw.checkpoint --help``.

Nothing of the program that wrote a file is imported or run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from jaxsaw.checkpoint.averaging import average
from jaxsaw.checkpoint.compare import compare, describe_member
from jaxsaw.checkpoint.errors import CheckpointError
from jaxsaw.checkpoint.manifest import parse_entry
from jaxsaw.checkpoint.npz import KeyData, Reader, write
from jaxsaw.checkpoint.safetensors import read_safetensors, save_safetensors
from jaxsaw.checkpoint.state import (
    check_sections,
    identical,
    inspect,
    load,
    verify,
    versions_now,
)

_GOOD, _BAD, _USAGE = 0, 1, 2
_SUFFIX = ".safetensors"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Those of the command line; None for the program's own.

    Returns:
        The exit status: 0 if all is good, 1 if files differ or one is bad.

    Raises:
        SystemExit: With status 2, if the arguments can't be understood.
    """
    parsed = _parser().parse_args(arguments)
    try:
        return parsed.command(parsed)
    except _UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return _USAGE
    except (CheckpointError, OSError, TypeError, ValueError) as error:
        print(f"error: {_printable(str(error))}", file=sys.stderr)
        return _BAD


class _UsageError(Exception):
    pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jaxsaw.checkpoint",
        description="Look at checkpoints, check, compare, convert and average them.",
        epilog="Exit status: 0 good, 1 a file is bad or files differ, 2 wrong usage.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[..., int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--json", action="store_true", help="print JSON instead of a table")
        sub.set_defaults(command=command)
        return sub

    sub = add("show", _show, "Print what a file holds.")
    sub.add_argument("path")
    sub = add("verify", _verify, "Read whole files and check every checksum.")
    sub.add_argument("paths", nargs="+", metavar="path")
    sub = add("diff", _diff, "Compare two files: names, shapes, values, progress.")
    sub.add_argument("first")
    sub.add_argument("second")
    sub = add("convert", _convert, "Convert one object to .safetensors, or such a file to .npz.")
    sub.add_argument("source")
    sub.add_argument("target")
    sub.add_argument("--object", metavar="NAME", help="the object's name (default: model)")
    sub = add("average", _average, "Write the average of files, given from oldest to newest.")
    sub.add_argument("target")
    sub.add_argument("sources", nargs="+", metavar="source")
    sub.add_argument("--last", type=int, metavar="N", help="use only the last N of the sources")
    sub.add_argument(
        "--object", action="append", metavar="NAME", help="average only this object; repeatable"
    )
    return parser


def _show(arguments: argparse.Namespace) -> int:
    manifest = inspect(arguments.path)
    if arguments.json:
        return _print_json(manifest)
    sizes = {key: _nbytes(form) for key, form in manifest["arrays"].items()}
    versions = ", ".join(f"{name} {version}" for name, version in manifest["versions"].items())
    print(f"{arguments.path}: format {manifest['format_version']}; written by {versions}")
    print(f"{len(sizes)} arrays, {_readable(sum(sizes.values()))}")
    for name, section in manifest["objects"].items():
        print()
        print(_printable(f"{name}: {section.get('class')}"))
        _print_table(
            (path, describe_member(manifest, member), _readable(sizes[member]), member)
            for path, member in section["boxes"].items()
        )
    for name in ("progress", "metadata", "manager", "average_of"):
        if manifest.get(name) is not None:
            print(f"\n{name}: {json.dumps(manifest[name])}")
    return _GOOD


def _verify(arguments: argparse.Namespace) -> int:
    results = []
    for path in arguments.paths:
        error = None
        try:
            verify(path)
        except (CheckpointError, OSError) as found:
            error = str(found)
        results.append({"path": path, "ok": error is None, "error": error})
    if arguments.json:
        _print_json(results)
    else:
        _print_table((r["path"], "good" if r["ok"] else f"bad: {r['error']}") for r in results)
    return _GOOD if all(result["ok"] for result in results) else _BAD


def _diff(arguments: argparse.Namespace) -> int:
    with Reader(arguments.first) as first, Reader(arguments.second) as second:
        a, b = first.manifest, second.manifest
        check_sections(arguments.first, a)
        check_sections(arguments.second, b)
        names = compare(a, b)
        different = {}
        for name, (here, there) in names.shared.items():
            arrays = first.array(here), second.array(there)
            if not identical(*arrays) or _impl(arrays[0]) != _impl(arrays[1]):
                different[name] = _distance(*arrays)
    found: dict[str, Any] = {
        "first_only": names.first_only,
        "second_only": names.second_only,
        "mismatched": names.mismatched,
        "different": different,
    }
    for part in ("progress", "metadata"):
        found[part] = None if _same(a[part], b[part]) else [a[part], b[part]]
    settings = [{n: s["configuration"] for n, s in m["objects"].items()} for m in (a, b)]
    found["configuration"] = None if settings[0] == settings[1] else settings
    status = _BAD if any(found.values()) else _GOOD
    if arguments.json:
        _print_json(found)
        return status
    if status == _GOOD:
        print(f"equal: {len(names.shared)} names")
    for title, values in (
        (f"only in {arguments.first}", names.first_only),
        (f"only in {arguments.second}", names.second_only),
        ("mismatched", names.mismatched),
    ):
        if values:
            print(f"{title}:")
            _print_table((value,) for value in values)
    if different:
        print(f"different values, of {len(names.shared)} names:")
        _print_table(
            (name, "" if distance is None else f"by up to {distance:.6g}")
            for name, distance in different.items()
        )
    for part in ("progress", "metadata", "configuration"):
        if found[part] is not None:
            print(f"{part}:")
            _print_table((json.dumps(value),) for value in found[part])
    return status


def _convert(arguments: argparse.Namespace) -> int:
    outwards = arguments.target.endswith(_SUFFIX)
    if outwards == arguments.source.endswith(_SUFFIX):
        raise _UsageError(f"exactly one of the two files has to be a {_SUFFIX} file.")
    if outwards:
        count = _to_safetensors(arguments.source, arguments.target, arguments.object)
    else:
        count = _from_safetensors(arguments.source, arguments.target, arguments.object or "model")
    return _report(arguments, count)


def _to_safetensors(source: str, target: str, name: str | None) -> int:
    loaded = load(source)
    if name is None:
        name = "model" if "model" in loaded or len(loaded) != 1 else next(iter(loaded))
    if name not in loaded:
        held = ", ".join(loaded) or "no objects"
        raise _UsageError(f"{source} holds no {name!r} (it holds: {held}); pass --object.")
    arrays = dict(loaded[name])
    save_safetensors(target, arrays)
    return len(arrays)


def _from_safetensors(source: str, target: str, name: str) -> int:
    arrays, metadata = read_safetensors(source)
    boxes = {path: f"a{index}" for index, path in enumerate(arrays)}
    section = {"class": "safetensors", "boxes": boxes, "configuration": {}}
    content = {
        "objects": {name: section},
        "progress": None,
        "metadata": metadata or None,
        "versions": versions_now(),
    }
    write(target, list(arrays.values()), content)
    return len(arrays)


def _average(arguments: argparse.Namespace) -> int:
    if arguments.last is not None and arguments.last < 1:
        raise _UsageError("--last must be positive.")
    sources = arguments.sources[-arguments.last :] if arguments.last else arguments.sources
    average(arguments.target, sources, objects=arguments.object)
    return _report(arguments, len(inspect(arguments.target)["arrays"]))


def _report(arguments: argparse.Namespace, count: int) -> int:
    if arguments.json:
        return _print_json({"path": arguments.target, "arrays": count})
    print(f"{arguments.target}: {count} arrays")
    return _GOOD


def _distance(a: Any, b: Any) -> float | None:
    # The largest difference, of numbers; nan where one is nan.
    if isinstance(a, KeyData) or a.dtype == bool:
        return None
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(a.astype(wide) - b.astype(wide)), initial=0.0))


def _impl(array: Any) -> str | None:
    return array.impl if isinstance(array, KeyData) else None


def _same(a: Any, b: Any) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def _nbytes(form: dict[str, Any]) -> int:
    return parse_entry(form).nbytes


def _readable(count: float) -> str:
    if count < 1024:
        return f"{count} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        count /= 1024
        if count < 1024 or unit == "TiB":
            break
    return f"{count:.1f} {unit}"


def _print_json(value: Any) -> int:
    print(json.dumps(value, indent=2))
    return _GOOD


def _print_table(rows: Iterable[tuple[str, ...]]) -> None:
    lines = [[_printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        print(("  " + "  ".join(cells)).rstrip())


def _printable(text: str) -> str:
    # A file may hold any names, also such as would steer a terminal, or feign a line of ours.
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


if __name__ == "__main__":
    sys.exit(main())
