"""Forward and backward of a layer of each family, against the same computation in raw JAX.

    python tests/benchmarks/bench_layers.py [--rounds 40] [--quick]

A call computes a layer's output, and the gradients of its squares with respect to parameters and
input, in one compiled program; raw JAX does the same by hand, on a dict of arrays. Where PyTorch is
installed it does so too, on the CPU, for comparison only.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from harness import AGAIN, OURS, RAW, Table, calls_within, interleave, measures, options, shown
from jax import Array, lax
from workloads import arrays_of, raw_cross_entropy, raw_linear

import jaxsaw as js
from jaxsaw import nn

Params = dict[str, Array]


class Family(NamedTuple):
    """A layer in both forms.

    Attributes:
        name: What it is.
        layer: Makes the layer, from the package ``nn`` and, in jaxsaw, ``rngs=``.
        ours: Computes with the layer, from inputs.
        raw: Computes the same with a dict of the layer's arrays.
        inputs: Those that gradients are taken of, and then others.
        others: How many of the inputs have no gradient.
    """

    name: str
    layer: Callable[..., Any]
    ours: Callable[..., Array]
    raw: Callable[..., Array]
    inputs: tuple[Array, ...]
    others: int = 0


def normal(*shape: int) -> Array:
    """Return normal numbers."""
    return jax.random.normal(jax.random.key(len(shape)), shape)


def families(quick: bool) -> list[Family]:
    """Return the layers: smaller ones if ``quick``."""
    n = 4 if quick else 32
    width = 64 if quick else 256
    steps = 8 if quick else 32
    x = normal(n, steps, width)
    tokens = jax.random.randint(jax.random.key(0), (n, steps), 0, 1000)
    call: Callable[..., Array] = lambda layer, x: layer(x)
    first: Callable[..., Array] = lambda layer, x: layer(x)[0]
    return [
        Family(
            "linear",
            lambda nn, **k: nn.Linear(width, width, **k),
            call,
            lambda p, x: x @ p["weight"].T + p["bias"],
            (x,),
        ),
        Family(
            "convolution, 3 x 3",
            lambda nn, **k: nn.Conv2d(16, 16, 3, padding=1, **k),
            call,
            _raw_conv,
            (normal(n, 16, 16, 16),),
        ),
        Family("LSTM", lambda nn, **k: nn.LSTM(width, width, **k), first, _raw_lstm, (x,)),
        Family("GRU", lambda nn, **k: nn.GRU(width, width, **k), first, _raw_gru, (x,)),
        Family(
            "attention, 4 heads",
            lambda nn, **k: nn.MultiheadAttention(width, HEADS, batch_first=True, **k),
            lambda layer, x: layer(x, x, x, need_weights=False)[0],
            _raw_attention,
            (x,),
        ),
        Family(
            "embedding",
            lambda nn, **k: nn.Embedding(1000, width, **k),
            call,
            lambda p, index: p["weight"][index],
            (tokens,),
            1,
        ),
        Family("layer norm", lambda nn, **k: nn.LayerNorm(width), call, _raw_norm, (x,)),
        Family(
            "cross entropy",
            lambda nn, **k: nn.CrossEntropyLoss(),
            lambda layer, x, y: layer(x, y),
            lambda p, x, y: raw_cross_entropy(x, y),
            (normal(n * steps, 1000), tokens.reshape(-1)),
            1,
        ),
    ]


HEADS = 4
PYTORCH = "PyTorch"


def _raw_conv(p: Params, x: Array) -> Array:
    layout = ("NCHW", "OIHW", "NCHW")
    y = lax.conv_general_dilated(x, p["weight"], (1, 1), "SAME", dimension_numbers=layout)
    return y + p["bias"][:, None, None]


def _raw_lstm(p: Params, x: Array) -> Array:
    gates = x @ p["weight_ih_l0"].T + p["bias_ih_l0"] + p["bias_hh_l0"]

    def step(state: tuple[Array, Array], gates: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = state
        i, f, g, o = jnp.split(gates + h @ p["weight_hh_l0"].T, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((x.shape[1], p["weight_hh_l0"].shape[1]))
    return lax.scan(step, (zeros, zeros), gates)[1]


def _raw_gru(p: Params, x: Array) -> Array:
    gates = x @ p["weight_ih_l0"].T + p["bias_ih_l0"]

    def step(h: Array, gates: Array) -> tuple[Array, Array]:
        x_r, x_z, x_n = jnp.split(gates, 3, -1)
        h_r, h_z, h_n = jnp.split(h @ p["weight_hh_l0"].T + p["bias_hh_l0"], 3, -1)
        n = jnp.tanh(x_n + jax.nn.sigmoid(x_r + h_r) * h_n)
        z = jax.nn.sigmoid(x_z + h_z)
        h = (1 - z) * n + z * h
        return h, h

    return lax.scan(step, jnp.zeros((x.shape[1], p["weight_hh_l0"].shape[1])), gates)[1]


def _raw_attention(p: Params, x: Array) -> Array:
    qkv = x @ p["in_proj_weight"].T + p["in_proj_bias"]  # (N, L, 3 * width)
    q, k, v = (y.reshape(*x.shape[:-1], HEADS, -1) for y in jnp.split(qkv, 3, -1))
    return raw_linear(p, "out_proj", jax.nn.dot_product_attention(q, k, v).reshape(x.shape))


def _raw_norm(p: Params, x: Array) -> Array:
    x = x - x.mean(-1, keepdims=True)
    return x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5) * p["weight"] + p["bias"]


def ours(family: Family) -> Callable[[], Any]:
    """Return a call of jaxsaw's layer, with a layer of its own."""
    layer, count = family.layer(nn, rngs=js.Rngs(0)), len(family.inputs) - family.others
    argnums = (*([0] if list(layer.parameters()) else []), *range(1, count + 1))

    @js.jit
    def run(layer: nn.Module, *inputs: Array) -> Any:
        return js.value_and_grad(lambda *a: jnp.square(family.ours(*a)).sum(), argnums)(
            layer, *inputs
        )

    return lambda: run(layer, *family.inputs)


