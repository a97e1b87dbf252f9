"""Mixed precision: what dtype parameters are kept in, computed with, and returned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.nn._factory import as_dtype
from jaxsaw.nn.module import Module
from jaxsaw.nn.parameter import Parameter
from jaxsaw.state.node import Node
from jaxsaw.state.scope import Scope

Self = TypeVar("Self", bound=Module)


@dataclass(frozen=True)
class Policy:
    """Three dtypes: of the Parameters, of the computation, and of what is returned.

    Args:
        param: What Parameters and Buffers are kept in, and so what gradients and the optimizer's
            state are in.
        compute: What a module's floating inputs and Parameters are cast to when it is called.
        output: What its floating outputs are cast to.

    Raises:
        TypeError: If one isn't a floating dtype.

    Example:
        >>> nn.Policy(compute="float16").compute
        dtype('float16')
    """

    param: Any = "float32"
    compute: Any = "bfloat16"
    output: Any = "float32"

    def __post_init__(self) -> None:
        for name in ("param", "compute", "output"):
            dtype = as_dtype(getattr(self, name))
            if not jax.dtypes.issubdtype(dtype, np.floating):
                raise TypeError(f"Policy: expected {name} to be a floating dtype, got {dtype}.")
            object.__setattr__(self, name, dtype)

    def call(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call ``forward`` of a module with the dtypes of this policy.

        Args:
            module: The module.
            args: The arguments.
            kwargs: Those by name.
        """
        args, kwargs = _cast((args, kwargs), self.compute)
        values = {
            box: box.value.astype(self.compute)
            for box in _governed(module)
            if jax.dtypes.issubdtype(box.dtype, np.floating)
        }
        with Scope(values) as scope:
            result = module.forward(*args, **kwargs)
        scope.commit(
            {
                box: scope.values[box].astype(box.dtype) if box in values else scope.values[box]
                for box in scope.written
            }
        )
        return _cast(result, self.output)


def apply_policy(module: Self, policy: Policy | None) -> Self:
    """Let a module, with all inside it, be computed by a policy.

    The Parameters are cast to ``policy.param`` now. When the module is called, its inputs are cast
    to ``policy.compute``, and so are its Parameters as the modules inside see them; the gradients
    are those of the Parameters themselves. Buffers stay as they are. Norms, softmax and losses add
    up in float32 in any case. A module inside with a policy of its own goes by that.

    Args:
        module: The module.
        policy: The policy; None takes it away.

    Returns:
        The module.

    Example:
        >>> model = nn.apply_policy(nn.Linear(3, 2, rngs=js.Rngs(params=0)), nn.Policy())
        >>> model.weight.dtype, model(jnp.ones((1, 3))).dtype
        (dtype('float32'), dtype('float32'))
        >>> str(jax.make_jaxpr(model)(jnp.ones((1, 3)))).count("bf16") > 0
        True
    """
    if policy is not None:
        module.to(policy.param)
    module._check_assignable("a policy")
    hooks = {kind: entries for kind, entries in (module._hooks or {}).items() if kind != "policy"}
    if policy is not None:
        hooks["policy"] = {0: (policy,)}
    module._set_hooks(hooks)
    return module


def _governed(module: Module) -> Iterator[Parameter]:
    """Yield the Parameters of a module, without those of modules with a policy of their own."""
    seen: set[Module] = set()
    found: dict[Parameter, None] = {}
    stack = [module]
    while stack:
        part = stack.pop()
        if part in seen or (part is not module and "policy" in (part._hooks or {})):
            continue
        seen.add(part)
        found.update(dict.fromkeys(part.parameters(recurse=False)))
        stack.extend(part.children())
    yield from found


def _cast(tree: Any, dtype: Any) -> Any:
    """Return a pytree with all arrays of floats cast."""

    def cast(leaf: Any) -> Any:
        floating = hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, np.floating)
        if isinstance(leaf, Node) or not floating:
            return leaf
        return jnp.asarray(leaf).astype(dtype)

    return jax.tree.map(cast, tree, is_leaf=lambda leaf: isinstance(leaf, Node))
