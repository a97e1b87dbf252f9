"""Transformers and bags of embeddings: what they refuse, share and draw."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.nn import functional as F
from tests.nn.sequence_cases import TRANSFORMERS_REFUSED, undrawn
from tests.nn.test_recurrent import refused

X = jnp.asarray(np.random.RandomState(0).randn(3, 2, 4), jnp.float32)
CAUSAL = nn.Transformer.generate_square_subsequent_mask(3)


def encoder_layer(dropout=0.0, rngs=None, **kwargs):
    return nn.TransformerEncoderLayer(4, 2, 6, dropout, rngs=rngs or js.Rngs(0), **kwargs)


@pytest.mark.parametrize("case", TRANSFORMERS_REFUSED, ids=str)
def test_refused(case):
    refused(case)


def test_copies_start_equal_and_share_nothing_but_streams():
    rngs = js.Rngs(params=0, dropout=1)
    layer = encoder_layer(0.5, rngs)
    a, b = nn.TransformerEncoder(layer, 2).layers
    for ours, theirs in zip(a.parameters(), b.parameters(), strict=True):
        assert ours is not theirs
        np.testing.assert_array_equal(ours, theirs)
    assert not set(a.parameters()) & set(layer.parameters())
    assert a.dropout.rngs is b.dropout.rngs is a.self_attn.rngs is rngs
    y = a(X)  # four draws: for the weights, the hidden units and two sums
    assert rngs.counts["dropout"] == 4
    assert (b(X) != y).any()


def test_dropout_draws_from_the_streams_of_the_call():
    model = nn.Transformer(4, 2, 1, 1, 6, 0.5, rngs=js.Rngs(0))
    given = js.Rngs(dropout=1)
    y = model(X, X, rngs=given)
    assert given.counts == {"dropout": 4 + 6}
    np.testing.assert_array_equal(model(X, X, rngs=js.Rngs(dropout=1)), y)
    model.eval()(X, X, rngs=given)
    assert given.counts == {"dropout": 10}


def test_the_causal_hint_changes_nothing_but_the_way():
    model = nn.TransformerEncoder(encoder_layer(), 2, nn.LayerNorm(4))
    expected = model(X, CAUSAL)
    np.testing.assert_allclose(expected, model(X, CAUSAL, is_causal=True), rtol=1e-5)
    # It is believed: the mask isn't looked at, so that there may be none in the program.
    np.testing.assert_allclose(expected, model(X, 0 * X[:, 0, :3], is_causal=True), rtol=1e-5)
    changed = model(X.at[2].set(0), CAUSAL)
    np.testing.assert_allclose(model(X, CAUSAL)[:2], changed[:2], rtol=1e-5)


def test_compiled_is_eager():
    model = nn.Transformer(4, 2, 1, 1, 6, 0.0, norm_first=True, rngs=js.Rngs(0))
    run = lambda model, x, mask: model(x, x, tgt_mask=mask, tgt_is_causal=True)
    compiled = js.jit(run)
    np.testing.assert_allclose(compiled(model, X, CAUSAL), run(model, X, CAUSAL), rtol=1e-4)


def test_encoders_and_decoders_of_ones_own():
    class Twice(nn.Module):
        def forward(self, x, *args, **kwargs):
            return 2 * x

    model = nn.Transformer(4, 2, custom_encoder=Twice(), custom_decoder=Twice(), rngs=js.Rngs(0))
    np.testing.assert_array_equal(model(X, X), 2 * X)
    stack = nn.TransformerEncoder(Twice(), 3)
    np.testing.assert_array_equal(stack(X), 8 * X)


def test_reset_parameters():
    model = nn.Transformer(4, 2, 1, 1, 6, rngs=js.Rngs(0))
    old = model.state_dict()
    model.reset_parameters(rngs=js.Rngs(1))
    for name, value in model.state_dict().items():
        assert (value != old[name]).any() == (value.ndim > 1), name
    with pytest.raises(TypeError, match=r"^Transformer\.reset_parameters\(\) draws"):
        model.reset_parameters(rngs=None)


def test_what_draws_says_what_to_pass():
    for name in ("Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer"):
        with pytest.raises(TypeError, match=f"^{name} draws its first values: pass rngs="):
            getattr(nn, name)(4, 2)


def test_narrow_floats_stay_narrow():
    with undrawn():
        model = nn.Transformer(4, 2, 1, 1, 6, 0.0, dtype=jnp.bfloat16, rngs=js.Rngs(0))
    assert {p.dtype for p in model.parameters()} == {jnp.dtype("bfloat16")}
    narrow = X.astype(jnp.bfloat16)
    mask = nn.Transformer.generate_square_subsequent_mask(3, dtype=jnp.bfloat16)
    assert jax.eval_shape(model, narrow, narrow, tgt_mask=mask).dtype == jnp.bfloat16


def test_errors_say_where():
    model = nn.TransformerEncoder(encoder_layer(), 1)
    with pytest.raises(ValueError, match=r"^layers\.0\.self_attn \(MultiheadAttention\): expected"):
        model(jnp.ones((3, 2, 5)))


def test_projections_are_shared_where_arrays_are():
    layer = nn.MultiheadAttention(4, 2, rngs=js.Rngs(0))
    count = lambda f: str(jax.make_jaxpr(f)(X)).count("dot_general")
    own = count(lambda x: layer(x, x, x)[0])
    assert count(lambda x: layer(x + 1, x, x)[0]) == own + 1
    assert count(lambda x: layer(x + 1, x + 2, x)[0]) == own + 2


# Bags.

TABLE = jnp.asarray(np.random.RandomState(0).randn(5, 2), jnp.float32)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows_are_bags_of_offsets(mode):
    index = jnp.array([[1, 4, 4], [0, 2, 3]])
    rows, line = (
        jax.value_and_grad(
            lambda w, given=given: (F.embedding_bag(given[0], w, *given[1:]) ** 2).sum()
        )
        for given in ((index,), (index.reshape(-1), jnp.array([0, 3])))
    )
    np.testing.assert_allclose(rows(TABLE)[0], line(TABLE)[0], rtol=1e-5)
    np.testing.assert_allclose(rows(TABLE)[1], line(TABLE)[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("offsets", [None, jnp.array([0])])
def test_many_narrow_rows_are_added_up_in_float32(offsets):
    index = jnp.zeros((1, 600) if offsets is None else 600, jnp.int32)
    table = jnp.ones((1, 1), jnp.bfloat16)  # whose integers end at 256
    bag = lambda mode: F.embedding_bag(index, table, offsets, mode=mode)
    assert bag("mean").tolist() == [[1.0]] and bag("sum").tolist() == [[600.0]]
    assert bag("sum").dtype == jnp.bfloat16


def test_the_last_offset_ends_the_last_bag():
    y = F.embedding_bag(
        jnp.array([0, 1, 2]), TABLE, jnp.array([0, 2]), mode="mean", include_last_offset=True
    )
    np.testing.assert_allclose(y, TABLE[None, :2].mean(1), rtol=1e-6)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_out_of_range_in_a_trace_is_nan(mode):
    call = jax.jit(lambda i, o: F.embedding_bag(i, TABLE, o, mode=mode))
    y = call(jnp.array([0, 5, 1]), jnp.array([0, 2]))
    assert jnp.isnan(y[0]).all()
    np.testing.assert_allclose(y[1], TABLE[1], rtol=1e-6)


def test_the_gradient_of_a_maximum_goes_to_the_first_row_that_has_it():
    f = lambda w: F.embedding_bag(jnp.array([[1, 0, 0]]), w, mode="max").sum()
    assert jax.grad(f)(jnp.ones((2, 2))).tolist() == [[0.0, 0.0], [1.0, 1.0]]


def test_max_norm_shortens_the_table_eagerly_and_compiled():
    for compiled in (False, True):
        layer = nn.EmbeddingBag.from_pretrained(jnp.array([[3.0, 4.0], [6.0, 8.0]]), max_norm=1.0)
        call = js.jit(lambda m, i: m(i)) if compiled else nn.EmbeddingBag.__call__
        np.testing.assert_allclose(call(layer, jnp.array([[0, 0]])), [[0.6, 0.8]], rtol=1e-5)
        np.testing.assert_allclose(layer.weight, [[0.6, 0.8], [6.0, 8.0]], rtol=1e-5)


def test_a_bag_s_table():
    layer = nn.EmbeddingBag(5, 2, padding_idx=-1, rngs=js.Rngs(0))
    assert layer.padding_idx == 4 and not layer.weight[4].any()
    layer.reset_parameters(rngs=js.Rngs(1))
    assert not layer.weight[4].any() and layer.weight[:4].all()
    with pytest.raises(TypeError, match="^EmbeddingBag draws its first values"):
        nn.EmbeddingBag(5, 2)
    with pytest.raises(ValueError, match=r"EmbeddingBag.from_pretrained\(\): expected a table"):
        nn.EmbeddingBag.from_pretrained(jnp.ones(3))
    assert nn.EmbeddingBag.from_pretrained(TABLE, freeze=False).weight.requires_grad
