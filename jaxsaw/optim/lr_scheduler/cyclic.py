"""Schedules that go up and down, some of them with the momentum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import jax
import numpy as np

from jaxsaw.optim.group import HyperParameter, ParamGroup, at_once, look, place
from jaxsaw.optim.lr_scheduler.base import LRScheduler, one_each
from jaxsaw.optim.lr_scheduler.numbers import as_argument, as_float, number, numbers_of, power
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.state.variable import Variable


class CyclicLR(LRScheduler):
    """The rate on straight lines between two rates, up and down; the momentum the other way.

    Args:
        optimizer: Whose learning rates to set.
        base_lr: The least rate, or one for each group.
        max_lr: The largest rate, or one for each group.
        step_size_up: How many epochs the way up takes.
        step_size_down: How many the way down takes; by default as many.
        mode: ``"triangular"``, ``"triangular2"`` (half as high each time) or ``"exp_range"``
            (``gamma ** epoch`` as high).
        gamma: See ``mode``.
        scale_fn: How high it goes, as a function of the cycle (from 1) or of the epoch, in the
            place of ``mode``.
        scale_mode: What ``scale_fn`` is a function of: ``"cycle"`` or ``"iterations"``.
        cycle_momentum: Whether the momentum (of Adam and the like, the first beta) goes along.
        base_momentum: The least momentum, or one for each group.
        max_momentum: The largest momentum, or one for each group.
        last_epoch: The epoch that was last, -1 to begin.

    Raises:
        ValueError: If the mode is unknown, a list has another length than the groups, or there is
            no momentum to go along.

    Source: ``torch.optim.lr_scheduler.CyclicLR``; Smith, "Cyclical Learning Rates for Training
    Neural Networks" (2017).

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], momentum=0.9)
        >>> scheduler = CyclicLR(optimizer, base_lr=0.25, max_lr=0.75, step_size_up=2)
        >>> scheduler.step()
        >>> scheduler.get_last_lr(), round(float(optimizer.param_groups[0]["momentum"]), 3)
        ([0.5], 0.85)
    """

    _skipped: ClassVar[tuple[str, ...]] = (*LRScheduler._skipped, "_scale_fn_custom")

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: float = 2000,
        step_size_down: float | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[Any], Any] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer("CyclicLR", optimizer)
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError(
                f"CyclicLR: mode must be 'triangular', 'triangular2' or 'exp_range', got {mode!r}."
            )
        bases = one_each("CyclicLR: base_lr", optimizer, base_lr)
        self.max_lrs = one_each("CyclicLR: max_lr", optimizer, max_lr)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = step_size_up + down
        self.step_ratio = step_size_up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        if scale_fn is None:
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode = scale_mode
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _uses_beta1("CyclicLR", optimizer)
            self.base_momentums = one_each("CyclicLR: base_momentum", optimizer, base_momentum)
            self.max_momentums = one_each("CyclicLR: max_momentum", optimizer, max_momentum)
        if last_epoch == -1:
            for i, group in enumerate(optimizer.param_groups):
                group["lr"] = bases[i]
                if cycle_momentum:
                    _set_momentum(group, self.max_momentums[i], self.use_beta1)
                    group["max_momentum"] = self.max_momentums[i]
                    group["base_momentum"] = self.base_momentums[i]
        self._bases = bases
        super().__init__(optimizer, last_epoch)
        del self._bases
        rates = [group["lr"] for group in optimizer.param_groups]
        self.base_lrs = [
            HyperParameter.of(base, rate.dtype, look(rate)) for base, rate in zip(bases, rates)
        ]

    def scale_fn(self, x: Any) -> Any:
        """Return how high a cycle goes.

        Args:
            x: The cycle, from 1, or the epoch, as ``scale_mode`` says.
        """
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(as_argument(x))
        if self.mode == "triangular":
            return 1.0
        return power(self.gamma, x) if self.mode == "exp_range" else power(0.5, x - 1)

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for :attr:`last_epoch`, and set the momenta."""
        epoch = self._epoch()
        xp = numbers_of(epoch)
        if self.total_size == int(self.total_size):  # whole numbers are exact
            cycle = epoch // int(self.total_size)
            place = as_float(epoch % int(self.total_size)) / self.total_size
        else:
            turns = as_float(epoch) / self.total_size
            cycle = xp.floor(turns).astype(np.int32)
            place = turns - as_float(cycle)
        height = xp.where(
            place <= self.step_ratio, place / self.step_ratio, (1 - place) / (1 - self.step_ratio)
        )
        height = height * self.scale_fn(cycle + 1 if self.scale_mode == "cycle" else epoch)
        if self.cycle_momentum:
            for i, group in enumerate(self.optimizer.param_groups):
                low, high = self.base_momentums[i], self.max_momentums[i]
                _set_momentum(group, high - (high - low) * height, self.use_beta1)
        bases = map(number, self.__dict__.get("_bases", None) or self.base_lrs)
        return [base + (most - base) * height for base, most in zip(bases, self.max_lrs)]

    def state_dict(self) -> dict[str, Any]:
        """Return the state; of a function, only the attributes of a callable object."""
        custom = self._scale_fn_custom
        is_object = custom is not None and not isinstance(custom, type(_uses_beta1))
        return super().state_dict() | {
            "_scale_fn_custom": dict(vars(custom)) if is_object else None
        }

    def load_state_dict(self, state_dict: Any) -> None:
        """Take over a state, and set the learning rates that it was saved with.

        Args:
            state_dict: What :meth:`state_dict` returned, here or in PyTorch.

        Raises:
            RuntimeError: If it doesn't fit; nothing is changed then.
        """
        super().load_state_dict(state_dict)
        attributes = state_dict.get("_scale_fn_custom")
        if attributes is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(attributes)


