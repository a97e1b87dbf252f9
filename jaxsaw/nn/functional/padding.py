"""Padding of the last axes."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxsaw.nn.functional._common import ArrayLike

_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad(
    input: ArrayLike, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Array:
    """Pad the last axes.

    Args:
        input: Any shape.
        pad: ``(low, high)`` of the last axis, then of the one before it, and so on. Negative
            numbers crop.
        mode: ``"constant"``; or, for all spatial axes of ``(N, C, *)`` or ``(C, *)``,
            ``"reflect"``, ``"replicate"`` or ``"circular"``.
        value: What to fill with in mode ``"constant"``; 0 if None.

    Returns:
        The padded array.

    Raises:
        ValueError: If ``pad`` doesn't fit the shape or the mode.

    Source: ``torch.nn.functional.pad``.

    Example:
        >>> pad(jnp.array([1.0, 2.0]), (1, 2)).tolist()
        [0.0, 1.0, 2.0, 0.0, 0.0]
    """
    x, amounts = jnp.asarray(input), tuple(int(p) for p in pad)
    if mode != "constant" and mode not in _MODES:
        modes = ", ".join(("constant", *_MODES))
        raise ValueError(f"pad: expected mode to be one of {modes}, got {mode!r}.")
    if len(amounts) % 2 or len(amounts) > 2 * x.ndim:
        raise ValueError(
            f"pad: expected an even number of amounts, at most {2 * x.ndim} for input {x.shape}, "
            f"got {amounts}."
        )
    axes = len(amounts) // 2
    pairs = [(0, 0)] * (x.ndim - axes)
    pairs += [(amounts[2 * i], amounts[2 * i + 1]) for i in reversed(range(axes))]
    if any(n + low + high < 0 for n, (low, high) in zip(x.shape, pairs, strict=True)):
        raise ValueError(f"pad: {amounts} crops more of input {x.shape} than there is.")

    if mode == "constant":
        fill = np.array(0 if value is None else value, x.dtype)
        return lax.pad(x, fill, [(low, high, 0) for low, high in pairs])
    if value is not None:
        raise ValueError(f"pad: mode {mode!r} takes no value, got {value}.")
    if axes not in (1, 2, 3) or x.ndim not in (axes + 1, axes + 2):
        raise ValueError(
            f"pad: mode {mode!r} pads all spatial axes of (N, C, *) or (C, *), at most three: "
            f"got pad {amounts} for input {x.shape}."
        )
    crop = [(min(low, 0), min(high, 0), 0) for low, high in pairs]
    if any(low or high for low, high, _ in crop):
        x = lax.pad(x, np.zeros((), x.dtype), crop)
    grow = [(max(low, 0), max(high, 0)) for low, high in pairs]
    for n, most in zip(x.shape, map(max, grow), strict=True):
        if most and most > {"reflect": n - 1, "circular": n, "replicate": most if n else 0}[mode]:
            raise ValueError(f"pad: mode {mode!r} can't pad an axis of size {n} by {most}.")
    return jnp.pad(x, grow, mode=_MODES[mode])
