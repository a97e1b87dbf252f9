"""What a function compiles to, what it costs, and why it was compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxsaw.inspection.tracing import abstractly
from jaxsaw.transforms.jit import JitFunction, jit


def jaxpr(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the jaxpr of a call, with the state that it reads as inputs and writes as outputs.

    Args:
        fn: A function, a module, or what ``js.jit`` returned.
        *args: Its arguments.
        **kwargs: The same, by name.

    Returns:
        A ``ClosedJaxpr``, whose ``str`` is the program. Its inputs are the boxes that are read, in
        the order of the first reading, and then the array arguments; its outputs what is
        returned and then what is written.

    Example:
        >>> print(jaxpr(lambda x: x + 1, jnp.float32(1)).jaxpr.eqns[0].primitive)
        add
    """
    fn = fn.__wrapped__ if isinstance(fn, JitFunction) else fn
    _, boxes = abstractly(fn, args, kwargs, [])
    return abstractly(fn, args, kwargs, boxes)[0]


def hlo(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return the program that XLA made of a call, after its optimisations.

    For the one before them see ``js.jit(fn).lower(...).as_text()``.

    Args:
        fn: A function, a module, or what ``js.jit`` returned.
        *args: Its arguments.
        **kwargs: The same, by name.

    Example:
        >>> "ROOT" in hlo(lambda x: x + 1, jnp.float32(1))
        True
    """
    return _jitted(fn).lower(*args, **kwargs).compile().as_text()


@dataclass(frozen=True)
class Cost:
    """What XLA expects a compiled call to cost; what it doesn't tell is None.

    Attributes:
        flops: Floating-point operations.
        bytes_accessed: What is read from and written to memory.
        peak_memory: The largest number of bytes in use at one time, arguments included.
        argument_bytes: The size of the arguments, state included.
        output_bytes: The size of the results, written state included.
        temporary_bytes: The size of what is needed in between.
    """

    flops: float | None
    bytes_accessed: float | None
    peak_memory: int | None
    argument_bytes: int | None
    output_bytes: int | None
    temporary_bytes: int | None

    def __str__(self) -> str:
        lines = [
            ("FLOPs", _number(self.flops)),
            ("bytes accessed", _number(self.bytes_accessed)),
            ("peak memory", _size(self.peak_memory)),
            ("  arguments", _size(self.argument_bytes)),
            ("  results", _size(self.output_bytes)),
            ("  in between", _size(self.temporary_bytes)),
        ]
        return "\n".join(f"{name:<15} {value}" for name, value in lines)


def cost(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Cost:
    """Return what a call costs, as XLA sees it; it is compiled, not run.

    Args:
        fn: A function, a module, or what ``js.jit`` returned.
        *args: Its arguments.
        **kwargs: The same, by name.

    Example:
        >>> a = jnp.ones((8, 16))
        >>> cost(lambda a: a @ a.T, a).flops >= 2 * 8 * 8 * 16
        True
    """
    compiled = _jitted(fn).lower(*args, **kwargs).compile()
    analysis = compiled.cost_analysis() or {}
    if isinstance(analysis, list):  # one for each device in older releases
        analysis = analysis[0] if analysis else {}
    memory = compiled.memory_analysis()

    def bytes_of(name: str) -> int | None:
        return getattr(memory, f"{name}_in_bytes", None)

    parts = [bytes_of(f"{name}_size") for name in ("argument", "output", "temp")]
    peak = bytes_of("peak_memory")
    if not peak and None not in parts:
        peak = sum(part or 0 for part in parts) - (bytes_of("alias_size") or 0)
    return Cost(analysis.get("flops"), analysis.get("bytes accessed"), peak, *parts)


class Retraces(Sequence[str]):
    """Why a compiled function was traced: one line each time, the first first."""

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        self._name = name
        self._reasons = tuple(reasons)

    def __getitem__(self, index: Any) -> Any:
        return self._reasons[index]

    def __len__(self) -> int:
        return len(self._reasons)

    def __str__(self) -> str:
        if not self._reasons:
            return f"{self._name} hasn't been traced."
        return "\n".join(f"{number}. {text}" for number, text in enumerate(self._reasons, 1))

    __repr__ = __str__


def retraces(fn: JitFunction) -> Retraces:
    """Return why a compiled function was traced, and traced again.

    Args:
        fn: What ``js.jit`` returned.

    Returns:
        A sequence of strings, whose ``str`` has one line for each.

    Raises:
        TypeError: If ``fn`` isn't from ``js.jit``.

    Example:
        >>> double = js.jit(lambda x: 2 * x)
        >>> _ = double(jnp.ones(3)), double(jnp.ones(3)), double(jnp.ones(4))
        >>> print(retraces(double))
        1. first call
        2. array argument 0 changed from ...
    """
    if not isinstance(fn, JitFunction):
        raise TypeError(f"retraces: expected what js.jit returns, got {type(fn).__name__}.")
    return Retraces(repr(fn), fn._history)


def _jitted(fn: Callable[..., Any]) -> JitFunction:
    if isinstance(fn, JitFunction):
        return JitFunction(fn.__wrapped__, **fn._options)  # a look isn't part of its history
    return jit(fn)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def _size(value: float | None) -> str:
    if value is None:
        return "unknown"
    for unit in ("B", "KiB", "MiB"):
        if abs(value) < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} GiB"
