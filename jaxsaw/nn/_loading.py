"""How a module's boxes are written: all of them at one instant, or none."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw import _jax
from jaxsaw.nn.parameter import Parameter
from jaxsaw.state import pack, variable
from jaxsaw.state import scope as scopes
from jaxsaw.state.variable import Variable

if TYPE_CHECKING:
    from jaxsaw.nn.module import Module


class Plan:
    """What loading a state will do, once all of it is known to fit.

    Attributes:
        assign: Take the arrays' dtypes, instead of casting to the boxes'.
        known: The names that some module asked for.
        writes: The new array of each box.
        extra: Modules, and what their ``set_extra_state`` shall get.
        post_hooks: Hooks to call once all names have been looked at, and their modules.
    """

    def __init__(self, assign: bool) -> None:
        self.assign = assign
        self.known: set[str] = set()
        self.writes: dict[Variable, Any] = {}
        self.extra: list[tuple[Module, Any]] = []
        self.post_hooks: list[tuple[Callable[..., Any], Module]] = []

    def carry_out(self) -> None:
        """Do it all; when something raises, set back what was set."""
        undo: list[tuple[Module, Any]] = []
        try:
            for module, extra in self.extra:
                undo.append((module, deepcopy(module.get_extra_state())))
                module.set_extra_state(extra)
            write_all(self.writes, exposed=self.assign)
        except BaseException:
            for module, before in reversed(undo):
                module.set_extra_state(before)
            raise


def loaded(value: Any, box: Variable, assign: bool) -> Any:
    """Return the array that loading ``value`` puts into ``box``.

    Args:
        value: A NumPy, JAX or PyTorch array, or a box.
        box: Where it goes.
        assign: Keep its dtype, instead of casting to the box's.

    Raises:
        ValueError: If it doesn't fit; the text has ``{key}`` for the name.
    """
    if isinstance(value, Variable):
        value = value.value
    elif hasattr(value, "detach") and hasattr(value, "numpy"):
        value = _from_torch(value)
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise ValueError(f"{{key}}: expected an array, got {type(value).__name__}.")
    if tuple(value.shape) != tuple(box.shape):
        raise ValueError(
            f"size mismatch for {{key}}: the state has shape {tuple(value.shape)}, "
            f"the module {tuple(box.shape)}."
        )
    is_key = jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
    if is_key or jax.dtypes.issubdtype(box.dtype, jax.dtypes.prng_key):
        if value.dtype != box.dtype:
            raise ValueError(f"{{key}}: expected dtype {box.dtype}, got {value.dtype}.")
        return value.copy()
    if not jax.dtypes.issubdtype(value.dtype, np.number) and value.dtype != bool:
        raise ValueError(f"{{key}}: expected an array of numbers, got dtype {value.dtype}.")
    if assign:
        if isinstance(box, Parameter) and not jax.dtypes.issubdtype(value.dtype, np.inexact):
            raise ValueError(f"{{key}}: expected floats for a Parameter, got {value.dtype}.")
        return value if isinstance(value, jax.Array) else variable.as_strong_array(value)
    return _like(value, box)


def _like(value: Any, box: Variable) -> Any:
    """Return a copy of ``value`` with the box's dtype, where the box's array is."""
    if isinstance(value, jax.Array):
        new = variable.as_strong_array(value, box.dtype)
        new = value.copy() if new is value else new
    else:
        new = jnp.array(np.asarray(value).astype(box.dtype))
    old = None if scopes.current() is not None else box._peek()
    if old is not None and not isinstance(new, _jax.Tracer) and old.committed:
        new = jax.device_put(new, old.sharding)
    return new


def _from_torch(tensor: Any) -> np.ndarray:
    """Return a PyTorch tensor as a NumPy array, without importing PyTorch."""
    tensor = tensor.detach().cpu()
    for method in ("resolve_conj", "resolve_neg"):
        if hasattr(tensor, method):
            tensor = getattr(tensor, method)()
    name = str(tensor.dtype).removeprefix("torch.")
    if name == "bfloat16" or name.startswith("float8"):  # which NumPy doesn't know
        return tensor.float().numpy().astype(jnp.dtype(name))
    return np.asarray(tensor.numpy())


def write_all(values: dict[Variable, Any], *, exposed: bool) -> None:
    """Write arrays into boxes, all at one instant.

    Args:
        values: The arrays by box.
        exposed: Whether somebody else may hold them.
    """
    if scopes.current() is None and _jax.current_trace() is _jax.EVAL:
        pack.commit(values, exposed=exposed)
    else:
        for box, array in values.items():
            variable.write(box, array)
