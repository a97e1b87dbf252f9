"""Losses with a margin, as layers."""

from __future__ import annotations

from collections.abc import Callable

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._loss import Loss
from jaxsaw.nn.distance import PairwiseDistance


class HingeEmbeddingLoss(Loss):
    """A distance where the target is 1, and ``max(0, margin - x)`` where it is -1.

    Args:
        margin: How far apart should be what isn't alike.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Input: distances, any
        - Target: 1 or -1, the same
        - Output: ``()``; the input's with ``reduction="none"``

    Source: ``torch.nn.HingeEmbeddingLoss``.

    Example:
        >>> float(nn.HingeEmbeddingLoss()(jnp.array([0.25, 0.25]), jnp.array([1, -1])))
        0.5
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input: Array, target: Array) -> Array:
        return F.hinge_embedding_loss(input, target, margin=self.margin, reduction=self.reduction)


class SoftMarginLoss(Loss):
    """Logistic loss of two classes: ``mean(log(1 + exp(-y * x)))``.

    Args:
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Input: scores, any
        - Target: 1 or -1, the same
        - Output: ``()``; the input's with ``reduction="none"``

    Source: ``torch.nn.SoftMarginLoss``.

    Example:
        >>> round(float(nn.SoftMarginLoss()(jnp.zeros(2), jnp.array([1.0, -1.0]))), 3)
        0.693
    """

    def forward(self, input: Array, target: Array) -> Array:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class CosineEmbeddingLoss(Loss):
    """``1 - cos(x1, x2)`` where the target is 1, and ``max(0, cos - margin)`` where it is -1.

    Args:
        margin: How large the cosine may be of what isn't alike.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Inputs: ``(N, D)`` or ``(D,)``
        - Target: 1 or -1, ``(N,)`` or ``()``
        - Output: ``()``; the target's with ``reduction="none"``

    Source: ``torch.nn.CosineEmbeddingLoss``.

    Example:
        >>> loss = nn.CosineEmbeddingLoss()
        >>> float(loss(jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 1.0]]), jnp.array([1])))
        1.0
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Array, input2: Array, target: Array) -> Array:
        return F.cosine_embedding_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class MarginRankingLoss(Loss):
    """Hinge of a ranking: ``mean(max(0, margin - y * (x1 - x2)))``.

    Args:
        margin: By how much one should be above the other.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Inputs: any
        - Target: 1 or -1, the same
        - Output: ``()``; the inputs' with ``reduction="none"``

    Source: ``torch.nn.MarginRankingLoss``.

    Example:
        >>> loss = nn.MarginRankingLoss()
        >>> float(loss(jnp.array([2.0]), jnp.array([3.0]), jnp.array([1.0])))
        1.0
    """

    def __init__(
        self,
        margin: float = 0.0,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(self, input1: Array, input2: Array, target: Array) -> Array:
        return F.margin_ranking_loss(
            input1, input2, target, margin=self.margin, reduction=self.reduction
        )


class TripletMarginLoss(Loss):
    """Hinge of distances: ``mean(max(0, margin + |a - p| - |a - n|))``.

    Args:
        margin: How much further away the negative should be.
        p: Which norm.
        eps: Added to each difference.
        swap: Take the distance from negative to positive where that is shorter.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Anchor, positive and negative: ``(N, D)`` or ``(D,)``
        - Output: ``()``; ``(N,)`` with ``reduction="none"``

    Raises:
        ValueError: If ``margin`` isn't positive.

    Source: ``torch.nn.TripletMarginLoss``; Balntas et al., 2016.

    Example:
        >>> a, p, n = jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.array([[0.0, 0.25]])
        >>> round(float(nn.TripletMarginLoss()(a, p, n)), 3)
        0.75
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        _check_margin(type(self).__name__, margin)
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Array, positive: Array, negative: Array) -> Array:
        return F.triplet_margin_loss(
            anchor,
            positive,
            negative,
            margin=self.margin,
            p=self.p,
            eps=self.eps,
            swap=self.swap,
            reduction=self.reduction,
        )


class TripletMarginWithDistanceLoss(Loss):
    """Hinge of any distances: ``mean(max(0, margin + d(a, p) - d(a, n)))``.

    Args:
        distance_function: The distance ``d``, also a module; ``PairwiseDistance()`` if None.
        margin: How much further away the negative should be.
        swap: Take the distance from positive to negative where that is shorter.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Anchor, positive and negative: what ``distance_function`` takes
        - Output: ``()``; what ``distance_function`` gives with ``reduction="none"``

    Raises:
        ValueError: If ``margin`` isn't positive.

    Source: ``torch.nn.TripletMarginWithDistanceLoss``; Balntas et al., 2016.

    Example:
        >>> loss = nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance(1.0))
        >>> a, p, n = jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.array([[0.0, 0.25]])
        >>> round(float(loss(a, p, n)), 3)
        0.75
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Array, Array], Array] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        _check_margin(type(self).__name__, margin)
        self.distance_function: Callable[[Array, Array], Array] = (
            PairwiseDistance() if distance_function is None else distance_function
        )
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Array, positive: Array, negative: Array) -> Array:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


def _check_margin(name: str, margin: float) -> None:
    if margin <= 0:
        raise ValueError(f"{name}: expected margin above 0, got {margin}.")
