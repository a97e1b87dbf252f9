"""Normalisation: over the batch, over features, over groups of channels."""

import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxsaw.nn.functional._common import ArrayLike, accumulator, floating, ints, is_box


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
    return batch_norm_across(
        None, input, running_mean, running_var, weight, bias, training, momentum, eps
    )


def batch_norm_across(
    axis_name: str | Sequence[str] | None,
    input: ArrayLike,
    running_mean: ArrayLike | None,
    running_var: ArrayLike | None,
    weight: ArrayLike | None,
    bias: ArrayLike | None,
    training: bool,
    momentum: float | Array,
    eps: float,
) -> Array:
    """Do what :func:`batch_norm` does, with statistics of all lanes of mapped axes.

    Args:
        axis_name: The axes of ``js.vmap``, ``jax.shard_map`` or the like; None is no axis.
        input: As for :func:`batch_norm`, like all that follow.
        running_mean: ``(C,)``, or None.
        running_var: ``(C,)``, or None.
        weight: ``(C,)``, or None.
        bias: ``(C,)``, or None.
        training: Use the batch's statistics.
        momentum: How far the running statistics move.
        eps: Added to the variance.
    """
    x = _channels("batch_norm", input)
    mean, var = _running("batch_norm", x, running_mean, running_var)
    if not training:
        if mean is None or var is None:
            raise ValueError("batch_norm: expected running_mean and running_var in evaluation.")
        return _per_channel("batch_norm", x, mean, var, weight, bias, eps)
    y, mean, var = batch_norm_train(x, weight, bias, eps, axis_name)
    _move(running_mean, mean, momentum)
    _move(running_var, var, momentum)
    return y


