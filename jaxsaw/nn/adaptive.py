"""An approximate softmax over many classes, with its loss."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxsaw.nn import functional as F
from jaxsaw.nn._factory import required
from jaxsaw.nn.containers import ModuleList, Sequential
from jaxsaw.nn.functional._common import integers, is_concrete
from jaxsaw.nn.linear import Linear
from jaxsaw.nn.module import Module
from jaxsaw.rngs import Rngs


class ASMoutput(NamedTuple):
    """What :class:`AdaptiveLogSoftmaxWithLoss` returns.

    Attributes:
        output: The targets' log-probabilities, ``(N,)`` or ``()``.
        loss: Minus their mean, ``()``.
    """

    output: Array
    loss: Array


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax in two steps for classes sorted by frequency: the frequent, and clusters.

    The head has the most frequent classes and one output for each cluster; a cluster's classes get
    a smaller share of the features, the rarer they are. Each call computes all clusters for all
    samples, since shapes can't depend on the targets.

    Args:
        in_features: Size of the input's last axis.
        n_classes: How many classes.
        cutoffs: Where clusters start: ascending, from 1 to ``n_classes - 1``.
        div_value: By what the features of each cluster are divided, once more for the next one.
        head_bias: Whether the head has a bias.
        device: Where the parameters are.
        dtype: The parameters' dtype; float32 if None.
        rngs: Where the weights are drawn from: a key of the stream ``params`` each.

    Shape:
        - Input: ``(N, in_features)`` or ``(in_features,)``
        - Target: class indices, ``(N,)`` or ``()``
        - Output: ``(N,)`` or ``()``, and the loss ``()``

    Raises:
        TypeError: If ``rngs`` is missing.
        ValueError: If ``cutoffs`` don't fit; when called, if a shape doesn't or, where it can be
            looked at, a target is out of range (in a trace it gives NaN).

    Source: ``torch.nn.AdaptiveLogSoftmaxWithLoss``; Grave et al., 2017.

    Example:
        >>> layer = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], rngs=js.Rngs(params=0))
        >>> output, loss = layer(jnp.ones((2, 8)), jnp.array([0, 19]))
        >>> output.shape, loss.shape
        ((2,), ())
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        rngs: Rngs | None = None,
    ) -> None:
        super().__init__()
        ends = [0, *cutoffs, n_classes]
        ascending = all(a < b for a, b in itertools.pairwise(ends))
        if len(ends) < 3 or not ascending or any(int(c) != c for c in cutoffs):
            raise ValueError(
                "AdaptiveLogSoftmaxWithLoss: expected ascending cutoffs from 1 to n_classes - 1 = "
                f"{n_classes - 1}, got {list(cutoffs)}."
            )
        rngs = required(rngs, "AdaptiveLogSoftmaxWithLoss")
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = ends[1:]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = ends[1]
        self.n_clusters = len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        rest = {"device": device, "dtype": dtype, "rngs": rngs}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **rest)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, **rest),
                    Linear(hidden, size, bias=False, **rest),
                )
            )

    def forward(self, input_: Array, target_: Array) -> ASMoutput:
        target = integers(self._who(), target_, "a target")
        if target.ndim not in (0, 1) or input_.shape[:-1] != target.shape or input_.ndim == 0:
            raise ValueError(
                f"{self._who()}: expected input (N, {self.in_features}) and target (N,), or "
                f"({self.in_features},) and (), got {input_.shape} and {target.shape}."
            )
        if is_concrete(target) and target.size:
            low, high = np.asarray(target).min(), np.asarray(target).max()
            if low < 0 or high >= self.n_classes:
                raise ValueError(
                    f"{self._who()}: expected targets in [0, {self.n_classes - 1}], got values "
                    f"in [{low}, {high}]."
                )
        head = F.log_softmax(self.head(input_), -1)
        output = _at(head, target)
        for i, low, high, cluster in self._clusters():
            local = _at(F.log_softmax(cluster(input_), -1), target - low)
            inside = (target >= low) & (target < high)
            output = jnp.where(inside, head[..., self.shortlist_size + i] + local, output)
        known = (target >= 0) & (target < self.n_classes)
        output = jnp.where(known, output, jnp.nan)
        return ASMoutput(output, -output.mean())

    def log_prob(self, input: Array) -> Array:
        """Return the log-probabilities of all classes.

        Args:
            input: ``(N, in_features)``.

        Returns:
            ``(N, n_classes)``.
        """
        return self._log_prob(input, self.head(input))

    def predict(self, input: Array) -> Array:
        """Return the most likely classes.

        As in PyTorch, it is the best of the head unless that is a cluster.

        Args:
            input: ``(N, in_features)``.

        Returns:
            ``(N,)``.
        """
        scores = self.head(input)
        best = scores.argmax(-1)
        full = self._log_prob(input, scores).argmax(-1)
        return jnp.where(best < self.shortlist_size, best, full)

    def reset_parameters(self, *, rngs: Rngs) -> None:
        """Draw all weights anew.

        Args:
            rngs: Where they are drawn from.
        """
        self.head.reset_parameters(rngs=rngs)
        for project, classify in self.tail:
            project.reset_parameters(rngs=rngs)
            classify.reset_parameters(rngs=rngs)

    def _clusters(self) -> Iterator[tuple[int, int, int, Module]]:
        for i, cluster in enumerate(self.tail):
            yield i, self.cutoffs[i], self.cutoffs[i + 1], cluster

    def _log_prob(self, input: Array, scores: Array) -> Array:
        head = F.log_softmax(scores, -1)
        parts = [head[..., : self.shortlist_size]]
        for i, _, _, cluster in self._clusters():
            chosen = head[..., self.shortlist_size + i, None]
            parts.append(F.log_softmax(cluster(input), -1) + chosen)
        return jnp.concatenate(parts, -1)


def _at(x: Array, index: Array) -> Array:
    """Return the elements of the last axis at indices, clipped into it."""
    index = jnp.clip(index, 0, x.shape[-1] - 1)
    return jnp.take_along_axis(x, index[..., None], -1)[..., 0]
