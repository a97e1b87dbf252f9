"""From a formula on real arrays to a rule for arrays of any dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp


def rule(*static: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a compiled rule of the formula of an optimizer.

    The formula takes a parameter, its gradient and its state (arrays, or None), then keywords,
    and returns the new parameter and state. The rule calls it with arrays in float32 (or wider,
    if one of them is) and rounds each result to the dtype of what it replaces. Complex arrays
    are seen as pairs of real ones; as JAX's gradient of those is the conjugate of the direction
    of ascent, it is conjugated.

    As a function of its own it is traced once for all parameters of a shape.

    Args:
        *static: Which keywords are flags.

    Example:
        >>> @rule()
        ... def descend(p, g, *, lr):
        ...     return p - lr * g
        >>> descend(jnp.ones(2, jnp.bfloat16), jnp.ones(2, jnp.bfloat16), lr=jnp.float32(0.5))
        Array([0.5, 0.5], dtype=bfloat16)
    """

    def decorate(formula: Callable[..., Any]) -> Callable[..., Any]:
        @functools.partial(jax.jit, static_argnames=static)
        @functools.wraps(formula)
        def compiled(p: Any, g: Any, *state: Any, **settings: Any) -> Any:
            dtypes = [None if x is None else x.dtype for x in (p, *state)]
            is_complex = jnp.issubdtype(p.dtype, jnp.complexfloating)
            arrays = [_as_real(x) if is_complex else x for x in (p, _conjugate(g), *state)]
            dtype = working_dtype([arrays[0], *arrays[2:]])
            arrays = [x if x is None else x.astype(dtype) for x in arrays]
            for name, value in settings.items():
                if name not in static:
                    settings[name] = value.astype(dtype)
            new = formula(*arrays, **settings)
            if not isinstance(new, tuple):
                new = (new,)
            if is_complex:
                new = tuple(x if x is None else jax.lax.complex(x[0], x[1]) for x in new)
            new = tuple(x if x is None else x.astype(dtypes[i]) for i, x in enumerate(new))
            return new if len(new) > 1 else new[0]

        return compiled

    return decorate


def working_dtype(arrays: Iterable[Any]) -> Any:
    """Return the dtype to compute in: float32, or float64 where an array (or None) has that.

    Args:
        arrays: Arrays of floats or complex numbers.

    Example:
        >>> working_dtype([jnp.ones(2, jnp.bfloat16), None])
        dtype('float32')
    """
    wide = (jnp.float64, jnp.complex128)
    is_wide = any(x is not None and x.dtype in wide for x in arrays)
    return jnp.dtype(jnp.float64 if is_wide else jnp.float32)


def _conjugate(x: Any) -> Any:
    return jnp.conj(x) if jnp.issubdtype(x.dtype, jnp.complexfloating) else x


def _as_real(x: Any) -> Any:
    """Return an array with the real and the imaginary part along a new first axis."""
    return None if x is None else jnp.stack([jnp.real(x), jnp.imag(x)])
