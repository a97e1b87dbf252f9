"""Schedules that a function gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jaxsaw.optim.lr_scheduler.base import LRScheduler
from jaxsaw.optim.lr_scheduler.numbers import as_argument, number, times
from jaxsaw.optim.optimizer import Optimizer


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
        epoch = as_argument(self._epoch())
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [times(number(base), function(epoch)) for base, function in pairs]

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
        epoch = as_argument(self._epoch())
        pairs = zip(self.optimizer.param_groups, self.lr_lambdas, strict=True)
        return [times(number(group["lr"]), function(epoch)) for group, function in pairs]

    def _initial_lr(self, begins: bool) -> list[Any]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Return the state; of functions, only the attributes of callable objects."""
        return super().state_dict() | {"lr_lambdas": _states(self.lr_lambdas)}

    def _loaded(self, key: str, value: Any) -> Any:
        return _with_states(self.lr_lambdas, value) if key == "lr_lambdas" else value


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
