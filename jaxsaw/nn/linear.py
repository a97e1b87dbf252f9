"""Linear and bilinear layers, and the layer that does nothing."""

from __future__ import annotations

from typing import Any

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import bound_of, full, redraw, required, uniform
from jaxsaw.nn.module import Module
from jaxsaw.rngs import Rngs


class Identity(Module):
    """Return the input: ``y = x``.

    Args:
        *args: Ignored.
        **kwargs: Ignored.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Identity``.

    Example:
        >>> Identity(3, unused=True)(2.0)
        2.0
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Linear(Module):
    """Apply a linear map to the last axis: ``y = x @ weight.T + bias``.

    The weight is drawn from ``uniform(-k, k)`` with ``k = 1 / sqrt(in_features)``; the bias starts
    at zero.

    Args:
        in_features: Size of the input's last axis.
        out_features: Size of the output's last axis.
        bias: Whether there is a bias.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``.

    Shape:
        - Input: ``(..., in_features)``
        - Output: ``(..., out_features)``
        - weight: ``(out_features, in_features)``
        - bias: ``(out_features,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If a size is negative; when called, if the input's shape doesn't fit.

    Source: ``torch.nn.Linear``.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> Linear(3, 2, rngs=js.Rngs(params=0))(jnp.ones((4, 3))).shape
        (4, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        if in_features < 0 or out_features < 0:
            raise ValueError(
                f"Linear: expected sizes of at least 0, got in_features={in_features} and "
                f"out_features={out_features}."
            )
        self.in_features = in_features
        self.out_features = out_features
        rngs = required(rngs, "Linear")
        shape = (out_features, in_features)
        self.weight = uniform(rngs, shape, bound_of(in_features), dtype, device)
        if bias:
            self.bias = full((out_features,), 0, dtype, device)
        else:
            self.register_parameter("bias", None)

    def forward(self, input: Array) -> Array:
        return F.linear(input, self.weight, self.bias)

    def reset_parameters(self, *, rngs: Rngs) -> None:
        """Draw the weight anew, and set the bias to zero.

        Args:
            rngs: Where the weight is drawn from.
        """
        redraw(self, bound_of(self.in_features), rngs)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Bilinear(Module):
    """Apply a bilinear map to the last axes: ``y[k] = x1 @ weight[k] @ x2 + bias[k]``.

    Args:
        in1_features: Size of the first input's last axis.
        in2_features: Size of the second input's last axis.
        out_features: Size of the output's last axis.
        bias: Whether there is a bias.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weight is drawn from: one key of the stream ``params``.

    Shape:
        - Input: ``(..., in1_features)`` and ``(..., in2_features)``
        - Output: ``(..., out_features)``
        - weight: ``(out_features, in1_features, in2_features)``
        - bias: ``(out_features,)``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If ``in1_features`` isn't positive; when called, if the shapes don't fit.

    Source: ``torch.nn.Bilinear``.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxsaw as js
        >>> layer = Bilinear(3, 5, 2, rngs=js.Rngs(params=0))
        >>> layer(jnp.ones((4, 3)), jnp.ones((4, 5))).shape
        (4, 2)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"Bilinear: expected in1_features of at least 1, got {in1_features}.")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        rngs = required(rngs, "Bilinear")
        shape = (out_features, in1_features, in2_features)
        self.weight = uniform(rngs, shape, bound_of(in1_features), dtype, device)
        if bias:
            self.bias = full((out_features,), 0, dtype, device)
        else:
            self.register_parameter("bias", None)

    def forward(self, input1: Array, input2: Array) -> Array:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def reset_parameters(self, *, rngs: Rngs) -> None:
        """Draw the weight anew, and set the bias to zero.

        Args:
            rngs: Where the weight is drawn from.
        """
        redraw(self, bound_of(self.in1_features), rngs)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
