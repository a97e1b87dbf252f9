"""Adam for the rows of a table that a batch has used."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.optim.checks import check_betas, check_positive, check_real
from jaxsaw.optim.group import ParamGroup, bias_correction
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import rule

Array = jax.Array


@rule("maximize")
def sparse_adam_update(
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    *,
    step_size: Any,
    beta1: Any,
    rest1: Any,
    beta2: Any,
    rest2: Any,
    eps: Any,
    maximize: bool = False,
) -> Any:
    """Return the parameter and its moments after one step of Adam on rows that have a gradient.

    Args:
        p: The parameter, any shape; ``g``, ``m`` and ``v`` have the same.
        g: Its gradient. A row (along the first axis) of zeros is one without.
        m: The moving average of gradients.
        v: The moving average of squared gradients.
        step_size: ``lr * sqrt(1 - beta2 ** t) / (1 - beta1 ** t)``.
        beta1: The decay of ``m``.
        rest1: ``1 - beta1``.
        beta2: The decay of ``v``.
        rest2: ``1 - beta2``.
        eps: Added to the root of ``v``.
        maximize: Whether to ascend.

    Example:
        >>> one = jnp.ones(())
        >>> new = sparse_adam_update(
        ...     jnp.ones((2, 1)), jnp.array([[1.0], [0.0]]), jnp.ones((2, 1)), jnp.ones((2, 1)),
        ...     step_size=one, beta1=0 * one, rest1=one, beta2=one, rest2=0 * one, eps=one,
        ... )
        >>> new[0].T, new[1].T
        (Array([[0.5, 1. ]], dtype=float32), Array([[1., 1.]], dtype=float32))
    """
    g = -g if maximize else g
    used = g != 0
    if p.ndim > 1:
        used = used.any(axis=tuple(range(1, p.ndim)), keepdims=True)
    m = jnp.where(used, beta1 * m + rest1 * g, m)
    v = jnp.where(used, beta2 * v + rest2 * (g * g), v)
    return jnp.where(used, p - step_size * (m / (jnp.sqrt(v) + eps)), p), m, v


class SparseAdam(Optimizer):
    """Adam that changes a row, and its moments, only where the row has a gradient.

    PyTorch's takes sparse gradients and nothing else. Gradients are dense here: a row (along the
    first axis) whose gradient is all zeros counts as one that a sparse gradient doesn't have,
    such as the embedding of a token that isn't in the batch. The step count goes on for all rows.

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate.
        betas: The decay of the two averages.
        eps: Added to the denominator.
        maximize: Whether to ascend.

    Raises:
        ValueError: If a number is out of range, or a Parameter is complex.

    Source: ``torch.optim.SparseAdam``.

    Example:
        >>> table = nn.Parameter(jnp.ones((2, 2)))
        >>> SparseAdam([table], lr=0.5).step([jnp.array([[1.0, 0.0], [0.0, 0.0]])])
        >>> table.value.round(3)
        Array([[0.5, 1. ],
               [1. , 1. ]], dtype=float32)
    """

    _flags = ("maximize",)
    _precise = ("betas",)
    _state_names = ("exp_avg", "exp_avg_sq")
    _rule = staticmethod(sparse_adam_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        maximize: bool = False,
    ) -> None:
        check_positive("SparseAdam", lr=lr, eps=eps)
        check_betas("SparseAdam", betas)
        super().__init__(
            params, {"lr": lr, "betas": tuple(betas), "eps": eps, "maximize": bool(maximize)}
        )

    def _check(self, name: str, p: Any) -> None:
        check_real("SparseAdam", name, p)

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        rest1, rest2 = beta1.complement(), beta2.complement()
        root = jnp.sqrt(bias_correction(rest2, steps))
        return dict(
            step_size=group["lr"].value * root / bias_correction(rest1, steps),
            beta1=beta1.value,
            rest1=rest1,
            beta2=beta2.value,
            rest2=rest2,
            eps=group["eps"].value,
            maximize=group["maximize"],
        )
