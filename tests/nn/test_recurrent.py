"""Recurrent layers, cells and packing: compiled, refused, dropped out; and recorded numbers."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.nn.utils import rnn
from tests.nn.sequence_cases import CELLS_REFUSED, GOLDEN, PACKING_REFUSED, cotangent, undrawn
from tests.nn.together import QUICKLY

PATH = Path(__file__).parents[1] / "goldens" / "sequences.npz"


class Seeded:
    """The package ``nn``, with layers that need no streams."""

    functional = nn.functional
    utils = nn.utils

    def __getattr__(self, name):
        given = {} if name in ("TransformerEncoder", "TransformerDecoder") else {"rngs": js.Rngs(0)}
        return lambda *args, **kwargs: getattr(nn, name)(*args, **given, **kwargs)


def refused(case):
    with undrawn(), pytest.raises(case.error) as info:
        case.run(Seeded(), lambda *shape: jnp.ones(shape), lambda v: jnp.array(v, jnp.int32))
    assert case.text in str(info.value)


@pytest.fixture(scope="module", params=GOLDEN)
def group(request):
    """The rows of a list, with PyTorch's numbers and ours, which one compiled program computes."""
    rows = GOLDEN[request.param]
    layers = [row.build() for row in rows]
    for row, layer in zip(rows, layers, strict=True):
        layer.load_state_dict(row.state(layer.state_dict()))
    given = [row.arrays() for row in rows]
    leaves, tree = jax.tree.flatten(given)
    arrays = [jnp.asarray(v) if isinstance(v, np.ndarray) else v for v in leaves]
    is_float = [isinstance(v, np.ndarray) and v.dtype == np.float32 for v in leaves]

    @js.jit(compiler_options=QUICKLY)
    def run(layers, floats):
        def loss(layers, floats):
            floats = iter(floats)
            full = [next(floats) if f else v for f, v in zip(is_float, arrays, strict=True)]
            calls = jax.tree.unflatten(tree, full)
            found = [
                row.outputs(layer, rnn, *call)
                for row, layer, call in zip(rows, layers, calls, strict=True)
            ]
            return sum((y * cotangent(y.shape)).sum() for ys in found for y in ys), found

        return js.value_and_grad(loss, (0, 1), has_aux=True)(layers, floats)

    floats = [v for f, v in zip(is_float, arrays, strict=True) if f]
    (_, outputs), (grads, of_floats) = run(layers, floats)
    rest = iter(of_floats)
    ours = {}
    for row, ys, of_layer, call in zip(rows, outputs, grads, given, strict=True):
        drawn = [v for v in jax.tree.leaves(call) if getattr(v, "dtype", None) == np.float32]
        ours[str(row)] = [*ys, *of_layer.values(), *(next(rest) for _ in drawn)]
    return ours


def test_recorded_numbers(group):
    with np.load(PATH, allow_pickle=False) as file:
        for name, found in group.items():
            got = np.concatenate([np.asarray(v).ravel() for v in found])
            slack = 4e-5 * np.abs(file[name]).max()
            np.testing.assert_allclose(got, file[name], rtol=4e-5, atol=slack, err_msg=name)


@pytest.mark.parametrize("case", CELLS_REFUSED, ids=str)
def test_refused(case):
    refused(case)


@pytest.mark.parametrize("case", PACKING_REFUSED, ids=str)
def test_packing_refused(case):
    refused(case)


# Programs.


def equations(jaxpr, name):
    """Return the equations of one primitive, wherever they are but inside of scans."""
    found = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == name:
            found.append(eqn)
        if eqn.primitive.name == "scan":
            continue
        for inner in jax.tree.leaves(list(eqn.params.values()), is_leaf=is_jaxpr):
            if is_jaxpr(inner):
                found += equations(getattr(inner, "jaxpr", inner), name)
    return found


