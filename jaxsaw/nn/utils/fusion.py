"""Batch norms folded into the layers before them, for evaluation."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

import jax.numpy as jnp
from jax import Array, lax

from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Parameter

Layer = TypeVar("Layer", bound=Module)


def fuse_conv_bn_eval(conv: Layer, bn: Module, transpose: bool = False) -> Layer:
    """Return a convolution that does what a convolution and a batch norm do in evaluation.

    Args:
        conv: The convolution, in evaluation mode.
        bn: The batch norm behind it, in evaluation mode, with running statistics.
        transpose: Whether the convolution is a transposed one.

    Returns:
        A new convolution; the old one is as it was.

    Raises:
        ValueError: If one of them is in training mode, or has no running statistics.

    Source: ``torch.nn.utils.fuse_conv_bn_eval``.

    Example:
        >>> conv, bn = nn.Conv1d(2, 3, 3, rngs=js.Rngs(params=0)).eval(), nn.BatchNorm1d(3).eval()
        >>> x = jnp.ones((1, 2, 5))
        >>> bool(jnp.allclose(fuse_conv_bn_eval(conv, bn)(x), bn(conv(x)), atol=1e-6))
        True
    """
    return _fused("fuse_conv_bn_eval", conv, bn, fuse_conv_bn_weights, transpose)


def fuse_conv_bn_weights(
    conv_w: Array,
    conv_b: Array | None,
    bn_rm: Array,
    bn_rv: Array,
    bn_eps: float,
    bn_w: Array | None,
    bn_b: Array | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of a convolution into which a batch norm is folded.

    Args:
        conv_w: The weight, ``(out, in / groups, *)``.
        conv_b: The bias, ``(out,)``, or None.
        bn_rm: The running mean, ``(out,)``.
        bn_rv: The running variance, ``(out,)``.
        bn_eps: What is added to the variance.
        bn_w: The norm's weight, or None.
        bn_b: The norm's bias, or None.
        transpose: Whether the weight is ``(in, out / groups, *)``.

    Returns:
        New Parameters.

    Source: ``torch.nn.utils.fuse_conv_bn_weights``.

    Example:
        >>> one = jnp.ones(3)
        >>> weight, bias = fuse_conv_bn_weights(jnp.ones((3, 2, 1)), None, one, one, 0.0, None, one)
        >>> weight.shape, bias.tolist()
        ((3, 2, 1), [0.0, 0.0, 0.0])
    """
    w = jnp.asarray(conv_w)
    shape = [1] * w.ndim
    shape[1 if transpose else 0] = -1
    return _folded(w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, tuple(shape))


def fuse_linear_bn_eval(linear: Layer, bn: Module) -> Layer:
    """Return a linear layer that does what a linear layer and a batch norm do in evaluation.

    Args:
        linear: The linear layer, in evaluation mode.
        bn: The batch norm behind it, in evaluation mode, with running statistics.

    Returns:
        A new linear layer; the old one is as it was.

    Raises:
        ValueError: If one of them is in training mode, has no running statistics, or the sizes
            don't fit.

    Source: ``torch.nn.utils.fuse_linear_bn_eval``.

    Example:
        >>> linear, bn = nn.Linear(2, 3, rngs=js.Rngs(params=0)).eval(), nn.BatchNorm1d(3).eval()
        >>> x = jnp.ones((4, 2))
        >>> bool(jnp.allclose(fuse_linear_bn_eval(linear, bn)(x), bn(linear(x)), atol=1e-6))
        True
    """
    norm: Any = bn
    layer: Any = linear
    features, wanted = norm.num_features, layer.out_features
    if features not in (wanted, 1):
        raise ValueError(
            f"fuse_linear_bn_eval: expected a norm of {wanted} features or 1, got {features}."
        )
    return _fused("fuse_linear_bn_eval", linear, bn, fuse_linear_bn_weights)


def fuse_linear_bn_weights(
    linear_w: Array,
    linear_b: Array | None,
    bn_rm: Array,
    bn_rv: Array,
    bn_eps: float,
    bn_w: Array | None,
    bn_b: Array | None,
) -> tuple[Parameter, Parameter]:
    """Return weight and bias of a linear layer into which a batch norm is folded.

    Args:
        linear_w: The weight, ``(out, in)``.
        linear_b: The bias, ``(out,)``, or None.
        bn_rm: The running mean, ``(out,)``.
        bn_rv: The running variance, ``(out,)``.
        bn_eps: What is added to the variance.
        bn_w: The norm's weight, or None.
        bn_b: The norm's bias, or None.

    Returns:
        New Parameters.

    Source: ``torch.nn.utils.fuse_linear_bn_weights``.

    Example:
        >>> one = jnp.ones(3)
        >>> weight, bias = fuse_linear_bn_weights(jnp.ones((3, 2)), None, one, one, 0.0, one, None)
        >>> weight.shape, bias.tolist()
        ((3, 2), [-1.0, -1.0, -1.0])
    """
    w = jnp.asarray(linear_w)
    return _folded(w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, (-1, 1))


def _folded(
    w: Array,
    b: Any,
    mean: Any,
    var: Any,
    eps: float,
    bn_w: Any,
    bn_b: Any,
    shape: tuple[int, ...],
) -> tuple[Parameter, Parameter]:
    wide = [None if x is None else jnp.asarray(x, jnp.float32) for x in (b, mean, var, bn_w, bn_b)]
    b, mean, var, bn_w, bn_b = wide
    scale = lax.rsqrt(var + eps) * (1 if bn_w is None else bn_w)
    bias = ((0 if b is None else b) - mean) * scale + (0 if bn_b is None else bn_b)
    weight = (w.astype(jnp.float32) * scale.reshape(shape)).astype(w.dtype)
    return Parameter.own(weight), Parameter.own(bias.astype(w.dtype))


def _fused(name: str, layer: Any, bn: Any, fold: Any, *more: Any) -> Any:
    if layer.training or bn.training:
        raise ValueError(f"{name}: expected both in evaluation mode. Call .eval() first.")
    if bn.running_mean is None or bn.running_var is None:
        raise ValueError(f"{name}: expected a norm with running statistics.")
    twin = deepcopy(layer)
    twin.weight, twin.bias = fold(
        layer.weight, layer.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, *more
    )
    return twin
