"""Random programs over random object graphs: compiled, they do what they do eagerly.

A program is a list of calls of a few functions, with changes of attributes and of structure between
them. A function is a list of operations: reads, writes, draws, nested transforms, exceptions. It
runs twice on equal objects, once eagerly and once compiled, and both must agree after each call: in
every box, stream, result and exception. Loops, branches, lanes and rematerialisation are plain
Python in the eager run, and jaxsaw's transforms in the compiled one.

    JAXSAW_PROGRAMS=2000 JAXSAW_SEED=1 pytest tests/transforms/test_random_programs.py

runs that many programs of another seed than usual.
"""

import collections
import contextlib
import copy
import os

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

import jaxsaw as js
from jaxsaw import nn

LATE = {f"{prefix}{name}.count" for prefix in ("", "rngs.") for name in ("other", "third")}
NODES = 3
FLOATS = 2


class Oops(Exception):
    pass


class Thing(js.Stateful):
    """Floats to train, an integer, a static factor, streams, and maybe other things."""

    def __init__(self, n, rngs):
        self.w = nn.Parameter(jnp.full((FLOATS,), 0.5 + n))
        self.b = nn.Parameter(jnp.full((FLOATS,), -0.25 * n))
        self.seen = js.Variable(jnp.full((FLOATS,), float(n)))
        self.count = js.Variable(jnp.full((), n, jnp.int32))
        self.factor = 1.0
        self.rngs = rngs
        self.others = []


class World:
    """The objects of one run; ``plain`` says that control flow is Python's."""

    def __init__(self, edges, ties, plain):
        self.plain = plain
        self.rngs = js.Rngs(7, noise=3)
        self.things = [Thing(n, self.rngs) for n in range(NODES)]
        for a, b in edges:
            self.things[a].others.append(self.things[b])
        for a, b in ties:
            self.things[a].w = self.things[b].w

    def state(self):
        found = {}
        for i, obj in enumerate((*self.things, self.rngs)):
            for name, array in js.split(obj)[1].items():
                if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
                    array = jax.random.key_data(array)
                found[i, name] = np.asarray(array)
        # A stream that only a branch asks for is there, unused, when the other one was taken.
        return {key: array for key, array in found.items() if key[1] not in LATE or array.any()}


def run(ops, world, things, x):
    """Interpret a list of operations."""
    total = jnp.zeros(FLOATS)
    for op in ops:
        total = perform(op, total, world, things, x)
    return jnp.tanh(total)


def perform(operation, total, world, things, x):
    """Interpret one operation; return what the function's result is then."""
    op, *rest = operation
    if op == "read":
        thing, name = rest
        total = total + 0.5 * getattr(things[thing], name) * things[thing].factor
    elif op == "write":
        a, name, b = rest
        getattr(things[a], name).value = jnp.tanh(0.5 * things[b].w + total) + x
    elif op == "count":
        thing, n = rest
        things[thing].count += n
    elif op == "item":
        things[rest[0]].seen[1] = x[0]
    elif op == "swap":
        a, b = rest
        one, two = things[a].seen, things[b].seen
        one.value, two.value = two.value, one.value
    elif op == "alias":
        a, b = rest
        things[a].seen.value = things[b].w.value
    elif op == "draw":
        key = world.rngs.next(rest[0])
        total = total + jax.random.uniform(key, (FLOATS,))
    elif op == "others":
        for other in things[rest[0]].others:
            other.count += 1
            total = total + other.b * 0.1
    elif op == "jit":
        inner = js.jit(lambda x, ops=rest[0]: run(ops, world, things, x))
        total = total + 0.1 * inner(x * 2.0)
    elif op == "grad":
        thing, inner_ops = rest

        def loss(m, ops=inner_ops, thing=thing):
            out = run(ops, world, things, x)
            return jnp.tanh(out * m.w + m.b).sum()

        grads = js.grad(loss)(things[thing])
        total = total + sum(0.1 * g for g in grads.values())
    elif op == "jvp":
        thing, inner_ops = rest

        def value(m, ops=inner_ops, thing=thing):
            return run(ops, world, things, x) * m.w

        ones = {"w": jnp.ones(FLOATS)}
        total = total + 0.1 * js.jvp(value, (things[thing],), (ones,))[1]
    elif op == "remat":
        wrap = (lambda f: f) if world.plain else js.remat
        total = total + 0.1 * wrap(lambda x, ops=rest[0]: run(ops, world, things, x))(x)
    elif op in LOOPS:
        n, inner_ops = rest

        def step(h, i, ops=inner_ops):
            return jnp.tanh(h + run(ops, world, things, x * (i + 1.0)))

        total = (_python_loop if world.plain else LOOPS[op])(step, total, n)
    elif op == "cond":
        thing, ops_a, ops_b = rest
        pred = things[thing].count % 2 == 0
        branches = [lambda x, ops=ops: run(ops, world, things, x) for ops in (ops_a, ops_b)]
        if world.plain:
            total = total + 0.1 * branches[0 if bool(pred) else 1](x)
        else:
            total = total + 0.1 * js.cond(pred, *branches, x)
    elif op == "switch":
        thing, *several = rest
        index = jnp.clip(things[thing].count, 0, len(several) - 1)
        branches = [lambda x, ops=ops: run(ops, world, things, x) for ops in several]
        if world.plain:
            total = total + 0.1 * branches[int(index)](x)
        else:
            total = total + 0.1 * js.switch(index, branches, x)
    elif op == "vmap":

        def lane(x, ops=rest[0]):
            return run(ops, world, things, x)

        xs = jnp.stack([x, x * 2.0, x - 1.0])
        out = jnp.stack([lane(x) for x in xs]) if world.plain else js.vmap(lane)(xs)
        total = total + 0.1 * out.sum(0)
    elif op == "caught":
        with contextlib.suppress(Oops):
            js.jit(lambda x, ops=rest[0]: run([*ops, ("raise",)], world, things, x))(x)
    elif op == "raise":
        raise Oops
    return total


