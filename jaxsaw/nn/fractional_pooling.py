"""Maxima of windows at random places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import as_tuple
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Buffer
from jaxsaw.rngs import Rngs, ambient

IntOrInts: TypeAlias = int | Sequence[int]


class _FractionalMaxPool(Module):
    """What the fractional poolings share; subclasses say over how many axes they go."""

    _spatial: ClassVar[int]
    _pool: ClassVar[Callable[..., Any]]
    _random_samples: Buffer | None

    def __init__(
        self,
        kernel_size: IntOrInts,
        output_size: IntOrInts | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        name, n = type(self).__name__, self._spatial
        if (output_size is None) == (output_ratio is None):
            raise ValueError(
                f"{name}: expected either output_size or output_ratio, got "
                f"output_size={output_size} and output_ratio={output_ratio}."
            )
        self.kernel_size = as_tuple(name, "kernel_size", kernel_size, n)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None
        if output_size is not None:
            self.output_size = as_tuple(name, "output_size", output_size, n)
        self.output_ratio = None
        if output_ratio is not None:
            ratios: Any = as_tuple(name, "output_ratio", output_ratio, n)
            if not all(0 < ratio < 1 for ratio in ratios):
                raise ValueError(
                    f"{name}: expected output_ratio between 0 and 1, got {output_ratio}."
                )
            self.output_ratio = ratios
        self.rngs = rngs

    def forward(self, input: Array, *, rngs: Rngs | None = None) -> Any:
        if rngs is None and self._random_samples is None:
            rngs = ambient("dropout", self.rngs, self._who())
        return type(self)._pool(
            input,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            self.return_indices,
            self._random_samples,
            rngs=rngs,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """Take the maximum of windows at random, overlapping places over two spatial axes.

    Each image and channel has its own places, whose steps differ by at most one pixel. They are
    drawn anew in each call, in evaluation too, from the stream ``dropout`` of ``rngs=`` in the
    call, else in the call of a module around it, else in the constructor.

    Args:
        kernel_size: Size of the window, one int or one an axis.
        output_size: Size of the output, one int or one an axis.
        output_ratio: Its ratio to the input's, between 0 and 1; either this or ``output_size``.
        return_indices: Also return where each maximum was.
        _random_samples: What to use instead of random numbers, ``(N, C, 2)`` in [0, 1).
        rngs: The streams to draw from where a call has none.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: ``(N, C, *output_size)`` or ``(C, *output_size)``; with ``return_indices`` also
          integers of that shape

    Raises:
        ValueError: If the arguments don't fit together; when called, if the input doesn't.
        RuntimeError: When called, if there is nothing to draw from.

    Source: ``torch.nn.FractionalMaxPool2d``; Graham, 2014.

    Example:
        >>> layer = nn.FractionalMaxPool2d(2, output_ratio=0.5)
        >>> layer(jnp.ones((8, 3, 7, 7)), rngs=js.Rngs(dropout=0)).shape
        (8, 3, 3, 3)
    """

    _spatial = 2
    _pool = staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPool):
    """Take the maximum of windows at random, overlapping places over three spatial axes.

    Each image and channel has its own places, whose steps differ by at most one pixel. They are
    drawn anew in each call, in evaluation too, from the stream ``dropout`` of ``rngs=`` in the
    call, else in the call of a module around it, else in the constructor.

    Args:
        kernel_size: Size of the window, one int or one an axis.
        output_size: Size of the output, one int or one an axis.
        output_ratio: Its ratio to the input's, between 0 and 1; either this or ``output_size``.
        return_indices: Also return where each maximum was.
        _random_samples: What to use instead of random numbers, ``(N, C, 3)`` in [0, 1).
        rngs: The streams to draw from where a call has none.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: ``(N, C, *output_size)`` or ``(C, *output_size)``; with ``return_indices`` also
          integers of that shape

    Raises:
        ValueError: If the arguments don't fit together; when called, if the input doesn't.
        RuntimeError: When called, if there is nothing to draw from.

    Source: ``torch.nn.FractionalMaxPool3d``; Graham, 2014.

    Example:
        >>> layer = nn.FractionalMaxPool3d(2, output_ratio=0.5)
        >>> layer(jnp.ones((8, 3, 7, 7, 7)), rngs=js.Rngs(dropout=0)).shape
        (8, 3, 3, 3, 3)
    """

    _spatial = 3
    _pool = staticmethod(F.fractional_max_pool3d)
