"""Compilation of functions of objects.

A :class:`JitFunction` traces a function into a :class:`~jaxsaw.transforms.program.Program` for
each structure of the state that it is called with, and has JAX compile it as a function of flat
lists. Later calls recognise the objects by the stamps of their graphs, and leave the rest to a
:class:`~jaxsaw.transforms.binding.Binding`. Everything else here happens once.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
import types
import weakref
from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from operator import attrgetter
from typing import Any

import jax

from jaxsaw import _jax
from jaxsaw.state import scope as scopes
from jaxsaw.state.graph import graph_of
from jaxsaw.state.node import Node
from jaxsaw.state.variable import Variable, write
from jaxsaw.transforms.aot import Lowered
from jaxsaw.transforms.arguments import Static, check_arguments, is_special, name_of
from jaxsaw.transforms.binding import BUSY, Binding
from jaxsaw.transforms.grads import Grads
from jaxsaw.transforms.program import Program, World, shown
from jaxsaw.transforms.reasons import reason, warn_of_repetition
from jaxsaw.transforms.watch import Watch


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate: bool = True,
    in_shardings: Any = None,
    out_shardings: Any = None,
    compiler_options: dict[str, Any] | None = None,
) -> Any:
    """Compile a function that may read and change any jaxsaw object.

    The function runs as ordinary Python once for each new structure of its arguments; from then
    on a call costs what ``jax.jit`` of flat lists of arrays costs. What the function changed
    (weights, moments, statistics, random streams) is changed after the call. If it raises,
    nothing is.

    Args:
        fn: The function, method, module or other callable; without it, a decorator is returned.
        static_argnums: Positions of arguments that are plain Python values to trace with.
        static_argnames: Names of such arguments.
        donate: Whether written state may be overwritten in place. Arrays that someone else
            holds are copied first in any case.
        in_shardings: A sharding for each array argument, as in ``jax.jit``.
        out_shardings: Shardings of what the function returns, as in ``jax.jit``.
        compiler_options: Options for XLA.

    Returns:
        A :class:`JitFunction`.

    Raises:
        TypeError: (When called) if an argument is neither a Stateful, an array, a number nor a
            container of these, and isn't static.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> total = js.Variable(jnp.zeros(()))
        >>> @js.jit
        ... def add(x):
        ...     total.value += x
        ...     return total * 2
        >>> float(add(3.0)), float(total)
        (6.0, 3.0)
    """
    options = {
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate": donate,
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        "compiler_options": compiler_options,
    }
    if fn is None:
        return functools.partial(jit, **options)
    return JitFunction(fn, **options)


class JitFunction:
    """What :func:`jit` returns.

    Attributes:
        trace_count: How often the function's Python code has been run for a trace.
    """

    def __init__(self, fn: Callable[..., Any], **options: Any) -> None:
        target = getattr(fn, "func", fn)
        if inspect.isgeneratorfunction(target) or inspect.iscoroutinefunction(target):
            raise TypeError(f"js.jit takes ordinary functions; {name_of(fn)} is a generator.")
        if not callable(fn):
            raise TypeError(f"js.jit takes a callable, got {fn!r}.")
        if not isinstance(fn, Node):
            functools.update_wrapper(self, fn, updated=())
        self.__wrapped__ = fn
        self.trace_count = 0
        self._options = options
        self._static = Static(fn, options["static_argnums"], options["static_argnames"])
        self._watch: Watch | None = None
        self._forms: dict[Any, int] = {}  # what a watch found, by the order of finding
        self._form = 0
        # Of the last call, if it was plain: how many positional arguments it had, how many of them
        # are Statefuls, at the beginning, and what gives the key of such calls.
        self._usual: tuple[int, int, Callable[[Any], Any]] = (-1, 0, len)
        self._bindings: dict[Any, Binding] = {}
        self._plans: dict[Any, _Plan] = {}
        self._growth: dict[Any, list[Any]] = {}
        self._methods: dict[int, tuple[weakref.ref[Any], JitFunction]] = {}
        self._history: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        count, n, recognise = self._usual
        if (
            len(args) == count
            and _jax.trace_context.trace is _jax.EVAL
            and scopes.active.scope is None
        ):
            try:
                binding = self._bindings[recognise(args)]
            except (AttributeError, KeyError):
                pass
            else:
                try:
                    out = binding.run(args[n:], kwargs)
                    if out is BUSY:
                        out = binding.insist(args[n:], kwargs)
                except (_Miss, TypeError):
                    pass  # new shapes, or an argument of another kind
                else:
                    return binding.finish(out) if type(out) is dict else out
        return self._call(args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if isinstance(instance, Node):
            return types.MethodType(self, instance)
        known = self._methods.get(id(instance))
        if known is None or known[0]() is not instance:
            forget = functools.partial(_forget_method, weakref.ref(self), id(instance))
            method = _Method(self.__wrapped__, instance)
            nums = self._options["static_argnums"]  # of the function, where self is argument 0
            nums = [nums] if isinstance(nums, int) else nums
            options = {**self._options, "static_argnums": [i - (i > 0) for i in nums]}
            known = (weakref.ref(instance, forget), JitFunction(method, **options))
            self._methods[id(instance)] = known
        return _Bound(known[1], instance)

    def __reduce__(self) -> Any:
        return _unpickled, (self.__wrapped__, self._options)

    def __repr__(self) -> str:
        return f"<js.jit of {name_of(self.__wrapped__)}>"

    def __deepcopy__(self, memo: dict[int, Any]) -> JitFunction:
        if isinstance(self.__wrapped__, types.MethodType | functools.partial | Node):
            return JitFunction(deepcopy(self.__wrapped__, memo), **self._options)
        return self

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """Trace and lower for these arguments without running, as ``jax.jit(f).lower`` does.

        Args:
            *args: As for a call.
            **kwargs: As for a call.

        Returns:
            Something to look at, or to ``compile()``: the result is called with objects.
        """
        call = _Call(self, args, kwargs)
        plan = call.plan()
        plan.trace(call)
        try:
            in_place, rest = Binding(plan, call).inputs()
            stage = plan.compiled.lower(in_place, (*rest, call.args, call.kwargs))
        finally:
            plan.forget()
        kinds = call.kinds()
        return Lowered(stage, functools.partial(self._run_compiled, plan, plan.arranged, kinds, {}))

    def _run_compiled(
        self,
        plan: _Plan,
        arranged: Any,
        kinds: dict[str, str],
        bindings: dict[Any, Binding],
        stage: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call what was compiled ahead for a plan."""
        call = _Call(self, args, kwargs)
        if not call.outermost:
            raise TypeError(
                f"{name_of(self.__wrapped__)} was compiled ahead, and can't run inside another "
                "transform. Call the js.jit function itself there."
            )
        binding = bindings.get((stage, call.key))
        if binding is None:
            if call.plan() is not plan:
                raise TypeError(
                    f"{name_of(self.__wrapped__)} was compiled ahead for arguments and state of "
                    "another structure. Lower and compile it for these, or call it as it is."
                )
            fixed = copy(plan)
            fixed.arranged = (arranged[0], stage, stage)
            binding = bindings[stage, call.key] = Binding(fixed, call)
        try:
            out = binding.insist(call.args, call.kwargs)
        except TypeError as error:
            for what, kind in call.kinds().items():
                if kinds.get(what) != kind:
                    raise TypeError(
                        f"{name_of(self.__wrapped__)} was compiled ahead with {what} as "
                        f"{kinds.get(what)}, and was called with {kind}. Lower and compile it for "
                        "this, or call it as it is."
                    ) from error
            raise
        return binding.finish(out)

    def _reached(self) -> Sequence[Node]:
        """Return the Statefuls that the function reaches by itself."""
        watch = self._watch
        if watch is not None:
            roots = watch.roots()
            if roots is not None:
                return roots
        watch = self._watch = Watch(self.__wrapped__)
        self._form = self._forms.setdefault(watch.form, len(self._forms))
        return watch.roots() or ()

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do what :meth:`__call__` does, for a call that isn't recognised at once."""
        if _jax.disable_jit.value:
            return self._eager(args, kwargs)
        fresh = self._watch is None
        call = _Call(self, args, kwargs)
        if not call.outermost:
            return call.plan().nested(call)
        binding = self._bindings.get(call.key)
        if binding is None and not fresh:
            call, binding = self._look_again(args, kwargs)
        try:
            binding = binding or call.bind()
            while True:
                try:
                    out = binding.insist(call.args, call.kwargs)
                    break
                except _Miss:  # shapes that are new, or only new to this binding
                    key, anew = call.key, binding.arranged is binding.plan.arranged
                    if call.traced is None:
                        call, _ = self._look_again(args, kwargs)
                    binding = call.bind(anew=anew and call.key == key)
        except BaseException as error:
            call.undo()
            if isinstance(error, TypeError):
                call.check()  # says it better than JAX
            raise
        finally:
            if call.traced is not None:
                call.traced.forget()
        if call.plain and self._watch is not None:
            self._usual = (len(args), call.leading, self._watch.key(self._form, call.leading))
        return binding.finish(out)

    def _look_again(self, args: Any, kwargs: Any) -> tuple[_Call, Binding | None]:
        """Find anew what state the function reaches, as must be before it is traced."""
        self._watch = None
        call = _Call(self, args, kwargs)
        return call, self._bindings.get(call.key)

    def _eager(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with scopes.transaction():
            return self.__wrapped__(*args, **kwargs)


class _Miss(Exception):
    """The compiled function was called with shapes or settings that no program is for."""


class _Call:
    """One call, taken apart.

    Attributes:
        outermost: Whether no trace or transaction is going on around it.
        plain: Whether Statefuls stand only at the beginning of the positional arguments and
            nothing is static, so that the rest can go to JAX as it is.
        args, kwargs: What goes to the compiled function.
        roots: The Statefuls among the arguments, and those that the function reaches.
        arrays: All arrays among the arguments.
        key: What the call is recognised by.
        undos: Take back what was added, by tracing or in view of an earlier trace.
        traced: The plan that a trace was made for, if one was.
        check: Raises for arguments that can't be traced.
    """

    def __init__(self, fn: JitFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.fn = fn
        self.outermost = _jax.current_trace() is _jax.EVAL and scopes.current() is None
        self.undos: list[Callable[[], None]] = []
        self.traced: _Plan | None = None
        dynamic, named, self.static = fn._static.split(args, kwargs)
        self.check = functools.partial(check_arguments, fn.__wrapped__, dynamic, named)
        self.leaves, self.tree = jax.tree.flatten((dynamic, named), is_leaf=is_special)
        is_node = (isinstance(arg, Node) for arg in dynamic)
        self.leading = sum(1 for _ in itertools.takewhile(bool, is_node))
        special = [leaf for leaf in self.leaves if is_special(leaf)]
        self.plain = not fn._static and len(special) == self.leading
        self.grads = [leaf for leaf in special if isinstance(leaf, Grads)]
        self.roots = [leaf for leaf in special if isinstance(leaf, Node)] + [*fn._reached()]
        self.arrays: list[Any] = []
        for leaf in self.leaves:
            if not isinstance(leaf, Node):
                self.arrays += leaf.arrays if isinstance(leaf, Grads) else [leaf]
        if self.plain:
            self.args, self.kwargs = dynamic[self.leading :], named
        else:
            self.args, self.kwargs = tuple(self.arrays), {}
        self.survey()

    def undo(self) -> None:
        """Take back what was added to objects."""
        for undo in reversed(self.undos):
            undo()

    def survey(self) -> None:
        """Look at the objects; again after something was added to one."""
        self.__dict__.pop("world", None)
        self.graphs = [graph_of(root) for root in self.roots]
        stamps = tuple(graph.stamp for graph in self.graphs)
        self.key: Any = (self.fn._form, self.leading, *stamps)
        if not self.plain:
            boxes = tuple(tuple(map(id, grads.boxes)) for grads in self.grads)
            self.key = (self.key, self._shape(), self.static, boxes)

    def _shape(self) -> Any:
        kinds = tuple(
            len(leaf) if isinstance(leaf, Grads) else isinstance(leaf, Node) for leaf in self.leaves
        )
        return self.tree, kinds

    @functools.cached_property
    def world(self) -> World:
        return World(self.roots)

    def kinds(self) -> dict[str, str]:
        """Return shape and dtype of each array argument and of each box that the call can see."""
        arrays = {f"array argument {i}": _jax.typeof(x) for i, x in enumerate(self.arrays)}
        boxes = {box.path: box.aval for box in self.world.boxes}
        return {what: shown(aval) for what, aval in (arrays | boxes).items()}

    def structure(self) -> Any:
        """Return what equal calls on other objects have in common."""
        numbers = self.world.numbers
        sources = tuple(tuple(map(numbers.get, grads.boxes)) for grads in self.grads)
        form = self.leading if self.plain else (self._shape(), self.static)
        keys = tuple(graph.key for graph in self.graphs)
        return form, self.fn._form, keys, self.world.sharing, sources

    def plan(self) -> _Plan:
        """Return the plan for calls like this one, which may not have been traced yet."""
        fn = self.fn
        structure = self.structure()
        if structure in fn._growth:
            with scopes.Scope() as scope:
                for place, what in fn._growth[structure]:
                    self.world.find(place)._grow(what)
            scope.commit({})
            self.undos.append(scope.undo)
            self.survey()
            structure = self.structure()
        plan = fn._plans.get(structure)
        if plan is None:
            plan = fn._plans[structure] = _Plan(fn)
        for box in plan.strays:
            self.world.number(box)
        return plan

    def rebuild(self, flat: Sequence[Any]) -> tuple[Any, Any]:
        """Return positional and keyword arguments with tracers in the place of arrays."""
        remaining = iter(flat)
        leaves: list[Any] = []
        for leaf in self.leaves:
            if isinstance(leaf, Node):
                leaves.append(leaf)
            elif isinstance(leaf, Grads):
                leaves.append(Grads(leaf._names, [next(remaining) for _ in leaf]))
            else:
                leaves.append(next(remaining))
        dynamic, named = jax.tree.unflatten(self.tree, leaves)
        return self.fn._static.join(dynamic, named, self.static)

    def bind(self, *, anew: bool = False) -> Binding:
        """Return a binding for the objects of this call.

        Args:
            anew: Trace for the shapes of this call, even if there is a program for others.
        """
        plan = self.plan()
        if anew or not plan.programs:
            plan.trace(self)
        binding = self.fn._bindings[self.key] = Binding(plan, self)
        return binding


class _Plan:
    """What is compiled for one structure of state: programs for several shapes.

    Attributes:
        programs: Each with the abstract values of the boxes that it reads, by those of the arrays.
        nesting: Programs for calls in other traces, by all abstract values.
        pending: A program that was just traced, by thread, until JAX asks for it.
        strays: Boxes that tracing met outside of the roots, in the order of their numbers.
        layout: Numbers of boxes that are donated, written anew, and only read, each in one list
            for every root that has some.
        compiled: The function for JAX, for all programs.
        careful: The same, without donation.
        arranged: These three together.
    """

    def __init__(self, fn: JitFunction) -> None:
        self.fn = fn
        self.programs: dict[Any, list[tuple[Program, dict[int, Any]]]] = {}
        self.nesting: dict[Any, Program] = {}
        self.pending: dict[int, Program] = {}
        self.strays: list[Variable] = []
        self.layout: Any = None
        self.compiled: Any = None
        self.careful: Any = None
        self.arranged: Any = None
        self.awaits = False
        self._written: set[int] = set()
        self._unsteady: set[int] = set()
        self._read: set[int] = set()
        self._arranging = threading.Lock()

    def trace(self, call: _Call) -> Program:
        """Run the user's function once, and have the program ready for JAX."""
        fn = self.fn

        def body(*flat: Any) -> Any:
            args, kwargs = call.rebuild(flat)
            return fn.__wrapped__(*args, **kwargs)

        call.check()
        fn.trace_count += 1
        before = call.structure()
        world = call.world
        program = Program(body, call.arrays, world)
        call.undos.append(program.release())
        if program.growth:
            # The new boxes were numbered as strays. With them on their objects, everything has
            # other numbers: trace as if they had been there, once and for all.
            fn._growth[before] = program.growth
            fn._plans.pop(before, None)
            call.survey()
            program.renumber(world, call.world)
            for mine in (self.programs, self._written, self._unsteady, self._read):
                mine.clear()
            fn._plans[call.structure()] = self
        self.strays = call.world.strays()
        fn._history.append(reason(fn, call.roots, call.arrays))
        warn_of_repetition(fn, name_of(fn.__wrapped__))
        self.pending[threading.get_ident()] = program
        call.traced = self
        with self._arranging:
            self._arrange(program, call.world)
        return program

    def _arrange(self, program: Program, world: World) -> None:
        self._written.update(program.writes)
        self._read.update(program.reads)
        steady = zip(program.writes, program.steady, strict=True)
        self._unsteady.update(number for number, same in steady if not same)
        self.awaits = self.awaits or program.may_raise
        donate = self.fn._options["donate"] and not self.awaits
        kept = self._unsteady if donate else self._written
        layout = (
            world.by_root(self._written - kept),
            world.by_root(kept),
            world.by_root(self._read - self._written),
        )
        if layout != self.layout:
            compiled, careful = self._compile(layout, donate_argnums=0), self._compile(layout)
            self.layout, self.compiled, self.careful = self.arranged = (layout, compiled, careful)
        else:
            # JAX gives up its fast path for a signature that has raised once, as a miss does.
            _jax.clear_fast_path(self.compiled)
            _jax.clear_fast_path(self.careful)

    def _compile(self, layout: Any, **options: Any) -> Any:
        in_place, anew, read = layout
        numbers = [*itertools.chain(*in_place, *anew, *read)]
        sizes = [len(part) for part in (*in_place, *anew)]
        name = name_of(self.fn.__wrapped__).rpartition(".")[2]

        def run(in_place: Any, rest: Any) -> Any:
            anew, read, args, kwargs = rest
            boxes = [*itertools.chain(*in_place, *anew, *read)]
            arrays, tree = jax.tree.flatten((args, kwargs))
            traced = all(isinstance(x, _jax.Tracer) for x in (*boxes, *arrays))
            searching = _jax.debug_nans.value or _jax.debug_infs.value  # JAX runs what it compiled
            if not (traced or searching) or layout != self.layout:
                raise _Miss
            values = dict(zip(numbers, boxes, strict=True))
            program = self._program(values, arrays, tree)
            new, outs = program.run([values[i] for i in program.reads], arrays, name)
            values.update(zip(program.writes, new, strict=True))
            flat = iter(values.values())
            contents = [[*itertools.islice(flat, size)] for size in sizes]
            if program.out.plain is not None:
                return contents, jax.tree.unflatten(program.out.plain, outs)
            return contents, {program.out: outs}

        run.__name__ = run.__qualname__ = name
        return jax.jit(run, **options, **_passed_on(self.fn._options))

    def _program(self, values: dict[int, Any], arrays: Any, tree: Any) -> Program:
        avals = {number: _jax.typeof(value) for number, value in values.items()}
        key = (tuple(map(_jax.typeof, arrays)), tree, _jax.trace_key())
        candidates = self.programs.setdefault(key, [])
        for program, expected in candidates:
            if all(avals[number] == aval for number, aval in expected.items()):
                return program
        traced = self.pending.pop(threading.get_ident(), None)
        if traced is None:
            raise _Miss
        candidates.append((traced, {number: avals[number] for number in traced.reads}))
        return traced

    def forget(self) -> None:
        """Drop what this thread has traced, where JAX had a program already by another thread."""
        self.pending.pop(threading.get_ident(), None)

    def nested(self, call: _Call) -> Any:
        """Run as part of an enclosing trace or transaction."""
        key = self._nesting_key(call)
        program = self.nesting.get(key)
        if program is None:
            program = self.trace(call)
            self.forget()
            if not program.captured:
                self.nesting[self._nesting_key(call)] = program
        boxes = call.world.boxes
        name = name_of(self.fn.__wrapped__).rpartition(".")[2]
        new, outs = program.run([boxes[i].value for i in program.reads], call.arrays, name)
        for number, value in zip(program.writes, new, strict=True):
            write(boxes[number], value)
        return program.out.build(outs, call.world)

    def _nesting_key(self, call: _Call) -> Any:
        boxes = call.world.boxes
        avals = (*map(_aval_of, boxes), *map(_jax.typeof, call.arrays))
        return avals, call.tree, _jax.trace_key(), scopes.lanes_key(boxes)


class _Bound:
    """What a compiled method of a plain object is, looked up on it: it keeps the object alive."""

    def __init__(self, fn: JitFunction, instance: Any) -> None:
        self._fn = fn
        self._instance = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._fn(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_fn"], name)

    def __watch__(self) -> list[Callable[[], Any]]:
        return [lambda: self._fn]


class _Method:
    """A function bound to a plain object, which it doesn't keep alive."""

    def __init__(self, fn: Callable[..., Any], instance: Any) -> None:
        functools.update_wrapper(self, fn, updated=())
        signature = inspect.signature(fn)
        self.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])
        self.instance = weakref.ref(instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(self.instance(), *args, **kwargs)  # type: ignore[attr-defined]

    def __watch__(self) -> list[Callable[[], Any]]:
        return [self.instance, lambda: self.__wrapped__]  # type: ignore[attr-defined]


_aval_of = attrgetter("aval")


def _forget_method(fn_ref: weakref.ref[JitFunction], key: int, _: Any) -> None:
    fn = fn_ref()
    if fn is not None:
        fn._methods.pop(key, None)


def _unpickled(fn: Any, options: dict[str, Any]) -> JitFunction:
    return JitFunction(fn, **options)


def _passed_on(options: dict[str, Any]) -> dict[str, Any]:
    passed: dict[str, Any] = {}
    if options["compiler_options"]:
        passed["compiler_options"] = options["compiler_options"]
    if options["in_shardings"] is not None:
        passed["in_shardings"] = (None, (None, None, options["in_shardings"], None))
    if options["out_shardings"] is not None:
        passed["out_shardings"] = (None, options["out_shardings"])
    return passed