class OneCycleLR(LRScheduler):
    """The rate once up to the largest and down to almost nothing; the momentum the other way.

    Args:
        optimizer: Whose learning rates to set.
        max_lr: The largest rate, or one for each group.
        total_steps: How many steps there are; or give both of the next.
        epochs: How many epochs there are.
        steps_per_epoch: How many steps an epoch has.
        pct_start: Which part of the steps goes up.
        anneal_strategy: ``"cos"`` or ``"linear"``.
        cycle_momentum: Whether the momentum (of Adam and the like, the first beta) goes along.
        base_momentum: The least momentum, or one for each group.
        max_momentum: The largest momentum, or one for each group.
        div_factor: The largest rate over the first one.
        final_div_factor: The first rate over the last one.
        three_phase: Whether to come down to the first rate as fast as it went up, then further.
        last_epoch: The step that was last, -1 to begin.

    Raises:
        ValueError: If a number is out of range, a list has another length than the groups, there
            is no momentum to go along, or (outside of a trace) there are no steps left.

    Source: ``torch.optim.lr_scheduler.OneCycleLR``; Smith and Topin, "Super-Convergence" (2018).

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], momentum=0.9)
        >>> scheduler = OneCycleLR(optimizer, max_lr=0.5, total_steps=10, div_factor=5.0)
        >>> for _ in range(2):
        ...     scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer("OneCycleLR", optimizer)
        if total_steps is not None:
            _check_count("OneCycleLR", total_steps=total_steps)
            self.total_steps = total_steps
        elif epochs is not None and steps_per_epoch is not None:
            _check_count("OneCycleLR", epochs=epochs, steps_per_epoch=steps_per_epoch)
            self.total_steps = epochs * steps_per_epoch
        else:
            raise ValueError("OneCycleLR: give total_steps, or both epochs and steps_per_epoch.")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"OneCycleLR: pct_start must be a float from 0 to 1, got {pct_start}.")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"OneCycleLR: anneal_strategy must be 'cos' or 'linear', got {anneal_strategy!r}."
            )
        self._schedule_phases = _phases(pct_start, self.total_steps, three_phase)
        self._anneal_func_type = anneal_strategy
        self.cycle_momentum = cycle_momentum
        most = one_each("OneCycleLR: max_lr", optimizer, max_lr)
        if cycle_momentum:
            self.use_beta1 = _uses_beta1("OneCycleLR", optimizer)
            highs = one_each("OneCycleLR: max_momentum", optimizer, max_momentum)
            lows = one_each("OneCycleLR: base_momentum", optimizer, base_momentum)
        if last_epoch == -1:
            for i, group in enumerate(optimizer.param_groups):
                first = most[i] / div_factor
                group.remember("initial_lr", first)
                group.update(initial_lr=first, max_lr=most[i], min_lr=first / final_div_factor)
                if cycle_momentum:
                    _set_momentum(group, highs[i], self.use_beta1)
                    group.update(max_momentum=highs[i], base_momentum=lows[i])
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for :attr:`last_epoch`, and set the momenta."""
        step = self._epoch()
        if not isinstance(step, jax.core.Tracer) and step > self.total_steps:
            raise ValueError(
                f"OneCycleLR: this is step {step} of {self.total_steps}. Make a longer schedule."
            )
        if self.cycle_momentum:
            for group in self.optimizer.param_groups:
                _set_momentum(group, self._value(group, step, "momentum"), self.use_beta1)
        return [self._value(group, step, "lr") for group in self.optimizer.param_groups]

    def _value(self, group: ParamGroup, step: Any, what: str) -> Any:
        xp, value, start, step = numbers_of(step), None, 0.0, as_float(step)
        for phase in self._schedule_phases:
            end = phase["end_step"]
            left = (end - step) / (end - start)
            if self._anneal_func_type == "cos":  # a sine, which is precise where it vanishes
                left = xp.square(xp.sin(left * (np.pi / 2)))
            first, last = (number(group[phase[f"{side}_{what}"]]) for side in ("start", "end"))
            here = last + (first - last) * left
            value = here if value is None else xp.where(step <= start, value, here)
            start = end
        return value


