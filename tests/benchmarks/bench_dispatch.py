"""What a cached call costs, and what switching between training and evaluation does.

    python tests/benchmarks/bench_dispatch.py [--rounds 100] [--quick]

The step is one of Adam on parameters of 4 x 4 with a loss that costs next to nothing, so that
what is left is mostly the way from Python into XLA. Flax and Equinox do the arithmetic of raw JAX
on their own objects, and donate too.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from itertools import repeat
from typing import Any

import jax
import jax.numpy as jnp
from harness import (
    AGAIN,
    OURS,
    RAW,
    Table,
    calls_within,
    interleave,
    measures,
    options,
    seconds_per_call,
    shown,
)
from workloads import Hyper, check_equal, raw_adam, small_adam, small_batch, small_loss

import jaxsaw as js
from jaxsaw import nn

CLOSED = "jaxsaw, closed over"


def nnx_steps(n: int) -> dict[str, Callable[[], Any]]:
    """Return the step with Flax NNX, through ``nnx.jit`` and through ``nnx.cached_partial``."""
    from flax import nnx

    class Model(nnx.Module):
        def __init__(self) -> None:
            self.weights = nnx.List([nnx.Param(jnp.full((4, 4), 0.1)) for _ in range(n)])

    class Adam(nnx.Module):
        def __init__(self) -> None:
            self.firsts = nnx.List([nnx.Variable(jnp.zeros((4, 4))) for _ in range(n)])
            self.seconds = nnx.List([nnx.Variable(jnp.zeros((4, 4))) for _ in range(n)])
            self.count = nnx.Variable(jnp.zeros((), jnp.int32))
            self.hyper = nnx.List([nnx.Variable(number) for number in Hyper.of(1e-3)])

    def step(model: Model, adam: Adam, x: Any) -> Any:
        params = [p[...] for p in model.weights]
        loss, grads = jax.value_and_grad(small_loss)(params, x)
        adam.count[...] += 1
        new = raw_adam(
            params,
            grads,
            [m[...] for m in adam.firsts],
            [v[...] for v in adam.seconds],
            adam.count[...].astype(jnp.float32),
            Hyper(*(h[...] for h in adam.hyper)),
            False,
        )
        lists: tuple[Any, ...] = (model.weights, adam.firsts, adam.seconds)
        for boxes, arrays in zip(lists, new, strict=True):
            for box, array in zip(boxes, arrays, strict=True):
                box[...] = array
        return loss

    x = small_batch()
    model, adam = Model(), Adam()
    compiled = nnx.jit(step, donate_argnums=(0, 1))
    cached = nnx.cached_partial(nnx.jit(step, donate_argnums=(0, 1)), Model(), Adam())
    return {"nnx.jit": lambda: compiled(model, adam, x), "nnx.cached_partial": lambda: cached(x)}


def eqx_step(n: int) -> Callable[[], Any]:
    """Return the step with Equinox: ``filter_jit`` of a function of modules."""
    import equinox as eqx

    class Model(eqx.Module):
        weights: list[jax.Array]

    class Adam(eqx.Module):
        firsts: list[jax.Array]
        seconds: list[jax.Array]
        count: jax.Array

    @eqx.filter_jit(donate="all-except-first")
    def step(inputs: Any, model: Model, adam: Adam) -> Any:
        x, hyper = inputs
        loss, grads = jax.value_and_grad(small_loss)(model.weights, x)
        count = adam.count + 1
        weights, firsts, seconds = raw_adam(
            model.weights,
            grads,
            adam.firsts,
            adam.seconds,
            count.astype(jnp.float32),
            hyper,
            False,
        )
        return Model(weights), Adam(firsts, seconds, count), loss

    inputs = small_batch(), Hyper.of(1e-3)
    zeros = [jnp.zeros((4, 4)) for _ in range(2 * n)]
    model = Model([jnp.full((4, 4), 0.1) for _ in range(n)])
    adam = Adam(zeros[:n], zeros[n:], jnp.zeros((), jnp.int32))

    def call() -> Any:
        nonlocal model, adam
        model, adam, loss = step(inputs, model, adam)
        return loss

    return call


def training_steps(table: Table, n: int, rounds: int, seconds: float) -> None:
    """Measure the cached step of ``n`` parameters, against raw JAX and other frameworks."""
    workload = small_adam(n)
    closed = small_adam(n, closed=True).ours()
    steps = {OURS: workload.ours(), CLOSED: closed, RAW: workload.raw(), AGAIN: workload.raw()}
    check_equal(steps[OURS], steps[RAW])
    calls = {name: step.call for name, step in steps.items()}
    count = [calls_within(call, seconds) for call in calls.values()][-1]
    others = {"eqx.filter_jit": eqx_step(n)}
    if n <= 100:  # Flax's trace takes time that grows with the square of n, minutes at 1,000
        others |= nnx_steps(n)
    contenders = measures(calls, count)
    for name, call in others.items():
        contenders |= measures({name: call}, calls_within(call, seconds))
    times = interleave(contenders, rounds)

    takes = shown(statistics.median(times[RAW]))
    bound = 1.10 if n <= 10 else 1.05
    what = f"cached Adam step, {n} parameters"
    table.at_most(f"{what}, passed", f"donating jax.jit ({takes})", times, bound)
    table.at_most(f"{what}, closed over", "donating jax.jit", times, bound, ours=CLOSED)
    for name, factor in (("nnx.jit", 10.0), ("nnx.cached_partial", 3.0), ("eqx.filter_jit", 2.5)):
        if name in others:
            table.at_least(what, f"{name}, it / jaxsaw", times, factor, name)


class Sum(nn.Module):
    """Adds its parameters to what comes in."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList([nn.Parameter(jnp.ones((4, 4))) for _ in range(n)])

    def forward(self, x: jax.Array) -> jax.Array:
        for p in self.weights:
            x = x + p
        return x


