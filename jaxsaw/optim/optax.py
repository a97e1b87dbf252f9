"""Optax's transformations as optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.optim.exchange import as_array
from jaxsaw.optim.group import ParamGroup, at_once, look, place
from jaxsaw.optim.optimizer import Item, Optimizer
from jaxsaw.state.variable import Variable

Array = jax.Array


class Optax(Optimizer):
    """An optimizer made of a transformation of Optax.

    The state of the transformation is the optimizer's, by name, so that steps may be compiled and
    checkpoints hold it. The transformation sees a dict of all Parameters by name. It knows no
    skipping: a Parameter without a gradient counts as one whose gradient is zero, and stays as it
    is whatever the update. Rates that change belong into the transformation
    (``optax.inject_hyperparams``, or a schedule); there are no groups.

    Args:
        params: Parameters, or ``(name, Parameter)`` pairs.
        transformation: What ``optax.adam(...)``, ``optax.chain(...)`` and the like return.

    Raises:
        TypeError: If it isn't such a transformation.
        ValueError: If there are several groups.

    Source: https://optax.readthedocs.io

    Example:
        >>> import optax
        >>> w = nn.Parameter(jnp.ones(1))
        >>> optimizer = Optax([w], optax.sgd(0.5, momentum=0.9))
        >>> optimizer.step([jnp.ones(1)])
        >>> w.value
        Array([0.5], dtype=float32)
    """

    def __init__(self, params: Any, transformation: Any) -> None:
        if not callable(getattr(transformation, "init", None)) or not callable(
            getattr(transformation, "update", None)
        ):
            raise TypeError(
                "Optax: expected a transformation such as optax.adam(1e-3), got "
                f"{type(transformation).__name__}."
            )
        super().__init__(params, {})
        self.transformation = transformation
        arrays = {name: jnp.copy(look(p)) for name, p in self._named()}
        leaves, self._structure = jax.tree.flatten_with_path(transformation.init(arrays))
        self.optax = {
            jax.tree_util.keystr(path, simple=True, separator="."): Variable(x)
            for path, x in leaves
        }

    def _named(self) -> list[tuple[str, Any]]:
        return list(zip(self._names(), self._params(), strict=True))

    def _add(self, groups: Any) -> None:
        if len(self.param_groups) + len(groups) != 1:
            raise ValueError("Optax: all Parameters go into one group, it can't have several.")
        super()._add(groups)

    def _update(self, group: ParamGroup, items: Sequence[Item], steps: Any) -> None:
        gradients = {id(item.parameter): item.gradient for item in items}
        params = {name: p.value for name, p in self._named()}
        grads = {
            name: jnp.zeros_like(params[name]) if id(p) not in gradients else gradients[id(p)]
            for name, p in self._named()
        }
        state = jax.tree.unflatten(self._structure, [box.value for box in self.optax.values()])
        with jax.numpy_dtype_promotion("standard"):  # which Optax relies on
            updates, new = self.transformation.update(grads, state, params)
        for box, x in zip(self.optax.values(), jax.tree.leaves(new), strict=True):
            box.value = jnp.asarray(x).astype(look(box).dtype)
        for name, p in self._named():
            if id(p) in gradients:
                p.value = (params[name] + updates[name]).astype(params[name].dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return the state by name, that of the transformation in ``optax``."""
        return super().state_dict() | {"optax": {k: box.value for k, box in self.optax.items()}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state, all of it or, where it raises, nothing.

        Args:
            state_dict: What :meth:`state_dict` returned.

        Raises:
            RuntimeError: If it doesn't fit.
        """
        saved = state_dict.get("optax", {})
        arrays = {k: as_array(x, self.optax[k]) for k, x in saved.items() if k in self.optax}
        wrong = [k for k, box in self.optax.items() if k not in arrays]
        wrong += [k for k, x in arrays.items() if x.shape != self.optax[k].shape]
        if wrong or saved.keys() - self.optax.keys():
            raise RuntimeError(
                "Optax.load_state_dict: nothing was loaded. Missing or of another shape: "
                f"{wrong}; unexpected: {sorted(saved.keys() - self.optax.keys())}."
            )
        with at_once():
            super().load_state_dict({k: v for k, v in state_dict.items() if k != "optax"})
            for key, array in arrays.items():
                self.optax[key].value = place(array, look(self.optax[key]))

    def torch_state_dict(self) -> dict[str, Any]:
        """Raise an error: PyTorch has no such state."""
        raise RuntimeError("Optax.torch_state_dict: PyTorch has no optimizer with such a state.")
