"""Ready-made parametrizations: weight norm, spectral norm, orthogonal matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import required
from jaxsaw.nn.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Buffer, Parameter
from jaxsaw.nn.utils import parametrize
from jaxsaw.rngs import Rngs

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Split a weight into length and direction: ``w = g * v / |v|``.

    States of PyTorch's older ``weight_norm`` (``weight_g``, ``weight_v``) can be loaded too.

    Args:
        module: Whose weight it is.
        name: The attribute.
        dim: The axis along which there are several lengths; None is one for the whole.

    Returns:
        The module.

    Raises:
        ValueError: If there is no such Parameter.

    Source: ``torch.nn.utils.parametrizations.weight_norm``; Salimans and Kingma, 2016.

    Example:
        >>> layer = weight_norm(nn.Linear(3, 2, rngs=js.Rngs(params=0)))
        >>> layer.parametrizations.weight.original0.shape
        (2, 1)
    """
    _weight_of(module, name, "weight_norm")
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    _take_older_names(module, name, {"g": "original0", "v": "original1"})
    return module


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
    *,
    rngs: Rngs | None = None,
) -> Module:
    """Divide a weight by its largest singular value, which power iterations follow in training.

    States of PyTorch's older ``spectral_norm`` (``weight_orig``, ...) can be loaded too.

    Args:
        module: Whose weight it is.
        name: The attribute.
        n_power_iterations: How many, in each access in training mode.
        eps: The least length to divide by.
        dim: The axis of the outputs; 0 if None, and 1 for transposed convolutions.
        rngs: Where the first vectors are drawn from: two keys of the stream ``params``.

    Returns:
        The module.

    Raises:
        ValueError: If there is no such Parameter, or ``n_power_iterations`` isn't positive.
        TypeError: If ``rngs`` is missing.

    Source: ``torch.nn.utils.parametrizations.spectral_norm``; Miyato et al., 2018.

    Example:
        >>> layer = nn.Linear(3, 2, rngs=js.Rngs(params=0))
        >>> layer = spectral_norm(layer, n_power_iterations=9, rngs=js.Rngs(params=1))
        >>> round(float(jnp.linalg.norm(layer.weight, 2)), 3)
        1.0
    """
    weight = _weight_of(module, name, "spectral_norm")
    if dim is None:
        transposed = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
        dim = 1 if isinstance(module, transposed) else 0
    if n_power_iterations <= 0:
        raise ValueError(
            f"spectral_norm: expected n_power_iterations above 0, got {n_power_iterations}."
        )
    layer = _SpectralNorm(weight.value, n_power_iterations, dim, eps, rngs)
    parametrize.register_parametrization(module, name, layer)
    _take_older_names(module, name, {"orig": "original", "u": "0._u", "v": "0._v"})
    return module


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
    rngs: Rngs | None = None,
) -> Module:
    """Keep a matrix orthogonal: its columns (or rows, if they are fewer) are orthonormal.

    Args:
        module: Whose matrix it is; more axes in front are a batch of matrices.
        name: The attribute.
        orthogonal_map: What makes an orthogonal matrix of any: ``"matrix_exp"`` (the default for
            square ones), ``"cayley"`` or ``"householder"`` (the default for others).
        use_trivialization: Go from the present value, instead of from the identity.
        rngs: Where the other columns of the first value are drawn from, if it isn't square and
            ``use_trivialization`` is on.

    Returns:
        The module.

    Raises:
        ValueError: If there is no such Parameter, it is no matrix, or the map is unknown.
        TypeError: If ``rngs`` is missing and needed.

    Source: ``torch.nn.utils.parametrizations.orthogonal``; Lezcano-Casado, 2019.

    Example:
        >>> layer = orthogonal(nn.Linear(3, 3, rngs=js.Rngs(params=0)))
        >>> bool(jnp.allclose(layer.weight @ layer.weight.T, jnp.eye(3), atol=1e-5))
        True
    """
    weight = _weight_of(module, name, "orthogonal")
    if weight.ndim < 2:
        raise ValueError(f"orthogonal: expected {name} with 2 axes or more, got {weight.shape}.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(
            "orthogonal: expected orthogonal_map to be 'matrix_exp', 'cayley' or 'householder', "
            f"got {orthogonal_map!r}."
        )
    layer = _Orthogonal(weight.value, orthogonal_map, use_trivialization, rngs)
    parametrize.register_parametrization(module, name, layer, unsafe=True)
    return module