def forward_calls(table: Table, rounds: int, seconds: float) -> None:
    """Measure a cached call that only reads state."""
    x = small_batch()
    model, closed_over = Sum(10), Sum(10)
    passed = js.jit(lambda model, x: model(x))
    closed = js.jit(closed_over)

    def raw() -> Callable[[], Any]:
        def forward(params: list[jax.Array], x: jax.Array) -> jax.Array:
            for p in params:
                x = x + p
            return x

        compiled, params = jax.jit(forward), [jnp.ones((4, 4)) for _ in range(10)]
        return lambda: compiled(params, x)

    calls = {
        OURS: lambda: passed(model, x),
        CLOSED: lambda: closed(x),
        RAW: raw(),
        AGAIN: raw(),
    }
    count = [calls_within(call, seconds) for call in calls.values()][-1]
    times = interleave(measures(calls, count), rounds)
    against = f"jax.jit ({shown(statistics.median(times[RAW]))})"
    table.more("cached forward, 10 parameters, passed: µs more", against, times, 3, 1e-6)
    what = "cached forward, 10 parameters, js.jit(model): µs more"
    table.more(what, against, times, 3, 1e-6, ours=CLOSED)


class Deep(nn.Module):
    """About ``n`` modules that do nothing, and a parameter."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Sequential(*(nn.Identity() for _ in range(9))) for _ in range(n // 10))
        )
        self.weight = nn.Parameter(jnp.ones((4, 4)))

    def forward(self, x: jax.Array) -> jax.Array:
        return self.layers(x) * self.weight


def flips(table: Table, n: int, rounds: int, repeats: int) -> None:
    """Measure ``eval()`` and ``train()`` of ``n`` modules, and what they do to other calls."""
    x = small_batch()
    deep, other = Deep(n), Sum(10)
    f = js.jit(lambda x: deep(x))
    g = js.jit(lambda model, x: model(x))

    def flip() -> None:
        deep.eval()
        f(x)
        deep.train()
        f(x)

    def calls() -> None:
        f(x)
        f(x)

    def walk() -> None:
        for _ in deep.modules():
            pass

    for warm_up in (flip, calls, walk, flip):
        warm_up()
    g(other, x)

    def average(call: Callable[[], None]) -> float:
        return seconds_per_call(call, repeats)

    times = interleave(
        {
            OURS: lambda: average(flip) - average(calls),
            RAW: lambda: average(walk),
            AGAIN: lambda: average(walk),
        },
        rounds,
    )
    takes = shown(statistics.median(times[RAW]))
    what = f"eval() and train() of {n} modules, between calls"
    table.at_most(what, f"a walk over them ({takes})", times, 1.0)

    def after(action: Callable[[], None]) -> Callable[[], float]:
        def measure() -> float:
            total = 0.0
            for _ in repeat(None, repeats):
                action()
                total += seconds_per_call(lambda: g(other, x), 1)
            return total / repeats

        return measure

    def switch() -> None:
        deep.eval()
        deep.train()

    # A walk before it empties the processor's caches as the flip does.
    times = interleave({OURS: after(switch), RAW: after(walk), AGAIN: after(walk)}, rounds)
    takes = shown(statistics.median(times[RAW]))
    table.at_most("call on another model after a flip", f"after a walk ({takes})", times, 1.0)
    if f.trace_count != 2 or g.trace_count != 1:
        raise AssertionError(f"traced {f.trace_count} and {g.trace_count} times, not 2 and 1.")


def main() -> None:
    given = options(__doc__, rounds=100)
    table = Table("Cached calls", given.rounds)
    for n in (10,) if given.quick else (10, 100, 1000):
        training_steps(table, n, given.rounds, 0.005 if given.quick else 0.02)
    forward_calls(table, given.rounds, 0.005 if given.quick else 0.02)
    flips(table, 1000, given.rounds, 3 if given.quick else 20)


if __name__ == "__main__":
    main()
