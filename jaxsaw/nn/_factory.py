"""How layers make their parameters: dtypes, devices, and first values that nobody else holds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.nn.parameter import Parameter
from jaxsaw.rngs import Rngs


def as_dtype(dtype: Any) -> np.dtype:
    """Return a dtype from whatever names one; None is float32.

    Args:
        dtype: A NumPy or JAX dtype, its name, or PyTorch's.

    Raises:
        ValueError: If it has 64 bits and JAX's 64-bit mode is off.
    """
    if dtype is None:
        return np.dtype("float32")
    name = str(dtype)
    if name.startswith("torch."):
        dtype = name.removeprefix("torch.")
    found = jnp.dtype(dtype)
    if jax.dtypes.canonicalize_dtype(found) != found:
        raise ValueError(
            f"{found} needs JAX's 64-bit mode: jax.config.update('jax_enable_x64', True)."
        )
    return found


def as_device(device: Any) -> Any:
    """Return what ``jax.device_put`` takes.

    Args:
        device: A JAX device or sharding, a name such as ``"cpu"``, ``"gpu"`` or ``"cuda:1"``, a
            number among ``jax.devices()``, or a PyTorch device. None stays None.

    Raises:
        ValueError: If there is no such device.
    """
    if device is None or isinstance(device, jax.Device | jax.sharding.Sharding):
        return device
    platform, _, index = str(device).partition(":")
    if platform.isdigit():
        platform, index = "", platform
    try:
        return jax.devices(platform or None)[int(index or 0)]
    except (RuntimeError, IndexError, ValueError):
        raise ValueError(
            f"There is no device {str(device)!r}. JAX has: {', '.join(map(str, jax.devices()))}."
        ) from None


def place(array: Any, device: Any) -> Any:
    """Return ``array`` on a device, or as it is for None."""
    return array if device is None else jax.device_put(array, as_device(device))


def full(shape: Sequence[int], value: float, dtype: Any, device: Any) -> Parameter:
    """Return a parameter with the same number everywhere."""
    return Parameter.own(place(jnp.full(shape, value, as_dtype(dtype)), device))


def uniform(rngs: Rngs, shape: Sequence[int], bound: float, dtype: Any, device: Any) -> Parameter:
    """Return a parameter drawn uniformly from ``[-bound, bound)``, with one key of ``params``."""
    key = rngs.next("params")
    array = jax.random.uniform(key, shape, as_dtype(dtype), -bound, bound)
    return Parameter.own(place(array, device))


def normal(rngs: Rngs, shape: Sequence[int], std: float, dtype: Any, device: Any) -> Parameter:
    """Return a parameter drawn from a normal distribution, with one key of ``params``."""
    array = jax.random.normal(rngs.next("params"), shape, as_dtype(dtype))
    return Parameter.own(
        place(array if std == 1 else array * jnp.asarray(std, array.dtype), device)
    )


def as_tuple(name: str, argument: str, value: Any, n: int) -> tuple[int, ...]:
    """Return an int as a tuple of ``n`` of them, and a sequence of ``n`` ints as a tuple.

    Args:
        name: The class, for the error.
        argument: The argument, for the error.
        value: The int, or the ints.
        n: How many.

    Raises:
        ValueError: If there are more or fewer.
    """
    values = tuple(value) if isinstance(value, Sequence) else (value,) * n
    if len(values) == 1:
        values *= n
    if len(values) != n:
        raise ValueError(f"{name}: expected {argument} to be an int or {n} ints, got {value}.")
    return values


def required(rngs: Rngs | None, who: str) -> Rngs:
    """Return ``rngs``, or raise a TypeError that says what to pass.

    Args:
        rngs: What the constructor was given.
        who: The class.
    """
    if not isinstance(rngs, Rngs):
        came = "" if rngs is None else f", got {type(rngs).__name__}"
        raise TypeError(
            f"{who} draws its first values: pass rngs=js.Rngs(params=0) (or any js.Rngs){came}."
        )
    return rngs


def redraw(module: Any, bound: float, rngs: Rngs) -> None:
    """Draw a layer's ``weight`` anew as :func:`uniform` does, and set its ``bias`` to zero."""
    weight, bias = module.weight, module.bias
    key = required(rngs, f"{type(module).__name__}.reset_parameters()").next("params")
    weight.value = jax.random.uniform(key, weight.shape, weight.dtype, -bound, bound)
    if bias is not None:
        bias.value = jnp.zeros(bias.shape, bias.dtype)


def bound_of(fan_in: int) -> float:
    """Return PyTorch's usual bound of a uniform weight, ``1 / sqrt(fan_in)``."""
    return 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
