"""Objects that hold boxes: attributes, paths, graphs, and what a trace may do to them."""

import copy
import gc
import pickle
import threading
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw.state.containers import WatchedDict, WatchedList
from jaxsaw.state.graph import boxes_of, graph_of, named_boxes


class Leaf(js.Stateful):
    def __init__(self, value=0.0):
        self.w = js.Variable(value)


class Pair(js.Stateful):
    def __init__(self):
        self.a = Leaf(1.0)
        self.b = Leaf(2.0)
        self.size = 3
        self.bias = js.Variable(jnp.zeros(2))


class Open(js.Stateful):
    """Takes any attributes."""

    def __init__(self, **attributes):
        for name, value in attributes.items():
            setattr(self, name, value)


def names(root):
    return [name for name, _ in named_boxes(root)]


# Finding what is inside.


def test_boxes_have_dotted_names_in_order_of_assignment():
    assert names(Pair()) == ["a.w", "b.w", "bias"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ([Leaf(), Leaf()], ["x.0.w", "x.1.w"]),
        ((Leaf(), 1, js.Variable(0)), ["x.0.w", "x.2"]),
        ({"k": Leaf(), "j": [js.Variable(0)]}, ["x.k.w", "x.j.0"]),
        ([[Leaf()], (Leaf(), {"d": Leaf()})], ["x.0.0.w", "x.1.0.w", "x.1.1.d.w"]),
        ([jnp.ones(2), {"a": jnp.ones(1)}, (jnp.zeros(1),)], ["x.0", "x.1.a", "x.2.0"]),
        ({}, []),
        ([], []),
    ],
)
def test_containers_are_looked_through(content, expected):
    assert names(Open(x=content)) == expected


def test_shared_boxes_and_objects_occur_once():
    pair = Pair()
    pair.c = pair.a
    pair.b.w = pair.a.w
    assert names(pair) == ["a.w", "bias"]
    assert len(boxes_of(pair)) == 2


def test_circles_end():
    pair = Pair()
    pair.a.back = pair
    assert names(pair) == ["a.w", "b.w", "bias"]
    assert names(pair.a) == ["w", "back.b.w", "back.bias"]


def test_structural_changes_are_found():
    pair = Pair()
    names(pair)
    pair.d = Leaf()
    assert "d.w" in names(pair)
    pair.a.extra = js.Variable(0)
    assert "a.extra" in names(pair)
    del pair.d
    assert "d.w" not in names(pair)
    pair.b = None
    assert names(pair) == ["a.w", "a.extra", "bias"]
    pair.a = Leaf(5.0)
    assert names(pair) == ["a.w", "bias"]


# Assigning.


def test_an_array_becomes_a_box():
    pair = Open(x=jnp.ones(2))
    assert type(vars(pair)["x"]) is js.Variable
    box = pair.x
    pair.x = jnp.zeros(2)
    assert pair.x is box
    np.testing.assert_array_equal(box, [0, 0])


def test_a_numpy_array_stays_static():
    array = np.ones(2)
    assert Open(x=array).x is array


def test_a_box_takes_arrays_only():
    pair = Pair()
    pair.bias = np.ones(2)
    assert isinstance(pair.bias, js.Variable)
    assert pair.bias.dtype == jnp.float32
    for wrong in (1.0, [1.0, 2.0], "text"):
        with pytest.raises(TypeError, match=r"Pair.bias is a Variable: .* bias.value ="):
            pair.bias = wrong
    np.testing.assert_array_equal(pair.bias, [1, 1])


def test_a_box_may_be_replaced_or_dropped():
    pair = Pair()
    new = js.Variable(1.0)
    pair.bias = new
    assert pair.bias is new
    pair.bias = None
    assert names(pair) == ["a.w", "b.w"]


def test_in_place_operators_on_attributes():
    pair = Pair()
    box = pair.bias
    pair.bias += 2
    pair.a.w *= 3
    assert pair.bias is box
    assert float(pair.a.w) == 3
    np.testing.assert_array_equal(box, [2, 2])


def test_properties_with_setters_work():
    class WithProperty(Leaf):
        @property
        def double(self):
            return 2 * self.w

        @double.setter
        def double(self, value):
            self.w.value = value / 2

    leaf = WithProperty(3.0)
    leaf.double = 8.0
    assert float(leaf.w) == 4
    assert "double" not in vars(leaf)


