"""Less memory for more arithmetic: ``jax.checkpoint`` inside of a transaction."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxsaw.state import scope as scopes
from jaxsaw.transforms.arguments import Flat, Static
from jaxsaw.transforms.program import Recorded


def remat(
    fn: Callable[..., Any] | None = None,
    *,
    prevent_cse: bool = True,
    policy: Callable[..., bool] | None = None,
    static_argnums: int | Sequence[int] = (),
) -> Any:
    """Have what ``fn`` computes computed again in a backward pass, instead of stored.

    State is written, and random streams are drawn from, once: the second time sees the same
    values and keys.

    Args:
        fn: The function, method or module; without it, a decorator is returned.
        prevent_cse: As in ``jax.checkpoint``: False is faster inside of a loop.
        policy: Which intermediate values are stored all the same, of
            ``jax.checkpoint_policies``.
        static_argnums: Positions of arguments that are plain Python values.

    Returns:
        A function with the arguments of ``fn``.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> block = nn.Sequential(nn.Linear(2, 8, rngs=js.Rngs(0)), nn.ReLU())
        >>> js.grad(lambda m: js.remat(m)(jnp.ones((1, 2))).sum())(block)["0.weight"].shape
        (8, 2)
    """
    if fn is None:
        return functools.partial(
            remat, prevent_cse=prevent_cse, policy=policy, static_argnums=static_argnums
        )
    function = fn
    constants = Static(function, static_argnums, ())

    @functools.wraps(function, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        dynamic, named, static = constants.split(args, kwargs)
        flat = Flat((dynamic, named))

        def body(arrays: list[Any]) -> Any:
            dynamic, named = flat.rebuild(arrays)
            args, kwargs = constants.join(dynamic, named, static)
            return function(*args, **kwargs)

        recorded = Recorded(body, flat.nodes)
        with scopes.transaction():
            again = jax.checkpoint(recorded, prevent_cse=prevent_cse, policy=policy)
            return recorded.commit(*again(flat.arrays))

    return wrapped
