"""Lion: steps by a sign."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.optim.checks import check_betas, check_not_negative
from jaxsaw.optim.group import ParamGroup
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import rule

Array = jax.Array


@rule("maximize")
def lion_update(
    p: Any,
    g: Any,
    m: Any,
    *,
    lr: Any,
    beta1: Any,
    rest1: Any,
    beta2: Any,
    rest2: Any,
    weight_decay: Any,
    maximize: bool = False,
) -> Any:
    """Return the parameter and its momentum after one step of Lion (Chen et al., 2023).

    Args:
        p: The parameter, any shape; ``g`` and ``m`` have the same.
        g: Its gradient.
        m: The momentum.
        lr: The learning rate.
        beta1: The weight of the momentum in the step.
        rest1: ``1 - beta1``.
        beta2: The decay of the momentum.
        rest2: ``1 - beta2``.
        weight_decay: The decay of the parameter, times ``lr``.
        maximize: Whether to ascend.

    Example:
        >>> one = jnp.ones(())
        >>> new = lion_update(
        ...     one, 3 * one, one, lr=0.25 * one, beta1=0.5 * one, rest1=0.5 * one,
        ...     beta2=0.5 * one, rest2=0.5 * one, weight_decay=0 * one,
        ... )
        >>> [float(x) for x in new]
        [0.75, 2.0]
    """
    g = -g if maximize else g
    direction = jnp.sign(beta1 * m + rest1 * g)
    return p * (1 - weight_decay) - lr * direction, beta2 * m + rest2 * g


class Lion(Optimizer):
    r"""Lion: steps by the sign of a mixture of momentum and gradient.

    .. math::
        θ_t = θ_{t-1} - γ (\mathrm{sign}(β_1 m_{t-1} + (1 - β_1) g_t) + λ θ_{t-1}) \qquad
        m_t = β_2 m_{t-1} + (1 - β_2) g_t

    Its learning rate is usually a third to a tenth of AdamW's, and its decay as many times larger.

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate γ.
        betas: The weight of the momentum in a step, and its decay.
        weight_decay: The decay λ.
        maximize: Whether to ascend.

    Raises:
        ValueError: If a number is out of range.

    Source: Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023).

    Example:
        >>> w = nn.Parameter(jnp.ones(2))
        >>> Lion([w], lr=0.25).step([jnp.array([0.1, -7.0])])
        >>> w.value
        Array([0.75, 1.25], dtype=float32)
    """

    _flags = ("maximize",)
    _precise = ("betas",)
    _state_names = ("exp_avg",)
    _rule = staticmethod(lion_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-4,
        betas: tuple[Any, Any] = (0.9, 0.99),
        weight_decay: Any = 0,
        *,
        maximize: bool = False,
    ) -> None:
        check_not_negative("Lion", lr=lr, weight_decay=weight_decay)
        check_betas("Lion", betas)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "weight_decay": weight_decay,
                "maximize": bool(maximize),
            },
        )

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        lr = group["lr"].value
        beta1, beta2 = group["betas"]
        return dict(
            lr=lr,
            beta1=beta1.value,
            rest1=beta1.complement(),
            beta2=beta2.value,
            rest2=beta2.complement(),
            weight_decay=lr * group["weight_decay"].value,
            maximize=group["maximize"],
        )
