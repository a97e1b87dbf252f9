"""js.split, js.merge and js.eval_shape: objects for everybody else's tools."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim

X = np.arange(6, dtype=np.float32).reshape(3, 2)


def net(seed=0):
    return nn.Sequential(nn.Linear(2, 2, rngs=js.Rngs(seed)), nn.BatchNorm1d(2), nn.Dropout(0.5))


def test_split_gives_a_plain_pytree_by_name():
    model = net()
    structure, arrays = js.split(model)
    assert list(arrays)[:2] == ["0.weight", "0.bias"]
    assert all(isinstance(a, jax.Array) and not isinstance(a, js.Variable) for a in arrays.values())
    assert len(jax.tree.leaves(arrays)) == len(arrays) == 7
    assert repr(structure) == "Structure(Sequential, 7 arrays)"


def test_merge_gives_a_new_object_that_shares_nothing():
    model = net()
    twin = js.merge(*js.split(model))
    assert type(twin) is type(model) and twin[0] is not model[0]
    np.testing.assert_array_equal(twin.eval()(X), model.eval()(X))
    twin[0].weight.value = jnp.zeros((2, 2))
    assert float(jnp.abs(model[0].weight.value).sum()) > 0
    js.jit(lambda m: setattr(m[0].weight, "value", m[0].weight + 1.0))(model)
    assert twin.training is False


def test_modes_and_plain_attributes_are_in_the_structure():
    model = net().eval()
    model[0].weight.requires_grad = False
    structure, arrays = js.split(model)
    twin = js.merge(structure, arrays)
    assert not twin.training and not twin[2].training
    assert [p.requires_grad for p in twin.parameters()] == [False, True, True, True]
    model.train()
    assert js.merge(structure, arrays).training is False


def test_a_structure_is_hashable_and_equal_for_equal_architectures():
    a, b = js.split(net(0))[0], js.split(net(1))[0]
    assert a == b and hash(a) == hash(b)
    assert a != js.split(net(0).eval())[0]
    assert a != js.split(nn.Linear(2, 2, rngs=js.Rngs(0)))[0]


def test_what_is_shared_occurs_once_and_is_shared_again():
    pair = nn.Sequential(nn.Linear(2, 2, rngs=js.Rngs(0)), nn.Linear(2, 2, rngs=js.Rngs(1)))
    pair[1].weight = pair[0].weight
    structure, arrays = js.split(pair)
    assert list(arrays) == ["0.weight", "0.bias", "1.bias"]
    twin = js.merge(structure, arrays)
    assert twin[1].weight is twin[0].weight


def test_streams_and_optimizers_split_too():
    model = nn.Linear(2, 1, rngs=js.Rngs(0))
    for obj in (js.Rngs(0, dropout=1), optim.Adam(model.parameters(), lr=0.1)):
        structure, arrays = js.split(obj)
        twin = js.merge(structure, arrays)
        assert type(twin) is type(obj)
        assert list(js.split(twin)[1]) == list(arrays)
    box = js.Variable(jnp.ones(3))
    structure, arrays = js.split(box)
    np.testing.assert_array_equal(js.merge(structure, arrays), np.ones(3))


def test_raw_jit_grad_and_vmap_take_it():
    model = nn.Linear(2, 2, rngs=js.Rngs(0))
    structure, arrays = js.split(model)

    @jax.jit
    def loss(arrays, x):
        return (js.merge(structure, arrays)(x) ** 2).mean()

    np.testing.assert_allclose(loss(arrays, X), (model(X) ** 2).mean(), rtol=1e-6)
    ours = js.grad(lambda m: (m(X) ** 2).mean())(model)
    raw = jax.grad(loss)(arrays, X)
    for name in ours:
        np.testing.assert_allclose(raw[name], ours[name], rtol=1e-5)
    static = jax.jit(lambda s, a, x: js.merge(s, a)(x), static_argnums=0)
    np.testing.assert_allclose(static(structure, arrays, X), model(X), rtol=1e-6)
    stacked = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), arrays)
    out = jax.vmap(lambda a: js.merge(structure, a)(X))(stacked)
    np.testing.assert_allclose(out, [model(X), 2 * model(X)], rtol=1e-6)


def test_a_merged_object_may_change_inside_a_raw_transform():
    model = nn.BatchNorm1d(2)
    structure, arrays = js.split(model)

    @jax.jit
    def step(arrays):
        twin = js.merge(structure, arrays)
        twin(X)
        grads = js.grad(lambda m: (m(X) ** 3).mean())(twin)
        return js.split(twin)[1], grads

    for _ in range(2):
        arrays, grads = step(arrays)
    assert int(arrays["num_batches_tracked"]) == 4
    assert list(dict(grads)) == ["weight", "bias"]
    assert int(model.num_batches_tracked) == 0
    np.testing.assert_allclose(
        js.merge(structure, arrays).running_mean, arrays["running_mean"]
    )  # fmt: skip


def test_split_and_merge_work_inside_js_transforms():
    model = nn.Linear(2, 2, rngs=js.Rngs(0))

    @js.jit
    def f(model):
        structure, arrays = js.split(model)
        twin = js.merge(structure, jax.tree.map(lambda a: 2 * a, arrays))
        model.weight += 1.0
        return twin(X), twin

    before = model(X)
    out, twin = f(model)
    np.testing.assert_allclose(out, 2 * before, rtol=1e-6)
    np.testing.assert_allclose(twin(X), 2 * before, rtol=1e-6)


def test_arrays_that_were_split_off_are_never_deleted():
    model = nn.Linear(2, 2, rngs=js.Rngs(0))
    _, arrays = js.split(model)
    step = js.jit(lambda m: setattr(m.weight, "value", m.weight * 2.0))
    step(model), step(model)
    assert not any(array.is_deleted() for array in arrays.values())
    structure, arrays = js.split(model)
    twin = js.merge(structure, arrays)
    step(twin), step(twin)
    assert not any(array.is_deleted() for array in arrays.values())
    assert float(jnp.abs(twin.weight - 4 * model.weight).max()) == 0


def test_names_that_do_not_fit_are_refused():
    structure, arrays = js.split(nn.Linear(2, 2, rngs=js.Rngs(0)))
    del arrays["bias"]
    arrays["extra"] = jnp.ones(2)
    with pytest.raises(ValueError, match=r"missing \['bias'\], unexpected \['extra'\]"):
        js.merge(structure, arrays)
    with pytest.raises(TypeError, match="takes a Stateful object, got dict"):
        js.split({})


def test_optax_trains_what_was_split():
    optax = pytest.importorskip("optax")
    model = nn.Linear(2, 1, rngs=js.Rngs(0))
    structure, params = js.split(model)
    transformation = optax.adam(0.1)
    state = transformation.init(params)

    def loss(params):
        return (js.merge(structure, params)(X) ** 2).mean()

    @jax.jit
    def step(params, state):
        value, grads = jax.value_and_grad(loss)(params)
        updates, state = transformation.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    losses = []
    with jax.numpy_dtype_promotion("standard"):  # Optax isn't strict
        for _ in range(20):
            params, state, value = step(params, state)
            losses.append(float(value))
    assert losses[-1] < losses[0]
    for name, box in model.named_parameters():
        box.value = params[name]
    np.testing.assert_allclose((model(X) ** 2).mean(), loss(params), rtol=1e-6)


def test_eval_shape_gives_shapes_and_changes_nothing():
    model, rngs = net(), js.Rngs(0)
    out = js.eval_shape(
        lambda m, x, r: {"y": m(x, rngs=r), "w": m[0].weight}, model, jnp.ones((5, 2)), rngs
    )
    assert out["y"] == jax.ShapeDtypeStruct((5, 2), jnp.float32)
    assert out["w"].shape == (2, 2)
    assert int(model[1].num_batches_tracked) == 0
    assert rngs.counts == {}


def test_eval_shape_takes_shapes_keywords_and_trees():
    model = nn.Linear(2, 1, rngs=js.Rngs(0))
    shape = jax.ShapeDtypeStruct((7, 2), jnp.float32)
    assert js.eval_shape(model, shape).shape == (7, 1)
    assert js.eval_shape(lambda *, t: t["m"](t["x"]), t={"m": model, "x": shape}).shape == (7, 1)


def test_eval_shape_of_gradients_keeps_their_names():
    model = nn.Linear(2, 1, rngs=js.Rngs(0))
    grads = js.eval_shape(js.grad(lambda m, x: m(x).sum()), model, X)
    assert {name: g.shape for name, g in grads.items()} == {"weight": (1, 2), "bias": (1,)}


def test_eval_shape_works_inside_jit_and_leaves_the_state_alone():
    model = nn.BatchNorm1d(2)

    @js.jit
    def f(x):
        assert js.eval_shape(model, x).shape == (3, 2)
        return x

    f(X)
    assert int(model.num_batches_tracked) == 0


def test_eval_shape_rolls_back_when_it_raises():
    rngs = js.Rngs(0)

    def f():
        rngs.next("noise")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        js.eval_shape(f)
    assert rngs.counts == {}
    assert float(jax.random.uniform(rngs.next("noise"))) == float(
        jax.random.uniform(js.Rngs(0).next("noise"))
    )
