"""Losses with a margin: hinges, rankings, triplets.

They are computed in float32 at least, and returned in the input's dtype.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from jaxsaw.nn.functional._common import ArrayLike, accumulator, floating, promote
from jaxsaw.nn.functional._loss import check_broadcast, check_reduction, reduced
from jaxsaw.nn.functional.distance import pairwise_distance


def hinge_embedding_loss(
    input: ArrayLike,
    target: ArrayLike,
    margin: float = 1.0,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Take a distance where the target is 1, and ``max(0, margin - input)`` where it is -1.

    Args:
        input: Distances, any shape.
        target: 1 for what is alike and -1 for what isn't, of a shape that broadcasts with it.
        margin: How far apart should be what isn't alike.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or the shape of the inputs for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.hinge_embedding_loss``.

    Example:
        >>> x, y = jnp.array([0.25, 0.25]), jnp.array([1, -1])
        >>> hinge_embedding_loss(x, y, reduction="none").tolist()
        [0.25, 0.75]
    """
    name = "hinge_embedding_loss"
    check_reduction(name, reduction, size_average, reduce)
    x, goal, out = _pair(name, input, target)
    loss = jnp.where(goal == -1, 0, x) + jnp.where(goal == 1, 0, _positive(margin - x))
    return reduced(loss, reduction).astype(out)


