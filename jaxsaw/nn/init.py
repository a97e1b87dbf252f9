"""Initial values: each function writes a Parameter and returns it.

``parameter.value`` is assigned, its dtype kept. What draws takes ``rngs=`` and draws one key, from
the stream ``params``.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from jaxsaw.nn.functional._common import Streams, accumulator, is_box

__all__ = [
    "calculate_gain",
    "constant_",
    "dirac_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]

Box = TypeVar("Box")

_LINEAR = (
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "sigmoid",
)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which a nonlinearity's weights should be larger.

    Args:
        nonlinearity: ``"linear"``, ``"conv2d"`` and the like, ``"sigmoid"``, ``"tanh"``,
            ``"relu"``, ``"leaky_relu"`` or ``"selu"``.
        param: The negative slope of ``"leaky_relu"``; 0.01 if None.

    Returns:
        The gain.

    Raises:
        ValueError: If the nonlinearity isn't known, or ``param`` isn't a number.

    Source: ``torch.nn.init.calculate_gain``.

    Example:
        >>> round(calculate_gain("relu"), 4)
        1.4142
    """
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, int | float):
            raise ValueError(f"calculate_gain: expected a number for leaky_relu, got {param!r}.")
        return math.sqrt(2 / (1 + slope**2))
    gains = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}
    if nonlinearity not in gains:
        known = ", ".join((*_LINEAR, "leaky_relu", *gains))
        raise ValueError(f"calculate_gain: expected one of {known}; got {nonlinearity!r}.")
    return gains[nonlinearity]


def uniform_(tensor: Box, a: float = 0.0, b: float = 1.0, *, rngs: Streams) -> Box:
    """Fill with draws from the uniform distribution on ``[a, b)``.

    Args:
        tensor: The Parameter, of any shape.
        a: Lower limit.
        b: Upper limit.
        rngs: Where the stream ``params`` comes from.

    Returns:
        The Parameter.

    Source: ``torch.nn.init.uniform_``.

    Example:
        >>> weight = nn.Parameter(jnp.zeros((2, 3)))
        >>> bool((abs(uniform_(weight, -1, 1, rngs=js.Rngs(0)).value) <= 1).all())
        True
    """
    return _draw("uniform_", tensor, rngs, lambda key, x: _uniform(key, x, a, b))


def normal_(tensor: Box, mean: float = 0.0, std: float = 1.0, *, rngs: Streams) -> Box:
    """Fill with draws from the normal distribution.

    Args:
        tensor: The Parameter, of any shape.
        mean: Its mean.
        std: Its standard deviation.
        rngs: Where the stream ``params`` comes from.

    Returns:
        The Parameter.

    Raises:
        ValueError: If ``std`` is negative.

    Source: ``torch.nn.init.normal_``.

    Example:
        >>> weight = nn.Parameter(jnp.zeros((2, 3)))
        >>> normal_(weight, std=0.02, rngs=js.Rngs(0)).shape
        (2, 3)
    """
    if std < 0:
        raise ValueError(f"normal_: expected std of at least 0, got {std}.")
    return _draw("normal_", tensor, rngs, lambda key, x: _normal(key, x, mean, std))


def trunc_normal_(
    tensor: Box,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    *,
    rngs: Streams,
) -> Box:
    """Fill with draws from the normal distribution that lie in ``[a, b]``.

    Args:
        tensor: The Parameter, of any shape.
        mean: The mean, before values outside are excluded.
        std: The standard deviation, before values outside are excluded.
        a: Lower limit, a value and not a multiple of ``std``.
        b: Upper limit, a value and not a multiple of ``std``.
        rngs: Where the stream ``params`` comes from.

    Returns:
        The Parameter.

    Raises:
        ValueError: If ``std`` isn't positive or ``a`` isn't below ``b``.

    Source: ``torch.nn.init.trunc_normal_``.

    Example:
        >>> weight = nn.Parameter(jnp.zeros((2, 3)))
        >>> bool((abs(trunc_normal_(weight, a=-1, b=1, rngs=js.Rngs(0)).value) <= 1).all())
        True
    """
    if std <= 0 or a >= b:
        raise ValueError(f"trunc_normal_: expected std > 0 and a < b, got {std}, {a} and {b}.")

    def draw(key: Array, x: jax.ShapeDtypeStruct) -> Array:
        dtype = accumulator(x.dtype)
        low, high = (a - mean) / std, (b - mean) / std
        y = jax.random.truncated_normal(key, low, high, x.shape, dtype) * std + mean
        return jnp.clip(y, a, b)  # rounding may have led out

    return _draw("trunc_normal_", tensor, rngs, draw)


