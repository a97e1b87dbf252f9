"""Adamax, which divides by the largest gradient of late."""

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
def adamax_update(
    p: Any,
    g: Any,
    m: Any,
    largest: Any,
    *,
    step_size: Any,
    beta1: Any,
    rest1: Any,
    beta2: Any,
    eps: Any,
    weight_decay: Any,
    maximize: bool = False,
) -> Any:
    """Return the parameter and its state after one step of Adamax (Kingma and Ba, 2015).

    Args:
        p: The parameter, any shape; ``g``, ``m`` and ``largest`` have the same.
        g: Its gradient.
        m: The moving average of gradients.
        largest: The largest absolute gradient, which decays.
        step_size: ``lr / (1 - beta1 ** t)``.
        beta1: The decay of ``m``.
        rest1: ``1 - beta1``.
        beta2: The decay of ``largest``.
        eps: Added to absolute gradients.
        weight_decay: Times the parameter, added to the gradient.
        maximize: Whether to ascend.

    Example:
        >>> one = jnp.ones(())
        >>> new = adamax_update(
        ...     one, one, 0 * one, 4 * one, step_size=one, beta1=0.5 * one, rest1=0.5 * one,
        ...     beta2=0.5 * one, eps=0 * one, weight_decay=0 * one,
        ... )
        >>> [float(x) for x in new]
        [0.75, 0.5, 2.0]
    """
    g = (-g if maximize else g) + weight_decay * p
    m = beta1 * m + rest1 * g
    largest = jnp.maximum(beta2 * largest, jnp.abs(g) + eps)
    return p - step_size * (m / largest), m, largest


class Adamax(Optimizer):
    r"""Adamax: Adam with the largest gradient in the place of the root of the mean square.

    .. math::
        m_t = β_1 m_{t-1} + (1 - β_1) g_t \qquad u_t = \max(β_2 u_{t-1}, |g_t| + ε) \qquad
        θ_t = θ_{t-1} - \frac{γ}{1 - β_1^t} \frac{m_t}{u_t}

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate γ.
        betas: The decays of the average and of the largest gradient.
        eps: Added to absolute gradients.
        weight_decay: Times the parameter, added to the gradient.
        foreach: Accepted for PyTorch's sake, as are ``differentiable`` and ``capturable``; they
            change nothing.
        maximize: Whether to ascend.

    Raises:
        ValueError: If a number is out of range.

    Source: ``torch.optim.Adamax``.

    Example:
        >>> w = nn.Parameter(jnp.ones(1))
        >>> Adamax([w], lr=0.5).step([jnp.ones(1)])
        >>> w.value.round(4)
        Array([0.5], dtype=float32)
    """

    _flags = ("maximize",)
    _precise = ("betas",)
    _state_names = ("exp_avg", "exp_inf")
    _rule = staticmethod(adamax_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_not_negative("Adamax", lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas("Adamax", betas)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": bool(maximize),
                "differentiable": differentiable,
                "capturable": capturable,
            },
        )

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        beta1, beta2 = group["betas"]
        rest1 = beta1.complement()
        return dict(
            step_size=group["lr"].value / bias_correction(rest1, steps),
            beta1=beta1.value,
            rest1=rest1,
            beta2=beta2.value,
            eps=group["eps"].value,
            weight_decay=group["weight_decay"].value,
            maximize=group["maximize"],
        )