def soft_margin_loss(
    input: ArrayLike,
    target: ArrayLike,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Take ``log(1 + exp(-target * input))``, for targets 1 and -1.

    Args:
        input: Scores, any shape.
        target: 1 or -1, of a shape that broadcasts with it.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or the shape of the inputs for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit.
        TypeError: If the input isn't floating.

    Source: ``torch.nn.functional.soft_margin_loss``.

    Example:
        >>> round(soft_margin_loss(jnp.zeros(2), jnp.array([1, -1])).item(), 4)
        0.6931
    """
    name = "soft_margin_loss"
    check_reduction(name, reduction, size_average, reduce)
    x, goal, out = _pair(name, input, target)
    return reduced(jax.nn.softplus(-goal * x), reduction).astype(out)


def cosine_embedding_loss(
    input1: ArrayLike,
    input2: ArrayLike,
    target: ArrayLike,
    margin: float = 0,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Take ``1 - cos`` where the target is 1, and ``max(0, cos - margin)`` where it is -1.

    Args:
        input1: ``(N, D)`` or ``(D,)``.
        input2: The same shape, or one that broadcasts.
        target: 1 for what is alike and -1 for what isn't, ``(N,)`` or ``()``.
        margin: How large the cosine may be of what isn't alike.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N,)`` or ``()`` for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit.
        TypeError: If the inputs aren't floating.

    Source: ``torch.nn.functional.cosine_embedding_loss``.

    Example:
        >>> a, b = jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])
        >>> cosine_embedding_loss(a, b, jnp.array(1)).item()
        1.0
    """
    name = "cosine_embedding_loss"
    check_reduction(name, reduction, size_average, reduce)
    a, b = promote(floating(name, input1, "input1"), floating(name, input2, "input2"))
    goal = jnp.asarray(target)
    if goal.ndim not in (0, 1) or a.ndim != goal.ndim + 1 or b.ndim != goal.ndim + 1:
        raise ValueError(
            f"{name}: expected inputs (N, D) and target (N,), or (D,) and (), "
            f"got {a.shape}, {b.shape} and {goal.shape}."
        )
    check_broadcast(name, a, b)
    out, (a, b) = a.dtype, (v.astype(accumulator(a.dtype)) for v in (a, b))
    squares = (jnp.square(a).sum(-1) + 1e-12) * (jnp.square(b).sum(-1) + 1e-12)
    cosine = (a * b).sum(-1) / jnp.sqrt(squares)
    check_broadcast(name, cosine, goal)
    apart = jnp.where(goal == -1, _positive(cosine - margin), 0)
    return reduced(jnp.where(goal == 1, 1 - cosine, apart), reduction).astype(out)


def margin_ranking_loss(
    input1: ArrayLike,
    input2: ArrayLike,
    target: ArrayLike,
    margin: float = 0,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Take ``max(0, margin - target * (input1 - input2))``.

    Args:
        input1: Scores, any shape.
        input2: Scores, a shape that broadcasts with it.
        target: 1 where the first should be larger and -1 where the second should, likewise.
        margin: By how much.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or the shape of the inputs for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit.
        TypeError: If the inputs aren't floating.

    Source: ``torch.nn.functional.margin_ranking_loss``.

    Example:
        >>> margin_ranking_loss(jnp.array([2.0]), jnp.array([3.0]), jnp.array([1])).item()
        1.0
    """
    name = "margin_ranking_loss"
    check_reduction(name, reduction, size_average, reduce)
    given = (floating(name, input1, "input1"), floating(name, input2, "input2"))
    a, b, goal = promote(*given, jnp.asarray(target))
    _check_axes(name, input1=a, input2=b, target=goal)
    check_broadcast(name, a, b)
    out, (a, b, goal) = a.dtype, (v.astype(accumulator(a.dtype)) for v in (a, b, goal))
    gap = a - b
    check_broadcast(name, gap, goal)
    return reduced(_positive(margin - goal * gap), reduction).astype(out)


def triplet_margin_loss(
    anchor: ArrayLike,
    positive: ArrayLike,
    negative: ArrayLike,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: None = None,
    reduce: None = None,
    reduction: str = "mean",
) -> Array:
    """Take ``max(0, margin + |anchor - positive| - |anchor - negative|)``.

    Args:
        anchor: ``(N, D)`` or ``(D,)``.
        positive: What is like the anchor, a shape that broadcasts with it.
        negative: What isn't, likewise.
        margin: How much further away the negative should be.
        p: Which norm; see :func:`pairwise_distance`.
        eps: Added to each difference.
        swap: Take the distance from negative to positive where that is shorter.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or ``(N,)`` or ``()`` for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit, or ``margin`` isn't positive.
        TypeError: If the inputs aren't floating.

    Source: ``torch.nn.functional.triplet_margin_loss``; Balntas et al., 2016.

    Example:
        >>> a, p, n = jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.array([[0.0, 0.25]])
        >>> round(triplet_margin_loss(a, p, n).item(), 3)
        0.75
    """
    name = "triplet_margin_loss"
    check_reduction(name, reduction, size_average, reduce)
    distance = lambda a, b: pairwise_distance(a, b, p, eps)
    return _triplet(name, (anchor, positive, negative), distance, margin, swap, reduction)


def triplet_margin_with_distance_loss(
    anchor: ArrayLike,
    positive: ArrayLike,
    negative: ArrayLike,
    *,
    distance_function: Callable[[Array, Array], Array] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Array:
    """Take ``max(0, margin + d(anchor, positive) - d(anchor, negative))``.

    Args:
        anchor: Any shape that ``distance_function`` takes.
        positive: What is like the anchor.
        negative: What isn't.
        distance_function: The distance ``d``; :func:`pairwise_distance` if None.
        margin: How much further away the negative should be.
        swap: Take the distance from positive to negative where that is shorter.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Returns:
        A scalar, or the distances' shape for ``"none"``.

    Raises:
        ValueError: If shapes or ``reduction`` don't fit, or ``margin`` isn't positive.
        TypeError: If the inputs aren't floating.

    Source: ``torch.nn.functional.triplet_margin_with_distance_loss``; Balntas et al., 2016.

    Example:
        >>> city = lambda a, b: abs(a - b).sum(-1)
        >>> a, p, n = jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.array([[0.0, 0.25]])
        >>> triplet_margin_with_distance_loss(a, p, n, distance_function=city).item()
        0.75
    """
    name = "triplet_margin_with_distance_loss"
    check_reduction(name, reduction)
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(name, (anchor, positive, negative), distance, margin, swap, reduction)


def _triplet(
    name: str,
    given: tuple[ArrayLike, ArrayLike, ArrayLike],
    distance: Callable[[Array, Array], Array],
    margin: float,
    swap: bool,
    reduction: str,
) -> Array:
    if margin <= 0:
        raise ValueError(f"{name}: expected margin above 0, got {margin}.")
    names = ("anchor", "positive", "negative")
    arrays = promote(*(floating(name, x, n) for x, n in zip(given, names, strict=True)))
    _check_axes(name, **dict(zip(names, arrays, strict=True)))
    anchor, positive, negative = (x.astype(accumulator(x.dtype)) for x in arrays)
    near, far = distance(anchor, positive), distance(anchor, negative)
    far = jnp.minimum(far, distance(positive, negative)) if swap else far
    return reduced(_positive(margin + near - far), reduction).astype(arrays[0].dtype)


def _pair(name: str, input: ArrayLike, target: ArrayLike) -> tuple[Array, Array, jnp.dtype]:
    """Return both in the dtype to compute in, and the dtype to return."""
    x, goal = promote(floating(name, input), jnp.asarray(target))
    check_broadcast(name, x, goal)
    wide = accumulator(x.dtype)
    return x.astype(wide), goal.astype(wide), x.dtype


def _positive(x: Array) -> Array:
    """Return ``max(0, x)`` with PyTorch's gradient at 0, which is 1 for this."""
    return jnp.where(x < 0, 0, x)


def _check_axes(name: str, **arrays: Array) -> None:
    if len({x.ndim for x in arrays.values()}) > 1:
        came = ", ".join(f"{argument} {x.shape}" for argument, x in arrays.items())
        raise ValueError(f"{name}: expected one number of axes, got {came}.")
