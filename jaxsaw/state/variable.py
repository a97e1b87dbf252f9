"""The box: a named place for one array that can be read and assigned.

Everything in jaxsaw that changes while a program runs is a :class:`Variable`. Reading and writing
one asks the innermost :mod:`scope <jaxsaw.state.scope>` of the thread, if there is one; otherwise
it goes straight to the array.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw import _jax
from jaxsaw.state import pack as packs
from jaxsaw.state import scope as scopes
from jaxsaw.state.node import SLOTS, Node
from jaxsaw.state.pack import Pack, Place

Array = jax.Array


class Variable(Node, _jax.ArrayBase):
    """A box around one array or typed PRNG key.

    A Variable stands for its array in expressions and in every ``jnp`` and ``jax.lax`` function.
    ``==`` compares elementwise and ``hash`` is identity, as in PyTorch. ``+=`` and item
    assignment write the box.

    Args:
        value: The first value: an array, a typed key, a NumPy array or a Python number.
        dtype: The dtype to convert to; by default that of ``value``.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> count = js.Variable(jnp.zeros((), jnp.int32))
        >>> count += 2
        >>> int(count)
        2
    """

    __slots__ = ("__weakref__", "_place", *SLOTS)

    requires_grad: bool = False
    _is_box = True
    _place: Place | None

    def __init__(self, value: Any, dtype: Any = None) -> None:
        array = as_strong_array(value.value if isinstance(value, Variable) else value, dtype)
        self._fill(array, exposed=True)

    @classmethod
    def own(cls, array: Any, **kwargs: Any) -> Any:
        """Return a box for an array that nobody else holds, so that it may be donated as it is.

        Args:
            array: The array or typed key.
            **kwargs: Attributes of the box's class, such as ``requires_grad``.
        """
        box = cls.__new__(cls)
        for name, value in kwargs.items():
            setattr(box, name, value)
        box._fill(_strengthen(array), exposed=False)
        return box

    def _fill(self, array: Any, *, exposed: bool) -> None:
        active = scopes.current()
        if active is not None:
            self._place = None
            active.create(self, array)
        elif isinstance(array, _jax.Tracer):
            raise TypeError(
                f"A {type(self).__name__} can't be made inside a raw jax transform, since it "
                "would hold a tracer afterwards. Use the transform's jaxsaw twin, such as js.jit."
            )
        else:
            self._settle(array, exposed=exposed)

    def _settle(self, array: Any, *, exposed: bool = False, trace: Any = _jax.EVAL) -> None:
        """Give the box its first place, outside of all scopes (and in ``trace`` only)."""
        self._place = (Pack([array], (0,) if exposed else (), trace), 0)

    # Reading and writing.

    @property
    def value(self) -> Any:
        """The array in the box. Assigning casts numbers and NumPy arrays to the box's dtype."""
        active = scopes.current()
        if active is not None:
            return active.read(self)
        return self._read()

    @value.setter
    def value(self, new: Any) -> None:
        write(self, self._cast(new))

    def _cast(self, new: Any) -> Any:
        if isinstance(new, Variable):
            return new.value
        if isinstance(new, _jax.Tracer | jax.Array):
            return _strengthen(new)
        return as_strong_array(new, self.dtype)

    def _read(self) -> Any:
        """Return the array that the box holds outside of all scopes, and note that it got out."""
        while True:
            place = self._place
            if place is None:
                raise RuntimeError(
                    f"{self.path} was made inside a trace that has ended, so it holds no value. "
                    "Return the module that it belongs to from the traced function."
                )
            pack, index = place
            pack.exposed.add(index)
            try:
                content = pack.slot[0]
                array = content[index]
                # A writer may have come and gone since the note, and taken it away.
                if index in pack.exposed and pack.slot[0] is content:
                    return array
            except IndexError:
                shadow = pack.shadow
                if shadow is not None and index in pack.exposed:
                    return shadow[index]
            packs.pause()

    def _peek(self) -> Any:
        """Return what :meth:`_read` does, for a look at shape and dtype only."""
        while True:
            if self._place is None:
                return self._read()
            pack, index = self._place
            content = pack.slot[-1:] or ([pack.shadow] if pack.shadow is not None else [])
            if content:
                return content[0][index]
            packs.pause()

    @property
    def aval(self) -> Any:
        """The abstract value (shape, dtype, sharding) of the array in the box."""
        active = scopes.current()
        return _jax.typeof(self._peek() if active is None else active.look(self))

    shape = property(lambda self: self.aval.shape, doc="The shape of the array.")
    dtype = property(lambda self: self.aval.dtype, doc="The dtype of the array.")
    ndim = property(lambda self: len(self.aval.shape), doc="The number of axes.")
    size = property(lambda self: int(np.prod(self.aval.shape)), doc="The number of elements.")
    weak_type = property(lambda self: False, doc="False: boxes are strongly typed.")

    def detach(self) -> Any:
        """Return the array, with no gradient flowing through it."""
        return jax.lax.stop_gradient(self.value)

    # What Python asks of an array.

    def __jax_array__(self) -> Any:
        return self.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = np.asarray(self.value, dtype=dtype)
        return array.copy() if copy else array

    def __setitem__(self, index: Any, new: Any) -> None:
        old = self.value
        if isinstance(new, Variable):
            new = new.value
        elif not isinstance(new, jax.Array | _jax.Tracer):
            new = jnp.asarray(new, old.dtype)
        write(self, old.at[_unboxed(index)].set(new))

    def __getitem__(self, index: Any) -> Any:
        return self.value[_unboxed(index)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a Variable without axes.")
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self._concrete(bool))

    def __int__(self) -> int:
        return int(self._concrete(int))

    def __float__(self) -> float:
        return float(self._concrete(float))

    def __complex__(self) -> complex:
        return complex(self._concrete(complex))

    def __index__(self) -> int:
        return operator.index(self._concrete(int))

    def _concrete(self, kind: type) -> Any:
        """Return the array, if it is known now."""
        value = self.value
        if isinstance(value, _jax.Tracer):
            try:
                return kind(value)
            except jax.errors.ConcretizationTypeError as error:
                raise TypeError(
                    f"{self.path} has no Python value ({kind.__name__}) inside a traced function, "
                    "which runs before the numbers are known. Choose with jnp.where or js.cond, "
                    "loop with js.while_loop, or keep it as a plain attribute, which is static."
                ) from error
        return value

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __hash__(self) -> int:
        return id(self) >> 4

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._describe()})"

    __str__ = __repr__

    def _describe(self) -> str:
        try:
            value = self.value
        except RuntimeError:
            return "no value"
        if isinstance(value, _jax.Tracer) or value.size > 64:
            return f"shape={value.shape}, dtype={value.dtype}"
        return f"{np.asarray(value)}, dtype={value.dtype}" if not _is_key(value) else f"{value}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = memo[id(self)] = self._twin()
        twin._fill(self.value, exposed=True)
        return twin

    def __copy__(self) -> Any:
        twin = self._twin()
        twin._fill(self.value, exposed=True)
        return twin

    def _twin(self) -> Any:
        """Return a box of the same kind and with the same attributes, without a value."""
        return type(self).__new__(type(self))

    def __reduce__(self) -> Any:
        value = self.value
        impl = str(jax.random.key_impl(value)) if _is_key(value) else None
        data = np.asarray(jax.random.key_data(value) if impl else value)
        return _rebuilt, (type(self), data, impl, self._attributes())

    def _attributes(self) -> dict[str, Any]:
        """Return what, beside the value, makes this box (arguments of :meth:`own`)."""
        return {}


