"""What the layers refuse and promise beyond PyTorch's numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from tests.nn.layer_cases import DRAWS_TO_START, LAYERS, REFUSED

ARGUMENTS = {
    "Linear": (2, 3),
    "Bilinear": (2, 3, 4),
    "Embedding": (5, 3),
    "Conv1d": (2, 3, 3),
    "Conv2d": (2, 3, 3),
    "Conv3d": (2, 3, 3),
    "ConvTranspose1d": (2, 3, 3),
    "ConvTranspose2d": (2, 3, 3),
    "ConvTranspose3d": (2, 3, 3),
    "AdaptiveLogSoftmaxWithLoss": (8, 9, [2, 5]),
    "MultiheadAttention": (4, 2),
    "LinearCrossEntropyLoss": (3, 4),
    "BatchNorm1d": (3,),
    "BatchNorm2d": (3,),
    "BatchNorm3d": (3,),
    "SyncBatchNorm": (3,),
    "InstanceNorm2d": (3, 1e-5, 0.1, True, True),
    "LayerNorm": (3,),
    "GroupNorm": (1, 3),
    "RMSNorm": (3,),
    "PReLU": (),
}


def build(name, **kwargs):
    if name in DRAWS_TO_START:
        kwargs.setdefault("rngs", js.Rngs(0))
    return getattr(nn, name)(*ARGUMENTS[name], **kwargs)


@pytest.fixture
def x64():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


# Constructors.


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_constructors_refuse(row):
    with pytest.raises(row.error) as info:
        row.build()
    assert row.text in str(info.value)


@pytest.mark.parametrize("name", DRAWS_TO_START)
def test_what_draws_says_what_to_pass(name):
    with pytest.raises(TypeError, match=f"{name} draws its first values: pass rngs=js.Rngs\\(par"):
        build(name, rngs=None)
    with pytest.raises(TypeError, match=r"\(or any js\.Rngs\), got int"):
        build(name, rngs=0)


@pytest.mark.parametrize("name", DRAWS_TO_START)
def test_streams_are_not_kept(name):
    assert not [v for v in vars(build(name)).values() if isinstance(v, js.Rngs)]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_parameters_are_float32_unless_told(name):
    for box in build(name, dtype="bfloat16").parameters():
        assert box.dtype == jnp.bfloat16
    with pytest.raises(ValueError, match="float64 needs JAX's 64-bit mode"):
        build(name, dtype=jnp.float64)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_parameters_are_float32_under_x64_too(name, x64):
    for box in build(name).parameters():
        assert box.dtype == jnp.float32 and not box.value.weak_type
    for box in build(name, dtype=jnp.float64).parameters():
        assert box.dtype == jnp.float64


@pytest.mark.parametrize("name", ARGUMENTS)
def test_device_is_honoured(name):
    device = jax.devices("cpu")[0]
    for place in (device, "cpu"):
        for box in build(name, device=place).parameters():
            assert box.devices() == {device} and box.committed
    with pytest.raises(ValueError, match="There is no device 'moon'"):
        build(name, device="moon")


@pytest.mark.parametrize("name", ARGUMENTS)
def test_constructors_expose_nothing(name):
    module = build(name)
    for box in (*module.parameters(), *module.buffers()):
        assert not box._place[0].exposed


def test_the_first_weight_is_the_documented_draw():
    model = nn.Linear(2, 1, rngs=js.Rngs(params=15))
    key = jax.random.fold_in(jax.random.key(15), 0)
    bound = 1 / np.sqrt(2)
    expected = jax.random.uniform(key, (1, 2), jnp.float32, -bound, bound)
    np.testing.assert_array_equal(model.weight, expected)
    assert model.bias.tolist() == [0.0]


@pytest.mark.parametrize(
    ("name", "draws"),
    [("Linear", 1), ("Bilinear", 1), ("Embedding", 1), ("Conv2d", 1), ("MultiheadAttention", 2)],
)
def test_how_often_constructors_draw(name, draws):
    rngs = js.Rngs(params=0)
    build(name, rngs=rngs)
    assert rngs.counts == {"params": draws}


@pytest.mark.parametrize("name", [*DRAWS_TO_START[:-2], "LayerNorm", "GroupNorm", "PReLU"])
def test_reset_parameters_starts_anew(name):
    layer, fresh = build(name), build(name)
    for box in layer.parameters():
        box.value = box + 1
    layer.reset_parameters(**({"rngs": js.Rngs(0)} if name in DRAWS_TO_START else {}))
    for name, value in fresh.state_dict().items():
        np.testing.assert_array_equal(layer.state_dict()[name], value)


def test_reset_parameters_of_attention():
    layer = nn.MultiheadAttention(4, 2, add_bias_kv=True, kdim=3, rngs=js.Rngs(0))
    old = layer.state_dict()
    layer.reset_parameters(rngs=js.Rngs(1))
    assert list(layer.state_dict()) == list(old)
    assert (layer.q_proj_weight != old["q_proj_weight"]).any()


def test_reset_running_stats():
    norm = nn.BatchNorm1d(2)
    norm(jnp.array([[1.0, 2.0], [3.0, 5.0]]))
    norm.reset_parameters()
    fresh = nn.BatchNorm1d(2).state_dict()
    for name, value in norm.state_dict().items():
        np.testing.assert_array_equal(value, fresh[name])
        assert value.dtype == fresh[name].dtype


# Calls.


@pytest.mark.parametrize(
    ("layer", "inputs", "error", "text"),
    [
        (lambda r: nn.Linear(3, 2, rngs=r), [(4, 2)], ValueError, "expected input (..., 3)"),
        (lambda r: nn.Bilinear(3, 2, 2, rngs=r), [(4, 3), (4, 3)], ValueError, "expected inputs"),
        (lambda r: nn.Conv1d(3, 2, 3, rngs=r), [(1, 2, 9)], ValueError, "input with 3 channels"),
        (lambda r: nn.Conv2d(3, 2, 3, rngs=r), [(3, 9)], ValueError, "expected input (N, C, H, W)"),
        (lambda r: nn.Conv2d(3, 2, 5, rngs=r), [(1, 3, 4, 4)], ValueError, "the kernel reaches"),
        (lambda r: nn.BatchNorm1d(3), [(2, 4)], ValueError, "running_mean (4,)"),
        (lambda r: nn.BatchNorm1d(3), [(2, 3, 4, 5)], ValueError, "(N, C) or (N, C, L)"),
        (lambda r: nn.BatchNorm2d(3), [(2, 3)], ValueError, "input (N, C, H, W), got (2, 3)"),
        (lambda r: nn.BatchNorm3d(3), [(2, 3, 4, 5)], ValueError, "input (N, C, D, H, W), got"),
        (lambda r: nn.BatchNorm1d(3), [(1, 3)], ValueError, "more than 1 value per channel"),
        (lambda r: nn.LayerNorm(3), [(2, 4)], ValueError, "expected input (*, 3), got (2, 4)"),
        (lambda r: nn.RMSNorm(3), [(2, 4)], ValueError, "expected input (*, 3), got (2, 4)"),
        (lambda r: nn.GroupNorm(2, 4), [(2, 6)], ValueError, "weight (6,)"),
        (lambda r: nn.Dropout2d(0.0), [(2, 6)], ValueError, "expected input (N, C, H, W)"),
        (lambda r: nn.MaxPool2d(9), [(1, 2, 4, 4)], ValueError, "too small for kernel_size"),
        (lambda r: nn.AvgPool1d(2, padding=2), [(1, 2, 4)], ValueError, "at most half of"),
        (lambda r: nn.AdaptiveAvgPool2d((1, 2, 3)), [(1, 2, 4, 4)], ValueError, "int or 2 ints"),
        (lambda r: nn.Flatten(3), [(2, 3)], ValueError, "start_dim=3 is out of range"),
        (lambda r: nn.Flatten(0, 2), [(2, 3)], ValueError, "end_dim=2 is out of range"),
        (lambda r: nn.Flatten(1, 0), [(2, 3)], ValueError, "expected start_dim before end_dim"),
        (lambda r: nn.Unflatten(2, (1, 3)), [(2, 3)], ValueError, "dim=2 is out of range"),
        (lambda r: nn.Unflatten(1, (2, 2)), [(2, 3)], ValueError, "can't split axis 1"),
        (lambda r: nn.Unflatten(1, (2, -1)), [(2, 3)], ValueError, "can't split axis 1"),
        (lambda r: nn.Softmax2d(), [(2, 3)], ValueError, "expected input (N, C, H, W) or"),
        (lambda r: nn.GLU(), [(2, 3)], ValueError, "even"),
        (lambda r: nn.PReLU(2), [(2, 3)], ValueError, "expected"),
        (lambda r: nn.NLLLoss(), [(2, 3), (2, 4)], ValueError, "expected target (2,)"),
        (lambda r: nn.CrossEntropyLoss(), [(2, 3), (2, 4)], ValueError, "expected"),
        (lambda r: nn.BCELoss(), [(2, 3), (2, 4)], ValueError, "expected target"),
        (lambda r: nn.Embedding(3, 2, rngs=r), [(2, 3)], TypeError, "integer dtype"),
        (lambda r: nn.RReLU(0.5, 0.2), [(2, 3)], ValueError, "expected lower <= upper"),
        (lambda r: nn.TripletMarginLoss(), [(2, 3), (2, 3), (3,)], ValueError, "number of axes"),
    ],
)
def test_calls_refuse_and_name_the_layer(layer, inputs, error, text):
    net = nn.ModuleDict({"head": layer(js.Rngs(0))})
    kind = type(net["head"]).__name__
    before = {name: np.array(value) for name, value in net.state_dict().items()}
    for call in (net["head"], js.jit(lambda *x: net["head"](*x))):
        with pytest.raises(error) as info:
            call(*(jnp.ones(shape) for shape in inputs))
        assert str(info.value).startswith(f"head ({kind}): ")
        assert text in str(info.value)
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


def test_embedding_refuses_indices_out_of_range():
    layer = nn.Embedding(3, 2, rngs=js.Rngs(0))
    with pytest.raises(ValueError, match="^Embedding: expected indices"):
        layer(jnp.array([3]))


@pytest.mark.parametrize(
    ("shapes", "call", "text"),
    [
        ([(3, 4), (3, 1, 4), (3, 4)], {}, "three inputs of 3 axes, or all of 2"),
        ([(3, 1, 5), (3, 1, 4), (3, 1, 4)], {}, "expected query (..., 4), key (..., 4)"),
        ([(3, 1, 4), (3, 1, 4), (2, 1, 4)], {}, "inputs of one batch and length"),
        ([(3, 2, 4), (3, 1, 4), (3, 1, 4)], {}, "inputs of one batch and length"),
        ([(3, 1, 4)] * 3, {"attn_mask": (3, 2)}, "attn_mask (3, 3) or (2, 3, 3), got (3, 2)"),
        ([(3, 1, 4)] * 3, {"key_padding_mask": (3,)}, "key_padding_mask (1, 3), got (3,)"),
        ([(3, 4)] * 3, {"key_padding_mask": (1, 3)}, "key_padding_mask (3,), got (1, 3)"),
        ([(3, 1, 4)] * 3, {"is_causal": True}, "is_causal=True needs attn_mask="),
    ],
)
def test_attention_refuses(shapes, call, text):
    layer = nn.MultiheadAttention(4, 2, rngs=js.Rngs(0))
    ready = {k: jnp.ones(v, bool) if isinstance(v, tuple) else v for k, v in call.items()}
    with pytest.raises(ValueError) as info:
        layer(*(jnp.ones(shape) for shape in shapes), **ready)
    assert text in str(info.value)


def test_attention_refuses_masks_of_integers():
    layer, x = nn.MultiheadAttention(4, 2, rngs=js.Rngs(0)), jnp.ones((3, 4))
    with pytest.raises(TypeError, match="expected attn_mask of bool or floats, got int32"):
        layer(x, x, x, attn_mask=jnp.ones((3, 3), jnp.int32))


def test_attention_shares_one_projection():
    layer = nn.MultiheadAttention(4, 2, rngs=js.Rngs(0))
    x = jnp.ones((3, 1, 4))
    call = lambda *inputs: layer(*inputs)[0]
    once = str(jax.make_jaxpr(lambda x: call(x, x, x))(x)).count("dot_general")
    each = str(jax.make_jaxpr(call)(x, x + 1, x + 2)).count("dot_general")
    assert each == once + 2
    np.testing.assert_allclose(call(x, x, x), call(x, x + 0, x + 0), rtol=1e-6)


# Random streams.

DROPOUTS = ["Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout", "FeatureAlphaDropout"]
X = jnp.ones((4, 3, 5, 5))


def inputs_of(name):
    return X[0] if name == "Dropout1d" else X


@pytest.mark.parametrize("name", DROPOUTS)
def test_streams_in_order(name):
    own, outer, inner = js.Rngs(dropout=0), js.Rngs(dropout=1), js.Rngs(dropout=2)
    layer = getattr(nn, name)(0.5, rngs=own)
    net, x = nn.Sequential(layer), inputs_of(name)

    def counts():
        return [r.counts["dropout"] for r in (own, outer, inner)]

    layer(x)
    assert counts() == [1, 0, 0]
    net(x, rngs=outer)
    assert counts() == [1, 1, 0]
    with js.rngs.using(outer):
        layer(x, rngs=inner)
    assert counts() == [1, 1, 1]
    net.eval()(x, rngs=outer)
    assert counts() == [1, 1, 1]
    net.train()
    with pytest.raises(RuntimeError, match=rf"^0 \({name}\) draws random numbers in training mode"):
        layer.rngs = None
        net(x)


@pytest.mark.parametrize("name", DROPOUTS)
@pytest.mark.parametrize("p", [0.0, 1.0])
def test_nothing_is_drawn_where_nothing_is_left_to_chance(name, p):
    rngs = js.Rngs(dropout=0)
    layer = getattr(nn, name)(p, rngs=rngs)
    layer(inputs_of(name))
    getattr(nn, name)(p)(inputs_of(name))
    assert rngs.counts == {"dropout": 0}


def test_dropout_draws_the_same_compiled_and_eager():
    layers = [nn.Dropout(0.5, rngs=js.Rngs(dropout=3)) for _ in range(2)]
    step = js.jit(lambda m, x: m(x))
    for _ in range(3):
        a, b = layers[0](X), step(layers[1], X)
        np.testing.assert_array_equal(a, b)
    assert step.trace_count == 1
    assert layers[1].rngs.counts == {"dropout": 3}
    share = float((layers[0](jnp.ones(10_000)) == 0).mean())
    assert abs(share - 0.5) < 0.03


def test_attention_keeps_streams_only_for_its_dropout():
    assert nn.MultiheadAttention(4, 2, rngs=js.Rngs(0)).rngs is None
    rngs = js.Rngs(0)
    layer, x = nn.MultiheadAttention(4, 2, dropout=0.5, rngs=rngs), jnp.ones((3, 1, 4))
    assert layer.rngs is rngs
    for need in (True, False):
        before = rngs.counts.get("dropout", 0)
        layer(x, x, x, need_weights=need)
        assert rngs.counts["dropout"] == before + 1
    layer.eval()(x, x, x)
    assert rngs.counts["dropout"] == 2
    given = js.Rngs(dropout=1)
    nn.Sequential(layer).train()[0](x, x, x, rngs=given)
    assert given.counts == {"dropout": 1} and rngs.counts["dropout"] == 2


# Batch norm.


def test_a_failing_call_counts_no_batch():
    norm = nn.BatchNorm1d(2)
    with pytest.raises(ValueError, match="more than 1 value"):
        norm(jnp.ones((1, 2)))
    assert int(norm.num_batches_tracked) == 0
    norm.eval()(jnp.ones((1, 2)))
    assert int(norm.num_batches_tracked) == 0


@pytest.mark.parametrize("momentum", [0.1, None])
def test_statistics_do_not_depend_on_the_mode_of_execution(momentum):
    eager, compiled = (nn.BatchNorm1d(2, momentum=momentum) for _ in range(2))
    step = js.jit(lambda m, x: m(x))
    for i in range(3):
        x = jnp.arange(8.0).reshape(4, 2) ** i
        np.testing.assert_allclose(eager(x), step(compiled, x), rtol=1e-5, atol=1e-6)
    for name, value in eager.state_dict().items():
        np.testing.assert_allclose(compiled.state_dict()[name], value, rtol=1e-5)
    assert step.trace_count == 1


def test_statistics_change_under_grad_and_carry_no_gradient():
    norm = nn.BatchNorm1d(2)
    x = jnp.array([[1.0, 2.0], [3.0, 6.0]])
    js.grad(lambda m: (m(x) ** 2).sum())(norm)
    assert norm.running_mean.value.tolist() == pytest.approx([0.2, 0.4])


def test_the_mean_over_all_batches_under_x64(x64):
    norm = nn.BatchNorm1d(2, momentum=None, dtype=jnp.float64)
    norm(jnp.array([[1.0, 2.0], [3.0, 6.0]]))
    norm(jnp.array([[1.0, 2.0], [1.0, 2.0]]))
    assert norm.running_mean.tolist() == [1.5, 3.0]
    assert norm.running_mean.dtype == jnp.float64


def test_narrow_inputs_keep_float32_statistics():
    norm = nn.BatchNorm1d(2)
    y = norm(jnp.ones((3, 2), jnp.bfloat16))
    assert y.dtype == jnp.bfloat16 and norm.running_mean.dtype == jnp.float32


# Embedding.


def test_from_pretrained():
    table = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    layer = nn.Embedding.from_pretrained(table, padding_idx=0)
    assert not layer.weight.requires_grad and layer.padding_idx == 0
    assert layer(jnp.array([1])).tolist() == [[3.0, 4.0]]
    assert nn.Embedding.from_pretrained(np.asarray(table), freeze=False).weight.requires_grad
    assert repr(layer) == "Embedding(2, 2, padding_idx=0)"
    with pytest.raises(ValueError, match="expected a table \\(num_embeddings, embedding_dim\\)"):
        nn.Embedding.from_pretrained(jnp.ones(3))
    with pytest.raises(ValueError, match=r"expected _weight \(2, 3\), got \(2, 2\)"):
        nn.Embedding(2, 3, _weight=table)


def test_max_norm_shortens_the_table_eagerly_and_compiled():
    for compiled in (False, True):
        layer = nn.Embedding.from_pretrained(jnp.array([[3.0, 4.0], [6.0, 8.0]]), max_norm=1.0)
        call = js.jit(lambda m, i: m(i)) if compiled else layer.__class__.__call__
        call(layer, jnp.array([0]))
        np.testing.assert_allclose(layer.weight, [[0.6, 0.8], [6.0, 8.0]], rtol=1e-5)


# Everything compiles to the same numbers.

ONE_OF_EACH = list({row.name: row for row in LAYERS if not row.draws}.values())


@pytest.mark.parametrize("row", ONE_OF_EACH, ids=str)
def test_compiled_is_eager(row):
    layer, twin = row.build(), row.build()
    args, kwargs = row.call_arguments()
    kwargs = {k: v if isinstance(v, bool) else jnp.asarray(v) for k, v in kwargs.items()}
    expected = layer(*args, **kwargs)
    got = js.jit(lambda m, *a: m(*a, **kwargs))(twin, *args)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    for name, value in layer.state_dict().items():
        np.testing.assert_allclose(twin.state_dict()[name], value, rtol=1e-5)


@pytest.mark.parametrize("row", ONE_OF_EACH, ids=str)
def test_narrow_floats_stay_narrow(row):
    layer = row.build().bfloat16()
    args, kwargs = row.call_arguments()
    narrow = lambda v: (
        jnp.asarray(v, jnp.bfloat16) if isinstance(v, np.ndarray) and v.dtype == np.float32 else v
    )
    y = layer(*map(narrow, args), **{k: narrow(v) for k, v in kwargs.items()})
    first = jax.tree.leaves(y)[0]
    assert first.dtype in (jnp.bfloat16, jnp.float32 if row.name.endswith("Loss") else None)


# Losses and random slopes.


def test_random_slopes_are_within_their_limits_and_drawn_anew():
    layer, x = nn.RReLU(0.25, 0.5, rngs=js.Rngs(dropout=0)), -jnp.ones(1000)
    a, b = layer(x), layer(x)
    assert ((a <= -0.25) & (a > -0.5)).all() and (a != b).mean() > 0.9
    assert layer.rngs.counts == {"dropout": 2}
    assert (layer.eval()(x) == -0.375).all() and layer.rngs.counts == {"dropout": 2}
    with pytest.raises(RuntimeError, match=r"^RReLU draws random numbers in training mode"):
        nn.RReLU()(x)


def test_gumbel_softmax():
    logits, rngs = jnp.log(jnp.array([0.7, 0.2, 0.1])), js.Rngs(dropout=0)
    many = jnp.broadcast_to(logits, (4000, 3))
    soft, hard = (nn.functional.gumbel_softmax(many, hard=h, rngs=rngs) for h in (False, True))
    np.testing.assert_allclose(soft.sum(-1), 1, rtol=1e-5)
    assert set(np.unique(hard.round(5))) == {0.0, 1.0}
    np.testing.assert_allclose(hard.mean(0), [0.7, 0.2, 0.1], atol=0.03)
    draw = lambda x, h: nn.functional.gumbel_softmax(x, 0.5, h, rngs=js.Rngs(dropout=1))
    grads = [js.grad(lambda x, h=h: draw(x, h)[0])(logits) for h in (False, True)]
    np.testing.assert_allclose(*grads, rtol=1e-5)
    with pytest.raises(RuntimeError, match="gumbel_softmax draws random numbers"):
        nn.functional.gumbel_softmax(logits)


def test_adaptive_softmax_refuses_targets_out_of_range():
    layer = nn.AdaptiveLogSoftmaxWithLoss(8, 9, [2, 5], rngs=js.Rngs(0))
    for target in (-1, 9):
        with pytest.raises(ValueError, match=r"targets in \[0, 8\], got values in"):
            layer(jnp.ones((2, 8)), jnp.array([0, target]))
        output, loss = js.jit(layer)(jnp.ones((2, 8)), jnp.array([0, target]))
        assert jnp.isnan(output).tolist() == [False, True] and jnp.isnan(loss)
    with pytest.raises(ValueError, match=r"input \(N, 8\) and target \(N,\)"):
        layer(jnp.ones((2, 8)), jnp.zeros((3,), int))


def test_a_distance_may_be_a_model():
    loss = nn.TripletMarginWithDistanceLoss(distance_function=nn.PairwiseDistance(1.0))
    assert [name for name, _ in loss.named_children()] == ["distance_function"]
    city = nn.TripletMarginWithDistanceLoss(distance_function=lambda a, b: abs(a - b).sum(-1))
    x = jnp.arange(12.0).reshape(3, 2, 2)
    np.testing.assert_allclose(loss(*x), city(*x), rtol=1e-4)
