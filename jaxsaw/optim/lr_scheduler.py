"""Schedules: learning rates as a function of the epoch.

A schedule writes the learning rates of its optimizer, which are Variables, and counts epochs in
another one. So a step of it compiles nothing anew, may be part of a compiled function, and is
restored with the state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.optim.group import HyperParameter, at_once, look, place
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.state.graph import named_boxes
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable


class LRScheduler(Stateful):
    """Base class of schedules.

    A subclass gives the rates of an epoch in :meth:`get_lr`. For rates that shall be computed
    in compiled functions too, it uses ``jnp`` on :attr:`last_epoch`.

    Args:
        optimizer: Whose learning rates to set.
        last_epoch: The epoch that was last, -1 to begin.

    Attributes:
        last_epoch: The present epoch, a Variable (int32).
        base_lrs: The learning rates to begin with, one for each group: Variables.

    Raises:
        TypeError: If ``optimizer`` isn't one.
        KeyError: If ``last_epoch`` says that a schedule had begun, and a group doesn't say with
            which ``initial_lr``.

    Source: ``torch.optim.lr_scheduler.LRScheduler``.

    Example:
        >>> class Halving(LRScheduler):
        ...     def get_lr(self):
        ...         return [base * jnp.exp2(-self.last_epoch.astype(base.dtype))
        ...                 for base in self.base_lrs]
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.5)
        >>> scheduler = Halving(optimizer)
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.25]
    """

    # What isn't a plain attribute.
    _skipped: ClassVar[tuple[str, ...]] = ("optimizer", "last_epoch", "base_lrs")

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"{type(self).__name__}: expected an optimizer, got {type(optimizer).__name__}."
            )
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.remember("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                raise KeyError(
                    f"{type(self).__name__}: last_epoch={last_epoch} continues a schedule, but "
                    f"param_groups[{i}] has no 'initial_lr'. Give the group one, or leave out "
                    "last_epoch and restore the scheduler's state."
                )
            elif not group.is_boxed("initial_lr"):
                group["initial_lr"] = HyperParameter.of(group["initial_lr"])
        self.base_lrs: list[Any] = [group["initial_lr"] for group in optimizer.param_groups]
        like = look(optimizer.step_count)
        self.last_epoch = Variable.own(place(np.asarray(last_epoch + 1, np.int32), like))
        with at_once():
            self._set(self._initial_lr(begins=last_epoch == -1))

    # What a subclass says.

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for :attr:`last_epoch`."""
        raise NotImplementedError(f"{type(self).__name__} has no get_lr().")

    def _initial_lr(self, begins: bool) -> list[Any]:
        """Return the rates when the schedule is made."""
        return self.get_lr()

    # Steps.

    def step(self, epoch: Any = None) -> None:
        """Go on to the next epoch, and set its learning rates.

        Args:
            epoch: The epoch to go to instead, where the schedule has a closed form.
        """
        with at_once():
            if epoch is None:
                self.last_epoch.value = self.last_epoch.value + 1
                rates = self.get_lr()
            else:
                epoch = epoch if hasattr(epoch, "dtype") else np.asarray(epoch, np.int32)
                self.last_epoch.value = place(epoch, look(self.last_epoch))
                rates = getattr(self, "_get_closed_form_lr", self.get_lr)()
            self._set(rates)

    def _set(self, rates: Iterable[Any]) -> None:
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def get_last_lr(self) -> list[Any]:
        """Return the present rate of each group: numbers or, inside a trace, arrays."""
        return [group["lr"].number() for group in self.optimizer.param_groups]

    def _epoch(self) -> Any:
        """Return the epoch: a NumPy integer or, inside a trace, an array."""
        value = self.last_epoch.value
        return value if isinstance(value, jax.core.Tracer) else np.asarray(value, np.int64)[()]

    # Saving and restoring.

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch, the rates, and the plain attributes, with PyTorch's keys."""
        epoch = self._epoch()
        plain = {k: v for k, v in self.__dict__.items() if k not in self._skipped}
        return {
            **{k: _plain(v) for k, v in plain.items()},
            "base_lrs": [_plain(base) for base in self.base_lrs],
            "last_epoch": epoch if isinstance(epoch, jax.core.Tracer) else epoch.tolist(),
            "_step_count": epoch + 1 if isinstance(epoch, jax.core.Tracer) else int(epoch) + 1,
            "_last_lr": self.get_last_lr(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state, and set the learning rates that it was saved with.

        Args:
            state_dict: What :meth:`state_dict` returned, here or in PyTorch.

        Raises:
            RuntimeError: If it doesn't fit; nothing is changed then.
        """
        who = f"{type(self).__name__}.load_state_dict"
        n = len(self.optimizer.param_groups)
        if "last_epoch" not in state_dict:
            raise RuntimeError(f"{who}: this is no state of a schedule, it lacks 'last_epoch'.")
        for key in ("base_lrs", "_last_lr"):
            if key in state_dict and len(state_dict[key]) != n:
                raise RuntimeError(
                    f"{who}: {key} has {len(state_dict[key])} rates, expected one for each of the "
                    f"{n} groups. Nothing was loaded."
                )
        epoch = np.asarray(state_dict["last_epoch"], np.int32)
        for key, value in state_dict.items():
            if key not in self._skipped and key in self.__dict__:
                setattr(self, key, self._loaded(key, value))
        with at_once():
            self.last_epoch.value = place(epoch, look(self.last_epoch))
            bases = state_dict.get("base_lrs", self.base_lrs)
            for i, base in enumerate(bases):
                if isinstance(self.base_lrs[i], Variable):
                    self.base_lrs[i].value = base
            self._set(state_dict.get("_last_lr", [g["lr"] for g in self.optimizer.param_groups]))

    def _loaded(self, key: str, value: Any) -> Any:
        """Return what a plain attribute becomes, given that of a state."""
        return value

    def _owned_boxes(self) -> dict[str, Variable]:
        """Return the boxes that are this schedule's own, and the rates that it has set."""
        foreign = {id(box) for _, box in named_boxes(self.optimizer)}
        own = {name: box for name, box in named_boxes(self) if id(box) not in foreign}
        bases = {f"base_lrs.{i}": box for i, box in enumerate(self.base_lrs)}
        rates = {f"lr.{i}": group["lr"] for i, group in enumerate(self.optimizer.param_groups)}
        own.update((k, box) for k, box in (bases | rates).items() if isinstance(box, Variable))
        return own

    def _configuration(self) -> dict[str, Any]:
        """Return what must agree with a checkpoint that is restored."""
        return {"class": type(self).__name__}

    def __repr__(self) -> str:
        plain = {k: v for k, v in self.__dict__.items() if k not in self._skipped}
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in plain.items())})"


