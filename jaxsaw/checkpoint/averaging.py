"""The average of several checkpoints of one run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np

from jaxsaw.checkpoint.compare import compare
from jaxsaw.checkpoint.errors import CheckpointError
from jaxsaw.checkpoint.npz import Reader, write
from jaxsaw.checkpoint.state import Path, check_sections, versions_now


def average(path: Path, sources: Iterable[Path], *, objects: Iterable[str] | None = None) -> None:
    """Write the average of several checkpoints, such as the last ones of a run.

    Arrays of floats (and of complex numbers) are averaged in double precision and cast back. All
    else, such as counts, random keys and ``progress``, comes from the last of ``sources``, the
    newest. (Batch norm's statistics are averaged too; see
    :func:`jaxsaw.optim.swa_utils.update_bn` to compute them afresh.)

    Args:
        path: The file to write, atomically; it may be one of ``sources``.
        sources: The files, of the same objects, in the order of their age.
        objects: The names of the objects to average, such as ``["model"]``; None for all.

    Raises:
        CheckpointError: If a file is damaged, or differs from the newest in names, shapes or
            dtypes.
        FileNotFoundError: If there is no such file.
        ValueError: If there are no sources, or no object of a name in ``objects``.
        OSError: If the file can't be written; an older one at this path is left as it was.

    Example:
        >>> weight = js.Variable(jnp.float32([1, 2]))
        >>> checkpoint.save("a.npz", weight=weight)
        >>> weight += 2
        >>> checkpoint.save("b.npz", weight=weight)
        >>> checkpoint.average("mean.npz", ["a.npz", "b.npz"])
        >>> checkpoint.load("mean.npz")["weight"][""]
        array([2., 3.], dtype=float32)
    """
    paths = [os.fspath(source) for source in sources]
    if not paths:
        raise ValueError("checkpoint.average: expected at least one file in sources.")
    with ExitStack() as stack:
        readers = [stack.enter_context(Reader(source)) for source in paths]
        for reader in readers:
            check_sections(reader.path, reader.manifest)
        newest = readers[-1]
        chosen = _chosen(newest, None if objects is None else [*objects])
        members = [_counterparts(newest, reader) for reader in readers]
        write(
            path,
            [_mean(key, chosen, readers, members) for key in newest.keys()],  # noqa: SIM118
            {
                "objects": _renumbered(newest),
                "progress": newest.manifest["progress"],
                "metadata": newest.manifest["metadata"],
                "versions": versions_now(),
                "average_of": [os.path.basename(source) for source in paths],
            },
        )


def _chosen(newest: Reader, objects: list[str] | None) -> set[str]:
    sections = newest.manifest["objects"]
    names = list(sections) if objects is None else objects
    unknown = [name for name in names if name not in sections]
    if unknown:
        raise ValueError(
            f"checkpoint.average: {newest.path} holds no {', '.join(map(repr, unknown))} (it "
            f"holds: {', '.join(map(repr, sections)) or 'no objects'})."
        )
    return {member for name in names for member in sections[name]["boxes"].values()}


def _counterparts(newest: Reader, other: Reader) -> dict[str, str]:
    # From the newest file's members to those of another, whose numbers may differ.
    found = compare(newest.manifest, other.manifest)
    mismatched = list(found.mismatched)
    members: dict[str, str] = {}
    for name, (here, there) in found.shared.items():
        if members.setdefault(here, there) != there:
            mismatched.append(f"{name}: tied in one of them only")
    if found.first_only or found.second_only or mismatched:
        raise CheckpointError(
            f"{other.path} can't be averaged with {newest.path}: "
            f"missing: {', '.join(found.first_only) or 'nothing'}; unexpected: "
            f"{', '.join(found.second_only) or 'nothing'}; mismatched: "
            f"{'; '.join(mismatched) or 'nothing'}.",
            missing=found.first_only,
            unexpected=found.second_only,
            mismatched=mismatched,
        )
    return members


def _mean(key: str, chosen: set[str], readers: list[Reader], members: list[dict[str, str]]) -> Any:
    newest = readers[-1].array(key)
    if key not in chosen or not _is_inexact(newest):
        return newest
    wide = np.complex128 if newest.dtype.kind == "c" else np.float64
    total = np.zeros(newest.shape, wide)
    for reader, names in zip(readers[:-1], members, strict=False):
        total += reader.array(names[key]).astype(wide)
    total += newest.astype(wide)
    return (total / len(readers)).astype(newest.dtype)


def _is_inexact(array: Any) -> bool:
    return not isinstance(array, tuple) and bool(jax.dtypes.issubdtype(array.dtype, np.inexact))


def _renumbered(reader: Reader) -> dict[str, Any]:
    # The members are written in the order of their keys here.
    numbers = {key: f"a{index}" for index, key in enumerate(reader.keys())}
    return {
        name: {
            **section,
            "boxes": {path: numbers[member] for path, member in section["boxes"].items()},
        }
        for name, section in reader.manifest["objects"].items()
    }