def _python_loop(step, h, n):
    for i in range(n):
        h = step(h, float(i))
    return h


def _while(step, h, n):
    return js.while_loop(
        lambda carry: carry[0] < n,
        lambda carry: (carry[0] + 1.0, step(carry[1], carry[0])),
        (0.0, h),
    )[1]


LOOPS = {
    "scan": lambda step, h, n: js.scan(
        lambda h, i: (step(h, i), None), h, jnp.arange(n, dtype=jnp.float32)
    )[0],
    "fori": lambda step, h, n: js.fori_loop(0, n, lambda i, h: step(h, i.astype(jnp.float32)), h),
    "while": _while,
}

node = st.integers(0, NODES - 1)
plain = st.one_of(
    st.tuples(st.just("read"), node, st.sampled_from(["w", "b", "seen"])),
    st.tuples(st.just("write"), node, st.sampled_from(["w", "b", "seen"]), node),
    st.tuples(st.just("count"), node, st.integers(-2, 3)),
    st.tuples(st.just("item"), node),
    st.tuples(st.just("swap"), node, node),
    st.tuples(st.just("alias"), node, node),
    st.tuples(st.just("draw"), st.sampled_from(["noise", "other", "third"])),
    st.tuples(st.just("others"), node),
)
reading = st.one_of(
    st.tuples(st.just("read"), node, st.sampled_from(["w", "b", "seen"])),
)


def nesting(ops):
    """Return operations with others inside."""
    block = st.lists(ops, min_size=1, max_size=3)
    trips = st.integers(0, 3)
    return st.one_of(
        ops,
        ops,
        st.tuples(st.just("jit"), block),
        st.tuples(st.sampled_from(["grad", "jvp"]), node, block),
        st.tuples(st.just("remat"), block),
        st.tuples(st.sampled_from(["scan", "fori"]), trips, block),
        st.tuples(st.just("cond"), node, block, block),
        st.tuples(st.just("switch"), node, block, block, block),
        st.tuples(st.just("vmap"), st.lists(reading, min_size=1, max_size=3)),
        st.tuples(st.just("caught"), block),
    )


operation = st.one_of(
    plain,
    nesting(plain),
    nesting(nesting(plain)),
    st.tuples(st.just("while"), st.integers(0, 3), st.lists(plain, min_size=1, max_size=3)),
)
body = st.tuples(st.lists(operation, min_size=1, max_size=4), st.sampled_from([False] * 7 + [True]))
change = st.one_of(
    st.tuples(st.just("factor"), node, st.sampled_from([1.0, 2.0])),
    st.tuples(st.just("append"), node, node),
    st.tuples(st.just("pop"), node),
    st.tuples(st.just("freeze"), node),
    st.tuples(st.just("retie"), node, node),
    st.tuples(st.just("assign"), node),
    st.tuples(st.just("hold"), node),
    st.tuples(st.just("nothing")),
)
call = st.tuples(st.integers(0, 1), st.booleans(), change)
pairs = st.lists(st.tuples(node, node), max_size=2)


