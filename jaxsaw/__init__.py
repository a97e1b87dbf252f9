"""jaxsaw: PyTorch's habits on JAX, at the price of raw JAX."""

from jax import random
from jax.lax import stop_gradient

from jaxsaw.rngs import Rngs
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.functional import eval_shape, merge, split
from jaxsaw.transforms.grad import grad, value_and_grad
from jaxsaw.transforms.grads import Grads
from jaxsaw.transforms.jit import JitFunction, jit

__version__ = "0.1.0"

__all__ = [
    "Grads",
    "JitFunction",
    "Rngs",
    "Stateful",
    "Variable",
    "eval_shape",
    "grad",
    "jit",
    "merge",
    "random",
    "split",
    "stop_gradient",
    "value_and_grad",
]
