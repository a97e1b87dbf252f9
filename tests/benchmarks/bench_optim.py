"""Steps of optimizers, on many parameters and on those of GPT-2, against raw JAX and Optax.

python tests/benchmarks/bench_optim.py [--rounds 30] [--quick] [--only Adam,SGD]

Raw JAX means: the formula by hand over flat lists, in one ``jax.jit`` that donates what it
replaces, with hyper-parameters that are arrays. Gradients are a tenth of the parameters.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from harness import AGAIN, OURS, RAW, Table, calls_within, interleave, measures, options, shown
from jax import Array

import jaxsaw as js
from jaxsaw import nn, optim

OPTAX = "optax"

Shapes = Sequence[tuple[int, ...]]
MIXED: Shapes = [(4, 4), (16,), (64,), (32, 32), (1,), (8, 8, 3, 3), (128,), (48, 16)]
# lr, beta1, its complement, beta2, its complement, eps, weight decay, one minus dampening
NUMBERS = (1e-3, 0.9, 1 - 0.9, 0.999, 1 - 0.999, 1e-8, 0.0, 1.0)


class Entry(NamedTuple):
    """An optimizer in its forms.

    Attributes:
        ours: Makes jaxsaw's, of Parameters.
        raw: Returns the new parameter and state, given the parameter, its gradient and state,
            hyper-parameters and the count.
        slots: How many arrays it keeps for each parameter.
        optax: Makes Optax's, where it has it.
    """

    ours: Callable[[Any], optim.Optimizer]
    raw: Callable[..., Any]
    slots: int
    optax: Callable[[], Any] | None = None


def _rise(rest: Any, t: Any) -> Any:
    return -jnp.expm1(t * jnp.log1p(-rest))


def _sgd(p: Any, g: Any, s: Any, h: Any, t: Any) -> Any:
    m = h[1] * s[0] + jnp.where(t == 1, 1, h[7]) * (g + h[6] * p)
    return p - h[0] * m, m


def _moments(g: Any, s: Any, h: Any) -> Any:
    return h[1] * s[0] + h[2] * g, h[3] * s[1] + h[4] * (g * g)


def _adam(p: Any, g: Any, s: Any, h: Any, t: Any, decay: bool = True) -> Any:
    m, v = _moments(g + h[6] * p if decay else g, s, h)
    return p - h[0] / _rise(h[2], t) * (m / (jnp.sqrt(v) / jnp.sqrt(_rise(h[4], t)) + h[5])), m, v


def _adamw(p: Any, g: Any, s: Any, h: Any, t: Any) -> Any:
    return _adam(p * (1 - h[0] * h[2]), g, s, h, t, decay=False)


def _lamb(p: Any, g: Any, s: Any, h: Any, t: Any) -> Any:
    m, v = _moments(g, s, h)
    u = m / _rise(h[2], t) / (jnp.sqrt(v) / jnp.sqrt(_rise(h[4], t)) + h[5]) + h[6] * p
    long, size = jnp.sqrt((u * u).sum()), jnp.sqrt((p * p).sum())
    return p - h[0] * jnp.where((long == 0) | (size == 0), 1, size / long) * u, m, v


def _lion(p: Any, g: Any, s: Any, h: Any, t: Any) -> Any:
    p = p * (1 - h[0] * h[6])
    return p - h[0] * jnp.sign(h[1] * s[0] + h[2] * g), h[3] * s[0] + h[4] * g


def _rmsprop(p: Any, g: Any, s: Any, h: Any, t: Any) -> Any:
    g = g + h[6] * p
    v = h[3] * s[0] + h[4] * (g * g)
    return p - h[0] * (g / (jnp.sqrt(v) + h[5])), v


def _adagrad(p: Any, g: Any, s: Any, h: Any, t: Any) -> Any:
    g = g + h[6] * p
    total = s[0] + g * g
    return p - h[0] * (g / (jnp.sqrt(total) + h[5])), total


def _adadelta(p: Any, g: Any, s: Any, h: Any, t: Any) -> Any:
    g = g + h[6] * p
    v = h[1] * s[0] + h[2] * (g * g)
    step = jnp.sqrt(s[1] + h[5]) / jnp.sqrt(v + h[5]) * g
    return p - h[0] * step, v, h[1] * s[1] + h[2] * (step * step)


def _adamax(p: Any, g: Any, s: Any, h: Any, t: Any) -> Any:
    g = g + h[6] * p
    m, u = h[1] * s[0] + h[2] * g, jnp.maximum(h[3] * s[1], jnp.abs(g) + h[5])
    return p - h[0] / _rise(h[2], t) * (m / u), m, u


def _rprop(p: Any, g: Any, s: Any, h: Any, t: Any) -> Any:
    turn = g * s[0]
    factor = jnp.where(turn > 0, 1.2, jnp.where(turn < 0, 0.5, 1.0))
    size = jnp.clip(jnp.where(t == 1, h[0], s[1]) * factor, 1e-6, 50.0)
    g = jnp.where(turn < 0, 0, g)
    return p - jnp.sign(g) * size, g, size


ENTRIES = {
    "SGD": Entry(lambda p: optim.SGD(p, 1e-3, 0.9), _sgd, 1, lambda: optax.sgd(1e-3, momentum=0.9)),
    "Adam": Entry(lambda p: optim.Adam(p, 1e-3), _adam, 2, lambda: optax.adam(1e-3)),
    "AdamW": Entry(
        lambda p: optim.AdamW(p, 1e-3, weight_decay=0.1),
        _adamw,
        2,
        lambda: optax.adamw(1e-3, weight_decay=0.1),
    ),
    "Lamb": Entry(
        lambda p: optim.Lamb(p, 1e-3, eps=1e-8), _lamb, 2, lambda: optax.lamb(1e-3, eps=1e-8)
    ),
    "Lion": Entry(
        lambda p: optim.Lion(p, 1e-3, (0.9, 0.999)),
        _lion,
        1,
        lambda: optax.lion(1e-3, 0.9, 0.999, weight_decay=0.0),
    ),
    "RMSprop": Entry(lambda p: optim.RMSprop(p, 1e-3, 0.999), _rmsprop, 1),
    "Adagrad": Entry(lambda p: optim.Adagrad(p, 1e-3, eps=1e-8), _adagrad, 1),
    "Adadelta": Entry(lambda p: optim.Adadelta(p, 1e-3, 0.9, 1e-8), _adadelta, 2),
    "Adamax": Entry(lambda p: optim.Adamax(p, 1e-3), _adamax, 2, lambda: optax.adamax(1e-3)),
    "Rprop": Entry(lambda p: optim.Rprop(p, 1e-3), _rprop, 2),
}


def gpt2(layers: int = 12, width: int = 768, words: int = 50257, length: int = 1024) -> Shapes:
    """Return the shapes of GPT-2's parameters."""
    norm = [(width,), (width,)]
    attention = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    network = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(words, width), (length, width), *(norm * 2 + attention + network) * layers, *norm]


