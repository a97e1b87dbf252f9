"""Schedules made of others."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.optim.group import at_once, look, place
from jaxsaw.optim.lr_scheduler.base import LRScheduler
from jaxsaw.optim.lr_scheduler.plateau import ReduceLROnPlateau
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.branches import switch


class _Combined(LRScheduler):
    """What schedules of schedules share: their state."""

    _skipped: ClassVar[tuple[str, ...]] = (*LRScheduler._skipped, "_schedulers")

    def _gather(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> None:
        who = type(self).__name__
        if len(schedulers) < 1:
            raise ValueError(f"{who}: expected at least one schedule, got none.")
        for i, scheduler in enumerate(schedulers):
            if not isinstance(scheduler, LRScheduler):
                kind = type(scheduler).__name__
                raise TypeError(f"{who}: item {i} must be a schedule, got {kind}.")
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueError(
                    f"{who}: item {i} is a ReduceLROnPlateau, whose step needs a metric. Step it "
                    "by itself."
                )
        optimizer = schedulers[0].optimizer if optimizer is None else optimizer
        for i, scheduler in enumerate(schedulers):
            if scheduler.optimizer is not optimizer:
                raise ValueError(f"{who}: the schedule {i} belongs to another optimizer.")
        self.optimizer = optimizer
        self._schedulers = list(schedulers)
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]

    def get_lr(self) -> list[Any]:
        """Return the present rate of each group."""
        return self.get_last_lr()

    def _take_back(self) -> None:
        super()._take_back()
        for scheduler in self._schedulers:
            scheduler._take_back()

    def state_dict(self) -> dict[str, Any]:
        """Return the state, with those of the schedules in ``_schedulers``."""
        parts = [scheduler.state_dict() for scheduler in self._schedulers]
        return super().state_dict() | {"_schedulers": parts}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state, and set the learning rates that it was saved with.

        Args:
            state_dict: What :meth:`state_dict` returned, here or in PyTorch.

        Raises:
            RuntimeError: If it doesn't fit.
        """
        parts = state_dict.get("_schedulers", ())
        if len(parts) != len(self._schedulers):
            raise RuntimeError(
                f"{type(self).__name__}.load_state_dict: expected the states of "
                f"{len(self._schedulers)} schedules, got {len(parts)}. Nothing was loaded."
            )
        for scheduler, part in zip(self._schedulers, parts, strict=True):
            scheduler.load_state_dict(part)
        super().load_state_dict({"last_epoch": self.last_epoch.value, **state_dict})


class SequentialLR(_Combined):
    """One schedule after another, each from its first epoch on.

    Args:
        optimizer: Whose learning rates to set.
        schedulers: The schedules, all of this optimizer.
        milestones: The epoch at which each but the first begins.
        last_epoch: The epoch that was last, -1 to begin.

    Raises:
        ValueError: If a schedule can't take part, or the milestones aren't one less.

    Source: ``torch.optim.lr_scheduler.SequentialLR``.

    Example:
        >>> from jaxsaw.optim.lr_scheduler import ExponentialLR, LinearLR
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.5)
        >>> warm_up = LinearLR(optimizer, start_factor=0.5, total_iters=2)
        >>> decay = ExponentialLR(optimizer, gamma=0.5)
        >>> scheduler = SequentialLR(optimizer, [warm_up, decay], milestones=[2])
        >>> rates = []
        >>> for _ in range(4):
        ...     rates += scheduler.get_last_lr()
        ...     scheduler.step()
        >>> rates
        [0.25, 0.375, 0.5, 0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        self._gather(schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                f"SequentialLR: expected {len(schedulers) - 1} milestones for {len(schedulers)} "
                f"schedules, got {len(milestones)}."
            )
        self._milestones = list(milestones)
        like = look(optimizer.step_count)
        self.last_epoch = Variable.own(place(np.asarray(last_epoch + 1, np.int32), like))
        with at_once():
            self._set(self.base_lrs)
            for scheduler in self._schedulers:
                scheduler._take_back()
            self._schedulers[bisect_right(self._milestones, 0)]._begin_again()

    def step(self, epoch: Any = None) -> None:
        """Go on to the next epoch, and set its learning rates.

        Args:
            epoch: Not supported here, as in PyTorch.

        Raises:
            ValueError: If there is one.
        """
        if epoch is not None:
            raise ValueError(f"{self.path}: a schedule of schedules can't jump to an epoch.")
        with at_once():
            self.last_epoch.value = self.last_epoch.value + 1
            now, marks = self._epoch(), self._milestones
            if not isinstance(now, jax.core.Tracer):
                i = bisect_right(marks, now)
                self._step_of(i, begins=i > 0 and marks[i - 1] == now)()
                return
            index = sum((now >= mark).astype(jnp.int32) for mark in marks) + jnp.int32(0)
            begins = jnp.stack([now == mark for mark in marks]).any() if marks else False
            n = len(self._schedulers)
            ways = [self._step_of(i, begins=b) for b in (False, True) for i in range(n)]
            switch(index + n * jnp.asarray(begins, jnp.int32), ways)

    def _step_of(self, i: int, begins: bool) -> Callable[[], None]:
        scheduler = self._schedulers[i]
        if begins and i and not isinstance(scheduler, _Combined):
            return lambda: scheduler._jump(np.asarray(0, np.int32))
        return lambda: scheduler.step()

    def _begin_again(self) -> None:
        self.last_epoch.value = self.last_epoch.value + 1
        self._schedulers[bisect_right(self._milestones, 0)]._begin_again()


class ChainedScheduler(_Combined):
    """Several schedules at once: each changes the rates that the ones before it have left.

    Args:
        schedulers: The schedules, all of one optimizer.
        optimizer: Whose learning rates to set; by default that of the first schedule.

    Raises:
        ValueError: If a schedule can't take part.

    Source: ``torch.optim.lr_scheduler.ChainedScheduler``.

    Example:
        >>> from jaxsaw.optim.lr_scheduler import ConstantLR, ExponentialLR
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=1.0)
        >>> parts = [ConstantLR(optimizer, 0.5, total_iters=2), ExponentialLR(optimizer, 0.5)]
        >>> scheduler = ChainedScheduler(parts)
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.25]
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        self._gather(schedulers, optimizer)
        like = look(self.optimizer.step_count)
        self.last_epoch = Variable.own(place(np.zeros((), np.int32), like))

    def step(self, epoch: Any = None) -> None:
        """Go on to the next epoch, and set its learning rates.

        Args:
            epoch: Not supported here, as in PyTorch.

        Raises:
            ValueError: If there is one.
        """
        if epoch is not None:
            raise ValueError(f"{self.path}: a schedule of schedules can't jump to an epoch.")
        with at_once():
            self.last_epoch.value = self.last_epoch.value + 1
            for scheduler in self._schedulers:
                scheduler.step()

    def _begin_again(self) -> None:
        self.last_epoch.value = self.last_epoch.value + 1
        for scheduler in self._schedulers:
            scheduler._begin_again()
