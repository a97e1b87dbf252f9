"""The training steps that are measured: each in jaxsaw, and by hand in raw JAX.

The two do the same arithmetic from the same initial values. Raw JAX means: arrays in flat lists
or dicts, one ``jax.jit`` of the whole step that donates what it replaces, and jaxsaw's formula of
Adam, with hyper-parameters that are arrays (so that changing one compiles nothing).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

import jaxsaw as js
from jaxsaw import nn, optim
from jaxsaw.nn import functional as F


class Step(NamedTuple):
    """A training step with a state of its own.

    Attributes:
        call: Does one step, and returns the loss.
        lower: Returns it lowered for its state and batch.
        state: What keeps the state alive.
    """

    call: Callable[[], Array]
    lower: Callable[[], Any]
    state: Any = None


class Workload(NamedTuple):
    """A training step in both forms; each call makes another instance."""

    ours: Callable[[], Step]
    raw: Callable[[], Step]


# Raw Adam.


class Hyper(NamedTuple):
    """Adam's hyper-parameters, as arrays. Complements are computed in double, as in jaxsaw."""

    lr: Any
    beta1: Any
    rest1: Any
    beta2: Any
    rest2: Any
    eps: Any
    weight_decay: Any

    @classmethod
    def of(cls, lr: float, weight_decay: float = 0.0) -> Hyper:
        numbers = (lr, 0.9, 1 - 0.9, 0.999, 1 - 0.999, 1e-8, weight_decay)
        return cls(*map(jnp.float32, numbers))


def raw_adam(
    params: Any, grads: Any, firsts: Any, seconds: Any, count: Any, h: Hyper, decoupled: bool
) -> Any:
    """Return new parameters and moments, three trees like ``params``."""
    step_size = h.lr / -jnp.expm1(count * jnp.log1p(-h.rest1))
    root = jnp.sqrt(-jnp.expm1(count * jnp.log1p(-h.rest2)))

    def update(p: Any, g: Any, m: Any, v: Any) -> Any:
        if decoupled:
            p = p * (1 - h.lr * h.weight_decay)
        else:
            g = g + h.weight_decay * p
        m = h.beta1 * m + h.rest1 * g
        v = h.beta2 * v + h.rest2 * (g * g)
        return p - step_size * (m / (jnp.sqrt(v) / root + h.eps)), m, v

    leaves = map(jax.tree.leaves, (params, grads, firsts, seconds))
    new = zip(*(update(*four) for four in zip(*leaves, strict=True)), strict=True)
    return [jax.tree.unflatten(jax.tree.structure(params), arrays) for arrays in new]


def raw_step(
    loss: Callable[..., Any],
    params: Any,
    others: Any,
    batch: tuple[Array, ...],
    hyper: Hyper,
    *,
    decoupled: bool = False,
) -> Step:
    """Return a training step by hand.

    Args:
        loss: Takes parameters, other state and the batch; returns the loss and the new other state.
        params: A tree of arrays.
        others: Another one: statistics, counters.
        batch: Arrays.
        hyper: For Adam.
        decoupled: Whether it is AdamW.
    """

    def step(
        params: Any, firsts: Any, seconds: Any, others: Any, count: Any, hyper: Any, *batch: Any
    ) -> Any:
        (value, others), grads = jax.value_and_grad(loss, has_aux=True)(params, others, *batch)
        count = count + 1
        params, firsts, seconds = raw_adam(
            params, grads, firsts, seconds, count.astype(jnp.float32), hyper, decoupled
        )
        return params, firsts, seconds, others, count, value

    compiled = jax.jit(step, donate_argnums=(0, 1, 2, 3, 4))
    # Copies: this step will overwrite them.
    params, others = jax.tree.map(jnp.copy, (params, others))
    firsts, seconds = jax.tree.map(jnp.zeros_like, (params, params))
    count = jnp.zeros((), jnp.int32)

    def call() -> Any:
        nonlocal params, firsts, seconds, others, count
        params, firsts, seconds, others, count, value = compiled(
            params, firsts, seconds, others, count, hyper, *batch
        )
        return value

    def lower() -> Any:
        return compiled.lower(params, firsts, seconds, others, count, hyper, *batch)

    return Step(call, lower)


# Adam on many small parameters.


