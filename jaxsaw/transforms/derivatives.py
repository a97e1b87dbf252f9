"""The other derivatives of JAX, of functions of objects.

As in :mod:`jaxsaw.transforms.grad`, a Stateful stands for its trainable Parameters: its tangents,
cotangents and columns of a Jacobian come as a :class:`~jaxsaw.Grads`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxsaw.state import scope as scopes
from jaxsaw.transforms.arguments import name_of
from jaxsaw.transforms.pure import Pure, Targets, Wrt, listed_once


def jvp(
    fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    """Return the value of ``fn`` and its derivative in one direction, by forward mode.

    Args:
        fn: The function.
        primals: Its arguments: Statefuls, arrays, and containers of these.
        tangents: The direction: for each Stateful a Grads (or a dict by name), in which what is
            left out counts as zero.
        has_aux: Whether ``fn`` returns a pair of a value and anything.

    Returns:
        ``(value, derivative)``, and with ``has_aux`` the auxiliary part as third.

    Raises:
        TypeError: If the tangents don't have the structure of the primals.

    Example:
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> model = nn.Linear(2, 1, rngs=js.Rngs(0))
        >>> loss = lambda m: (m.weight**2).sum()
        >>> gradient, product = js.jvp(js.grad(loss), (model,), (js.grad(loss)(model),))
        >>> bool((product["weight"] == 2 * gradient["weight"]).all())  # H g, and H is 2 I
        True
    """
    pure = _pure_of_all(fn, primals, has_aux)
    targets = pure.targets
    inputs = (targets.values(), targets.arrays)
    with scopes.transaction():
        leaves, derivative, rest = jax.jvp(pure, inputs, targets.tangents(tangents), has_aux=True)
        aux = pure.commit(rest)
    results = pure.value(leaves), pure.value(derivative)
    return (*results, aux) if has_aux else results


def vjp(fn: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return the value of ``fn``, and a function that pulls cotangents back through it.

    Args:
        fn: The function. What it writes is written once, now.
        *primals: Its arguments: Statefuls, arrays, and containers of these.
        has_aux: Whether ``fn`` returns a pair of a value and anything.

    Returns:
        ``(value, pull)``, and with ``has_aux`` the auxiliary part as third. ``pull(cotangent)``
        takes the structure of the value and returns a tuple with a Grads for each Stateful.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> y, pull = js.vjp(nn.Linear(2, 1, rngs=js.Rngs(0)), jnp.ones((3, 2)))
        >>> pull(jnp.ones_like(y))[0].shape
        (3, 2)
    """
    pure = _pure_of_all(fn, primals, has_aux)
    targets = pure.targets
    with scopes.transaction():
        leaves, backward, rest = jax.vjp(pure, targets.values(), targets.arrays, has_aux=True)
        aux = pure.commit(rest)

    def pull(cotangent: Any) -> tuple[Any, ...]:
        return targets.gradient(*backward(pure.leaves(cotangent)))

    return (pure.value(leaves), pull, aux) if has_aux else (pure.value(leaves), pull)