def alter(world, change, held):
    """Change an object between calls."""
    kind, *rest = change
    thing = world.things[rest[0]] if rest else None
    if kind == "factor":
        thing.factor = rest[1]
    elif kind == "append":
        thing.others.append(world.things[rest[1]])
    elif kind == "pop" and thing.others:
        thing.others.pop()
    elif kind == "freeze":
        thing.b.requires_grad = not thing.b.requires_grad
    elif kind == "retie":
        thing.w = world.things[rest[1]].w
    elif kind == "assign":
        thing.seen.value = jnp.full((FLOATS,), 0.125)
    elif kind == "hold":
        array = thing.w.value
        held.append((array, np.array(array)))


PROGRAMS = int(os.environ.get("JAXSAW_PROGRAMS", "60"))
PHASES = 5 if PROGRAMS <= 60 else 3  # a long search doesn't shrink what it finds
SEED = int(os.environ.get("JAXSAW_SEED", "0"))
SEEN = collections.Counter()  # how often each operation, and each pair of nested ones, was run


def count(ops, outer=""):
    for op, *rest in ops:
        SEEN[f"{outer}{op}"] += 1
        for part in rest:
            if isinstance(part, list):
                count(part, f"{op} > ")


@seed(SEED)
@settings(
    max_examples=PROGRAMS, derandomize=False, phases=list(Phase)[: 5 if PROGRAMS <= 60 else 3]
)
@given(
    edges=pairs, ties=pairs, bodies=st.tuples(body, body), calls=st.lists(call, max_size=5),
    passed=st.booleans(),
)  # fmt: skip
def test_a_compiled_program_does_what_it_does_eagerly(edges, ties, bodies, calls, passed):
    eager, compiled = World(edges, ties, plain=True), World(edges, ties, plain=False)
    for ops, _ in bodies:
        count(ops)

    def functions(world):
        def make(ops, raises):
            ops = [*ops, ("raise",)] if raises else ops
            if passed:
                return lambda things, x: run(ops, world, things, x)
            return lambda x: run(ops, world, world.things, x)

        return [make(*body) for body in bodies]

    plain = functions(eager)
    jitted = [js.jit(f) for f in functions(compiled)]
    held = []
    for which, again, change in calls:
        x = jnp.array([0.5, -0.5])
        for _ in range(1 + again):
            before = copy.deepcopy(compiled.state())
            results = []
            for f, world in ((plain[which], eager), (jitted[which], compiled)):
                args = (world.things, x) if passed else (x,)
                try:
                    results.append(_eagerly(f, args) if world is eager else f(*args))
                except Oops:
                    results.append(None)
            expected, got = results
            assert (expected is None) == (got is None)
            if got is None:
                _same(before, compiled.state(), exactly=True)
            else:
                np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)
            _same(eager.state(), compiled.state())
        for world in (eager, compiled):
            alter(world, change, held)
    for array, value in held:
        np.testing.assert_array_equal(array, value)


def _eagerly(f, args):
    """Call a function without compiling, all or nothing as under js.jit."""
    with jax.disable_jit():
        return js.jit(f)(*args)


def _same(expected, got, exactly=False):
    assert got.keys() == expected.keys()  # streams that are derived late may come in another order
    for name, value in expected.items():
        if exactly or value.dtype.kind != "f":
            np.testing.assert_array_equal(got[name], value, str(name))
        else:
            np.testing.assert_allclose(got[name], value, rtol=2e-5, atol=1e-6, err_msg=str(name))


def test_what_the_programs_were_made_of():
    """In a long search every operation occurs; how often is printed."""
    if PROGRAMS > 60:
        for name, times in sorted(SEEN.items()):
            print(f"{times:7d} {name}")
    expected = (
        "read write count item swap alias draw others jit grad jvp remat scan fori while cond"
    )
    missing = {*expected.split(), "switch", "vmap", "caught"} - SEEN.keys()
    assert not missing or PROGRAMS < 500
