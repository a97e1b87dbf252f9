"""Layers of space: PyTorch's recorded numbers, and what is promised beyond them."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim
from jaxsaw.nn import functional as F
from tests.nn.functional.cases import Case
from tests.nn.spatial_cases import CALLS_REFUSED, GOLDEN, REFUSED, TOPICS
from tests.nn.together import built, check, numbers_of_layers, outputs_and_gradients

PATH = Path(__file__).parent.parent / "goldens" / "spatial.npz"
ROWS = [row for rows in TOPICS.values() for row in rows]


@pytest.fixture(scope="module")
def recorded():
    """PyTorch's numbers (see ``tests/goldens/make_spatial.py``)."""
    with np.load(PATH, allow_pickle=False) as file:
        parts = np.split(file["values"], file["ends"][:-1])
        return dict(zip(file["names"].tolist(), parts, strict=True))


def test_that_rows_and_records_are_the_same(recorded):
    assert list(recorded) == [str(row) for rows in GOLDEN.values() for row in rows]


@pytest.mark.parametrize("topic", GOLDEN)
def test_numbers(topic, recorded):
    rows = GOLDEN[topic]
    functions = isinstance(rows[0], Case)
    numbers = outputs_and_gradients(rows) if functions else numbers_of_layers(rows)[1]
    for row, found in zip(rows, numbers, strict=True):
        check(found, recorded[str(row)], 1e-5 if functions else 4e-5, str(row))


# Dtypes, refusals.


def test_narrow_floats_stay_narrow():
    dtype = jnp.bfloat16
    for row in {row.name: row for row in ROWS}.values():
        layer = built(row).to(dtype)
        inputs = [jnp.asarray(a) for a in row.call_arguments()[0]]
        narrow = [a.astype(dtype) if a.dtype == jnp.float32 else a for a in inputs]
        out = js.eval_shape(lambda m, x, r=row: m(*x, **r.call), layer, narrow)
        assert jax.tree.leaves(out)[0].dtype == dtype, str(row)


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_constructors_refuse(row):
    with pytest.raises(row.error) as info:
        row.build()
    assert row.text in str(info.value)
    assert str(info.value).startswith(f"{row.name}: ")


@pytest.mark.parametrize(("row", "text"), CALLS_REFUSED, ids=[str(r) for r, _ in CALLS_REFUSED])
def test_calls_refuse_and_name_the_layer(row, text):
    net = nn.ModuleDict({"head": built(row)})
    inputs = [jnp.asarray(a) for a in row.call_arguments()[0]]
    call = lambda *x: net["head"](*x, **row.call)
    for attempt in (call, lambda *x: js.eval_shape(call, *x)):
        with pytest.raises(ValueError) as info:
            attempt(*inputs)
        assert str(info.value).startswith(f"head ({row.name}): ")
        assert text in str(info.value)


