"""Schedules with a formula for the rate of an epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.optim.group import HyperParameter, at_once, look
from jaxsaw.optim.lr_scheduler.base import LRScheduler
from jaxsaw.optim.lr_scheduler.numbers import as_float, number, numbers_of, power
from jaxsaw.optim.optimizer import Optimizer


class Closed(LRScheduler):
    """A schedule with a formula: ``floor + (base - floor) * factor(epoch)``.

    As long as nobody else changes the rates, they come from the formula, without an error that
    grows. Where another schedule or an assignment has changed them, they are scaled by
    ``factor(epoch) / factor(epoch - 1)``, so that schedules combine as in PyTorch.
    """

    _skipped: ClassVar[tuple[str, ...]] = (*LRScheduler._skipped, "own")
    eta_min: float = 0.0

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        super().__init__(optimizer, last_epoch)
        # The rate of each group that this schedule has set; negative once others set it, too.
        rates = [group["lr"] for group in optimizer.param_groups]
        self.own = [HyperParameter.of(0.0, rate.dtype, look(rate)) for rate in rates]
        self._trust()

    def _factor(self, epoch: Any) -> Any:
        """Return the factor at an epoch: a NumPy integer (any shape), or a traced array."""
        raise NotImplementedError

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for :attr:`last_epoch`."""
        epoch, floor = self._epoch(), self.eta_min
        xp = numbers_of(epoch)
        new, old = self._factor(epoch), self._factor(epoch - 1)
        ratio = xp.where(old == 0, 0.0, new / xp.where(old == 0, 1.0, old))
        ratio = xp.where(new == old, 1.0, ratio)
        rates = []
        for i, (group, base) in enumerate(zip(self.optimizer.param_groups, self.base_lrs)):
            rate, base = number(group["lr"]), number(base)
            restart = xp.where(old == 0, (base - floor) * new, 0.0)
            scaled = floor + (rate - floor) * ratio + restart
            rates.append(xp.where(self._is_own(i), floor + (base - floor) * new, scaled))
        return rates

    def _get_closed_form_lr(self) -> list[Any]:
        factor, floor = self._factor(self._epoch()), self.eta_min
        return [floor + (number(base) - floor) * factor for base in self.base_lrs]

    def _initial_lr(self, begins: bool) -> list[Any]:
        rates = [number(group["lr"]) for group in self.optimizer.param_groups]
        if not begins:
            return rates
        floor = self.eta_min
        return [floor + (rate - floor) * self._factor(self._epoch()) for rate in rates]

    def step(self, epoch: Any = None) -> None:
        """Go on to the next epoch, and set its learning rates.

        Args:
            epoch: The epoch to go to instead.
        """
        with at_once():
            owns = [self._is_own(i) for i in range(len(self.own))]
            super().step(epoch)
            if epoch is None:
                for group, own, is_own in zip(self.optimizer.param_groups, self.own, owns):
                    own.value = jnp.where(is_own, group["lr"].value, -1)

    def _jump(self, epoch: Any) -> None:
        super()._jump(epoch)
        self._trust()

    def _begin_again(self) -> None:
        super()._begin_again()
        self._trust()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state, and set the learning rates that it was saved with.

        Args:
            state_dict: What :meth:`state_dict` returned, here or in PyTorch.

        Raises:
            RuntimeError: If it doesn't fit; nothing is changed then.
        """
        super().load_state_dict(state_dict)
        self._trust()

    def _is_own(self, i: int) -> Any:
        rate, own = self.optimizer.param_groups[i]["lr"].value, self.own[i].value
        return rate == own if isinstance(rate, jax.core.Tracer) else np.equal(rate, own)

    def _trust(self) -> None:
        """Take the present rates to be this schedule's own if they are near its formula."""
        with at_once():
            groups = self.optimizer.param_groups
            for own, group, formula in zip(self.own, groups, self._get_closed_form_lr()):
                rate = group["lr"].value
                near = abs(rate - formula) <= 1e-5 * abs(rate)
                own.value = jnp.where(near, rate, -1)


class StepLR(Closed):
    """The rate times ``gamma`` after every ``step_size`` epochs.

    Args:
        optimizer: Whose learning rates to set.
        step_size: How many epochs a rate lasts.
        gamma: The factor.
        last_epoch: The epoch that was last, -1 to begin.

    Source: ``torch.optim.lr_scheduler.StepLR``.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.1)
        >>> scheduler = StepLR(optimizer, step_size=2)
        >>> for _ in range(2):
        ...     scheduler.step()
        >>> scheduler.get_last_lr()
        [0.01]
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        if step_size < 1:
            raise ValueError(f"StepLR: step_size must be at least 1, got {step_size}.")
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: Any) -> Any:
        return power(self.gamma, epoch // self.step_size)


class MultiStepLR(Closed):
    """The rate times ``gamma`` at each milestone.

    Args:
        optimizer: Whose learning rates to set.
        milestones: The epochs; one that occurs twice counts twice.
        gamma: The factor.
        last_epoch: The epoch that was last, -1 to begin.

    Source: ``torch.optim.lr_scheduler.MultiStepLR``.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.1)
        >>> scheduler = MultiStepLR(optimizer, milestones=[1, 5])
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.01]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: Any) -> Any:
        passed = [(epoch >= m).astype(np.int32) * n for m, n in sorted(self.milestones.items())]
        return power(self.gamma, sum(passed, epoch * 0))