class _Closed(LRScheduler):
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
        xp = _numbers(epoch)
        new, old = self._factor(epoch), self._factor(epoch - 1)
        ratio = xp.where(old == 0, 0.0, new / xp.where(old == 0, 1.0, old))
        rates = []
        for i, (group, base) in enumerate(zip(self.optimizer.param_groups, self.base_lrs)):
            rate, base = _number(group["lr"]), _number(base)
            restart = xp.where(old == 0, (base - floor) * new, 0.0)
            scaled = floor + (rate - floor) * ratio + restart
            rates.append(xp.where(self._is_own(i), floor + (base - floor) * new, scaled))
        return rates

    def _get_closed_form_lr(self) -> list[Any]:
        factor, floor = self._factor(self._epoch()), self.eta_min
        return [floor + (_number(base) - floor) * factor for base in self.base_lrs]

    def _initial_lr(self, begins: bool) -> list[Any]:
        rates = [_number(group["lr"]) for group in self.optimizer.param_groups]
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
            for group, own, is_own in zip(self.optimizer.param_groups, self.own, owns):
                own.value = jnp.where(is_own, group["lr"].value, -1)
            if epoch is not None:
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


class LambdaLR(LRScheduler):
    """The first rate times a function of the epoch.

    Args:
        optimizer: Whose learning rates to set.
        lr_lambda: The function, or one for each group. It gets a Python integer or, inside a
            trace, an array.
        last_epoch: The epoch that was last, -1 to begin.

    Raises:
        ValueError: If there isn't one function for each group.

    Source: ``torch.optim.lr_scheduler.LambdaLR``.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.5)
        >>> scheduler = LambdaLR(optimizer, lambda epoch: 0.5**epoch)
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[Any], Any] | list[Callable[[Any], Any]],
        last_epoch: int = -1,
    ) -> None:
        self.lr_lambdas = _one_each(type(self).__name__, optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for :attr:`last_epoch`."""
        epoch = _argument(self._epoch())
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [_times(_number(base), function(epoch)) for base, function in pairs]

    def state_dict(self) -> dict[str, Any]:
        """Return the state; of functions, only the attributes of callable objects."""
        return super().state_dict() | {"lr_lambdas": _states(self.lr_lambdas)}

    def _loaded(self, key: str, value: Any) -> Any:
        return _with_states(self.lr_lambdas, value) if key == "lr_lambdas" else value