def linearize(fn: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return the value of ``fn``, and its derivative as a linear function of directions.

    Args:
        fn: The function. What it writes is written once, now.
        *primals: Its arguments: Statefuls, arrays, and containers of these.
        has_aux: Whether ``fn`` returns a pair of a value and anything.

    Returns:
        ``(value, push)``, and with ``has_aux`` the auxiliary part as third. ``push`` takes one
        tangent for each primal, as :func:`jvp` does, and computes nothing of ``fn`` again.

    Example:
        >>> import jaxsaw as js
        >>> value, push = js.linearize(lambda x: x**2, 3.0)
        >>> float(value), float(push(1.0))
        (9.0, 6.0)
    """
    pure = _pure_of_all(fn, primals, has_aux)
    targets = pure.targets
    with scopes.transaction():
        # Auxiliary outputs of jax.linearize don't work in its oldest release: all are outputs.
        (leaves, rest), forward = jax.linearize(pure, targets.values(), targets.arrays)
        aux = pure.commit(rest)

    def push(*tangents: Any) -> Any:
        return pure.value(forward(*targets.tangents(tangents))[0])

    return (pure.value(leaves), push, aux) if has_aux else (pure.value(leaves), push)


def jacfwd(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    wrt: Wrt = None,
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of ``fn``, by forward mode.

    Args:
        fn: The function; it may return any pytree of arrays.
        argnums: Which positional arguments to differentiate; a sequence gives a tuple.
        has_aux: Whether ``fn`` returns a pair of a value and anything.
        wrt: Narrows the Parameters, as in :func:`jaxsaw.grad`.

    Returns:
        A function with the arguments of ``fn`` that returns the structure of its value, with the
        structure of the arguments (a Grads for each Stateful) in the place of each array. Shapes
        are those of the value, followed by those of the arguments.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> model = nn.Linear(2, 3, rngs=js.Rngs(0))
        >>> js.jacfwd(lambda m: m(jnp.ones(2)))(model)["weight"].shape
        (3, 3, 2)
    """
    return _jacobian(jax.jacfwd, fn, argnums, has_aux, wrt)


def jacrev(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    wrt: Wrt = None,
) -> Callable[..., Any]:
    """Return a function that computes the Jacobian of ``fn``, by reverse mode.

    Args:
        fn: As for :func:`jacfwd`.
        argnums: As for :func:`jacfwd`.
        has_aux: As for :func:`jacfwd`.
        wrt: As for :func:`jacfwd`.

    Returns:
        As :func:`jacfwd`.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> js.jacrev(lambda x: x**2)(jnp.arange(2.0)).tolist()
        [[0.0, 0.0], [0.0, 2.0]]
    """
    return _jacobian(jax.jacrev, fn, argnums, has_aux, wrt)


def hessian(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    wrt: Wrt = None,
) -> Callable[..., Any]:
    """Return a function that computes the second derivatives of ``fn``.

    Args:
        fn: The function.
        argnums: As for :func:`jacfwd`.
        has_aux: As for :func:`jacfwd`.
        wrt: As for :func:`jacfwd`.

    Returns:
        As :func:`jacfwd` of :func:`jacrev`: for a Stateful, a Grads of Grads.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> js.hessian(lambda x: (x**3).sum())(jnp.arange(2.0)).tolist()
        [[0.0, 0.0], [0.0, 6.0]]
    """
    return jacfwd(jacrev(fn, argnums, has_aux, wrt), argnums, has_aux, wrt)


def _jacobian(
    transform: Callable[..., Any], fn: Callable[..., Any], argnums: Any, has_aux: bool, wrt: Wrt
) -> Callable[..., Any]:
    wrt = listed_once(wrt)

    @functools.wraps(fn, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        targets = Targets(fn, args, argnums, wrt)
        pure = Pure(targets, kwargs, has_aux)
        if not targets.boxes and not targets.arrays:
            raise ValueError(
                f"{name_of(fn)}: there is nothing to differentiate: its arguments hold neither "
                "trainable Parameters nor arrays."
            )
        with scopes.transaction():
            differentiate = transform(pure, argnums=(0, 1), has_aux=True)
            blocks, rest = differentiate(targets.values(), targets.arrays)
            aux = pure.commit(rest)
        jacobian = pure.value([targets.gradient(*block) for block in blocks])
        return (jacobian, aux) if has_aux else jacobian

    return wrapped


def _pure_of_all(fn: Any, primals: Sequence[Any], has_aux: bool) -> Pure:
    """Return ``fn`` as a function of everything that all its arguments hold."""
    if not isinstance(primals, tuple | list):
        raise TypeError(f"{name_of(fn)}: primals must be a tuple, got {type(primals).__name__}.")
    targets = Targets(fn, tuple(primals), tuple(range(len(primals))), None, any_dtype=True)
    return Pure(targets, {}, has_aux)
