"""Instance normalisation: of each channel of each sample."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._norm import Tracked


class _InstanceNorm(Tracked):
    """What the instance normalisations share; subclasses say which axes they take."""

    _axes: ClassVar[str]

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, input: Array) -> Array:
        x = jnp.asarray(input)
        batched = x.ndim == len(self._axes.split(",")) + 2
        x = self._checked(x if batched else x[None])
        y = F.instance_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return y if batched else y[0]

    def _checked(self, x: Array) -> Array:
        """Return ``x`` if it is a batch of samples with the right number of channels."""
        if x.ndim != len(self._axes.split(",")) + 2:
            raise ValueError(
                f"{self._who()}: expected input (N, C, {self._axes}) or (C, {self._axes}), "
                f"got {x.shape[1:]}."
            )
        if x.shape[1] != self.num_features:
            text = (
                f"{self._who()}: expected input with {self.num_features} channels, got {x.shape}."
            )
            if self.affine or self.track_running_stats:
                raise ValueError(text)
            warnings.warn(f"{text} It is normalised all the same.", stacklevel=2)
        return x


class InstanceNorm1d(_InstanceNorm):
    """Normalise each channel of each sample over its points.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, with mean and (biased) variance of the
    sample. With ``track_running_stats``, running statistics move in training towards the mean of
    the samples' statistics, and are used in evaluation.

    Args:
        num_features: Number of channels ``C``.
        eps: Added to the variance.
        momentum: How far the running statistics move.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None.
        bias: Whether there is a bias, if there is a weight.

    Shape:
        - Input: ``(N, C, L)`` or ``(C, L)``
        - Output: the same
        - weight, bias, running_mean, running_var: ``(C,)``
        - num_batches_tracked: ``()``; it stays 0, as in PyTorch

    Raises:
        ValueError: When called, if the input doesn't fit, or a channel has only one pixel.

    Source: ``torch.nn.InstanceNorm1d``; Ulyanov et al., 2016.

    Example:
        >>> layer = nn.InstanceNorm1d(3, affine=True)
        >>> layer(jnp.ones((2, 3, 4))).shape
        (2, 3, 4)
    """

    _axes = "L"


class InstanceNorm2d(_InstanceNorm):
    """Normalise each channel of each sample over its pixels.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, with mean and (biased) variance of the
    sample. With ``track_running_stats``, running statistics move in training towards the mean of
    the samples' statistics, and are used in evaluation.

    Args:
        num_features: Number of channels ``C``.
        eps: Added to the variance.
        momentum: How far the running statistics move.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None.
        bias: Whether there is a bias, if there is a weight.

    Shape:
        - Input: ``(N, C, H, W)`` or ``(C, H, W)``
        - Output: the same
        - weight, bias, running_mean, running_var: ``(C,)``
        - num_batches_tracked: ``()``; it stays 0, as in PyTorch

    Raises:
        ValueError: When called, if the input doesn't fit, or a channel has only one pixel.

    Source: ``torch.nn.InstanceNorm2d``; Ulyanov et al., 2016.

    Example:
        >>> layer = nn.InstanceNorm2d(3, affine=True)
        >>> layer(jnp.ones((2, 3, 4, 4))).shape
        (2, 3, 4, 4)
    """

    _axes = "H, W"


class InstanceNorm3d(_InstanceNorm):
    """Normalise each channel of each sample over its voxels.

    ``y = (x - mean) / sqrt(var + eps) * weight + bias``, with mean and (biased) variance of the
    sample. With ``track_running_stats``, running statistics move in training towards the mean of
    the samples' statistics, and are used in evaluation.

    Args:
        num_features: Number of channels ``C``.
        eps: Added to the variance.
        momentum: How far the running statistics move.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None.
        bias: Whether there is a bias, if there is a weight.

    Shape:
        - Input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``
        - Output: the same
        - weight, bias, running_mean, running_var: ``(C,)``
        - num_batches_tracked: ``()``; it stays 0, as in PyTorch

    Raises:
        ValueError: When called, if the input doesn't fit, or a channel has only one pixel.

    Source: ``torch.nn.InstanceNorm3d``; Ulyanov et al., 2016.

    Example:
        >>> layer = nn.InstanceNorm3d(3, affine=True)
        >>> layer(jnp.ones((2, 3, 4, 4, 4))).shape
        (2, 3, 4, 4, 4)
    """

    _axes = "D, H, W"
