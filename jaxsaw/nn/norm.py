"""Normalisation over features, over groups of channels, and by neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import full
from jaxsaw.nn._norm import add_affine, reset_affine
from jaxsaw.nn.functional.norm import divide_by_neighbours
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Parameter


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
        add_affine(self, shape, elementwise_affine, elementwise_affine and bias, dtype, device)

    def forward(self, input: Array) -> Array:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def reset_parameters(self) -> None:
        """Set weight to one and bias to zero."""
        reset_affine(self)

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
        add_affine(self, (num_channels,), affine, affine and bias, dtype, device)

    def forward(self, input: Array) -> Array:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def reset_parameters(self) -> None:
        """Set weight to one and bias to zero."""
        reset_affine(self)

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


class LocalResponseNorm(Module):
    """Divide by a power of the neighbouring channels' mean square.

    ``y = x / (k + alpha * mean(x^2)) ** beta``, with a mean over ``size`` channels around each.

    Args:
        size: How many channels; those beyond the first and the last are zero.
        alpha: Weight of the mean square.
        beta: The power.
        k: Added to the mean square.

    Shape:
        - Input: ``(N, C, *)`` with at least one more axis
        - Output: the same

    Raises:
        ValueError: When called, if the input has fewer than three axes.

    Source: ``torch.nn.LocalResponseNorm``; Krizhevsky et al., 2012.

    Example:
        >>> nn.LocalResponseNorm(2)(jnp.ones((2, 6, 4, 4))).shape
        (2, 6, 4, 4)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Array) -> Array:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(LocalResponseNorm):
    """Divide by a power of the neighbouring channels' mean square, as Lua Torch did.

    It is :class:`LocalResponseNorm` of images, but for even sizes, where one channel fewer is added
    up (and still divided by ``size``), and but for the first channel, which counts for all those
    after it, as in PyTorch.

    Args:
        size: How many channels; those beyond the first and the last are zero.
        alpha: Weight of the mean square.
        beta: The power.
        k: Added to the mean square.

    Shape:
        - Input: ``(N, C, H, W)``
        - Output: the same

    Raises:
        ValueError: When called, if the input hasn't four axes.

    Source: ``torch.nn.CrossMapLRN2d``; Krizhevsky et al., 2012.

    Example:
        >>> nn.CrossMapLRN2d(3)(jnp.ones((2, 6, 4, 4))).shape
        (2, 6, 4, 4)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)

    def forward(self, input: Array) -> Array:
        x = jnp.asarray(input)
        if x.ndim != 4:
            raise ValueError(f"{self._who()}: expected input (N, C, H, W), got {x.shape}.")
        reach, alpha = (self.size - 1) // 2, self.alpha / self.size
        return divide_by_neighbours(x, (reach, reach), alpha, self.beta, self.k, keep_first=True)


def _shape(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(normalized_shape, Sequence):
        return tuple(normalized_shape)
    return (int(normalized_shape),)
