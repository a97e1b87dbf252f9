"""Losses as layers."""

from __future__ import annotations

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Buffer


class _Loss(Module):
    """What the losses share.

    Args:
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    def __init__(
        self, size_average: None = None, reduce: None = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        if size_average is not None or reduce is not None:
            raise ValueError(
                f"{type(self).__name__}: size_average and reduce aren't supported; use reduction=."
            )
        self.reduction = reduction


class _WeightedLoss(_Loss):
    """What the losses share that have weights.

    Args:
        weight: The weights, a buffer.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """

    weight: Buffer | None

    def __init__(
        self,
        weight: Array | None = None,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class MSELoss(_Loss):
    """Mean of squared differences: ``mean((x - y)^2)``.

    Args:
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Input: any
        - Target: the same
        - Output: ``()``; the input's with ``reduction="none"``

    Source: ``torch.nn.MSELoss``.

    Example:
        >>> float(nn.MSELoss()(jnp.array([1.0, 2.0]), jnp.array([0.0, 0.0])))
        2.5
    """

    def forward(self, input: Array, target: Array) -> Array:
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """Mean of absolute differences: ``mean(abs(x - y))``.

    Args:
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Input: any
        - Target: the same
        - Output: ``()``; the input's with ``reduction="none"``

    Source: ``torch.nn.L1Loss``.

    Example:
        >>> float(nn.L1Loss()(jnp.array([1.0, 2.0]), jnp.array([0.0, 0.0])))
        1.5
    """

    def forward(self, input: Array, target: Array) -> Array:
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Squared near zero, absolute further out: ``d^2 / (2 beta)`` and ``d - beta / 2``.

    Args:
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        beta: Where the parabola meets the line.

    Shape:
        - Input: any
        - Target: the same
        - Output: ``()``; the input's with ``reduction="none"``

    Source: ``torch.nn.SmoothL1Loss``; Girshick, 2015.

    Example:
        >>> float(nn.SmoothL1Loss()(jnp.array([1.0, 2.0]), jnp.array([0.0, 0.0])))
        1.0
    """

    def __init__(
        self,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Array, target: Array) -> Array:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Squared near zero, absolute further out: ``d^2 / 2`` and ``delta * (d - delta / 2)``.

    Args:
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        delta: Where the parabola meets the line.

    Shape:
        - Input: any
        - Target: the same
        - Output: ``()``; the input's with ``reduction="none"``

    Raises:
        TypeError: If ``delta`` isn't a number.

    Source: ``torch.nn.HuberLoss``; Huber, 1964.

    Example:
        >>> float(nn.HuberLoss()(jnp.array([1.0, 2.0]), jnp.array([0.0, 0.0])))
        1.0
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        if not isinstance(delta, int | float):
            raise TypeError(f"HuberLoss: expected delta to be a number, got {delta!r}.")
        self.delta = delta

    def forward(self, input: Array, target: Array) -> Array:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class CrossEntropyLoss(_WeightedLoss):
    """Cross entropy of logits: ``mean(-log_softmax(x)[y])``.

    Args:
        weight: A factor for each class, ``(C,)``; the mean is divided by the sum of the targets'.
        size_average: Not supported; use ``reduction``.
        ignore_index: Targets with this index count nothing.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: What part of a target is spread over all classes.

    Shape:
        - Input: logits, ``(N, C, *)`` or ``(C,)``
        - Target: class indices, ``(N, *)`` or ``()``; or probabilities, of the input's shape
        - Output: ``()``; ``(N, *)`` or ``()`` with ``reduction="none"``

    Source: ``torch.nn.CrossEntropyLoss``.

    Example:
        >>> loss = nn.CrossEntropyLoss()
        >>> round(float(loss(jnp.array([[2.0, 0.0]]), jnp.array([0]))), 3)
        0.127
    """

    def __init__(
        self,
        weight: Array | None = None,
        size_average: None = None,
        ignore_index: int = -100,
        reduce: None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Array, target: Array) -> Array:
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(_WeightedLoss):
    """Negative log-likelihood of log-probabilities: ``mean(-x[y])``.

    Args:
        weight: A factor for each class, ``(C,)``; the mean is divided by the sum of the targets'.
        size_average: Not supported; use ``reduction``.
        ignore_index: Targets with this index count nothing.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Input: log-probabilities, ``(N, C, *)`` or ``(C,)``
        - Target: class indices, ``(N, *)`` or ``()``
        - Output: ``()``; ``(N, *)`` or ``()`` with ``reduction="none"``

    Source: ``torch.nn.NLLLoss``.

    Example:
        >>> float(nn.NLLLoss()(jnp.array([[-0.5, -1.0]]), jnp.array([1])))
        1.0
    """

    def __init__(
        self,
        weight: Array | None = None,
        size_average: None = None,
        ignore_index: int = -100,
        reduce: None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Array, target: Array) -> Array:
        return F.nll_loss(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class BCELoss(_WeightedLoss):
    """Binary cross entropy of probabilities: ``mean(-y * log(x) - (1 - y) * log(1 - x))``.

    Args:
        weight: A factor that broadcasts to the input's shape.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Input: probabilities, any
        - Target: the same
        - Output: ``()``; the input's with ``reduction="none"``

    Source: ``torch.nn.BCELoss``.

    Example:
        >>> round(float(nn.BCELoss()(jnp.array([0.5]), jnp.array([1.0]))), 3)
        0.693
    """

    def forward(self, input: Array, target: Array) -> Array:
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross entropy of logits: ``BCELoss(sigmoid(x), y)``, computed stably.

    Args:
        weight: A factor that broadcasts to the input's shape.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        pos_weight: A factor for the positive part; broadcasts to the input's shape.

    Shape:
        - Input: logits, any
        - Target: probabilities, the same
        - Output: ``()``; the input's with ``reduction="none"``

    Source: ``torch.nn.BCEWithLogitsLoss``.

    Example:
        >>> round(float(nn.BCEWithLogitsLoss()(jnp.array([0.0]), jnp.array([1.0]))), 3)
        0.693
    """

    weight: Buffer | None
    pos_weight: Buffer | None

    def __init__(
        self,
        weight: Array | None = None,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
        pos_weight: Array | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Array, target: Array) -> Array:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class KLDivLoss(_Loss):
    """Kullback-Leibler divergence from log-probabilities: ``mean(y * (log(y) - x))``.

    Args:
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"batchmean"`` (the divergence of distributions), ``"sum"`` or
            ``"none"``.
        log_target: Whether the target holds logarithms too.

    Shape:
        - Input: log-probabilities, any
        - Target: probabilities, the same
        - Output: ``()``; the input's with ``reduction="none"``

    Source: ``torch.nn.KLDivLoss``.

    Example:
        >>> loss = nn.KLDivLoss(reduction="batchmean")
        >>> p = jnp.array([[0.25, 0.75]])
        >>> float(loss(jnp.log(p), p))
        0.0
    """

    def __init__(
        self,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Array, target: Array) -> Array:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)
