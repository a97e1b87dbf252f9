"""The base of all schedules: epochs, rates, and what a state dict holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import jax
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
                self._set(self.get_lr())
            else:
                self._jump(epoch if hasattr(epoch, "dtype") else np.asarray(epoch, np.int32))

    def _jump(self, epoch: Any) -> None:
        """Go to an epoch, and set its learning rates."""
        self.last_epoch.value = place(epoch, look(self.last_epoch))
        self._set(getattr(self, "_get_closed_form_lr", self.get_lr)())

    def _begin_again(self) -> None:
        """Do the first epoch over, where another schedule has come first so far."""
        self.last_epoch.value = self.last_epoch.value + 1
        self._set(self._initial_lr(begins=True))

    def _take_back(self) -> None:
        """Go back to before the first epoch."""
        self.last_epoch.value = self.last_epoch.value - 1

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
        if "last_epoch" not in state_dict:
            raise RuntimeError(f"{who}: this is no state of a schedule, it lacks 'last_epoch'.")
        counts = {"base_lrs": len(self.base_lrs), "_last_lr": len(self.optimizer.param_groups)}
        for key, n in counts.items():
            if key in state_dict and len(state_dict[key]) != n:
                raise RuntimeError(
                    f"{who}: {key} has {len(state_dict[key])} rates, expected one for each of the "
                    f"{n} groups. Nothing was loaded."
                )
        epoch = np.asarray(state_dict["last_epoch"], np.int32)
        boxes = {}
        for key, value in state_dict.items():
            if isinstance(old := self.__dict__.get(key), Variable):
                boxes[old] = value
            elif key not in self._skipped and key in self.__dict__:
                setattr(self, key, self._loaded(key, value))
        with at_once():
            for box, value in boxes.items():
                box.value = value
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


def _plain(value: Any) -> Any:
    """Return a box's number (in a trace, its array), anything else as it is."""
    if isinstance(value, HyperParameter):
        return value.number()
    if isinstance(value, Variable):
        array = value.value
        return array if isinstance(array, jax.core.Tracer) else array.item()
    return value


def one_each(who: str, optimizer: Optimizer, value: Any) -> list[float]:
    """Return one number for each group.

    Args:
        who: What it is, for the error.
        optimizer: The optimizer with the groups.
        value: A number for all of them, or a list.

    Raises:
        ValueError: If the list has another length.
    """
    n = len(optimizer.param_groups)
    if not isinstance(value, list | tuple):
        return [value] * n
    if len(value) != n:
        raise ValueError(f"{who}: expected {n} numbers, one for each group, got {len(value)}.")
    return list(value)