def write(box: Variable, array: Any) -> None:
    """Write an array into a box, through the innermost scope where there is one."""
    active = scopes.current()
    if active is not None:
        active.write(box, array)
    else:
        packs.commit({box: array})


def as_strong_array(value: Any, dtype: Any = None) -> Any:
    """Return ``value`` as a strongly typed array, in ``dtype`` where one is given."""
    if _is_key(value):
        return value
    if not isinstance(value, _jax.Tracer | jax.Array):
        if dtype is None and isinstance(value, float):
            dtype = jnp.float32
        value = jnp.array(value, dtype)  # a copy: the caller may go on to change a NumPy array
    elif dtype is not None and value.dtype != dtype:
        value = value.astype(dtype)
    return _strengthen(value)


def _strengthen(array: Any) -> Any:
    if getattr(array, "weak_type", False):
        return jax.lax.convert_element_type(array, array.dtype)
    return array


def _is_key(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)


def _unboxed(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(_unboxed, index))
    return index.value if isinstance(index, Variable) else index


def _rebuilt(cls: type, data: Any, impl: str | None, attributes: dict[str, Any]) -> Any:
    array = jax.random.wrap_key_data(jnp.asarray(data), impl=impl) if impl else jnp.array(data)
    return cls.own(array, **attributes)  # type: ignore[attr-defined]


def _forward(name: str) -> Callable[..., Any]:
    def method(self: Variable, *args: Any) -> Any:
        return getattr(self.value, name)(*map(_unboxed, args))

    return method


def _in_place(name: str) -> Callable[..., Any]:
    def method(self: Variable, other: Any) -> Any:
        self.value = getattr(operator, name)(self.value, _unboxed(other))
        return self

    return method


_BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod".split()
for _name in [
    *(f"__{n}__" for n in _BINARY),
    *(f"__r{n}__" for n in _BINARY),
    *(f"__{n}__" for n in "eq ne lt le gt ge neg pos abs invert round".split()),
]:
    setattr(Variable, _name, _forward(_name))
for _name in _BINARY[:-1]:
    setattr(Variable, f"__i{_name}__", _in_place(f"__{_name}__"))
for _name in sorted(set().union(*map(dir, _jax.ARRAY_TYPES))):
    # Everything else that arrays and keys have (.T, .at, .sum, .astype, .sharding, ...).
    if not _name.startswith("__") and _name not in vars(Variable) and _name not in vars(Node):
        setattr(Variable, _name, property(operator.attrgetter(f"value.{_name}")))


def _aval_for_jax(box: Variable) -> Any:
    """Return the abstract value of a box that JAX was given in the place of an array.

    Raises:
        TypeError: If js.jit has passed it on: a program for an array there is none for a box, which
            the function may write. (Looking here costs calls with arrays nothing.)
    """
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_ON_THE_WAY):
        frame = frame.f_back
    if frame is not None and frame.f_globals.get("__name__") == "jaxsaw.transforms.binding":
        raise TypeError(f"{box.path} is a box, and this program was compiled for an array.")
    return box.aval


_ON_THE_WAY = ("jax.", "contextlib", "jaxsaw._jax", __name__)

_jax.register_box(Variable, lambda box: box.value, _aval_for_jax)
