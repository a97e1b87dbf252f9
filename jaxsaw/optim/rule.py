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
        *static: Which keywords are flags. One that is called ``dtype`` is given the parameter's.

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
            if "dtype" in static:
                settings["dtype"] = p.dtype
            dtypes = [None if x is None else x.dtype for x in (p, *state)]
            flags = [x is not None and jnp.iscomplexobj(x) for x in (p, *state)]
            arrays = [_as_real(x) for x in (p, jnp.conj(g) if flags[0] else g, *state)]
            dtype = working_dtype([arrays[0], *arrays[2:]])
            arrays = [x if x is None else x.astype(dtype) for x in arrays]
            for name, value in settings.items():
                if name not in static:
                    settings[name] = value.astype(dtype)
            new = formula(*arrays, **settings)
            if not isinstance(new, tuple):
                new = (new,)
            new = tuple(jax.lax.complex(x[0], x[1]) if z else x for x, z in zip(new, flags))
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


def _as_real(x: Any) -> Any:
    """Return a complex array with the real and the imaginary part along a new first axis."""
    if x is None or not jnp.iscomplexobj(x):
        return x
    return jnp.stack([jnp.real(x), jnp.imag(x)])