def is_jaxpr(value):
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_there_is_one_scan_for_each_layer_and_direction_and_one_product_outside(name):
    with undrawn():
        layer = getattr(nn, name)(3, 4, 2, bidirectional=True, rngs=js.Rngs(0))
    for x in (jnp.ones((5, 2, 3)), rnn.pack_sequence([jnp.ones((5, 3)), jnp.ones((2, 3))])):
        program = jax.make_jaxpr(lambda data, x=x: layer(x)[0])(0).jaxpr
        scans = equations(program, "scan")
        assert len(scans) == 4
        for scan in scans:
            assert len(equations(scan.params["jaxpr"].jaxpr, "dot_general")) == 1
        assert len(equations(program, "dot_general")) == 4


def test_packed_sequences_go_into_and_out_of_compiled_functions():
    layer = nn.GRU(3, 4, rngs=js.Rngs(0))
    step = js.jit(lambda layer, packed: layer(packed))
    long, short = jnp.ones((4, 3)), jnp.zeros((2, 3))
    for sequences, traces in (([short, long], 1), ([long * 2, short], 1), ([long, long], 2)):
        packed = rnn.pack_sequence(sequences, enforce_sorted=False)
        y, h = step(layer, packed)
        assert step.trace_count == traces
        assert isinstance(y, rnn.PackedSequence)
        assert y.batch_sizes.tolist() == packed.batch_sizes.tolist()
        for i, (found, x) in enumerate(zip(rnn.unpack_sequence(y), sequences, strict=True)):
            expected, last = layer(x)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(h[:, i], last, rtol=1e-5, atol=1e-6)


def test_what_comes_after_the_end_of_a_sequence_has_no_effect():
    layer = nn.LSTM(3, 4, bidirectional=True, rngs=js.Rngs(0))

    @jax.jit
    def run(x):
        packed = rnn.pack_padded_sequence(x, [4, 2])  # lengths that are known are enough
        y, state = layer(packed)
        return rnn.pad_packed_sequence(y)[0], state

    x = jnp.ones((4, 2, 3))
    y, state = run(x)
    z, other = run(x.at[2:, 1].set(jnp.nan))
    for a, b in zip((y, *state), (z, *other), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not y[2:, 1].any()
    alone, last = layer(x[:2, 1])
    np.testing.assert_allclose(y[:2, 1], alone, rtol=1e-5, atol=1e-6)
    for a, b in zip(state, last, strict=True):
        np.testing.assert_allclose(a[:, 1], b, rtol=1e-5, atol=1e-6)


def test_lengths_that_are_traced_are_refused():
    for pack in (rnn.pack_padded_sequence, rnn.unpad_sequence):
        with pytest.raises(ValueError, match="the values of lengths have to be known"):
            jax.jit(pack)(jnp.ones((4, 2)), jnp.array([4, 2]))
    with pytest.raises(ValueError, match="the values of lengths have to be known"):
        jax.jit(lambda n: rnn.pack_padded_sequence(jnp.ones((4, 2)), [4, n]))(2)


def test_derivatives_forwards_and_of_the_second_order():
    layer, x = nn.GRU(2, 2, rngs=js.Rngs(0)), jnp.ones((2, 1, 2))
    f = lambda x: (layer(x)[0] ** 2).sum()
    hessian = jax.jit(jax.hessian(f))(x).reshape(4, 4)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-5, atol=1e-6)
    assert hessian.any()


# Streams.


def test_dropout_between_layers():
    rngs = js.Rngs(0)
    layer, x = nn.RNN(3, 4, 3, dropout=0.5, rngs=rngs), jnp.ones((2, 2, 3))
    assert layer.rngs is rngs
    layer(x)
    assert rngs.counts["dropout"] == 2
    given = js.Rngs(dropout=1)
    y, _ = layer(x, rngs=given)
    z, _ = layer(x, rngs=js.Rngs(dropout=1))
    assert given.counts == {"dropout": 2} and rngs.counts["dropout"] == 2
    np.testing.assert_array_equal(y, z)
    assert (layer(x)[0] != y).any()
    layer.eval()
    np.testing.assert_array_equal(layer(x)[0], layer(x)[0])
    assert rngs.counts["dropout"] == 3 + 1
    layer.train().rngs = None
    with pytest.raises(RuntimeError, match="^RNN draws random numbers in training mode"):
        layer(x)