class _WeightNorm(Module):
    """Length and direction as one array."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Array, weight_v: Array) -> Array:
        return weight_v * (weight_g / self._length(weight_v))

    def right_inverse(self, weight: Array) -> tuple[Array, Array]:
        """Return length and direction."""
        return self._length(weight), weight

    def _length(self, v: Array) -> Array:
        wide = jnp.square(v.astype(jnp.promote_types(v.dtype, jnp.float32)))
        if self.dim == -1:
            return jnp.sqrt(wide.sum()).astype(v.dtype)
        axes = tuple(i for i in range(v.ndim) if i != self.dim)
        return jnp.sqrt(wide.sum(axes, keepdims=True)).astype(v.dtype)


class _SpectralNorm(Module):
    """A matrix divided by its largest singular value."""

    def __init__(
        self, weight: Array, n_power_iterations: int, dim: int, eps: float, rngs: Rngs | None
    ) -> None:
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise IndexError(
                f"spectral_norm: expected dim in [{-weight.ndim}, {weight.ndim - 1}], got {dim}."
            )
        self.dim = dim if dim >= 0 else dim + weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight)
            rngs = required(rngs, "spectral_norm")
            draw = lambda n: jax.random.normal(rngs.next("params"), (n,), weight.dtype)
            u, v = (F.normalize(draw(n), dim=0, eps=eps) for n in matrix.shape)
            u, v = self._iterate(matrix, u, v, 15)
            self._u, self._v = Buffer(u), Buffer(v)

    def _matrix(self, weight: Array) -> Array:
        return jnp.moveaxis(weight, self.dim, 0).reshape(weight.shape[self.dim], -1)

    def _iterate(self, matrix: Array, u: Array, v: Array, n: int) -> tuple[Array, Array]:
        matrix = lax.stop_gradient(matrix)
        for _ in range(n):
            u = F.normalize(matrix @ v, dim=0, eps=self.eps)
            v = F.normalize(matrix.T @ u, dim=0, eps=self.eps)
        return u, v

    def forward(self, weight: Array) -> Array:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        u, v = self._u.value, self._v.value
        if self.training:
            u, v = self._iterate(matrix, u, v, self.n_power_iterations)
            self._u.value, self._v.value = u, v
        return weight / jnp.vdot(u, matrix @ v)

    def right_inverse(self, value: Array) -> Array:
        """Return the value itself."""
        return value


class _Orthogonal(Module):
    """An orthogonal matrix, made of any matrix."""

    base: Any

    def __init__(
        self, weight: Array, orthogonal_map: str, use_trivialization: bool, rngs: Rngs | None
    ) -> None:
        super().__init__()
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if not use_trivialization:
            self.register_buffer("base", None)
            return
        *batch, rows, columns = weight.shape
        n, k = max(rows, columns), min(rows, columns)
        base = jnp.broadcast_to(jnp.eye(n, dtype=weight.dtype), (*batch, n, n))
        if n > k:
            # The columns that the value doesn't have; it gives the first ones.
            key = required(rngs, "orthogonal (of a matrix that isn't square)").next("params")
            drawn = jax.random.normal(key, (*batch, n, n - k), weight.dtype)
            base = base.at[..., k:].set(drawn)
        self.base = Buffer(base)

    def forward(self, x: Array) -> Array:
        flipped = x.shape[-2] < x.shape[-1]
        x = x.mT if flipped else x
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            below = jnp.tril(x, -1)
            q = _householder(below, 2 / (1 + jnp.square(below).sum(-2)))
            signs = lax.stop_gradient(jnp.trunc(jnp.diagonal(x, axis1=-2, axis2=-1)))
            q = q * signs[..., None, :]
        else:
            square = jnp.pad(jnp.tril(x), [(0, 0)] * (x.ndim - 1) + [(0, n - k)])
            skew = square - square.mT
            if self.orthogonal_map == "matrix_exp":
                q = jax.scipy.linalg.expm(skew)
            else:
                one = jnp.eye(n, dtype=x.dtype)
                q = jnp.linalg.solve(one - skew / 2, one + skew / 2)
            q = q[..., :k]
        q = q if self.base is None else self.base.value @ q
        return q.mT if flipped else q

    def right_inverse(self, q: Array) -> Array:
        """Return what gives a matrix, which is made orthogonal first where it isn't."""
        if q.shape != self.shape:
            raise ValueError(f"orthogonal: expected a matrix {self.shape}, got {q.shape}.")
        flipped = q.shape[-2] < q.shape[-1]
        tall = q.mT if flipped else q
        k = tall.shape[-1]
        if self.base is not None:
            columns = jnp.concatenate([tall, self.base.value[..., k:]], -1)
            self.base.value = _made_orthogonal(columns)
            # Each map gives the first columns of the identity for minus these.
            return -jnp.broadcast_to(jnp.eye(q.shape[-2], q.shape[-1], dtype=q.dtype), q.shape)
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                f"orthogonal: a value can't be assigned with {self.orthogonal_map!r} and "
                "use_trivialization=False."
            )
        packed, tau = jnp.linalg.qr(tall, mode="raw")  # (k, n), (k,)
        below = packed.mT
        diagonal = jnp.sign(jnp.diagonal(below, axis1=-2, axis2=-1))
        diagonal = jnp.where(tau == 0, -diagonal, diagonal)
        index = jnp.arange(k)
        below = below.at[..., index, index].set(diagonal)
        return below.mT if flipped else below


