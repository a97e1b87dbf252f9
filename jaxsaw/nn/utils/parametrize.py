"""Parameters that are computed from others: ``module.weight = f(original)`` at every access."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxsaw import _jax
from jaxsaw.nn.containers import ModuleDict, ModuleList
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Buffer, Parameter
from jaxsaw.nn.utils import _computed
from jaxsaw.state import scope as scopes

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "type_before_parametrizations",
]


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Let a Parameter or Buffer be computed: by a module, of what it was.

    ``module.weight`` is then ``parametrization(module.parametrizations.weight.original)``. Where
    the parametrization has a ``right_inverse``, the original is what that makes of the present
    value (several, if it returns a tuple), and assigning to ``module.weight`` works likewise.
    Registering another one computes with both, the latest last.

    Args:
        module: Whose it is.
        tensor_name: The attribute.
        parametrization: A module of one array (or of as many as ``right_inverse`` returns).
        unsafe: Don't check that shape and dtype stay, and that ``right_inverse`` fits.

    Returns:
        The module; its class is now a subclass of what it was.

    Raises:
        ValueError: If there is no such Parameter or Buffer, or the parametrization doesn't fit.

    Source: ``torch.nn.utils.parametrize.register_parametrization``.

    Example:
        >>> class Symmetric(nn.Module):
        ...     def forward(self, x):
        ...         return jnp.triu(x) + jnp.triu(x, 1).T
        >>> layer = nn.Linear(3, 3, rngs=js.Rngs(params=0))
        >>> layer = register_parametrization(layer, "weight", Symmetric())
        >>> bool((layer.weight == layer.weight.T).all()), list(layer.state_dict())
        (True, ['bias', 'parametrizations.weight.original'])
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        found = _list_of(module, tensor_name)
        if not unsafe:
            _check(parametrization, getattr(module, tensor_name))
        found.append(parametrization)
        found.unsafe = found.unsafe or unsafe
        return module
    original = module.__dict__.get(tensor_name)
    if not isinstance(original, Parameter | Buffer):
        raise ValueError(
            f"{module._at(tensor_name)}: expected a Parameter or a Buffer to parametrize, got "
            f"{type(original).__name__}."
        )
    parametrizations = ParametrizationList([parametrization], original, unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        setattr(module, "parametrizations", ModuleDict())  # noqa: B010
    _lists(module)[tensor_name] = parametrizations
    _computed.compute(module, tensor_name, "parametrized")
    return module


def remove_parametrizations(
    module: Module, tensor_name: str, leave_parametrized: bool = True
) -> Module:
    """Make an ordinary Parameter or Buffer of one that is computed.

    Args:
        module: Whose it is.
        tensor_name: The attribute.
        leave_parametrized: Keep the computed value; False goes back to the original one.

    Returns:
        The module, of its first class again if nothing else of it is computed.

    Raises:
        ValueError: If it isn't parametrized, or ``leave_parametrized=False`` and it has several
            originals.

    Source: ``torch.nn.utils.parametrize.remove_parametrizations``.

    Example:
        >>> layer = nn.Linear(3, 2, rngs=js.Rngs(params=0))
        >>> layer = register_parametrization(layer, "weight", nn.Tanh(), unsafe=True)
        >>> remove_parametrizations(layer, "weight")
        Linear(in_features=3, out_features=2, bias=True)
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"{module._at(tensor_name)} isn't parametrized.")
    found = _list_of(module, tensor_name)
    if found.is_tensor:
        box = found.original
        if leave_parametrized:
            box.value = getattr(module, tensor_name)
        del found.original
    elif leave_parametrized:
        first = found.originals()[0]
        value = getattr(module, tensor_name)
        if isinstance(first, Parameter):
            box = Parameter(value, first.requires_grad)
        else:
            box = Buffer(value, first.persistent)
    else:
        raise ValueError(
            f"{module._at(tensor_name)}: leave_parametrized=False needs one original, and it has "
            f"{found.ntensors}."
        )
    _computed.compute(module, tensor_name, None)
    del _lists(module)[tensor_name]
    if not len(_lists(module)):
        delattr(module, "parametrizations")
    setattr(module, tensor_name, box)
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Return whether a Parameter or Buffer of a module is computed, or any of them.

    Args:
        module: Whose it is.
        tensor_name: The attribute; any, if None.

    Source: ``torch.nn.utils.parametrize.is_parametrized``.

    Example:
        >>> is_parametrized(nn.ReLU())
        False
    """
    kinds = _computed.computed(module)
    if tensor_name is None:
        return "parametrized" in kinds.values()
    return kinds.get(tensor_name) == "parametrized"


def type_before_parametrizations(module: Module) -> type[Module]:
    """Return the class that a module had before anything of it was computed.

    Args:
        module: The module.

    Source: ``torch.nn.utils.parametrize.type_before_parametrizations``.

    Example:
        >>> type_before_parametrizations(nn.ReLU()).__name__
        'ReLU'
    """
    return _computed.original_class(module)


class _Cache(threading.local):
    values: dict[Any, Any] | None = None


_cache = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized attribute once only inside of this context.

    Source: ``torch.nn.utils.parametrize.cached``.

    Example:
        >>> layer = nn.Linear(3, 3, rngs=js.Rngs(params=0))
        >>> layer = register_parametrization(layer, "weight", nn.Identity())
        >>> with cached():
        ...     layer.weight is layer.weight
        True
    """
    before = _cache.values
    _cache.values = {} if before is None else before
    try:
        yield
    finally:
        _cache.values = before