def test_dropout_of_everything_draws_nothing():
    rngs = js.Rngs(0)
    layer = nn.RNN(3, 4, 2, dropout=1.0, rngs=rngs)
    y, _ = layer(jnp.ones((2, 2, 3)))
    assert not y.any() and "dropout" not in rngs.counts


def test_dropout_in_one_layer_warns():
    with pytest.warns(UserWarning, match=r"GRU: dropout=0\.5 does nothing in a network of one"):
        layer = nn.GRU(3, 4, dropout=0.5, rngs=js.Rngs(0))
    assert layer.rngs is None
    layer(jnp.ones((2, 2, 3)))


# Parameters.


@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"])
def test_parameters(name):
    make = lambda **k: getattr(nn, name)(3, 4, **k)
    rngs = js.Rngs(params=0)
    layer, fresh = make(rngs=rngs), make(rngs=js.Rngs(params=0))
    assert rngs.counts == {"params": 2}
    for box, other in zip(layer.parameters(), fresh.parameters(), strict=True):
        assert not box._place[0].exposed
        assert box.dtype == jnp.float32
        np.testing.assert_array_equal(box, other)
        box.value = box + 1
    layer.reset_parameters(rngs=js.Rngs(params=0))
    for box, other in zip(layer.parameters(), fresh.parameters(), strict=True):
        np.testing.assert_array_equal(box, other)
    with pytest.raises(TypeError, match=rf"^{name} draws its first values: pass rngs="):
        make()
    with pytest.raises(TypeError, match=rf"^{name}\.reset_parameters\(\) draws"):
        layer.reset_parameters(rngs=None)
    for box in make(dtype=jnp.bfloat16, device="cpu", rngs=js.Rngs(0)).parameters():
        assert box.dtype == jnp.bfloat16 and box.committed


def test_errors_say_where():
    net = nn.ModuleDict({"encoder": nn.GRU(3, 4, rngs=js.Rngs(0))})
    with pytest.raises(ValueError, match=r"^encoder \(GRU\): expected input \(T, B, 3\)"):
        net["encoder"](jnp.ones((2, 2, 4)))
    with pytest.raises(TypeError, match=r"^encoder \(GRU\): expected one dtype, got input float16"):
        net["encoder"](jnp.ones((2, 2, 3), jnp.float16))


def test_the_base_of_cells_has_no_step():
    with pytest.raises(NotImplementedError, match="use RNNCell, LSTMCell or GRUCell"):
        nn.RNNCellBase(3, 4, True, 1, rngs=js.Rngs(0))(jnp.ones(3))


def test_a_cell_does_the_steps_of_its_layer():
    layer, x = nn.LSTM(3, 4, rngs=js.Rngs(0)), jnp.ones((3, 2, 3))
    cell = nn.LSTMCell(3, 4, rngs=js.Rngs(1))
    state = layer.state_dict()
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in state.items()})
    h = None
    for step in x:
        h = cell(step, h)
    for a, b in zip(h, layer(x)[1], strict=True):
        np.testing.assert_allclose(a, b[0], rtol=1e-5, atol=1e-6)


# Packing.


def test_a_permutation_is_undone():
    for order in (np.array([2, 0, 1]), jnp.array([2, 0, 1])):
        back = rnn.invert_permutation(order)
        assert type(back) is type(order) or isinstance(back, jax.Array)
        assert order[back].tolist() == [0, 1, 2]
    assert rnn.invert_permutation(None) is None


def test_a_packed_sequence_from_its_parts():
    data = jnp.arange(5)
    a = rnn.PackedSequence(data, jnp.array([2, 2, 1]), jnp.array([1, 0]))
    b = rnn.PackedSequence((data, [2, 2, 1]), sorted_indices=np.array([1, 0]))
    for packed in (a, b):
        assert packed.batch_sizes.tolist() == [2, 2, 1]
        assert packed.unsorted_indices.tolist() == [1, 0]
        assert [x.tolist() for x in rnn.unpack_sequence(packed)] == [[1, 3], [0, 2, 4]]
    doubled = jax.tree.map(lambda v: v * 2, a)
    assert isinstance(doubled, rnn.PackedSequence) and doubled.data.tolist() == [0, 2, 4, 6, 8]
