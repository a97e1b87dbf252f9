"""Tables of vectors that are looked up by index."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import as_dtype, place, required
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Parameter
from jaxsaw.rngs import Rngs
from jaxsaw.state.variable import Variable


class _Table(Module):
    """What layers with a table share."""

    num_embeddings: int
    embedding_dim: int
    padding_idx: int | None
    weight: Parameter

    def _add_table(
        self, given: Any, requires_grad: bool, device: Any, dtype: Any, rngs: Rngs | None
    ) -> None:
        """Make the weight: the given one, or one that is drawn."""
        name, shape = type(self).__name__, (self.num_embeddings, self.embedding_dim)
        if given is None:
            table = self._draw(required(rngs, name), shape, as_dtype(dtype))
            self.weight = Parameter.own(place(table, device))
            return
        if tuple(given.shape) != shape:
            raise ValueError(f"{name}: expected _weight {shape}, got {given.shape}.")
        self.weight = Parameter(place(given, device), requires_grad=requires_grad)

    def _draw(self, rngs: Rngs, shape: tuple[int, ...], dtype: Any) -> Array:
        table = jax.random.normal(rngs.next("params"), shape, dtype)
        return table if self.padding_idx is None else table.at[self.padding_idx].set(0)

    def reset_parameters(self, *, rngs: Rngs) -> None:
        """Draw the table anew.

        Args:
            rngs: Where it is drawn from.
        """
        rngs = required(rngs, f"{type(self).__name__}.reset_parameters()")
        self.weight.value = self._draw(rngs, self.weight.shape, self.weight.dtype)


class Embedding(_Table):
    """Look up rows of a table: ``y = weight[input]``.

    The table is drawn from a normal distribution; the row of ``padding_idx`` is zero.

    Args:
        num_embeddings: Number of rows.
        embedding_dim: Size of a row.
        padding_idx: A row that gets no gradient.
        max_norm: Rows that are looked up and longer than this are shortened to it, in the table.
        norm_type: Which p-norm ``max_norm`` means.
        scale_grad_by_freq: Divide a row's gradient by how often it occurs in the input.
        sparse: Accepted and ignored: gradients are dense arrays.
        _weight: The table, instead of drawing one.
        _freeze: Whether a given table isn't trained.
        device: Where the table is.
        dtype: The table's dtype; float32 if None.
        rngs: Where the table is drawn from: one key of the stream ``params``.

    Shape:
        - Input: integers of any shape
        - Output: ``(*input.shape, embedding_dim)``
        - weight: ``(num_embeddings, embedding_dim)``

    Raises:
        TypeError: If ``rngs`` is missing; when called, if the input isn't of integers.
        ValueError: If an argument doesn't fit; when called, if an index is out of range.

    Source: ``torch.nn.Embedding``.

    Example:
        >>> layer = nn.Embedding(10, 3, rngs=js.Rngs(params=0))
        >>> layer(jnp.array([[1, 2, 4, 5], [4, 3, 2, 9]])).shape
        (2, 4, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        padding_idx = _as_index("Embedding", padding_idx, num_embeddings)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        self._add_table(_weight, not _freeze, device, dtype, rngs)

    def forward(self, input: Array) -> Array:
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Any,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """Return a layer with a given table.

        Args:
            embeddings: The table, ``(num_embeddings, embedding_dim)``.
            freeze: Whether it isn't trained.
            padding_idx: A row that gets no gradient.
            max_norm: Rows that are looked up and longer than this are shortened to it.
            norm_type: Which p-norm ``max_norm`` means.
            scale_grad_by_freq: Divide a row's gradient by how often it occurs in the input.
            sparse: Accepted and ignored.

        Raises:
            ValueError: If the table isn't 2-D.

        Example:
            >>> layer = nn.Embedding.from_pretrained(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
            >>> layer(jnp.array([1])).tolist()
            [[3.0, 4.0]]
        """
        table = _as_table("Embedding", embeddings)
        return cls(
            table.shape[0],
            table.shape[1],
            padding_idx=padding_idx,
            max_norm=max_norm,
            norm_type=norm_type,
            scale_grad_by_freq=scale_grad_by_freq,
            sparse=sparse,
            _weight=table,
            _freeze=freeze,
        )

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        if self.sparse:
            parts.append("sparse=True")
        return ", ".join(parts)


class EmbeddingBag(_Table):
    """Look up rows of a table, and return the sum, mean or maximum of each bag of them.

    The table is drawn from a normal distribution; the row of ``padding_idx`` is zero. An empty bag
    gives zeros.

    Args:
        num_embeddings: Number of rows.
        embedding_dim: Size of a row.
        max_norm: Rows that are looked up and longer than this are shortened to it, in the table.
        norm_type: Which p-norm ``max_norm`` means.
        scale_grad_by_freq: Divide a row's gradient by how often it occurs in the input.
        mode: ``"sum"``, ``"mean"`` or ``"max"``.
        sparse: Accepted and ignored: gradients are dense arrays.
        _weight: The table, instead of drawing one.
        include_last_offset: Whether ``offsets`` ends with one more: where the last bag ends.
        padding_idx: An index that isn't counted among its bag, and gets no gradient.
        device: Where the table is.
        dtype: The table's dtype; float32 if None.
        rngs: Where the table is drawn from: one key of the stream ``params``.

    Shape:
        - input: integers, ``(B, n)``, or ``(n,)`` with ``offsets``
        - offsets: ``(B,)``, or ``(B + 1,)`` with ``include_last_offset``
        - per_sample_weights: as the input
        - output: ``(B, embedding_dim)``
        - weight: ``(num_embeddings, embedding_dim)``

    Raises:
        TypeError: If ``rngs`` is missing; when called, if the input isn't of integers.
        ValueError: If an argument doesn't fit; when called, if an index or offset is out of range.

    Source: ``torch.nn.EmbeddingBag``.

    Example:
        >>> layer = nn.EmbeddingBag(10, 3, mode="sum", rngs=js.Rngs(params=0))
        >>> layer(jnp.array([1, 2, 4, 5, 4, 3, 2, 9]), jnp.array([0, 4])).shape
        (2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        if mode not in ("sum", "mean", "max"):
            raise ValueError(f"EmbeddingBag: expected mode 'sum', 'mean' or 'max', got {mode!r}.")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.padding_idx = _as_index("EmbeddingBag", padding_idx, num_embeddings)
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self._add_table(_weight, True, device, dtype, rngs)

    def forward(
        self, input: Array, offsets: Array | None = None, per_sample_weights: Array | None = None
    ) -> Array:
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Any,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Return a layer with a given table.

        Args:
            embeddings: The table, ``(num_embeddings, embedding_dim)``.
            freeze: Whether it isn't trained.
            max_norm: Rows that are looked up and longer than this are shortened to it.
            norm_type: Which p-norm ``max_norm`` means.
            scale_grad_by_freq: Divide a row's gradient by how often it occurs in the input.
            mode: ``"sum"``, ``"mean"`` or ``"max"``.
            sparse: Accepted and ignored.
            include_last_offset: Whether ``offsets`` ends with one more: where the last bag ends.
            padding_idx: An index that isn't counted among its bag, and gets no gradient.

        Raises:
            ValueError: If the table isn't 2-D.

        Example:
            >>> layer = nn.EmbeddingBag.from_pretrained(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
            >>> layer(jnp.array([[0, 1]])).tolist()
            [[2.0, 3.0]]
        """
        table = _as_table("EmbeddingBag", embeddings)
        layer = cls(
            table.shape[0],
            table.shape[1],
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            table,
            include_last_offset,
            padding_idx,
        )
        layer.weight.requires_grad = not freeze
        return layer

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        parts.append(f"mode={self.mode!r}")
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        return ", ".join(parts)


def _as_index(name: str, padding_idx: int | None, rows: int) -> int | None:
    """Return the row that is padding, counted from the front."""
    if padding_idx is None:
        return None
    if not -rows <= padding_idx < rows:
        raise ValueError(
            f"{name}: expected padding_idx in [{-rows}, {rows - 1}], got {padding_idx}."
        )
    return padding_idx % rows


def _as_table(name: str, embeddings: Any) -> Array:
    """Return the table that ``from_pretrained`` was given."""
    table = embeddings.value if isinstance(embeddings, Variable) else jnp.asarray(embeddings)
    if table.ndim != 2:
        raise ValueError(
            f"{name}.from_pretrained(): expected a table (num_embeddings, embedding_dim), "
            f"got {table.shape}."
        )
    return table
