"""The table of layers, and that making it changes nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.inspection import summary
from jaxsaw.state.graph import named_boxes


def linear(*sizes):
    return nn.Linear(*sizes, rngs=js.Rngs(0))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = linear(4, 4)
        self.second = linear(4, 4)
        self.second.weight = self.first.weight
        self.same = self.first
        self.unused = linear(3, 2)

    def forward(self, x, *, twice=False):
        x = self.second(self.first(x))
        return {"out": self.same(x), "twice": (x, twice)}


class Noisy(nn.Module):
    """Has statistics, streams and a mode."""

    def __init__(self, rngs):
        super().__init__()
        self.linear = linear(3, 3)
        self.mean = nn.Buffer(jnp.zeros(3))
        self.count = nn.Buffer(jnp.zeros((), jnp.int32))
        self.rngs = rngs
        self.stack = [linear(3, 3), nn.Identity()]

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
            self.count += 1
            x = x * jax.random.uniform(self.rngs.next("dropout"), x.shape)
        return self.stack[1](self.stack[0](self.linear(x)))


def rows(table):
    return {row.path: row for row in table.rows}


def test_rows_have_shapes_parameters_and_flops():
    table = summary(nn.Sequential(linear(4, 8), linear(8, 2)), jnp.ones((5, 4)))
    assert [(row.path, row.kind, row.output, row.params) for row in table.rows] == [
        ("", "Sequential", (5, 2), 0),
        ("0", "Linear", (5, 8), 4 * 8 + 8),
        ("1", "Linear", (5, 2), 8 * 2 + 2),
    ]
    assert [row.flops for row in table.rows] == [0, 2 * 5 * 4 * 8 + 40, 2 * 5 * 8 * 2 + 10]
    assert table.total_flops == sum(row.flops for row in table.rows)
    assert table.total_params == table.trainable_params == 58


def test_shared_parameters_and_modules_count_once():
    model = Tied()
    table = summary(model, jnp.ones((2, 4)))
    assert table.total_params == sum(p.size for p in model.parameters()) == 16 + 4 + 4 + 6 + 2
    assert {path: row.params for path, row in rows(table).items()} == {
        "": 0,
        "first": 20,
        "second": 4,
        "unused": 8,
    }
    once = 2 * 2 * 4 * 4 + 8
    assert [rows(table)[path].flops for path in ("first", "second")] == [2 * once, once]


def test_outputs_keep_their_structure():
    table = rows(summary(Tied(), jnp.ones((2, 4)), twice=True))
    assert table[""].output == {"out": (2, 4), "twice": ((2, 4), "bool")}
    assert table["unused"].output is None
    assert table["unused"].flops == 0


def test_frozen_parameters_are_not_trainable():
    model = nn.Sequential(linear(4, 8), linear(8, 2))
    model[0].requires_grad_(False)
    table = summary(model)
    assert (table.total_params, table.trainable_params) == (58, 18)
    assert "58 (40 of them frozen)" in str(table)


def test_without_inputs_there_are_parameters_only():
    table = summary(Tied())
    assert table.total_flops is None
    assert {row.output for row in table.rows} == {row.flops for row in table.rows} == {None}
    assert "FLOPs of one call" not in str(table)


@pytest.mark.parametrize("inputs", [(jnp.ones((2, 3)),), ()])
def test_nothing_changes(inputs):
    rngs = js.Rngs(0)
    model = Noisy(rngs)
    run = js.jit(lambda x: model(x))
    run(jnp.ones((2, 3)))
    arrays = {name: box.value for name, box in named_boxes(model)}
    attributes = {path: dict(vars(module)) for path, module in model.named_modules()}
    counts = rngs.counts

    assert summary(model, *inputs).total_params == 24

    assert rngs.counts == counts == {"dropout": 1}
    assert {name: box.value for name, box in named_boxes(model)}.keys() == arrays.keys()
    assert all(box.value is arrays[name] for name, box in named_boxes(model))
    for path, module in model.named_modules():
        assert vars(module).keys() == attributes[path].keys()
        assert all(vars(module)[name] is value for name, value in attributes[path].items())
    run(jnp.ones((2, 3)))
    assert run.trace_count == 1


def test_a_new_stream_is_not_kept():
    model = Noisy(js.Rngs(0))
    summary(model, jnp.ones((2, 3)))
    assert model.rngs.counts == {}


def test_a_failing_forward_changes_nothing():
    model = Noisy(js.Rngs(0))
    with pytest.raises(Exception, match="linear|dot_general|shape"):
        summary(model, jnp.ones((2, 7)))
    assert model.rngs.counts == {}
    assert int(model.count) == 0
    assert model(jnp.ones((2, 3))).shape == (2, 3)


def test_nothing_is_computed():
    class Checked(nn.Module):
        def forward(self, x):
            assert isinstance(x, jax.core.Tracer)
            return x

    table = summary(Checked(), jax.ShapeDtypeStruct((1 << 20, 1 << 30), jnp.float32))
    assert table.rows[0].output == (1 << 20, 1 << 30)


def test_float64_and_integer_inputs_are_converted_as_in_a_call():
    class Kind(nn.Module):
        def forward(self, x, i):
            assert (x.dtype, i.dtype) == (jnp.float32, jnp.int32)
            return x[i]

    assert summary(Kind(), np.ones(3), np.arange(2)).rows[0].output == (2,)


def test_streams_may_be_passed():
    class Drops(nn.Module):
        def forward(self, x, rngs=None):
            return x * jax.random.uniform(rngs.next("dropout"), x.shape)

    rngs = js.Rngs(dropout=0)
    assert summary(Drops(), jnp.ones(3), rngs=rngs).rows[0].output == (3,)
    assert rngs.counts == {"dropout": 0}


class Ops(nn.Module):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


def loop(x):
    return jax.lax.scan(lambda c, _: (c @ c, None), x, length=5)[0]


def branch(x):
    return jax.lax.cond(x[0, 0] > 0, lambda x: x @ x, lambda x: x + x, x)


def convolve(x, w):
    return jax.lax.conv_general_dilated(x, w, (1, 1), "VALID", feature_group_count=2)


@pytest.mark.parametrize(
    ("f", "shapes", "expected"),
    [
        (lambda x: x + 1, [(3, 4)], 12),
        (lambda x: x.sum(), [(3, 4)], 12),
        (lambda x: x.T.reshape(2, 6), [(3, 4)], 0),
        (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), [(7, 2, 3), (7, 3, 5)], 2 * 7 * 2 * 3 * 5),
        (convolve, [(2, 4, 8, 8), (6, 2, 3, 3)], 2 * (2 * 6 * 6 * 6) * (2 * 3 * 3)),
        (loop, [(4, 4)], 5 * 2 * 4**3),
        (branch, [(4, 4)], 2 * 4**3),
        (jax.jit(lambda x: x * x), [(3, 4)], 12),
        (jax.checkpoint(lambda x: x * x), [(3, 4)], 12),
        (jax.vmap(lambda x: x @ x), [(5, 4, 4)], 5 * 2 * 4**3),
    ],
)
def test_flops(f, shapes, expected):
    inputs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    table = summary(Ops(f), *inputs)
    assert table.total_flops == table.rows[0].flops == expected


def test_flops_in_loops_belong_to_the_layer_inside():
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = linear(4, 4)

        def forward(self, x):
            return jax.lax.scan(lambda c, _: (self.inner(c), None), x, length=3)[0]

    table = rows(summary(Loop(), jnp.ones((2, 4))))
    assert table["inner"].flops == 3 * (2 * 2 * 4 * 4 + 8)
    assert table[""].flops == 0


def test_the_table_as_text():
    text = str(summary(nn.Sequential(linear(4, 8), linear(8, 2)), jnp.ones((5, 4))))
    assert text.splitlines() == [
        "Layer         Output shape  Parameters  FLOPs",
        "---------------------------------------------",
        "Sequential    (5, 2)",
        "  0 (Linear)  (5, 8)                40    360",
        "  1 (Linear)  (5, 2)                18    170",
        "---------------------------------------------",
        "Parameters: 58 (0 of them frozen)",
        "FLOPs of one call: 530",
    ]


def test_the_table_in_a_notebook():
    class Html(nn.Module):
        def forward(self, x):
            return {"<b>": x}

    page = summary(Html(), jnp.ones(3))._repr_html_()
    assert page.startswith("<table>") and page.endswith("</table>")
    assert page.count("<tr>") == 2
    assert "<b>" not in page and "&lt;b&gt;" in page


def test_only_modules_have_a_summary():
    with pytest.raises(TypeError, match="expected an nn.Module, got function"):
        summary(lambda x: x, 1)
