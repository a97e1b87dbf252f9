"""Losses of numbers and of distributions, as layers."""

from __future__ import annotations

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._loss import Loss, WeightedLoss
from jaxsaw.nn.parameter import Buffer


class MSELoss(Loss):
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


class L1Loss(Loss):
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


class SmoothL1Loss(Loss):
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


class HuberLoss(Loss):
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


class BCELoss(WeightedLoss):
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


class BCEWithLogitsLoss(Loss):
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


class KLDivLoss(Loss):
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


class PoissonNLLLoss(Loss):
    """Minus the log-likelihood of counts under a Poisson distribution: ``mean(exp(x) - y * x)``.

    Args:
        log_input: False means that the input is the rate itself, not its logarithm.
        full: Add Stirling's formula for ``log(target!)``.
        size_average: Not supported; use ``reduction``.
        eps: Keeps the logarithm of a rate finite.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Input: any
        - Target: the same
        - Output: ``()``; the input's with ``reduction="none"``

    Source: ``torch.nn.PoissonNLLLoss``.

    Example:
        >>> float(nn.PoissonNLLLoss()(jnp.zeros(2), jnp.array([0.0, 3.0])))
        1.0
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: None = None,
        eps: float = 1e-8,
        reduce: None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Array, target: Array) -> Array:
        return F.poisson_nll_loss(
            log_input,
            target,
            log_input=self.log_input,
            full=self.full,
            eps=self.eps,
            reduction=self.reduction,
        )


class GaussianNLLLoss(Loss):
    """Minus the log-likelihood under a normal distribution: ``mean(log(v) + (x - y)^2 / v) / 2``.

    Args:
        full: Add the constant ``log(2 * pi) / 2``.
        eps: The least variance.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Input: any
        - Target: the same
        - Var: the same, the same without the last axis, or with one axis of size 1
        - Output: ``()``; the input's with ``reduction="none"``

    Source: ``torch.nn.GaussianNLLLoss``; Nix and Weigend, 1994.

    Example:
        >>> float(nn.GaussianNLLLoss()(jnp.zeros(2), jnp.array([0.0, 2.0]), jnp.ones(2)))
        1.0
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Array, target: Array, var: Array | float) -> Array:
        return F.gaussian_nll_loss(
            input, target, var, full=self.full, eps=self.eps, reduction=self.reduction
        )
