"""Pruning: weights that a mask sets to zero, ``weight = weight_orig * weight_mask``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsaw.nn.module import Module
from jaxsaw.nn.utils import _computed
from jaxsaw.nn.utils._pruning import (
    BasePruningMethod,
    CustomFromMask,
    Identity,
    L1Unstructured,
    LnStructured,
    RandomStructured,
    RandomUnstructured,
    is_pruned_at,
)
from jaxsaw.rngs import Rngs

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


def identity(module: Module, name: str) -> Module:
    """Have a mask of ones, which prunes nothing.

    Args:
        module: Whose Parameter it is.
        name: The attribute.

    Source: ``torch.nn.utils.prune.identity``.

    Example:
        >>> layer = identity(nn.Linear(2, 1, rngs=js.Rngs(params=0)), "weight")
        >>> list(layer.state_dict())
        ['bias', 'weight_orig', 'weight_mask']
    """
    Identity.apply(module, name)
    return module


def random_unstructured(
    module: Module, name: str, amount: float, *, rngs: Rngs | None = None
) -> Module:
    """Prune elements at random.

    Args:
        module: Whose Parameter it is.
        name: The attribute.
        amount: How many of those that are left (an int), or what part of them (a float).
        rngs: Where they are drawn from: one key of the stream ``params``.

    Source: ``torch.nn.utils.prune.random_unstructured``.

    Example:
        >>> layer = nn.Linear(4, 2, rngs=js.Rngs(params=0))
        >>> layer = random_unstructured(layer, "weight", 3, rngs=js.Rngs(params=1))
        >>> int((layer.weight == 0).sum())
        3
    """
    RandomUnstructured.apply(module, name, amount, rngs=rngs)
    return module


def l1_unstructured(
    module: Module, name: str, amount: float, importance_scores: Array | None = None
) -> Module:
    """Prune the elements of the least absolute values.

    Args:
        module: Whose Parameter it is.
        name: The attribute.
        amount: How many of those that are left (an int), or what part of them (a float).
        importance_scores: Take these instead of the values, of their shape.

    Source: ``torch.nn.utils.prune.l1_unstructured``.

    Example:
        >>> layer = l1_unstructured(nn.Linear(4, 2, rngs=js.Rngs(params=0)), "weight", 0.5)
        >>> int((layer.weight == 0).sum())
        4
    """
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(
    module: Module, name: str, amount: float, dim: int, *, rngs: Rngs | None = None
) -> Module:
    """Prune channels at random.

    Args:
        module: Whose Parameter it is.
        name: The attribute.
        amount: How many of those that are left (an int), or what part of them (a float).
        dim: The axis of the channels.
        rngs: Where they are drawn from: one key of the stream ``params``.

    Source: ``torch.nn.utils.prune.random_structured``.

    Example:
        >>> layer = nn.Linear(4, 2, rngs=js.Rngs(params=0))
        >>> layer = random_structured(layer, "weight", 1, 0, rngs=js.Rngs(params=1))
        >>> int((layer.weight == 0).sum())
        4
    """
    RandomStructured.apply(module, name, amount, dim, rngs=rngs)
    return module


def ln_structured(
    module: Module,
    name: str,
    amount: float,
    n: Any,
    dim: int,
    importance_scores: Array | None = None,
) -> Module:
    """Prune the channels of the least norms.

    Args:
        module: Whose Parameter it is.
        name: The attribute.
        amount: How many of those that are left (an int), or what part of them (a float).
        n: Which norm.
        dim: The axis of the channels.
        importance_scores: Take these instead of the values, of their shape.

    Source: ``torch.nn.utils.prune.ln_structured``.

    Example:
        >>> layer = ln_structured(nn.Linear(4, 2, rngs=js.Rngs(params=0)), "weight", 1, 2, 0)
        >>> int((layer.weight == 0).sum())
        4
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Array] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several Parameters as if they were one.

    Args:
        parameters: Modules and names.
        pruning_method: An unstructured method, such as :class:`L1Unstructured`.
        importance_scores: Take these instead of the values, by module and name.
        **kwargs: For the method.

    Raises:
        TypeError: If the method isn't unstructured, or ``parameters`` are no pairs.

    Source: ``torch.nn.utils.prune.global_unstructured``.

    Example:
        >>> a, b = (nn.Linear(4, 2, rngs=js.Rngs(params=i)) for i in range(2))
        >>> global_unstructured([(a, "weight"), (b, "weight")], L1Unstructured, amount=5)
        >>> int((a.weight == 0).sum() + (b.weight == 0).sum())
        5
    """
    pairs = list(parameters)
    if pruning_method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f"global_unstructured: expected an unstructured method, got {pruning_method.__name__}."
        )
    method = pruning_method(**kwargs)
    given = importance_scores or {}
    arrays = [np.asarray(getattr(module, name)) for module, name in pairs]
    scores = [np.asarray(given.get(pair, a)) for pair, a in zip(pairs, arrays, strict=True)]
    masks = [
        np.asarray(module.__dict__[f"{name}_mask"])
        if is_pruned_at(module, name)
        else np.ones(a.shape)
        for (module, name), a in zip(pairs, arrays, strict=True)
    ]
    flat = lambda parts: np.concatenate([np.ravel(part) for part in parts]).astype(np.float32)
    mask = method._mask(jnp.asarray(flat(arrays)), flat(masks), flat(scores))
    start = 0
    for (module, name), array in zip(pairs, arrays, strict=True):
        part = mask[start : start + array.size].reshape(array.shape)
        custom_from_mask(module, name, part)
        start += array.size


def custom_from_mask(module: Module, name: str, mask: Any) -> Module:
    """Prune by a mask that is given.

    Args:
        module: Whose Parameter it is.
        name: The attribute.
        mask: 1 for what stays, of the Parameter's shape.

    Source: ``torch.nn.utils.prune.custom_from_mask``.

    Example:
        >>> layer = nn.Linear(2, 1, rngs=js.Rngs(params=0))
        >>> bool(custom_from_mask(layer, "weight", jnp.array([[1, 0]])).weight[0, 1] == 0)
        True
    """
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Module, name: str) -> Module:
    """Make an ordinary Parameter, with its zeros, of one that is pruned.

    Args:
        module: Whose it is.
        name: The attribute.

    Raises:
        ValueError: If it isn't pruned.

    Source: ``torch.nn.utils.prune.remove``.

    Example:
        >>> layer = identity(nn.Linear(2, 1, rngs=js.Rngs(params=0)), "weight")
        >>> list(remove(layer, "weight").state_dict())
        ['bias', 'weight']
    """
    if not is_pruned_at(module, name):
        raise ValueError(f"{module._at(name)} isn't pruned.")
    weight = module.__dict__[f"{name}_orig"]
    weight.value = getattr(module, name)
    _computed.compute(module, name, None)
    delattr(module, f"{name}_orig")
    delattr(module, f"{name}_mask")
    setattr(module, name, weight)
    return module


def is_pruned(module: Module) -> bool:
    """Return whether anything in a module, or in modules inside it, is pruned.

    Args:
        module: The module.

    Source: ``torch.nn.utils.prune.is_pruned``.

    Example:
        >>> is_pruned(nn.Sequential(nn.ReLU()))
        False
    """
    return any("pruned" in _computed.computed(part).values() for part in module.modules())
