"""A compiled function ahead of its first call: lowered for given arguments, and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Lowered:
    """What :meth:`JitFunction.lower` returns: a ``jax.stages.Lowered``, of a function of objects.

    Everything that JAX's has (``as_text()``, ``cost_analysis()``, ...) is there.
    """

    def __init__(self, stage: Any, run: Callable[..., Any]) -> None:
        self._stage = stage
        self._run = run

    def compile(self, compiler_options: dict[str, Any] | None = None) -> Compiled:
        """Compile it.

        Args:
            compiler_options: Options for XLA.

        Returns:
            The executable.
        """
        return Compiled(self._stage.compile(compiler_options), self._run)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_stage"], name)


class Compiled:
    """What :meth:`Lowered.compile` returns: it is called with objects, and never traces.

    Everything that ``jax.stages.Compiled`` has (``as_text()``, ``memory_analysis()``,
    ``cost_analysis()``, ...) is there.
    """

    def __init__(self, stage: Any, run: Callable[..., Any]) -> None:
        self._stage = stage
        self._run = run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it.

        Raises:
            TypeError: If structure, shapes or dtypes aren't those that it was compiled for.
        """
        return self._run(self._stage, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_stage"], name)
