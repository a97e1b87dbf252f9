"""A schedule that waits for a metric to get no better."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.optim.group import at_once, look, place
from jaxsaw.optim.lr_scheduler.base import LRScheduler, one_each
from jaxsaw.optim.lr_scheduler.numbers import number
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.state.variable import Variable


class ReduceLROnPlateau(LRScheduler):
    """The rate times ``factor`` each time that a metric hasn't got better for some epochs.

    ``step(metric)`` takes a number or, inside a compiled function, a traced one.

    Args:
        optimizer: Whose learning rates to set.
        mode: Whether a smaller metric is better, ``"min"``, or a larger one, ``"max"``.
        factor: The factor, below one.
        patience: How many epochs without improvement are accepted.
        threshold: By how much a metric has to be better.
        threshold_mode: Whether ``threshold`` is a part of the best metric, ``"rel"``, or a
            difference, ``"abs"``.
        cooldown: For how many epochs after a change none is counted.
        min_lr: The least rate, or one for each group.
        eps: A change of a rate by no more is left out.

    Raises:
        ValueError: If an argument is out of range, or unknown.

    Source: ``torch.optim.lr_scheduler.ReduceLROnPlateau``.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.5)
        >>> scheduler = ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        >>> for loss in (1.0, 1.0, 1.0):
        ...     scheduler.step(loss)
        >>> scheduler.get_last_lr()
        [0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: Literal["min", "max"] = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: Literal["rel", "abs"] = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if factor >= 1:
            raise ValueError(f"ReduceLROnPlateau: factor must be below 1, got {factor}.")
        if mode not in ("min", "max"):
            raise ValueError(f"ReduceLROnPlateau: mode must be 'min' or 'max', got {mode!r}.")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"ReduceLROnPlateau: threshold_mode must be 'rel' or 'abs', got {threshold_mode!r}."
            )
        if not isinstance(optimizer, Optimizer):
            kind = type(optimizer).__name__
            raise TypeError(f"ReduceLROnPlateau: expected an optimizer, got {kind}.")
        self.factor = factor
        self.optimizer = optimizer
        self.base_lrs: list[Any] = []
        self.default_min_lr = None if isinstance(min_lr, list | tuple) else min_lr
        self.min_lrs = one_each("ReduceLROnPlateau: min_lr", optimizer, min_lr)
        self.patience = patience
        self.cooldown = cooldown
        self.eps = eps
        self.mode = mode
        self.threshold = threshold
        self.threshold_mode = threshold_mode
        self.mode_worse = np.inf if mode == "min" else -np.inf
        like = look(optimizer.step_count)
        own = lambda x: Variable.own(place(x, like))
        self.last_epoch = own(np.zeros((), np.int32))
        self.best = own(np.asarray(self.mode_worse, np.float32))
        self.cooldown_counter = own(np.zeros((), np.int32))
        self.num_bad_epochs = own(np.zeros((), np.int32))

    @property
    def in_cooldown(self) -> Any:
        """Whether epochs aren't counted now."""
        return self.cooldown_counter.value > 0

    def get_lr(self) -> list[Any]:
        """Return the present rate of each group."""
        return self.get_last_lr()

    def step(self, metrics: Any, epoch: Any = None) -> None:  # type: ignore[override]
        """Take note of a metric, and reduce the learning rates if it is time.

        Args:
            metrics: The metric, a number.
            epoch: The epoch that it belongs to; by default the next.

        Raises:
            TypeError: If ``metrics`` isn't a number.
            ValueError: If there are groups without a least rate.
        """
        metric = metrics.value if isinstance(metrics, Variable) else metrics
        if np.size(metric) != 1:
            raise TypeError(f"{self.path}.step: expected one number, got shape {metric.shape}.")
        metric = jnp.asarray(metric).astype(jnp.float32).reshape(())
        least = self._least_rates()
        with at_once():
            new = self.last_epoch.value + 1 if epoch is None else np.asarray(epoch, np.int32)
            self.last_epoch.value = new
            is_better = self._is_better(metric, self.best.value)
            self.best.value = jnp.where(is_better, metric, self.best.value)
            bad = jnp.where(is_better, 0, self.num_bad_epochs.value + 1)
            resting = self.in_cooldown
            bad = jnp.where(resting, 0, bad)
            rest = self.cooldown_counter.value - resting.astype(jnp.int32)
            over = bad > self.patience
            self.num_bad_epochs.value = jnp.where(over, 0, bad).astype(jnp.int32)
            self.cooldown_counter.value = jnp.where(over, self.cooldown, rest).astype(jnp.int32)
            for group, floor in zip(self.optimizer.param_groups, least):
                old = number(group["lr"])
                if isinstance(over, jax.core.Tracer):
                    old = group["lr"].value
                    reduced = jnp.maximum(old * self.factor, floor)
                    reduced = jnp.where(over & (old - reduced > self.eps), reduced, old)
                    group["lr"] = reduced
                elif over and old - max(old * self.factor, floor) > self.eps:
                    group["lr"] = max(old * self.factor, floor)

    def _least_rates(self) -> list[float]:
        n = len(self.optimizer.param_groups)
        if len(self.min_lrs) == n:
            return self.min_lrs
        if self.default_min_lr is None:
            raise ValueError(
                f"{self.path}: the optimizer has {n} groups now, but min_lrs has "
                f"{len(self.min_lrs)} numbers. Append one for each new group."
            )
        return [self.default_min_lr] * n

    def _is_better(self, a: Any, best: Any) -> Any:
        sign = 1 if self.mode == "max" else -1
        if self.threshold_mode == "rel":
            bound = best * (1 + sign * self.threshold)
        else:
            bound = best + sign * self.threshold
        return a > bound if self.mode == "max" else a < bound
