"""Programs, their costs, and why they were made."""

import jax
import jax.numpy as jnp
import pytest

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.inspection import Cost, cost, hlo, jaxpr, retraces


def make():
    model = nn.Linear(4, 2, rngs=js.Rngs(0))
    count = js.Variable(jnp.zeros((), jnp.int32))

    @js.jit
    def step(model, x):
        count.value += 1
        return model(x)

    return model, count, step


def test_jaxpr_has_state_among_inputs_and_outputs():
    model, count, step = make()
    closed = jaxpr(step, model, jnp.ones((3, 4)))
    inputs = [v.aval.shape for v in closed.jaxpr.invars]
    assert sorted(inputs) == sorted([(), (2, 4), (2,), (3, 4)])
    assert [v.aval.shape for v in closed.jaxpr.outvars] == [(3, 2), ()]
    assert not closed.consts
    assert "dot_general" in str(closed)
    assert int(count) == 0
    assert step.trace_count == 0


@pytest.mark.parametrize("wrap", [lambda f: f, js.jit])
def test_jaxpr_of_plain_functions(wrap):
    closed = jaxpr(wrap(lambda x, y: {"z": x * y["a"]}), 2.0, {"a": jnp.ones(3)})
    assert [eqn.primitive.name for eqn in closed.jaxpr.eqns] == ["mul"]


def test_jaxpr_of_a_module():
    assert "dot_general" in str(jaxpr(nn.Linear(4, 2, rngs=js.Rngs(0)), jnp.ones((3, 4))))


def test_jaxpr_keeps_no_new_stream():
    rngs = js.Rngs(0)
    text = str(jaxpr(lambda: jax.random.normal(rngs.next("noise"), (3,))))
    assert "random" in text or "threefry" in text
    assert rngs.counts == {}


def test_hlo_is_the_compiled_program():
    model, count, step = make()
    text = hlo(step, model, jnp.ones((3, 4)))
    assert text.startswith("HloModule")
    assert "f32[3,4]" in text
    assert int(count) == 0


def test_cost_of_a_matrix_product():
    a = jnp.ones((64, 128))
    found = cost(lambda a: a @ a.T, a)
    assert found.flops == pytest.approx(2 * 64 * 64 * 128, rel=0.05)
    assert found.argument_bytes == a.nbytes
    assert found.output_bytes == 64 * 64 * 4
    assert found.peak_memory >= found.output_bytes
    assert found.bytes_accessed >= a.nbytes + 64 * 64 * 4


def test_looking_leaves_no_trace():
    model, count, step = make()
    x = jnp.ones((3, 4))
    cost(step, model, x), hlo(step, model, x), jaxpr(step, model, x)
    assert len(retraces(step)) == 0
    step(model, x)
    assert list(retraces(step)) == ["first call"]
    assert int(count) == 1


def test_cost_as_text():
    assert str(Cost(1234567.0, None, 3 << 20, 512, 2048, None)).splitlines() == [
        "FLOPs           1,234,567",
        "bytes accessed  unknown",
        "peak memory     3 MiB",
        "  arguments     512 B",
        "  results       2 KiB",
        "  in between    unknown",
    ]


def test_retraces_say_why():
    model, _, step = make()
    step(model, jnp.ones((3, 4)))
    step(model, jnp.ones((3, 4)))
    assert len(retraces(step)) == 1
    step(model, jnp.ones((5, 4)))
    model.eval()
    step(model, jnp.ones((5, 4)))
    found = retraces(step)
    assert len(found) == 3 == step.trace_count
    assert found[0] == "first call"
    assert "[3,4]" in found[1] and "[5,4]" in found[1]
    assert "training" in found[2]
    assert str(found).splitlines() == [f"{i}. {text}" for i, text in enumerate(found, 1)]
    assert found[-1] == list(found)[2]


def test_retraces_of_what_was_never_called():
    _, _, step = make()
    assert len(retraces(step)) == 0
    assert "step" in str(retraces(step)) and "hasn't been traced" in str(retraces(step))


def test_retraces_takes_compiled_functions_only():
    with pytest.raises(TypeError, match="expected what js.jit returns, got function"):
        retraces(lambda x: x)
