"""Convolutions over one, two and three spatial axes, channels first."""

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
    x, batched = with_batch(name, jnp.asarray(input), spatial)
    w = jnp.asarray(weight)
    b = None if bias is None else jnp.asarray(bias)
    if w.ndim != spatial + 2:
        raise ValueError(
            f"{name}: expected weight of {spatial + 2} dimensions (out, in / groups, *kernel), "
            f"got {w.shape}."
        )
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
    if b is not None and b.shape != w.shape[:1]:
        raise ValueError(f"{name}: expected bias {w.shape[:1]}, got {b.shape}.")
    same_dtype(name, input=x, weight=w, bias=b)

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

    axes = "DHW"[3 - spatial :]
    y = lax.conv_general_dilated(
        x,
        w,
        window_strides=steps,
        padding=pads,
        rhs_dilation=dilations,
        dimension_numbers=(f"NC{axes}", f"OI{axes}", f"NC{axes}"),
        feature_group_count=groups,
    )
    if b is not None:
        y = y + b.reshape(-1, *(1,) * spatial)
    return y if batched else y[0]


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
