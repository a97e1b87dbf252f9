"""Losses of classes, as layers."""

from __future__ import annotations

import math
from typing import Any

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import required
from jaxsaw.nn._loss import Loss, WeightedLoss
from jaxsaw.nn.linear import Linear
from jaxsaw.rngs import Rngs


class CrossEntropyLoss(WeightedLoss):
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


class NLLLoss(WeightedLoss):
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


class NLLLoss2d(NLLLoss):
    """The older name of :class:`NLLLoss` for images.

    Args:
        weight: A factor for each class, ``(C,)``.
        size_average: Not supported; use ``reduction``.
        ignore_index: Targets with this index count nothing.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Input: log-probabilities, ``(N, C, H, W)``
        - Target: class indices, ``(N, H, W)``
        - Output: ``()``; ``(N, H, W)`` with ``reduction="none"``

    Source: ``torch.nn.NLLLoss2d``.

    Example:
        >>> float(nn.NLLLoss2d()(jnp.full((1, 2, 3, 3), -0.5), jnp.zeros((1, 3, 3), int)))
        0.5
    """


class LinearCrossEntropyLoss(WeightedLoss):
    """Cross entropy of the logits that a linear map gives: ``CrossEntropyLoss(Linear(x), y)``.

    Args:
        in_features: Size of the input's last axis.
        num_classes: How many classes.
        out_features: More axes of the target, each with a linear map of its own.
        bias: Whether the linear map has a bias.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        weight: A factor for each class, ``(C,)``; the mean is divided by the sum of the targets'.
        ignore_index: Targets with this index count nothing; -100 if None.
        label_smoothing: What part of a target is spread over all classes.
        options: Not supported; ``js.remat`` keeps the logits from being stored.
        rngs: Where the weight is drawn from: one key of the stream ``params``.

    Shape:
        - Input: ``(N, in_features)`` or ``(in_features,)``
        - Target: class indices, ``(N, *out_features)`` or ``()``; or probabilities,
          ``(N, C, *out_features)`` or ``(C,)``
        - Output: ``()``; ``(N, *out_features)`` with ``reduction="none"``
        - linear.weight: ``(C * prod(out_features), in_features)``

    Raises:
        ValueError: If an argument doesn't fit; when called, if a shape doesn't.

    Source: ``torch.nn.LinearCrossEntropyLoss``.

    Example:
        >>> loss = nn.LinearCrossEntropyLoss(3, 5, rngs=js.Rngs(params=0))
        >>> loss(jnp.ones((2, 3)), jnp.array([0, 4])).shape
        ()
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Array | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: None = None,
        rngs: Rngs | None = None,
    ) -> None:
        if weight is not None and weight.shape != (num_classes,):
            raise ValueError(
                f"LinearCrossEntropyLoss: expected weight ({num_classes},), got {weight.shape}."
            )
        if not 0 <= label_smoothing <= 1:
            raise ValueError(
                "LinearCrossEntropyLoss: expected label_smoothing in [0, 1], "
                f"got {label_smoothing}."
            )
        super().__init__(weight=weight, reduction=reduction)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        rngs = required(rngs, "LinearCrossEntropyLoss")
        size = math.prod(out_features, start=num_classes)
        self.linear = Linear(in_features, size, bias=bias, device=device, dtype=dtype, rngs=rngs)
        self.options = options

    def forward(self, input: Array, target: Array) -> Array:
        shape = (self.num_classes, *self.out_features)
        weight, bias = self.linear.weight, self.linear.bias
        return F.linear_cross_entropy(
            input,
            weight.reshape(*shape, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        names = ("num_classes", "out_features")
        after = ("reduction", "ignore_index", "label_smoothing", "options")
        first = [f"in_features={self.linear.in_features}"]
        first += [f"{name}={getattr(self, name)}" for name in names]
        first.append(f"bias={self.linear.bias is not None}")
        return ", ".join([*first, *(f"{name}={getattr(self, name)}" for name in after)])


class MultiMarginLoss(WeightedLoss):
    """Hinge between the right class and all others: ``sum(max(0, margin - x[y] + x[i])^p) / C``.

    Args:
        p: 1 or 2.
        margin: How far the right class should be above the others.
        weight: A factor for each class, ``(C,)``; the target's counts.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Input: scores, ``(N, C)`` or ``(C,)``
        - Target: class indices, ``(N,)`` or ``()``
        - Output: ``()``; ``(N,)`` with ``reduction="none"``

    Raises:
        ValueError: If ``p`` or the shape of ``weight`` doesn't fit.

    Source: ``torch.nn.MultiMarginLoss``; Crammer and Singer, 2001.

    Example:
        >>> float(nn.MultiMarginLoss()(jnp.array([[2.0, 1.5, 0.0, 0.0]]), jnp.array([0])))
        0.125
    """

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Array | None = None,
        size_average: None = None,
        reduce: None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError(f"MultiMarginLoss: expected p to be 1 or 2, got {p}.")
        if weight is not None and weight.ndim != 1:
            raise ValueError(f"MultiMarginLoss: expected weight (C,), got {weight.shape}.")
        self.p = p
        self.margin = margin

    def forward(self, input: Array, target: Array) -> Array:
        return F.multi_margin_loss(
            input,
            target,
            p=self.p,
            margin=self.margin,
            weight=self.weight,
            reduction=self.reduction,
        )


class MultiLabelMarginLoss(Loss):
    """Hinge between right and wrong classes: ``sum(max(0, 1 - x[y] + x[i])) / C``.

    Args:
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Input: scores, ``(N, C)`` or ``(C,)``
        - Target: the right classes, of the same shape, up to the first -1
        - Output: ``()``; ``(N,)`` with ``reduction="none"``

    Source: ``torch.nn.MultiLabelMarginLoss``.

    Example:
        >>> loss = nn.MultiLabelMarginLoss()
        >>> float(loss(jnp.array([0.5, 2.0, 0.0]), jnp.array([1, -1, -1])))
        0.0
    """

    def forward(self, input: Array, target: Array) -> Array:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(WeightedLoss):
    """Binary cross entropy of logits, its mean over the classes of each sample.

    Args:
        weight: A factor for each class, ``(C,)``.
        size_average: Not supported; use ``reduction``.
        reduce: Not supported; use ``reduction``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Shape:
        - Input: logits, ``(N, C)``
        - Target: 0 or 1, the same
        - Output: ``()``; ``(N,)`` with ``reduction="none"``

    Source: ``torch.nn.MultiLabelSoftMarginLoss``.

    Example:
        >>> loss = nn.MultiLabelSoftMarginLoss()
        >>> round(float(loss(jnp.zeros((1, 3)), jnp.array([[1.0, 0.0, 1.0]]))), 3)
        0.693
    """

    def forward(self, input: Array, target: Array) -> Array:
        return F.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


class CTCLoss(Loss):
    """Connectionist temporal classification: the labels of a sequence that isn't aligned with them.

    Args:
        blank: The label that stands for none.
        reduction: ``"mean"`` (each loss divided by its number of labels first), ``"sum"`` or
            ``"none"``.
        zero_infinity: The loss is 0 where the input is too short for its labels.

    Shape:
        - Log-probabilities: ``(T, N, C)`` or ``(T, C)``
        - Targets: ``(N, S)`` or ``(sum of the lengths,)``
        - Lengths of inputs and targets: ``(N,)`` or ``()``
        - Output: ``()``; ``(N,)`` with ``reduction="none"``

    Source: ``torch.nn.CTCLoss``; Graves et al., 2006.

    Example:
        >>> even = jnp.log(jnp.full((2, 1, 2), 0.5))
        >>> round(float(nn.CTCLoss()(even, jnp.array([[1]]), jnp.array([2]), jnp.array([1]))), 3)
        0.288
    """

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(
        self, log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array
    ) -> Array:
        return F.ctc_loss(
            log_probs,
            targets,
            input_lengths,
            target_lengths,
            self.blank,
            self.reduction,
            self.zero_infinity,
        )