class CosineAnnealingWarmRestarts(LRScheduler):
    """The rate along half a cosine, from the first one down to ``eta_min``, again and again.

    Args:
        optimizer: Whose learning rates to set.
        T_0: How many epochs the first way down takes.
        T_mult: How many times as long as the last each following one takes.
        eta_min: The least rate.
        last_epoch: The epoch that was last, -1 to begin.

    Raises:
        ValueError: If ``T_0`` or ``T_mult`` isn't a positive integer.

    Source: ``torch.optim.lr_scheduler.CosineAnnealingWarmRestarts``; Loshchilov and Hutter,
    "SGDR" (2017).

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.5)
        >>> scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=2)
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.25]
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,
        T_mult: int = 1,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        _check_optimizer("CosineAnnealingWarmRestarts", optimizer)
        _check_count("CosineAnnealingWarmRestarts", T_0=T_0, T_mult=T_mult)
        self.T_0 = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        like = look(optimizer.step_count)
        epoch = np.int32(max(last_epoch, 0))
        current, length = self._position(epoch)
        self.T_cur = Variable.own(place(np.asarray(current, np.float32), like))
        self.T_i = Variable.own(place(np.asarray(length, np.int32), like))
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for the place in the cycle."""
        current, length = self._place()
        xp = numbers_of(current)
        left = xp.square(xp.sin((length - current) / length * (np.pi / 2)))
        floor = self.eta_min
        return [floor + (number(base) - floor) * left for base in self.base_lrs]

    def step(self, epoch: Any = None) -> None:
        """Go on to the next epoch, and set its learning rates.

        Args:
            epoch: The epoch to go to instead, which may lie between two.

        Raises:
            ValueError: If it is negative.
        """
        with at_once():
            if epoch is None:
                current, length = self._place()
                over = current + 1 >= length
                xp = numbers_of(current)
                current = xp.where(over, current + 1 - length, current + 1)
                length = xp.where(over, length * self.T_mult, length)
                self.T_cur.value = current.astype(np.float32)
                self.T_i.value = length.astype(np.int32)
                super().step()
                return
            if not hasattr(epoch, "dtype"):
                epoch = np.asarray(epoch, np.float64 if isinstance(epoch, float) else np.int32)
            if not isinstance(epoch, jax.core.Tracer) and epoch < 0:
                raise ValueError(f"{self.path}: epoch must be at least 0, got {epoch}.")
            current, length = self._position(epoch)
            self.T_cur.value = current.astype(np.float32)
            self.T_i.value = length.astype(np.int32)
            super().step(numbers_of(epoch).floor(epoch).astype(np.int32))

    def _place(self) -> tuple[Any, Any]:
        """Return where in its cycle the present epoch is, and how long that is."""
        current, length = self.T_cur.value, self.T_i.value
        if isinstance(current, jax.core.Tracer):
            return current, as_float(length)
        return np.float64(current), np.float64(length)

    def _position(self, epoch: Any) -> tuple[Any, Any]:
        """Return where in its cycle an epoch is, and how long that is."""
        if self.T_mult == 1:
            return epoch % self.T_0, epoch * 0 + self.T_0
        start, length = epoch * 0, epoch * 0 + self.T_0
        xp, first, size = numbers_of(epoch), 0, self.T_0
        while first + size < 2**31 - 1:
            first, size = first + size, min(size * self.T_mult, 2**31 - 1)
            start = xp.where(epoch >= first, first, start)
            length = xp.where(epoch >= first, size, length)
        return epoch - start, length


def _phases(pct: float, total: int, three: bool) -> list[dict[str, Any]]:
    """Return between which steps the rate goes from where to where, with PyTorch's keys."""
    ways = [("initial_lr", "max_lr", "max_momentum", "base_momentum")]
    ends = [float(pct * total) - 1]
    if three:
        ways.append(("max_lr", "initial_lr", "base_momentum", "max_momentum"))
        ways.append(("initial_lr", "min_lr", "max_momentum", "max_momentum"))
        ends.append(float(2 * pct * total) - 2)
    else:
        ways.append(("max_lr", "min_lr", "base_momentum", "max_momentum"))
    keys = ("start_lr", "end_lr", "start_momentum", "end_momentum")
    return [{"end_step": end, **dict(zip(keys, way))} for end, way in zip([*ends, total - 1], ways)]


def _check_optimizer(who: str, optimizer: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"{who}: expected an optimizer, got {type(optimizer).__name__}.")


def _check_count(who: str, **counts: Any) -> None:
    for name, count in counts.items():
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"{who}: {name} must be a positive integer, got {count}.")


def _uses_beta1(who: str, optimizer: Optimizer) -> bool:
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError(
            f"{who}: {type(optimizer).__name__} has neither momentum nor betas. Pass "
            "cycle_momentum=False."
        )
    return "betas" in optimizer.defaults


def _set_momentum(group: ParamGroup, momentum: Any, is_beta: bool) -> None:
    if is_beta:
        group["betas"] = (momentum, *group["betas"][1:])
    else:
        group["momentum"] = momentum