def constant_(tensor: Box, val: float) -> Box:
    """Fill with one value.

    Args:
        tensor: The Parameter, of any shape.
        val: The value.

    Returns:
        The Parameter.

    Source: ``torch.nn.init.constant_``.

    Example:
        >>> constant_(nn.Parameter(jnp.zeros(2)), 0.5).value.tolist()
        [0.5, 0.5]
    """
    return _fill("constant_", tensor, val)


def ones_(tensor: Box) -> Box:
    """Fill with ones.

    Args:
        tensor: The Parameter, of any shape.

    Returns:
        The Parameter.

    Source: ``torch.nn.init.ones_``.

    Example:
        >>> ones_(nn.Parameter(jnp.zeros(2))).value.tolist()
        [1.0, 1.0]
    """
    return _fill("ones_", tensor, 1)


def zeros_(tensor: Box) -> Box:
    """Fill with zeros.

    Args:
        tensor: The Parameter, of any shape.

    Returns:
        The Parameter.

    Source: ``torch.nn.init.zeros_``.

    Example:
        >>> zeros_(nn.Parameter(jnp.ones(2))).value.tolist()
        [0.0, 0.0]
    """
    return _fill("zeros_", tensor, 0)


def eye_(tensor: Box) -> Box:
    """Fill with the identity matrix.

    Args:
        tensor: The Parameter, of 2 dimensions.

    Returns:
        The Parameter.

    Raises:
        ValueError: If it isn't a matrix.

    Source: ``torch.nn.init.eye_``.

    Example:
        >>> eye_(nn.Parameter(jnp.zeros((2, 3)))).value.tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    x = _content("eye_", tensor)
    if x.ndim != 2:
        raise ValueError(f"eye_: expected 2 dimensions, got {x.shape}.")
    return _write(tensor, x, jnp.eye(x.shape[0], x.shape[1], dtype=x.dtype))


def dirac_(tensor: Box, groups: int = 1) -> Box:
    """Fill a convolution's weight so that it hands on its input channels (as many as it can).

    Args:
        tensor: The Parameter, ``(out_channels, in_channels / groups, *kernel)``.
        groups: Groups of the convolution.

    Returns:
        The Parameter.

    Raises:
        ValueError: If the shape isn't a convolution's, or ``groups`` doesn't divide it.

    Source: ``torch.nn.init.dirac_``.

    Example:
        >>> dirac_(nn.Parameter(jnp.zeros((1, 1, 3)))).value.tolist()
        [[[0.0, 1.0, 0.0]]]
    """
    x = _content("dirac_", tensor)
    if x.ndim not in (3, 4, 5):
        raise ValueError(f"dirac_: expected 3, 4 or 5 dimensions, got {x.shape}.")
    if groups < 1 or x.shape[0] % groups:
        raise ValueError(f"dirac_: {x.shape[0]} output channels don't divide into {groups} groups.")
    per_group = x.shape[0] // groups
    i = jnp.arange(min(per_group, x.shape[1]))
    centre = tuple(k // 2 for k in x.shape[2:])
    y = jnp.zeros(x.shape, x.dtype)
    for g in range(groups):
        y = y.at[(g * per_group + i, i, *centre)].set(1)
    return _write(tensor, x, y)


def xavier_uniform_(tensor: Box, gain: float = 1.0, *, rngs: Streams) -> Box:
    """Fill uniformly with variance ``gain^2 * 2 / (fan_in + fan_out)``.

    Args:
        tensor: The Parameter, ``(out, in, *kernel)``.
        gain: See :func:`calculate_gain`.
        rngs: Where the stream ``params`` comes from.

    Returns:
        The Parameter.

    Raises:
        ValueError: If it has fewer than 2 dimensions.

    Source: ``torch.nn.init.xavier_uniform_``; Glorot and Bengio, 2010.

    Example:
        >>> weight = nn.Parameter(jnp.zeros((3, 3)))
        >>> bool((abs(xavier_uniform_(weight, rngs=js.Rngs(0)).value) <= 1).all())
        True
    """
    fan_in, fan_out = _fans("xavier_uniform_", tensor)
    bound = gain * math.sqrt(6 / max(fan_in + fan_out, 1))
    return _draw("xavier_uniform_", tensor, rngs, lambda key, x: _uniform(key, x, -bound, bound))


def xavier_normal_(tensor: Box, gain: float = 1.0, *, rngs: Streams) -> Box:
    """Fill normally with variance ``gain^2 * 2 / (fan_in + fan_out)``.

    Args:
        tensor: The Parameter, ``(out, in, *kernel)``.
        gain: See :func:`calculate_gain`.
        rngs: Where the stream ``params`` comes from.

    Returns:
        The Parameter.

    Raises:
        ValueError: If it has fewer than 2 dimensions.

    Source: ``torch.nn.init.xavier_normal_``; Glorot and Bengio, 2010.

    Example:
        >>> xavier_normal_(nn.Parameter(jnp.zeros((3, 4))), rngs=js.Rngs(0)).shape
        (3, 4)
    """
    fan_in, fan_out = _fans("xavier_normal_", tensor)
    std = gain * math.sqrt(2 / max(fan_in + fan_out, 1))
    return _draw("xavier_normal_", tensor, rngs, lambda key, x: _normal(key, x, 0, std))


def kaiming_uniform_(
    tensor: Box,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    *,
    rngs: Streams,
) -> Box:
    """Fill uniformly with variance ``gain^2 / fan``.

    Args:
        tensor: The Parameter, ``(out, in, *kernel)``.
        a: The negative slope, where the nonlinearity is ``"leaky_relu"``.
        mode: ``"fan_in"`` keeps the variance on the way forward, ``"fan_out"`` on the way back.
        nonlinearity: What follows; see :func:`calculate_gain`.
        rngs: Where the stream ``params`` comes from.

    Returns:
        The Parameter.

    Raises:
        ValueError: If it has fewer than 2 dimensions, or a setting isn't known.

    Source: ``torch.nn.init.kaiming_uniform_``; He et al., 2015.

    Example:
        >>> weight = nn.Parameter(jnp.zeros((2, 6)))
        >>> bool((abs(kaiming_uniform_(weight, rngs=js.Rngs(0)).value) <= 1).all())
        True
    """
    bound = math.sqrt(3) * _kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return _draw("kaiming_uniform_", tensor, rngs, lambda key, x: _uniform(key, x, -bound, bound))


def kaiming_normal_(
    tensor: Box,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    *,
    rngs: Streams,
) -> Box:
    """Fill normally with variance ``gain^2 / fan``.

    Args:
        tensor: The Parameter, ``(out, in, *kernel)``.
        a: The negative slope, where the nonlinearity is ``"leaky_relu"``.
        mode: ``"fan_in"`` keeps the variance on the way forward, ``"fan_out"`` on the way back.
        nonlinearity: What follows; see :func:`calculate_gain`.
        rngs: Where the stream ``params`` comes from.

    Returns:
        The Parameter.

    Raises:
        ValueError: If it has fewer than 2 dimensions, or a setting isn't known.

    Source: ``torch.nn.init.kaiming_normal_``; He et al., 2015.

    Example:
        >>> kaiming_normal_(nn.Parameter(jnp.zeros((3, 4))), rngs=js.Rngs(0)).shape
        (3, 4)
    """
    std = _kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity)
    return _draw("kaiming_normal_", tensor, rngs, lambda key, x: _normal(key, x, 0, std))


def orthogonal_(tensor: Box, gain: float = 1, *, rngs: Streams) -> Box:
    """Fill with a (semi-)orthogonal matrix; axes after the first count as one.

    Args:
        tensor: The Parameter, of at least 2 dimensions.
        gain: A factor.
        rngs: Where the stream ``params`` comes from.

    Returns:
        The Parameter.

    Raises:
        ValueError: If it has fewer than 2 dimensions.

    Source: ``torch.nn.init.orthogonal_``; Saxe, McClelland and Ganguli, 2013.

    Example:
        >>> w = orthogonal_(nn.Parameter(jnp.zeros((2, 5))), rngs=js.Rngs(0)).value
        >>> bool(jnp.allclose(w @ w.T, jnp.eye(2), atol=1e-5))
        True
    """
    shape = _content("orthogonal_", tensor).shape
    if len(shape) < 2:
        raise ValueError(f"orthogonal_: expected at least 2 dimensions, got {shape}.")

    def draw(key: Array, x: jax.ShapeDtypeStruct) -> Array:
        rows, columns = x.shape[0], math.prod(x.shape[1:])
        size = (max(rows, columns), min(rows, columns))
        q, r = jnp.linalg.qr(jax.random.normal(key, size, accumulator(x.dtype)))
        # With these signs the distribution is uniform (Mezzadri, 2006).
        q = q * jnp.where(jnp.diagonal(r) < 0, -1, 1)
        return gain * (q if rows >= columns else q.T).reshape(x.shape)

    return _draw("orthogonal_", tensor, rngs, draw)


def sparse_(tensor: Box, sparsity: float, std: float = 0.01, *, rngs: Streams) -> Box:
    """Fill normally, with a share of zeros in each column.

    Args:
        tensor: The Parameter, of 2 dimensions.
        sparsity: The share of each column that is zero, rounded up to whole elements.
        std: Standard deviation of the others.
        rngs: Where the stream ``params`` comes from.

    Returns:
        The Parameter.

    Raises:
        ValueError: If it isn't a matrix, or ``sparsity`` is outside of [0, 1].

    Source: ``torch.nn.init.sparse_``; Martens, 2010.

    Example:
        >>> w = sparse_(nn.Parameter(jnp.zeros((4, 3))), 0.5, rngs=js.Rngs(0)).value
        >>> (w == 0).sum(0).tolist()
        [2, 2, 2]
    """
    shape = _content("sparse_", tensor).shape
    if len(shape) != 2:
        raise ValueError(f"sparse_: expected 2 dimensions, got {shape}.")
    if not 0 <= sparsity <= 1:
        raise ValueError(f"sparse_: expected sparsity in [0, 1], got {sparsity}.")
    zeros = math.ceil(sparsity * shape[0])

    def draw(key: Array, x: jax.ShapeDtypeStruct) -> Array:
        values, order = jax.random.split(key)
        # The rank of random numbers is a random permutation, one in each column.
        rank = jax.random.uniform(order, x.shape).argsort(0).argsort(0)
        return jnp.where(rank < zeros, 0, _normal(values, x, 0, std))

    return _draw("sparse_", tensor, rngs, draw)


def _content(name: str, tensor: object) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of what is in the box, or say that it isn't one."""
    if not is_box(tensor):
        raise TypeError(
            f"{name}: expected a Parameter to write, got {type(tensor).__name__}. "
            "Pass nn.Parameter(array)."
        )
    box: Any = tensor
    return jax.ShapeDtypeStruct(box.shape, box.dtype)  # reading .value would expose the array


