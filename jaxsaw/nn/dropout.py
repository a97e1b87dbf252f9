"""Dropout: of elements, of whole channels, and for self-normalising networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn.module import Module
from jaxsaw.rngs import Rngs, ambient


class _Dropout(Module):
    """What the dropouts share; subclasses say which function they are."""

    _function: ClassVar[Callable[..., Array]]

    def __init__(self, p: float = 0.5, inplace: bool = False, *, rngs: Rngs | None = None) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"{type(self).__name__}: expected p in [0, 1], got {p}.")
        self.p = p
        self.inplace = inplace
        self.rngs = rngs

    def forward(self, input: Array, *, rngs: Rngs | None = None) -> Array:
        if rngs is None and self.training and 0 < self.p < 1:
            rngs = ambient("dropout", self.rngs, self._who())
        return type(self)._function(input, self.p, self.training, rngs=rngs)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Set elements to zero with probability ``p``, and divide the others by ``1 - p``.

    In evaluation, the input is returned. Random numbers come from the stream ``dropout`` of
    ``rngs=`` in the call, else in the call of a module around it, else in the constructor.

    Args:
        p: Probability of a zero.
        inplace: Accepted and ignored.
        rngs: The streams to draw from where a call has none.

    Shape:
        - Input: any
        - Output: the same

    Raises:
        ValueError: If ``p`` is outside of [0, 1].
        RuntimeError: When called in training mode, if there is nothing to draw from.

    Source: ``torch.nn.Dropout``; Srivastava et al., 2014.

    Example:
        >>> layer = nn.Dropout(0.5)
        >>> layer(jnp.ones((2, 3)), rngs=js.Rngs(dropout=0)).shape
        (2, 3)
    """

    _function = staticmethod(F.dropout)


class Dropout1d(_Dropout):
    """Set whole channels to zero with probability ``p``, and divide the others by ``1 - p``.

    In evaluation, the input is returned. Random numbers come from the stream ``dropout`` of
    ``rngs=`` in the call, else in the call of a module around it, else in the constructor.

    Args:
        p: Probability of a zero.
        inplace: Accepted and ignored.
        rngs: The streams to draw from where a call has none.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: the same

    Raises:
        ValueError: If ``p`` is outside of [0, 1].
        RuntimeError: When called in training mode, if there is nothing to draw from.

    Source: ``torch.nn.Dropout1d``; Tompson et al., 2015.

    Example:
        >>> layer = nn.Dropout1d(0.5)
        >>> layer(jnp.ones((2, 3, 4)), rngs=js.Rngs(dropout=0)).shape
        (2, 3, 4)
    """

    _function = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    """Set whole channels to zero with probability ``p``, and divide the others by ``1 - p``.

    In evaluation, the input is returned. Random numbers come from the stream ``dropout`` of
    ``rngs=`` in the call, else in the call of a module around it, else in the constructor.

    Args:
        p: Probability of a zero.
        inplace: Accepted and ignored.
        rngs: The streams to draw from where a call has none.

    Shape:
        - Input: ``(N, C, H, W)``, or ``(N, C, L)`` (as in PyTorch, 3-D input has a batch axis)
        - Output: the same

    Raises:
        ValueError: If ``p`` is outside of [0, 1].
        RuntimeError: When called in training mode, if there is nothing to draw from.

    Source: ``torch.nn.Dropout2d``; Tompson et al., 2015.

    Example:
        >>> layer = nn.Dropout2d(0.5)
        >>> layer(jnp.ones((2, 3, 4, 4)), rngs=js.Rngs(dropout=0)).shape
        (2, 3, 4, 4)
    """

    _function = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    """Set whole channels to zero with probability ``p``, and divide the others by ``1 - p``.

    In evaluation, the input is returned. Random numbers come from the stream ``dropout`` of
    ``rngs=`` in the call, else in the call of a module around it, else in the constructor.

    Args:
        p: Probability of a zero.
        inplace: Accepted and ignored.
        rngs: The streams to draw from where a call has none.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: the same

    Raises:
        ValueError: If ``p`` is outside of [0, 1].
        RuntimeError: When called in training mode, if there is nothing to draw from.

    Source: ``torch.nn.Dropout3d``; Tompson et al., 2015.

    Example:
        >>> layer = nn.Dropout3d(0.5)
        >>> layer(jnp.ones((2, 3, 4, 4, 4)), rngs=js.Rngs(dropout=0)).shape
        (2, 3, 4, 4, 4)
    """

    _function = staticmethod(F.dropout3d)


class AlphaDropout(_Dropout):
    """Set elements to SELU's lower limit with probability ``p``; keep mean 0 and variance 1.

    In evaluation, the input is returned. Random numbers come from the stream ``dropout`` of
    ``rngs=`` in the call, else in the call of a module around it, else in the constructor.

    Args:
        p: Probability that an element is dropped.
        inplace: Accepted and ignored.
        rngs: The streams to draw from where a call has none.

    Shape:
        - Input: any
        - Output: the same

    Raises:
        ValueError: If ``p`` is outside of [0, 1].
        RuntimeError: When called in training mode, if there is nothing to draw from.

    Source: ``torch.nn.AlphaDropout``; Klambauer et al., 2017.

    Example:
        >>> layer = nn.AlphaDropout(0.5)
        >>> layer(jnp.ones((2, 3)), rngs=js.Rngs(dropout=0)).shape
        (2, 3)
    """

    _function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """Set whole channels to SELU's lower limit with probability ``p``; keep mean 0, variance 1.

    In evaluation, the input is returned. Random numbers come from the stream ``dropout`` of
    ``rngs=`` in the call, else in the call of a module around it, else in the constructor.

    Args:
        p: Probability that a channel is dropped.
        inplace: Accepted and ignored.
        rngs: The streams to draw from where a call has none.

    Shape:
        - Input: ``(N, C, *)``
        - Output: the same

    Raises:
        ValueError: If ``p`` is outside of [0, 1].
        RuntimeError: When called in training mode, if there is nothing to draw from.

    Source: ``torch.nn.FeatureAlphaDropout``; Klambauer et al., 2017.

    Example:
        >>> layer = nn.FeatureAlphaDropout(0.5)
        >>> layer(jnp.ones((2, 3, 4)), rngs=js.Rngs(dropout=0)).shape
        (2, 3, 4)
    """

    _function = staticmethod(F.feature_alpha_dropout)
