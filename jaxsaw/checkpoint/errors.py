"""The error that every bad checkpoint and every mismatch raises."""

from __future__ import annotations

from collections.abc import Iterable


class CheckpointError(Exception):
    """A checkpoint is damaged, or doesn't fit what it is restored into.

    Args:
        message: What is wrong; it names the file and the member or variable.
        missing: Names that are asked for and not in the file.
        unexpected: Names that are in the file and not asked for.
        mismatched: Names whose shape, dtype or configuration differ.

    Example:
        >>> CheckpointError("a.npz: layer.bias is missing", missing=["layer.bias"]).missing
        ['layer.bias']
    """

    def __init__(
        self,
        message: str,
        *,
        missing: Iterable[str] = (),
        unexpected: Iterable[str] = (),
        mismatched: Iterable[str] = (),
    ) -> None:
        super().__init__(message)
        self.missing = list(missing)
        self.unexpected = list(unexpected)
        self.mismatched = list(mismatched)
