"""Adafactor, whose second moments of matrices are a row and a column."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.optim.checks import check_between, check_not_negative, check_real
from jaxsaw.optim.group import ParamGroup
from jaxsaw.optim.optimizer import Optimizer
from jaxsaw.optim.rule import rule
from jaxsaw.state.variable import Variable

Array = jax.Array


@rule("resolve", "maximize", "dtype")
def adafactor_update(
    p: Any,
    g: Any,
    row: Any,
    column: Any,
    variance: Any,
    *,
    rate: Any,
    rest: Any,
    eps1: Any,
    eps2: Any,
    d: Any,
    weight_decay: Any,
    resolve: bool = False,
    maximize: bool = False,
    dtype: Any = None,
) -> Any:
    """Return the parameter and its state after one step of Adafactor (Shazeer and Stern, 2018).

    Args:
        p: The parameter, any shape; ``g`` has the same.
        g: Its gradient.
        row: The moving average of each row's mean squared gradient, (..., A, 1), or None.
        column: That of each column, (..., 1, B), or None.
        variance: The average of squared gradients where there are no rows, or None.
        rate: ``min(lr, 1 / sqrt(t))``.
        rest: ``t ** beta2_decay``, the weight of the newest gradient.
        eps1: The least root of a second moment.
        eps2: The least root mean square of a parameter.
        d: The largest root mean square of a step.
        weight_decay: The decay of the parameter, times ``lr``.
        resolve: Whether to take what the dtype can resolve in the place of ``eps1``.
        maximize: Whether to ascend.
        dtype: The dtype of the parameter.

    Example:
        >>> one = jnp.ones(())
        >>> new = adafactor_update(
        ...     jnp.full(2, 4.0), jnp.ones(2), None, None, jnp.zeros(2), rate=0.25 * one, rest=one,
        ...     eps1=0 * one, eps2=0 * one, d=one, weight_decay=0 * one,
        ... )
        >>> new[0]
        Array([3., 3.], dtype=float32)
    """
    g = -g if maximize else g
    eps1 = jnp.asarray(jnp.finfo(dtype).eps, p.dtype) if resolve else eps1
    alpha = jnp.maximum(eps2, _rms(p)) * rate
    p = p * (1 - weight_decay)
    squares = g * g
    if row is not None:
        row = row + rest * (squares.mean(-1, keepdims=True) - row)
        column = column + rest * (squares.mean(-2, keepdims=True) - column)
        moment = row * column / jnp.maximum(row.mean(-2, keepdims=True), eps1)
    else:
        moment = variance = variance + rest * (squares - variance)
    step = g * jax.lax.rsqrt(jnp.maximum(moment, eps1 * eps1))
    return p - alpha / jnp.maximum(1, _rms(step) / d) * step, row, column, variance


def _rms(x: Any) -> Any:
    return jnp.sqrt((x * x).mean())


class Adafactor(Optimizer):
    r"""Adafactor: Adam's second moment from the means of rows and columns, without a first one.

    .. math::
        R_t = R_{t-1} + t^τ (\overline{G_t^2} - R_{t-1}) \text{ by row, } C_t \text{ by column}
        \qquad V_t = R_t C_t / \max(\overline{R_t}, ε_1) \\
        U_t = G_t / \max(\sqrt{V_t}, ε_1) \qquad
        θ_t = θ_{t-1} - \frac{\max(ε_2, \mathrm{RMS}(θ_{t-1})) \min(γ, 1 / \sqrt{t})}
        {\max(1, \mathrm{RMS}(U_t) / d)} U_t

    Args:
        params: Parameters, ``(name, Parameter)`` pairs, or groups.
        lr: The largest learning rate γ, and the factor of the decay.
        beta2_decay: The power τ by which the weight of the newest gradient falls.
        eps: The least root of a second moment (None: what the dtype can resolve), and the least
            root mean square of a Parameter.
        d: The largest root mean square of a step.
        weight_decay: The decay, apart from the gradient.
        foreach: Accepted for PyTorch's sake; it changes nothing.
        maximize: Whether to ascend.

    Raises:
        ValueError: If a number is out of range, or a Parameter is complex.

    Source: ``torch.optim.Adafactor``.

    Example:
        >>> w = nn.Parameter(jnp.ones((2, 3)))
        >>> optimizer = Adafactor([w])
        >>> {name: box.shape for name, box in optimizer.state[w].items()}
        {'row_var': (2, 1), 'col_var': (1, 3)}
    """

    _flags = ("maximize",)
    _state_names = ("row_var", "col_var", "variance")
    _rule = staticmethod(adafactor_update)

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        beta2_decay: Any = -0.8,
        eps: tuple[Any, Any] = (None, 1e-3),
        d: Any = 1.0,
        weight_decay: Any = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        if not isinstance(eps, tuple | list) or len(eps) != 2:
            raise TypeError(f"Adafactor: eps must be two numbers (the first or None), got {eps!r}.")
        check_not_negative("Adafactor", lr=lr, weight_decay=weight_decay)
        check_not_negative("Adafactor", **{"eps[0]": eps[0] or 0, "eps[1]": eps[1]})
        check_between("Adafactor", -np.inf, 0, beta2_decay=beta2_decay)
        check_between("Adafactor", 1, np.inf, d=d)
        super().__init__(
            params,
            {
                "lr": lr,
                "beta2_decay": beta2_decay,
                "eps": tuple(eps),
                "d": d,
                "weight_decay": weight_decay,
                "foreach": foreach,
                "maximize": bool(maximize),
            },
        )

    def _check(self, name: str, p: Any) -> None:
        check_real("Adafactor", name, p)

    def _begin(self, group: ParamGroup, p: Any) -> dict[str, Any]:
        if p.ndim < 2:
            return {"variance": jnp.zeros_like(p)}
        *most, rows, columns = p.shape
        return {
            "row_var": jnp.zeros((*most, rows, 1), p.dtype),
            "col_var": jnp.zeros((*most, 1, columns), p.dtype),
        }

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        lr = group["lr"].value
        t = steps.astype(lr.dtype)
        least, smallest = (x.value if isinstance(x, Variable) else x for x in group["eps"])
        return dict(
            rate=jnp.minimum(lr, jax.lax.rsqrt(t)),
            rest=jnp.exp(group["beta2_decay"].value * jnp.log(t)),
            eps1=lr * 0 if least is None else least,
            eps2=jnp.asarray(smallest, lr.dtype),
            d=group["d"].value,
            weight_decay=lr * group["weight_decay"].value,
            resolve=least is None,
            maximize=group["maximize"],
        )