def first(shape: tuple[int, ...]) -> Array:
    """Return a parameter's first value."""
    return jnp.full(shape, 0.5)


def ours_of(entry: Entry, shapes: Shapes) -> Callable[[], Any]:
    """Return jaxsaw's step."""
    params = [nn.Parameter.own(first(shape)) for shape in shapes]
    optimizer = entry.ours(params)

    @js.jit
    def step() -> Array:
        optimizer.step([0.1 * p.value for p in params])
        return params[0].value.reshape(-1)[0]

    return step


def raw_of(entry: Entry, shapes: Shapes) -> Callable[[], Any]:
    """Return the step by hand."""
    hyper = tuple(map(jnp.float32, NUMBERS))

    def step(params: Any, states: Any, count: Any, hyper: Any) -> Any:
        count = count + 1
        t = count.astype(jnp.float32)
        new = [entry.raw(p, 0.1 * p, s, hyper, t) for p, s in zip(params, states, strict=True)]
        params, states = [x[0] for x in new], [x[1:] for x in new]
        return params, states, count, params[0].reshape(-1)[0]

    compiled = jax.jit(step, donate_argnums=(0, 1, 2))
    params = [first(shape) for shape in shapes]
    states = [tuple(jnp.zeros(s) for _ in range(entry.slots)) for s in shapes]
    return _driver(lambda *state: compiled(*state, hyper), params, states, jnp.int32(0))


def optax_of(entry: Entry, shapes: Shapes) -> Callable[[], Any]:
    """Return the step with Optax."""
    assert entry.optax is not None
    transformation = entry.optax()

    def step(params: Any, state: Any) -> Any:
        updates, state = transformation.update([0.1 * p for p in params], state, params)
        params = optax.apply_updates(params, updates)
        return params, state, params[0].reshape(-1)[0]

    params = [first(shape) for shape in shapes]
    compiled = jax.jit(step, donate_argnums=(0, 1))
    return _driver(compiled, params, transformation.init(params))


def _driver(compiled: Callable[..., Any], *state: Any) -> Callable[[], Any]:
    def call() -> Any:
        nonlocal state
        *new, result = compiled(*state)
        state = tuple(new)
        return result

    return call


def main() -> None:
    only = set(ENTRIES)
    if "--only" in sys.argv:
        i = sys.argv.index("--only")
        only = set(sys.argv[i + 1].split(","))
        del sys.argv[i : i + 2]
    given = options(__doc__, rounds=30)
    table = Table("Optimizers", given.rounds)
    seconds = 0.02 if given.quick else 0.5
    many = [MIXED[i % len(MIXED)] for i in range(40 if given.quick else 1000)]
    large = gpt2(2, 64, 1000, 128) if given.quick else gpt2()
    for title, shapes in ((f"{len(many)} parameters", many), ("GPT-2's parameters", large)):
        for name, entry in ENTRIES.items():
            if name not in only:
                continue
            calls = {
                OURS: ours_of(entry, shapes),
                RAW: raw_of(entry, shapes),
                AGAIN: raw_of(entry, shapes),
            }
            if entry.optax is not None:
                calls[OPTAX] = optax_of(entry, shapes)
            check_equal(name, calls)
            count = [calls_within(call, seconds) for call in calls.values()][-1]
            times = interleave(measures(calls, count), given.rounds)
            takes = shown(statistics.median(times[RAW]))
            table.at_most(f"{name}, {title}", f"raw JAX ({takes})", times, 1.02)
            if entry.optax is not None:
                table.at_most(f"{name}, {title}", "Optax", times, raw=OPTAX, bound=1.02)
            del calls


def check_equal(name: str, calls: dict[str, Callable[[], Any]]) -> None:
    """Do some steps of each, and raise unless they give the same numbers."""
    for _ in range(3):
        found = {key: float(call()) for key, call in calls.items()}
        if max(found.values()) - min(found.values()) > 1e-5:
            raise AssertionError(f"{name}: {found}.")


if __name__ == "__main__":
    main()
