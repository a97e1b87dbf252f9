"""What a walk finds, and when it has to be done again."""

import gc
import weakref

import jax.numpy as jnp
import pytest

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.state import graph as graphs
from jaxsaw.state.graph import boxes_of, clone, graph_of, named_boxes


class Leaf(js.Stateful):
    def __init__(self, factor=1):
        self.w = js.Variable(jnp.ones(2))
        self.factor = factor


class Tree(js.Stateful):
    def __init__(self):
        self.left = Leaf()
        self.items = [Leaf(), {"a": (Leaf(),)}]
        self.name = "tree"
        self.right = self.left


def test_boxes_have_their_first_dotted_paths_once_each():
    tree = Tree()
    assert [name for name, _ in named_boxes(tree)] == ["left.w", "items.0.w", "items.1.a.0.w"]
    assert boxes_of(tree)[0] is tree.right.w
    box = js.Variable(jnp.ones(2))
    assert named_boxes(box) == [("", box)] and boxes_of(box) == [box]


def test_cycles_end():
    a, b = Leaf(), Leaf()
    a.other, b.other = b, a
    assert [name for name, _ in named_boxes(a)] == ["w", "other.w"]


def test_equal_architectures_have_equal_keys_and_other_stamps():
    a, b = graph_of(Tree()), graph_of(Tree())
    assert a.key == b.key and hash(a.key) == hash(b.key)
    assert a.stamp != b.stamp


def test_a_graph_is_kept_until_something_changes():
    tree = Tree()
    assert graph_of(tree) is graph_of(tree)
    stamp = graph_of(tree).stamp
    tree.left.w.value = jnp.zeros(2)
    tree.name = "tree"
    assert graph_of(tree).stamp == stamp


@pytest.mark.parametrize(
    "change, back",
    [
        (lambda t: setattr(t, "name", "x"), lambda t: setattr(t, "name", "tree")),
        (lambda t: setattr(t.left, "factor", 2), lambda t: setattr(t.left, "factor", 1)),
        (
            lambda t: setattr(t.items[1]["a"][0], "factor", True),
            lambda t: setattr(t.items[1]["a"][0], "factor", 1),
        ),
    ],
)
def test_a_static_attribute_gives_another_stamp_and_back_the_same_without_a_walk(change, back):
    tree = Tree()
    graph = graph_of(tree)
    stamp, key = graph.stamp, graph.key
    change(tree)
    assert graph_of(tree) is graph
    assert graph.stamp not in (0, stamp) and graph.key != key
    other = graph.stamp
    back(tree)
    assert graph_of(tree).stamp == stamp and graph.key == key
    change(tree)
    assert graph_of(tree).stamp == other


@pytest.mark.parametrize(
    "change",
    [
        lambda t: setattr(t, "right", Leaf()),
        lambda t: setattr(t, "new", Leaf()),
        lambda t: delattr(t, "right"),
        lambda t: t.items.append(Leaf()),
        lambda t: t.items[1].update(b=Leaf()) if hasattr(t.items[1], "_holder") else
        t.items.append(1),
        lambda t: setattr(t.left, "w", js.Variable(jnp.ones(2))),
    ],
)  # fmt: skip
def test_a_change_of_edges_makes_a_new_walk(change):
    tree = Tree()
    graph = graph_of(tree)
    change(tree)
    assert graph.stale
    assert graph_of(tree) is not graph
    assert graph_of(tree).stamp != graph.stamp


def test_a_change_on_one_object_leaves_other_graphs_alone():
    one, two = Tree(), Tree()
    stamps = graph_of(one).stamp, graph_of(two).stamp
    one.left.factor = 5
    assert graph_of(two).stamp == stamps[1]


def test_every_graph_with_an_object_hears_of_its_change():
    leaf = Leaf()
    one, two = Leaf(), Leaf()
    one.child = two.child = leaf
    before = graph_of(one).stamp, graph_of(two).stamp
    leaf.factor = 3
    assert graph_of(one).stamp != before[0] and graph_of(two).stamp != before[1]


def test_sharing_is_part_of_the_skeleton():
    tied, untied = Tree(), Tree()
    untied.right = Leaf()
    assert graph_of(tied).key != graph_of(untied).key


def test_graphs_are_collected_with_their_roots():
    tree = Tree()
    leaf = tree.left
    ref = weakref.ref(graph_of(tree))
    del tree
    gc.collect()
    assert ref() is None
    graph_of(leaf)
    assert len(leaf.w._graphs) == 1


def test_clone_keeps_sharing_and_takes_other_arrays():
    tree = Tree()
    twin = clone(tree, {box: jnp.full(2, 7.0) for box in boxes_of(tree)})
    assert twin.left is twin.right and twin.left is not tree.left
    assert [float(box[0]) for box in boxes_of(twin)] == [7, 7, 7]
    assert [float(box[0]) for box in boxes_of(tree)] == [1, 1, 1]
    assert graph_of(twin).key == graph_of(tree).key


def test_clone_puts_others_in_the_place_of_what_the_memo_names():
    tree, leaf = Tree(), Leaf()
    twin = clone(tree, {}, {id(tree.left): leaf})
    assert twin.left is leaf and twin.right is leaf
    assert twin.items[0] is not tree.items[0]


def test_a_graph_keeps_nothing_of_a_parameter_that_was_replaced():
    layer = nn.Linear(2, 2, rngs=js.Rngs(0))
    graph_of(layer)
    ref = weakref.ref(layer.weight)
    layer.weight = nn.Parameter(jnp.ones((2, 2)))
    graph_of(layer)
    gc.collect()
    assert ref() is None


def test_stamps_are_never_given_twice():
    first = [graph_of(Leaf()).stamp for _ in range(5)]
    assert len(set(first)) == 5 and min(first) > 0
    assert next(graphs._stamps) > max(first)
