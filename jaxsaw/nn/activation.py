"""Activation functions as layers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import full
from jaxsaw.nn.module import Module
from jaxsaw.rngs import Rngs, ambient


class _InPlace(Module):
    """What the functions share that could be computed in place."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class ReLU(_InPlace):
    """Set negative elements to zero: ``y = max(x, 0)``.

    Args:
        inplace: Accepted and ignored.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.ReLU``.

    Example:
        >>> print(nn.ReLU()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [0. 0. 2.]
    """

    def forward(self, input: Array) -> Array:
        return F.relu(input)


class SELU(_InPlace):
    """Scaled ELU, which keeps mean 0 and variance 1 from layer to layer.

    Args:
        inplace: Accepted and ignored.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.SELU``; Klambauer et al., 2017.

    Example:
        >>> print(nn.SELU()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-1.5200001  0.         2.101    ]
    """

    def forward(self, input: Array) -> Array:
        return F.selu(input)


class SiLU(_InPlace):
    """Multiply by the sigmoid: ``y = x * sigmoid(x)``, also known as swish.

    Args:
        inplace: Accepted and ignored.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.SiLU``; Hendrycks and Gimpel, 2016.

    Example:
        >>> print(nn.SiLU()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-0.238      0.         1.7620001]
    """

    def forward(self, input: Array) -> Array:
        return F.silu(input)


class Mish(_InPlace):
    """Multiply by a smooth step: ``y = x * tanh(softplus(x))``.

    Args:
        inplace: Accepted and ignored.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Mish``; Misra, 2019.

    Example:
        >>> print(nn.Mish()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-0.25300002  0.          1.9440001 ]
    """

    def forward(self, input: Array) -> Array:
        return F.mish(input)


class Hardsigmoid(_InPlace):
    """Sigmoid made of three lines: ``y = clip(x / 6 + 1 / 2, 0, 1)``.

    Args:
        inplace: Accepted and ignored.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Hardsigmoid``.

    Example:
        >>> print(nn.Hardsigmoid()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [0.16700001 0.5        0.83300006]
    """

    def forward(self, input: Array) -> Array:
        return F.hardsigmoid(input)

    def extra_repr(self) -> str:
        return ""


class Hardswish(_InPlace):
    """Swish made of simple pieces: ``y = x * clip(x / 6 + 1 / 2, 0, 1)``.

    Args:
        inplace: Accepted and ignored.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Hardswish``; Howard et al., 2019.

    Example:
        >>> print(nn.Hardswish()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-0.333  0.     1.667]
    """

    def forward(self, input: Array) -> Array:
        return F.hardswish(input)

    def extra_repr(self) -> str:
        return ""


class Sigmoid(Module):
    """Logistic function: ``y = 1 / (1 + exp(-x))``.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Sigmoid``.

    Example:
        >>> print(nn.Sigmoid()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [0.119      0.5        0.88100004]
    """

    def forward(self, input: Array) -> Array:
        return F.sigmoid(input)


class LogSigmoid(Module):
    """Logarithm of the logistic function: ``y = log(1 / (1 + exp(-x)))``.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.LogSigmoid``.

    Example:
        >>> print(nn.LogSigmoid()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-2.127 -0.693 -0.127]
    """

    def forward(self, input: Array) -> Array:
        return F.logsigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Tanh``.

    Example:
        >>> print(nn.Tanh()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-0.96400005  0.          0.96400005]
    """

    def forward(self, input: Array) -> Array:
        return F.tanh(input)


class Tanhshrink(Module):
    """What the hyperbolic tangent leaves: ``y = x - tanh(x)``.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Tanhshrink``.

    Example:
        >>> print(nn.Tanhshrink()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-1.036  0.     1.036]
    """

    def forward(self, input: Array) -> Array:
        return F.tanhshrink(input)


class Softsign(Module):
    """A slower tangent: ``y = x / (1 + abs(x))``.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Softsign``.

    Example:
        >>> print(nn.Softsign()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-0.66700006  0.          0.66700006]
    """

    def forward(self, input: Array) -> Array:
        return F.softsign(input)


class LeakyReLU(Module):
    """ReLU with a slope on the left: ``y = max(x, 0) + negative_slope * min(x, 0)``.

    Args:
        negative_slope: Slope on the left of 0.
        inplace: Accepted and ignored.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.LeakyReLU``; Maas et al., 2013.

    Example:
        >>> print(nn.LeakyReLU()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-0.02  0.    2.  ]
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Array) -> Array:
        return F.leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        inplace = ", inplace=True" if self.inplace else ""
        return f"negative_slope={self.negative_slope}{inplace}"