class Small(nn.Module):
    """``n`` parameters of 4 x 4, and a loss that costs next to nothing."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            [nn.Parameter.own(jnp.full((4, 4), 0.1)) for _ in range(n)]  # as layers make them
        )

    def forward(self, x: Array) -> Array:
        return small_loss(list(self.weights), x)


def small_loss(params: Any, x: Array) -> Any:
    """Return how far the parameters are from ``x``."""
    return sum(jnp.square(p - x).sum() for p in params)


def small_batch() -> Array:
    """Return ``x``."""
    return jnp.arange(16.0).reshape(4, 4) / 16


def small_adam(n: int, *, closed: bool = False) -> Workload:
    """Return a step of Adam on ``n`` parameters.

    Args:
        n: How many.
        closed: Whether jaxsaw's step reaches model and optimizer by closure.
    """
    x = small_batch()

    def ours() -> Step:
        model = Small(n)
        optimizer = optim.Adam(model.parameters(), lr=1e-3)
        if closed:

            @js.jit
            def step(x: Array) -> Array:
                loss, grads = js.value_and_grad(lambda m: m(x))(model)
                optimizer.step(grads)
                return loss

            return Step(lambda: step(x), lambda: step.lower(x), (model, optimizer))

        @js.jit
        def step_of(model: Small, optimizer: optim.Adam, x: Array) -> Array:
            loss, grads = js.value_and_grad(lambda m: m(x))(model)
            optimizer.step(grads)
            return loss

        return Step(
            lambda: step_of(model, optimizer, x),
            lambda: step_of.lower(model, optimizer, x),
            (model, optimizer),
        )

    def raw() -> Step:
        def loss(params: Any, others: Any, x: Any) -> Any:
            return small_loss(params, x), others

        params = [jnp.full((4, 4), 0.1) for _ in range(n)]
        return raw_step(loss, params, (), (x,), Hyper.of(1e-3))

    return Workload(ours, raw)


def arrays_of(model: nn.Module) -> dict[str, Array]:
    """Return the values of the parameters, by name."""
    return {name: jnp.copy(p.value) for name, p in model.named_parameters()}


def raw_cross_entropy(logits: Array, target: Array) -> Array:
    """Return the mean cross entropy for class indices."""
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), target[..., None], -1)
    return -picked.mean()


def raw_linear(p: dict[str, Array], name: str, x: Array) -> Array:
    """Apply the linear layer of that name."""
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


# A convolutional network.

DROPOUT, SEED = 0.25, 3


class CNN(nn.Module):
    """Three convolutions with batch normalisation, and a classifier with dropout."""

    def __init__(self, rngs: js.Rngs) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_stage(3, 32, rngs), *_stage(32, 64, rngs), *_stage(64, 64, rngs)
        )
        self.dropout = nn.Dropout(DROPOUT)
        self.head = nn.Linear(64 * 4 * 4, 10, rngs=rngs)

    def forward(self, x: Array) -> Array:
        x = self.features(x)  # (N, 64, 4, 4)
        return self.head(self.dropout(x.reshape(x.shape[0], -1)))


def _stage(inputs: int, outputs: int, rngs: js.Rngs) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, 3, padding=1, rngs=rngs),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    ]


def _raw_cnn(p: dict[str, Array], others: dict[str, Array], x: Array) -> Any:
    """Return the logits and the new statistics and counters."""
    new = dict(others)
    for i in (0, 4, 8):
        conv, norm = f"features.{i}", f"features.{i + 1}"
        x = lax.conv_general_dilated(
            x, p[f"{conv}.weight"], (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")
        )
        x = x + p[f"{conv}.bias"][:, None, None]
        count = x.size // x.shape[1]
        mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3))
        for name, value in (("mean", mean), ("var", var * (count / (count - 1)))):
            name = f"{norm}.running_{name}"
            new[name] = 0.9 * others[name] + 0.1 * lax.stop_gradient(value)
        new[f"{norm}.num_batches_tracked"] = others[f"{norm}.num_batches_tracked"] + 1
        scale = lax.rsqrt(var + 1e-5) * p[f"{norm}.weight"]
        x = (x - mean[:, None, None]) * scale[:, None, None] + p[f"{norm}.bias"][:, None, None]
        x = jax.nn.relu(x)
        window = (1, 1, 2, 2)
        x = lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")
    x = x.reshape(x.shape[0], -1)
    key = jax.random.fold_in(jax.random.key(SEED), others["draws"])
    new["draws"] = others["draws"] + 1
    keep = jax.random.bernoulli(key, 1 - DROPOUT, x.shape)
    x = jnp.where(keep, x / (1 - DROPOUT), 0.0)
    return raw_linear(p, "head", x), new


def cnn(batch: int = 64) -> Workload:
    """Return a step of AdamW on images of 32 x 32."""
    x = jax.random.normal(jax.random.key(1), (batch, 3, 32, 32))
    y = jax.random.randint(jax.random.key(2), (batch,), 0, 10)

    def ours() -> Step:
        model = CNN(js.Rngs(params=0))
        optimizer = optim.AdamW(model.parameters(), lr=1e-3)
        streams = js.Rngs(dropout=SEED)

        @js.jit
        def step(model: CNN, optimizer: optim.AdamW, streams: js.Rngs, x: Array, y: Array) -> Array:
            loss, grads = js.value_and_grad(lambda m: F.cross_entropy(m(x, rngs=streams), y))(model)
            optimizer.step(grads)
            return loss

        state = (model, optimizer, streams)
        return Step(lambda: step(*state, x, y), lambda: step.lower(*state, x, y), state)

    def raw() -> Step:
        def loss(params: Any, others: Any, x: Any, y: Any) -> Any:
            logits, others = _raw_cnn(params, others, x)
            return raw_cross_entropy(logits, y), others

        model = CNN(js.Rngs(params=0))
        others = {name: b.value for name, b in model.named_buffers()}
        others["draws"] = jnp.zeros((), jnp.uint32)
        return raw_step(
            loss, arrays_of(model), others, (x, y), Hyper.of(1e-3, 1e-2), decoupled=True
        )

    return Workload(ours, raw)


# A small GPT.

HEADS, LAYERS, VOCABULARY = 4, 3, 256


class Block(nn.Module):
    """Attention, then a perceptron, each on the normalised input and added to it."""

    def __init__(self, width: int, rngs: js.Rngs) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, rngs=rngs)
        self.out = nn.Linear(width, width, rngs=rngs)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width, rngs=rngs)
        self.down = nn.Linear(4 * width, width, rngs=rngs)

    def forward(self, x: Array) -> Array:
        qkv = self.qkv(self.norm1(x))  # (N, L, 3 * width)
        qkv = qkv.reshape(*x.shape[:-1], 3, HEADS, -1).swapaxes(1, 3)  # (N, heads, 3, L, depth)
        y = F.scaled_dot_product_attention(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True)
        x = x + self.out(y.swapaxes(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    """Embeddings of tokens and places, blocks, and logits."""

    def __init__(self, width: int, length: int, rngs: js.Rngs) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width, rngs=rngs)
        self.places = nn.Embedding(length, width, rngs=rngs)
        self.blocks = nn.ModuleList([Block(width, rngs) for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, rngs=rngs)

    def forward(self, tokens: Array) -> Array:
        x = self.tokens(tokens) + self.places(jnp.arange(tokens.shape[1]))  # (N, L, width)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _raw_layer_norm(p: dict[str, Array], name: str, x: Array) -> Array:
    x = x - x.mean(-1, keepdims=True)
    x = x * lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)
    return x * p[f"{name}.weight"] + p[f"{name}.bias"]


def _raw_gpt(p: dict[str, Array], tokens: Array) -> Array:
    x = p["tokens.weight"][tokens] + p["places.weight"][: tokens.shape[1]]
    for i in range(LAYERS):
        name = f"blocks.{i}"
        qkv = raw_linear(p, f"{name}.qkv", _raw_layer_norm(p, f"{name}.norm1", x))
        q, k, v = jnp.moveaxis(qkv.reshape(*x.shape[:-1], 3, HEADS, -1), 2, 0)
        y = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + raw_linear(p, f"{name}.out", y.reshape(x.shape))
        y = raw_linear(p, f"{name}.up", _raw_layer_norm(p, f"{name}.norm2", x))
        x = x + raw_linear(p, f"{name}.down", jax.nn.gelu(y, approximate=True))
    return raw_linear(p, "head", _raw_layer_norm(p, "norm", x))


def gpt(batch: int = 8, length: int = 128, width: int = 128) -> Workload:
    """Return a step of AdamW on next-token prediction."""
    tokens = jax.random.randint(jax.random.key(1), (batch, length + 1), 0, VOCABULARY)
    x, y = tokens[:, :-1], tokens[:, 1:]

    def ours() -> Step:
        model = GPT(width, length, js.Rngs(params=0))
        optimizer = optim.AdamW(model.parameters(), lr=1e-3)

        @js.jit
        def step(model: GPT, optimizer: optim.AdamW, x: Array, y: Array) -> Array:
            def loss_of(m: GPT) -> Array:
                return F.cross_entropy(m(x).reshape(-1, VOCABULARY), y.reshape(-1))

            loss, grads = js.value_and_grad(loss_of)(model)
            optimizer.step(grads)
            return loss

        state = (model, optimizer)
        return Step(lambda: step(*state, x, y), lambda: step.lower(*state, x, y), state)

    def raw() -> Step:
        def loss(params: Any, others: Any, x: Any, y: Any) -> Any:
            return raw_cross_entropy(_raw_gpt(params, x), y), others

        params = arrays_of(GPT(width, length, js.Rngs(params=0)))
        return raw_step(loss, params, (), (x, y), Hyper.of(1e-3, 1e-2), decoupled=True)

    return Workload(ours, raw)


def check_equal(ours: Step, raw: Step, steps: int = 3) -> None:
    """Do some steps of both, and raise unless they give the same losses."""
    for i in range(steps):
        a, b = float(ours.call()), float(raw.call())
        if not math.isclose(a, b, rel_tol=1e-4):
            raise AssertionError(f"step {i}: jaxsaw's loss is {a}, raw JAX's {b}.")
