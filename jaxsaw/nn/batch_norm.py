"""Batch normalisation, of one device's samples or of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array

from jaxsaw.nn._norm import Tracked
from jaxsaw.nn.functional.norm import batch_norm_across
from jaxsaw.nn.module import Module


class _BatchNorm(Tracked):
    """What the batch normalisations share; subclasses say which inputs they take."""

    _shapes: ClassVar[dict[int, str]]
    axis_name: str | Sequence[str] | None = None

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
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, input: Array) -> Array:
        self._check(input)
        updates = self.training and self.track_running_stats
        by_running = not self.training and self.running_mean is not None
        count, momentum = None, self.momentum
        if updates and self.num_batches_tracked is not None:
            count = self.num_batches_tracked.value + 1
            if momentum is None:  # the mean over all batches
                is_double = jnp.result_type(input) == jnp.float64
                momentum = 1 / count.astype(jnp.float64 if is_double else jnp.float32)
        y = batch_norm_across(
            self.axis_name,
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

    def _check(self, input: Array) -> None:
        if jnp.ndim(input) not in self._shapes:
            raise ValueError(
                f"{self._who()}: expected input {' or '.join(self._shapes.values())}, "
                f"got {jnp.shape(input)}."
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


class SyncBatchNorm(_BatchNorm):
    """Normalise each channel over the batches of all lanes or devices.

    It is :class:`BatchNorm2d` for any number of axes, and its statistics are those of the lanes of
    ``axis_name`` together: the axis of ``js.vmap(..., axis_name=...)``, or one of the mesh inside
    of ``jax.shard_map``. A step of ``js.jit`` on a sharded batch needs none of this: there every
    batch norm sees the whole batch.

    Args:
        num_features: Number of channels ``C``.
        eps: Added to the variance.
        momentum: How far the running statistics move; None makes them the mean over all batches.
        affine: Whether there are weight and bias.
        track_running_stats: Whether there are running statistics.
        process_group: PyTorch's; here ``axis_name`` says who takes part, and it has to be None.
        device: Where parameters and buffers are.
        dtype: Their dtype; float32 if None.
        bias: Whether there is a bias, if there is a weight.
        axis_name: The mapped axis, or several; None takes the batch by itself.

    Shape:
        - Input: ``(N, C, *)``
        - Output: the same
        - weight, bias, running_mean, running_var: ``(C,)``
        - num_batches_tracked: ``()``

    Raises:
        ValueError: If there is a ``process_group``; when called in training, if there is no such
            axis.

    Source: ``torch.nn.SyncBatchNorm``; Ioffe and Szegedy, 2015.

    Example:
        >>> layer = nn.SyncBatchNorm(3, axis_name="replicas")
        >>> run = js.vmap(lambda m, x: m(x), in_axes=(None, 0), axis_name="replicas")
        >>> run(layer, jnp.arange(12.0).reshape(4, 1, 3)).mean().round(3).item()
        0.0
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
        axis_name: str | Sequence[str] | None = None,
    ) -> None:
        _no_group(process_group)
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias
        )
        self.process_group = None
        self.axis_name = axis_name

    def _check(self, input: Array) -> None:
        if jnp.ndim(input) < 2:
            raise ValueError(f"{self._who()}: expected input (N, C, *), got {jnp.shape(input)}.")

    @classmethod
    def convert_sync_batchnorm(
        cls,
        module: Module,
        process_group: Any = None,
        *,
        axis_name: str | Sequence[str] | None = None,
    ) -> Module:
        """Put a :class:`SyncBatchNorm` in the place of each batch norm in a module.

        Parameters and buffers are handed on, so optimizers keep training them.

        Args:
            module: Where to look. It is changed.
            process_group: Has to be None.
            axis_name: The mapped axis, or several.

        Returns:
            The module, or, if it is a batch norm itself, the one in its place.

        Raises:
            ValueError: If there is a ``process_group``.

        Example:
            >>> net = nn.Sequential(nn.BatchNorm1d(3), nn.ReLU())
            >>> nn.SyncBatchNorm.convert_sync_batchnorm(net, axis_name="replicas")
            Sequential(
              (0): SyncBatchNorm(3, eps=1e-05, momentum=0.1, ...)
              (1): ReLU()
            )
        """
        _no_group(process_group)
        if isinstance(module, _BatchNorm):
            return cls._instead_of(module, axis_name)
        for name, child in module.named_children():
            new = cls.convert_sync_batchnorm(child, axis_name=axis_name)
            if new is not child:
                module.register_module(name, new)
        return module

    @classmethod
    def _instead_of(cls, norm: _BatchNorm, axis_name: str | Sequence[str] | None) -> SyncBatchNorm:
        new = cls(
            norm.num_features,
            norm.eps,
            norm.momentum,
            norm.affine,
            norm.track_running_stats,
            bias=norm.bias is not None,
            axis_name=axis_name,
        )
        for boxes in (norm._parameters, norm._buffers):
            for name, box in boxes.items():
                if box is not None:
                    setattr(new, name, box)
        new.train(norm.training)
        return new


def _no_group(process_group: Any) -> None:
    if process_group is not None:
        raise ValueError(
            "SyncBatchNorm: process_group is PyTorch's. Pass axis_name=, the mapped axis of "
            "js.vmap or jax.shard_map."
        )
