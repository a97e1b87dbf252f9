"""Normalisation: over the batch, over features, over groups of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import as_dtype, full, place
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Buffer, Parameter


class _BatchNorm(Module):
    """What the batch normalisations share; subclasses say which inputs they take."""

    _shapes: ClassVar[dict[int, str]]

    weight: Parameter | None
    bias: Parameter | None
    running_mean: Buffer | None
    running_var: Buffer | None
    num_batches_tracked: Buffer | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        _add_affine(self, (num_features,), affine, affine and bias, dtype, device)
        if track_running_stats:
            kind = as_dtype(dtype)
            self.running_mean = _statistic(jnp.zeros(num_features, kind), device)
            self.running_var = _statistic(jnp.ones(num_features, kind), device)
            self.num_batches_tracked = _statistic(jnp.zeros((), jnp.int32), device)
        else:
            self.register_buffer("running_mean", None)
            self.register_buffer("running_var", None)
            self.register_buffer("num_batches_tracked", None)

    def forward(self, input: Array) -> Array:
        if jnp.ndim(input) not in self._shapes:
            raise ValueError(
                f"{self._who()}: expected input {' or '.join(self._shapes.values())}, "
                f"got {jnp.shape(input)}."
            )
        updates = self.training and self.track_running_stats
        by_running = not self.training and self.running_mean is not None
        count, momentum = None, self.momentum
        if updates and self.num_batches_tracked is not None:
            count = self.num_batches_tracked.value + 1
            if momentum is None:  # the mean over all batches
                is_double = jnp.result_type(input) == jnp.float64
                momentum = 1 / count.astype(jnp.float64 if is_double else jnp.float32)
        y = F.batch_norm(
            input,
            self.running_mean if updates or by_running else None,
            self.running_var if updates or by_running else None,
            self.weight,
            self.bias,
            not by_running,
            0.0 if momentum is None else momentum,
            self.eps,
        )
        if count is not None:  # last, so that an error counts nothing
            self.num_batches_tracked.value = count  # type: ignore[union-attr]
        return y

    def reset_running_stats(self) -> None:
        """Forget the running statistics."""
        if self.track_running_stats:
            for box, value in (
                (self.running_mean, 0),
                (self.running_var, 1),
                (self.num_batches_tracked, 0),
            ):
                if box is not None:
                    box.value = jnp.full(box.shape, value, box.dtype)

    def reset_parameters(self) -> None:
        """Forget the running statistics, and set weight to one and bias to zero."""
        self.reset_running_stats()
        _reset_affine(self)

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(_BatchNorm):
    """Normalise each channel over batch.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``. In training, mean and (biased) variance
    are the batch's, and the running statistics move towards the batch's mean and unbiased variance.
    In evaluation they are the running ones.

    Args:
        num_features: Number of channels ``C``.
        eps: Added to the variance.
        momentum: How far the running statistics move; None makes them the mean over all batches.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics; without them, the batch's are
            used in evaluation too.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None. ``num_batches_tracked`` is int32 (PyTorch's is int64,
            which JAX has in its 64-bit mode only; ``load_state_dict`` converts).
        bias: Whether there is a bias, if there is a weight.

    Shape:
        - Input: ``(N, C)`` or ``(N, C, L)``
        - Output: the same
        - weight, bias, running_mean, running_var: ``(C,)``
        - num_batches_tracked: ``()``

    Raises:
        ValueError: When called, if the input doesn't fit, or a channel has only one value in
            training.

    Source: ``torch.nn.BatchNorm1d``; Ioffe and Szegedy, 2015.

    Example:
        >>> layer = nn.BatchNorm1d(3)
        >>> layer(jnp.ones((2, 3))).shape
        (2, 3)
        >>> int(layer.num_batches_tracked)
        1
    """

    _shapes: ClassVar = {2: "(N, C)", 3: "(N, C, L)"}


class BatchNorm2d(_BatchNorm):
    """Normalise each channel over batch and pixels.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``. In training, mean and (biased) variance
    are the batch's, and the running statistics move towards the batch's mean and unbiased variance.
    In evaluation they are the running ones.

    Args:
        num_features: Number of channels ``C``.
        eps: Added to the variance.
        momentum: How far the running statistics move; None makes them the mean over all batches.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics; without them, the batch's are
            used in evaluation too.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None. ``num_batches_tracked`` is int32 (PyTorch's is int64,
            which JAX has in its 64-bit mode only; ``load_state_dict`` converts).
        bias: Whether there is a bias, if there is a weight.

    Shape:
        - Input: ``(N, C, H, W)``
        - Output: the same
        - weight, bias, running_mean, running_var: ``(C,)``
        - num_batches_tracked: ``()``

    Raises:
        ValueError: When called, if the input doesn't fit, or a channel has only one value in
            training.

    Source: ``torch.nn.BatchNorm2d``; Ioffe and Szegedy, 2015.

    Example:
        >>> layer = nn.BatchNorm2d(3)
        >>> layer(jnp.ones((2, 3, 4, 4))).shape
        (2, 3, 4, 4)
        >>> int(layer.num_batches_tracked)
        1
    """

    _shapes: ClassVar = {4: "(N, C, H, W)"}


class BatchNorm3d(_BatchNorm):
    """Normalise each channel over batch and voxels.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``. In training, mean and (biased) variance
    are the batch's, and the running statistics move towards the batch's mean and unbiased variance.
    In evaluation they are the running ones.

    Args:
        num_features: Number of channels ``C``.
        eps: Added to the variance.
        momentum: How far the running statistics move; None makes them the mean over all batches.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics; without them, the batch's are
            used in evaluation too.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None. ``num_batches_tracked`` is int32 (PyTorch's is int64,
            which JAX has in its 64-bit mode only; ``load_state_dict`` converts).
        bias: Whether there is a bias, if there is a weight.

    Shape:
        - Input: ``(N, C, D, H, W)``
        - Output: the same
        - weight, bias, running_mean, running_var: ``(C,)``
        - num_batches_tracked: ``()``

    Raises:
        ValueError: When called, if the input doesn't fit, or a channel has only one value in
            training.

    Source: ``torch.nn.BatchNorm3d``; Ioffe and Szegedy, 2015.

    Example:
        >>> layer = nn.BatchNorm3d(3)
        >>> layer(jnp.ones((2, 3, 4, 4, 4))).shape
        (2, 3, 4, 4, 4)
        >>> int(layer.num_batches_tracked)
        1
    """

    _shapes: ClassVar = {5: "(N, C, D, H, W)"}


class LayerNorm(Module):
    """Normalise over the last axes: ``y = (x - mean) / sqrt(var + eps) * weight + bias``.

    Args:
        normalized_shape: Sizes of the last axes, over which mean and variance are taken.
        eps: Added to the variance.
        elementwise_affine: Whether there are weight and bias.
        bias: Whether there is a bias, if there is a weight.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.

    Shape:
        - Input: ``(*, *normalized_shape)``
        - Output: the same
        - weight, bias: ``normalized_shape``

    Raises:
        ValueError: When called, if the input's last axes don't fit.

    Source: ``torch.nn.LayerNorm``; Ba, Kiros and Hinton, 2016.

    Example:
        >>> nn.LayerNorm(2)(jnp.array([[1.0, 3.0]])).round(2).tolist()
        [[-1.0, 1.0]]
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        shape = self.normalized_shape
        _add_affine(self, shape, elementwise_affine, elementwise_affine and bias, dtype, device)

    def forward(self, input: Array) -> Array:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def reset_parameters(self) -> None:
        """Set weight to one and bias to zero."""
        _reset_affine(self)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class GroupNorm(Module):
    """Normalise each sample's groups of channels, then scale and shift each channel.

    Args:
        num_groups: Into how many groups the channels are divided.
        num_channels: Number of channels ``C``.
        eps: Added to the variance.
        affine: Whether there are weight and bias.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        bias: Whether there is a bias, if there is a weight.

    Shape:
        - Input: ``(N, C, *)``
        - Output: the same
        - weight, bias: ``(C,)``

    Raises:
        ValueError: If the channels don't divide into the groups; when called, if the input doesn't
            fit.

    Source: ``torch.nn.GroupNorm``; Wu and He, 2018.

    Example:
        >>> nn.GroupNorm(3, 6)(jnp.ones((2, 6, 4, 4))).shape
        (2, 6, 4, 4)
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(
                f"GroupNorm: expected num_channels that num_groups divides, got "
                f"num_channels={num_channels} and num_groups={num_groups}."
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        _add_affine(self, (num_channels,), affine, affine and bias, dtype, device)

    def forward(self, input: Array) -> Array:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def reset_parameters(self) -> None:
        """Set weight to one and bias to zero."""
        _reset_affine(self)

    def extra_repr(self) -> str:
        return (
            f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divide by the root mean square of the last axes: ``y = x / sqrt(mean(x^2) + eps) * weight``.

    Args:
        normalized_shape: Sizes of the last axes, over which the mean is taken.
        eps: Added to the mean of squares; None is the machine epsilon of the dtype in which it is
            computed (float32 for the narrower ones).
        elementwise_affine: Whether there is a weight.
        device: Where the weight is.
        dtype: Its dtype; float32 if None.

    Shape:
        - Input: ``(*, *normalized_shape)``
        - Output: the same
        - weight: ``normalized_shape``

    Raises:
        ValueError: When called, if the input's last axes don't fit.

    Source: ``torch.nn.RMSNorm``; Zhang and Sennrich, 2019.

    Example:
        >>> nn.RMSNorm(2)(jnp.array([[3.0, 3.0]])).round(2).tolist()
        [[1.0, 1.0]]
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = _shape(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        if elementwise_affine:
            self.weight = full(self.normalized_shape, 1, dtype, device)
        else:
            self.register_parameter("weight", None)

    def forward(self, x: Array) -> Array:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def reset_parameters(self) -> None:
        """Set the weight to one."""
        if self.weight is not None:
            self.weight.value = jnp.ones(self.weight.shape, self.weight.dtype)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(normalized_shape, Sequence):
        return tuple(normalized_shape)
    return (int(normalized_shape),)


def _statistic(array: Array, device: Any) -> Buffer:
    return Buffer.own(place(array, device))


def _add_affine(
    module: Module, shape: tuple[int, ...], weight: bool, bias: bool, dtype: Any, device: Any
) -> None:
    """Give a module the weight and the bias that it wants."""
    for name, wanted, value in (("weight", weight, 1), ("bias", bias, 0)):
        module.register_parameter(name, full(shape, value, dtype, device) if wanted else None)


def _reset_affine(module: Any) -> None:
    for box, value in ((module.weight, 1), (module.bias, 0)):
        if box is not None:
            box.value = jnp.full(box.shape, value, box.dtype)
