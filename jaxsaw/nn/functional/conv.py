"""Convolutions over one, two and three spatial axes, channels first, and their transposes."""

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from jaxsaw.nn.functional._common import ArrayLike, IntOrInts, ints, same_dtype, with_batch


def conv1d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts | str = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Array:
    """Convolve over one spatial axis (a cross-correlation: the kernel isn't flipped).

    Args:
        input: ``(N, C, L)`` or ``(C, L)``.
        weight: ``(out_channels, C / groups, kernel)``.
        bias: ``(out_channels,)``.
        stride: Step between the kernel's positions.
        padding: Zeros on both sides; ``"valid"`` is none, ``"same"`` keeps the length (stride 1).
        dilation: Step between the kernel's elements.
        groups: Parts of the channels that don't mix.

    Returns:
        ``(N, out_channels, L')`` or ``(out_channels, L')`` with
        ``L' = (L + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1``.

    Raises:
        ValueError: If shapes or settings don't fit.
        TypeError: If the dtypes differ.

    Source: ``torch.nn.functional.conv1d``.

    Example:
        >>> conv1d(jnp.ones((8, 3, 10)), jnp.ones((4, 3, 5)), padding="same").shape
        (8, 4, 10)
    """
    return _conv("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts | str = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Array:
    """Convolve over two spatial axes (a cross-correlation: the kernel isn't flipped).

    Args:
        input: ``(N, C, H, W)`` or ``(C, H, W)``.
        weight: ``(out_channels, C / groups, kernel_h, kernel_w)``.
        bias: ``(out_channels,)``.
        stride: Step between the kernel's positions, one int or one an axis.
        padding: Zeros on both sides; ``"valid"`` is none, ``"same"`` keeps the size (stride 1).
        dilation: Step between the kernel's elements.
        groups: Parts of the channels that don't mix.

    Returns:
        ``(N, out_channels, H', W')`` or ``(out_channels, H', W')``; sizes as in :func:`conv1d`.

    Raises:
        ValueError: If shapes or settings don't fit.
        TypeError: If the dtypes differ.

    Source: ``torch.nn.functional.conv2d``.

    Example:
        >>> conv2d(jnp.ones((8, 3, 10, 10)), jnp.ones((4, 3, 3, 3)), stride=2).shape
        (8, 4, 4, 4)
    """
    return _conv("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts | str = 0,
    dilation: IntOrInts = 1,
    groups: int = 1,
) -> Array:
    """Convolve over three spatial axes (a cross-correlation: the kernel isn't flipped).

    Args:
        input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``.
        weight: ``(out_channels, C / groups, kernel_d, kernel_h, kernel_w)``.
        bias: ``(out_channels,)``.
        stride: Step between the kernel's positions, one int or one an axis.
        padding: Zeros on both sides; ``"valid"`` is none, ``"same"`` keeps the size (stride 1).
        dilation: Step between the kernel's elements.
        groups: Parts of the channels that don't mix.

    Returns:
        ``(N, out_channels, D', H', W')`` or without the ``N``; sizes as in :func:`conv1d`.

    Raises:
        ValueError: If shapes or settings don't fit.
        TypeError: If the dtypes differ.

    Source: ``torch.nn.functional.conv3d``.

    Example:
        >>> conv3d(jnp.ones((1, 2, 4, 4, 4)), jnp.ones((4, 1, 3, 3, 3)), groups=2).shape
        (1, 4, 2, 2, 2)
    """
    return _conv("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Array:
    """Spread each position of the input over one spatial axis: the transpose of :func:`conv1d`.

    Args:
        input: ``(N, C, L)`` or ``(C, L)``.
        weight: ``(C, out_channels / groups, kernel)``.
        bias: ``(out_channels,)``.
        stride: Step between the positions in the output.
        padding: What is cut from both sides of the output.
        output_padding: What is added at its end; less than ``stride`` or ``dilation``.
        groups: Parts of the channels that don't mix.
        dilation: Step between the kernel's elements.

    Returns:
        ``(N, out_channels, L')`` or ``(out_channels, L')``, with
        ``L' = (L - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1``.

    Raises:
        ValueError: If shapes or settings don't fit.
        TypeError: If the dtypes differ.

    Source: ``torch.nn.functional.conv_transpose1d``.

    Example:
        >>> conv_transpose1d(jnp.ones((8, 3, 10)), jnp.ones((3, 4, 2)), stride=2).shape
        (8, 4, 20)
    """
    return _conv_transpose(
        "conv_transpose1d",
        1,
        input,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )


def conv_transpose2d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Array:
    """Spread each position of the input over two spatial axes: the transpose of :func:`conv2d`.

    Args:
        input: ``(N, C, H, W)`` or ``(C, H, W)``.
        weight: ``(C, out_channels / groups, kernel_h, kernel_w)``.
        bias: ``(out_channels,)``.
        stride: Step between the positions in the output, one int or one an axis.
        padding: What is cut from both sides of the output.
        output_padding: What is added at its end; less than ``stride`` or ``dilation``.
        groups: Parts of the channels that don't mix.
        dilation: Step between the kernel's elements.

    Returns:
        ``(N, out_channels, H', W')`` or ``(out_channels, H', W')``, sizes as in
        :func:`conv_transpose1d`.

    Raises:
        ValueError: If shapes or settings don't fit.
        TypeError: If the dtypes differ.

    Source: ``torch.nn.functional.conv_transpose2d``.

    Example:
        >>> conv_transpose2d(jnp.ones((8, 3, 5, 5)), jnp.ones((3, 4, 3, 3)), stride=2).shape
        (8, 4, 11, 11)
    """
    return _conv_transpose(
        "conv_transpose2d",
        2,
        input,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )


def conv_transpose3d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: IntOrInts = 1,
    padding: IntOrInts = 0,
    output_padding: IntOrInts = 0,
    groups: int = 1,
    dilation: IntOrInts = 1,
) -> Array:
    """Spread each position of the input over three spatial axes: the transpose of :func:`conv3d`.

    Args:
        input: ``(N, C, D, H, W)`` or ``(C, D, H, W)``.
        weight: ``(C, out_channels / groups, kernel_d, kernel_h, kernel_w)``.
        bias: ``(out_channels,)``.
        stride: Step between the positions in the output, one int or one an axis.
        padding: What is cut from both sides of the output.
        output_padding: What is added at its end; less than ``stride`` or ``dilation``.
        groups: Parts of the channels that don't mix.
        dilation: Step between the kernel's elements.

    Returns:
        ``(N, out_channels, D', H', W')`` or ``(out_channels, D', H', W')``, sizes as in
        :func:`conv_transpose1d`.

    Raises:
        ValueError: If shapes or settings don't fit.
        TypeError: If the dtypes differ.

    Source: ``torch.nn.functional.conv_transpose3d``.

    Example:
        >>> conv_transpose3d(jnp.ones((2, 4, 4, 4)), jnp.ones((2, 3, 2, 2, 2))).shape
        (3, 5, 5, 5)
    """
    return _conv_transpose(
        "conv_transpose3d",
        3,
        input,
        weight,
        bias,
        stride,
        padding,
        output_padding,
        groups,
        dilation,
    )


def conv_tbc(input: ArrayLike, weight: ArrayLike, bias: ArrayLike, pad: int = 0) -> Array:
    """Convolve over time, in the order time, batch, channels.

    Args:
        input: ``(T, N, C)``.
        weight: ``(kernel, C, out_channels)``.
        bias: ``(out_channels,)``.
        pad: Zeros on both sides.

    Returns:
        ``(T', N, out_channels)`` with ``T' = T + 2 * pad - kernel + 1``.

    Raises:
        ValueError: If the shapes don't fit.
        TypeError: If the dtypes differ.

    Source: ``torch.nn.functional.conv_tbc``.

    Example:
        >>> conv_tbc(jnp.ones((10, 8, 3)), jnp.ones((5, 3, 4)), jnp.zeros(4), pad=2).shape
        (10, 8, 4)
    """
    x, w = jnp.asarray(input), jnp.asarray(weight)
    if x.ndim != 3 or w.ndim != 3:
        raise ValueError(
            f"conv_tbc: expected input (T, N, C) and weight (kernel, C, out), "
            f"got {x.shape} and {w.shape}."
        )
    x, w = jnp.moveaxis(x, 0, -1), w.transpose(2, 1, 0)
    return jnp.moveaxis(_conv("conv_tbc", 1, x, w, bias, 1, pad, 1, 1), -1, 0)


def _conv(
    name: str,
    spatial: int,
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None,
    stride: IntOrInts,
    padding: IntOrInts | str,
    dilation: IntOrInts,
    groups: int,
) -> Array:
    x, w, b, batched = _arrays(name, spatial, input, weight, bias, "(out, in / groups, *kernel)")
    steps = ints(name, "stride", stride, spatial)
    dilations = ints(name, "dilation", dilation, spatial)
    (groups,) = ints(name, "groups", groups, 1)
    if w.shape[0] % groups:
        raise ValueError(f"{name}: {w.shape[0]} output channels don't divide into {groups} groups.")
    if x.shape[1] != w.shape[1] * groups:
        raise ValueError(
            f"{name}: expected input with {w.shape[1] * groups} channels for weight {w.shape} and "
            f"groups={groups}, got {jnp.shape(x) if batched else x.shape[1:]}."
        )
    reach = [d * (k - 1) for d, k in zip(dilations, w.shape[2:], strict=True)]
    if isinstance(padding, str):
        pads = _named_padding(name, padding, reach, steps)
    else:
        pads = [(p, p) for p in ints(name, "padding", padding, spatial, minimum=0)]
    sizes = [n + low + high for n, (low, high) in zip(x.shape[2:], pads, strict=True)]
    if any(size <= r for size, r in zip(sizes, reach, strict=True)):
        kernel = tuple(r + 1 for r in reach)
        raise ValueError(
            f"{name}: the kernel reaches over {kernel}, more than the padded input {tuple(sizes)}."
        )
    y = _correlate(
        name,
        x,
        w,
        b,
        window_strides=steps,
        padding=pads,
        rhs_dilation=dilations,
        feature_group_count=groups,
    )
    return y if batched else y[0]


def _conv_transpose(
    name: str,
    spatial: int,
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None,
    stride: IntOrInts,
    padding: IntOrInts,
    output_padding: IntOrInts,
    groups: int,
    dilation: IntOrInts,
) -> Array:
    x, w, b, batched = _arrays(name, spatial, input, weight, bias, "(in, out / groups, *kernel)")
    steps = ints(name, "stride", stride, spatial)
    dilations = ints(name, "dilation", dilation, spatial)
    cuts = ints(name, "padding", padding, spatial, minimum=0)
    extras = ints(name, "output_padding", output_padding, spatial, minimum=0)
    (groups,) = ints(name, "groups", groups, 1)
    if any(e >= max(s, d) for e, s, d in zip(extras, steps, dilations, strict=True)):
        raise ValueError(
            f"{name}: expected output_padding below stride {steps} or dilation {dilations}, "
            f"got {extras}."
        )
    if w.shape[0] % groups:
        raise ValueError(f"{name}: {w.shape[0]} input channels don't divide into {groups} groups.")
    if x.shape[1] != w.shape[0]:
        raise ValueError(
            f"{name}: expected input with {w.shape[0]} channels for weight {w.shape}, "
            f"got {jnp.shape(x) if batched else x.shape[1:]}."
        )
    reach = [d * (k - 1) for d, k in zip(dilations, w.shape[2:], strict=True)]
    pads = [(r - cut, r - cut + e) for r, cut, e in zip(reach, cuts, extras, strict=True)]
    sizes = [
        (n - 1) * s + 1 + low + high - r
        for n, s, (low, high), r in zip(x.shape[2:], steps, pads, reach, strict=True)
    ]
    if min(sizes) < 1:
        raise ValueError(f"{name}: nothing is left of input {x.shape} with padding {cuts}.")
    # The input with gaps, correlated with the flipped kernel.
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).swapaxes(1, 2)
    w = w.reshape(groups * w.shape[1], *w.shape[2:])  # (out, in / groups, *kernel)
    y = _correlate(
        name,
        x,
        jnp.flip(w, range(2, w.ndim)),
        b,
        window_strides=(1,) * spatial,
        padding=pads,
        lhs_dilation=steps,
        rhs_dilation=dilations,
        feature_group_count=groups,
    )
    return y if batched else y[0]


