"""Convolutions over one, two and three spatial axes, channels first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import as_tuple, bound_of, full, redraw, required, uniform
from jaxsaw.nn.module import Module
from jaxsaw.rngs import Rngs

_MODES = ("zeros", "reflect", "replicate", "circular")


class _Conv(Module):
    """What the convolutions share; subclasses say over how many axes they go."""

    _spatial: ClassVar[int]
    _convolve: ClassVar[Callable[..., Array]]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...],
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        name, n = type(self).__name__, self._spatial
        if groups <= 0:
            raise ValueError(f"{name}: expected groups of at least 1, got {groups}.")
        for argument, channels in (("in_channels", in_channels), ("out_channels", out_channels)):
            if channels % groups:
                raise ValueError(
                    f"{name}: expected {argument} that groups={groups} divides, got {channels}."
                )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = as_tuple(name, "kernel_size", kernel_size, n)
        self.stride = as_tuple(name, "stride", stride, n)
        self.dilation = as_tuple(name, "dilation", dilation, n)
        if not isinstance(padding, str):
            padding = as_tuple(name, "padding", padding, n)
        elif padding not in ("same", "valid"):
            raise ValueError(
                f"{name}: expected padding of ints, 'same' or 'valid', got {padding!r}."
            )
        elif padding == "same" and any(step != 1 for step in self.stride):
            raise ValueError(f"{name}: padding='same' needs stride 1, got {self.stride}.")
        if padding_mode not in _MODES:
            raise ValueError(
                f"{name}: expected padding_mode to be one of {', '.join(_MODES)}, "
                f"got {padding_mode!r}."
            )
        self.padding = padding
        self.transposed = False
        self.output_padding = (0,) * n
        self.groups = groups
        self.padding_mode = padding_mode
        rngs = required(rngs, name)
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = uniform(rngs, shape, bound_of(math.prod(shape[1:])), dtype, device)
        if bias:
            self.bias = full((out_channels,), 0, dtype, device)
        else:
            self.register_parameter("bias", None)

    def forward(self, input: Array) -> Array:
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._amounts(), mode=self.padding_mode)
            padding = 0
        return type(self)._convolve(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )

    def _amounts(self) -> list[int]:
        """Return what ``F.pad`` adds: low and high of the last axis, then of the one before."""
        amounts: list[int] = []
        for i in reversed(range(self._spatial)):
            if self.padding == "same":
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                amounts += [total // 2, total - total // 2]
            elif isinstance(self.padding, str):
                amounts += [0, 0]
            else:
                amounts += [self.padding[i]] * 2
        return amounts

    def reset_parameters(self, *, rngs: Rngs) -> None:
        """Draw the weight anew, and set the bias to zero.

        Args:
            rngs: Where the weight is drawn from.
        """
        redraw(self, bound_of(math.prod(self.weight.shape[1:])), rngs)

    def extra_repr(self) -> str:
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        parts.append(f"stride={self.stride}")
        if self.padding != (0,) * self._spatial:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * self._spatial:
            parts.append(f"dilation={self.dilation}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class Conv1d(_Conv):
    """Convolve over one spatial axis (a cross-correlation: the kernel isn't flipped).

    The weight is drawn from ``uniform(-k, k)`` with ``k = 1 / sqrt(fan_in)``; the bias starts at
    zero.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel.
        stride: Step between the kernel's positions.
        padding: What is added on both sides; ``"valid"`` is nothing, ``"same"`` keeps the size
            (stride 1).
        dilation: Step between the kernel's elements.
        groups: Parts of the channels that don't mix.
        bias: Whether there is a bias.
        padding_mode: What is added: ``"zeros"``, ``"reflect"``, ``"replicate"``, ``"circular"``.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``.

    Shape:
        - Input: ``(N, in_channels, L)`` or ``(in_channels, L)``
        - Output: ``(N, out_channels, L')`` or ``(out_channels, L')``, with
          each size ``(size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1``
        - weight: ``(out_channels, in_channels / groups, kernel)``
        - bias: ``(out_channels,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If the arguments don't fit together; when called, if the input doesn't.

    Source: ``torch.nn.Conv1d``.

    Example:
        >>> layer = nn.Conv1d(3, 4, 3, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((8, 3, 10))).shape
        (8, 4, 8)
    """

    _spatial = 1
    _convolve = staticmethod(F.conv1d)


class Conv2d(_Conv):
    """Convolve over two spatial axes (a cross-correlation: the kernel isn't flipped).

    The weight is drawn from ``uniform(-k, k)`` with ``k = 1 / sqrt(fan_in)``; the bias starts at
    zero.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel, one int or one an axis.
        stride: Step between the kernel's positions, one int or one an axis.
        padding: What is added on both sides; ``"valid"`` is nothing, ``"same"`` keeps the size
            (stride 1).
        dilation: Step between the kernel's elements, one int or one an axis.
        groups: Parts of the channels that don't mix.
        bias: Whether there is a bias.
        padding_mode: What is added: ``"zeros"``, ``"reflect"``, ``"replicate"``, ``"circular"``.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``.

    Shape:
        - Input: ``(N, in_channels, H, W)`` or ``(in_channels, H, W)``
        - Output: ``(N, out_channels, H', W')`` or ``(out_channels, H', W')``, with
          each size ``(size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1``
        - weight: ``(out_channels, in_channels / groups, kernel_h, kernel_w)``
        - bias: ``(out_channels,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If the arguments don't fit together; when called, if the input doesn't.

    Source: ``torch.nn.Conv2d``.

    Example:
        >>> layer = nn.Conv2d(3, 4, 3, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((8, 3, 10, 10))).shape
        (8, 4, 8, 8)
    """

    _spatial = 2
    _convolve = staticmethod(F.conv2d)


class Conv3d(_Conv):
    """Convolve over three spatial axes (a cross-correlation: the kernel isn't flipped).

    The weight is drawn from ``uniform(-k, k)`` with ``k = 1 / sqrt(fan_in)``; the bias starts at
    zero.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel, one int or one an axis.
        stride: Step between the kernel's positions, one int or one an axis.
        padding: What is added on both sides; ``"valid"`` is nothing, ``"same"`` keeps the size
            (stride 1).
        dilation: Step between the kernel's elements, one int or one an axis.
        groups: Parts of the channels that don't mix.
        bias: Whether there is a bias.
        padding_mode: What is added: ``"zeros"``, ``"reflect"``, ``"replicate"``, ``"circular"``.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``.

    Shape:
        - Input: ``(N, in_channels, D, H, W)`` or ``(in_channels, D, H, W)``
        - Output: ``(N, out_channels, D', H', W')`` or ``(out_channels, D', H', W')``, with
          each size ``(size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1``
        - weight: ``(out_channels, in_channels / groups, kernel_d, kernel_h, kernel_w)``
        - bias: ``(out_channels,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If the arguments don't fit together; when called, if the input doesn't.

    Source: ``torch.nn.Conv3d``.

    Example:
        >>> layer = nn.Conv3d(3, 4, 3, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((8, 3, 10, 10, 10))).shape
        (8, 4, 8, 8, 8)
    """

    _spatial = 3
    _convolve = staticmethod(F.conv3d)
