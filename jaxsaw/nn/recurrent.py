"""Recurrent layers and cells."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import bound_of, full, required, uniform
from jaxsaw.nn.functional.recurrent import (
    GATES,
    STEPS,
    Packing,
    State,
    Weights,
    input_gates,
    recurrent,
)
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Parameter
from jaxsaw.nn.utils.rnn import PackedSequence
from jaxsaw.rngs import Rngs, ambient


class RNNBase(Module):
    """What the recurrent layers share: weights of each layer and direction, and their scans.

    All weights are drawn from ``uniform(-k, k)`` with ``k = 1 / sqrt(hidden_size)``; biases start
    at zero.

    Args:
        mode: ``"RNN_TANH"``, ``"RNN_RELU"``, ``"LSTM"`` or ``"GRU"``.
        input_size: Size of a step of the input.
        hidden_size: Size ``H`` of the state.
        num_layers: How many layers there are; each reads the outputs of the one before.
        bias: Whether there are biases.
        batch_first: Whether the batch axis of inputs and outputs comes first.
        dropout: Probability that an output of a layer but the last is dropped in training.
        bidirectional: Whether each layer reads the sequences from both ends.
        proj_size: If not 0, the hidden states of an LSTM are projected to this size.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        rngs: Where the weights are drawn from, one key of the stream ``params`` for each; with
            ``dropout``, also what a call draws from that has no streams (stream ``dropout``).

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If an argument doesn't fit; when called, if the input or the state doesn't.

    Source: ``torch.nn.RNNBase``.

    Example:
        >>> layer = nn.RNNBase("GRU", 3, 4, num_layers=2, rngs=js.Rngs(params=0))
        >>> output, h_n = layer(jnp.ones((5, 2, 3)))
        >>> output.shape, h_n.shape
        ((5, 2, 4), (2, 2, 4))
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if mode not in STEPS:
            raise ValueError(
                f"{name}: expected mode to be one of {', '.join(STEPS)}, got {mode!r}."
            )
        _check_sizes(name, 1, input_size=input_size, hidden_size=hidden_size, num_layers=num_layers)
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(f"{name}: expected dropout in [0, 1], got {dropout}.")
        if proj_size and (mode != "LSTM" or not 0 < proj_size < hidden_size):
            raise ValueError(
                f"{name}: expected proj_size in [0, {hidden_size - 1}], below hidden_size, and 0 "
                f"for all but an LSTM, got {proj_size}."
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                f"{name}: dropout={dropout} does nothing in a network of one layer: it drops "
                "outputs of each layer but the last.",
                stacklevel=2,
            )
        rngs = required(rngs, name)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self.rngs = rngs if dropout > 0 and num_layers > 1 else None
        for box, shape in self._shapes():
            if box.startswith("bias"):
                setattr(self, box, full(shape, 0, dtype, device))
            else:
                setattr(self, box, uniform(rngs, shape, bound_of(hidden_size), dtype, device))

    def forward(self, input: Any, hx: Any = None, *, rngs: Rngs | None = None) -> tuple[Any, Any]:
        """Read sequences.

        Args:
            input: What the class says.
            hx: The first states; zeros if None.
            rngs: The streams to draw dropout from.

        Returns:
            The output and the last states.
        """
        if isinstance(input, PackedSequence):
            x, sizes, order, back = input
            x, packing = jnp.asarray(x), Packing.of(sizes)
            self._check_input(x, (2,))
            state = self._state(hx, (int(sizes[0]),), x.dtype)
            state = state if order is None else tuple(part[:, order] for part in state)
            y, last = self._run(x, state, packing, rngs)
            last = last if back is None else tuple(part[:, back] for part in last)
            return PackedSequence(y, sizes, order, back), self._result(last)
        x = jnp.asarray(input)
        self._check_input(x, (2, 3))
        if x.ndim == 2:
            state = tuple(part[:, None] for part in self._state(hx, (), x.dtype))
            y, last = self._run(x[:, None], state, None, rngs)
            return y[:, 0], self._result(tuple(part[:, 0] for part in last))
        x = x.swapaxes(0, 1) if self.batch_first else x  # (T, B, input_size)
        y, last = self._run(x, self._state(hx, x.shape[1:2], x.dtype), None, rngs)
        return (y.swapaxes(0, 1) if self.batch_first else y), self._result(last)

    def _run(
        self, x: Array, state: State, packing: Packing | None, rngs: Rngs | None
    ) -> tuple[Array, State]:
        dropout = self.dropout if self.training and self.num_layers > 1 else 0.0
        if rngs is None and 0 < dropout < 1:
            rngs = ambient("dropout", self.rngs, self._who())
        return recurrent(
            self.mode,
            x,
            state,
            [Weights(**self._weights(suffix)) for suffix in self._suffixes()],
            bidirectional=self.bidirectional,
            between=(lambda y: F.dropout(y, dropout, rngs=rngs)) if dropout > 0 else None,
            packing=packing,
        )

    def _result(self, state: State) -> Any:
        return state if self.mode == "LSTM" else state[0]

    def _check_input(self, x: Array, ndims: tuple[int, ...]) -> None:
        if x.ndim not in ndims or x.shape[-1] != self.input_size:
            n = self.input_size
            shapes = f"({'B, T' if self.batch_first else 'T, B'}, {n}) or (T, {n})"
            shapes = f"packed data (rows, {n})" if ndims == (2,) else f"input {shapes}"
            raise ValueError(f"{self._who()}: expected {shapes}, got {x.shape}.")
        if (
            0 in x.shape[: x.ndim - 1]
            and x.shape[1 if self.batch_first and x.ndim == 3 else 0] == 0
        ):
            raise ValueError(f"{self._who()}: expected at least one step, got input {x.shape}.")

    def _state(self, hx: Any, batch: tuple[int, ...], dtype: Any) -> State:
        """Return the first states, each ``(layers * directions, *batch, size)``."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        sizes = [self.proj_size or self.hidden_size, self.hidden_size]
        shapes = [(count, *batch, size) for size in sizes[: 2 if self.mode == "LSTM" else 1]]
        return _first_state(self._who(), hx, shapes, dtype)

    def _suffixes(self) -> Iterator[str]:
        for layer in range(self.num_layers):
            yield f"_l{layer}"
            if self.bidirectional:
                yield f"_l{layer}_reverse"

    def _weights(self, suffix: str) -> dict[str, Any]:
        names = {"ih": "weight_ih", "hh": "weight_hh"}
        if self.bias:
            names |= {"b_ih": "bias_ih", "b_hh": "bias_hh"}
        if self.proj_size:
            names["hr"] = "weight_hr"
        return {key: jnp.asarray(getattr(self, name + suffix)) for key, name in names.items()}

    def _shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield the parameters' names and shapes, in PyTorch's order."""
        gates = GATES[self.mode] * self.hidden_size
        outputs = self.proj_size or self.hidden_size
        for suffix in self._suffixes():
            later = (2 if self.bidirectional else 1) * outputs
            inputs = self.input_size if suffix.startswith("_l0") else later
            yield f"weight_ih{suffix}", (gates, inputs)
            yield f"weight_hh{suffix}", (gates, outputs)
            if self.bias:
                yield f"bias_ih{suffix}", (gates,)
                yield f"bias_hh{suffix}", (gates,)
            if self.proj_size:
                yield f"weight_hr{suffix}", (self.proj_size, self.hidden_size)

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        names = [name for name, _ in self._shapes()]
        ends = [[n for n in names if n.endswith(suffix)] for suffix in self._suffixes()]
        return [[getattr(self, name) for name in group] for group in ends]

    def flatten_parameters(self) -> None:
        """Do nothing: XLA lays weights out by itself."""

    def reset_parameters(self, *, rngs: Rngs) -> None:
        """Draw the weights anew, and set the biases to zero.

        Args:
            rngs: Where the weights are drawn from.
        """
        _redraw([getattr(self, name) for name, _ in self._shapes()], self, rngs)

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        for name, usual in (
            ("proj_size", 0),
            ("num_layers", 1),
            ("bias", True),
            ("batch_first", False),
            ("dropout", 0),
            ("bidirectional", False),
        ):
            if getattr(self, name) != usual:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)


