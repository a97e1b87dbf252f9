"""Layers that learn the size of their input from the first call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

from jaxsaw.nn._lazy import Lazy
from jaxsaw.nn.batch_norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from jaxsaw.nn.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from jaxsaw.nn.instance_norm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from jaxsaw.nn.linear import Linear
from jaxsaw.rngs import Rngs

IntOrInts: TypeAlias = int | Sequence[int]


class LazyLinear(Lazy, Linear):
    """A :class:`Linear` whose ``in_features`` are those of its first input.

    Args:
        out_features: Size of the output's last axis.
        bias: Whether there is a bias.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``, drawn at once.

    Shape:
        - Input: ``(..., in_features)``
        - Output: ``(..., out_features)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: When called, if the input's shape doesn't fit.

    Source: ``torch.nn.LazyLinear``.

    Example:
        >>> layer = nn.LazyLinear(2, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((4, 3))).shape
        (4, 2)
        >>> layer
        Linear(in_features=3, out_features=2, bias=True)
    """

    cls_to_become = Linear
    _size_name = "in_features"

    def __init__(
        self,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        self.start(locals())

    def _size_of(self, shape: tuple[int, ...]) -> int:
        if not shape:
            raise ValueError(f"{self._who()}: expected input (..., in_features), got ().")
        return shape[-1]

    def _size_from(self, state: dict[str, tuple[int, ...]]) -> int | None:
        weight = state.get("weight", ())
        return weight[1] if len(weight) == 2 else None


class _LazyKernel(Lazy):
    """What the Lazy convolutions share."""

    __slots__ = ()

    _size_name = "in_channels"
    _spatial: ClassVar[int]
    groups: int

    def _size_of(self, shape: tuple[int, ...]) -> int:
        n = self._spatial
        if len(shape) not in (n + 1, n + 2):
            raise ValueError(
                f"{self._who()}: expected input of {n + 1} or {n + 2} axes, got {shape}."
            )
        return shape[-n - 1]


class _LazyConv(_LazyKernel):
    """What the Lazy convolutions that aren't transposed share."""

    __slots__ = ()

    def __init__(
        self,
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
        self.start(locals())

    def _size_from(self, state: dict[str, tuple[int, ...]]) -> int | None:
        weight = state.get("weight", ())
        return weight[1] * self.groups if len(weight) == self._spatial + 2 else None


class _LazyConvTranspose(_LazyKernel):
    """What the Lazy transposed convolutions share."""

    __slots__ = ()

    def __init__(
        self,
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
        self.start(locals())

    def _size_from(self, state: dict[str, tuple[int, ...]]) -> int | None:
        weight = state.get("weight", ())
        return weight[0] if len(weight) == self._spatial + 2 else None


class _LazyNorm(Lazy):
    """What the Lazy norms share."""

    __slots__ = ()

    _size_name = "num_features"
    _channels_at: ClassVar[dict[int, int]]  # where the channels are, by the number of axes

    def _size_of(self, shape: tuple[int, ...]) -> int:
        if len(shape) not in self._channels_at:
            most = " or ".join(map(str, self._channels_at))
            raise ValueError(f"{self._who()}: expected input of {most} axes, got {shape}.")
        return shape[self._channels_at[len(shape)]]

    def _size_from(self, state: dict[str, tuple[int, ...]]) -> int | None:
        shape = state.get("weight", state.get("running_mean", ()))
        return shape[0] if len(shape) == 1 else None


class _LazyBatchNorm(_LazyNorm):
    """What the Lazy batch norms share."""

    __slots__ = ()

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        self.start(locals())


class _LazyInstanceNorm(_LazyNorm):
    """What the Lazy instance norms share."""

    __slots__ = ()

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        self.start(locals())


class LazyConv1d(_LazyConv, Conv1d):
    """A :class:`Conv1d` whose ``in_channels`` are those of its first input.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel.
        stride: Step between the kernel's positions.
        padding: What is added on both sides; ``"valid"`` is nothing, ``"same"`` keeps the size.
        dilation: Step between the kernel's elements.
        groups: Parts of the channels that don't mix.
        bias: Whether there is a bias.
        padding_mode: What is added: ``"zeros"``, ``"reflect"``, ``"replicate"``, ``"circular"``.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``, drawn at once.

    Shape:
        - Input: ``(N, in_channels, L)`` or ``(in_channels, L)``
        - Output: that of :class:`Conv1d`

    Source: ``torch.nn.LazyConv1d``.

    Example:
        >>> layer = nn.LazyConv1d(4, 3, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((2, 3, 9))).shape
        (2, 4, 7)
    """

    cls_to_become = Conv1d


class LazyConv2d(_LazyConv, Conv2d):
    """A :class:`Conv2d` whose ``in_channels`` are those of its first input.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel.
        stride: Step between the kernel's positions.
        padding: What is added on both sides; ``"valid"`` is nothing, ``"same"`` keeps the size.
        dilation: Step between the kernel's elements.
        groups: Parts of the channels that don't mix.
        bias: Whether there is a bias.
        padding_mode: What is added: ``"zeros"``, ``"reflect"``, ``"replicate"``, ``"circular"``.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``, drawn at once.

    Shape:
        - Input: ``(N, in_channels, H, W)`` or ``(in_channels, H, W)``
        - Output: that of :class:`Conv2d`

    Source: ``torch.nn.LazyConv2d``.

    Example:
        >>> layer = nn.LazyConv2d(4, 3, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((2, 3, 9, 9))).shape
        (2, 4, 7, 7)
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConv, Conv3d):
    """A :class:`Conv3d` whose ``in_channels`` are those of its first input.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel.
        stride: Step between the kernel's positions.
        padding: What is added on both sides; ``"valid"`` is nothing, ``"same"`` keeps the size.
        dilation: Step between the kernel's elements.
        groups: Parts of the channels that don't mix.
        bias: Whether there is a bias.
        padding_mode: What is added: ``"zeros"``, ``"reflect"``, ``"replicate"``, ``"circular"``.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``, drawn at once.

    Shape:
        - Input: ``(N, in_channels, D, H, W)`` or ``(in_channels, D, H, W)``
        - Output: that of :class:`Conv3d`

    Source: ``torch.nn.LazyConv3d``.

    Example:
        >>> layer = nn.LazyConv3d(4, 3, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((2, 3, 9, 9, 9))).shape
        (2, 4, 7, 7, 7)
    """

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A :class:`ConvTranspose1d` whose ``in_channels`` are those of its first input.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel.
        stride: Step between the kernel's positions on the output.
        padding: What is taken away on both sides.
        output_padding: What is added at the end.
        groups: Parts of the channels that don't mix.
        bias: Whether there is a bias.
        dilation: Step between the kernel's elements.
        padding_mode: ``"zeros"``.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``, drawn at once.

    Shape:
        - Input: ``(N, in_channels, L)`` or ``(in_channels, L)``
        - Output: that of :class:`ConvTranspose1d`

    Source: ``torch.nn.LazyConvTranspose1d``.

    Example:
        >>> layer = nn.LazyConvTranspose1d(4, 3, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((2, 3, 9))).shape
        (2, 4, 11)
    """

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A :class:`ConvTranspose2d` whose ``in_channels`` are those of its first input.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel.
        stride: Step between the kernel's positions on the output.
        padding: What is taken away on both sides.
        output_padding: What is added at the end.
        groups: Parts of the channels that don't mix.
        bias: Whether there is a bias.
        dilation: Step between the kernel's elements.
        padding_mode: ``"zeros"``.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``, drawn at once.

    Shape:
        - Input: ``(N, in_channels, H, W)`` or ``(in_channels, H, W)``
        - Output: that of :class:`ConvTranspose2d`

    Source: ``torch.nn.LazyConvTranspose2d``.

    Example:
        >>> layer = nn.LazyConvTranspose2d(4, 3, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((2, 3, 9, 9))).shape
        (2, 4, 11, 11)
    """

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A :class:`ConvTranspose3d` whose ``in_channels`` are those of its first input.

    Args:
        out_channels: Channels of the output.
        kernel_size: Size of the kernel.
        stride: Step between the kernel's positions on the output.
        padding: What is taken away on both sides.
        output_padding: What is added at the end.
        groups: Parts of the channels that don't mix.
        bias: Whether there is a bias.
        dilation: Step between the kernel's elements.
        padding_mode: ``"zeros"``.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``, drawn at once.

    Shape:
        - Input: ``(N, in_channels, D, H, W)`` or ``(in_channels, D, H, W)``
        - Output: that of :class:`ConvTranspose3d`

    Source: ``torch.nn.LazyConvTranspose3d``.

    Example:
        >>> layer = nn.LazyConvTranspose3d(4, 3, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((2, 3, 9, 9, 9))).shape
        (2, 4, 11, 11, 11)
    """

    cls_to_become = ConvTranspose3d


class LazyBatchNorm1d(_LazyBatchNorm, BatchNorm1d):
    """A :class:`BatchNorm1d` whose ``num_features`` are the channels of its first input.

    Args:
        eps: Added to the variance.
        momentum: How far the running statistics move.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None.
        bias: Whether there is a bias.

    Shape:
        - Input: ``(N, C)`` or ``(N, C, L)``
        - Output: the same

    Source: ``torch.nn.LazyBatchNorm1d``.

    Example:
        >>> layer = nn.LazyBatchNorm1d()
        >>> layer(jnp.ones((2, 3, 5))).shape
        (2, 3, 5)
        >>> layer.num_features
        3
    """

    cls_to_become = BatchNorm1d
    _channels_at: ClassVar[dict[int, int]] = {2: 1, 3: 1}


class LazyBatchNorm2d(_LazyBatchNorm, BatchNorm2d):
    """A :class:`BatchNorm2d` whose ``num_features`` are the channels of its first input.

    Args:
        eps: Added to the variance.
        momentum: How far the running statistics move.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None.
        bias: Whether there is a bias.

    Shape:
        - Input: ``(N, C, H, W)``
        - Output: the same

    Source: ``torch.nn.LazyBatchNorm2d``.

    Example:
        >>> layer = nn.LazyBatchNorm2d()
        >>> layer(jnp.ones((2, 3, 5, 5))).shape
        (2, 3, 5, 5)
        >>> layer.num_features
        3
    """

    cls_to_become = BatchNorm2d
    _channels_at: ClassVar[dict[int, int]] = {4: 1}


class LazyBatchNorm3d(_LazyBatchNorm, BatchNorm3d):
    """A :class:`BatchNorm3d` whose ``num_features`` are the channels of its first input.

    Args:
        eps: Added to the variance.
        momentum: How far the running statistics move.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None.
        bias: Whether there is a bias.

    Shape:
        - Input: ``(N, C, D, H, W)``
        - Output: the same

    Source: ``torch.nn.LazyBatchNorm3d``.

    Example:
        >>> layer = nn.LazyBatchNorm3d()
        >>> layer(jnp.ones((2, 3, 5, 5, 5))).shape
        (2, 3, 5, 5, 5)
        >>> layer.num_features
        3
    """

    cls_to_become = BatchNorm3d
    _channels_at: ClassVar[dict[int, int]] = {5: 1}


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """A :class:`InstanceNorm1d` whose ``num_features`` are the channels of its first input.

    Args:
        eps: Added to the variance.
        momentum: How far the running statistics move.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None.
        bias: Whether there is a bias.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: the same

    Source: ``torch.nn.LazyInstanceNorm1d``.

    Example:
        >>> layer = nn.LazyInstanceNorm1d()
        >>> layer(jnp.ones((2, 3, 5))).shape
        (2, 3, 5)
        >>> layer.num_features
        3
    """

    cls_to_become = InstanceNorm1d
    _channels_at: ClassVar[dict[int, int]] = {2: 0, 3: 1}


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """A :class:`InstanceNorm2d` whose ``num_features`` are the channels of its first input.

    Args:
        eps: Added to the variance.
        momentum: How far the running statistics move.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None.
        bias: Whether there is a bias.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: the same

    Source: ``torch.nn.LazyInstanceNorm2d``.

    Example:
        >>> layer = nn.LazyInstanceNorm2d()
        >>> layer(jnp.ones((2, 3, 5, 5))).shape
        (2, 3, 5, 5)
        >>> layer.num_features
        3
    """

    cls_to_become = InstanceNorm2d
    _channels_at: ClassVar[dict[int, int]] = {3: 0, 4: 1}


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """A :class:`InstanceNorm3d` whose ``num_features`` are the channels of its first input.

    Args:
        eps: Added to the variance.
        momentum: How far the running statistics move.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None.
        bias: Whether there is a bias.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: the same

    Source: ``torch.nn.LazyInstanceNorm3d``.

    Example:
        >>> layer = nn.LazyInstanceNorm3d()
        >>> layer(jnp.ones((2, 3, 5, 5, 5))).shape
        (2, 3, 5, 5, 5)
        >>> layer.num_features
        3
    """

    cls_to_become = InstanceNorm3d
    _channels_at: ClassVar[dict[int, int]] = {4: 0, 5: 1}
