"""What the topics of ``functional`` share: dtypes, tuples, and the checks at the door."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array


class HasArray(Protocol):
    """A box around an array, such as a ``jaxsaw.Variable``."""

    def __jax_array__(self) -> Array: ...


class Streams(Protocol):
    """Named random streams, such as a ``jaxsaw.Rngs``."""

    def next(self, name: str, /) -> Array: ...


ArrayLike: TypeAlias = jax.typing.ArrayLike | HasArray
IntOrInts: TypeAlias = int | Sequence[int]


def accumulator(dtype: Any) -> Any:
    """Return the dtype to add up in: float32 for the narrow floats, else ``dtype`` itself."""
    return jnp.dtype(dtype if jnp.finfo(dtype).bits >= 32 else "float32")


def floating(name: str, value: ArrayLike, argument: str = "input") -> Array:
    """Return ``value`` as an array of floats, or raise a TypeError that names the argument."""
    x = jnp.asarray(value)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{name}: expected {argument} of a floating dtype, got {x.dtype}.")
    return x


def integers(name: str, value: ArrayLike, argument: str = "input") -> Array:
    """Return ``value`` as an array of integers, or raise a TypeError that names the argument."""
    x = jnp.asarray(value)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise TypeError(f"{name}: expected {argument} of an integer dtype, got {x.dtype}.")
    return x


def promote(*arrays: Array) -> tuple[Array, ...]:
    """Cast arrays to their common dtype, also where JAX is told to refuse that (strict mode)."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = arrays[0].dtype
        for x in arrays[1:]:
            dtype = jnp.promote_types(dtype, x.dtype)
    return tuple(x.astype(dtype) for x in arrays)


def same_dtype(name: str, **arrays: Array | None) -> None:
    """Raise a TypeError unless all arrays that are given have one dtype."""
    dtypes = {argument: x.dtype for argument, x in arrays.items() if x is not None}
    if len(set(dtypes.values())) > 1:
        came = ", ".join(f"{argument} {dtype}" for argument, dtype in dtypes.items())
        raise TypeError(f"{name}: expected one dtype, got {came}. Cast with x.astype(dtype).")


def magnitude(x: Array) -> Array:
    """Return ``|x|`` with PyTorch's gradient at 0, which is 0 (JAX's is 1)."""
    return jnp.where(x == 0, 0, jnp.abs(x))


def draw_key(who: str, rngs: Streams | None) -> Array:
    """Draw a key from the stream ``dropout`` of ``rngs``, or of the ambient streams if None."""
    if rngs is None:
        from jaxsaw.rngs import ambient

        rngs = ambient("dropout", who=who)
    return rngs.next("dropout")


def is_concrete(value: object) -> bool:
    """Say whether the values can be looked at now: not while a transform traces."""
    return not isinstance(value, jax.core.Tracer)


def is_box(value: object) -> bool:
    """Say whether ``value`` has a ``.value`` that can be assigned, as a Variable has."""
    return hasattr(type(value), "value")


def ints(
    name: str, argument: str, value: IntOrInts, n: int, *, minimum: int = 1
) -> tuple[int, ...]:
    """Return ``value`` as a tuple of ``n`` integers, each at least ``minimum``."""
    values = (value,) if not isinstance(value, Sequence) else tuple(value)
    if len(values) == 1:
        values = values * n
    if len(values) != n:
        raise ValueError(f"{name}: expected {argument} to be an int or {n} ints, got {value}.")
    if any(isinstance(v, bool) or not hasattr(v, "__index__") for v in values):
        raise TypeError(f"{name}: expected {argument} to be an int or {n} ints, got {value!r}.")
    if any(v < minimum for v in values):
        raise ValueError(f"{name}: expected {argument} of at least {minimum}, got {value}.")
    return tuple(int(v) for v in values)


def axis(name: str, dim: int, ndim: int, argument: str = "dim") -> int:
    """Return ``dim`` counted from the front."""
    if not -max(ndim, 1) <= dim < max(ndim, 1):
        raise ValueError(
            f"{name}: expected {argument} in [{-max(ndim, 1)}, {max(ndim, 1) - 1}] "
            f"for an input of {ndim} dimensions, got {dim}."
        )
    return dim % max(ndim, 1)


def with_batch(name: str, x: Array, spatial: int) -> tuple[Array, bool]:
    """Return ``x`` with a batch axis, and whether it came with one."""
    if x.ndim not in (spatial + 1, spatial + 2):
        axes = ", ".join("DHW"[3 - spatial :] if spatial > 1 else "L")
        raise ValueError(f"{name}: expected input (N, C, {axes}) or (C, {axes}), got {x.shape}.")
    batched = x.ndim == spatial + 2
    return (x if batched else x[None]), batched
