"""Arithmetic that is in double on the host, and in float32 inside a trace."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.optim.group import HyperParameter
from jaxsaw.state.variable import Variable


def numbers_of(value: Any) -> Any:
    """Return the module to compute with: in double on the host, or in float32 in a trace."""
    return jnp if isinstance(value, jax.core.Tracer) else np


def number(value: Any) -> Any:
    """Return a rate in double or, inside a trace, as the traced array."""
    if isinstance(value, HyperParameter):
        return value.number()
    return value.value if isinstance(value, Variable) else value


def as_float(value: Any) -> Any:
    """Return an integer as a float: in double on the host, in float32 in a trace."""
    return value.astype(jnp.float32 if isinstance(value, jax.core.Tracer) else np.float64)


def power(base: float, exponent: Any) -> Any:
    """Return ``base ** exponent`` for integers, in a trace without the error of float32(base)."""
    if not isinstance(exponent, jax.core.Tracer):
        return np.float64(base) ** exponent
    exponent = as_float(exponent)
    if base <= 0:
        return jnp.power(jnp.float32(base), exponent)
    return jnp.exp(exponent * np.float32(np.log(base)))


def times(rate: Any, factor: Any) -> Any:
    """Multiply, where a function of the user's may have given an array of any kind."""
    if isinstance(factor, Variable):
        factor = factor.value
    if isinstance(rate, jax.core.Tracer) or isinstance(factor, jax.Array):
        return jnp.asarray(rate, jnp.float32) * jnp.asarray(factor, jnp.float32)
    return rate * factor


def as_argument(epoch: Any) -> Any:
    """Return the epoch as the function of a user wants it."""
    return int(epoch) if isinstance(epoch, np.integer) else epoch