def _fill(name: str, tensor: Box, val: float) -> Box:
    x = _content(name, tensor)
    return _write(tensor, x, jnp.full(x.shape, val, x.dtype))


def _write(tensor: Box, old: jax.ShapeDtypeStruct, new: Array) -> Box:
    box: Any = tensor
    box.value = new.astype(old.dtype)
    return tensor


def _draw(
    name: str, tensor: Box, rngs: Streams, draw: Callable[[Array, jax.ShapeDtypeStruct], Array]
) -> Box:
    """Draw one key, and write what ``draw`` makes of it."""
    x = _content(name, tensor)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{name}: expected a Parameter of a floating dtype, got {x.dtype}.")
    key = rngs.next("params")
    return tensor if x.size == 0 else _write(tensor, x, draw(key, x))


def _uniform(key: Array, x: jax.ShapeDtypeStruct, low: float, high: float) -> Array:
    return jax.random.uniform(key, x.shape, x.dtype, low, high)


def _normal(key: Array, x: jax.ShapeDtypeStruct, mean: float, std: float) -> Array:
    return jax.random.normal(key, x.shape, x.dtype) * std + mean


def _fans(name: str, tensor: object) -> tuple[int, int]:
    """Return how many inputs feed an output, and how many outputs an input feeds."""
    shape = _content(name, tensor).shape
    if len(shape) < 2:
        raise ValueError(f"{name}: expected at least 2 dimensions for a fan, got {shape}.")
    kernel = math.prod(shape[2:])
    return shape[1] * kernel, shape[0] * kernel


def _kaiming_std(name: str, tensor: object, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"{name}: expected mode 'fan_in' or 'fan_out', got {mode!r}.")
    fan = _fans(name, tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))
