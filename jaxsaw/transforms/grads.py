"""Gradients by name: what :func:`jaxsaw.grad` returns for an object."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax

from jaxsaw.state.graph import boxes_of
from jaxsaw.state.node import Node
from jaxsaw.state.variable import Variable


class Names:
    """The static part of a :class:`Grads`: names, and weak references to the boxes.

    Two are equal if their names are, so that gradients of equal models fit together in JAX's
    tree functions. References are weak because JAX keeps tree structures for long.
    """

    __slots__ = ("names", "refs")

    def __init__(self, names: Sequence[str], boxes: Iterable[Variable]) -> None:
        self.names = tuple(names)
        self.refs = tuple(map(weakref.ref, boxes))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Names) and other.names == self.names

    def __hash__(self) -> int:
        return hash(self.names)


class Grads(Mapping[str, Any]):
    """An ordered mapping from dotted names to gradients, which remembers the Parameters.

    It is a JAX pytree, so ``jax.tree.map`` works on it and gives a Grads again, and an optimizer
    finds the Parameter of each gradient by identity.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import jaxsaw as js
        >>> from jaxsaw import nn
        >>> model = nn.Linear(2, 1, rngs=js.Rngs(0))
        >>> grads = js.grad(lambda m: m(jnp.ones((1, 2))).sum())(model)
        >>> {name: grad.shape for name, grad in grads.items()}
        {'weight': (1, 2), 'bias': (1,)}
        >>> jax.tree.map(lambda g: 2 * g, grads)["bias"]
        Array([2.], dtype=float32)
    """

    __slots__ = ("__weakref__", "_names", "arrays")

    def __init__(self, names: Names, arrays: Sequence[Any]) -> None:
        self._names = names
        self.arrays = tuple(arrays)

    @property
    def boxes(self) -> tuple[Variable, ...]:
        """The Parameters that these are gradients of, in the order of the values.

        Raises:
            ReferenceError: If one of them is gone.
        """
        boxes = tuple(ref() for ref in self._names.refs)
        if None in boxes:
            name = self._names.names[boxes.index(None)]
            raise ReferenceError(f"The Parameter {name!r} of these gradients no longer exists.")
        return boxes  # type: ignore[return-value]

    @property
    def is_flat(self) -> bool:
        """Whether there is one array for each name; a Hessian, for example, has a Grads."""
        return not any(isinstance(x, Grads | tuple | list | dict) for x in self.arrays)

    def only(self, parameters: Any) -> Grads:
        """Return the part for some Parameters.

        Args:
            parameters: An optimizer, a module, a Parameter or an iterable of Parameters.

        Returns:
            The gradients of those Parameters, in the order that they have here.
        """
        if isinstance(parameters, Node):
            parameters = boxes_of(parameters)
        wanted = set(map(id, parameters))
        kept = [i for i, box in enumerate(self.boxes) if id(box) in wanted]
        names = Names([self._names.names[i] for i in kept], [self.boxes[i] for i in kept])
        return Grads(names, [self.arrays[i] for i in kept])

    def __getitem__(self, name: str) -> Any:
        try:
            return self.arrays[self._names.names.index(name)]
        except ValueError:
            known = ", ".join(self._names.names) or "nothing"
            raise KeyError(f"There is no gradient for {name!r}; there is for: {known}.") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._names.names)

    def __len__(self) -> int:
        return len(self._names.names)

    def __repr__(self) -> str:
        return f"Grads({dict(self)})"


def _flatten(grads: Grads) -> tuple[tuple[Any, ...], Names]:
    return grads.arrays, grads._names


def _flatten_with_keys(grads: Grads) -> tuple[tuple[tuple[Any, Any], ...], Names]:
    keys = map(jax.tree_util.DictKey, grads._names.names)
    return tuple(zip(keys, grads.arrays, strict=True)), grads._names


jax.tree_util.register_pytree_with_keys(
    Grads, _flatten_with_keys, lambda names, arrays: Grads(names, tuple(arrays)), _flatten
)
