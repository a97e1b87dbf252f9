"""js.grad and js.value_and_grad: gradients by name, and state that stays changed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn, optim

X = np.arange(6, dtype=np.float32).reshape(3, 2) / 3
HOW = pytest.mark.parametrize("wrap", [lambda f: f, js.jit], ids=["eager", "jit"])


def linear(seed=0, out=2):
    return nn.Linear(2, out, rngs=js.Rngs(seed))


def loss_of(model, x=X):
    return (model(x) ** 2).mean()


def raw_grad(model, x=X):
    w, b = model.weight.value, model.bias.value
    return jax.grad(lambda w, b: ((x @ w.T + b) ** 2).mean(), (0, 1))(w, b)


@HOW
def test_the_gradient_of_a_module_is_raw_jaxs_by_name(wrap):
    model = linear()
    value, grads = wrap(lambda m: js.value_and_grad(loss_of)(m))(model)
    np.testing.assert_allclose(value, loss_of(model), rtol=1e-6)
    assert list(grads) == ["weight", "bias"]
    for got, expected in zip(grads.values(), raw_grad(model)):
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    only = wrap(lambda m: js.grad(loss_of)(m))(model)
    np.testing.assert_array_equal(only["weight"], grads["weight"])


def test_arrays_are_as_in_jax():
    def f(x, y):
        return (x**2 * y).sum()

    x, y = jnp.arange(3.0), jnp.ones(3)
    np.testing.assert_array_equal(js.grad(f)(x, y), jax.grad(f)(x, y))
    for argnums in (0, 1, (0, 1), (1, 0), (0,), -1, (-1, -2), [0, 1]):
        ours = js.value_and_grad(f, argnums=argnums)(x, y)
        raw = jax.value_and_grad(f, argnums=argnums)(x, y)
        assert jax.tree.structure(ours) == jax.tree.structure(raw)
        jax.tree.map(np.testing.assert_array_equal, ours, raw)
    assert float(js.grad(lambda x: x**2)(3.0)) == 6


def test_several_argnums_modules_and_arrays_mixed_give_a_tuple():
    model, x = linear(), jnp.asarray(X)
    grads, dx = js.grad(loss_of, argnums=(0, 1))(model, x)
    assert isinstance(grads, js.Grads)
    np.testing.assert_allclose(
        dx, jax.grad(lambda x: loss_of(model, x))(x), rtol=1e-6
    )  # fmt: skip
    dx, grads = js.grad(loss_of, argnums=(-1, 0))(model, x)
    assert isinstance(grads, js.Grads) and dx.shape == x.shape


def test_a_pytree_argument_gives_the_same_pytree_with_a_grads_for_each_stateful():
    tree = {"a": linear(0), "b": [linear(1), jnp.ones((3, 2))]}

    def loss(tree):
        return loss_of(tree["a"]) + loss_of(tree["b"][0], tree["b"][1])

    grads = js.grad(loss)(tree)
    assert set(grads) == {"a", "b"}
    np.testing.assert_allclose(grads["a"]["weight"], raw_grad(tree["a"])[0], rtol=1e-5)
    assert grads["b"][0].boxes[0] is tree["b"][0].weight
    assert grads["b"][1].shape == (3, 2)


def test_grads_are_an_ordered_mapping_and_a_pytree():
    model = linear()
    grads = js.grad(loss_of)(model)
    assert list(grads.keys()) == ["weight", "bias"] and len(grads) == 2
    assert "weight" in grads and "other" not in grads
    doubled = jax.tree.map(lambda g: 2 * g, grads)
    assert isinstance(doubled, js.Grads)
    assert all(a is b for a, b in zip(doubled.boxes, grads.boxes))
    np.testing.assert_array_equal(doubled["bias"], 2 * grads["bias"])
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(grads)]
    assert paths == ["['weight']", "['bias']"]
    other = js.grad(loss_of)(linear(1))
    assert jax.tree.structure(other) == jax.tree.structure(grads)
    assert isinstance(jax.tree.map(jnp.add, grads, other), js.Grads)
    with pytest.raises(KeyError, match="no gradient for 'other'; there is for: weight, bias"):
        grads["other"]


def test_grads_remember_the_boxes_and_do_not_keep_them_alive():
    model = linear()
    grads = js.grad(loss_of)(model)
    assert grads.boxes[0] is model.weight
    del model
    with pytest.raises(ReferenceError, match="'weight'"):
        grads.boxes  # noqa: B018


def test_only_is_the_part_for_one_of_several_optimizers():
    pair = nn.Sequential(linear(0), linear(1))
    grads = js.grad(loss_of)(pair)
    optimizer = optim.SGD(pair[1].parameters(), lr=0.1)
    assert list(grads.only(optimizer)) == ["1.weight", "1.bias"]
    assert list(grads.only(pair[0])) == ["0.weight", "0.bias"]
    assert list(grads.only(pair[0].bias)) == ["0.bias"]
    assert list(grads.only(list(pair[1].parameters())[::-1])) == ["1.weight", "1.bias"]
    with pytest.raises(ValueError, match="only"):
        optimizer.step(grads)


@HOW
@pytest.mark.parametrize("how", ["predicate", "parameter", "list", "iterator", "module"])
def test_wrt_narrows_the_parameters(wrap, how):
    pair = nn.Sequential(linear(0), linear(1))
    wrt, names = {
        "predicate": (lambda name, p: name.endswith("bias"), ["0.bias", "1.bias"]),
        "parameter": (pair[1].weight, ["1.weight"]),
        "list": ([pair[1].weight, pair[0].bias], ["0.bias", "1.weight"]),
        "iterator": (pair[1].parameters(), ["1.weight", "1.bias"]),
        "module": (pair[0], ["0.weight", "0.bias"]),
    }[how]
    full = js.grad(loss_of)(pair)
    f = js.grad(loss_of, wrt=wrt)
    step = wrap(lambda m: f(m))
    for _ in range(2):
        grads = step(pair)
        assert list(grads) == names
        for name in names:
            np.testing.assert_allclose(grads[name], full[name], rtol=1e-5)


@HOW
def test_wrt_may_name_parameters_that_the_function_reaches_by_itself(wrap):
    model = linear()
    grads = wrap(lambda: js.grad(lambda: loss_of(model), wrt=model)())()
    assert list(grads) == ["weight", "bias"]
    np.testing.assert_allclose(grads["weight"], raw_grad(model)[0], rtol=1e-5)
    _, grads = js.value_and_grad(lambda: loss_of(model), wrt=[model.bias])()
    assert list(grads) == ["bias"]


def test_wrt_takes_nothing_else():
    with pytest.raises(TypeError, match="wrt= takes a predicate or Parameters, got str"):
        js.grad(loss_of, wrt=["weight"])(linear())


def test_a_parameter_that_the_loss_does_not_use_gets_zeros():
    grads = js.grad(lambda m: m.weight.sum())(linear())
    np.testing.assert_array_equal(grads["bias"], [0, 0])


def test_the_structure_is_the_same_in_train_and_eval():
    model = nn.Sequential(linear(), nn.BatchNorm1d(2), nn.Dropout(0.0))
    structures = set()
    for mode in (True, False, True):
        model.train(mode)
        structures.add(jax.tree.structure(js.grad(loss_of)(model)))
    assert len(structures) == 1


@HOW
def test_frozen_parameters_get_no_gradient(wrap):
    model = linear()
    model.weight.requires_grad = False
    assert list(wrap(lambda m: js.grad(loss_of)(m))(model)) == ["bias"]


@HOW
def test_a_tied_weight_has_one_gradient_the_sum_of_its_paths(wrap):
    pair = nn.Sequential(linear(0), linear(1))
    pair[1].weight = pair[0].weight
    w, a, b = pair[0].weight.value, pair[0].bias.value, pair[1].bias.value
    expected = jax.grad(lambda w: (((X @ w.T + a) @ w.T + b) ** 2).mean())(w)
    grads = wrap(lambda m: js.grad(loss_of)(m))(pair)
    assert list(grads) == ["0.weight", "0.bias", "1.bias"]
    np.testing.assert_allclose(grads["0.weight"], expected, rtol=1e-5)
    optimizer = optim.SGD(pair.parameters(), lr=0.1)
    wrap(lambda m, o: o.step(js.grad(loss_of)(m)))(pair, optimizer)
    assert pair[1].weight is pair[0].weight
    np.testing.assert_allclose(pair[1].weight, w - 0.1 * expected, rtol=1e-5)


def test_one_model_passed_twice_gives_the_whole_gradient_for_both():
    model = linear()

    def loss(a, b):
        return loss_of(a) + a.weight.sum() + b.weight.sum()

    first, second = js.grad(loss, argnums=(0, 1))(model, model)
    np.testing.assert_allclose(first["weight"], raw_grad(model)[0] + 2, rtol=1e-5)
    np.testing.assert_array_equal(first["weight"], second["weight"])


@HOW
def test_buffers_and_streams_that_the_loss_changed_stay_changed(wrap):
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5), linear())
    twin = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5), linear())
    rngs, other = js.Rngs(dropout=1), js.Rngs(dropout=1)
    step = wrap(lambda m, r: js.grad(lambda m: (m(X, rngs=r) ** 2).mean())(m))
    for n in range(1, 3):
        step(model, rngs)
        twin(X, rngs=other)
        assert int(model[0].num_batches_tracked) == n
        assert rngs.counts == other.counts == {"dropout": n}
        np.testing.assert_allclose(model[0].running_mean, twin[0].running_mean, rtol=1e-6)


@HOW
def test_a_box_that_the_loss_reads_after_writing_carries_the_gradient(wrap):
    state = js.Variable(jnp.zeros(2))

    def loss(m):
        state.value = m.bias * 3.0
        return (state * state).sum()

    model = linear()
    model.bias.value = jnp.array([1.0, 2.0])
    grads = wrap(lambda m: js.grad(loss)(m))(model)
    np.testing.assert_array_equal(grads["bias"], [18, 36])
    np.testing.assert_array_equal(state, [3, 6])


@HOW
def test_a_parameter_that_the_loss_writes_stays_written(wrap):
    model = linear()
    before = model.bias.value

    def loss(m):
        out = (m.bias * 2.0).sum()
        m.bias.value = m.bias + 1.0
        return out + m.bias.sum()

    grads = wrap(lambda m: js.grad(loss)(m))(model)
    np.testing.assert_array_equal(grads["bias"], [3, 3])
    np.testing.assert_array_equal(model.bias, before + 1)


def test_integer_boolean_and_key_state_is_never_differentiated_and_may_be_written():
    class State(js.Stateful):
        def __init__(self):
            self.w = nn.Parameter(jnp.ones(2))
            self.n = js.Variable(jnp.zeros((), jnp.int32))
            self.flag = js.Variable(jnp.zeros((), bool))
            self.key = js.Variable(jax.random.key(0))

    state = State()

    def loss(s):
        s.n += 1
        s.flag.value = ~s.flag.value
        s.key.value = jax.random.fold_in(s.key.value, 1)
        return (s.w**2).sum() + s.n.astype(jnp.float32)

    grads = js.grad(loss)(state)
    assert list(grads) == ["w"]
    assert int(state.n) == 1 and bool(state.flag)


@HOW
@pytest.mark.parametrize("has_aux", [False, True])
def test_aux_may_hold_anything(wrap, has_aux):
    model = linear()
    if not has_aux:
        with pytest.raises(TypeError, match="must return a scalar"):
            wrap(lambda m: js.grad(lambda m: (loss_of(m), 1))(m))(model)
        return

    def f(m):
        def loss(m):
            aux = {"x": m(X), "m": m, "n": None, "text": "a", "k": (1, m.weight), "new": linear(5)}
            return loss_of(m), aux

        (value, aux), grads = js.value_and_grad(loss, has_aux=True)(m)
        assert aux["text"] == "a" and aux["m"] is m and aux["k"][1] is m.weight
        out = aux["new"].weight.value
        return value, aux["x"], aux["k"][0], out, grads

    _, x, k, w, _ = wrap(f)(model)
    np.testing.assert_allclose(x, model(X), rtol=1e-6)
    np.testing.assert_array_equal(w, linear(5).weight)
    assert int(k) == 1
    _, aux = js.grad(lambda m: (loss_of(m), "aux"), has_aux=True)(model)
    assert aux == "aux"


def test_a_module_made_in_the_loss_lives_on_as_aux():
    _, new = js.grad(lambda m: (loss_of(m), linear(5)), has_aux=True)(linear())
    np.testing.assert_array_equal(new.weight, linear(5).weight)
    new.weight.value = jnp.zeros((2, 2))


@HOW
def test_grad_of_grad_works(wrap):
    def cube(x):
        return x**3

    assert float(wrap(js.grad(js.grad(cube)))(2.0)) == 12
    model = linear()

    def penalty(m):
        grads = js.grad(loss_of)(m)
        return sum((g**2).sum() for g in grads.values())

    w, b = model.weight.value, model.bias.value
    raw = jax.grad(
        lambda w, b: sum(
            (g**2).sum() for g in jax.grad(lambda w, b: ((X @ w.T + b) ** 2).mean(), (0, 1))(w, b)
        ),
        (0, 1),
    )(w, b)
    grads = wrap(lambda m: js.grad(penalty)(m))(model)
    for got, expected in zip(grads.values(), raw):
        np.testing.assert_allclose(got, expected, rtol=1e-4)


@HOW
def test_state_that_an_inner_gradient_changes_stays_changed_once(wrap):
    count = js.Variable(jnp.zeros((), jnp.int32))

    def inner(x):
        count.value = count + 1
        return x**3

    f = wrap(js.grad(js.grad(inner)))
    for n in range(1, 3):
        assert float(f(2.0)) == 12
        assert int(count) == n


def test_hessian_vector_products_with_raw_jax_work():
    model = linear()
    x, v = jnp.asarray(X), jnp.ones_like(X)

    def of_x(x):
        return loss_of(model, x)

    _, product = jax.jvp(js.grad(of_x), (x,), (v,))
    np.testing.assert_allclose(product, jax.jvp(jax.grad(of_x), (x,), (v,))[1], rtol=1e-5)
    _, pull = jax.vjp(js.grad(of_x), x)
    np.testing.assert_allclose(pull(v)[0], product, rtol=1e-5)
    np.testing.assert_allclose(
        jax.vmap(js.grad(of_x))(x[:, None]), jax.vmap(jax.grad(of_x))(x[:, None]), rtol=1e-6
    )


def test_a_jit_function_inside_grad_and_grad_inside_jit_agree():
    model = linear()
    inside = js.grad(lambda m: js.jit(loss_of)(m))(model)
    outside = js.jit(lambda m: js.grad(loss_of)(m))(model)
    for name in inside:
        np.testing.assert_allclose(inside[name], outside[name], rtol=1e-5)


def test_a_jit_function_that_writes_inside_grad_writes():
    model = nn.BatchNorm1d(2)
    forward = js.jit(lambda m, x: m(x))
    js.grad(lambda m: (forward(m, X) ** 2).mean())(model)
    assert int(model.num_batches_tracked) == 1


def test_custom_vjp_inside():
    @jax.custom_vjp
    def double(x):
        return x

    double.defvjp(lambda x: (x, None), lambda _, g: (2 * g,))
    model = linear()
    grads = js.grad(lambda m: double(m.bias.value).sum())(model)
    np.testing.assert_array_equal(grads["bias"], [2, 2])


def test_stop_gradient_and_detach_stop_gradients():
    model = linear()
    grads = js.grad(lambda m: (js.stop_gradient(m.weight.value) + m.bias.detach()).sum())(model)
    for g in grads.values():
        np.testing.assert_array_equal(g, np.zeros_like(g))


def test_keyword_arguments_are_passed_on():
    grads = js.grad(lambda m, *, x, scale=1.0: loss_of(m, x) * scale)(linear(), x=X, scale=2.0)
    np.testing.assert_allclose(grads["weight"], 2 * raw_grad(linear())[0], rtol=1e-5)


def test_wrapping_keeps_the_name():
    assert js.grad(loss_of).__name__ == "loss_of"
    assert list(js.grad(functools.partial(loss_of, x=X))(linear())) == ["weight", "bias"]


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: js.grad(lambda m: m(X))(linear()), r"must return a scalar.*shape \(3, 2\)"),
        (lambda: js.grad(lambda m: "x")(linear()), "must return a scalar.*got str"),
        (lambda: js.grad(lambda m: loss_of(m), has_aux=True)(linear()), "has_aux=True"),
        (lambda: js.grad(lambda x: x)(3), "Argument 0 of .* is int.*argnums"),
        (lambda: js.grad(lambda x: 1.0)(jnp.arange(3)), "an array of int32"),
        (lambda: js.grad(lambda x: 1.0)({"a": "text"}), "is str, which can't"),
        (lambda: js.grad(lambda m: 1.0)(m=3.0), "0 positional arguments.*argument 0.*argnums"),
        (lambda: js.grad(lambda m: 1.0, argnums=1)(3.0), "1 positional arguments.*argument 1"),
    ],
)
def test_what_can_not_be_differentiated_is_refused(call, text):
    with pytest.raises(TypeError, match=f"(?s){text}"):
        call()


def test_a_gradient_of_nothing_trainable_is_empty():
    assert len(js.grad(lambda r: jnp.ones(()))(js.Rngs(0))) == 0


def test_a_jit_function_over_a_gradient_returns_python_scalars_as_arrays():
    value, grads = js.jit(lambda m: js.value_and_grad(lambda m: 2.0)(m))(linear())
    assert float(value) == 2.0 and float(grads["bias"][0]) == 0
