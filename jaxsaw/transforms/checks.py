"""Checks on values that are known only when a program runs: ``jax.experimental.checkify``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from jaxsaw.state import scope as scopes
from jaxsaw.transforms.arguments import Flat
from jaxsaw.transforms.program import Recorded


def checkify(fn: Callable[..., Any], errors: Any = None) -> Callable[..., tuple[Any, Any]]:
    """Return a function that also returns the first error that a check inside of ``fn`` found.

    Write checks with ``jax.experimental.checkify.check``. An error doesn't stop the function, so
    what it writes is written: call ``error.throw()`` to find out, outside of transforms.

    Args:
        fn: The function.
        errors: What to check, as in ``checkify.checkify``; by default the checks of the user.

    Returns:
        A function with the arguments of ``fn`` that returns ``(error, result)``.

    Example:
        >>> import jaxsaw as js
        >>> from jax.experimental import checkify
        >>> def root(x):
        ...     checkify.check(x >= 0, "negative: {}", x)
        ...     return x**0.5
        >>> error, y = js.jit(js.checkify(root))(-1.0)
        >>> error.get()[:14]
        'negative: -1.0'
    """
    from jax.experimental import checkify as checks  # it takes a while to import

    @functools.wraps(fn, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        flat = Flat((args, kwargs))

        def body(arrays: list[Any]) -> Any:
            args, kwargs = flat.rebuild(arrays)
            return fn(*args, **kwargs)

        recorded = Recorded(body, flat.nodes)
        with scopes.transaction():
            checked = checks.checkify(recorded, errors or checks.user_checks)
            error, results = checked([jnp.asarray(array) for array in flat.arrays])
            return error, recorded.commit(*results)

    return wrapped
