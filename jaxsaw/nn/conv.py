"""Convolutions over one, two and three spatial axes, channels first, and their transposes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

import jax.numpy as jnp
from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import as_tuple, bound_of, full, redraw, required, uniform
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Parameter
from jaxsaw.rngs import Rngs

IntOrInts: TypeAlias = int | Sequence[int]

_MODES = ("zeros", "reflect", "replicate", "circular")


class _Kernel(Module):
    """What convolutions and transposed ones share: arguments, parameters, text."""

    _spatial: ClassVar[int]
    _convolve: ClassVar[Callable[..., Array]]
    transposed: ClassVar[bool]

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts,
        padding: IntOrInts | str,
        dilation: IntOrInts,
        output_padding: IntOrInts,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any,
        dtype: Any,
        rngs: Rngs | None,
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
        self.padding = (
            padding if isinstance(padding, str) else as_tuple(name, "padding", padding, n)
        )
        self.dilation = as_tuple(name, "dilation", dilation, n)
        self.output_padding = as_tuple(name, "output_padding", output_padding, n)
        self.groups = groups
        self.padding_mode = padding_mode
        self._check(name)
        rngs = required(rngs, name)
        rows, columns = (in_channels, out_channels)[:: 1 if self.transposed else -1]
        shape = (rows, columns // groups, *self.kernel_size)
        self.weight = uniform(rngs, shape, bound_of(math.prod(shape[1:])), dtype, device)
        if bias:
            self.bias = full((out_channels,), 0, dtype, device)
        else:
            self.register_parameter("bias", None)

    def _check(self, name: str) -> None:
        raise NotImplementedError

    def reset_parameters(self, *, rngs: Rngs) -> None:
        """Draw the weight anew, and set the bias to zero.

        Args:
            rngs: Where the weight is drawn from.
        """
        redraw(self, bound_of(math.prod(self.weight.shape[1:])), rngs)

    def extra_repr(self) -> str:
        zeros = (0,) * self._spatial
        parts = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"]
        parts.append(f"stride={self.stride}")
        if self.padding != zeros:
            parts.append(f"padding={self.padding}")
        if self.dilation != (1,) * self._spatial:
            parts.append(f"dilation={self.dilation}")
        if self.output_padding != zeros:
            parts.append(f"output_padding={self.output_padding}")
        if self.groups != 1:
            parts.append(f"groups={self.groups}")
        if self.bias is None:
            parts.append("bias=False")
        if self.padding_mode != "zeros":
            parts.append(f"padding_mode={self.padding_mode}")
        return ", ".join(parts)


class _Conv(_Kernel):
    """What the convolutions share; subclasses say over how many axes they go."""

    transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: IntOrInts | str = 0,
        dilation: IntOrInts = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            0,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
            rngs,
        )

    def _check(self, name: str) -> None:
        if isinstance(self.padding, str) and self.padding not in ("same", "valid"):
            raise ValueError(
                f"{name}: expected padding of ints, 'same' or 'valid', got {self.padding!r}."
            )
        if self.padding == "same" and any(step != 1 for step in self.stride):
            raise ValueError(f"{name}: padding='same' needs stride 1, got {self.stride}.")
        if self.padding_mode not in _MODES:
            raise ValueError(
                f"{name}: expected padding_mode to be one of {', '.join(_MODES)}, "
                f"got {self.padding_mode!r}."
            )

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


class _ConvTranspose(_Kernel):
    """What the transposed convolutions share; subclasses say over how many axes they go."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: IntOrInts,
        stride: IntOrInts = 1,
        padding: IntOrInts = 0,
        output_padding: IntOrInts = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: IntOrInts = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            output_padding,
            groups,
            bias,
            padding_mode,
            device,
            dtype,
            rngs,
        )

    def _check(self, name: str) -> None:
        if self.padding_mode != "zeros":
            raise ValueError(
                f"{name}: expected padding_mode to be 'zeros', got {self.padding_mode!r}."
            )
        if isinstance(self.padding, str):
            raise ValueError(f"{name}: expected padding of ints, got {self.padding!r}.")

    def forward(self, input: Array, output_size: Sequence[int] | None = None) -> Array:
        added = self.output_padding
        if output_size is not None:
            added = self._output_padding(jnp.shape(input), tuple(output_size))
        return type(self)._convolve(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            added,
            self.groups,
            self.dilation,
        )

    def _output_padding(self, shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
        """Return what makes the output as large as is wanted."""
        n = self._spatial
        sizes = wanted[-n:] if len(wanted) == len(shape) else wanted
        if len(sizes) != n:
            raise ValueError(
                f"{self._who()}: expected output_size of {n} ints, or of {len(shape)} for input "
                f"{shape}, got {wanted}."
            )
        cuts: Any = self.padding
        least = [
            (size - 1) * s - 2 * p + d * (k - 1) + 1
            for size, s, p, d, k in zip(
                shape[-n:], self.stride, cuts, self.dilation, self.kernel_size, strict=True
            )
        ]
        most = [low + s - 1 for low, s in zip(least, self.stride, strict=True)]
        if any(not a <= b <= c for a, b, c in zip(least, sizes, most, strict=True)):
            raise ValueError(
                f"{self._who()}: expected output_size from {least} to {most} for input {shape}, "
                f"got {sizes}."
            )
        return tuple(size - low for size, low in zip(sizes, least, strict=True))


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


class ConvTranspose1d(_ConvTranspose):
    """Spread each position of the input over one spatial axis: the transpose of :class:`Conv1d`.

    The weight is drawn from ``uniform(-k, k)`` with ``k = 1 / sqrt(fan_in)``, where ``fan_in`` is
    ``out_channels / groups`` times the size of the kernel, as PyTorch has it; the bias starts at
    zero.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel.
        stride: Step between the positions in the output.
        padding: What is cut from both sides of the output.
        output_padding: What is added at its end, less than ``stride`` or ``dilation``; of the
            sizes that a convolution brings to the input's, it chooses one.
        groups: Parts of the channels that don't mix.
        bias: Whether there is a bias.
        dilation: Step between the kernel's elements.
        padding_mode: Only ``"zeros"``.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``.

    Shape:
        - Input: ``(N, in_channels, L)`` or ``(in_channels, L)``. A call may also have
          ``output_size``, which chooses ``output_padding``.
        - Output: ``(N, out_channels, L')`` or ``(out_channels, L')``, each size
          ``(size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1``
        - weight: ``(in_channels, out_channels / groups, kernel)``
        - bias: ``(out_channels,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If the arguments don't fit together; when called, if the input doesn't.

    Source: ``torch.nn.ConvTranspose1d``.

    Example:
        >>> layer = nn.ConvTranspose1d(4, 3, 3, stride=2, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((8, 4, 4)), output_size=(10,)).shape
        (8, 3, 10)
    """

    _spatial = 1
    _convolve = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTranspose):
    """Spread each position of the input over two spatial axes: the transpose of :class:`Conv2d`.

    The weight is drawn from ``uniform(-k, k)`` with ``k = 1 / sqrt(fan_in)``, where ``fan_in`` is
    ``out_channels / groups`` times the size of the kernel, as PyTorch has it; the bias starts at
    zero.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel, one int or one an axis.
        stride: Step between the positions in the output, one int or one an axis.
        padding: What is cut from both sides of the output, one int or one an axis.
        output_padding: What is added at its end, less than ``stride`` or ``dilation``; of the
            sizes that a convolution brings to the input's, it chooses one.
        groups: Parts of the channels that don't mix.
        bias: Whether there is a bias.
        dilation: Step between the kernel's elements, one int or one an axis.
        padding_mode: Only ``"zeros"``.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``.

    Shape:
        - Input: ``(N, in_channels, H, W)`` or ``(in_channels, H, W)``. A call may also have
          ``output_size``, which chooses ``output_padding``.
        - Output: ``(N, out_channels, H', W')`` or ``(out_channels, H', W')``, each size
          ``(size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1``
        - weight: ``(in_channels, out_channels / groups, kernel_h, kernel_w)``
        - bias: ``(out_channels,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If the arguments don't fit together; when called, if the input doesn't.

    Source: ``torch.nn.ConvTranspose2d``.

    Example:
        >>> layer = nn.ConvTranspose2d(4, 3, 3, stride=2, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((8, 4, 4, 4)), output_size=(10, 10)).shape
        (8, 3, 10, 10)
    """

    _spatial = 2
    _convolve = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTranspose):
    """Spread each position of the input over three spatial axes: the transpose of :class:`Conv3d`.

    The weight is drawn from ``uniform(-k, k)`` with ``k = 1 / sqrt(fan_in)``, where ``fan_in`` is
    ``out_channels / groups`` times the size of the kernel, as PyTorch has it; the bias starts at
    zero.

    Args:
        in_channels: Channels of the input.
        out_channels: Channels of the output.
        kernel_size: Size of the kernel, one int or one an axis.
        stride: Step between the positions in the output, one int or one an axis.
        padding: What is cut from both sides of the output, one int or one an axis.
        output_padding: What is added at its end, less than ``stride`` or ``dilation``; of the
            sizes that a convolution brings to the input's, it chooses one.
        groups: Parts of the channels that don't mix.
        bias: Whether there is a bias.
        dilation: Step between the kernel's elements, one int or one an axis.
        padding_mode: Only ``"zeros"``.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``.

    Shape:
        - Input: ``(N, in_channels, D, H, W)`` or ``(in_channels, D, H, W)``. A call may also have
          ``output_size``, which chooses ``output_padding``.
        - Output: ``(N, out_channels, D', H', W')`` or ``(out_channels, D', H', W')``, each size
          ``(size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1``
        - weight: ``(in_channels, out_channels / groups, kernel_d, kernel_h, kernel_w)``
        - bias: ``(out_channels,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If the arguments don't fit together; when called, if the input doesn't.

    Source: ``torch.nn.ConvTranspose3d``.

    Example:
        >>> layer = nn.ConvTranspose3d(4, 3, 3, stride=2, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((8, 4, 4, 4, 4)), output_size=(10, 10, 10)).shape
        (8, 3, 10, 10, 10)
    """

    _spatial = 3
    _convolve = staticmethod(F.conv_transpose3d)
