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


def check_positive(who: str, **numbers: Any) -> None:
    """Refuse numbers that aren't above zero.

    Args:
        who: The class, for the error.
        **numbers: The arguments by name; what is traced isn't looked at.

    Raises:
        TypeError: If one isn't a number.
        ValueError: If one isn't positive, or not a single number.

    Example:
        >>> check_positive("SparseAdam", lr=0.1)
    """
    for name, number in numbers.items():
        if (value := _value(who, name, number)) is not None and not value > 0:
            raise ValueError(f"{who}: {name} must be above 0, got {number}.")


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
    for i, value in enumerate(check_pair(who, "betas", betas)):
        if value is not None and not 0 <= value < 1:
            raise ValueError(f"{who}: betas[{i}] must be at least 0 and below 1, got {betas[i]}.")


def check_pair(who: str, name: str, pair: Any) -> tuple[float | None, float | None]:
    """Return two numbers, None for one that is traced; refuse anything else.

    Args:
        who: The class, for the error.
        name: The name of the argument.
        pair: The argument.

    Raises:
        TypeError: If they aren't two numbers.

    Example:
        >>> check_pair("Rprop", "etas", (0.5, 1.2))
        (0.5, 1.2)
    """
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"{who}: {name} must be two numbers, got {pair!r}.")
    low, high = (_value(who, f"{name}[{i}]", number) for i, number in enumerate(pair))
    return low, high


def check_between(who: str, low: float, high: float, **numbers: Any) -> None:
    """Refuse numbers out of a range.

    Args:
        who: The class, for the error.
        low: The least that is allowed.
        high: The most that is allowed.
        **numbers: The arguments by name; what is traced isn't looked at.

    Raises:
        TypeError: If one isn't a number.
        ValueError: If one is out of range, or not a single number.

    Example:
        >>> check_between("Adadelta", 0, 1, rho=0.9)
    """
    for name, number in numbers.items():
        if (value := _value(who, name, number)) is not None and not low <= value <= high:
            raise ValueError(f"{who}: {name} must be between {low} and {high}, got {number}.")


def check_real(who: str, name: str, p: Any) -> None:
    """Refuse a complex Parameter.

    Args:
        who: The class, for the error.
        name: The Parameter's name.
        p: An array like it.

    Raises:
        ValueError: If it is complex.

    Example:
        >>> check_real("Adafactor", "weight", np.ones(2))
    """
    if np.issubdtype(p.dtype, np.complexfloating):
        raise ValueError(f"{who}: {name} is complex. Train its real and imaginary part apart.")


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
