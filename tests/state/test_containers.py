"""Lists and dicts that are attributes: they behave as Python's and report what changes."""

import copy
import pickle

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import pytest

import jaxsaw as js
from jaxsaw.state.containers import WatchedDict, WatchedList
from jaxsaw.state.graph import graph_of, named_boxes


class Leaf(js.Stateful):
    def __init__(self):
        self.w = js.Variable(0.0)


class Holder(js.Stateful):
    def __init__(self, x):
        self.x = x


def names(root):
    return [name for name, _ in named_boxes(root)]


LIST_CHANGES = {
    "append": lambda x: x.append(7),
    "extend": lambda x: x.extend([7, 8]),
    "insert": lambda x: x.insert(1, 7),
    "pop": lambda x: x.pop(),
    "pop first": lambda x: x.pop(0),
    "remove": lambda x: x.remove(2),
    "clear": lambda x: x.clear(),
    "sort": lambda x: x.sort(reverse=True),
    "reverse": lambda x: x.reverse(),
    "set": lambda x: x.__setitem__(0, 9),
    "set slice": lambda x: x.__setitem__(slice(0, 2), [9]),
    "delete": lambda x: x.__delitem__(0),
    "iadd": lambda x: x.__iadd__([4]),
    "imul": lambda x: x.__imul__(2),
}
DICT_CHANGES = {
    "set": lambda x: x.__setitem__("c", 7),
    "update": lambda x: x.update(a=7),
    "pop": lambda x: x.pop("a"),
    "pop default": lambda x: x.pop("none", 5),
    "popitem": lambda x: x.popitem(),
    "clear": lambda x: x.clear(),
    "setdefault": lambda x: x.setdefault("c", 7),
    "delete": lambda x: x.__delitem__("a"),
    "ior": lambda x: x.__ior__({"c": 7}),
}


@pytest.mark.parametrize("name", LIST_CHANGES)
def test_a_list_changes_as_pythons_does(name):
    change, plain = LIST_CHANGES[name], [1, 2, 3]
    holder = Holder([1, 2, 3])
    before = graph_of(holder).stamp
    assert isinstance(holder.x, WatchedList)
    result = change(holder.x)
    expected = change(plain)
    assert result is holder.x if name in ("iadd", "imul") else result == expected
    assert holder.x == plain
    assert graph_of(holder).stamp != before


@pytest.mark.parametrize("name", DICT_CHANGES)
def test_a_dict_changes_as_pythons_does(name):
    change, plain = DICT_CHANGES[name], {"a": 1, "b": 2}
    holder = Holder({"a": 1, "b": 2})
    before = graph_of(holder).stamp
    assert isinstance(holder.x, WatchedDict)
    result = change(holder.x)
    expected = change(plain)
    assert result is holder.x if name == "ior" else result == expected
    assert holder.x == plain
    assert list(holder.x) == list(plain)
    if name != "pop default":
        assert graph_of(holder).stamp != before


@pytest.mark.parametrize("changes", [LIST_CHANGES, DICT_CHANGES])
def test_a_change_that_raises_changes_nothing(changes):
    holder = Holder([] if changes is LIST_CHANGES else {})
    for name in ("pop", "delete"):
        with pytest.raises((IndexError, KeyError)):
            changes[name](holder.x)
    assert not holder.x


def test_what_comes_later_is_found():
    holder = Holder([])
    assert names(holder) == []
    holder.x.append(Leaf())
    holder.x += [Leaf()]
    holder.x.extend([{"k": Leaf()}, [Leaf()]])
    assert names(holder) == ["x.0.w", "x.1.w", "x.2.k.w", "x.3.0.w"]
    holder.x[3].append(Leaf())
    holder.x[2]["j"] = js.Variable(0)
    assert names(holder)[-3:] == ["x.2.j", "x.3.0.w", "x.3.1.w"]
    assert holder.x[3][1].w.path == "x.3.1.w"
    del holder.x[0]
    assert names(holder)[0] == "x.0.w"
    assert holder.x[0].w.path == "x.0.w"


def test_arrays_that_come_later_become_boxes():
    holder = Holder({})
    holder.x["a"] = jnp.ones(2)
    holder.x["b"] = [jnp.ones(1)]
    assert names(holder) == ["x.a", "x.b.0"]
    assert isinstance(holder.x["a"], js.Variable)
    holder.y = []
    holder.y.append(jnp.ones(1))
    holder.y[0:0] = [jnp.zeros(1)]
    assert names(holder)[2:] == ["y.0", "y.1"]


