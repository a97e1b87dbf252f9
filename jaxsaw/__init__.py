"""jaxsaw: PyTorch's habits on JAX, at the price of raw JAX."""

from jax import random
from jax.lax import stop_gradient

from jaxsaw.rngs import Rngs
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.branches import cond, switch
from jaxsaw.transforms.checks import checkify
from jaxsaw.transforms.derivatives import hessian, jacfwd, jacrev, jvp, linearize, vjp
from jaxsaw.transforms.functional import eval_shape, merge, split
from jaxsaw.transforms.grad import grad, value_and_grad
from jaxsaw.transforms.grads import Grads
from jaxsaw.transforms.jit import JitFunction, jit
from jaxsaw.transforms.loops import associative_scan, fori_loop, scan, while_loop
from jaxsaw.transforms.remat import remat
from jaxsaw.transforms.stack import stack, unstack
from jaxsaw.transforms.vmap import vmap

__version__ = "0.1.0"

__all__ = [
    "Grads",
    "JitFunction",
    "Rngs",
    "Stateful",
    "Variable",
    "associative_scan",
    "checkify",
    "cond",
    "eval_shape",
    "fori_loop",
    "grad",
    "hessian",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "linearize",
    "merge",
    "random",
    "remat",
    "scan",
    "split",
    "stack",
    "stop_gradient",
    "switch",
    "unstack",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