def raw(family: Family) -> Callable[[], Any]:
    """Return a call of raw JAX, with arrays of its own."""
    params = arrays_of(family.layer(nn, rngs=js.Rngs(0)))
    count = len(family.inputs) - family.others
    argnums = (*([0] if params else []), *range(1, count + 1))

    @jax.jit
    def run(params: Params, *inputs: Array) -> Any:
        return jax.value_and_grad(lambda *a: jnp.square(family.raw(*a)).sum(), argnums)(
            params, *inputs
        )

    return lambda: run(params, *family.inputs)


def pytorch(family: Family) -> Callable[[], float]:
    """Return a call that measures PyTorch's layer once: seconds."""
    import torch

    layer, count = family.layer(torch.nn), len(family.inputs) - family.others
    inputs = [torch.tensor(np.asarray(x)) for x in family.inputs]
    inputs = [x.long() if x.dtype == torch.int32 else x for x in inputs]
    leaves = [*layer.parameters(), *(x.requires_grad_() for x in inputs[:count])]

    def call() -> float:
        start = time.perf_counter()
        torch.autograd.grad(family.ours(layer, *inputs).square().sum(), leaves)
        return time.perf_counter() - start

    for _ in range(3):
        call()
    return call


def check_same(name: str, a: Any, b: Any) -> None:
    """Raise unless two calls give the same numbers."""
    (loss, grads), (other, others) = a, b
    np.testing.assert_allclose(loss, other, rtol=1e-4, err_msg=name)
    first = dict(grads[0]) if isinstance(others[0], dict) else grads[0]
    for x, y in zip(jax.tree.leaves((first, grads[1:])), jax.tree.leaves(others), strict=True):
        scale = float(jnp.abs(y).max())
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4 * scale, err_msg=name)


def main() -> None:
    given = options(__doc__, rounds=40)
    table = Table("Layers, forward and backward", given.rounds)
    seconds = 0.02 if given.quick else 0.3
    for family in families(given.quick):
        calls = {OURS: ours(family), RAW: raw(family), AGAIN: raw(family)}
        check_same(family.name, calls[OURS](), calls[RAW]())
        count = [calls_within(call, seconds) for call in calls.values()][-1]
        contenders = measures(calls, count)
        if find_spec("torch") and jax.default_backend() == "cpu":
            contenders[PYTORCH] = pytorch(family)
        times = interleave(contenders, given.rounds)
        takes = shown(statistics.median(times[RAW]))
        table.at_most(family.name, f"raw JAX ({takes})", times, 1.02)
        if PYTORCH in times:
            takes = shown(statistics.median(times[PYTORCH]))
            table.at_most(family.name, f"PyTorch ({takes})", times, raw=PYTORCH)


if __name__ == "__main__":
    main()
