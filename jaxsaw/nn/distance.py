"""Distances between vectors, as layers."""

from __future__ import annotations

from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn.module import Module


class CosineSimilarity(Module):
    """Cosine of the angle between vectors: ``x1 @ x2 / (|x1| * |x2|)``.

    Args:
        dim: The axis of the vectors.
        eps: The least length to divide by.

    Shape:
        - Inputs: ``(*, D, *)``, with ``D`` at ``dim``
        - Output: the same without ``dim``

    Source: ``torch.nn.CosineSimilarity``.

    Example:
        >>> nn.CosineSimilarity()(jnp.array([[1.0, 0.0]]), jnp.array([[0.0, 1.0]])).tolist()
        [0.0]
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Array, x2: Array) -> Array:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """Distance between vectors: the p-norm of ``x1 - x2 + eps`` along the last axis.

    Args:
        p: Which norm; 0, negative and infinite ones too.
        eps: Added to each difference.
        keepdim: Keep the last axis, with size 1.

    Shape:
        - Inputs: ``(N, D)`` or ``(D,)``
        - Output: ``(N,)`` or ``()``; with ``keepdim``, ``(N, 1)`` or ``(1,)``

    Source: ``torch.nn.PairwiseDistance``.

    Example:
        >>> nn.PairwiseDistance()(jnp.zeros((1, 2)), jnp.array([[3.0, 4.0]])).round(3).tolist()
        [5.0]
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Array, x2: Array) -> Array:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