def batch_norm_train(
    input: ArrayLike,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    eps: float = 1e-5,
    axis_name: str | Sequence[str] | None = None,
) -> tuple[Array, Array, Array]:
    """Normalise each channel by the batch's statistics, and return these too.

    Args:
        input: ``(N, C, *)``.
        weight: ``(C,)``.
        bias: ``(C,)``.
        eps: Added to the variance.
        axis_name: The mapped axes over whose lanes statistics are taken too.

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
    count = (x.size // x.shape[1] if x.shape[1] else 0) * _lanes(axis_name)
    if count < 2:
        raise ValueError(
            f"batch_norm: expected more than 1 value per channel in training, got input {x.shape}."
        )
    wide = x.astype(accumulator(x.dtype))
    axes = (0, *range(2, x.ndim))
    mean = _across(axis_name, wide.mean(axes))
    var = _across(axis_name, jnp.square(wide - _along_channels(mean, x.ndim)).mean(axes))
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
    return _scaled("group_norm", y.reshape(x.shape), weight, bias, x)


def instance_norm(
    input: ArrayLike,
    running_mean: ArrayLike | None = None,
    running_var: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    bias: ArrayLike | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Array:
    """Normalise each channel of each sample over its pixels.

    Running statistics that are Variables move towards the mean of the samples' statistics (with
    the unbiased variance), as in :func:`batch_norm`.

    Args:
        input: ``(N, C, *)`` with at least one more axis.
        running_mean: ``(C,)``; may be None where the samples' statistics are used.
        running_var: ``(C,)``, likewise.
        weight: ``(C,)``.
        bias: ``(C,)``.
        use_input_stats: Use the samples' statistics, instead of the running ones.
        momentum: How far the running statistics move.
        eps: Added to the variance.

    Returns:
        The input's shape and dtype; statistics are computed in float32 at least.

    Raises:
        ValueError: If a shape doesn't fit, or a channel has only one pixel.
        TypeError: If a dtype doesn't fit.

    Source: ``torch.nn.functional.instance_norm``; Ulyanov et al., 2016.

    Example:
        >>> instance_norm(jnp.array([[[1.0, 3.0], [2.0, 6.0]]])).round(2).tolist()
        [[[-1.0, 1.0], [-1.0, 1.0]]]
    """
    name = "instance_norm"
    x = _channels(name, input)
    mean, var = _running(name, x, running_mean, running_var)
    if not use_input_stats:
        if mean is None or var is None:
            raise ValueError(
                f"{name}: expected running_mean and running_var, or use_input_stats=True."
            )
        return _per_channel(name, x, mean, var, weight, bias, eps)
    count = math.prod(x.shape[2:])
    if x.ndim < 3 or count < 2:
        raise ValueError(f"{name}: expected more than 1 pixel per channel, got input {x.shape}.")
    wide = x.astype(accumulator(x.dtype))
    axes = tuple(range(2, x.ndim))
    mean = wide.mean(axes, keepdims=True)  # (N, C, 1, ...)
    centred = wide - mean
    var = jnp.square(centred).mean(axes, keepdims=True)
    y = _scaled(name, centred * lax.rsqrt(var + eps), weight, bias, x)
    _move(running_mean, mean.reshape(x.shape[:2]).mean(0), momentum)
    _move(running_var, var.reshape(x.shape[:2]).mean(0) * (count / (count - 1)), momentum)
    return y


def local_response_norm(
    input: ArrayLike, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Array:
    """Divide by a power of the neighbouring channels' mean square.

    ``y = x / (k + alpha * mean(x^2)) ** beta``, with a mean over ``size`` channels around each.

    Args:
        input: ``(N, C, *)`` with at least one more axis.
        size: How many channels; those beyond the first and the last are zero.
        alpha: Weight of the mean square.
        beta: The power.
        k: Added to the mean square.

    Returns:
        The input's shape and dtype.

    Raises:
        ValueError: If the shape doesn't fit, or ``size`` is less than 1.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.local_response_norm``; Krizhevsky et al., 2012.

    Example:
        >>> local_response_norm(jnp.ones((1, 3, 1)), 1, alpha=1.0, beta=1.0).ravel().tolist()
        [0.5, 0.5, 0.5]
    """
    x = floating("local_response_norm", input)
    if x.ndim < 3:
        raise ValueError(f"local_response_norm: expected input (N, C, *, *), got {x.shape}.")
    (size,) = ints("local_response_norm", "size", size, 1)
    return divide_by_neighbours(x, (size // 2, (size - 1) // 2), alpha / size, beta, k)


def divide_by_neighbours(
    x: Array,
    reach: tuple[int, int],
    alpha: float,
    beta: float,
    k: float,
    keep_first: bool = False,
) -> Array:
    """Return ``x / (k + alpha * sum(x^2)) ** beta``, with a sum over channels around each.

    Args:
        x: ``(N, C, *)``.
        reach: How many channels before it, and after it.
        alpha: Weight of the sum of squares.
        beta: The power.
        k: Added to the sum.
        keep_first: Count the first channel for all those after it.
    """
    wide = x.astype(accumulator(x.dtype))
    rest = (1,) * (x.ndim - 2)
    total = lax.reduce_window(
        jnp.square(wide),
        np.zeros((), wide.dtype),
        lax.add,
        (1, sum(reach) + 1, *rest),
        (1,) * x.ndim,
        [(0, 0), reach, *[(0, 0)] * len(rest)],
    )
    if keep_first:
        beyond = _along_channels(jnp.arange(x.shape[1]) > reach[0], x.ndim)
        total = total + jnp.where(beyond, jnp.square(wide[:, :1]), 0)
    return (wide / (total * alpha + k) ** beta).astype(x.dtype)


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
    return _scaled(name, y, None, bias, x)


def _scaled(
    name: str, y: Array, weight: ArrayLike | None, bias: ArrayLike | None, x: Array
) -> Array:
    """Return ``y * weight + bias`` by channel, in the dtype of the input ``x``."""
    if weight is not None:
        scale = _affine(name, "weight", weight, x.shape[1:2], x).astype(y.dtype)
        y = y * _along_channels(scale, x.ndim)
    if bias is not None:
        shift = _affine(name, "bias", bias, x.shape[1:2], x).astype(y.dtype)
        y = y + _along_channels(shift, x.ndim)
    return y.astype(x.dtype)


def _running(
    name: str, x: Array, mean: ArrayLike | None, var: ArrayLike | None
) -> tuple[Array | None, Array | None]:
    """Return the running statistics as arrays, each checked."""
    given = (("running_mean", mean), ("running_var", var))
    return tuple(  # type: ignore[return-value]
        None if value is None else _affine(name, argument, value, x.shape[1:2], x)
        for argument, value in given
    )


def _move(running: ArrayLike | None, new: Array, momentum: float | Array) -> None:
    """Move a running statistic towards a new one, if it is a Variable."""
    if running is not None and is_box(running):
        old = jnp.asarray(running)
        moved = (1 - momentum) * old.astype(new.dtype) + momentum * new
        running.value = lax.stop_gradient(moved).astype(old.dtype)  # type: ignore[union-attr]


def _lanes(axis_name: str | Sequence[str] | None) -> int:
    """Return over how many lanes mapped axes go."""
    if axis_name is None:
        return 1
    try:
        return lax.psum(1, axis_name)
    except NameError:
        raise ValueError(
            f"batch_norm: there is no mapped axis {axis_name!r} here. Call this inside of "
            f"js.vmap(..., axis_name={axis_name!r}) or jax.shard_map, or in evaluation."
        ) from None


def _across(axis_name: str | Sequence[str] | None, values: Array) -> Array:
    return values if axis_name is None else lax.pmean(values, axis_name)


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
