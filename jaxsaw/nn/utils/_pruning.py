"""Methods of pruning: what makes a mask, and where it is kept."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsaw.nn._factory import required
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Parameter
from jaxsaw.nn.utils import _computed
from jaxsaw.rngs import Rngs


class BasePruningMethod:
    """How a mask is made; subclasses define :meth:`compute_mask`.

    Attributes:
        PRUNING_TYPE: Which elements it is shown of an array that is pruned already: only what
            is left (``"unstructured"``), only channels that aren't all zero along ``dim``
            (``"structured"``), or all (``"global"``).

    Source: ``torch.nn.utils.prune.BasePruningMethod``.

    Example:
        >>> class Positive(BasePruningMethod):
        ...     PRUNING_TYPE = "unstructured"
        ...     def compute_mask(self, t, default_mask):
        ...         return default_mask * (t > 0)
        >>> Positive().prune(jnp.array([1.0, -2.0])).tolist()
        [1.0, -0.0]
    """

    PRUNING_TYPE = "unstructured"
    dim: int

    def compute_mask(self, t: np.ndarray, default_mask: np.ndarray) -> np.ndarray:
        """Return the mask.

        Args:
            t: How important each element is, any shape.
            default_mask: What was left before, of the same shape.
        """
        raise NotImplementedError(f"{type(self).__name__} has no compute_mask(t, default_mask).")

    def prune(
        self, t: Array, default_mask: Array | None = None, importance_scores: Array | None = None
    ) -> Array:
        """Return an array with zeros where it is pruned.

        Args:
            t: The array.
            default_mask: What was left before.
            importance_scores: How important its elements are; the array itself if None.
        """
        array = jnp.asarray(t)
        return array * jnp.asarray(self._mask(array, default_mask, importance_scores), array.dtype)

    @classmethod
    def apply(
        cls,
        module: Module,
        name: str,
        *args: Any,
        importance_scores: Array | None = None,
        **kwargs: Any,
    ) -> BasePruningMethod:
        """Prune a Parameter of a module, further if it is pruned already.

        Args:
            module: Whose it is.
            name: The attribute.
            *args: For the constructor.
            importance_scores: How important its elements are; the Parameter itself if None.
            **kwargs: For the constructor.

        Returns:
            The method.
        """
        method = cls(*args, **kwargs)
        weight = getattr(module, name)
        pruned = is_pruned_at(module, name)
        if not pruned and not isinstance(weight, Parameter):
            raise ValueError(
                f"{module._at(name)}: expected a Parameter to prune, got {type(weight).__name__}."
            )
        before = module.__dict__[f"{name}_mask"].value if pruned else None
        array = jnp.asarray(weight)
        mask = jnp.asarray(method._mask(array, before, importance_scores), array.dtype)
        if pruned:
            module.__dict__[f"{name}_mask"].value = mask
        else:
            delattr(module, name)
            module.register_parameter(f"{name}_orig", weight)
            module.register_buffer(f"{name}_mask", mask)
            _computed.compute(module, name, "pruned")
        return method

    def _mask(self, t: Array, default_mask: Any, importance_scores: Any) -> np.ndarray:
        scores = np.asarray(t if importance_scores is None else importance_scores)
        if scores.shape != t.shape:
            raise ValueError(
                f"{type(self).__name__}: expected importance_scores {t.shape}, got {scores.shape}."
            )
        scores = scores.astype(np.float32)
        if default_mask is None:
            return self.compute_mask(scores, np.ones(scores.shape, np.float32))
        mask = np.array(default_mask, np.float32)
        where: Any = slice(None)
        if self.PRUNING_TYPE == "unstructured":
            where = mask == 1
        elif self.PRUNING_TYPE == "structured":
            axes = tuple(i for i in range(mask.ndim) if i != self.dim % mask.ndim)
            left = mask.sum(axes) != 0
            where = (*[slice(None)] * (self.dim % mask.ndim), left)
        mask[where] = self.compute_mask(scores[where], mask[where])
        return mask


class Identity(BasePruningMethod):
    """Prune nothing.

    Source: ``torch.nn.utils.prune.Identity``.

    Example:
        >>> Identity().prune(jnp.ones(2)).tolist()
        [1.0, 1.0]
    """

    def compute_mask(self, t: np.ndarray, default_mask: np.ndarray) -> np.ndarray:
        return default_mask


class _ByAmount(BasePruningMethod):
    """What the methods share that prune a number or a part of the elements.

    Args:
        amount: How many (an int), or what part of all (a float in [0, 1]).
    """

    def __init__(self, amount: float) -> None:
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise TypeError(
                f"{type(self).__name__}: expected amount to be a number, got {amount!r}."
            )
        if amount < 0 or (isinstance(amount, float) and amount > 1):
            raise ValueError(
                f"{type(self).__name__}: expected amount as an int of at least 0 or a float in "
                f"[0, 1], got {amount}."
            )
        self.amount = amount

    def _count(self, size: int) -> int:
        if isinstance(self.amount, int):
            if self.amount > size:
                raise ValueError(
                    f"{type(self).__name__}: expected amount of at most {size}, which are left, "
                    f"got {self.amount}."
                )
            return self.amount
        return round(self.amount * size)

    def _least(self, mask: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """Return a mask without the elements of the least scores."""
        mask = mask.copy()
        n = self._count(scores.size)
        mask.reshape(-1)[np.argsort(scores, axis=None, kind="stable")[:n]] = 0
        return mask

    def _least_channels(self, mask: np.ndarray, scores: np.ndarray, dim: int) -> np.ndarray:
        n = self._count(scores.size)
        gone = np.zeros(mask.shape, bool)
        np.moveaxis(gone, dim, 0)[np.argsort(scores, kind="stable")[:n]] = True
        return np.where(gone, 0, mask)


class RandomUnstructured(_ByAmount):
    """Prune elements at random.

    Args:
        amount: How many, or what part of all.
        rngs: Where they are drawn from: one key of the stream ``params`` for each use.

    Source: ``torch.nn.utils.prune.RandomUnstructured``.

    Example:
        >>> int(RandomUnstructured(0.5, rngs=js.Rngs(params=0)).prune(jnp.ones(8)).sum())
        4
    """

    def __init__(self, amount: float, *, rngs: Rngs | None = None) -> None:
        super().__init__(amount)
        self.rngs = required(rngs, "RandomUnstructured")

    def compute_mask(self, t: np.ndarray, default_mask: np.ndarray) -> np.ndarray:
        return self._least(default_mask, _drawn(self.rngs, t.shape))


class L1Unstructured(_ByAmount):
    """Prune the elements of the least absolute values.

    Args:
        amount: How many, or what part of all.

    Source: ``torch.nn.utils.prune.L1Unstructured``.

    Example:
        >>> L1Unstructured(1).prune(jnp.array([3.0, -1.0, 2.0])).tolist()
        [3.0, -0.0, 2.0]
    """

    def compute_mask(self, t: np.ndarray, default_mask: np.ndarray) -> np.ndarray:
        return self._least(default_mask, np.abs(t))


class RandomStructured(_ByAmount):
    """Prune channels at random.

    Args:
        amount: How many, or what part of all.
        dim: The axis of the channels.
        rngs: Where they are drawn from: one key of the stream ``params`` for each use.

    Source: ``torch.nn.utils.prune.RandomStructured``.

    Example:
        >>> RandomStructured(1, 0, rngs=js.Rngs(params=0)).prune(jnp.ones((2, 3))).sum().item()
        3.0
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1, *, rngs: Rngs | None = None) -> None:
        super().__init__(amount)
        self.dim = dim
        self.rngs = required(rngs, "RandomStructured")

    def compute_mask(self, t: np.ndarray, default_mask: np.ndarray) -> np.ndarray:
        _check_axis(self, t)
        return self._least_channels(default_mask, _drawn(self.rngs, t.shape[self.dim]), self.dim)


