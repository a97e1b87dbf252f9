"""Normalisation: over the batch, over features, over groups of channels."""

import math
from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array, lax

from jaxsaw.nn.functional._common import ArrayLike, accumulator, floating, is_box


def batch_norm(
    input: ArrayLike,
    running_mean: ArrayLike | None,
    running_var: ArrayLike | None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Normalise each channel: ``y = (x - mean) / sqrt(var + eps) * weight + bias``.

    In training, mean and variance are the batch's, and those running statistics that are Variables
    become ``(1 - momentum) * running + momentum * batch`` (with the unbiased variance); plain
    arrays stay as they are. In evaluation, mean and variance are the running ones.

    Args:
        input: ``(N, C, *)``.
        running_mean: ``(C,)``; may be None in training.
        running_var: ``(C,)``; may be None in training.
        weight: ``(C,)``.
        bias: ``(C,)``.
        training: Use the batch's statistics.
        momentum: How far the running statistics move.
        eps: Added to the variance.

    Returns:
        ``(N, C, *)``, with the input's dtype; statistics are computed in float32 at least.

    Raises:
        ValueError: If a shape doesn't fit, or a channel has only one value in training.
        TypeError: If a dtype doesn't fit.

    Source: ``torch.nn.functional.batch_norm``; Ioffe and Szegedy, 2015.

    Example:
        >>> x = jnp.array([[1.0], [3.0]])
        >>> batch_norm(x, None, None, training=True).round(2).tolist()
        [[-1.0], [1.0]]
    """
    x = _channels("batch_norm", input)
    statistics = {"running_mean": running_mean, "running_var": running_var}
    running = {
        name: None if given is None else _affine("batch_norm", name, given, x.shape[1:2], x)
        for name, given in statistics.items()
    }
    if not training:
        mean, var = running["running_mean"], running["running_var"]
        if mean is None or var is None:
            raise ValueError("batch_norm: expected running_mean and running_var in evaluation.")
        return _per_channel("batch_norm", x, mean, var, weight, bias, eps)

    y, mean, var = batch_norm_train(x, weight, bias, eps)
    for name, new in (("running_mean", mean), ("running_var", var)):
        box, old = statistics[name], running[name]
        if old is not None and is_box(box):
            moved = (1 - momentum) * old.astype(new.dtype) + momentum * new
            box.value = lax.stop_gradient(moved).astype(old.dtype)  # type: ignore[union-attr]
    return y


def batch_norm_train(
    input: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
) -> tuple[Array, Array, Array]:
    """Normalise each channel by the batch's statistics, and return these too.

    Args:
        input: ``(N, C, *)``.
        weight: ``(C,)``.
        bias: ``(C,)``.
        eps: Added to the variance.

    Returns:
        ``(N, C, *)`` with the input's dtype; mean ``(C,)``; unbiased variance ``(C,)``. The last
        two are float32 at least.

    Raises:
        ValueError: If a shape doesn't fit, or a channel has only one value.
        TypeError: If a dtype doesn't fit.

    Source: ``torch.nn.functional.batch_norm``; Ioffe and Szegedy, 2015.

    Example:
        >>> y, mean, var = batch_norm_train(jnp.array([[1.0], [3.0]]))
        >>> mean.tolist(), var.tolist()
        ([2.0], [2.0])
    """
    x = _channels("batch_norm", input)
    count = x.size // x.shape[1] if x.shape[1] else 0
    if count < 2:
        raise ValueError(
            f"batch_norm: expected more than 1 value per channel in training, got input {x.shape}."
        )
    wide = x.astype(accumulator(x.dtype))
    axes = (0, *range(2, x.ndim))
    mean = wide.mean(axes)
    var = jnp.square(wide - _along_channels(mean, x.ndim)).mean(axes)
    y = _per_channel("batch_norm", x, mean, var, weight, bias, eps)
    return y, mean, var * (count / (count - 1))


def layer_norm(
    input: ArrayLike,
    normalized_shape: int | Sequence[int],
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
) -> Array:
    """Normalise over the last axes: ``y = (x - mean) / sqrt(var + eps) * weight + bias``.

    Args:
        input: ``(*, *normalized_shape)``.
        normalized_shape: Sizes of the last axes, over which mean and variance are taken.
        weight: ``normalized_shape``.
        bias: ``normalized_shape``.
        eps: Added to the variance.

    Returns:
        The input's shape and dtype; statistics are computed in float32 at least.

    Raises:
        ValueError: If a shape doesn't fit.
        TypeError: If a dtype doesn't fit.

    Source: ``torch.nn.functional.layer_norm``; Ba, Kiros and Hinton, 2016.

    Example:
        >>> layer_norm(jnp.array([[1.0, 3.0]]), (2,)).round(2).tolist()
        [[-1.0, 1.0]]
    """
    x, shape, axes = _last_axes("layer_norm", input, normalized_shape)
    wide = x.astype(accumulator(x.dtype))
    mean = wide.mean(axes, keepdims=True)
    centred = wide - mean
    y = centred * lax.rsqrt(jnp.square(centred).mean(axes, keepdims=True) + eps)
    if weight is not None:
        y = y * _affine("layer_norm", "weight", weight, shape, x).astype(y.dtype)
    if bias is not None:
        y = y + _affine("layer_norm", "bias", bias, shape, x).astype(y.dtype)
    return y.astype(x.dtype)


def rms_norm(
    input: ArrayLike,
    normalized_shape: int | Sequence[int],
    weight: ArrayLike | None = None,
    eps: float | None = None,
) -> Array:
    """Divide by the root mean square of the last axes: ``y = x / sqrt(mean(x^2) + eps) * weight``.

    Args:
        input: ``(*, *normalized_shape)``.
        normalized_shape: Sizes of the last axes, over which the mean is taken.
        weight: ``normalized_shape``.
        eps: Added to the mean of squares; None is the machine epsilon of the dtype in which it is
            computed (float32 for the narrower ones).

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: If a shape doesn't fit.
        TypeError: If a dtype doesn't fit.

    Source: ``torch.nn.functional.rms_norm``; Zhang and Sennrich, 2019.

    Example:
        >>> rms_norm(jnp.array([[3.0, 3.0]]), (2,)).round(2).tolist()
        [[1.0, 1.0]]
    """
    x, shape, axes = _last_axes("rms_norm", input, normalized_shape)
    wide = x.astype(accumulator(x.dtype))
    if eps is None:
        eps = float(jnp.finfo(wide.dtype).eps)
    y = wide * lax.rsqrt(jnp.square(wide).mean(axes, keepdims=True) + eps)
    if weight is not None:
        y = y * _affine("rms_norm", "weight", weight, shape, x).astype(y.dtype)
    return y.astype(x.dtype)


def group_norm(
    input: ArrayLike,
    num_groups: int,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
) -> Array:
    """Normalise each sample's groups of channels, then scale and shift each channel.

    Args:
        input: ``(N, C, *)``.
        num_groups: Into how many groups the channels are divided.
        weight: ``(C,)``.
        bias: ``(C,)``.
        eps: Added to the variance.

    Returns:
        The input's shape and dtype; statistics are computed in float32 at least.

    Raises:
        ValueError: If a shape doesn't fit, or there is only one value to normalise in all.
        TypeError: If a dtype doesn't fit.

    Source: ``torch.nn.functional.group_norm``; Wu and He, 2018.

    Example:
        >>> group_norm(jnp.array([[1.0, 3.0, 2.0, 6.0]]), 2).round(2).tolist()
        [[-1.0, 1.0, -1.0, 1.0]]
    """
    x = _channels("group_norm", input)
    n, channels = x.shape[:2]
    if num_groups < 1 or channels % num_groups:
        raise ValueError(f"group_norm: {channels} channels don't divide into {num_groups} groups.")
    if n * channels // num_groups * math.prod(x.shape[2:]) == 1:
        raise ValueError(f"group_norm: expected more than 1 value per group, got input {x.shape}.")
    size = channels // num_groups * math.prod(x.shape[2:])
    wide = x.astype(accumulator(x.dtype)).reshape(n, num_groups, size)
    centred = wide - wide.mean(2, keepdims=True)
    y = centred * lax.rsqrt(jnp.square(centred).mean(2, keepdims=True) + eps)
    y = y.reshape(x.shape)
    if weight is not None:
        scale = _affine("group_norm", "weight", weight, (channels,), x).astype(y.dtype)
        y = y * _along_channels(scale, x.ndim)
    if bias is not None:
        shift = _affine("group_norm", "bias", bias, (channels,), x).astype(y.dtype)
        y = y + _along_channels(shift, x.ndim)
    return y.astype(x.dtype)


def _per_channel(
    name: str,
    x: Array,
    mean: Array,
    var: Array,
    weight: ArrayLike | None,
    bias: ArrayLike | None,
    eps: float,
) -> Array:
    dtype = accumulator(x.dtype)
    scale = lax.rsqrt(var.astype(dtype) + eps)
    if weight is not None:
        scale = scale * _affine(name, "weight", weight, x.shape[1:2], x).astype(dtype)
    y = (x.astype(dtype) - _along_channels(mean.astype(dtype), x.ndim)) * _along_channels(
        scale, x.ndim
    )
    if bias is not None:
        shift = _affine(name, "bias", bias, x.shape[1:2], x).astype(dtype)
        y = y + _along_channels(shift, x.ndim)
    return y.astype(x.dtype)


def _along_channels(values: Array, ndim: int) -> Array:
    return values.reshape(-1, *(1,) * (ndim - 2))


def _channels(name: str, input: ArrayLike) -> Array:
    x = floating(name, input)
    if x.ndim < 2:
        raise ValueError(f"{name}: expected input (N, C, *), got {x.shape}.")
    return x


def _last_axes(
    name: str, input: ArrayLike, normalized_shape: int | Sequence[int]
) -> tuple[Array, tuple[int, ...], tuple[int, ...]]:
    x = floating(name, input)
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if not shape:
        raise ValueError(f"{name}: expected normalized_shape of at least one axis, got ().")
    if x.shape[-len(shape) :] != shape:
        sizes = ", ".join(map(str, shape))
        raise ValueError(f"{name}: expected input (*, {sizes}), got {x.shape}.")
    return x, shape, tuple(range(x.ndim - len(shape), x.ndim))


def _affine(name: str, argument: str, value: ArrayLike, shape: tuple[int, ...], x: Array) -> Array:
    """Return a weight, bias or statistic of this shape, and of the input's dtype or float32."""
    p = floating(name, value, argument)
    if p.shape != shape:
        raise ValueError(f"{name}: expected {argument} {shape} for input {x.shape}, got {p.shape}.")
    dtypes = {x.dtype.name, accumulator(x.dtype).name}
    if p.dtype.name not in dtypes:
        wanted = " or ".join(sorted(dtypes))
        raise TypeError(f"{name}: expected {argument} of dtype {wanted}, got {p.dtype}.")
    return p
