"""NAdam: Adam with Nesterov's momentum."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.optim.checks import check_betas, check_not_negative
from jaxsaw.optim.group import ParamGroup, bias_correction
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import rule

Array = jax.Array


@rule("decoupled", "maximize")
def nadam_update(
    p: Any,
    g: Any,
    product: Any,
    m: Any,
    v: Any,
    *,
    lr: Any,
    mu: Any,
    mu_next: Any,
    root: Any,
    beta1: Any,
    rest1: Any,
    beta2: Any,
    rest2: Any,
    eps: Any,
    weight_decay: Any,
    decoupled: bool = False,
    maximize: bool = False,
) -> Any:
    """Return the parameter and its state after one step of NAdam (Dozat, 2016).

    Args:
        p: The parameter, any shape; ``g``, ``m`` and ``v`` have the same.
        g: Its gradient.
        product: The product of all momenta so far, a scalar.
        m: The moving average of gradients.
        v: The moving average of squared gradients.
        lr: The learning rate.
        mu: The momentum of this step.
        mu_next: The momentum of the next one.
        root: ``sqrt(1 - beta2 ** t)``.
        beta1: The decay of ``m``.
        rest1: ``1 - beta1``.
        beta2: The decay of ``v``.
        rest2: ``1 - beta2``.
        eps: Added to the root of ``v``.
        weight_decay: The decay; where it is decoupled, times ``lr``.
        decoupled: Whether the decay acts on the parameter instead of on the gradient.
        maximize: Whether to ascend.

    Example:
        >>> one = jnp.ones(())
        >>> new = nadam_update(
        ...     one, one, one, one, one, lr=one, mu=0.5 * one, mu_next=0 * one, root=one,
        ...     beta1=one, rest1=0 * one, beta2=one, rest2=0 * one, eps=0 * one,
        ...     weight_decay=0 * one,
        ... )
        >>> [float(x) for x in new]
        [0.0, 0.5, 1.0, 1.0]
    """
    g = -g if maximize else g
    if decoupled:
        p = p * (1 - weight_decay)
    else:
        g = g + weight_decay * p
    product = product * mu
    m = beta1 * m + rest1 * g
    v = beta2 * v + rest2 * (g * g)
    scale = jnp.sqrt(v) / root + eps
    p = p - lr * (1 - mu) / (1 - product) * (g / scale)
    return p - lr * mu_next / (1 - product * mu_next) * (m / scale), product, m, v


class NAdam(Optimizer):
    r"""NAdam: Adam that looks ahead along its momentum, whose strength grows with time.

    .. math::
        μ_t = β_1 (1 - \frac{1}{2} 0.96^{t ψ}) \qquad
        \hat{m}_t = \frac{μ_{t+1} m_t}{1 - \prod_{i=1}^{t+1} μ_i} +
        \frac{(1 - μ_t) g_t}{1 - \prod_{i=1}^{t} μ_i} \\
        θ_t = θ_{t-1} - γ \hat{m}_t / (\sqrt{v_t / (1 - β_2^t)} + ε)

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate γ.
        betas: The decay of the two averages.
        eps: Added to the denominator.
        weight_decay: The decay.
        momentum_decay: How fast the momentum grows, ψ.
        decoupled_weight_decay: Whether to decay as in AdamW.
        foreach: Accepted for PyTorch's sake, as are ``capturable`` and ``differentiable``; they
            change nothing.
        maximize: Whether to ascend.

    Raises:
        ValueError: If a number is out of range.

    Source: ``torch.optim.NAdam``.

    Example:
        >>> w = nn.Parameter(jnp.ones(1))
        >>> optimizer = NAdam([w], lr=0.1)
        >>> optimizer.step([jnp.ones(1)])
        >>> round(float(optimizer.state[w]["mu_product"]), 4)
        0.4501
    """

    _flags = ("maximize", "decoupled_weight_decay")
    _precise = ("betas",)
    _state_names = ("mu_product", "exp_avg", "exp_avg_sq")
    _rule = staticmethod(nadam_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0,
        momentum_decay: Any = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_not_negative(
            "NAdam", lr=lr, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay
        )
        check_betas("NAdam", betas)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "momentum_decay": momentum_decay,
                "decoupled_weight_decay": bool(decoupled_weight_decay),
                "maximize": bool(maximize),
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
            },
        )

    def _begin(self, group: ParamGroup, p: Any) -> dict[str, Any]:
        return {**super()._begin(group, p), "mu_product": jnp.ones((), self._dtype)}

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        lr, decay = group["lr"].value, group["weight_decay"].value
        decoupled = group["decoupled_weight_decay"]
        beta1, beta2 = group["betas"]
        rest1, rest2 = beta1.complement(), beta2.complement()
        t = steps.astype(lr.dtype)
        speed = group["momentum_decay"].value * jnp.log(jnp.asarray(0.96, lr.dtype))
        return dict(
            lr=lr,
            mu=beta1.value * (1 - 0.5 * jnp.exp(t * speed)),
            mu_next=beta1.value * (1 - 0.5 * jnp.exp((t + 1) * speed)),
            root=jnp.sqrt(bias_correction(rest2, steps)),
            beta1=beta1.value,
            rest1=rest1,
            beta2=beta2.value,
            rest2=rest2,
            eps=group["eps"].value,
            weight_decay=lr * decay if decoupled else decay,
            decoupled=decoupled,
            maximize=group["maximize"],
        )
