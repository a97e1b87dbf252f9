"""Adam and its variant with decoupled weight decay."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxsaw.optim.checks import check_betas, check_engine, check_not_negative
from jaxsaw.optim.group import ParamGroup, bias_correction
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import rule

Array = jax.Array


@rule("decoupled", "maximize")
def adam_update(
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    largest: Any = None,
    *,
    step_size: Any,
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
    """Return the parameter and its moments after one step of Adam (Kingma and Ba, 2015).

    Args:
        p: The parameter, any shape; ``g``, ``m``, ``v`` and ``largest`` have the same.
        g: Its gradient.
        m: The moving average of gradients.
        v: The moving average of squared gradients.
        largest: With AMSGrad (Reddi et al., 2018), the largest ``v`` so far.
        step_size: ``lr / (1 - beta1 ** t)``.
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
        >>> new = adam_update(
        ...     one, one, 0 * one, 0 * one, step_size=one, root=one, beta1=0.9 * one,
        ...     rest1=0.1 * one, beta2=0.75 * one, rest2=0.25 * one, eps=0 * one,
        ...     weight_decay=0 * one,
        ... )
        >>> [round(float(x), 2) for x in new[:3]]
        [0.8, 0.1, 0.25]
    """
    g = -g if maximize else g
    if decoupled:
        p = p * (1 - weight_decay)
    else:
        g = g + weight_decay * p
    m = beta1 * m + rest1 * g
    v = beta2 * v + rest2 * (g * g)
    if largest is not None:
        largest = jnp.maximum(largest, v)
    scale = jnp.sqrt(v if largest is None else largest) / root + eps
    return p - step_size * (m / scale), m, v, largest


class Adam(Optimizer):
    r"""Adam: steps by the mean gradient over the root of the mean squared gradient.

    .. math::
        m_t = β_1 m_{t-1} + (1 - β_1) g_t \qquad v_t = β_2 v_{t-1} + (1 - β_2) g_t^2 \\
        θ_t = θ_{t-1} - γ \frac{m_t / (1 - β_1^t)}{\sqrt{v_t / (1 - β_2^t)} + ε}

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate γ.
        betas: The decay of the two averages.
        eps: Added to the denominator.
        weight_decay: Times the parameter, added to the gradient.
        amsgrad: Whether to divide by the largest average so far.
        foreach: Accepted for PyTorch's sake, as are ``capturable``, ``differentiable`` and
            ``fused``; they change nothing.
        maximize: Whether to ascend.
        decoupled_weight_decay: Whether to decay as :class:`AdamW` does.

    Raises:
        ValueError: If a number is out of range.

    Source: ``torch.optim.Adam``.

    Example:
        >>> model = nn.Linear(2, 1, rngs=js.Rngs(0))
        >>> optimizer = Adam(model.parameters(), lr=0.01)
        >>> optimizer.step(js.grad(lambda m: m(jnp.ones((1, 2))).sum())(model))
        >>> int(optimizer.step_count), model.bias.value
        (1, Array([-0.01], dtype=float32))
    """

    _flags = ("amsgrad", "maximize", "decoupled_weight_decay")
    _precise = ("betas",)
    _state_names = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
    _rule = staticmethod(adam_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        who = type(self).__name__
        check_not_negative(who, lr=lr, eps=eps, weight_decay=weight_decay)
        check_betas(who, betas)
        check_engine(who, fused, foreach, differentiable)
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": tuple(betas),
                "eps": eps,
                "weight_decay": weight_decay,
                "amsgrad": bool(amsgrad),
                "maximize": bool(maximize),
                "foreach": foreach,
                "capturable": capturable,
                "differentiable": differentiable,
                "fused": fused,
                "decoupled_weight_decay": bool(decoupled_weight_decay),
            },
        )

    def _slots(self, group: ParamGroup) -> tuple[str, ...]:
        return self._state_names if group["amsgrad"] else self._state_names[:2]

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        lr, decay = group["lr"].value, group["weight_decay"].value
        decoupled = group["decoupled_weight_decay"]
        beta1, beta2 = group["betas"]
        rest1, rest2 = beta1.complement(), beta2.complement()
        return dict(
            step_size=lr / bias_correction(rest1, steps),
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


class AdamW(Adam):
    """Adam with a weight decay that doesn't go through the averages.

    Each step multiplies the parameter by ``1 - lr * weight_decay``, then does Adam's step.

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The learning rate.
        betas: The decay of the two averages.
        eps: Added to the denominator.
        weight_decay: The decay.
        amsgrad: Whether to divide by the largest average so far.
        maximize: Whether to ascend.
        foreach: Accepted for PyTorch's sake, as are ``capturable``, ``differentiable`` and
            ``fused``; they change nothing.

    Raises:
        ValueError: If a number is out of range.

    Source: ``torch.optim.AdamW``.

    Example:
        >>> w = nn.Parameter(jnp.ones(1))
        >>> AdamW([w], lr=0.1, weight_decay=0.5).step([jnp.zeros(1)])
        >>> w.value
        Array([0.95], dtype=float32)
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )
