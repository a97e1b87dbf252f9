"""Norms of gradients, and what says how to clip them: nothing is clipped in place."""

from __future__ import annotations

from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax import Array

from jaxsaw.nn.parameter import NoTapeError

_CLIP = "grads, norm = optim.clip_grad_norm(grads, max_norm); optimizer.step(grads)"
_VALUE = "grads = optim.clip_grad_value(grads, clip_value); optimizer.step(grads)"


def clip_grad_norm_(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise an error that shows what to write: no gradient is stored, to be clipped in place.

    Source: ``torch.nn.utils.clip_grad_norm_``.

    Example:
        >>> grads, norm = optim.clip_grad_norm([jnp.array([3.0, 4.0])], max_norm=1.0)
        >>> norm.item()
        5.0
    """
    raise NoTapeError("clip_grad_norm_()", _CLIP)


def clip_grads_with_norm_(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise an error that shows what to write: no gradient is stored, to be clipped in place.

    Source: ``torch.nn.utils.clip_grads_with_norm_``.

    Example:
        >>> grads, norm = optim.clip_grad_norm([jnp.array([3.0, 4.0])], max_norm=1.0)
        >>> norm.item()
        5.0
    """
    raise NoTapeError("clip_grads_with_norm_()", _CLIP)


def clip_grad_value_(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise an error that shows what to write: no gradient is stored, to be clipped in place.

    Source: ``torch.nn.utils.clip_grad_value_``.

    Example:
        >>> optim.clip_grad_value([jnp.array([3.0, 4.0])], 3.5)[0].tolist()
        [3.0, 3.5]
    """
    raise NoTapeError("clip_grad_value_()", _VALUE)


def get_total_norm(
    tensors: Any,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Array:
    """Return the norm of all arrays together, as if they were one vector.

    Args:
        tensors: Arrays in any container, such as ``Grads``.
        norm_type: Which norm, ``inf`` too.
        error_if_nonfinite: Refuse a norm that isn't finite (where it can be looked at).
        foreach: Accepted and ignored.

    Returns:
        ``()``, computed in float32 at least.

    Raises:
        RuntimeError: With ``error_if_nonfinite``, if the norm isn't finite.

    Source: ``torch.nn.utils.get_total_norm``.

    Example:
        >>> get_total_norm([jnp.array([3.0]), jnp.array([[4.0]])]).item()
        5.0
    """
    arrays = [jnp.asarray(x) for x in jax.tree.leaves(tensors)]
    arrays = [jnp.abs(x).ravel().astype(jnp.promote_types(x.dtype, jnp.float32)) for x in arrays]
    p = float(norm_type)
    if not arrays:
        return jnp.zeros(())
    if p == float("inf"):
        total = jnp.stack([x.max(initial=0) for x in arrays]).max()
    else:
        powers = [jnp.linalg.norm(x, p) for x in arrays]
        total = jnp.linalg.norm(jnp.stack(powers), p)
    if error_if_nonfinite and not isinstance(total, jax.core.Tracer) and not jnp.isfinite(total):
        raise RuntimeError(f"get_total_norm: the norm of order {p} isn't finite: {total}.")
    return total