def _householder(below: Array, tau: Array) -> Array:
    """Return the first columns of the product of reflections at vectors below the diagonal."""
    return jnp.vectorize(_product, signature="(n,k),(k)->(n,k)")(below, tau)


def _product(below: Array, tau: Array) -> Array:
    one = jnp.eye(below.shape[0], below.shape[1], dtype=below.dtype)

    def reflect(q: Array, at: tuple[Array, Array]) -> tuple[Array, None]:
        v, t = at
        return q - t * jnp.outer(v, v @ q), None

    vectors = jnp.tril(below, -1) + one
    return lax.scan(reflect, one, (vectors.T, tau), reverse=True)[0]


def _made_orthogonal(x: Array) -> Array:
    """Return the orthogonal matrix that is next to the columns, one after the other."""
    q, r = jnp.linalg.qr(x)
    return q * jnp.sign(jnp.diagonal(r, axis1=-2, axis2=-1))[..., None, :]


def _weight_of(module: Module, name: str, who: str) -> Any:
    weight = getattr(module, name, None)
    if parametrize.is_parametrized(module, name):
        return Parameter.own(weight)
    if not isinstance(weight, Parameter):
        raise ValueError(
            f"{who}: expected {module._at(name)} to be a Parameter, got {type(weight).__name__}."
        )
    return weight


def _take_older_names(module: Module, name: str, names: dict[str, str]) -> None:
    """Let a module load states with the names of the older functions, ``weight_g`` and so on."""
    module.register_load_state_dict_pre_hook(_OlderNames(name, tuple(names.items())))


@dataclass(frozen=True)
class _OlderNames:
    """Renames what a state has of one attribute, before it is loaded."""

    name: str
    names: tuple[tuple[str, str], ...]

    def __call__(self, module: Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
        keys = {f"{prefix}{self.name}_{old}": new for old, new in self.names}
        if all(key in state for key in keys):
            for key, new in keys.items():
                state[f"{prefix}parametrizations.{self.name}.{new}"] = state.pop(key)