# Convolutions.


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 2, 2)])
def test_a_transposed_convolution_is_the_transpose(n, stride, padding, dilation, groups):
    r = np.random.RandomState(n)
    x, y = r.randn(1, 4, *(9,) * n), r.randn(1, 6, *((9 - 3) // stride + 1,) * n)
    if dilation == 2:
        y = r.randn(1, 6, *(4,) * n)
    w = r.randn(6, 4 // groups, *(3,) * n)
    conv, back = getattr(F, f"conv{n}d"), getattr(F, f"conv_transpose{n}d")
    forth = conv(x, w, None, stride, padding, dilation, groups)
    extra = 9 - ((forth.shape[-1] - 1) * stride - 2 * padding + 2 * dilation + 1)
    y = r.randn(*forth.shape)
    other = back(y, w, None, stride, padding, extra, groups, dilation)
    np.testing.assert_allclose((forth * y).sum(), (x * other).sum(), rtol=1e-3)


@pytest.mark.parametrize("name", ["conv1d", "conv_transpose1d"])
def test_complex_numbers(name):
    r = np.random.RandomState(0)
    x, w = (r.randn(1, 2, 5) + 1j * r.randn(1, 2, 5) for _ in range(2))
    w = w.reshape(2, 1, 5)[..., :3].repeat(2, 1)
    f = getattr(F, name)
    y = f(x.astype(np.complex64), w.astype(np.complex64))
    real = f(x.real, w.real) - f(x.imag, w.imag)
    imaginary = f(x.real, w.imag) + f(x.imag, w.real)
    np.testing.assert_allclose(
        y, np.asarray(real) + 1j * np.asarray(imaginary), rtol=1e-4, atol=1e-4
    )


# Pooling.


def test_unpooling_undoes_pooling():
    x = jnp.asarray(np.random.RandomState(0).randn(2, 3, 4, 6), jnp.float32)
    y, where = js.jit(nn.MaxPool2d(2, return_indices=True))(x)
    back = nn.MaxUnpool2d(2)(y, where)
    np.testing.assert_array_equal(back, np.where(np.isin(x, y), x, 0))


def test_fractional_pooling_draws_new_places_in_every_call():
    own, outer = js.Rngs(dropout=0), js.Rngs(dropout=1)
    layer = nn.FractionalMaxPool2d(3, output_size=3, rngs=own).eval()
    net, x = nn.Sequential(layer), jnp.arange(8 * 8 * 64.0).reshape(1, 64, 8, 8)
    call = js.jit(lambda m, x, rngs: m(x, rngs=rngs))
    first, second = call(net, x, None), call(net, x, None)
    assert own.counts == {"dropout": 2} and not (first == second).all()
    call(net, x, outer)
    assert own.counts == {"dropout": 2} and outer.counts == {"dropout": 1}
    # The first window is the first, the last is the last, and the step between them is 2 or 3.
    rows = np.asarray(first[0, :, :, 0]).astype(int) // 8 % 8
    assert [set(column) for column in rows.T] == [{2}, {4, 5}, {7}]
    layer.rngs = None
    with pytest.raises(RuntimeError, match=r"^0 \(FractionalMaxPool2d\) draws random numbers"):
        net(x)


def test_nan_is_a_maximum_of_random_windows_too():
    x = jnp.zeros((1, 4, 4)).at[0, 1, 1].set(jnp.nan)
    samples = jnp.full((1, 1, 2), 0.5)
    assert jnp.isnan(F.fractional_max_pool2d(x, 2, 3, _random_samples=samples)).any()


# Norms.


def batches():
    return jnp.asarray(np.random.RandomState(0).randn(4, 3, 2, 5) * 2 + 1, jnp.float32)


def test_sync_batch_norm_is_a_batch_norm_of_all_lanes():
    x = batches()
    sync, whole = nn.SyncBatchNorm(2, axis_name="i"), nn.BatchNorm1d(2)

    def loss(m, x, y):
        return (jnp.sin(m(x)) * y).sum()

    lanes = js.vmap(loss, in_axes=(None, 0, 0), axis_name="i")
    grads = js.jit(js.grad(lambda m, x: lanes(m, x, x).sum(), (0, 1)))(sync, x)
    flat = x.reshape(12, 2, 5)
    expected = js.jit(js.grad(lambda m, x: loss(m, x, x), (0, 1)))(whole, flat)
    np.testing.assert_allclose(grads[1].reshape(flat.shape), expected[1], rtol=1e-4, atol=1e-5)
    for name, value in expected[0].items():
        np.testing.assert_allclose(grads[0][name], value, rtol=1e-4, atol=1e-5)
    for name, value in whole.state_dict().items():
        np.testing.assert_allclose(sync.state_dict()[name], value, rtol=1e-5)


def test_sync_batch_norm_without_its_axis():
    with pytest.raises(ValueError, match=r"^SyncBatchNorm: there is no mapped axis 'i' here"):
        nn.SyncBatchNorm(2, axis_name="i")(batches()[0])
    alone, usual = nn.SyncBatchNorm(2), nn.BatchNorm1d(2)
    np.testing.assert_array_equal(alone(batches()[0]), usual(batches()[0]))
    waiting = nn.SyncBatchNorm(2, axis_name="i").eval()
    assert waiting(batches()[0]).shape == (3, 2, 5)


def test_converting_to_sync_batch_norm_hands_the_boxes_on():
    inner = nn.Sequential(nn.BatchNorm2d(3, eps=0.1), nn.BatchNorm1d(2, affine=False))
    net = nn.Sequential(inner, nn.ReLU(), nn.BatchNorm1d(4, track_running_stats=False)).eval()
    boxes = dict([*net.named_parameters(), *net.named_buffers()])
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    assert nn.SyncBatchNorm.convert_sync_batchnorm(net, axis_name="i") is net
    norms = [m for m in net.modules() if isinstance(m, nn.SyncBatchNorm)]
    assert [m.num_features for m in norms] == [3, 2, 4]
    assert {m.axis_name for m in norms} == {"i"} and not any(m.training for m in norms)
    assert norms[0].eps == 0.1 and norms[1].weight is None and norms[2].running_mean is None
    after = dict([*net.named_parameters(), *net.named_buffers()])
    assert list(after) == list(boxes) and all(after[k] is boxes[k] for k in boxes)
    assert len(optimizer.param_groups[0]["params"]) == 4
    one = nn.BatchNorm1d(2)
    assert nn.SyncBatchNorm.convert_sync_batchnorm(one).weight is one.weight


def test_instance_norm_of_other_channels_warns_where_they_do_not_matter():
    with pytest.warns(UserWarning, match="expected input with 3 channels"):
        nn.InstanceNorm1d(3)(jnp.ones((1, 2, 4)))


def test_instance_norm_statistics_are_not_differentiated_and_change_once():
    norm, x = nn.InstanceNorm1d(2, track_running_stats=True), batches()[0]
    js.grad(lambda x: (norm(x) ** 2).sum())(x)
    mean = np.asarray(x).mean((0, 2))
    np.testing.assert_allclose(norm.running_mean, 0.1 * mean, rtol=1e-5)
    assert int(norm.num_batches_tracked) == 0


# Resizing.


def test_unlike_dtypes_and_integers_of_nearest_modes():
    x = jnp.arange(4, dtype=jnp.uint8).reshape(1, 1, 4)
    assert F.interpolate(x, 8).tolist() == [[[0, 0, 1, 1, 2, 2, 3, 3]]]
    assert F.interpolate(x, 2, mode="nearest-exact").tolist() == [[[1, 3]]]


def test_grid_sample_of_nan_and_far_places_reads_nothing():
    x = jnp.ones((1, 1, 3, 3))
    grid = jnp.array([[[[jnp.nan, 0.0], [1e30, 0.0], [0.0, -jnp.inf]]]])
    y = jax.jit(lambda x, g: [F.grid_sample(x, g, "bilinear", p) for p in ("zeros", "border")])
    assert np.ravel(y(x, grid)).tolist() == [0, 0, 0, 1, 1, 1]


def test_the_identity_grid_gives_the_image_back():
    x = jnp.asarray(np.random.RandomState(0).randn(2, 3, 4, 5), jnp.float32)
    theta = jnp.broadcast_to(jnp.eye(2, 3), (2, 2, 3))

    @jax.jit
    def back(x, theta):
        grids = [F.affine_grid(theta, x.shape, align) for align in (True, False)]
        return [F.grid_sample(x, grids[a], align_corners=not a) for a in (0, 1)]

    for y in back(x, theta):
        np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-5)
