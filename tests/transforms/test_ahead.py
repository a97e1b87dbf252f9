"""Ahead of time: lowering, compiling, the persistent cache, and warnings of retraces."""

import subprocess
import sys
import textwrap
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import inspection, nn, optim


def make_step():
    @js.jit
    def step(model, optimizer, x):
        loss, grads = js.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
        optimizer.step(grads)
        return {"loss": loss, "grads": grads}

    return step


def make_state(seed=0):
    model = nn.Linear(2, 2, rngs=js.Rngs(seed))
    return model, optim.Adam(model.parameters())


def test_what_was_compiled_ahead_runs_on_objects_and_traces_never():
    step, x = make_step(), jnp.ones((3, 2))
    model, optimizer = make_state()
    before = np.asarray(model.weight)
    compiled = step.lower(model, optimizer, x).compile()
    np.testing.assert_array_equal(model.weight, before)
    assert compiled.memory_analysis() is not None and "HloModule" in compiled.as_text()
    twin = make_state()
    plain = make_step()
    for _ in range(3):
        ours, theirs = compiled(model, optimizer, x), plain(*twin, x)
        np.testing.assert_array_equal(ours["loss"], theirs["loss"])
        assert ours["grads"].boxes == tuple(model.parameters())
    np.testing.assert_array_equal(model.weight, twin[0].weight)
    other = make_state(1)
    compiled(*other, x)
    assert int(other[1].step_count) == 1 and step.trace_count == 1


def test_what_was_compiled_for_something_else_is_refused_and_nothing_changes():
    step = make_step()
    state = make_state()
    compiled = step.lower(*state, jnp.ones((3, 2))).compile()
    with pytest.raises(TypeError, match="another structure"):
        compiled(state[0].eval(), state[1], jnp.ones((3, 2)))
    state[0].train()
    before = np.asarray(state[0].weight)
    with pytest.raises(TypeError, match=r"array argument 0 as float32\[3, 2\].*float32\[4, 2\]"):
        compiled(*state, jnp.ones((4, 2)))
    np.testing.assert_array_equal(state[0].weight, before)
    compiled(*state, jnp.ones((3, 2)))


def test_a_call_after_lowering_uses_its_trace():
    step, x = make_step(), jnp.ones((3, 2))
    state = make_state()
    step.lower(*state, x)
    step(*state, x)
    assert step.trace_count == 1


def test_the_persistent_cache_is_used_by_another_process(tmp_path):
    program = textwrap.dedent(
        """
        import jax, sys
        import jax.numpy as jnp
        import jaxsaw as js
        from jaxsaw import nn
        jax.config.update("jax_compilation_cache_dir", sys.argv[1])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        events = []
        jax.monitoring.register_event_listener(lambda event, **kwargs: events.append(event))
        model = nn.Linear(2, 2, rngs=js.Rngs(0))
        before = len(events)
        def named(m, x):
            m.bias.value = m.bias + 1
            return m(x)
        js.jit(named)(model, jnp.ones(2))
        print(sum("cache_hits" in event for event in events[before:]) > 0)
        """
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    said = [subprocess.check_output(command, text=True).strip() for _ in range(2)]
    assert said == ["False", "True"]


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Dropout(0.5)
        self.scale = 1.0

    def forward(self, x):
        return x * self.scale


def test_many_traces_for_one_reason_warn_once_and_name_the_attribute():
    model = nn.Sequential(Scaled())
    f = js.jit(lambda m, x: m(x))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(12):
            model[0].scale = float(i)
            f(model, 1.0)
    (warning,) = caught
    assert "0: scale" in str(warning.message) and "js.Variable" in str(warning.message)
    lines = inspection.retraces(f)
    assert len(lines) == 12 and "0: scale from '1.0' to '2.0'" in lines[2]


def test_many_shapes_of_an_argument_warn_once():
    f = js.jit(lambda x: x * 2)
    with pytest.warns(UserWarning, match="array argument 0.*pad"):
        for n in range(12):
            f(jnp.ones(n))


def test_generators_and_coroutines_are_refused():
    def numbers():
        yield 1

    async def later():
        return 1

    for fn in (numbers, later):
        with pytest.raises(TypeError, match="generator"):
            js.jit(fn)
