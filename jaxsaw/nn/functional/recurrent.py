"""Recurrent networks: a step of each kind, and one scan per layer and direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxsaw.nn.functional.linear import linear

State: TypeAlias = tuple[Array, ...]


class Weights(NamedTuple):
    """The weights of one layer in one direction; ``G`` is how many gates its kind has.

    Attributes:
        ih: ``(G * hidden_size, input_size)``.
        hh: ``(G * hidden_size, output_size)``.
        b_ih: ``(G * hidden_size,)``, or None.
        b_hh: ``(G * hidden_size,)``, or None.
        hr: ``(output_size, hidden_size)``, or None: the projection of an LSTM's output.
    """

    ih: Array
    hh: Array
    b_ih: Array | None = None
    b_hh: Array | None = None
    hr: Array | None = None


class Packing(NamedTuple):
    """Where the steps of sequences that were packed stand in a padded array, and back.

    Attributes:
        rows: ``(T, B)``: the row of each step in the packed array; 0 for padding.
        alive: ``(T, B, 1)``: True for steps, False for padding.
        back: ``(rows,)``: the place of each row among the ``T * B`` steps.
    """

    rows: np.ndarray
    alive: np.ndarray
    back: np.ndarray

    @classmethod
    def of(cls, batch_sizes: np.ndarray) -> Packing:
        """Return that of sequences by how many of them are still there at each step.

        Args:
            batch_sizes: ``(T,)``, none greater than the one before.
        """
        alive = np.arange(batch_sizes[0]) < batch_sizes[:, None]  # (T, B)
        rows = alive.cumsum().reshape(alive.shape) - 1
        return cls(np.where(alive, rows, 0), alive[..., None], np.flatnonzero(alive))


def recurrent(
    mode: str,
    input: Array,
    state: State,
    weights: Sequence[Weights],
    *,
    bidirectional: bool = False,
    between: Callable[[Array], Array] | None = None,
    packing: Packing | None = None,
) -> tuple[Array, State]:
    """Run a recurrent network of several layers over sequences.

    Args:
        mode: ``"RNN_TANH"``, ``"RNN_RELU"``, ``"LSTM"`` or ``"GRU"``.
        input: ``(T, B, input_size)``, or ``(rows, input_size)`` with ``packing``.
        state: The first hidden state, ``(layers * directions, B, output_size)``; of an LSTM, then
            also the first cell state, ``(layers * directions, B, hidden_size)``.
        weights: Of each layer and, within it, each direction.
        bidirectional: Whether each layer reads the sequences from both ends.
        between: What to apply to the output of each layer but the last.
        packing: Says that the input is packed, and how.

    Returns:
        The output of the last layer, ``(T, B, directions * output_size)`` or ``(rows, directions *
        output_size)``, and the last states, like the first.

    Source: ``torch.nn.RNN``, ``torch.nn.LSTM``, ``torch.nn.GRU``.

    Example:
        >>> w = Weights(jnp.ones((3, 2)), jnp.ones((3, 3)))
        >>> y, (h,) = recurrent("RNN_TANH", jnp.ones((5, 4, 2)), (jnp.zeros((1, 4, 3)),), [w])
        >>> y.shape, h.shape
        ((5, 4, 3), (1, 4, 3))
    """
    directions = 2 if bidirectional else 1
    finals = []
    for i in range(0, len(weights), directions):
        if i > 0 and between is not None:
            input = between(input)
        outputs = []
        for j in range(directions):
            first = tuple(part[i + j] for part in state)
            y, last = _scan(mode, input, first, weights[i + j], j == 1, packing)
            outputs.append(y)
            finals.append(last)
        input = outputs[0] if directions == 1 else jnp.concatenate(outputs, -1)
    return input, tuple(map(jnp.stack, zip(*finals, strict=True)))


def _scan(
    mode: str, x: Array, state: State, w: Weights, reverse: bool, packing: Packing | None
) -> tuple[Array, State]:
    """Run one layer in one direction; all products with the input are one product."""
    gates, alive = input_gates(mode, x, w), None
    if packing is not None:
        gates, alive = gates[packing.rows], jnp.asarray(packing.alive)

    def step(state: State, inputs: tuple[Array, Array | None]) -> tuple[State, Array]:
        gates, alive = inputs
        new = STEPS[mode](gates, state, w)
        if alive is not None:  # past its end, a sequence keeps its state; before it, the first one
            new = tuple(jnp.where(alive, a, b) for a, b in zip(new, state, strict=True))
        return new, new[0]

    last, y = lax.scan(step, state, (gates, alive), reverse=reverse)
    if packing is not None:
        y = y.reshape(-1, y.shape[-1])[packing.back]
    return y, last


def input_gates(mode: str, input: Array, w: Weights) -> Array:
    """Return what the gates of a step, or of many, get from the input and constant biases.

    Args:
        mode: As for :func:`recurrent`.
        input: ``(..., input_size)``.
        w: The weights.

    Returns:
        ``(..., G * hidden_size)``, which the functions in ``STEPS`` take.

    Example:
        >>> w = Weights(jnp.ones((3, 2)), jnp.ones((3, 3)))
        >>> input_gates("RNN_TANH", jnp.ones((4, 2)), w).shape
        (4, 3)
    """
    bias = w.b_ih
    if bias is not None and w.b_hh is not None and mode != "GRU":  # which scales a part of it
        bias = bias + w.b_hh
    return linear(input, w.ih, bias)


def _tanh(gates: Array, state: State, w: Weights) -> State:
    return (jnp.tanh(gates + linear(state[0], w.hh)),)


def _relu(gates: Array, state: State, w: Weights) -> State:
    return (jax.nn.relu(gates + linear(state[0], w.hh)),)


def _lstm(gates: Array, state: State, w: Weights) -> State:
    """``c' = f * c + i * g`` and ``h' = o * tanh(c')`` (Hochreiter and Schmidhuber, 1997)."""
    h, c = state
    i, f, g, o = jnp.split(gates + linear(h, w.hh), 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h if w.hr is None else linear(h, w.hr)), c


def _gru(gates: Array, state: State, w: Weights) -> State:
    """``n = tanh(x + r * h)`` and ``h' = (1 - z) * n + z * h`` (Cho et al., 2014)."""
    (h,) = state
    x_r, x_z, x_n = jnp.split(gates, 3, -1)
    h_r, h_z, h_n = jnp.split(linear(h, w.hh, w.b_hh), 3, -1)
    n = jnp.tanh(x_n + jax.nn.sigmoid(x_r + h_r) * h_n)
    return (n + jax.nn.sigmoid(x_z + h_z) * (h - n),)


# How a state follows from the gates' input and the state before, and how many gates there are.
STEPS: dict[str, Callable[[Array, State, Weights], State]] = {
    "RNN_TANH": _tanh,
    "RNN_RELU": _relu,
    "LSTM": _lstm,
    "GRU": _gru,
}
GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}