def _arrays(
    name: str,
    spatial: int,
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None,
    layout: str,
) -> tuple[Array, Array, Array | None, bool]:
    """Return input with a batch axis, weight and bias, and whether the input came with one."""
    x, batched = with_batch(name, jnp.asarray(input), spatial)
    w = jnp.asarray(weight)
    b = None if bias is None else jnp.asarray(bias)
    if w.ndim != spatial + 2:
        raise ValueError(
            f"{name}: expected weight of {spatial + 2} dimensions {layout}, got {w.shape}."
        )
    same_dtype(name, input=x, weight=w, bias=b)
    return x, w, b, batched


def _correlate(name: str, x: Array, w: Array, b: Array | None, **settings: Any) -> Array:
    """Correlate ``x`` with a weight ``(out, in / groups, *kernel)``, and add the bias."""
    if b is not None and b.shape != w.shape[:1]:
        raise ValueError(f"{name}: expected bias {w.shape[:1]}, got {b.shape}.")
    axes = "DHW"[5 - x.ndim :]
    numbers = (f"NC{axes}", f"OI{axes}", f"NC{axes}")
    y = lax.conv_general_dilated(x, w, dimension_numbers=numbers, **settings)
    return y if b is None else y + b.reshape(-1, *(1,) * (x.ndim - 2))


def _named_padding(
    name: str, padding: str, reach: list[int], steps: tuple[int, ...]
) -> list[tuple[int, int]]:
    if padding == "valid":
        return [(0, 0)] * len(reach)
    if padding != "same":
        raise ValueError(f"{name}: expected padding of ints, 'same' or 'valid', got {padding!r}.")
    if any(s != 1 for s in steps):
        raise ValueError(f"{name}: padding='same' needs stride 1, got {steps}.")
    # The odd one out goes to the end.
    return [(r // 2, r - r // 2) for r in reach]
