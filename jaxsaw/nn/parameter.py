"""The kinds of boxes that modules hold: what is trained, and what is not."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxsaw.state import scope as scopes
from jaxsaw.state.signature import intern
from jaxsaw.state.variable import Variable, as_strong_array

_LINE = "loss, grads = js.value_and_grad(loss_fn)(model); optimizer.step(grads)"


class NoTapeError(RuntimeError, AttributeError):
    """Something was asked for that needs a tape of operations, which jaxsaw doesn't record.

    Args:
        what: What was asked for, with the path of its object.
        line: What to write instead.

    Example:
        >>> print(NoTapeError("model.zero_grad()"))
        model.zero_grad(): jaxsaw records no tape. Write instead: \
loss, grads = js.value_and_grad(loss_fn)(model); optimizer.step(grads)
    """

    def __init__(self, what: str, line: str = _LINE) -> None:
        super().__init__(f"{what}: jaxsaw records no tape. Write instead: {line}")


class _Kind(Variable):
    """A box with static attributes of its own."""

    __slots__ = ()

    def _sign(self) -> Any:
        return intern((type(self), *self._attributes().values()))

    def _twin(self) -> Any:
        twin = super()._twin()
        for name, value in self._attributes().items():
            setattr(twin, name, value)
        return twin

    def _set_static(self, name: str, value: Any) -> None:
        """Set an attribute that compiled functions depend on."""
        slot = f"_{name}"
        if getattr(self, slot) == value:
            return
        if hasattr(self, "_place"):  # else it is still being made
            self._check_changeable(name)
        setattr(self, slot, value)
        self._signature = None
        self._changed()

    def _check_changeable(self, name: str) -> None:
        scope = scopes.current()
        if scope is None:
            return
        while scope is not None:
            if self in scope.created:
                return
            scope = scope.parent
        raise RuntimeError(
            f"{self.path}.{name} was changed inside a traced function, where the change would be "
            "lost. Change it outside."
        )


class Parameter(_Kind):
    """A box that is trained: gradients are taken with respect to it.

    Args:
        data: The first value, an array of floats (or complex numbers) of any shape.
        requires_grad: Whether it is trained; False freezes it.
        axes: Names of the axes, by which ``js.shard`` places it on a mesh.

    Raises:
        TypeError: If ``data`` can't be differentiated: integers, booleans, random keys.

    Source: ``torch.nn.Parameter``.

    Example:
        >>> import jax.numpy as jnp
        >>> weight = Parameter(jnp.ones((2, 3)))
        >>> weight.shape, weight.requires_grad
        ((2, 3), True)
    """

    __slots__ = ("_axes", "_requires_grad")

    _axes: tuple[str | None, ...] | None
    _requires_grad: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self._requires_grad = True
        self._axes = None
        return self

    def __init__(
        self,
        data: Any,
        requires_grad: bool = True,
        *,
        axes: tuple[str | None, ...] | None = None,
    ) -> None:
        array = as_strong_array(data.value if isinstance(data, Variable) else data)
        _check_trainable("Parameter", array)
        self.requires_grad = requires_grad
        self.axes = axes
        self._fill(array, exposed=isinstance(data, jax.Array))

    @property
    def requires_grad(self) -> bool:
        """Whether it is trained. Static: changing it retraces what is compiled with it."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._set_static("requires_grad", bool(value))

    @property
    def axes(self) -> tuple[str | None, ...] | None:
        """Names of the axes, or None."""
        return self._axes

    @axes.setter
    def axes(self, value: tuple[str | None, ...] | None) -> None:
        self._set_static("axes", None if value is None else tuple(value))

    def requires_grad_(self, requires_grad: bool = True) -> Parameter:
        """Set :attr:`requires_grad` and return the parameter.

        Args:
            requires_grad: Whether it is trained.
        """
        self.requires_grad = requires_grad
        return self

    @property
    def grad(self) -> Any:
        """There is none; asking raises an error that shows what to write."""
        raise NoTapeError(f"{self.path}.grad")

    @grad.setter
    def grad(self, value: Any) -> None:
        raise NoTapeError(f"{self.path}.grad = ...")

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Raise an error that shows what to write."""
        raise NoTapeError(f"{self.path}.backward()")

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Raise an error that shows what to write."""
        raise NoTapeError(f"{self.path}.zero_grad()")

    def register_hook(self, hook: Any) -> None:
        """Raise an error that shows what to write."""
        raise NoTapeError(f"{self.path}.register_hook()")

    def _cast(self, new: Any) -> Any:
        array = super()._cast(new)
        _check_trainable(self.path, array)
        return array

    def _attributes(self) -> dict[str, Any]:
        return {"requires_grad": self._requires_grad, "axes": self._axes}


class Buffer(_Kind):
    """A box that is state but isn't trained, such as running statistics.

    Args:
        data: The first value, an array of any dtype and shape, or a typed key.
        persistent: Whether ``state_dict()`` has it.

    Source: ``torch.nn.Buffer``.

    Example:
        >>> import jax.numpy as jnp
        >>> Buffer(jnp.zeros(3)).persistent
        True
    """

    __slots__ = ("_persistent",)

    _persistent: bool

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        self = super().__new__(cls)
        self._persistent = True
        return self

    def __init__(self, data: Any, persistent: bool = True) -> None:
        array = as_strong_array(data.value if isinstance(data, Variable) else data)
        self.persistent = persistent
        self._fill(array, exposed=isinstance(data, jax.Array))

    @property
    def persistent(self) -> bool:
        """Whether ``state_dict()`` has it."""
        return self._persistent

    @persistent.setter
    def persistent(self, value: bool) -> None:
        self._set_static("persistent", bool(value))

    def _attributes(self) -> dict[str, Any]:
        return {"persistent": self._persistent}


def _check_trainable(who: str, array: Any) -> None:
    if not jax.dtypes.issubdtype(array.dtype, np.inexact):
        raise TypeError(
            f"{who}: expected floats or complex numbers, since a Parameter is trained, got "
            f"{array.dtype}. For other state use nn.Buffer or js.Variable."
        )