class ConstantLR(Closed):
    """The rate times ``factor``, until ``total_iters`` epochs are over.

    Args:
        optimizer: Whose learning rates to set.
        factor: The factor.
        total_iters: How many epochs it lasts.
        last_epoch: The epoch that was last, -1 to begin.

    Raises:
        ValueError: If ``factor`` isn't between 0 and 1.

    Source: ``torch.optim.lr_scheduler.ConstantLR``.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.5)
        >>> scheduler = ConstantLR(optimizer, factor=0.5, total_iters=1)
        >>> scheduler.get_last_lr()
        [0.25]
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 <= factor <= 1:
            raise ValueError(f"ConstantLR: factor must be between 0 and 1, got {factor}.")
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: Any) -> Any:
        return numbers_of(epoch).where(epoch < self.total_iters, self.factor, 1.0)


class LinearLR(Closed):
    """The rate times a factor that goes from ``start_factor`` to ``end_factor`` on a line.

    Args:
        optimizer: Whose learning rates to set.
        start_factor: The factor at first.
        end_factor: The factor from epoch ``total_iters`` on.
        total_iters: How many epochs the way takes.
        last_epoch: The epoch that was last, -1 to begin.

    Raises:
        ValueError: If a factor is out of range.

    Source: ``torch.optim.lr_scheduler.LinearLR``.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.5)
        >>> scheduler = LinearLR(optimizer, start_factor=0.5, total_iters=4)
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.3125]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ValueError(
                f"LinearLR: start_factor must be above 0 and at most 1, got {start_factor}."
            )
        if not 0 <= end_factor <= 1:
            raise ValueError(f"LinearLR: end_factor must be between 0 and 1, got {end_factor}.")
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: Any) -> Any:
        way = numbers_of(epoch).minimum(epoch, self.total_iters)
        rise = (self.end_factor - self.start_factor) / self.total_iters
        return self.start_factor + rise * as_float(way)


class PolynomialLR(Closed):
    """The rate times a power of what is left of ``total_iters`` epochs.

    Args:
        optimizer: Whose learning rates to set.
        total_iters: The epoch from which on the rate is zero.
        power: The power.
        last_epoch: The epoch that was last, -1 to begin.

    Source: ``torch.optim.lr_scheduler.PolynomialLR``.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.5)
        >>> scheduler = PolynomialLR(optimizer, total_iters=2, power=2.0)
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.125]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_iters: int = 5,
        power: float = 1.0,
        last_epoch: int = -1,
    ) -> None:
        self.total_iters = total_iters
        self.power = power
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: Any) -> Any:
        left = numbers_of(epoch).maximum(self.total_iters - epoch, 0)
        return (as_float(left) / self.total_iters) ** self.power


class ExponentialLR(Closed):
    """The rate times ``gamma`` every epoch.

    Args:
        optimizer: Whose learning rates to set.
        gamma: The factor.
        last_epoch: The epoch that was last, -1 to begin.

    Source: ``torch.optim.lr_scheduler.ExponentialLR``.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.5)
        >>> scheduler = ExponentialLR(optimizer, gamma=0.5)
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.25]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: Any) -> Any:
        return power(self.gamma, epoch)


class CosineAnnealingLR(Closed):
    r"""The rate along half a cosine, from the first one down to ``eta_min``, and up again.

    .. math::
        η_t = η_{min} + \frac{1}{2} (η_0 - η_{min}) (1 + \cos(π t / T_{max}))

    Args:
        optimizer: Whose learning rates to set.
        T_max: How many epochs the way down takes.
        eta_min: The least rate.
        last_epoch: The epoch that was last, -1 to begin.

    Source: ``torch.optim.lr_scheduler.CosineAnnealingLR``.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.5)
        >>> scheduler = CosineAnnealingLR(optimizer, T_max=2)
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.25]
    """

    def __init__(
        self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def _factor(self, epoch: Any) -> Any:
        # cos(x / 2) ** 2 as a sine of a small number, which is precise where it vanishes.
        xp = numbers_of(epoch)
        left = (self.T_max - epoch) % (2 * self.T_max)
        left = as_float(xp.minimum(left, 2 * self.T_max - left))
        return xp.square(xp.sin(left * (np.pi / (2 * self.T_max))))