class ParametrizationList(ModuleList):
    """The parametrizations of one attribute, and its originals.

    Args:
        modules: The parametrizations, in the order in which they are applied.
        original: The Parameter or Buffer that was there.
        unsafe: Don't check that shape and dtype stay.

    Attributes:
        original: What the attribute is computed from; ``original0``, ``original1``, ..., if it
            is several.

    Raises:
        ValueError: If the parametrizations don't fit.

    Source: ``torch.nn.utils.parametrize.ParametrizationList``.

    Example:
        >>> ParametrizationList([nn.Identity()], nn.Parameter(jnp.ones(2)))().tolist()
        [1.0, 1.0]
    """

    original: Any

    def __init__(
        self, modules: Sequence[Module], original: Parameter | Buffer, unsafe: bool = False
    ) -> None:
        if not modules:
            raise ValueError(
                "ParametrizationList: expected at least one parametrization, got none."
            )
        super().__init__(modules)
        self.unsafe = unsafe
        before: Any = original.value
        value = before
        for module in reversed(list(self)):
            if hasattr(module, "right_inverse"):
                with suppress(NotImplementedError):
                    value = module.right_inverse(value)
        self.is_tensor = not isinstance(value, tuple | list)
        self.ntensors = 1 if self.is_tensor else len(value)
        if self.is_tensor:
            if not unsafe:
                _same(modules[0], "right_inverse", value, before)
            original.value = value
            self.original = original
        else:
            for i, part in enumerate(value):
                box = (
                    Parameter(part, original.requires_grad)
                    if isinstance(original, Parameter)
                    else Buffer(part, original.persistent)
                )
                setattr(self, f"original{i}", box)
        if not unsafe:
            try:
                _same(modules[-1], "forward", self(), before)
            except ValueError:
                original.value = before
                raise

    def originals(self) -> list[Any]:
        """Return the boxes that the attribute is computed from."""
        if self.is_tensor:
            return [self.original]
        return [getattr(self, f"original{i}") for i in range(self.ntensors)]

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the attribute becomes a value.

        Args:
            value: An array of the attribute's shape.

        Raises:
            RuntimeError: If a parametrization has no ``right_inverse``.
        """
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"{self._who()}: {type(module).__name__} has no right_inverse, so its result "
                    "can't be assigned."
                )
            value = module.right_inverse(value)
        boxes = self.originals()
        values = [value] if self.is_tensor else list(value)
        if len(values) != len(boxes):
            raise ValueError(
                f"{self._who()}: expected right_inverse to return {len(boxes)} arrays, got "
                f"{len(values)}."
            )
        for box, part in zip(boxes, values, strict=True):
            box.value = part

    def forward(self) -> Array:
        first, *rest = list(self)
        value = first(*(box.value for box in self.originals()))
        for module in rest:
            value = module(value)
        return value


def _list_of(module: Module, name: str) -> ParametrizationList:
    found: ParametrizationList = _lists(module)[name]
    return found


def _lists(module: Module) -> Any:
    return module.__dict__["parametrizations"]


def _get(module: Module, name: str) -> Any:
    found = module.__dict__.get("parametrizations")
    if found is None:
        raise AttributeError(f"{module._at(name)} isn't there yet.")
    if _cache.values is None:
        return found[name]()
    key = (module, name, scopes.current(), _jax.current_trace())
    if key not in _cache.values:
        _cache.values[key] = found[name]()
    return _cache.values[key]


def _set(module: Module, name: str, value: Any) -> None:
    _list_of(module, name).right_inverse(jnp.asarray(value))


def _check(parametrization: Module, before: Array) -> None:
    value = parametrization(before)
    _same(parametrization, "forward", value, before)
    if hasattr(parametrization, "right_inverse"):
        _same(parametrization, "right_inverse", parametrization.right_inverse(value), before)


def _same(module: Module, method: str, value: Any, before: Array) -> None:
    if not hasattr(value, "shape"):
        raise ValueError(
            f"{type(module).__name__}.{method}: expected it to return an array, got "
            f"{type(value).__name__}."
        )
    if (value.shape, value.dtype) != (before.shape, before.dtype):
        raise ValueError(
            f"{type(module).__name__}.{method}: expected shape {before.shape} and dtype "
            f"{before.dtype} to stay, got {value.shape} and {value.dtype}. Pass unsafe=True if "
            "that is meant."
        )


_computed.KINDS["parametrized"] = (_get, _set)
