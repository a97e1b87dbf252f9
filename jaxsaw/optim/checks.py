"""What constructors of optimizers refuse."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


def check_not_negative(who: str, **numbers: Any) -> None:
    """Refuse negative numbers.

    Args:
        who: The class, for the error.
        **numbers: The arguments by name; what is traced isn't looked at.

    Raises:
        TypeError: If one isn't a number.
        ValueError: If one is negative, or not a single number.

    Example:
        >>> check_not_negative("SGD", lr=0.1)
    """
    for name, number in numbers.items():
        if (value := _value(who, name, number)) is not None and not value >= 0:
            raise ValueError(f"{who}: {name} must be at least 0, got {number}.")


def check_betas(who: str, betas: Any) -> None:
    """Refuse anything but two numbers in [0, 1).

    Args:
        who: The class, for the error.
        betas: The argument.

    Raises:
        TypeError: If they aren't two numbers.
        ValueError: If one is out of range.

    Example:
        >>> check_betas("Adam", (0.9, 0.999))
    """
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise TypeError(f"{who}: betas must be two numbers, got {betas!r}.")
    for i, beta in enumerate(betas):
        if (value := _value(who, f"betas[{i}]", beta)) is not None and not 0 <= value < 1:
            raise ValueError(f"{who}: betas[{i}] must be at least 0 and below 1, got {beta}.")


def check_engine(who: str, fused: Any, foreach: Any, differentiable: Any) -> None:
    """Refuse the combinations of implementations that PyTorch refuses.

    Args:
        who: The class, for the error.
        fused: PyTorch's argument, as are the others; none of them changes anything here.
        foreach: See there.
        differentiable: See there.

    Raises:
        RuntimeError: If ``fused`` is combined with another.

    Example:
        >>> check_engine("SGD", fused=True, foreach=None, differentiable=False)
    """
    if fused and (foreach or differentiable):
        other = "foreach" if foreach else "differentiable"
        raise RuntimeError(f"{who}: fused and {other} can't both be True. Leave both out.")


def _value(who: str, name: str, number: Any) -> float | None:
    """Return a concrete number, or None for a traced one."""
    if isinstance(getattr(number, "value", number), jax.core.Tracer):
        return None
    if isinstance(number, bool | str) or number is None:
        raise TypeError(f"{who}: {name} must be a number, got {number!r}.")
    array = np.asarray(number)
    if array.size != 1 or array.dtype.kind not in "fiuV":
        raise ValueError(f"{who}: {name} must be a single number, got {number!r}.")
    return float(array.astype(np.float64).reshape(()))
