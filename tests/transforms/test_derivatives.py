"""jvp, vjp, linearize, Jacobians, Hessians, remat and checkify against JAX over plain arrays."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.nn import functional as F

X = jax.random.normal(jax.random.key(0), (3, 2))


def make_model():
    return nn.Sequential(
        nn.Linear(2, 2, rngs=js.Rngs(0)), nn.Tanh(), nn.Linear(2, 1, rngs=js.Rngs(1))
    )


def loss(model, x=X):
    return (model(x) ** 2).mean()


def plain(model, fn):
    """Return ``fn`` of a model as a function of a dict of its arrays, and that dict."""
    structure, arrays = js.split(model)
    return lambda arrays, *args: fn(js.merge(structure, arrays), *args), arrays


def same(ours, theirs, **kwargs):
    for name in ours:
        one, other = ours[name], theirs[name]
        np.testing.assert_allclose(one, other, **{"rtol": 1e-5, "atol": 1e-6, **kwargs})


WAYS = [lambda f: f, js.jit]


@pytest.mark.parametrize("way", WAYS, ids=["eager", "jit"])
def test_hessian_vector_products_by_jvp_of_grad(way):
    model = make_model()
    fn, arrays = plain(model, loss)
    vector = js.grad(loss)(model)
    gradient, product = way(lambda m, v: js.jvp(js.grad(loss), (m,), (v,)))(model, vector)
    expected = jax.jvp(jax.grad(fn), (arrays,), (dict(vector),))
    same(gradient, expected[0])
    same(product, expected[1])
    part = js.jvp(js.grad(loss), (model,), (vector.only([model[0].weight]),))[1]
    zeros = {name: jnp.zeros_like(v) for name, v in vector.items()}
    tangent = {**zeros, "0.weight": vector["0.weight"]}
    same(part, jax.jvp(jax.grad(fn), (arrays,), (tangent,))[1])


@pytest.mark.parametrize("way", WAYS, ids=["eager", "jit"])
def test_vjp_and_linearize_of_several_arguments(way):
    model = make_model()
    fn, arrays = plain(model, lambda m, x: {"y": m(x)})

    def pulled(m, x):
        out, pull = js.vjp(lambda m, x: {"y": m(x)}, m, x)
        return out, *pull({"y": jnp.ones_like(out["y"])})

    out, of_model, of_x = way(pulled)(model, X)
    expected, pull = jax.vjp(fn, arrays, X)
    grads, x_bar = pull({"y": jnp.ones_like(expected["y"])})
    np.testing.assert_allclose(out["y"], expected["y"], rtol=1e-6)
    same(of_model, grads)
    np.testing.assert_allclose(of_x, x_bar, rtol=1e-5)

    def pushed(m, x, v):
        _, push = js.linearize(lambda m, x: m(x), m, x)
        return push(v, jnp.zeros_like(x)), push({"0.bias": v["0.bias"]}, x)

    vector = js.grad(loss)(model)
    one, two = way(pushed)(model, X, vector)
    fn, arrays = plain(model, lambda m, x: m(x))
    zeros = jax.tree.map(jnp.zeros_like, arrays)
    np.testing.assert_allclose(
        one, jax.jvp(fn, (arrays, X), (dict(vector), jnp.zeros_like(X)))[1], rtol=1e-5, atol=1e-6
    )
    tangents = ({**zeros, "0.bias": vector["0.bias"]}, X)
    np.testing.assert_allclose(two, jax.jvp(fn, (arrays, X), tangents)[1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("way", WAYS, ids=["eager", "jit"])
@pytest.mark.parametrize("ours", [js.jacfwd, js.jacrev], ids=["jacfwd", "jacrev"])
def test_jacobians(ours, way):
    model = make_model()
    fn, arrays = plain(model, lambda m, x: {"y": m(x)})
    found = way(ours(lambda m, x: {"y": m(x)}, argnums=(0, 1)))(model, X)
    expected = jax.jacrev(fn, argnums=(0, 1))(arrays, X)
    same(found["y"][0], expected["y"][0])
    np.testing.assert_allclose(found["y"][1], expected["y"][1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("way", WAYS, ids=["eager", "jit"])
def test_a_hessian_is_a_grads_of_grads(way):
    model = make_model()
    fn, arrays = plain(model, loss)
    found, expected = way(js.hessian(loss))(model), jax.hessian(fn)(arrays)
    assert list(found) == list(found["0.weight"]) == [name for name, _ in model.named_parameters()]
    for row in found:
        same(found[row], expected[row])
    weight = js.hessian(loss, wrt=[model[0].weight])(model)
    same(weight["0.weight"], {"0.weight": expected["0.weight"]["0.weight"]})


def test_what_is_written_and_drawn_is_so_once_and_aux_comes_out():
    def fn(m, x):
        seen.value += 1
        noise = jax.random.normal(rngs.next("noise"), x.shape)
        rngs.reseed(other=1)
        return (m(x + noise) ** 2).mean(), {"x": x, "who": m}

    model = make_model()
    ones = jax.tree.map(jnp.ones_like, js.grad(loss)(model))
    runs = {
        "jvp": lambda: js.jvp(fn, (model, X), (ones, X), has_aux=True)[2],
        "vjp": lambda: js.vjp(fn, model, X, has_aux=True)[2],
        "linearize": lambda: js.linearize(fn, model, X, has_aux=True)[2],
        "jacfwd": lambda: js.jacfwd(fn, has_aux=True)(model, X)[1],
        "jacrev": lambda: js.jacrev(fn, has_aux=True)(model, X)[1],
        "hessian": lambda: js.hessian(fn, has_aux=True)(model, X)[1],
        "grad": lambda: js.grad(fn, has_aux=True)(model, X)[1],
    }
    for name, run in runs.items():
        for way in WAYS:
            seen, rngs = js.Variable(jnp.zeros(())), js.Rngs(0, other=2)
            aux = way(run)()
            assert aux["who"] is model, name
            np.testing.assert_array_equal(aux["x"], X)
            assert float(seen) == 1 and rngs.counts == {"other": 0, "noise": 1}, name


def test_gradients_of_gradients_and_of_integers():
    assert float(js.grad(js.grad(lambda x: x**3))(2.0)) == 12
    out, pull = js.vjp(lambda m, i: m.weight.value[i].sum(), make_model()[0], jnp.array([0]))
    grads, of_index = pull(jnp.ones_like(out))
    assert grads["weight"].tolist() == [[1, 1], [0, 0]] and of_index.dtype == jax.dtypes.float0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda m: js.jvp(loss, m, (1.0,)), TypeError, "primals must be a tuple"),
        (lambda m: js.jvp(loss, (m,), ()), TypeError, "1 tangents"),
        (lambda m: js.jvp(loss, (m,), (jnp.ones(2),)), TypeError, "js.Grads"),
        (lambda m: js.jvp(loss, (m,), ({"w": jnp.ones(2)},)), ValueError, "Parameter w"),
        (
            lambda m: js.jvp(loss, (m,), ({"0.bias": jnp.ones(3)},)),
            ValueError,
            r"0\.bias has shape",
        ),
        (lambda m: js.vjp(lambda m: m(X), m)[1]((X, X)), TypeError, "structure"),
        (lambda m: js.jacrev(lambda m, i: i)(m), TypeError, "i"),
        (lambda m: js.jacfwd(lambda x: x)(1), TypeError, "Argument 0"),
    ],
)
def test_what_does_not_fit_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call(make_model())


# remat.


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2, rngs=js.Rngs(0))
        self.norm = nn.BatchNorm1d(2)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(jnp.sin(self.norm(self.linear(x))))


@pytest.mark.parametrize("policy", [None, "dots_saveable", "everything_saveable"])
@pytest.mark.parametrize("way", WAYS, ids=["eager", "jit"])
def test_remat_changes_no_number_and_writes_and_draws_once(way, policy):
    policy = policy and getattr(jax.checkpoint_policies, policy)
    block, twin = Block(), Block()
    rngs, other = js.Rngs(dropout=0), js.Rngs(dropout=0)
    ours = way(js.value_and_grad(lambda m: js.remat(m, policy=policy)(X, rngs=rngs).sum()))(block)
    theirs = js.value_and_grad(lambda m: m(X, rngs=other).sum())(twin)
    for one, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-4)
    assert rngs.counts == {"dropout": 1} and int(block.norm.num_batches_tracked) == 1
    np.testing.assert_allclose(block.norm.running_var, twin.norm.running_var, rtol=1e-6)


def test_remat_computes_again_what_it_does_not_store():
    layer = nn.Linear(2, 2, rngs=js.Rngs(0))

    def text(wrap):
        fn = js.jit(js.grad(lambda m: wrap(lambda: jnp.sin(jnp.sin(m(X))))().sum()))
        return fn.lower(layer).as_text()

    assert "optimization_barrier" in text(js.remat)
    assert "optimization_barrier" not in text(lambda f: f)


def test_remat_as_a_decorator_with_static_arguments():
    @js.remat(static_argnums=(1,), prevent_cse=False)
    def f(x, power, *, scale=1.0):
        return x**power * scale

    assert float(js.grad(lambda x: f(x, 3, scale=2.0))(2.0)) == 24
    assert f.__name__ == "f"


# Functions with rules of their own, checks, and prints.


def test_custom_rules_inside():
    @jax.custom_vjp
    def clipped(x):
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.1, 0.1),))

    @jax.custom_jvp
    def doubled(x):
        return x

    doubled.defjvp(lambda p, t: (p[0], 2 * t[0]))
    model = make_model()
    ours = js.jit(js.grad(lambda m: clipped(m(X)).sum()))(model)
    np.testing.assert_allclose(ours["2.bias"], [0.3], rtol=1e-6)
    assert float(js.grad(lambda x: doubled(x * 3.0))(1.0)) == 6
    tangent = js.jvp(lambda m: doubled(m.weight.value), (model[0],), ({"bias": jnp.ones(2)},))[1]
    assert tangent.tolist() == [[0, 0], [0, 0]]


@pytest.mark.parametrize("way", WAYS, ids=["eager", "jit"])
def test_checks_come_out_as_an_error(way):
    calls = js.Variable(jnp.zeros((), jnp.int32))

    def root(x):
        calls.value += 1
        checkify.check(x >= 0, "negative: {}", x)
        return {"root": jnp.sqrt(x)}

    f = way(js.checkify(root))
    error, out = f(4.0)
    error.throw()
    assert float(out["root"]) == 2
    error, _ = f(-1.0)
    with pytest.raises(checkify.JaxRuntimeError, match="negative: -1"):
        error.throw()
    assert int(calls) == 2
    error, _ = way(js.checkify(lambda x: jnp.log(x), errors=checkify.float_checks))(-1.0)
    assert "nan" in error.get()


def test_debug_prints_and_nan_searches_work_inside(capfd):
    model = make_model()

    @js.jit
    def f(m, x):
        jax.debug.print("mean {}", x.mean())
        m[0].bias.value = m[0].bias / x.sum()
        return m(x)

    f(model, X)
    jax.effects_barrier()
    assert "mean" in capfd.readouterr().out
    before = np.asarray(model[0].bias)
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        js.jit(lambda m, x: f(m, x) * 0)(model, jnp.zeros((3, 2)))
    np.testing.assert_array_equal(model[0].bias, before)


def test_transforms_keep_the_names_of_what_they_wrap():
    def train(model):
        """Train."""

    for transform in (js.vmap, js.remat, js.jacfwd, js.jacrev, js.hessian, js.checkify, js.grad):
        assert transform(train).__name__ == "train" and transform(train).__doc__ == "Train."
    partial = functools.partial(F.mse_loss, reduction="sum")
    assert float(js.grad(partial)(jnp.ones(()), jnp.zeros(()))) == 2