class MultiplicativeLR(LRScheduler):
    """The rate of the last epoch times a function of the epoch.

    Args:
        optimizer: Whose learning rates to set.
        lr_lambda: The function, or one for each group. It gets a Python integer or, inside a
            trace, an array.
        last_epoch: The epoch that was last, -1 to begin.

    Raises:
        ValueError: If there isn't one function for each group.

    Source: ``torch.optim.lr_scheduler.MultiplicativeLR``.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.5)
        >>> scheduler = MultiplicativeLR(optimizer, lambda epoch: 0.5)
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[Any], Any] | list[Callable[[Any], Any]],
        last_epoch: int = -1,
    ) -> None:
        self.lr_lambdas = _one_each(type(self).__name__, optimizer, lr_lambda)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for :attr:`last_epoch`."""
        epoch = _argument(self._epoch())
        pairs = zip(self.optimizer.param_groups, self.lr_lambdas, strict=True)
        return [_times(_number(group["lr"]), function(epoch)) for group, function in pairs]

    def _initial_lr(self, begins: bool) -> list[Any]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the state; of functions, only the attributes of callable objects."""
        return super().state_dict() | {"lr_lambdas": _states(self.lr_lambdas)}

    def _loaded(self, key: str, value: Any) -> Any:
        return _with_states(self.lr_lambdas, value) if key == "lr_lambdas" else value


class StepLR(_Closed):
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
        return _power(self.gamma, epoch // self.step_size)


class MultiStepLR(_Closed):
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
        return _power(self.gamma, sum(passed, epoch * 0))


class ConstantLR(_Closed):
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
        return _numbers(epoch).where(epoch < self.total_iters, self.factor, 1.0)


class LinearLR(_Closed):
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
        way = _numbers(epoch).minimum(epoch, self.total_iters)
        rise = (self.end_factor - self.start_factor) / self.total_iters
        return self.start_factor + rise * _float(way)


class ExponentialLR(_Closed):
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
        return _power(self.gamma, epoch)


class CosineAnnealingLR(_Closed):
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
        xp = _numbers(epoch)
        left = (self.T_max - epoch) % (2 * self.T_max)
        left = _float(xp.minimum(left, 2 * self.T_max - left))
        return xp.square(xp.sin(left * (np.pi / (2 * self.T_max))))


def _numbers(value: Any) -> Any:
    """Return the module to compute with: in double on the host, or in float32 in a trace."""
    return jnp if isinstance(value, jax.core.Tracer) else np


def _number(value: Any) -> Any:
    """Return a rate in double or, inside a trace, as the traced array."""
    if isinstance(value, HyperParameter):
        return value.number()
    return value.value if isinstance(value, Variable) else value


def _float(value: Any) -> Any:
    return value.astype(jnp.float32 if isinstance(value, jax.core.Tracer) else np.float64)


def _power(base: float, exponent: Any) -> Any:
    """Return ``base ** exponent`` for integers, in a trace without the error of float32(base)."""
    if not isinstance(exponent, jax.core.Tracer):
        return np.float64(base) ** exponent
    exponent = _float(exponent)
    if base <= 0:
        return jnp.power(jnp.float32(base), exponent)
    return jnp.exp(exponent * np.float32(np.log(base)))


def _times(rate: Any, factor: Any) -> Any:
    """Multiply, where a function of the user's may have given an array of any kind."""
    if isinstance(factor, Variable):
        factor = factor.value
    if isinstance(rate, jax.core.Tracer) or isinstance(factor, jax.Array):
        return jnp.asarray(rate, jnp.float32) * jnp.asarray(factor, jnp.float32)
    return rate * factor


def _argument(epoch: Any) -> Any:
    """Return the epoch as the function of a user wants it."""
    return int(epoch) if isinstance(epoch, np.integer) else epoch


def _one_each(who: str, optimizer: Any, functions: Any) -> list[Callable[[Any], Any]]:
    n = len(getattr(optimizer, "param_groups", ()))
    if not isinstance(functions, list | tuple):
        return [functions] * n
    if len(functions) != n:
        raise ValueError(
            f"{who}: expected {n} functions, one for each group, got {len(functions)}."
        )
    return list(functions)


def _states(functions: Iterable[Any]) -> list[dict[str, Any] | None]:
    return [None if isinstance(f, type(_states)) else dict(vars(f)) for f in functions]


def _with_states(functions: Iterable[Any], states: Iterable[Any]) -> list[Any]:
    functions = list(functions)
    for function, state in zip(functions, states, strict=True):
        if state is not None:
            function.__dict__.update(state)
    return functions


def _plain(value: Any) -> Any:
    return value.number() if isinstance(value, HyperParameter) else value


__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "StepLR",
]
