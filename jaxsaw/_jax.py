"""All that jaxsaw needs of JAX's internals, in one place.

Five things: which trace is current, how to bind a primitive in another trace, how to call a
jaxpr as one equation, how to make a class of our own count as an array, and which names moved
between releases. ``tests/test_jax_internals.py`` says which versions they were seen to work on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
from jax._src import api_util, array, core, dispatch, dtypes, mesh, pjit
from jax._src import config as _config
from jax._src.interpreters import ad, batching, mlir, pxla
from jax._src.sharding_impls import UNSPECIFIED

try:
    from jax._src.random import prng
except ImportError:
    from jax._src import prng  # before 0.10

Tracer = jax.core.Tracer
EVAL = core.eval_trace
Literal = core.Literal

# Old releases let a class become an array by registration, new ones only by inheritance.
ArrayBase: Any = jax.Array if TYPE_CHECKING or not hasattr(jax.Array, "register") else object

# The classes of arrays and of typed keys; making one of either would start a backend.
ARRAY_TYPES = (array.ArrayImpl, prng.PRNGKeyArray)

# ``trace_context.trace is EVAL`` asks at the lowest price whether this thread is tracing.
trace_context = core.trace_ctx
set_current_trace = core.set_current_trace
typeof = core.typeof
debug_nans = _config.debug_nans
debug_infs = _config.debug_infs
disable_jit = _config.disable_jit
enable_x64 = _config.enable_x64
trace_key = _config.trace_context

_InternalFloatingPointError = (
    getattr(api_util, "InternalFloatingPointError", None) or dispatch.InternalFloatingPointError
)
jit_p = getattr(pjit, "jit_p", None) or pjit.pjit_p


def current_trace() -> Any:
    """Return the trace in which operations of this thread are recorded now."""
    return trace_context.trace


read_p = core.Primitive("read_box")
read_p.def_abstract_eval(lambda *, box, aval: aval)


def bind_read(trace: Any, box: int, aval: Any) -> Any:
    """Return a tracer of ``trace`` that stands for the value of box number ``box``."""
    with set_current_trace(trace):
        return read_p.bind(box=box, aval=aval)


def lift_reads(closed: Any, order: Sequence[int]) -> tuple[Any, list[Any]]:
    """Return ``closed`` with its ``read_box`` equations turned into leading inputs.

    Args:
        closed: A jaxpr traced while boxes were read with :func:`bind_read`.
        order: The box numbers in the order that the inputs shall have; each occurs in ``closed``.

    Returns:
        The jaxpr, and tracers of enclosing traces that it closed over, which are its last inputs.
    """
    jaxpr = closed.jaxpr
    reads = {eqn.params["box"]: eqn.outvars[0] for eqn in jaxpr.eqns if eqn.primitive is read_p}
    eqns = [eqn for eqn in jaxpr.eqns if eqn.primitive is not read_p]
    constants = list(zip(jaxpr.constvars, closed.consts, strict=True))
    kept = [(var, const) for var, const in constants if not isinstance(const, Tracer)]
    captured = [(var, const) for var, const in constants if isinstance(const, Tracer)]
    invars = [reads[number] for number in order] + list(jaxpr.invars) + [v for v, _ in captured]
    names = getattr(jaxpr, "debug_info", None)
    if names is not None and getattr(names, "arg_names", None) is not None:
        # The debug information of new releases counts the inputs.
        boxes = tuple(f"box{number}" for number in order)
        outer = tuple(f"captured{i}" for i in range(len(captured)))
        names = names._replace(arg_names=(*boxes, *names.arg_names, *outer))
    jaxpr = jaxpr.replace(
        constvars=[var for var, _ in kept], invars=invars, eqns=eqns, debug_info=names
    )
    return core.ClosedJaxpr(jaxpr, [const for _, const in kept]), [const for _, const in captured]


def call_jaxpr(closed: Any, args: Sequence[Any], name: str) -> list[Any]:
    """Run ``closed`` on ``args`` as one ``jit`` equation of the current trace."""
    n_in, n_out = len(args), len(closed.jaxpr.outvars)
    return jit_p.bind(
        *args,
        jaxpr=closed,
        in_shardings=(UNSPECIFIED,) * n_in,
        out_shardings=(UNSPECIFIED,) * n_out,
        in_layouts=(None,) * n_in,
        out_layouts=(None,) * n_out,
        donated_invars=(False,) * n_in,
        ctx_mesh=mesh.get_concrete_mesh(),
        name=name,
        keep_unused=False,
        inline=False,
        compiler_options_kvs=(),
    )


def eval_jaxpr(closed: Any, args: Sequence[Any]) -> list[Any]:
    """Run ``closed`` on ``args``, one operation after the other."""
    try:
        return core.eval_jaxpr(closed.jaxpr, closed.consts, *args)
    except _InternalFloatingPointError as error:  # of a jit inside, under debug_nans
        raise FloatingPointError(f"invalid value ({error.args[-1]}) in {error.args[0]}") from None


copy_p = core.Primitive("copy_box")
copy_p.def_impl(lambda x: x.copy())
copy_p.def_abstract_eval(lambda x: x)
mlir.register_lowering(copy_p, lambda ctx, x: [x])
ad.deflinear2(copy_p, lambda ct, _: [ct])
batching.defvectorized(copy_p)


def is_batched(value: Any) -> bool:
    """Return whether ``value`` is another one for each lane of the ``vmap`` that is traced now."""
    return (
        isinstance(value, batching.BatchTracer)
        and value._trace is current_trace()
        and value.batch_dim is not None
    )


def clear_fast_path(jitted: Any) -> None:
    """Have a ``jax.jit`` function look up its executables anew; nothing is compiled again."""
    jitted._clear_cache()


def may_raise(jaxpr: Any) -> bool:
    """Return whether running ``jaxpr`` can call back into Python, which may raise."""
    waiting, seen = [jaxpr], set()  # an inner jit that is called often has one jaxpr
    while waiting:
        for eqn in waiting.pop().eqns:
            if "callback" in eqn.primitive.name:
                return True
            for value in eqn.params.values():
                for part in value if isinstance(value, tuple | list) else (value,):
                    inner = getattr(part, "jaxpr", part)
                    if hasattr(inner, "eqns") and id(inner) not in seen:
                        seen.add(id(inner))
                        waiting.append(inner)
    return False


def register_box(cls: type, read: Callable[[Any], Any], aval: Callable[[Any], Any]) -> None:
    """Let instances of ``cls`` stand wherever JAX takes an array.

    Args:
        cls: The class of boxes; subclasses count too where JAX looks at the MRO.
        read: Gives the array in a box.
        aval: Gives the abstract value of the array in a box.
    """
    core.pytype_aval_mappings[cls] = aval

    def shard(boxes: Any, *rest: Any) -> Any:
        return pxla.shard_args(*rest, [read(box) for box in boxes])

    pxla.shard_arg_handlers[cls] = shard
    if hasattr(dtypes, "register_canonicalize_value_handler"):
        dtypes.register_canonicalize_value_handler(cls, read)
    else:
        _register_box_before_canonicalization(cls, read)


def _register_box_before_canonicalization(cls: type, read: Callable[[Any], Any]) -> None:
    from jax._src.interpreters import partial_eval as pe
    from jax._src.interpreters import xla

    xla.canonicalize_dtype_handlers[cls] = read
    trace = pe.DynamicJaxprTrace
    if not hasattr(trace, "_jaxsaw_boxes"):
        trace._jaxsaw_boxes = ()
        to_tracer = trace.to_jaxpr_tracer

        def to_jaxpr_tracer(self: Any, x: Any) -> Any:
            return to_tracer(self, read(x) if isinstance(x, trace._jaxsaw_boxes) else x)

        trace.to_jaxpr_tracer = to_jaxpr_tracer
        process = core.EvalTrace.process_primitive

        def process_primitive(self: Any, primitive: Any, args: Any, params: Any) -> Any:
            args = [read(x) if isinstance(x, trace._jaxsaw_boxes) else x for x in args]
            return process(self, primitive, args, params)

        core.EvalTrace.process_primitive = process_primitive
    trace._jaxsaw_boxes = (*trace._jaxsaw_boxes, cls)
    jax.Array.register(cls)