class RNN(RNNBase):
    """Read sequences by ``h' = tanh(W_ih @ x + b_ih + W_hh @ h + b_hh)``.

    All weights are drawn from ``uniform(-k, k)`` with ``k = 1 / sqrt(hidden_size)``; biases start
    at zero.

    Args:
        input_size: Size of a step of the input.
        hidden_size: Size ``H`` of the hidden state.
        num_layers: How many layers there are; each reads the outputs of the one before.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        bias: Whether there are biases.
        batch_first: Whether the batch axis of input and output comes first.
        dropout: Probability that an output of a layer but the last is dropped in training.
        bidirectional: Whether each layer reads the sequences from both ends; ``D`` is 2 then, else
            1.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        rngs: Where the weights are drawn from (stream ``params``); with ``dropout``, also what a
            call draws from that has no streams (stream ``dropout``).

    Shape:
        - input: ``(T, B, input_size)``, or ``(B, T, input_size)`` with ``batch_first``, or
          ``(T, input_size)``, or a ``PackedSequence``
        - hx: ``(D * num_layers, B, H)`` or ``(D * num_layers, H)``
        - output: as the input, of size ``D * H``; and the last states, like ``hx``
        - weight_ih_l0: ``(H, input_size)``; in later layers ``(H, D * H)``
        - weight_hh_l0: ``(H, H)``; bias_ih_l0, bias_hh_l0: ``(H,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If an argument doesn't fit; when called, if the input or the state doesn't.

    Source: ``torch.nn.RNN``; Elman, 1990.

    Example:
        >>> layer = nn.RNN(3, 4, rngs=js.Rngs(params=0))
        >>> output, h_n = layer(jnp.ones((5, 2, 3)))
        >>> output.shape, h_n.shape
        ((5, 2, 4), (1, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__(
            _mode(type(self).__name__, nonlinearity),
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
            rngs=rngs,
        )
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Read sequences by long short-term memory: a cell state, and gates that open and close it.

    ``i, f, g, o = W_ih @ x + b_ih + W_hh @ h + b_hh`` (in four parts), then
    ``c' = sigmoid(f) * c + sigmoid(i) * tanh(g)`` and ``h' = sigmoid(o) * tanh(c')``; with
    ``proj_size``, ``W_hr @ h'`` is the hidden state.

    All weights are drawn from ``uniform(-k, k)`` with ``k = 1 / sqrt(hidden_size)``; biases start
    at zero.

    Args:
        input_size: Size of a step of the input.
        hidden_size: Size ``H`` of the cell state.
        num_layers: How many layers there are; each reads the outputs of the one before.
        bias: Whether there are biases.
        batch_first: Whether the batch axis of input and output comes first.
        dropout: Probability that an output of a layer but the last is dropped in training.
        bidirectional: Whether each layer reads the sequences from both ends; ``D`` is 2 then, else
            1.
        proj_size: If not 0, the size ``P`` to which hidden states are projected; else ``P`` is
            ``H``.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        rngs: Where the weights are drawn from (stream ``params``); with ``dropout``, also what a
            call draws from that has no streams (stream ``dropout``).

    Shape:
        - input: ``(T, B, input_size)``, or ``(B, T, input_size)`` with ``batch_first``, or
          ``(T, input_size)``, or a ``PackedSequence``
        - hx: ``(h_0, c_0)``, of ``(D * num_layers, B, P)`` and ``(D * num_layers, B, H)``, or
          without the batch axis
        - output: as the input, of size ``D * P``; and the last states, like ``hx``
        - weight_ih_l0: ``(4 * H, input_size)``; in later layers ``(4 * H, D * P)``
        - weight_hh_l0: ``(4 * H, P)``; bias_ih_l0, bias_hh_l0: ``(4 * H,)``; weight_hr_l0:
          ``(P, H)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If an argument doesn't fit; when called, if the input or the states don't.

    Source: ``torch.nn.LSTM``; Hochreiter and Schmidhuber, 1997; Sak et al., 2014 (projections).

    Example:
        >>> layer = nn.LSTM(3, 4, bidirectional=True, rngs=js.Rngs(params=0))
        >>> output, (h_n, c_n) = layer(jnp.ones((5, 2, 3)))
        >>> output.shape, h_n.shape, c_n.shape
        ((5, 2, 8), (2, 2, 4), (2, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__(
            "LSTM",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            proj_size,
            device,
            dtype,
            rngs=rngs,
        )


class GRU(RNNBase):
    """Read sequences by gated recurrent units.

    ``r = sigmoid(W_ir @ x + b_ir + W_hr @ h + b_hr)``, ``z`` likewise,
    ``n = tanh(W_in @ x + b_in + r * (W_hn @ h + b_hn))`` and ``h' = (1 - z) * n + z * h``.

    All weights are drawn from ``uniform(-k, k)`` with ``k = 1 / sqrt(hidden_size)``; biases start
    at zero.

    Args:
        input_size: Size of a step of the input.
        hidden_size: Size ``H`` of the hidden state.
        num_layers: How many layers there are; each reads the outputs of the one before.
        bias: Whether there are biases.
        batch_first: Whether the batch axis of input and output comes first.
        dropout: Probability that an output of a layer but the last is dropped in training.
        bidirectional: Whether each layer reads the sequences from both ends; ``D`` is 2 then, else
            1.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        rngs: Where the weights are drawn from (stream ``params``); with ``dropout``, also what a
            call draws from that has no streams (stream ``dropout``).

    Shape:
        - input: ``(T, B, input_size)``, or ``(B, T, input_size)`` with ``batch_first``, or
          ``(T, input_size)``, or a ``PackedSequence``
        - hx: ``(D * num_layers, B, H)`` or ``(D * num_layers, H)``
        - output: as the input, of size ``D * H``; and the last states, like ``hx``
        - weight_ih_l0: ``(3 * H, input_size)``; in later layers ``(3 * H, D * H)``
        - weight_hh_l0: ``(3 * H, H)``; bias_ih_l0, bias_hh_l0: ``(3 * H,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If an argument doesn't fit; when called, if the input or the state doesn't.

    Source: ``torch.nn.GRU``; Cho et al., 2014.

    Example:
        >>> layer = nn.GRU(3, 4, batch_first=True, rngs=js.Rngs(params=0))
        >>> output, h_n = layer(jnp.ones((2, 5, 3)))
        >>> output.shape, h_n.shape
        ((2, 5, 4), (1, 2, 4))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__(
            "GRU",
            input_size,
            hidden_size,
            num_layers,
            bias,
            batch_first,
            dropout,
            bidirectional,
            device=device,
            dtype=dtype,
            rngs=rngs,
        )


class RNNCellBase(Module):
    """What the cells share: the weights of one step.

    Args:
        input_size: Size of the input.
        hidden_size: Size ``H`` of the state.
        bias: Whether there are biases.
        num_chunks: How many gates there are.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        rngs: Where the weights are drawn from: two keys of the stream ``params``.

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If a size is negative.

    Source: ``torch.nn.RNNCellBase``.

    Example:
        >>> nn.RNNCellBase(3, 4, True, 2, rngs=js.Rngs(params=0)).weight_ih.shape
        (8, 3)
    """

    _mode: str | None = None
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        _check_sizes(name, 0, input_size=input_size, hidden_size=hidden_size)
        rngs = required(rngs, name)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        gates, bound = num_chunks * hidden_size, bound_of(hidden_size)
        self.weight_ih = uniform(rngs, (gates, input_size), bound, dtype, device)
        self.weight_hh = uniform(rngs, (gates, hidden_size), bound, dtype, device)
        for box in ("bias_ih", "bias_hh"):
            self.register_parameter(box, full((gates,), 0, dtype, device) if bias else None)

    def forward(self, input: Array, hx: Any = None) -> Any:
        """Do one step.

        Args:
            input: ``(B, input_size)`` or ``(input_size,)``.
            hx: The state; zeros if None.

        Returns:
            The next state.
        """
        mode, x = self._kind(), jnp.asarray(input)
        if x.ndim not in (1, 2) or x.shape[-1] != self.input_size:
            n = self.input_size
            raise ValueError(f"{self._who()}: expected input (B, {n}) or ({n},), got {x.shape}.")
        shape = (*x.shape[:-1], self.hidden_size)
        state = _first_state(self._who(), hx, [shape] * (2 if mode == "LSTM" else 1), x.dtype)
        boxes = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        weights = Weights(*(None if box is None else jnp.asarray(box) for box in boxes))  # type: ignore[arg-type]
        state = STEPS[mode](input_gates(mode, x, weights), state, weights)
        return state if mode == "LSTM" else state[0]

    def _kind(self) -> str:
        if self._mode is None:
            raise NotImplementedError(f"{self._who()}: use RNNCell, LSTMCell or GRUCell.")
        return self._mode

    def reset_parameters(self, *, rngs: Rngs) -> None:
        """Draw the weights anew, and set the biases to zero.

        Args:
            rngs: Where the weights are drawn from.
        """
        _redraw(list(self.parameters()), self, rngs)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        return text if self.bias else f"{text}, bias=False"


class RNNCell(RNNCellBase):
    """Do one step of an :class:`RNN`: ``h' = tanh(W_ih @ x + b_ih + W_hh @ h + b_hh)``.

    Args:
        input_size: Size of the input.
        hidden_size: Size ``H`` of the hidden state.
        bias: Whether there are biases.
        nonlinearity: ``"tanh"`` or ``"relu"``.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        rngs: Where the weights are drawn from: two keys of the stream ``params``.

    Shape:
        - input: ``(B, input_size)`` or ``(input_size,)``
        - hx, output: ``(B, H)`` or ``(H,)``
        - weight_ih: ``(H, input_size)``; weight_hh: ``(H, H)``; bias_ih, bias_hh: ``(H,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If an argument doesn't fit; when called, if the input or the state doesn't.

    Source: ``torch.nn.RNNCell``; Elman, 1990.

    Example:
        >>> nn.RNNCell(3, 4, rngs=js.Rngs(params=0))(jnp.ones((2, 3))).shape
        (2, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        _mode(type(self).__name__, nonlinearity)
        super().__init__(input_size, hidden_size, bias, 1, device, dtype, rngs=rngs)
        self.nonlinearity = nonlinearity

    def _kind(self) -> str:
        return _mode(self._who(), self.nonlinearity)

    def extra_repr(self) -> str:
        text = super().extra_repr()
        return text if self.nonlinearity == "tanh" else f"{text}, nonlinearity={self.nonlinearity}"


class LSTMCell(RNNCellBase):
    """Do one step of an :class:`LSTM`.

    Args:
        input_size: Size of the input.
        hidden_size: Size ``H`` of both states.
        bias: Whether there are biases.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        rngs: Where the weights are drawn from: two keys of the stream ``params``.

    Shape:
        - input: ``(B, input_size)`` or ``(input_size,)``
        - hx, output: two, ``(h, c)``, each ``(B, H)`` or ``(H,)``
        - weight_ih: ``(4 * H, input_size)``; weight_hh: ``(4 * H, H)``; bias_ih, bias_hh:
          ``(4 * H,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If a size is negative; when called, if the input or the states don't fit.

    Source: ``torch.nn.LSTMCell``; Hochreiter and Schmidhuber, 1997.

    Example:
        >>> h, c = nn.LSTMCell(3, 4, rngs=js.Rngs(params=0))(jnp.ones((2, 3)))
        >>> h.shape, c.shape
        ((2, 4), (2, 4))
    """

    _mode = "LSTM"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype, rngs=rngs)


class GRUCell(RNNCellBase):
    """Do one step of a :class:`GRU`.

    Args:
        input_size: Size of the input.
        hidden_size: Size ``H`` of the hidden state.
        bias: Whether there are biases.
        device: Where the parameters are.
        dtype: Their dtype; float32 if None.
        rngs: Where the weights are drawn from: two keys of the stream ``params``.

    Shape:
        - input: ``(B, input_size)`` or ``(input_size,)``
        - hx, output: ``(B, H)`` or ``(H,)``
        - weight_ih: ``(3 * H, input_size)``; weight_hh: ``(3 * H, H)``; bias_ih, bias_hh:
          ``(3 * H,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If a size is negative; when called, if the input or the state doesn't fit.

    Source: ``torch.nn.GRUCell``; Cho et al., 2014.

    Example:
        >>> nn.GRUCell(3, 4, rngs=js.Rngs(params=0))(jnp.ones((2, 3))).shape
        (2, 4)
    """

    _mode = "GRU"

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype, rngs=rngs)


def _mode(name: str, nonlinearity: str) -> str:
    if nonlinearity not in ("tanh", "relu"):
        raise ValueError(f"{name}: expected nonlinearity 'tanh' or 'relu', got {nonlinearity!r}.")
    return f"RNN_{nonlinearity.upper()}"


def _check_sizes(name: str, minimum: int, **sizes: int) -> None:
    for argument, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(f"{name}: expected {argument} to be an int, got {size!r}.")
        if size < minimum:
            raise ValueError(f"{name}: expected {argument} of at least {minimum}, got {size}.")


def _first_state(who: str, hx: Any, shapes: list[tuple[int, ...]], dtype: Any) -> State:
    """Return the states to begin with: zeros, or those given, once they are known to fit."""
    if hx is None:
        return tuple(jnp.zeros(shape, dtype) for shape in shapes)
    if len(shapes) == 2 and not (isinstance(hx, tuple | list) and len(hx) == 2):
        raise ValueError(
            f"{who}: expected hx to be two arrays, (h, c), got {type(hx).__name__}"
            + (f" of {len(hx)}." if isinstance(hx, tuple | list) else ".")
        )
    state = tuple(jnp.asarray(part) for part in (hx if len(shapes) == 2 else (hx,)))
    found = [part.shape for part in state]
    if found != shapes:
        wanted, came = (" and ".join(map(str, x)) for x in (shapes, found))
        raise ValueError(f"{who}: expected hx {wanted}, got {came}.")
    for part in state:
        if part.dtype != dtype:
            raise TypeError(f"{who}: expected hx of the input's dtype {dtype}, got {part.dtype}.")
    return state


def _redraw(boxes: list[Parameter], module: Any, rngs: Rngs) -> None:
    rngs = required(rngs, f"{type(module).__name__}.reset_parameters()")
    bound = bound_of(module.hidden_size)
    for box in boxes:
        if box.ndim == 1:
            box.value = jnp.zeros(box.shape, box.dtype)
        else:
            key = rngs.next("params")
            box.value = jax.random.uniform(key, box.shape, box.dtype, -bound, bound)
