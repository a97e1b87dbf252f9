"""The base class of all layers and models."""

from __future__ import annotations

import inspect
import itertools
import operator
import re
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw import _jax
from jaxsaw.nn._factory import as_device, as_dtype
from jaxsaw.nn._loading import Plan, loaded, write_all
from jaxsaw.nn.parameter import Buffer, NoTapeError, Parameter
from jaxsaw.rngs import Rngs, using
from jaxsaw.state import scope as scopes
from jaxsaw.state.containers import WatchedDict, WatchedList
from jaxsaw.state.node import SLOTS, Node
from jaxsaw.state.signature import Signature, intern, static_key
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable

Self = TypeVar("Self", bound="Module")
Class = type  # inside the class, ``type`` is a method

_MISSING = object()
_SLOTS = frozenset((*SLOTS, "_birth", "_family", "_hooks", "_vacant"))


class IncompatibleKeys(NamedTuple):
    """What :meth:`Module.load_state_dict` found to differ.

    Attributes:
        missing_keys: Names that the module has and the state doesn't.
        unexpected_keys: Names that the state has and the module doesn't.
    """

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module(Stateful):
    """Base of layers and models, with the surface of ``torch.nn.Module``.

    Attributes may be modules, Parameters, Buffers, arrays (which become Buffers that aren't
    persistent), lists, tuples and dicts of these, and plain Python values, which are static:
    compiled functions are traced anew when they change.

    Attributes:
        training: Whether the module is in training mode; see :meth:`train`.

    Source: ``torch.nn.Module``.

    Example:
        >>> import jax.numpy as jnp
        >>> class Scale(Module):
        ...     def __init__(self, features):
        ...         super().__init__()
        ...         self.weight = Parameter(jnp.ones(features))
        ...     def forward(self, x):
        ...         return x * self.weight
        >>> Scale(3)(jnp.ones((2, 3))).shape
        (2, 3)
    """

    __slots__ = ("_family", "_hooks", "_vacant")

    training: bool
    _family: _Family | None  # what train() walks over
    _hooks: dict[str, dict[int, tuple[Any, ...]]] | None  # by kind, then by number
    _vacant: dict[str, tuple[str, bool]]  # attributes that are None: kind, and if it is persistent

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # Here and not in __init__, so that a subclass may forget to call that.
        self = super().__new__(cls)
        self._family = None
        self._hooks = None
        self._vacant = {}
        self.__dict__["training"] = True
        return self

    def __init__(self) -> None:
        pass

    # Calling.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output; subclasses define it."""
        raise NotImplementedError(
            f"{self._who()} has no forward method. Define forward(self, ...) in "
            f"{type(self).__name__}."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call :meth:`forward` and the hooks.

        Args:
            *args: For ``forward``.
            **kwargs: For ``forward``. ``rngs=`` are the streams that all layers inside draw from;
                ``forward`` gets them too where its signature names them.
        """
        try:
            if self._hooks is None and "rngs" not in kwargs:
                return self.forward(*args, **kwargs)
            return self._call(args, kwargs)
        except Exception as error:
            self._locate(error)
            raise

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rngs = kwargs.get("rngs")
        if rngs is not None and not isinstance(rngs, Rngs):
            raise TypeError(
                f"{self._who()}: expected rngs to be a js.Rngs, got {type(rngs).__name__}."
            )
        if "rngs" in kwargs and not _names_rngs(self):
            del kwargs["rngs"]
        with using(rngs):
            if self._hooks is None:
                return self.forward(*args, **kwargs)
            return self._call_with_hooks(args, kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        done: set[int] = set()
        try:
            for hook, with_kwargs in self._hooks_of("forward_pre"):
                if with_kwargs:
                    changed = hook(self, args, kwargs)
                    if changed is not None:
                        if not (isinstance(changed, tuple) and len(changed) == 2):
                            raise RuntimeError(
                                f"{self._who()}: a forward pre-hook with with_kwargs=True must "
                                f"return None or (args, kwargs), got {changed!r}."
                            )
                        args, kwargs = changed
                else:
                    changed = hook(self, args)
                    if changed is not None:
                        args = changed if isinstance(changed, tuple) else (changed,)
            for (policy,) in self._hooks_of("policy"):  # at most one
                result = policy.call(self, args, kwargs)
                break
            else:
                result = self.forward(*args, **kwargs)
            for number, entry in self._numbered_hooks("forward"):
                done.add(number)
                changed = _call_forward_hook(self, entry, args, kwargs, result)
                result = result if changed is None else changed
            return result
        except Exception:
            for number, entry in self._numbered_hooks("forward"):
                if entry[2] and number not in done:
                    try:
                        _call_forward_hook(self, entry, args, kwargs, None)
                    except Exception as error:
                        warnings.warn(
                            f"{self._who()}: a forward hook with always_call=True raised "
                            f"{error!r} after an error, and was ignored.",
                            stacklevel=2,
                        )
            raise

    def _who(self) -> str:
        """Return how errors name this module: its path and class."""
        path, name = self.path, type(self).__name__
        return name if path == name else f"{path} ({name})"

    def _locate(self, error: Exception) -> None:
        """Let an error that ``functional`` raised say in which module it was."""
        if getattr(error, "_located", False) or not _is_from_functional(error):
            return
        text = error.args[0] if len(error.args) == 1 else None
        if isinstance(text, str):
            error._located = True  # type: ignore[attr-defined]
            who = self._who()
            if text.startswith(who):
                return
            if _is_own_layer(self):  # which needn't say which function it is made of
                text = re.sub(r"^[a-z][\w ]*: ", "", text)
            error.args = (f"{who}: {text}",)

    # Attributes.

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SLOTS:
            object.__setattr__(self, name, value)
            return
        old = self.__dict__.get(name, _MISSING)
        if old is value:
            return
        kept = self._vacant.get(name) if old is None else _kind_of(old)
        if kept is not None and value is not None:
            value = self._fitting(name, kept, old, value)
        super().__setattr__(name, value)
        if kept is not None:
            if value is None:
                self._vacant[name] = kept
            else:
                self._vacant.pop(name, None)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        self._vacant.pop(name, None)

    def _fitting(self, name: str, kept: tuple[str, bool], old: Any, value: Any) -> Any:
        """Check, by PyTorch's rules, what is assigned to a name that is a state's or a module's."""
        kind, persistent = kept
        if kind == "module":
            value = _as_container(self, name, value)
            if isinstance(value, Module | Parameter):
                return value
            wanted = "a module: assign a module, or None"
        elif kind == "parameter":
            if isinstance(value, Parameter):
                return value
            wanted = f"a Parameter: assign a Parameter or None, or write it with {name}.value = ..."
        else:
            if isinstance(value, Module | Parameter | Buffer):
                return value
            if isinstance(value, Variable):
                wanted = f"a Buffer: assign a Buffer, or write it with {name}.value = ..."
            elif isinstance(value, jax.Array | _jax.Tracer) or hasattr(value, "__array__"):
                return Buffer(value, persistent) if old is None else value
            else:
                wanted = f"a Buffer: assign an array or None, or use {name}.value = ..."
        raise TypeError(f"{self._at(name)} is {wanted}. Got {type(value).__name__}.")

    def _admit(self, name: str, value: Any) -> Any:
        value = super()._admit(name, _as_container(self, name, value))
        if isinstance(value, Node):
            _check_name(self, name)
        # As in PyTorch, a name that becomes another kind of thing goes to the end of its kind.
        if name in self.__dict__ and (kind := _kind_of(value)) is not None:
            old = self._vacant.get(name) or _kind_of(self.__dict__[name])
            if old is None or old[0] != kind[0]:
                del self.__dict__[name]
        return value

    def _box(self, array: Any) -> Variable:
        return Buffer(array, persistent=False)

    def _at(self, name: str) -> str:
        """Return the dotted path of an attribute, for errors."""
        return f"{self.path}.{name}"

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Add a Buffer.

        Args:
            name: The attribute.
            tensor: An array of any shape, a Buffer, or None for one that is assigned later.
            persistent: Whether ``state_dict()`` has it.

        Raises:
            TypeError: If ``tensor`` isn't an array.
            KeyError: If the name can't be used, or is used already.
        """
        self._check_new(name, "buffer")
        if tensor is None:
            self._set_vacant(name, ("buffer", persistent))
            return
        if isinstance(tensor, Buffer):
            tensor.persistent = persistent
        elif isinstance(tensor, jax.Array | _jax.Tracer) or hasattr(tensor, "__array__"):
            tensor = Buffer(tensor, persistent)
        else:
            raise TypeError(
                f"{self._at(name)}: expected an array, a Buffer or None, "
                f"got {type(tensor).__name__}."
            )
        self._replace(name, tensor)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a Parameter.

        Args:
            name: The attribute.
            param: The Parameter, or None for one that is assigned later.

        Raises:
            TypeError: If ``param`` isn't a Parameter.
            KeyError: If the name can't be used, or is used already.
        """
        self._check_new(name, "parameter")
        if param is None:
            self._set_vacant(name, ("parameter", True))
        elif isinstance(param, Parameter):
            self._replace(name, param)
        else:
            raise TypeError(
                f"{self._at(name)}: expected a Parameter or None, got {type(param).__name__}. "
                "Wrap an array: nn.Parameter(array)."
            )

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a module.

        Args:
            name: The attribute.
            module: The module, or None for one that is assigned later.

        Raises:
            TypeError: If ``module`` isn't a module.
            KeyError: If the name can't be used, or is used already.
        """
        self._check_new(name, "module")
        if module is None:
            self._set_vacant(name, ("module", True))
        elif isinstance(module, Module):
            self._replace(name, module)
        else:
            raise TypeError(
                f"{self._at(name)}: expected a module or None, got {type(module).__name__}."
            )

    def register_module(self, name: str, module: Module | None) -> None:
        """Do what :meth:`add_module` does."""
        self.add_module(name, module)

    def _check_new(self, name: str, kind: str) -> None:
        if not isinstance(name, str):
            raise TypeError(
                f"{self._who()}: the name of a {kind} must be a string, got {type(name).__name__}."
            )
        _check_name(self, name)
        if name in self.__dict__:
            old = self.__dict__[name]
            kept = self._vacant.get(name) if old is None else _kind_of(old)
            if kept is None or kept[0] != kind:
                raise KeyError(f"{self._who()}: the attribute {name!r} already exists.")

    def _replace(self, name: str, node: Node) -> None:
        """Store a node, also where another of its kind was."""
        super().__setattr__(name, node)
        self._vacant.pop(name, None)

    def _set_vacant(self, name: str, kept: tuple[str, bool]) -> None:
        super().__setattr__(name, None)
        self._vacant[name] = kept

    # What is inside.

    def _held(self, *kinds: Class) -> Iterator[tuple[str, Any]]:
        """Yield what this module itself holds of some kinds of nodes, by attribute name."""
        for name, value in self.__dict__.items():
            if isinstance(value, Node):
                if isinstance(value, kinds):
                    yield name, value
            elif isinstance(value, list | tuple | dict) and value:
                for inner, node in _nodes_in(name, value):
                    if isinstance(node, kinds):
                        yield inner, node

    @property
    def _parameters(self) -> dict[str, Parameter | None]:
        return self._by_name("parameter", Parameter)

    @property
    def _buffers(self) -> dict[str, Buffer | None]:
        return self._by_name("buffer", Buffer)

    @property
    def _modules(self) -> dict[str, Module | None]:
        return self._by_name("module", Module)

    def _by_name(self, kind: str, cls: Class) -> dict[str, Any]:
        if not self._vacant:
            return dict(self._held(cls))
        found = dict(self._held(cls))
        for name, value in self.__dict__.items():
            if value is None and self._vacant.get(name, ("",))[0] == kind:
                found[name] = None
        order = {name: i for i, name in enumerate(self.__dict__)}
        return dict(sorted(found.items(), key=lambda item: order[item[0].partition(".")[0]]))

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """Yield this module and all inside it, with their dotted names.

        Args:
            memo: Modules to leave out; those that are yielded are added.
            prefix: Put before the names.
            remove_duplicate: Yield a module that has several names once only.
        """
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, child in self._held(Module):
            path = f"{prefix}.{name}" if prefix else name
            yield from child.named_modules(memo, path, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """Yield this module and all inside it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield the modules directly inside this one, each once, with their names."""
        seen: set[Module] = set()
        for name, child in self._held(Module):
            if child not in seen:
                seen.add(child)
                yield name, child

    def children(self) -> Iterator[Module]:
        """Yield the modules directly inside this one, each once."""
        return (child for _, child in self.named_children())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Yield the Parameters with their dotted names.

        Args:
            prefix: Put before the names.
            recurse: Also those of the modules inside.
            remove_duplicate: Yield a Parameter that has several names once only.
        """
        return self._named_boxes(Parameter, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield the Parameters, each once.

        Args:
            recurse: Also those of the modules inside.
        """
        return (box for _, box in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Buffer]]:
        """Yield the Buffers with their dotted names.

        Args:
            prefix: Put before the names.
            recurse: Also those of the modules inside.
            remove_duplicate: Yield a Buffer that has several names once only.
        """
        return self._named_boxes(Buffer, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Buffer]:
        """Yield the Buffers, each once.

        Args:
            recurse: Also those of the modules inside.
        """
        return (box for _, box in self.named_buffers(recurse=recurse))

    def _named_boxes(
        self, kind: Class, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[Variable] = set()
        modules = (
            self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
            if recurse
            else [(prefix, self)]
        )
        for path, module in modules:
            for name, box in module._held(kind):
                if box in seen:
                    continue
                if remove_duplicate:
                    seen.add(box)
                yield f"{path}.{name}" if path else name, box

    def get_submodule(self, target: str) -> Module:
        """Return a module inside this one by its dotted name.

        Args:
            target: The name; ``""`` is this module.

        Raises:
            AttributeError: If there is none.
        """
        found = self._find(target)
        if not isinstance(found, Module):
            raise AttributeError(f"{self._at(target)} is no module but a {type(found).__name__}.")
        return found

    def get_parameter(self, target: str) -> Parameter:
        """Return a Parameter by its dotted name.

        Args:
            target: The name.

        Raises:
            AttributeError: If there is none.
        """
        found = self._find(target)
        if not isinstance(found, Parameter):
            raise AttributeError(
                f"{self._at(target)} is no Parameter but a {type(found).__name__}."
            )
        return found

    def get_buffer(self, target: str) -> Buffer:
        """Return a Buffer by its dotted name.

        Args:
            target: The name.

        Raises:
            AttributeError: If there is none.
        """
        found = self._find(target)
        if not isinstance(found, Buffer):
            raise AttributeError(f"{self._at(target)} is no Buffer but a {type(found).__name__}.")
        return found

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replace (or, unless ``strict``, add) a module inside this one by its dotted name.

        Args:
            target: The name.
            module: The new module.
            strict: Only replace.

        Raises:
            ValueError: If the name is empty or ``module`` isn't a module.
            AttributeError: If there is nothing by that name to put it into or, with ``strict``,
                to replace.
        """
        if not target:
            raise ValueError(f"{self._who()}: expected the name of a submodule, got ''.")
        if not isinstance(module, Module):
            raise ValueError(f"{self._at(target)}: expected a module, got {type(module).__name__}.")
        holder_name, _, name = target.rpartition(".")
        holder = self._find(holder_name)
        if isinstance(holder, Module):
            known = name in holder.__dict__
            if strict and not known:
                raise AttributeError(f"{self._at(target)} doesn't exist.")
            if known and not isinstance(holder.__dict__[name], Module):
                raise AttributeError(f"{self._at(target)} is no module.")
            setattr(holder, name, module)
        elif isinstance(holder, list):
            self._find(target)
            holder[int(name)] = module
        elif isinstance(holder, dict):
            holder[name] = module
        else:
            raise AttributeError(f"{self._at(holder_name)} holds no modules.")

    def _find(self, target: str) -> Any:
        """Return what is at a dotted name, through lists and dicts as well."""
        found: Any = self
        walked: list[str] = []
        for name in target.split(".") if target else ():
            try:
                if isinstance(found, Module):
                    found = getattr(found, name)
                elif isinstance(found, list | tuple):
                    found = found[int(name)]
                elif isinstance(found, dict):
                    found = found[name]
                else:
                    raise AttributeError(name)
            except (AttributeError, IndexError, KeyError, ValueError):
                where = ".".join([self.path, *walked])
                raise AttributeError(f"{where} has no attribute {name!r}.") from None
            walked.append(name)
        return found

    # Mode and dtype.

    def train(self: Self, mode: bool = True) -> Self:
        """Set training mode, here and in all modules inside.

        Args:
            mode: True for training, False for evaluation.

        Returns:
            This module.

        Raises:
            ValueError: If ``mode`` isn't a bool.
            RuntimeError: If this changes anything inside a traced function.
        """
        if not isinstance(mode, bool):
            raise ValueError(f"{self._who()}: train() expects a bool, got {mode!r}.")
        family = self._family
        if family is None or family.stale:
            family = _Family(self)
            self._family = family
        changed = [module for module in family.members if module.training is not mode]
        if self.training is not mode:
            changed.append(self)
        if changed:
            if scopes.current() is not None:
                for module in changed:
                    module._check_assignable("training")
            _set_training(changed, mode)
        for module in family.independent:
            module.train(mode)
        return self

    def eval(self: Self) -> Self:
        """Set evaluation mode, here and in all modules inside; the same as ``train(False)``."""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Set ``requires_grad`` of all Parameters.

        Args:
            requires_grad: False freezes them: no gradient, no decay.

        Returns:
            This module.
        """
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def to(
        self: Self, *args: Any, device: Any = None, dtype: Any = None, non_blocking: bool = False
    ) -> Self:
        """Move or cast all Parameters and Buffers, all or none.

        ``to(device)``, ``to(dtype)``, ``to(device, dtype)`` and ``to(array)`` are understood.

        Args:
            *args: A device (a JAX device or sharding, or a name such as ``"cpu"``), a dtype, or an
                array that has both.
            device: The same, by name.
            dtype: A floating or complex dtype. Integers keep theirs.
            non_blocking: Accepted and ignored: transfers never block.

        Returns:
            This module, with the same Parameters and Buffers as before.

        Raises:
            TypeError: If the dtype isn't floating or complex, or an argument is neither.
        """
        for arg in args:
            if isinstance(arg, bool) or arg is None:
                continue
            if isinstance(arg, jax.Array):
                device, dtype = arg.sharding, arg.dtype
            elif (found := _dtype_or_none(arg)) is not None:
                dtype = found
            elif _is_device(arg):
                device = arg
            else:
                raise TypeError(
                    f"{self._who()}: to() expects a device, a sharding, a dtype or an array, "
                    f"got {arg!r}."
                )
        dtype = None if dtype is None else as_dtype(dtype)
        if dtype is not None and not jax.dtypes.issubdtype(dtype, np.inexact):
            raise TypeError(
                f"{self._who()}: to() casts to floating and complex dtypes only, got {dtype}."
            )
        return self._convert(dtype, as_device(device))

    def float(self: Self) -> Self:
        """Cast all floating Parameters and Buffers to float32."""
        return self._convert(np.dtype("float32"), None)

    def double(self: Self) -> Self:
        """Cast all floating Parameters and Buffers to float64 (in JAX's 64-bit mode)."""
        return self._convert(as_dtype("float64"), None)

    def half(self: Self) -> Self:
        """Cast all floating Parameters and Buffers to float16."""
        return self._convert(np.dtype("float16"), None)

    def bfloat16(self: Self) -> Self:
        """Cast all floating Parameters and Buffers to bfloat16."""
        return self._convert(as_dtype("bfloat16"), None)

    def type(self: Self, dst_type: Any) -> Self:
        """Cast all Parameters and Buffers, integers too.

        Args:
            dst_type: The dtype.
        """
        return self._convert(as_dtype(dst_type), None, everything=True)

    def cpu(self: Self) -> Self:
        """Move all Parameters and Buffers to the CPU."""
        return self._convert(None, as_device("cpu"))

    def cuda(self: Self, device: Any = None) -> Self:
        """Move all Parameters and Buffers to a GPU.

        Args:
            device: The GPU's number, 0 if None, or a device.
        """
        if device is None or isinstance(device, int):
            device = f"cuda:{device or 0}"
        return self._convert(None, as_device(device))

    def _convert(self: Self, dtype: Any, device: Any, everything: bool = False) -> Self:
        values = {}
        for box in itertools.chain(self.parameters(), self.buffers()):
            array = box.value if scopes.current() is not None else box._peek()
            new = array
            if dtype is not None and (everything or _casts(array.dtype, dtype)):
                new = new.astype(dtype)
            if device is not None:
                new = jax.device_put(new, device)
            if new is not array:
                values[box] = new
        # An array that was only moved may still share its memory with the old one.
        write_all(values, exposed=device is not None)
        return self

    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call a function with every module inside, and at last with this one.

        Args:
            fn: What to call; what it returns is ignored.

        Returns:
            This module.
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    # Hooks.

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call ``hook(module, args)`` before each call of ``forward``.

        Args:
            hook: May return new arguments: a tuple, or a single one.
            prepend: Call it before the hooks that are there already.
            with_kwargs: Call ``hook(module, args, kwargs)``, which may return new ones of both.

        Returns:
            A handle whose ``remove()`` takes the hook away.
        """
        return self._add_hook("forward_pre", (hook, with_kwargs), prepend)

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> HookHandle:
        """Call ``hook(module, args, output)`` after each call of ``forward``.

        Args:
            hook: May return another output.
            prepend: Call it before the hooks that are there already.
            with_kwargs: Call ``hook(module, args, kwargs, output)``.
            always_call: Call it also when ``forward`` raises, with None for the output.

        Returns:
            A handle whose ``remove()`` takes the hook away.
        """
        return self._add_hook("forward", (hook, with_kwargs, always_call), prepend)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call ``hook(module, prefix, keep_vars)`` before the state of this module is collected.

        Args:
            hook: What to call.
        """
        return self._add_hook("state_dict_pre", (hook,), False)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call ``hook(module, state_dict, prefix, {})`` after the state has been collected.

        Args:
            hook: May change ``state_dict`` in place.
        """
        return self._add_hook("state_dict_post", (hook,), False)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call a hook before the state of this module is looked at.

        Args:
            hook: Called as ``hook(module, state_dict, prefix, {}, strict, missing_keys,
                unexpected_keys, error_messages)``; may change the (copied) ``state_dict``.
        """
        return self._add_hook("load_pre", (hook,), False)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> HookHandle:
        """Call a hook after the state of this module has been looked at, before it is written.

        Args:
            hook: Called as ``hook(module, incompatible_keys)``; may change the lists in place.
        """
        return self._add_hook("load_post", (hook,), False)

    def _add_hook(self, kind: str, entry: tuple[Any, ...], prepend: bool) -> HookHandle:
        self._check_assignable(f"a {kind} hook")
        hooks = self._hooks or {}
        number = next(_numbers)
        old = hooks.get(kind, {})
        new = {number: entry, **old} if prepend else {**old, number: entry}
        self._set_hooks({**hooks, kind: new})
        return HookHandle(self, kind, number)

    def _set_hooks(self, hooks: dict[str, dict[int, tuple[Any, ...]]]) -> None:
        hooks = {kind: entries for kind, entries in hooks.items() if entries}
        self._hooks = hooks or None
        self._signature = None
        self._changed()

    def _numbered_hooks(self, kind: str) -> list[tuple[int, tuple[Any, ...]]]:
        return list((self._hooks or {}).get(kind, {}).items())

    def _hooks_of(self, kind: str) -> Iterable[tuple[Any, ...]]:
        return [entry for _, entry in self._numbered_hooks(kind)]

    # There is no tape.

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Raise an error that shows what to write: there are no stored gradients."""
        raise NoTapeError(self._at("zero_grad()"))

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Raise an error that shows what to write."""
        raise NoTapeError(self._at("backward()"))

    def register_full_backward_hook(self, hook: Any, prepend: bool = False) -> None:
        """Raise an error that shows what to write."""
        raise NoTapeError(self._at("register_full_backward_hook()"))

    def register_full_backward_pre_hook(self, hook: Any, prepend: bool = False) -> None:
        """Raise an error that shows what to write."""
        raise NoTapeError(self._at("register_full_backward_pre_hook()"))

    def register_backward_hook(self, hook: Any) -> None:
        """Raise an error that shows what to write."""
        raise NoTapeError(self._at("register_backward_hook()"))

    # State.

    def state_dict(
        self,
        *,
        destination: dict[str, Any] | None = None,
        prefix: str = "",
        keep_vars: bool = False,
    ) -> dict[str, Any]:
        """Return the Parameters and persistent Buffers by their dotted names.

        A box that has several names is there under each of them, as in PyTorch.

        Args:
            destination: A dict to add to.
            prefix: Put before the names.
            keep_vars: Return the boxes instead of their arrays.

        Returns:
            An ordered dict of arrays.
        """
        state = OrderedDict() if destination is None else destination
        for (hook,) in self._hooks_of("state_dict_pre"):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(state, prefix, keep_vars)
        for name, child in self._held(Module):
            child.state_dict(destination=state, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for (hook,) in self._hooks_of("state_dict_post"):
            hook(self, state, prefix, {})
        return state

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Add what this module itself holds."""
        for name, box in self._own_state():
            destination[prefix + name] = box if keep_vars else box.value
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[f"{prefix}_extra_state"] = self.get_extra_state()

    def _own_state(self) -> Iterator[tuple[str, Variable]]:
        yield from self._held(Parameter)
        for name, box in self._held(Buffer):
            if box.persistent:
                yield name, box

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Write the Parameters and persistent Buffers: all of them, or none with an error.

        Args:
            state_dict: NumPy, JAX or PyTorch arrays by dotted names.
            strict: Refuse names that are missing or unexpected.
            assign: Take the arrays' dtypes, instead of casting to the boxes'.

        Returns:
            The names that are missing and unexpected.

        Raises:
            TypeError: If ``state_dict`` isn't a mapping.
            RuntimeError: If a shape differs or, with ``strict``, a name. All are listed.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(
                f"{self._who()}: load_state_dict() expects a mapping of names to arrays, "
                f"got {type(state_dict).__name__}."
            )
        state = OrderedDict(state_dict)
        plan = Plan(assign)
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        self._load("", state, plan, IncompatibleKeys(missing, unexpected), errors)
        unexpected += [key for key in state if key not in plan.known and key not in unexpected]
        for hook, module in plan.post_hooks:
            hook(module, IncompatibleKeys(missing, unexpected))
        if strict and missing:
            errors.insert(0, f"Missing key(s): {_quoted(missing)}.")
        if strict and unexpected:
            errors.insert(1 if missing else 0, f"Unexpected key(s): {_quoted(unexpected)}.")
        if errors:
            raise RuntimeError(
                f"{self._who()}: nothing was loaded, since the state_dict doesn't fit.\n\t"
                + "\n\t".join(errors)
            )
        plan.carry_out()
        return IncompatibleKeys(missing, unexpected)

    def _load(
        self,
        prefix: str,
        state: dict[str, Any],
        plan: Plan,
        keys: IncompatibleKeys,
        errors: list[str],
    ) -> None:
        metadata = {"assign_to_params_buffers": plan.assign, "plan": plan}
        found = (prefix, metadata, True, *keys, errors)
        for (hook,) in self._hooks_of("load_pre"):
            hook(self, state, *found)
        self._load_from_state_dict(state, *found)
        for name, child in self._held(Module):
            child._load(f"{prefix}{name}.", state, plan, keys, errors)
        plan.post_hooks += [(hook, self) for (hook,) in self._hooks_of("load_post")]

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Plan what this module itself takes from a state; nothing is written yet."""
        plan: Plan = local_metadata["plan"]
        for name, box in self._own_state():
            key = prefix + name
            plan.known.add(key)
            if key not in state_dict:
                missing_keys.append(key)
                continue
            try:
                plan.writes[box] = loaded(state_dict[key], box, plan.assign)
            except ValueError as error:
                error_msgs.append(str(error).replace("{key}", key))
        key = f"{prefix}_extra_state"
        if type(self).set_extra_state is not Module.set_extra_state:
            plan.known.add(key)
            if key in state_dict:
                plan.extra.append((self, state_dict[key]))
            else:
                missing_keys.append(key)

    def get_extra_state(self) -> Any:
        """Return what else ``state_dict()`` shall have; override it with its counterpart."""
        raise RuntimeError(f"{self._who()}: get_extra_state() isn't defined.")

    def set_extra_state(self, state: Any) -> None:
        """Take what :meth:`get_extra_state` returned; override it with its counterpart."""
        raise RuntimeError(f"{self._who()}: set_extra_state() isn't defined.")

    # Text.

    def extra_repr(self) -> str:
        """Return what ``repr`` shows of this module beside its children."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        children = [f"({name}): {child!r}" for name, child in self._modules.items()]
        return layout(self._get_name(), extra.split("\n") if extra else [], children)

    def __dir__(self) -> list[str]:
        return sorted(name for name in super().__dir__() if not name[:1].isdigit())

    # Copies.

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self._vacant:
            state["__vacant__"] = dict(self._vacant)
        if self._hooks is not None:
            state["__hooks__"] = {kind: dict(entries) for kind, entries in self._hooks.items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        self._vacant = state.pop("__vacant__", {})
        self._hooks = state.pop("__hooks__", None)
        super().__setstate__(state)

    # The object graph.

    def _edges(self) -> Iterator[tuple[str, Node]]:
        # Own boxes before those of children, so that gradients are in the order of parameters().
        children = []
        for name, node in super()._edges():
            if isinstance(node, Module):
                children.append((name, node))
            else:
                yield name, node
        yield from children

    def _sign(self) -> Signature:
        items = [(name, static_key(value)) for name, value in self.__dict__.items()]
        hooks = self._hooks
        if hooks is not None:
            items.append(("__hooks__", static_key([list(h.values()) for h in hooks.values()])))
        return intern((type(self), *items))


class HookHandle:
    """What registering a hook returns; ``remove()`` takes the hook away again.

    Args:
        module: Where the hook is.
        kind: When it is called.
        number: Which one it is.
    """

    def __init__(self, module: Module, kind: str, number: int) -> None:
        self._module = weakref.ref(module)
        self._kind = kind
        self.id = number

    def remove(self) -> None:
        """Take the hook away; the second time this does nothing."""
        module = self._module()
        if module is None or self.id not in (module._hooks or {}).get(self._kind, {}):
            return
        module._check_assignable(f"a {self._kind} hook")
        hooks = dict(module._hooks or {})
        hooks[self._kind] = {n: entry for n, entry in hooks[self._kind].items() if n != self.id}
        module._set_hooks(hooks)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


_numbers = itertools.count()
_graphs_of = operator.attrgetter("_graphs")


def _call_forward_hook(
    module: Module,
    entry: tuple[Any, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: Any,
) -> Any:
    hook, with_kwargs, _ = entry
    return hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)


_takes_rngs: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def _names_rngs(module: Module) -> bool:
    """Return whether the signature of a module's ``forward`` names ``rngs``."""
    if "forward" in module.__dict__:
        return "rngs" in inspect.signature(module.forward).parameters
    forward = type(module).forward
    found = _takes_rngs.get(forward)
    if found is None:
        found = _takes_rngs[forward] = "rngs" in inspect.signature(forward).parameters
    return found


def _is_from_functional(error: Exception) -> bool:
    traceback = error.__traceback__
    if traceback is None:
        return False
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    name = traceback.tb_frame.f_globals.get("__name__", "")
    return name.startswith("jaxsaw.nn.functional.") or name == "jaxsaw.rngs"


def _is_own_layer(module: Module) -> bool:
    return getattr(type(module).forward, "__module__", "").startswith("jaxsaw.nn.")


def _kind_of(value: Any) -> tuple[str, bool] | None:
    """Return the kind of an attribute that PyTorch would register, and if it is persistent."""
    if not isinstance(value, Node):
        return None
    if isinstance(value, Module):
        return "module", True
    if isinstance(value, Parameter):
        return "parameter", True
    return ("buffer", value.persistent) if isinstance(value, Buffer) else None


def _check_name(module: Module, name: str) -> None:
    """Refuse names that a module, Parameter or Buffer can't have."""
    if name == "" or "." in name:
        raise KeyError(
            f"{module._who()}: the name of a module, Parameter or Buffer can't be empty or have a "
            f"dot, got {name!r}."
        )
    if name == "training" or _is_of_class(type(module), name):
        raise KeyError(
            f"{module._who()}: the attribute {name!r} already exists: it belongs to the class "
            f"{type(module).__name__}. Use another name."
        )


def _is_of_class(cls: type, name: str) -> bool:
    found = getattr(cls, name, None)
    return not isinstance(found, Node) and (callable(found) or hasattr(type(found), "__get__"))


def _as_container(module: Module, name: str, value: Any) -> Any:
    """Return the container for a list, tuple or dict of modules or Parameters, else ``value``."""
    if type(value) in (set, frozenset):
        if any(isinstance(item, Node) for item in value):
            raise TypeError(
                f"{module._at(name)}: a set has no order, so what is in it has no names. Use a "
                "list or a dict."
            )
    if type(value) in (list, tuple, dict, OrderedDict, WatchedList, WatchedDict) and value:
        items = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict) and any(isinstance(item, Node) for item in items):
            _check_keys(module, name, value)
        from jaxsaw.nn import containers  # which imports this module

        if all(isinstance(item, Module) for item in items):
            by_name: Callable[[Any], Module] = containers.ModuleDict
            in_order: Callable[[Any], Module] = containers.ModuleList
        elif all(isinstance(item, Parameter) for item in items):
            by_name, in_order = containers.ParameterDict, containers.ParameterList
        else:
            return value
        return by_name(value) if isinstance(value, dict) else in_order(value)
    return value


def _check_keys(module: Module, name: str, value: dict[Any, Any]) -> None:
    for key in value:
        if not isinstance(key, str):
            raise TypeError(
                f"{module._at(name)}: a dict of modules or Parameters needs strings for keys, "
                f"got {key!r}."
            )


def _nodes_in(prefix: str, value: Any) -> Iterator[tuple[str, Node]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, Node):
            yield f"{prefix}.{key}", item
        elif isinstance(item, list | tuple | dict):
            yield from _nodes_in(f"{prefix}.{key}", item)


class _Family:
    """The modules below one, for :meth:`Module.train`, until the structure changes.

    It stands among the ``_graphs`` of its modules, which tell it of that.

    Args:
        root: Where to begin.

    Attributes:
        members: The modules below the root that follow it.
        independent: Those that have a ``train`` of their own, which decides for what is in them.
        stale: Whether a module was added or taken away since.
        stamp: Unused; graphs have one.
    """

    __slots__ = ("__weakref__", "independent", "members", "stale", "stamp")

    def __init__(self, root: Module) -> None:
        self.members: list[Module] = []
        self.independent: list[Module] = []
        self.stale = False
        self.stamp = 0
        self._walk(root, {root})
        ref = weakref.ref(self)
        for module in (root, *self.members, *self.independent):
            module._graphs = (*(r for r in module._graphs if r() is not None), ref)

    def _walk(self, module: Module, seen: set[Module]) -> None:
        for _, child in module._held(Module):
            if child in seen:
                continue
            seen.add(child)
            if type(child).train is Module.train and "train" not in child.__dict__:
                self.members.append(child)
                self._walk(child, seen)
            else:
                self.independent.append(child)


def _set_training(modules: list[Module], mode: bool) -> None:
    """Set the mode of modules that have the other one, and tell each of their graphs once."""
    following: dict[Signature, Signature] = {}
    for module in modules:
        module.__dict__["training"] = mode
        before = module._signature
        if before is not None:
            after = following.get(before)
            if after is None:
                after = before.after("training", mode)
                if after is None:
                    after = module._sign()
                    before.learn("training", mode, after)
                following[before] = after
            object.__setattr__(module, "_signature", after)
    for ref in set().union(*map(_graphs_of, modules)):
        graph = ref()
        if graph is not None:
            graph.stamp = 0


def _casts(old: np.dtype, new: np.dtype) -> bool:
    """Return whether casting a module to ``new`` casts an array of dtype ``old``."""
    if old == new or not jax.dtypes.issubdtype(old, np.inexact):
        return False
    is_complex = jax.dtypes.issubdtype(old, np.complexfloating)
    return not is_complex or jax.dtypes.issubdtype(new, np.complexfloating)


def _dtype_or_none(value: Any) -> Any:
    if isinstance(value, int | jax.Device | jax.sharding.Sharding):
        return None
    if str(value).startswith("torch."):
        value = str(value).removeprefix("torch.")
    try:
        return jnp.dtype(value)
    except TypeError:
        return None


def _is_device(value: Any) -> bool:
    known = isinstance(value, int | str | jax.Device | jax.sharding.Sharding)
    return known or type(value).__module__ == "torch"


def _quoted(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def layout(name: str, extra: list[str], children: list[str]) -> str:
    """Return a module's text: its name, then in parentheses what is in it.

    Args:
        name: The class.
        extra: Lines about the module itself.
        children: The text of each child.
    """
    if len(extra) == 1 and not children:
        return f"{name}({extra[0]})"
    lines = [*extra, *children]
    if not lines:
        return f"{name}()"
    inner = "\n".join(lines).replace("\n", "\n  ")
    return f"{name}(\n  {inner}\n)"