class LnStructured(_ByAmount):
    """Prune the channels of the least norms.

    Args:
        amount: How many, or what part of all.
        n: Which norm; ``"fro"`` and infinite ones too.
        dim: The axis of the channels.

    Source: ``torch.nn.utils.prune.LnStructured``.

    Example:
        >>> LnStructured(1, 2, 0).prune(jnp.array([[1.0, 1.0], [3.0, 0.0]])).tolist()
        [[0.0, 0.0], [3.0, 0.0]]
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount)
        self.n = n
        self.dim = dim

    def compute_mask(self, t: np.ndarray, default_mask: np.ndarray) -> np.ndarray:
        _check_axis(self, t)
        flat = np.moveaxis(t, self.dim, 0).reshape(t.shape[self.dim], -1)
        norms = np.linalg.norm(flat, 2 if self.n == "fro" else float(self.n), axis=1)
        return self._least_channels(default_mask, norms, self.dim)


class CustomFromMask(BasePruningMethod):
    """Prune by a mask that is given.

    Args:
        mask: 1 for what stays, of the array's shape.

    Source: ``torch.nn.utils.prune.CustomFromMask``.

    Example:
        >>> CustomFromMask(jnp.array([1, 0])).prune(jnp.ones(2)).tolist()
        [1.0, 0.0]
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Array) -> None:
        self.mask = np.asarray(mask)

    def compute_mask(self, t: np.ndarray, default_mask: np.ndarray) -> np.ndarray:
        if self.mask.shape != default_mask.shape:
            raise ValueError(
                f"CustomFromMask: expected mask {default_mask.shape}, got {self.mask.shape}."
            )
        return default_mask * self.mask.astype(default_mask.dtype)


def is_pruned_at(module: Module, name: str) -> bool:
    """Return whether one attribute of a module is pruned."""
    return _computed.computed(module).get(name) == "pruned"


def _drawn(rngs: Rngs, shape: Any) -> np.ndarray:
    return np.asarray(jax.random.uniform(rngs.next("params"), shape))


def _check_axis(method: Any, t: np.ndarray) -> None:
    if t.ndim < 2:
        raise ValueError(
            f"{type(method).__name__}: expected an array of 2 axes or more, got {t.shape}."
        )
    if not -t.ndim <= method.dim < t.ndim:
        raise IndexError(
            f"{type(method).__name__}: expected dim in [{-t.ndim}, {t.ndim - 1}], got {method.dim}."
        )


def _get(module: Module, name: str) -> Any:
    values = module.__dict__
    if f"{name}_orig" not in values:
        raise AttributeError(f"{module._at(name)} isn't there yet.")
    return values[f"{name}_orig"].value * values[f"{name}_mask"].value


def _set(module: Module, name: str, value: Any) -> None:
    raise TypeError(f"{module._at(name)} is pruned: write {name}_orig instead, or remove the mask.")


_computed.KINDS["pruned"] = (_get, _set)