def test_missing_attributes_raise():
    with pytest.raises(AttributeError, match="nothing"):
        Pair().nothing  # noqa: B018
    with pytest.raises(AttributeError):
        del Pair().nothing


# Paths.


def test_paths():
    pair = Pair()
    pair.items = [Leaf(), {"k": Leaf()}]
    assert pair.path == "Pair"
    assert [box.path for box in boxes_of(pair)] == names(pair)
    assert pair.items[1]["k"].path == "items.1.k"
    outer = Open(pair=pair)
    assert pair.a.w.path == "pair.a.w"
    del outer
    gc.collect()
    assert pair.a.w.path == "a.w"
    assert js.Variable(0).path == "Variable"


def test_paths_follow_moves():
    pair = Pair()
    leaf = pair.a
    pair.z = leaf
    assert leaf.w.path == "a.w"
    del pair.a
    assert leaf.w.path == "z.w"
    del pair.z
    assert leaf.w.path == "w"


def test_paths_in_circles_end():
    pair = Pair()
    pair.a.back = pair
    assert pair.a.w.path.endswith("w")


# Keys of graphs.


def stamp(root):
    return graph_of(root).stamp


def key(root):
    return graph_of(root).key


def test_equal_architectures_have_equal_keys_and_stamps_of_their_own():
    one, two = Pair(), Pair()
    assert key(one) == key(two)
    assert stamp(one) != stamp(two)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: setattr(p, "size", 4),
        lambda p: setattr(p, "size", 3.0),
        lambda p: setattr(p, "size", True),
        lambda p: setattr(p.a, "name", "x"),
        lambda p: setattr(p, "extra", Leaf()),
        lambda p: setattr(p.b, "w", p.a.w),
        lambda p: setattr(p, "table", np.ones(2)),
        lambda p: setattr(p, "options", [1, 2]),
        lambda p: delattr(p, "size"),
    ],
)
def test_static_changes_change_key_and_stamp(change):
    pair = Pair()
    before = key(pair), stamp(pair)
    change(pair)
    assert key(pair) != before[0]
    assert stamp(pair) != before[1]


def test_changing_back_gives_the_old_stamp():
    pair = Pair()
    first = stamp(pair)
    for new in (4, "x", None, 3.5):
        pair.size = new
        assert stamp(pair) != first
        pair.size = 3
        assert stamp(pair) == first


def test_values_are_no_part_of_the_key():
    pair = Pair()
    before = stamp(pair)
    pair.a.w.value = 9.0
    pair.bias = jnp.ones(2)
    pair.size = 3
    assert stamp(pair) == before


def test_other_models_keep_their_stamps():
    pair, other = Pair(), Pair()
    before = stamp(other)
    pair.size = 7
    pair.more = Leaf()
    assert stamp(other) == before


def test_an_inner_change_reaches_every_root():
    leaf = Leaf()
    roots = [Open(x=leaf), Open(y=[leaf])]
    before = [stamp(root) for root in roots]
    leaf.rate = 0.5
    assert all(stamp(root) != old for root, old in zip(roots, before, strict=True))


# Traces.


def test_assigning_plain_attributes_in_a_trace_is_refused():
    pair = Pair()

    @js.jit
    def wrong(pair):
        pair.a.count = 1

    with pytest.raises(
        RuntimeError, match=r"a.count was assigned inside .*\(self.count = js.Variable"
    ):
        wrong(pair)
    assert not hasattr(pair.a, "count")


@pytest.mark.parametrize(
    "change",
    [
        lambda p: setattr(p, "size", 4),
        lambda p: setattr(p, "bias", None),
        lambda p: setattr(p, "a", Leaf()),
        lambda p: delattr(p, "size"),
        lambda p: p.options.append(3),
        lambda p: p.table.update(k=1),
    ],
)
def test_no_change_to_an_existing_object_in_a_trace(change):
    pair = Pair()
    pair.options, pair.table = [1, 2], {}
    before = dict(vars(pair)), list(pair.options), dict(pair.table)
    with pytest.raises(RuntimeError, match="was assigned inside a traced function"):
        js.jit(lambda: change(pair))()
    assert (dict(vars(pair)), list(pair.options), dict(pair.table)) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda p: setattr(p, "size", 3),
        lambda p: setattr(p, "options", [1, 2]),
        lambda p: setattr(p, "bias", p.bias),
        lambda p: setattr(p, "shape", (1, 2)),
    ],
)
def test_assigning_an_equal_value_in_a_trace_is_none(change):
    pair = Pair()
    pair.options, pair.shape = [1, 2], (1, 2)
    run = js.jit(lambda: change(pair))
    run(), run()
    assert run.trace_count == 1


