"""L-BFGS, with and without a line search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.optim.checks import check_not_negative, check_real
from jaxsaw.optim.group import ParamGroup, at_once, look
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.loops import while_loop

Array = jax.Array

_LINE = "optimizer.step(lambda: js.value_and_grad(loss_fn)(model))"
_ENOUGH, _FLAT = 1e-4, 0.9  # the constants of the two Wolfe conditions


class LBFGS(Optimizer):
    """L-BFGS: steps by an inverse Hessian that the last gradients give.

    ``step(closure)`` evaluates the function several times. The closure takes nothing and returns
    ``(loss, grads)``, as ``js.value_and_grad`` does. Inside of ``js.jit`` the whole step is one
    compiled loop.

    Args:
        params: Real Parameters, or ``(name, Parameter)`` pairs; one group only.
        lr: The factor of a step, or where the line search begins.
        max_iter: How many iterations a step does at most.
        max_eval: How many evaluations a step does at most; by default 1.25 times ``max_iter``.
        tolerance_grad: Ends a step once no gradient is larger.
        tolerance_change: Ends a step once neither the loss nor a Parameter changes more.
        history_size: How many changes of the gradient are kept, each as large as all Parameters.
        line_search_fn: ``"strong_wolfe"``, or None for steps of fixed length.

    Raises:
        ValueError: If a number is out of range, there are several groups or a Parameter is
            complex.

    Source: ``torch.optim.LBFGS``; Nocedal and Wright, "Numerical Optimization" (2006).

    Example:
        >>> w = nn.Parameter(jnp.zeros(2))
        >>> loss = lambda p: ((p - jnp.array([1.0, 2.0])) ** 2).sum()
        >>> optimizer = LBFGS([w], line_search_fn="strong_wolfe")
        >>> first = optimizer.step(lambda: (loss(w.value), [jax.grad(loss)(w.value)]))
        >>> float(first), w.value.round(3)
        (5.0, Array([1., 2.], dtype=float32))
    """

    _flags = ("history_size",)
    _static = ("max_iter", "max_eval", "history_size")
    _counted = False

    def __init__(
        self,
        params: Any,
        lr: Any = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: Any = 1e-7,
        tolerance_change: Any = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_not_negative("LBFGS", lr=lr)
        if line_search_fn not in (None, "strong_wolfe"):
            raise ValueError(
                f"LBFGS: line_search_fn must be 'strong_wolfe' or None, got {line_search_fn!r}."
            )
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )

    def _add(self, groups: Any) -> None:
        if len(self.param_groups) + len(groups) != 1:
            raise ValueError("LBFGS: all Parameters go into one group, it can't have several.")
        super()._add(groups)

    def _check(self, name: str, p: Any) -> None:
        check_real("LBFGS", name, p)

    def _boxes(self, group: ParamGroup, p: Any) -> dict[str, Variable]:
        if p is not group._params[0]:
            return {}  # the state is one for all, kept with the first
        n = sum(look(q).size for q in group._params)
        memory = Memory.empty(n, group["history_size"], self._dtype)
        return {slot: Variable.own(array) for slot, array in memory._asdict().items()}

    def step(self, closure: Any = None) -> Any:
        """Go on until the closure's loss is least, or one of the bounds is reached.

        Args:
            closure: Returns ``(loss, grads)`` for the Parameters as they are; see the class.

        Returns:
            The first loss.

        Raises:
            TypeError: If ``closure`` isn't one.
        """
        if not callable(closure):
            raise TypeError(
                f"LBFGS.step: expected a function that returns (loss, grads), got "
                f"{type(closure).__name__}. Write: {_LINE}"
            )
        with at_once():
            self.step_count.value = self.step_count.value + 1
            return self._minimise(closure)

    def _minimise(self, closure: Callable[[], Any]) -> Any:
        group = self.param_groups[0]
        lr, least = group["lr"].value, group["tolerance_grad"].value
        change = group["tolerance_change"].value
        boxes = self._state[group._names[0]]
        memory = Memory(**{slot: box.value for slot, box in boxes.items()})

        def value_at(x: Any) -> tuple[Any, Any]:
            self._write(x)
            return self._value(closure)

        loss, g = self._value(closure)
        memory = memory._replace(func_evals=memory.func_evals + 1)
        run = Run(memory, self._read(), loss, g, _zero(), _zero() + 1, jnp.abs(g).max() <= least)

        def iterate(run: Run) -> Run:
            memory, t, gtd = begin(run.memory, run.g, run.loss, lr)
            d, n = memory.d, run.n + 1
            stuck = gtd > -change
            x, loss, g, used = run.x, run.loss, run.g, _zero()
            if group["line_search_fn"] is not None:
                bound = group["max_eval"] - run.evals
                start = Search.start(t, loss, g, gtd, stuck)

                def look_at(search: Search) -> Search:
                    f, slope_g = value_at(run.x + search.t * d)
                    return search.after(f, slope_g, loss, gtd, d, bound, change)

                search = _loop(lambda search: ~search.done, look_at, start)
                low = search.low
                t = jnp.where(stuck, t, search.ts[low])
                x = jnp.where(stuck, x, run.x + t * d)
                loss = jnp.where(stuck, loss, search.fs[low])
                g = jnp.where(stuck, g, search.gs[low])
                used = search.evals
            else:
                x = jnp.where(stuck, x, run.x + t * d)
                # The last iteration ends without a look at where it has led.
                once = Search.start(t, loss, g, gtd, stuck | (n == group["max_iter"]))

                def look_once(search: Search) -> Search:
                    f, slope_g = value_at(x)
                    return search._replace(
                        evals=search.evals + 1, f=f, g=slope_g, done=jnp.ones((), bool)
                    )

                once = _loop(lambda search: ~search.done, look_once, once)
                loss, g, used = once.f, once.g, once.evals
            evals = run.evals + used
            done = (
                (n >= group["max_iter"])
                | (evals >= group["max_eval"])
                | (jnp.abs(g).max() <= least)
                | (jnp.abs(d * t).max() <= change)
                | (jnp.abs(loss - run.loss) < change)
            )
            memory = memory._replace(t=t, func_evals=memory.func_evals + used)
            return Run(memory, x, loss, g, n, evals, stuck | done)

        end = _loop(lambda run: ~run.done, iterate, run)
        self._write(end.x)
        for slot, box in boxes.items():
            box.value = getattr(end.memory, slot)
        return loss

    # All Parameters as one vector.

    def _value(self, closure: Callable[[], Any]) -> tuple[Any, Any]:
        """Return the loss and all gradients, zeros where there are none."""
        result = closure()
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(
                "LBFGS.step: the closure must return (loss, grads), got "
                f"{type(result).__name__}. Write: {_LINE}"
            )
        loss, grads = result
        found = self._in_order("LBFGS.step", grads)
        parts = [
            jnp.zeros(p.size, self._dtype) if g is None else g.reshape(-1).astype(self._dtype)
            for p, g in zip(self._params(), found, strict=True)
        ]
        loss = loss.value if isinstance(loss, Variable) else jnp.asarray(loss)
        return loss.astype(self._dtype), jnp.concatenate(parts)

    def _read(self) -> Any:
        return jnp.concatenate([p.value.reshape(-1).astype(self._dtype) for p in self._params()])

    def _write(self, x: Any) -> None:
        start = 0
        for p in self._params():
            if p.requires_grad:
                p.value = x[start : start + p.size].reshape(p.shape).astype(p.dtype)
            start += p.size

    # PyTorch's layout, in which the history is a list.

    def _from_torch(self, slots: dict[str, Any]) -> dict[str, Any]:
        if "func_evals" not in slots:
            return slots
        first = next(iter(self._state.values()))
        empty = {slot: np.zeros(box.shape, box.dtype) for slot, box in first.items()}
        found = {slot: slots[slot] for slot in empty if slot in slots}
        kept = len(slots.get("old_dirs", ()))
        for slot in ("old_dirs", "old_stps", "ro"):
            array = empty[slot]
            for i, item in enumerate(slots.get(slot, ())[: len(array)]):
                array[i] = np.asarray(item)
            found[slot] = array
        return {**empty, **found, "kept": np.int32(kept)}

    def _to_torch(self, slots: dict[str, Any]) -> dict[str, Any]:
        if not slots:
            return slots
        kept = int(slots.pop("kept"))
        for slot in ("old_dirs", "old_stps", "ro"):
            slots[slot] = [slots[slot][i] for i in range(kept)]
        numbers = {slot: slots[slot].item() for slot in ("func_evals", "n_iter", "t", "prev_loss")}
        return {**slots, **numbers}


class Memory(NamedTuple):
    """What is kept from one iteration to the next, with PyTorch's names.

    Attributes:
        func_evals: How many evaluations there were.
        n_iter: How many iterations.
        d: The direction, (n,).
        t: How far it was gone.
        old_dirs: Changes of the gradient, the oldest first, (history, n).
        old_stps: Changes of the parameters, likewise.
        ro: One over the products of both, (history,).
        H_diag: The scale of the inverse Hessian to begin with.
        prev_flat_grad: The gradient before, (n,).
        prev_loss: The loss before.
        kept: How many changes there are.
    """

    func_evals: Any
    n_iter: Any
    d: Any
    t: Any
    old_dirs: Any
    old_stps: Any
    ro: Any
    H_diag: Any
    prev_flat_grad: Any
    prev_loss: Any
    kept: Any

    @classmethod
    def empty(cls, n: int, history: int, dtype: Any) -> Memory:
        """Return the memory before the first iteration, for ``n`` numbers."""
        vector, number = jnp.zeros(n, dtype), jnp.zeros((), dtype)
        changes = jnp.zeros((history, n), dtype)
        return cls(
            *(_zero(), _zero(), vector, number, changes, changes + 0, jnp.zeros(history, dtype)),
            *(number + 1, vector + 0, number + 0, _zero()),
        )


class Run(NamedTuple):
    """Where a step is: its memory, parameters, loss, gradient and counts."""

    memory: Memory
    x: Any
    loss: Any
    g: Any
    n: Any
    evals: Any
    done: Any


@jax.jit
def begin(memory: Memory, g: Any, loss: Any, lr: Any) -> tuple[Memory, Any, Any]:
    """Return the memory with the next direction, how far to go at first, and the slope there.

    Args:
        memory: The memory.
        g: The gradient, (n,).
        loss: The loss.
        lr: The learning rate.
    """
    first = memory.n_iter == 0
    y, s = g - memory.prev_flat_grad, memory.d * memory.t
    ys = jnp.vdot(y, s)
    is_new = ~first & (ys > 1e-10)
    is_full = memory.kept == len(memory.ro)
    place = jnp.where(is_full, memory.kept - 1, memory.kept)

    def append(old: Any, item: Any) -> Any:
        moved = jnp.where(is_full, jnp.roll(old, -1, axis=0), old)
        return jnp.where(is_new, moved.at[place].set(item), old)

    ys = jnp.where(is_new, ys, 1)
    dirs, steps = append(memory.old_dirs, y), append(memory.old_stps, s)
    ro = append(memory.ro, 1 / ys)
    kept = jnp.where(is_new, place + 1, memory.kept)
    scale = jnp.where(is_new, ys / jnp.where(is_new, jnp.vdot(y, y), 1), memory.H_diag)

    def back(k: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        q, parts = state
        i = kept - 1 - k
        part = jnp.vdot(steps[i], q) * ro[i]
        return q - part * dirs[i], parts.at[i].set(part)

    def forth(i: Any, r: Any) -> Any:
        return r + (parts[i] - jnp.vdot(dirs[i], r) * ro[i]) * steps[i]

    q, parts = jax.lax.fori_loop(0, kept, back, (-g, jnp.zeros_like(ro)))
    d = jax.lax.fori_loop(0, kept, forth, q * scale)
    t = jnp.where(first, jnp.minimum(1, 1 / jnp.abs(g).sum()) * lr, lr)
    new = Memory(
        *(memory.func_evals, memory.n_iter + 1, d, t, dirs, steps, ro, scale, g, loss, kept)
    )
    return new, t, jnp.vdot(g, d)


class Search(NamedTuple):
    """A line search for a step that satisfies the strong Wolfe conditions.

    It goes further until an interval must contain such a step, then narrows that interval.

    Attributes:
        t: Where to look next.
        before: Where it looked before.
        f: The loss there, or the latest one.
        slope: The slope there.
        g: The gradient there, or the latest one.
        ts: The ends of the interval, (2,); ``fs``, ``slopes`` and ``gs`` are losses, slopes and
            gradients there.
        low: Which end has the lower loss.
        zooming: Whether there is an interval.
        slow: Whether the last look was close to an end.
        evals: How many looks there were.
        done: Whether it has ended, at ``low``.
    """

    t: Any
    before: Any
    f: Any
    slope: Any
    g: Any
    ts: Any
    fs: Any
    slopes: Any
    gs: Any
    low: Any
    zooming: Any
    slow: Any
    evals: Any
    done: Any

    @classmethod
    def start(cls, t: Any, f: Any, g: Any, slope: Any, done: Any) -> Search:
        """Return a search that looks at ``t`` first, unless it is done."""
        two, no = jnp.zeros(2, t.dtype), jnp.zeros((), bool)
        gs = jnp.zeros((2, *g.shape), g.dtype)
        return cls(
            *(t, jnp.zeros_like(t), f, slope, g, two, two + 0, two + 0, gs),
            *(_zero(), no, no, _zero(), done),
        )

    def after(
        self, f: Any, g: Any, f0: Any, slope0: Any, d: Any, bound: Any, change: Any
    ) -> Search:
        """Return the search after a look at ``t``.

        Args:
            f: The loss there.
            g: The gradient there.
            f0: The loss where the line begins.
            slope0: The slope there.
            d: The direction of the line.
            bound: After how many more looks to end.
            change: The least change of a parameter that is worth a look.
        """
        return _after(self, f, g, f0, slope0, d, bound, change)


@jax.jit
def _after(
    at: Search, f: Any, g: Any, f0: Any, slope0: Any, d: Any, bound: Any, change: Any
) -> Search:
    t, slope = at.t, jnp.vdot(g, d)
    looks = at.evals  # before this one
    too_high = f > f0 + _ENOUGH * t * slope0
    good = jnp.abs(slope) <= -_FLAT * slope0

    # Going further: does an interval end here?
    last = looks == bound
    ends = last | too_high | ((looks > 1) & (f >= at.f)) | good | (slope >= 0)
    found = good & ~(last | too_high | ((looks > 1) & (f >= at.f)))
    from_here = lambda old, first, new: jnp.stack(
        [jnp.where(found, new, jnp.where(last, first, old)), new]
    )
    ts = from_here(at.before, jnp.zeros_like(t), t)
    fs, slopes = from_here(at.f, f0, f), from_here(at.slope, slope0, slope)
    gs = from_here(at.g, at.gs[0], g)
    further = _cubic(*(at.before, at.f, at.slope, t, f, slope), t + 0.01 * (t - at.before), t * 10)
    first = jnp.where(fs[0] <= fs[1], 0, 1).astype(jnp.int32)

    # Narrowing: which end does this point replace?
    low, high = at.low, 1 - at.low
    worse = too_high | (f >= at.fs[low])
    turn = ~worse & ~good & (slope * (at.ts[high] - at.ts[low]) >= 0)

    def replace(old: Any, new: Any) -> Any:
        other = jnp.where(worse, new, jnp.where(turn, old[low], old[high]))
        return old.at[high].set(other).at[low].set(jnp.where(worse, old[low], new))

    zoomed = [
        replace(old, new) for old, new in ((at.ts, t), (at.fs, f), (at.slopes, slope), (at.gs, g))
    ]
    lower = jnp.where(zoomed[1][0] <= zoomed[1][1], 0, 1).astype(jnp.int32)
    lower = jnp.where(worse, lower, low)

    # What comes next.
    zooming = at.zooming | ends
    ts, fs, slopes, gs = (
        jnp.where(at.zooming, a, jnp.where(ends, b, c))
        for a, b, c in zip(zoomed, (ts, fs, slopes, gs), (at.ts, at.fs, at.slopes, at.gs))
    )
    low = jnp.where(at.zooming, lower, jnp.where(found, 1, first))
    short = jnp.abs(ts[1] - ts[0]) * jnp.abs(d).max() < change
    over = looks >= bound
    done = zooming & (jnp.where(at.zooming, ~worse & good, found) | over | short)
    inner, slow = _inside(ts, fs, slopes, at.slow)
    return Search(
        t=jnp.where(zooming, inner, further),
        before=t,
        f=f,
        slope=slope,
        g=g,
        ts=ts,
        fs=fs,
        slopes=slopes,
        gs=gs,
        low=low,
        zooming=zooming,
        slow=zooming & slow,
        evals=looks + 1,
        done=done,
    )


def _inside(ts: Any, fs: Any, slopes: Any, slow: Any) -> tuple[Any, Any]:
    """Return where to look in an interval, not too close to its ends, and whether it was."""
    left, right = ts.min(), ts.max()
    t = _cubic(ts[0], fs[0], slopes[0], ts[1], fs[1], slopes[1], left, right)
    margin = 0.1 * (right - left)
    close = jnp.minimum(right - t, t - left) < margin
    move = close & (slow | (t >= right) | (t <= left))
    away = jnp.where(jnp.abs(t - right) < jnp.abs(t - left), right - margin, left + margin)
    return jnp.where(move, away, t), close & ~move


def _cubic(x1: Any, f1: Any, s1: Any, x2: Any, f2: Any, s2: Any, low: Any, high: Any) -> Any:
    """Return where the cubic through two points with slopes is least, within bounds."""
    d1 = s1 + s2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - s1 * s2
    d2 = jnp.sqrt(jnp.maximum(square, 0))
    forward = x2 - (x2 - x1) * ((s2 + d2 - d1) / (s2 - s1 + 2 * d2))
    backward = x1 - (x1 - x2) * ((s1 + d2 - d1) / (s1 - s2 + 2 * d2))
    least = jnp.where(x1 <= x2, forward, backward)
    return jnp.where(square >= 0, jnp.clip(least, low, high), (low + high) / 2)


def _loop(condition: Callable[[Any], Any], body: Callable[[Any], Any], value: Any) -> Any:
    """Loop in Python or, inside a trace, in the program."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)):
        return while_loop(condition, body, value)
    while condition(value):
        value = body(value)
    return value


def _zero() -> Any:
    return jnp.zeros((), jnp.int32)
