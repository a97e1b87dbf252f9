"""Which releases of JAX ``jaxsaw._jax`` was seen to work on, and what it needs of them.

When a test here fails with a new JAX, ``jaxsaw/_jax.py`` is the one file to mend. Add the release
to SEEN once all of them pass.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import _jax

SEEN = ("0.5.3", "0.10.2")


def says(what):
    return f"jaxsaw._jax: {what} doesn't work with JAX {jax.__version__} (it did with {SEEN})."


def test_this_release_is_one_that_was_seen_or_lies_between():
    def number(version):
        return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())

    assert number(SEEN[0]) <= number(jax.__version__), says("a release before the first")
    if number(jax.__version__) > number(SEEN[-1]):
        pytest.skip(f"JAX {jax.__version__} is newer than any that was seen; the rest must pass.")


def test_the_current_trace_is_known():
    assert _jax.current_trace() is _jax.EVAL, says("EVAL")
    inside = []
    jax.make_jaxpr(lambda x: inside.append(_jax.current_trace()) or x)(1.0)
    assert inside[0] is not _jax.EVAL, says("current_trace")
    assert _jax.current_trace() is _jax.EVAL, says("current_trace")
    assert _jax.trace_context.trace is _jax.EVAL, says("trace_context")


def test_the_current_trace_can_be_set():
    def f(x):
        outer = _jax.current_trace()

        def g(y):
            assert _jax.current_trace() is not outer, says("current_trace")
            with _jax.set_current_trace(outer):
                assert _jax.current_trace() is outer, says("set_current_trace")
            return y

        return jax.vmap(g)(x)

    jax.make_jaxpr(f)(jnp.ones(3))


def test_reads_of_boxes_become_inputs():
    aval = _jax.typeof(jnp.ones(3))

    def f(x):
        trace = _jax.current_trace()
        a = _jax.bind_read(trace, 7, aval)
        _, ys = jax.lax.scan(lambda c, y: (c, y + _jax.bind_read(trace, 3, aval)), 0.0, x)
        return a + 2.0, ys

    closed = jax.make_jaxpr(f)(jnp.zeros((2, 3)))
    closed, captured = _jax.lift_reads(closed, [3, 7])
    assert captured == [], says("lift_reads")
    assert len(closed.jaxpr.invars) == 3, says("lift_reads")
    assert not any(eqn.primitive is _jax.read_p for eqn in closed.jaxpr.eqns)
    args = [jnp.full(3, 1.0), jnp.full(3, 5.0), jnp.zeros((2, 3))]
    for run in (_jax.eval_jaxpr, lambda c, a: jax.jit(lambda *a: _jax.call_jaxpr(c, a, "f"))(*a)):
        first, second = run(closed, args)
        np.testing.assert_array_equal(first, np.full(3, 7), says("lift_reads"))
        np.testing.assert_array_equal(second, np.ones((2, 3)), says("lift_reads"))


def test_a_jaxpr_is_called_as_one_equation_and_can_be_transformed():
    closed = jax.make_jaxpr(lambda x: x * x)(1.0)

    def call(x):
        return _jax.call_jaxpr(closed, [x], "square")[0]

    eqns = jax.make_jaxpr(call)(3.0).jaxpr.eqns
    assert [eqn.primitive for eqn in eqns] == [_jax.jit_p], says("call_jaxpr")
    assert eqns[0].params["name"] == "square"
    assert float(jax.jit(call)(3.0)) == 9, says("call_jaxpr")
    assert float(jax.grad(call)(3.0)) == 6, says("call_jaxpr")
    np.testing.assert_array_equal(jax.vmap(call)(jnp.arange(3.0)), [0, 1, 4], says("call_jaxpr"))


def test_copies_of_boxes_are_arrays_of_their_own():
    def f(x):
        return x, _jax.copy_p.bind(x)

    x = jnp.ones(3)
    a, b = jax.jit(f, donate_argnums=0)(x)
    assert a.unsafe_buffer_pointer() != b.unsafe_buffer_pointer(), says("copy_p")
    np.testing.assert_array_equal(_jax.copy_p.bind(b), b)
    assert float(jax.grad(lambda x: _jax.copy_p.bind(x) * 2.0)(jnp.ones(()))) == 2, says("copy_p")
    np.testing.assert_array_equal(jax.vmap(_jax.copy_p.bind)(jnp.ones(3)), np.ones(3))


def test_programs_that_may_call_back_are_recognised():
    shape = jax.ShapeDtypeStruct((), jnp.float32)

    def pure(x):
        return jax.pure_callback(lambda x: x, shape, x)

    def io(x):
        return jax.experimental.io_callback(lambda x: x, shape, x)

    for f in (pure, io, jax.jit(pure), lambda x: jax.lax.cond(x > 0, io, lambda x: x, x)):
        assert _jax.may_raise(jax.make_jaxpr(f)(1.0).jaxpr), says("may_raise")
    assert not _jax.may_raise(jax.make_jaxpr(jax.jit(lambda x: x + 1.0))(1.0).jaxpr)


def test_boxes_stand_wherever_jax_takes_an_array():
    box = js.Variable(jnp.full(3, 2.0))
    assert isinstance(box, jax.Array), says("register_box")
    calls = {
        "jnp": lambda: jnp.maximum(box, 0),
        "lax": lambda: jax.lax.add(box, box) / 2.0,
        "jit": lambda: jax.jit(lambda x: x * 1.0)(box),
        "asarray": lambda: jnp.asarray(box),
        "operator": lambda: jnp.ones(3) * box,
        "vmap": lambda: jax.vmap(lambda x: x)(box),
        "scan": lambda: jax.lax.scan(lambda c, x: (c, x), 0, box)[1],
        "traced": lambda: jax.jit(lambda: jnp.maximum(box, 0))(),
        "where": lambda: jnp.where(box > 0, box, 0.0),
    }
    for name, call in calls.items():
        np.testing.assert_array_equal(call(), np.full(3, 2), says(f"register_box ({name})"))
    assert jnp.result_type(box) == jnp.float32 and jnp.shape(box) == (3,)


def test_a_program_for_an_array_refuses_a_box():
    seen = []
    f = js.jit(lambda x: seen.append(type(x)) or x * 1.0)
    f(jnp.ones(3))
    f(js.Variable(jnp.ones(3)))
    assert len(seen) == 2 and seen[1] is js.Variable, says("the check of arguments' avals")


def test_the_fast_path_can_be_cleared_without_compiling_again():
    traces = []
    f = jax.jit(lambda x: traces.append(x) or x)
    f(1.0)
    _jax.clear_fast_path(f)
    assert float(f(1.0)) == 1.0


def test_settings_can_be_read():
    assert not (_jax.debug_nans.value or _jax.debug_infs.value or _jax.disable_jit.value)
    with jax.debug_nans(True), jax.disable_jit():
        assert _jax.debug_nans.value and _jax.disable_jit.value, says("settings")
    key = _jax.trace_key()
    with jax.default_matmul_precision("highest"):
        assert _jax.trace_key() != key, says("trace_key")
    assert _jax.trace_key() == key and hash(key) == hash(_jax.trace_key())


def test_array_types_are_those_of_arrays_and_keys():
    assert isinstance(jnp.ones(3), _jax.ARRAY_TYPES), says("ARRAY_TYPES")
    assert isinstance(jax.random.key(0), _jax.ARRAY_TYPES), says("ARRAY_TYPES")
