"""Gradients of functions of objects: ``jax.value_and_grad`` inside of a transaction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw import _jax
from jaxsaw.state import scope as scopes
from jaxsaw.transforms.arguments import name_of
from jaxsaw.transforms.pure import Pure, Targets, Wrt, listed_once


def value_and_grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    wrt: Wrt = None,
) -> Callable[..., Any]:
    """Return a function that computes the value of ``fn`` and its gradient.

    For an argument that is a module (or any Stateful) the gradient is taken with respect to its
    trainable Parameters and comes as a :class:`Grads`; for arrays it is as in JAX. State that
    ``fn`` changes, such as batch statistics and random streams, stays changed.

    Args:
        fn: Returns a scalar, or with ``has_aux`` a pair of a scalar and anything.
        argnums: Which positional arguments to differentiate; a sequence gives a tuple.
        has_aux: Whether ``fn`` returns a pair.
        wrt: Narrows the Parameters: a predicate of name and Parameter, or Parameters. These
            may also be ones that ``fn`` reaches without being passed them.

    Returns:
        A function with the arguments of ``fn`` that returns ``(value, gradient)``, or
        ``((value, aux), gradient)``.

    Raises:
        TypeError: (When called) if the value isn't a real scalar, or an argument can't be
            differentiated.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> model = nn.Linear(2, 1, rngs=js.Rngs(0))
        >>> loss, grads = js.value_and_grad(lambda m: m(jnp.ones((1, 2))).sum())(model)
        >>> list(grads)
        ['weight', 'bias']
    """
    wrt = listed_once(wrt)

    @functools.wraps(fn, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        targets = Targets(fn, args, argnums, wrt)
        pure = Pure(targets, kwargs, has_aux)

        def scalar(boxed: list[Any], arrays: list[Any]) -> tuple[Any, Any]:
            leaves, rest = pure(boxed, arrays)
            return _scalar(fn, leaves), rest

        differentiate = jax.value_and_grad(scalar, argnums=(0, 1), has_aux=True)
        with scopes.transaction():
            (value, rest), gradients = differentiate(targets.values(), targets.arrays)
            aux = pure.commit(rest)
        return ((value, aux) if has_aux else value), targets.gradient(*gradients)

    return wrapped


def grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    wrt: Wrt = None,
) -> Callable[..., Any]:
    """Return a function that computes the gradient of ``fn``.

    Args:
        fn: As for :func:`value_and_grad`.
        argnums: As for :func:`value_and_grad`.
        has_aux: As for :func:`value_and_grad`.
        wrt: As for :func:`value_and_grad`.

    Returns:
        A function with the arguments of ``fn`` that returns the gradient, or ``(gradient, aux)``.

    Example:
        >>> import jaxsaw as js
        >>> float(js.grad(lambda x: x**2)(3.0))
        6.0
    """
    compute = value_and_grad(fn, argnums, has_aux, wrt)

    @functools.wraps(fn, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradient = compute(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return wrapped


def _scalar(fn: Any, leaves: list[Any]) -> Any:
    """Return the value of a function if it is one scalar."""
    value = leaves[0] if len(leaves) == 1 else leaves
    shape = getattr(value, "shape", ())
    if shape != () or not isinstance(value, jax.Array | _jax.Tracer | float | int):
        got = f"shape {shape}" if shape else f"{len(leaves)} values"
        if len(leaves) == 1 and not shape:
            got = type(value).__name__
        raise TypeError(
            f"{name_of(fn)} must return a scalar to be differentiated, got {got}. Reduce it, "
            "for example with .mean(), or return (value, aux) with has_aux=True."
        )
    return jnp.asarray(value)
