"""Dropout: of elements, of whole channels, and for self-normalising networks."""

import math

import jax
import jax.numpy as jnp
from jax import Array

from jaxsaw.nn.functional._common import ArrayLike, Streams, draw_key, floating

# The value that SELU approaches on the left: -scale * alpha (Klambauer et al., 2017).
_SELU_FLOOR = -1.0507009873554804934193349852946 * 1.6732632423543772848170429916717


def dropout(
    input: ArrayLike,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    rngs: Streams | None = None,
) -> Array:
    """Set elements to zero with probability ``p``, and divide the others by ``1 - p``.

    Args:
        input: Any shape.
        p: Probability of a zero.
        training: False returns the input.
        inplace: Accepted and ignored.
        rngs: Where the stream ``dropout`` comes from; the ambient one if None. Nothing is drawn
            where nothing is left to chance: in evaluation, for ``p=0`` and for ``p=1``.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: If ``p`` is outside of [0, 1].
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.dropout``; Srivastava et al., 2014.

    Example:
        >>> dropout(jnp.ones(3), p=1.0).tolist()
        [0.0, 0.0, 0.0]
    """
    x = floating("dropout", input)
    return _dropout("dropout", x, p, training, x.shape, rngs)


def dropout1d(
    input: ArrayLike,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    rngs: Streams | None = None,
) -> Array:
    """Set whole channels to zero with probability ``p``, and divide the others by ``1 - p``.

    Args:
        input: ``(N, C, L)`` or ``(C, L)``.
        p: Probability of a zero.
        training: False returns the input.
        inplace: Accepted and ignored.
        rngs: Where the stream ``dropout`` comes from; the ambient one if None.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: If ``p`` is outside of [0, 1] or the shape doesn't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.dropout1d``; Tompson et al., 2015.

    Example:
        >>> dropout1d(jnp.ones((2, 3, 4)), training=False).shape
        (2, 3, 4)
    """
    x = floating("dropout1d", input)
    if x.ndim not in (2, 3):
        raise ValueError(f"dropout1d: expected input (N, C, L) or (C, L), got {x.shape}.")
    return _dropout("dropout1d", x, p, training, (*x.shape[:-1], 1), rngs)


def dropout2d(
    input: ArrayLike,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    rngs: Streams | None = None,
) -> Array:
    """Set whole channels to zero with probability ``p``, and divide the others by ``1 - p``.

    Args:
        input: ``(N, C, H, W)``, or ``(N, C, L)`` (as in PyTorch, 3-D input has a batch axis).
        p: Probability of a zero.
        training: False returns the input.
        inplace: Accepted and ignored.
        rngs: Where the stream ``dropout`` comes from; the ambient one if None.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: If ``p`` is outside of [0, 1] or the shape doesn't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.dropout2d``; Tompson et al., 2015.

    Example:
        >>> dropout2d(jnp.ones((2, 3, 4, 4)), training=False).shape
        (2, 3, 4, 4)
    """
    x = floating("dropout2d", input)
    if x.ndim not in (3, 4):
        raise ValueError(f"dropout2d: expected input (N, C, H, W) or (N, C, L), got {x.shape}.")
    return _dropout("dropout2d", x, p, training, x.shape[:2] + (1,) * (x.ndim - 2), rngs)


def dropout3d(
    input: ArrayLike,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    rngs: Streams | None = None,
) -> Array:
    """Set whole channels to zero with probability ``p``, and divide the others by ``1 - p``.

    Args:
        input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``.
        p: Probability of a zero.
        training: False returns the input.
        inplace: Accepted and ignored.
        rngs: Where the stream ``dropout`` comes from; the ambient one if None.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: If ``p`` is outside of [0, 1] or the shape doesn't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.dropout3d``; Tompson et al., 2015.

    Example:
        >>> dropout3d(jnp.ones((3, 4, 4, 4)), training=False).shape
        (3, 4, 4, 4)
    """
    x = floating("dropout3d", input)
    if x.ndim not in (4, 5):
        raise ValueError(
            f"dropout3d: expected input (N, C, D, H, W) or (C, D, H, W), got {x.shape}."
        )
    return _dropout("dropout3d", x, p, training, (*x.shape[:-3], 1, 1, 1), rngs)


def alpha_dropout(
    input: ArrayLike,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    *,
    rngs: Streams | None = None,
) -> Array:
    """Set elements to SELU's lower limit with probability ``p``; keep mean 0 and variance 1.

    Args:
        input: Any shape.
        p: Probability that an element is dropped.
        training: False (the default, as in PyTorch) returns the input.
        inplace: Accepted and ignored.
        rngs: Where the stream ``dropout`` comes from; the ambient one if None.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: If ``p`` is outside of [0, 1].
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.alpha_dropout``; Klambauer et al., 2017.

    Example:
        >>> alpha_dropout(jnp.ones((2, 3))).shape
        (2, 3)
    """
    x = floating("alpha_dropout", input)
    return _alpha_dropout("alpha_dropout", x, p, training, x.shape, rngs)


def feature_alpha_dropout(
    input: ArrayLike,
    p: float = 0.5,
    training: bool = False,
    inplace: bool = False,
    *,
    rngs: Streams | None = None,
) -> Array:
    """Set whole channels to SELU's lower limit with probability ``p``; keep mean 0, variance 1.

    Args:
        input: ``(N, C, *)``.
        p: Probability that a channel is dropped.
        training: False (the default, as in PyTorch) returns the input.
        inplace: Accepted and ignored.
        rngs: Where the stream ``dropout`` comes from; the ambient one if None.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: If ``p`` is outside of [0, 1] or the shape doesn't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.feature_alpha_dropout``; Klambauer et al., 2017.

    Example:
        >>> feature_alpha_dropout(jnp.ones((2, 3, 4))).shape
        (2, 3, 4)
    """
    x = floating("feature_alpha_dropout", input)
    if x.ndim < 2:
        raise ValueError(f"feature_alpha_dropout: expected input (N, C, *), got {x.shape}.")
    shape = x.shape[:2] + (1,) * (x.ndim - 2)
    return _alpha_dropout("feature_alpha_dropout", x, p, training, shape, rngs)


def _dropout(
    name: str, x: Array, p: float, training: bool, shape: tuple[int, ...], rngs: Streams | None
) -> Array:
    _check_probability(name, p)
    if not training or p == 0:
        return x
    if p == 1:
        return jnp.zeros_like(x)
    return jnp.where(_keep(name, p, shape, rngs), x * (1 / (1 - p)), 0)


def _alpha_dropout(
    name: str, x: Array, p: float, training: bool, shape: tuple[int, ...], rngs: Streams | None
) -> Array:
    _check_probability(name, p)
    if not training or p == 0:
        return x
    if p == 1:
        return jnp.zeros_like(x)
    # y = a * x' + b has again mean 0 and variance 1, if x has.
    a = 1 / math.sqrt((1 - p) * (1 + p * _SELU_FLOOR**2))
    b = -a * p * _SELU_FLOOR
    return jnp.where(_keep(name, p, shape, rngs), a * x + b, a * _SELU_FLOOR + b)


def _keep(name: str, p: float, shape: tuple[int, ...], rngs: Streams | None) -> Array:
    """Draw which elements stay."""
    # A float32 probability, so that x64 doesn't change the mask.
    return jax.random.bernoulli(draw_key(name, rngs), jnp.float32(1 - p), shape)


def _check_probability(name: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: expected p in [0, 1], got {p}.")
