"""LAMB, for large batches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.optim.checks import check_betas, check_not_negative
from jaxsaw.optim.group import ParamGroup, bias_correction
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import rule

Array = jax.Array


@rule("maximize")
def lamb_update(
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    *,
    lr: Any,
    correction: Any,
    root: Any,
    beta1: Any,
    rest1: Any,
    beta2: Any,
    rest2: Any,
    eps: Any,
    weight_decay: Any,
    maximize: bool = False,
) -> Any:
    """Return the parameter and its moments after one step of LAMB (You et al., 2020).

    Args:
        p: The parameter, any shape; ``g``, ``m`` and ``v`` have the same.
        g: Its gradient.
        m: The moving average of gradients.
        v: The moving average of squared gradients.
        lr: The learning rate.
        correction: ``1 - beta1 ** t``.
        root: ``sqrt(1 - beta2 ** t)``.
        beta1: The decay of ``m``.
        rest1: ``1 - beta1``.
        beta2: The decay of ``v``.
        rest2: ``1 - beta2``.
        eps: Added to the root of ``v``.
        weight_decay: Times the parameter, added to the step.
        maximize: Whether to ascend.

    Example:
        >>> one = jnp.ones(())
        >>> new = lamb_update(
        ...     4 * one, one, one, one, lr=0.5 * one, correction=one, root=one, beta1=one,
        ...     rest1=0 * one, beta2=one, rest2=0 * one, eps=0 * one, weight_decay=0 * one,
        ... )
        >>> float(new[0])
        2.0
    """
    g = -g if maximize else g
    m = beta1 * m + rest1 * g
    v = beta2 * v + rest2 * (g * g)
    step = m / correction / (jnp.sqrt(v) / root + eps) + weight_decay * p
    length, size = (jnp.sqrt((x * x).sum()) for x in (step, p))
    useless = (length == 0) | (size == 0)
    trust = jnp.where(useless, 1, size / jnp.where(useless, 1, length))
    return p - lr * trust * step, m, v


class Lamb(Optimizer):
    r"""LAMB: Adam's steps, each as long as the learning rate times the Parameter's norm.

    .. math::
        r_t = \frac{\hat{m}_t}{\sqrt{\hat{v}_t} + ε} + λ θ_{t-1} \qquad
        θ_t = θ_{t-1} - γ \frac{‖θ_{t-1}‖}{‖r_t‖} r_t

    where the moments are Adam's. Where a norm is zero, the ratio is one.

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate γ.
        betas: The decay of the two averages.
        eps: Added to the denominator.
        weight_decay: The decay λ.
        maximize: Whether to ascend.

    Raises:
        ValueError: If a number is out of range.

    Source: You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes"
    (2020).

    Example:
        >>> w = nn.Parameter(jnp.full(1, 4.0))
        >>> Lamb([w], lr=0.5).step([jnp.ones(1)])
        >>> w.value.round(4)
        Array([2.], dtype=float32)
    """

    _flags = ("maximize",)
    _precise = ("betas",)
    _state_names = ("exp_avg", "exp_avg_sq")
    _rule = staticmethod(lamb_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-6,
        weight_decay: Any = 0,
        *,
        maximize: bool = False,
    ) -> None:
        check_not_negative("Lamb", lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas("Lamb", betas)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": bool(maximize),
            },
        )

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        rest1, rest2 = beta1.complement(), beta2.complement()
        return dict(
            lr=group["lr"].value,
            correction=bias_correction(rest1, steps),
            root=jnp.sqrt(bias_correction(rest2, steps)),
            beta1=beta1.value,
            rest1=rest1,
            beta2=beta2.value,
            rest2=rest2,
            eps=group["eps"].value,
            weight_decay=group["weight_decay"].value,
            maximize=group["maximize"],
        )