def test_what_leaves_is_let_go():
    holder = Holder([Leaf(), Leaf()])
    leaf = holder.x.pop(0)
    assert leaf.w.path == "w"
    assert names(holder) == ["x.0.w"]


def test_a_callers_list_stays_the_callers():
    mine, inner = [Leaf()], {"k": 1}
    mine.append(inner)
    holder = Holder(mine)
    mine.append(Leaf())
    holder.x.append(1)
    inner["j"] = 2
    assert len(holder.x) == 3
    assert type(mine) is list
    assert len(mine) == 3
    assert holder.x[1] == {"k": 1}


def test_a_list_of_one_object_is_copied_by_another():
    one = Holder([1])
    two = Holder(one.x)
    two.x.append(2)
    assert (one.x, two.x) == ([1], [1, 2])
    before = graph_of(two).stamp
    one.x.append(3)
    assert two.x == [1, 2]
    assert graph_of(two).stamp == before


def test_containers_of_a_dropped_object_still_work():
    items = Holder([1]).x
    items.append(2)
    assert items == [1, 2]


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_a_container_alone(twin_of):
    holder = Holder([1, {"a": [2]}])
    twin = twin_of(holder.x)
    assert twin == holder.x
    twin.append(3)
    twin[1]["a"].append(4)
    assert holder.x == [1, {"a": [2]}]


def test_plain_copies_are_plain():
    holder = Holder([1, 2])
    for twin in (list(holder.x), holder.x + [], holder.x[:], holder.x * 1, sorted(holder.x)):
        assert type(twin) is list
    assert type(dict(Holder({"a": 1}).x)) is dict
    before = graph_of(holder).stamp
    taken = holder.x.copy()
    taken.append(5)
    assert holder.x == [1, 2]
    assert graph_of(holder).stamp == before


def test_containers_are_pytrees_of_jax():
    holder = Holder([jnp.ones(2), {"b": 2.0, "a": (jnp.zeros(1),)}])
    shapes = jax.tree.map(jnp.shape, holder.x)
    assert shapes == [(2,), {"b": (), "a": ((1,),)}]
    assert type(shapes) is list and type(shapes[1]) is dict
    assert [jnp.shape(leaf) for leaf in jax.tree.leaves(holder.x)] == [(2,), (1,), ()]
    assert jax.jit(lambda x: x[0].sum() + x[1]["b"])(holder.x) == 4
    assert js.jit(lambda x: x[0].sum() + x[1]["b"])(holder.x) == 4


def test_containers_of_objects_are_arguments_of_js_jit():
    holder = Holder([Leaf(), {"k": Leaf()}])

    @js.jit
    def bump(x):
        x[0].w += 1
        x[1]["k"].w += 2

    bump(holder.x)
    assert [float(box) for _, box in named_boxes(holder)] == [1, 2]


def test_equality_and_iteration_are_pythons():
    holder = Holder([3, 1])
    assert holder.x == [3, 1] and holder.x != [3]
    assert list(reversed(holder.x)) == [1, 3]
    assert 3 in holder.x and holder.x.index(1) == 1 and holder.x.count(3) == 1
    assert repr(holder.x) == "[3, 1]"
    assert isinstance(holder.x, list)


def test_changing_a_list_in_place_retraces_and_back_reuses():
    holder = Holder([2])
    f = js.jit(lambda y: y * holder.x[0])
    assert float(f(1.0)) == 2
    holder.x[0] = 3
    assert float(f(1.0)) == 3
    holder.x[0] = 2
    assert float(f(1.0)) == 2
    assert f.trace_count == 2


@hypothesis.given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "insert", "pop", "set", "del", "reverse", "slice", "leaf"]),
            st.integers(0, 5),
        ),
        max_size=12,
    )
)
def test_any_sequence_of_changes_keeps_list_and_graph_in_step(changes):
    holder, plain = Holder([0, 1]), [0, 1]
    for what, n in changes:
        new = Leaf() if what == "leaf" else n
        for x in (holder.x, plain):
            if what in ("append", "leaf"):
                x.append(new)
            elif what == "insert":
                x.insert(n, n)
            elif what == "reverse":
                x.reverse()
            elif what == "slice":
                x[n : n + 2] = [n, n, n]
            elif x and what == "pop":
                x.pop(n % len(x))
            elif x and what == "set":
                x[n % len(x)] = n
            elif x and what == "del":
                del x[n % len(x)]
        assert len(holder.x) == len(plain)
        assert all(a is b for a, b in zip(holder.x, plain, strict=True))
        leaves = [i for i, item in enumerate(plain) if isinstance(item, Leaf)]
        assert names(holder) == [f"x.{i}.w" for i in leaves]
