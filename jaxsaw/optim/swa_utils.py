"""Averages of a model's parameters over time: SWA and EMA."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw import nn
from jaxsaw.optim.group import at_once
from jaxsaw.optim.lr_scheduler.base import LRScheduler, one_each
from jaxsaw.optim.lr_scheduler.numbers import number, numbers_of
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import working_dtype

Array = jax.Array


class AveragedModel(nn.Module):
    """A copy of a model whose Parameters are an average over those of the model so far.

    By default it is the mean of all (stochastic weight averaging); ``get_ema_avg_fn`` gives an
    average in which the past decays.

    Args:
        model: The model to copy.
        device: Where the copy shall be.
        avg_fn: Returns the new average of one Parameter, given the average, the Parameter and how
            many went into the average.
        multi_avg_fn: The same for all of them: takes two lists and the number, and returns a list
            (PyTorch's changes the first list in place).
        use_buffers: Whether to average buffers, too; otherwise they are copied.

    Attributes:
        module: The copy.
        n_averaged: How often it was updated.

    Raises:
        ValueError: If both functions are given.

    Source: ``torch.optim.swa_utils.AveragedModel``.

    Example:
        >>> model = nn.Linear(2, 1, rngs=js.Rngs(0))
        >>> ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
        >>> ema.update_parameters(model)
        >>> model.bias.value = jnp.ones(1)
        >>> ema.update_parameters(model)
        >>> ema.module.bias.value, int(ema.n_averaged)
        (Array([0.5], dtype=float32), 2)
    """

    n_averaged: Any

    def __init__(
        self,
        model: nn.Module,
        device: Any = None,
        avg_fn: Callable[[Any, Any, Any], Any] | None = None,
        multi_avg_fn: Callable[[list[Any], list[Any], Any], Sequence[Any]] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("AveragedModel: give avg_fn or multi_avg_fn, not both.")
        self.module = deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", nn.Buffer(jnp.zeros((), jnp.int32)))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: nn.Module) -> None:
        """Take the present Parameters of a model into the average.

        Args:
            model: The model, of the structure that was copied.

        Raises:
            ValueError: If its Parameters have other shapes.
        """
        n = self.n_averaged.value
        mine, theirs = list(self.module.parameters()), list(model.parameters())
        copied = list(zip(self.module.buffers(), model.buffers(), strict=True))
        if self.use_buffers:
            mine += [a for a, _ in copied]
            theirs += [b for _, b in copied]
            copied = []
        if [p.shape for p in mine] != [p.shape for p in theirs]:
            raise ValueError(f"{self.path}.update_parameters: the model has another structure.")
        averages, news = [p.value for p in mine], [p.value for p in theirs]
        if self.multi_avg_fn is not None:
            found = list(self.multi_avg_fn(averages, news, n))
        else:
            one = self.avg_fn or get_swa_avg_fn()
            found = [one(a, b, n) for a, b in zip(averages, news, strict=True)]
        with at_once():
            for box, old, new, average in zip(mine, averages, news, found, strict=True):
                box.value = jnp.where(n == 0, new.astype(old.dtype), average.astype(old.dtype))
            for box, other in copied:
                box.value = other.value
            self.n_averaged.value = n + 1


def get_swa_avg_fn() -> Callable[[Any, Any, Any], Any]:
    """Return the function for the mean of all Parameters so far.

    Example:
        >>> float(get_swa_avg_fn()(jnp.float32(1), jnp.float32(4), jnp.int32(2)))
        2.0
    """
    return _mean


def get_ema_avg_fn(decay: float = 0.999) -> Callable[[Any, Any, Any], Any]:
    """Return the function for an average in which the past decays.

    Args:
        decay: The weight of the old average.

    Raises:
        ValueError: If it isn't between 0 and 1.

    Example:
        >>> float(get_ema_avg_fn(0.5)(jnp.float32(1), jnp.float32(4), jnp.int32(2)))
        2.5
    """
    if not 0 <= decay <= 1:
        raise ValueError(f"get_ema_avg_fn: decay must be between 0 and 1, got {decay}.")

    def ema(average: Any, new: Any, n: Any) -> Any:
        dtype = _dtype(average)
        average, new = average.astype(dtype), new.astype(dtype)
        return average + (1 - decay) * (new - average)

    return ema


def get_swa_multi_avg_fn() -> Callable[[list[Any], list[Any], Any], list[Any]]:
    """Return the function for the means of lists of Parameters.

    Example:
        >>> average = get_swa_multi_avg_fn()
        >>> [float(x) for x in average([jnp.zeros(())], [jnp.ones(())], jnp.int32(1))]
        [0.5]
    """
    return _each(get_swa_avg_fn())


def get_ema_multi_avg_fn(
    decay: float = 0.999,
) -> Callable[[list[Any], list[Any], Any], list[Any]]:
    """Return the function for averages of lists of Parameters in which the past decays.

    Args:
        decay: The weight of the old averages.

    Raises:
        ValueError: If it isn't between 0 and 1.

    Example:
        >>> average = get_ema_multi_avg_fn(0.75)
        >>> [float(x) for x in average([jnp.zeros(())], [jnp.ones(())], jnp.int32(1))]
        [0.25]
    """
    return _each(get_ema_avg_fn(decay))


def update_bn(loader: Iterable[Any], model: nn.Module, device: Any = None) -> None:
    """Compute the statistics of all batch norms anew, as means over a loader's batches.

    An averaged model has no batch statistics that belong to its Parameters.

    Args:
        loader: Batches: arrays, or tuples or lists whose first item goes into the model.
        model: The model.
        device: Where to put the batches.

    Source: ``torch.optim.swa_utils.update_bn``.

    Example:
        >>> model = nn.Sequential(nn.BatchNorm1d(1))
        >>> update_bn([jnp.array([[0.0], [2.0]]), jnp.array([[4.0], [6.0]])], model)
        >>> model[0].running_mean.value
        Array([3.], dtype=float32)
    """
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    norms = [module for module in model.modules() if isinstance(module, kinds)]
    if not norms:
        return
    modes = [(module, module.training) for module in model.modules()]
    momenta = [module.momentum for module in norms]
    try:
        model.train()
        for module in norms:
            module.reset_running_stats()
            module.momentum = None
        for batch in loader:
            x = batch[0] if isinstance(batch, tuple | list) else batch
            model(x if device is None else jax.device_put(x, device))
    finally:
        for module, momentum in zip(norms, momenta, strict=True):
            module.momentum = momentum
        for part, mode in modes:
            part.training = mode


class SWALR(LRScheduler):
    """The rates from what they are to one for the time of averaging, where they stay.

    Args:
        optimizer: Whose learning rates to set.
        swa_lr: The last rate, or one for each group.
        anneal_epochs: How many epochs the way takes.
        anneal_strategy: ``"cos"`` or ``"linear"``.
        last_epoch: The epoch that was last, -1 to begin.

    Raises:
        ValueError: If an argument is out of range.

    Source: ``torch.optim.swa_utils.SWALR``.

    Example:
        >>> optimizer = optim.SGD([nn.Parameter(jnp.ones(1))], lr=0.5)
        >>> scheduler = SWALR(optimizer, swa_lr=0.25, anneal_epochs=2, anneal_strategy="linear")
        >>> scheduler.step()
        >>> scheduler.get_last_lr()
        [0.375]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(
                f"SWALR: anneal_strategy must be 'cos' or 'linear', got {anneal_strategy!r}."
            )
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"SWALR: anneal_epochs must be at least 0, got {anneal_epochs}.")
        for group, rate in zip(
            optimizer.param_groups, one_each("SWALR: swa_lr", optimizer, swa_lr)
        ):
            group["swa_lr"] = rate
        self.anneal_epochs = anneal_epochs
        self._anneal_strategy = anneal_strategy
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """Return the rate of each group for :attr:`last_epoch`."""
        step = self._epoch()
        xp = numbers_of(step)
        if self.anneal_epochs == 0:
            step = xp.maximum(step, 1)
        new, old = self._part(step), self._part(step - 1)
        rates = []
        for group in self.optimizer.param_groups:
            rate, last = number(group["lr"]), number(group["swa_lr"])
            # What the rate would be without this schedule; once it is over, that is lost.
            is_over = old == 1
            first = (rate - old * last) / xp.where(is_over, 1, 1 - old)
            rates.append(xp.where(is_over, last, last * new + first * (1 - new)))
        return rates

    def _part(self, step: Any) -> Any:
        """Return which part of the way is gone."""
        xp = numbers_of(step)
        dtype = np.float32 if xp is jnp else np.float64
        t = xp.clip(step.astype(dtype) / max(1, self.anneal_epochs), 0, 1)
        return t if self._anneal_strategy == "linear" else xp.square(xp.sin(t * (np.pi / 2)))


def _mean(average: Any, new: Any, n: Any) -> Any:
    dtype = _dtype(average)
    average, new = average.astype(dtype), new.astype(dtype)
    return average + (new - average) / (n.astype(dtype) + 1)


def _each(one: Callable[[Any, Any, Any], Any]) -> Callable[[list[Any], list[Any], Any], list[Any]]:
    return lambda averages, news, n: [one(a, b, n) for a, b in zip(averages, news, strict=True)]


def _dtype(x: Any) -> Any:
    return x.dtype if jnp.iscomplexobj(x) else working_dtype([x])


__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]