def test_objects_made_in_a_trace_are_free():
    @js.jit
    def make():
        pair = Pair()
        pair.size = 5
        pair.options = [1]
        pair.options.append(2)
        pair.a = Leaf(7.0)
        return pair.a.w + pair.size

    assert float(make()) == 12


def test_writing_boxes_in_a_trace_is_fine():
    pair = Pair()

    @js.jit
    def step(pair):
        pair.bias = pair.bias + 1
        pair.a.w += 1
        pair.b.w.value = 5

    step(pair), step(pair)
    np.testing.assert_array_equal(pair.bias, [2, 2])
    assert (float(pair.a.w), float(pair.b.w)) == (3, 5)


@pytest.mark.parametrize(
    "run",
    [
        lambda p: jax.jit(lambda p: p.a.w)(p),
        lambda p: jax.grad(lambda p: p.a.w.value)(p),
        lambda p: jax.vmap(lambda p: p.a.w)(p),
        lambda p: jax.jit(lambda x: x["p"].a.w)({"p": [p]}),
        lambda p: jax.tree.map(lambda x: x, p),
        lambda p: jax.tree.leaves([p]),
        lambda p: jax.checkpoint(lambda p: p.a.w.value)(p),
    ],
)
def test_raw_jax_refuses_objects_with_a_clear_message(run):
    with pytest.raises(TypeError, match=r"Pair \(Pair\) went into a raw jax .*js.split"):
        run(Pair())


# Copies.


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
def test_deep_copies_share_nothing_and_keep_ties(twin_of):
    pair = Pair()
    pair.b.w = pair.a.w
    pair.items = [pair.a, {"k": pair.b}]
    pair.a.back = pair
    twin = twin_of(pair)
    assert names(twin) == names(pair)
    assert twin.b.w is twin.a.w is not pair.a.w
    assert twin.items[0] is twin.a
    assert twin.items[1]["k"] is twin.b
    assert twin.a.back is twin
    assert twin.a.w.path == "a.w"
    assert key(twin) == key(pair)
    twin.a.w.value = 9.0
    assert float(pair.a.w) == 1
    twin.items.append(Leaf())
    assert len(pair.items) == 2
    assert names(twin) == [*names(pair), "items.2.w"]
    assert isinstance(twin.items, WatchedList) and isinstance(twin.items[1], WatchedDict)


def test_a_shallow_copy_shares_what_is_inside():
    pair = Pair()
    pair.items = [Leaf()]
    twin = copy.copy(pair)
    assert twin.a is pair.a
    twin.items.append(Leaf())
    twin.size = 8
    assert (len(pair.items), pair.size) == (1, 3)
    assert names(pair) == ["a.w", "b.w", "bias", "items.0.w"]
    assert names(twin) == ["a.w", "b.w", "bias", "items.0.w", "items.1.w"]
    assert pair.a.w.path == "a.w"


def test_objects_can_be_collected():
    pair = Pair()
    names(pair), stamp(pair)
    ref, box = weakref.ref(pair), pair.a.w
    del pair
    gc.collect()
    assert ref() is None
    assert float(box) == 1


def test_graphs_of_dropped_roots_are_forgotten():
    leaf = Leaf()
    for _ in range(20):
        stamp(Open(x=leaf))
    gc.collect()
    stamp(Open(x=leaf))
    assert len(leaf._graphs) <= 2


def test_subclasses_may_have_slots_and_other_bases():
    class Mixin:
        def hello(self):
            return "hello"

    class Slotted(Mixin, Leaf):
        __slots__ = ("place",)

    leaf = Slotted(2.0)
    leaf.place = 5
    assert (leaf.hello(), leaf.place, names(leaf)) == ("hello", 5, ["w"])


def test_many_threads_may_make_and_walk_objects():
    errors = []

    def work():
        try:
            for _ in range(20):
                pair = Pair()
                pair.extra = Leaf()
                assert len(names(pair)) == 4
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert errors == []
