"""The first call of a deep transformer whose layers are one ``nn.Stack``, against a shallow one.

    python tests/benchmarks/bench_depth.py [--rounds 30] [--quick]

Both trace and compile one layer; what is left of the depth is the time that the layers take to
run, on one short sequence.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from harness import Table, interleave, options, shown
from workloads import VOCABULARY, Block

import jaxsaw as js
from jaxsaw import nn, optim
from jaxsaw.nn import functional as F

DEEP, SHALLOW, AGAIN = "96 layers", "2 layers", "2 layers again"
WIDTH = 64


class Transformer(nn.Module):
    """Embedding, layers, logits."""

    def __init__(self, layers: int, rngs: js.Rngs) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH, rngs=rngs)
        self.layers = nn.Stack(js.vmap(lambda r: Block(WIDTH, r))(js.stack(rngs.fork(layers))))
        self.head = nn.Linear(WIDTH, VOCABULARY, rngs=rngs)

    def forward(self, tokens: jax.Array) -> jax.Array:
        return self.head(self.layers(self.tokens(tokens)))


def first_call(layers: int, train: bool) -> Callable[[], float]:
    """Return a function that measures a first call in seconds."""
    tokens = jnp.zeros((1, 16), jnp.int32)

    def step(model: Transformer, optimizer: Any, tokens: jax.Array) -> jax.Array:
        def loss_of(m: Transformer) -> jax.Array:
            return F.cross_entropy(m(tokens)[0], tokens[0])

        loss, grads = js.value_and_grad(loss_of)(model)
        optimizer.step(grads)
        return loss

    def measure() -> float:
        model = Transformer(layers, js.Rngs(0, params=1))
        optimizer = optim.AdamW(model.parameters())
        jax.clear_caches()
        gc.collect()
        start = time.perf_counter()
        if train:
            jax.block_until_ready(js.jit(step)(model, optimizer, tokens))
        else:
            jax.block_until_ready(js.jit(lambda m, x: m(x))(model, tokens))
        return time.perf_counter() - start

    return measure


def main() -> None:
    given = options(__doc__, quick=2)
    table = Table("First calls of deep models", given.rounds)
    for what, train in (("forward", False), ("training step with AdamW", True)):
        contenders = {
            name: first_call(layers, train)
            for name, layers in ((DEEP, 96), (SHALLOW, 2), (AGAIN, 2))
        }
        contenders[SHALLOW]()  # whatever happens only once in a process
        times = interleave(contenders, given.rounds)
        takes = shown(statistics.median(times[SHALLOW]))
        table.at_most(
            f"first call of 96 layers, {what}",
            f"2 layers ({takes})",
            times,
            1.5,
            ours=DEEP,
            raw=SHALLOW,
            again=AGAIN,
        )


if __name__ == "__main__":
    main()
