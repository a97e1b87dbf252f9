"""Loops and branches: what the same Python loop or choice does to values, state and streams."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn

WAYS = [lambda f: f, js.jit]


class Thing(js.Stateful):
    """A weight, statistics, and a stream."""

    def __init__(self):
        self.layer = nn.Linear(2, 2, rngs=js.Rngs(0))
        self.norm = nn.BatchNorm1d(2)
        self.total = js.Variable(jnp.zeros(2))
        self.rngs = js.Rngs(7)

    def step(self, h, x):
        """Read, write and draw."""
        noise = jax.random.normal(self.rngs.next("noise"), (2,))
        h = jnp.tanh(self.norm(jnp.stack([self.layer(h), x]))[0] + noise)
        self.total += h
        return h

    def state(self):
        return {
            name: np.asarray(
                jax.random.key_data(a) if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else a
            )
            for name, a in js.split(self)[1].items()
        }


def agree(one, other):
    a, b = one.state(), other.state()
    assert list(a) == list(b)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-6, err_msg=name)


XS = jax.random.normal(jax.random.key(1), (4, 2))


def python_loop(thing, h, xs):
    out = []
    for x in xs:
        h = thing.step(h, x)
        out.append(h)
    return h, jnp.stack(out)


def scanned(thing, h, xs):
    def body(h, x):
        h = thing.step(h, x)
        return h, h

    return js.scan(body, h, xs)


def carried(thing, h, xs):
    def body(carry, x):
        carried, h = carry
        h = carried.step(h, x)
        return (carried, h), h

    (same, h), out = js.scan(body, (thing, h), xs)
    assert same is thing
    return h, out


def fori(thing, h, xs):
    def body(i, carry):
        h, out = carry
        h = thing.step(h, xs[i])
        return h, out.at[i].set(h)

    return js.fori_loop(0, len(xs), body, (h, jnp.zeros_like(xs)))


def whiled(thing, h, xs):
    def body(carry):
        i, h, out = carry
        h = thing.step(h, xs[i])
        return i + 1, h, out.at[i].set(h)

    return js.while_loop(lambda c: c[0] < len(xs), body, (0, h, jnp.zeros_like(xs)))[1:]


@pytest.mark.parametrize("way", WAYS, ids=["eager", "jit"])
@pytest.mark.parametrize("loop", [scanned, carried, fori, whiled])
def test_a_loop_is_the_python_loop(loop, way):
    thing, twin = Thing(), Thing()
    h = jnp.ones(2)
    result = way(lambda h: loop(thing, h, XS))(h)
    for one, other in zip(result, python_loop(twin, h, XS), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    agree(thing, twin)
    assert thing.rngs.counts == {"noise": 4}


@pytest.mark.parametrize("loop", [scanned, carried, fori])
def test_a_gradient_through_a_loop_is_that_through_the_python_loop(loop):
    thing, twin = Thing(), Thing()

    def loss(loop):
        return lambda t, h: loop(t, h, XS)[0].sum()

    ours = js.jit(js.value_and_grad(loss(loop), argnums=(0, 1)))(thing, jnp.ones(2))
    theirs = js.value_and_grad(loss(python_loop), argnums=(0, 1))(twin, jnp.ones(2))
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    agree(thing, twin)


def test_no_steps_change_nothing():
    thing = Thing()
    h = jnp.ones(2)
    for loop in (
        lambda h: scanned(thing, h, XS[:0])[0],
        lambda h: js.fori_loop(2, 2, lambda i, h: thing.step(h, h), h),
        lambda h: js.while_loop(lambda h: h.sum() < 0, lambda h: thing.step(h, h), h),
    ):
        np.testing.assert_array_equal(js.jit(loop)(h), h)
    assert thing.rngs.counts == {"noise": 0}
    assert thing.total.value.tolist() == [0, 0]


def test_loops_nest_in_any_order_under_vmap_and_remat():
    def inner(thing, h):
        return js.fori_loop(0, 3, lambda i, h: js.remat(thing.step)(h, XS[0]), h)

    def outer(thing, h):
        return js.scan(lambda h, x: (inner(thing, h) + x, None), h, XS)[0]

    def plain(thing, h):
        for x in XS:
            for _ in range(3):
                h = thing.step(h, XS[0])
            h = h + x
        return h

    thing, twin = Thing(), Thing()
    np.testing.assert_allclose(outer(thing, XS[1]), plain(twin, XS[1]), rtol=1e-4, atol=1e-5)
    agree(thing, twin)

    things = js.stack([Thing() for _ in range(2)])
    hs = XS[:2]
    out = js.jit(js.vmap(outer))(things, hs)
    for i, one in enumerate(js.unstack(things)):
        alone = Thing()
        np.testing.assert_allclose(out[i], plain(alone, hs[i]), rtol=1e-4, atol=1e-5)
        agree(one, alone)


def test_while_loops_in_lanes_run_as_long_as_each_needs():
    counts = js.Variable(jnp.zeros(3, jnp.int32))

    def lane(count, limit):
        def body(n):
            count.value = count + 1
            return n * 2

        return js.while_loop(lambda n: n < limit, body, 1)

    limits = jnp.array([1, 5, 100])
    out = js.jit(js.vmap(lane))(counts, limits)
    assert out.tolist() == [1, 8, 128] and counts.value.tolist() == [0, 3, 7]


def test_a_stack_is_scanned_layer_by_layer_and_written_back():
    things = [Thing() for _ in range(3)]
    twins = copy.deepcopy(things)
    stacked = js.stack(things)
    h, _ = js.jit(lambda s, h: js.scan(lambda h, t: (t.step(h, XS[0]), None), h, s))(
        stacked, jnp.ones(2)
    )
    expected = jnp.ones(2)
    for twin in twins:
        expected = twin.step(expected, XS[0])
    np.testing.assert_allclose(h, expected, rtol=1e-5, atol=1e-6)
    for one, twin in zip(js.unstack(stacked), twins, strict=True):
        agree(one, twin)


def test_objects_made_in_each_step_come_as_a_stack():
    rngs, twin = js.Rngs(0), js.Rngs(0)
    layers = js.scan(lambda c, _: (c, nn.Linear(2, 1, rngs=rngs)), 0, length=3)[1]
    for layer in js.unstack(layers):
        np.testing.assert_array_equal(layer.weight, nn.Linear(2, 1, rngs=twin).weight)
    assert rngs.counts == twin.counts


def test_options_of_scan():
    xs = jnp.arange(5.0)
    f = lambda c, x: (c + x, c)
    for options in ({"reverse": True}, {"unroll": 2}, {"unroll": True}, {"length": 5}):
        ours, theirs = js.scan(f, 0.0, xs, **options), jax.lax.scan(f, 0.0, xs, **options)
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_a_weak_carry_takes_the_type_it_comes_back_with():
    total, _ = js.scan(lambda c, x: (c + x, None), 0, jnp.arange(3.0))
    assert total.dtype == jnp.float32 and float(total) == 3
    total = js.fori_loop(0, 3, lambda i, c: c + jnp.ones((), jnp.bfloat16), 0)
    assert total.dtype == jnp.bfloat16


def test_the_body_is_traced_once_and_weights_are_inputs():
    calls = []
    layer = nn.Linear(2, 2, rngs=js.Rngs(0))

    @js.jit
    def f(x):
        def body(h, _):
            calls.append(1)
            return layer(h), None

        return js.scan(body, x, length=100)[0]

    f(jnp.ones(2))
    f(jnp.ones(2))
    assert len(calls) == 1
    text = f.lower(jnp.ones(2)).as_text()
    assert "dense<[[" not in text  # no weight became a constant
    assert "100x2x2" not in text  # nor was one repeated for each step


def test_an_associative_scan_reads_and_writes():
    weight = js.Variable(jnp.array(2.0))
    calls = js.Variable(jnp.zeros((), jnp.int32))

    def combine(a, b):
        calls.value += 1
        return (a * b) * weight / 2

    def f(x):
        return js.associative_scan(combine, x)

    out = js.jit(f)(jnp.arange(1.0, 6.0))
    np.testing.assert_allclose(out, jnp.cumprod(jnp.arange(1.0, 6.0)))
    compiled, calls.value = int(calls), 0
    f(jnp.arange(1.0, 6.0))
    assert int(calls) == compiled > 0


# Branches.


@pytest.mark.parametrize("way", WAYS, ids=["eager", "jit"])
def test_the_branch_that_is_not_taken_writes_and_draws_nothing(way):
    thing, twin = Thing(), Thing()
    choose = way(lambda p, h: js.cond(p, thing.step, lambda h, x: h * 2, h, XS[0]))
    before = thing.state()
    np.testing.assert_array_equal(choose(False, jnp.ones(2)), jnp.full(2, 2.0))
    for name, value in before.items():
        np.testing.assert_array_equal(thing.state()[name], value)
    out = choose(True, jnp.ones(2))
    np.testing.assert_allclose(out, twin.step(jnp.ones(2), XS[0]), rtol=1e-5, atol=1e-6)
    agree(thing, twin)


def test_switch_passes_objects_and_clamps_the_index():
    things = [Thing(), Thing()]

    def first(a, b):
        a.total.value = a.total + 1
        return b

    def second(a, b):
        a.total.value = b.total + 10
        b.total.value = a.total * 2
        return b

    f = js.jit(lambda i, a, b: js.switch(i, [first, second], a, b))
    for i, a, b in ((0, 1, 0), (1, 10, 20), (7, 30, 60)):
        assert f(i, *things) is things[1]
        assert things[0].total.value.tolist() == [a, a]
        assert things[1].total.value.tolist() == [b, b]


def test_a_gradient_through_cond_sees_the_branch_that_is_taken():
    layer = nn.Linear(2, 1, rngs=js.Rngs(0))
    x = jnp.ones(2)
    loss = lambda m, p: js.cond(p, lambda: m(x).sum(), lambda: (3 * m(x)).sum())
    g = js.jit(js.grad(loss))
    assert g(layer, True)["bias"].tolist() == [1]
    assert g(layer, False)["bias"].tolist() == [3]


def test_a_stream_that_a_branch_asks_for_first_is_there_afterwards():
    rngs = js.Rngs(0)
    f = js.jit(
        lambda p: js.cond(p, lambda: jax.random.uniform(rngs.next("new")), lambda: jnp.zeros(()))
    )
    f(False)
    assert rngs.counts == {"new": 0}
    assert float(f(True)) == float(jax.random.uniform(js.Rngs(0).next("new")))
    assert f.trace_count == 1


# Errors, which leave everything as it was.


def _write(box, value):
    box.value = value


BAD = {
    "drift of dtype": (
        lambda t: js.scan(lambda h, x: (h.astype(jnp.bfloat16), x), jnp.ones(2), XS),
        "carry goes into .* as float32.2. and comes back as bfloat16.2.",
    ),
    "drift in a container": (
        lambda t: js.fori_loop(0, 2, lambda i, c: {"h": c["h"][:1]}, {"h": jnp.ones(2)}),
        r"carry\['h'\] .* float32.2. and comes back as float32.1.",
    ),
    "drift of a box": (
        lambda t: js.scan(lambda h, x: (_write(t.total, jnp.ones(3)), x), None, XS),
        "writes float32.3. to total, which is float32.2.",
    ),
    "another structure": (
        lambda t: js.while_loop(lambda c: True, lambda c: (c, c), jnp.ones(2)),
        "structure",
    ),
    "another object": (
        lambda t: js.scan(lambda c, x: (Thing(), x), t, XS),
        "must return the Thing in the carry",
    ),
    "no pair": (lambda t: js.scan(lambda c, x: c, 0, XS), r"must return \(carry, y\)"),
    "condition that writes": (
        lambda t: js.while_loop(lambda c: t.step(c, c)[0] > 0, lambda c: c, jnp.ones(2)),
        "condition .* wrote",
    ),
    "condition of no boolean": (
        lambda t: js.while_loop(lambda c: c, lambda c: c, jnp.ones(2)),
        "boolean scalar",
    ),
    "branches of other shapes": (
        lambda t: js.cond(True, lambda: jnp.ones(2), lambda: jnp.ones(3)),
        "different types: float32.2. and float32.3.",
    ),
    "branches of other structures": (
        lambda t: js.cond(True, lambda: (1.0,), lambda: 1.0),
        "different structures",
    ),
    "divergent writes": (
        lambda t: js.cond(True, lambda: _write(t.total, jnp.ones(3)), lambda: None),
        r"total would be float32.3. .*and float32.2.",
    ),
    "a choice that is no scalar": (
        lambda t: js.cond(jnp.ones(2) > 0, lambda: 1.0, lambda: 2.0),
        "jnp.where",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused(name):
    call, text = BAD[name]
    for way in WAYS:
        thing = Thing()
        before = thing.state()
        with pytest.raises(TypeError, match=text):
            way(call)(thing)
        after = thing.state()
        assert list(after) == list(before)
        for key, value in before.items():
            np.testing.assert_array_equal(after[key], value)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda t: js.scan(lambda c, x: (c, x), 0, (XS, XS[:2])), r"xs\[0\] has 4, xs\[1\] has 2"),
        (lambda t: js.scan(lambda c, x: (c, x), 0, XS, length=3), "length has 3"),
        (lambda t: js.scan(lambda c, x: (c, x), 0), "length="),
        (lambda t: js.scan(lambda c, x: (c, x), 0, 1.0), "scalar"),
        (lambda t: js.scan(lambda c, x: (c, None), 0, t), "no stack"),
        (lambda t: js.switch(0, []), "at least one"),
    ],
)
def test_lengths_that_do_not_fit_are_refused(call, text):
    with pytest.raises(ValueError, match=text):
        call(Thing())


def test_an_error_in_a_body_or_branch_changes_nothing():
    def fail(thing):
        thing.step(jnp.ones(2), XS[0])
        raise KeyError("no")

    thing = Thing()
    before = thing.state()
    for call in (
        lambda: js.scan(lambda c, x: fail(thing), 0, XS),
        lambda: js.cond(True, lambda: fail(thing), lambda: 0),
        lambda: js.fori_loop(0, 2, lambda i, c: fail(thing), 0),
        lambda: js.remat(fail)(thing),
    ):
        for way in WAYS:
            with pytest.raises(KeyError):
                way(call)()
            assert list(thing.state()) == list(before)
            assert thing.total.value.tolist() == [0, 0]


def test_a_traced_box_as_a_python_bool_is_named():
    model = nn.Sequential(nn.BatchNorm1d(2))
    f = js.jit(lambda m: 1.0 if m[0].num_batches_tracked > 0 else 0.0)
    with pytest.raises(TypeError):
        f(model)

    class Flagged(nn.Module):
        def __init__(self):
            super().__init__()
            self.flag = js.Variable(jnp.array(True))

        def forward(self, x):
            return x if self.flag else -x

    with pytest.raises(TypeError, match=r"0\.flag .*js\.cond"):
        js.jit(nn.Sequential(Flagged()))(1.0)
    with pytest.raises(TypeError, match=r"0\.flag .*js\.cond"):
        js.scan(lambda c, _: (nn.Sequential(Flagged())(c), None), 1.0, length=2)