class ELU(Module):
    """ReLU with a smooth left: ``y = max(x, 0) + min(alpha * (exp(x) - 1), 0)``.

    Args:
        alpha: Minus the limit on the left.
        inplace: Accepted and ignored.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.ELU``; Clevert et al., 2015.

    Example:
        >>> print(nn.ELU()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-0.86500007  0.          2.        ]
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Array) -> Array:
        return F.elu(input, self.alpha)

    def extra_repr(self) -> str:
        inplace = ", inplace=True" if self.inplace else ""
        return f"alpha={self.alpha}{inplace}"


class CELU(Module):
    """ELU with a smooth bend: ``y = max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)``.

    Args:
        alpha: Minus the limit on the left.
        inplace: Accepted and ignored.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.CELU``; Barron, 2017.

    Example:
        >>> print(nn.CELU()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-0.86500007  0.          2.        ]
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Array) -> Array:
        return F.celu(input, self.alpha)

    def extra_repr(self) -> str:
        inplace = ", inplace=True" if self.inplace else ""
        return f"alpha={self.alpha}{inplace}"


class GELU(Module):
    """Multiply by the normal distribution function: ``y = x * Phi(x)``.

    Args:
        approximate: ``"none"`` for the exact function, ``"tanh"`` for the faster formula.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.GELU``; Hendrycks and Gimpel, 2016.

    Example:
        >>> print(nn.GELU()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-0.046      0.         1.9540001]
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Array) -> Array:
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Softplus(Module):
    """Smooth ReLU: ``y = log(1 + exp(beta * x)) / beta``.

    Args:
        beta: Sharpness of the bend.
        threshold: Where ``beta * x`` is above this, the result is ``x``.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Softplus``.

    Example:
        >>> print(nn.Softplus()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [0.127 0.693 2.127]
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Array) -> Array:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softshrink(Module):
    """Move elements towards zero by ``lambd``, and those within it to zero.

    Args:
        lambd: How far.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Softshrink``.

    Example:
        >>> print(nn.Softshrink()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-1.5000001  0.         1.5000001]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Array) -> Array:
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Hardshrink(Module):
    """Set elements within ``lambd`` of zero to zero.

    Args:
        lambd: The limit.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Hardshrink``.

    Example:
        >>> print(nn.Hardshrink()(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [-2.  0.  2.]
    """

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Array) -> Array:
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class Threshold(Module):
    """Replace elements that aren't above a limit.

    Args:
        threshold: The limit.
        value: What stands in for elements not above it.
        inplace: Accepted and ignored.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.Threshold``.

    Example:
        >>> print(nn.Threshold(0.5, 0.0)(jnp.array([-2.0, 0.0, 2.0])).round(3))
        [0. 0. 2.]
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Array) -> Array:
        return F.threshold(input, self.threshold, self.value)

    def extra_repr(self) -> str:
        inplace = ", inplace=True" if self.inplace else ""
        return f"threshold={self.threshold}, value={self.value}{inplace}"


class Hardtanh(Module):
    """Clip to a range: ``y = clip(x, min_val, max_val)``.

    Args:
        min_val: Lower limit.
        max_val: Upper limit.
        inplace: Accepted and ignored.

    Shape:
        - Input: any
        - Output: the same

    Raises:
        ValueError: If ``max_val`` isn't above ``min_val``.

    Source: ``torch.nn.Hardtanh``.

    Example:
        >>> nn.Hardtanh()(jnp.array([-2.0, 0.0, 2.0])).tolist()
        [-1.0, 0.0, 1.0]
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if not max_val > min_val:
            raise ValueError(
                f"{type(self).__name__}: expected max_val above min_val, got {max_val} and "
                f"{min_val}."
            )
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: Array) -> Array:
        return F.hardtanh(input, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        inplace = ", inplace=True" if self.inplace else ""
        return f"min_val={self.min_val}, max_val={self.max_val}{inplace}"


class ReLU6(Hardtanh):
    """Clip to a range: ``y = clip(x, 0, 6)``.

    Args:
        inplace: Accepted and ignored.

    Shape:
        - Input: any
        - Output: the same

    Source: ``torch.nn.ReLU6``.

    Example:
        >>> nn.ReLU6()(jnp.array([-2.0, 2.0, 8.0])).tolist()
        [0.0, 2.0, 6.0]
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class GLU(Module):
    """Gate one half with the other: ``y = a * sigmoid(b)`` for ``a, b = split(x, 2)``.

    Args:
        dim: The axis that is halved.

    Shape:
        - Input: any, with an even size along ``dim``
        - Output: half of that size

    Raises:
        ValueError: When called, if the size is odd.

    Source: ``torch.nn.GLU``; Dauphin et al., 2016.

    Example:
        >>> nn.GLU()(jnp.array([2.0, 0.0])).tolist()
        [1.0]
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Array) -> Array:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class PReLU(Module):
    """ReLU with a learned slope on the left: ``y = max(x, 0) + weight * min(x, 0)``.

    Args:
        num_parameters: 1, or one for each channel.
        init: First value of the slopes.
        device: Where the weight is.
        dtype: Its dtype; float32 if None.

    Shape:
        - Input: any; ``(N, C, *)`` with a slope for each channel
        - Output: the same
        - weight: ``(num_parameters,)``

    Raises:
        ValueError: When called, if the channels don't fit.

    Source: ``torch.nn.PReLU``; He et al., 2015.

    Example:
        >>> nn.PReLU()(jnp.array([-2.0, 0.0, 2.0])).tolist()
        [-0.5, 0.0, 2.0]
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = full((num_parameters,), init, dtype, device)

    def forward(self, input: Array) -> Array:
        return F.prelu(input, self.weight)

    def reset_parameters(self) -> None:
        """Set the slopes to their first value."""
        self.weight.value = jnp.full(self.weight.shape, self.init, self.weight.dtype)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """ReLU with a random slope on the left: ``y = max(x, 0) + a * min(x, 0)``.

    In training, each element draws its slope from ``uniform(lower, upper)``; in evaluation, it is
    their mean. Random numbers come from the stream ``dropout`` of ``rngs=`` in the call, else in
    the call of a module around it, else in the constructor.

    Args:
        lower: The least slope.
        upper: The largest slope.
        inplace: Accepted and ignored.
        rngs: The streams to draw from where a call has none.

    Shape:
        - Input: any
        - Output: the same

    Raises:
        ValueError: When called, if ``lower`` is above ``upper``.
        RuntimeError: When called in training mode, if there is nothing to draw from.

    Source: ``torch.nn.RReLU``; Xu et al., 2015.

    Example:
        >>> nn.RReLU(0.25, 0.75).eval()(jnp.array([-2.0, 0.0, 2.0])).tolist()
        [-1.0, 0.0, 2.0]
    """

    def __init__(
        self,
        lower: float = 1.0 / 8,
        upper: float = 1.0 / 3,
        inplace: bool = False,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace
        self.rngs = rngs

    def forward(self, input: Array, *, rngs: Rngs | None = None) -> Array:
        if rngs is None and self.training and self.lower < self.upper:
            rngs = ambient("dropout", self.rngs, self._who())
        return F.rrelu(input, self.lower, self.upper, self.training, rngs=rngs)

    def extra_repr(self) -> str:
        text = f"lower={self.lower}, upper={self.upper}"
        return f"{text}, inplace=True" if self.inplace else text
