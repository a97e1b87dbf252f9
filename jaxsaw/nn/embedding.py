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


class Embedding(Module):
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
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ValueError(
                    f"Embedding: expected padding_idx in [{-num_embeddings}, "
                    f"{num_embeddings - 1}], got {padding_idx}."
                )
            padding_idx %= num_embeddings
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        shape = (num_embeddings, embedding_dim)
        if _weight is not None:
            if tuple(_weight.shape) != shape:
                raise ValueError(f"Embedding: expected _weight {shape}, got {_weight.shape}.")
            self.weight = Parameter(place(_weight, device), requires_grad=not _freeze)
            return
        table = self._draw(required(rngs, "Embedding"), shape, as_dtype(dtype))
        self.weight = Parameter.own(place(table, device))

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

    def reset_parameters(self, *, rngs: Rngs) -> None:
        """Draw the table anew.

        Args:
            rngs: Where it is drawn from.
        """
        rngs = required(rngs, "Embedding.reset_parameters()")
        self.weight.value = self._draw(rngs, self.weight.shape, self.weight.dtype)

    def _draw(self, rngs: Rngs, shape: tuple[int, ...], dtype: Any) -> Array:
        table = jax.random.normal(rngs.next("params"), shape, dtype)
        return table if self.padding_idx is None else table.at[self.padding_idx].set(0)

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
        table = embeddings.value if isinstance(embeddings, Variable) else jnp.asarray(embeddings)
        if table.ndim != 2:
            raise ValueError(
                "Embedding.from_pretrained(): expected a table (num_embeddings, embedding_dim), "
                f"got {table.shape}."
            )
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
