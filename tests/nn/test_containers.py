"""Containers behave as the lists and dicts of PyTorch's; what is refused changes nothing."""

import copy
import pickle
from collections import OrderedDict

import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn

SEQUENCES = [lambda modules: nn.Sequential(*modules), nn.ModuleList]
both = pytest.mark.parametrize("make", SEQUENCES, ids=["Sequential", "ModuleList"])


def three():
    return [nn.ReLU(), nn.Tanh(), nn.Sigmoid()]


def names(module):
    return [name for name, _ in module.named_children()]


@both
def test_reading(make):
    modules = three()
    net = make(modules)
    assert len(net) == 3 and list(net) == modules and bool(net)
    assert [net[0], net[-1], net[np.int64(1)]] == [modules[0], modules[2], modules[1]]
    assert modules[1] in list(net)
    assert getattr(net, "1") is modules[1]
    for index in (3, -4):
        with pytest.raises(IndexError, match="out of range, there are 3 items"):
            net[index]
    with pytest.raises(TypeError):
        net["0"]


@both
def test_slicing(make):
    modules = three()
    net = make(modules)
    part = net[1:]
    assert type(part) is type(net) and list(part) == modules[1:]
    assert names(part) == (["1", "2"] if isinstance(net, nn.Sequential) else ["0", "1"])
    assert list(net[::-1]) == modules[::-1]


@both
def test_changing(make):
    a, b, c = three()
    net = make([a, b])
    assert net.append(c) is net and list(net) == [a, b, c]
    d = nn.GELU()
    net.insert(1, d)
    assert list(net) == [a, d, b, c] and names(net) == ["0", "1", "2", "3"]
    assert net.pop(1) is d and net.pop() is c and list(net) == [a, b]
    net.insert(2, c)
    net.insert(-1, d)
    assert list(net) == [a, b, d, c]
    del net[0]
    assert list(net) == [b, d, c] and names(net) == ["0", "1", "2"]
    del net[1:]
    assert list(net) == [b] and names(net) == ["0"]
    assert net.extend([c, d]) is net and list(net) == [b, c, d]
    net += [a]
    assert list(net) == [b, c, d, a]
    net[1] = a
    net[-1] = c
    assert list(net) == [b, a, d, c]
    net[1:3] = [d]
    assert list(net) == [b, d, c] and names(net) == ["0", "1", "2"]
    with pytest.raises(IndexError, match="index 9 is out of range"):
        net.insert(9, a)
    with pytest.raises(IndexError, match="out of range"):
        net[9] = a
    with pytest.raises(IndexError, match="out of range"):
        del net[9]


@both
def test_what_is_no_module_is_refused_and_changes_nothing(make):
    net = make(three())
    before = list(net)
    for change in (
        lambda: net.append(3),
        lambda: net.insert(0, 3),
        lambda: net.extend([nn.ReLU(), 3]),
        lambda: net.__setitem__(0, 3),
    ):
        with pytest.raises(TypeError, match="expected a module, got int"):
            change()
        assert list(net) == before
    for items in (3, "ab", {"a": nn.ReLU()}, jnp.ones(2)):
        with pytest.raises(TypeError, match="extend\\(\\) expects a list"):
            net.extend(items)


@both
def test_states_follow_the_positions(make):
    net = make([nn.LayerNorm(2), nn.ReLU(), nn.LayerNorm(3)])
    assert list(net.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    moved = net[2]
    del net[1]
    assert list(net.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert moved.path == "1" and moved.weight.path == "1.weight"
    new = nn.LayerNorm(2)
    net.insert(0, new)
    assert (new.path, moved.path) == ("0", "2")


@both
def test_none_has_a_place(make):
    net = nn.ModuleList([nn.ReLU(), None])
    assert len(net) == 2 and net[1] is None
    net.append(nn.Tanh())
    net.pop(0)
    assert net[0] is None and names(net) == ["1"]


@both
def test_changes_are_seen_by_compiled_calls(make):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = make([nn.ReLU()])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    net = Net()
    call = js.jit(lambda m, x: m(x))
    x = jnp.array([-1.0, 4.0])
    assert call(net, x).tolist() == [0.0, 4.0]
    net.layers.append(nn.Threshold(5.0, 7.0))
    assert call(net, x).tolist() == [7.0, 7.0]
    net.layers[0] = nn.Threshold(0.0, 9.0)
    assert call(net, x).tolist() == [9.0, 7.0]
    net.layers.pop()
    assert call(net, x).tolist() == [9.0, 4.0]
    with pytest.raises(RuntimeError, match="inside a traced function"):
        js.jit(lambda m: m.layers.append(nn.ReLU()) and None)(net)
    with pytest.raises(RuntimeError, match="inside a traced function"):
        js.jit(lambda m: m.layers.pop(0) and None)(net)
    assert len(net.layers) == 1


@both
def test_copies(make):
    relu = nn.ReLU()
    net = make([relu, nn.LayerNorm(2), relu])
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin[0] is twin[2] and twin[0] is not relu and len(twin) == 3
        twin.append(nn.ReLU())
        assert len(net) == 3


def test_sequential_of_a_dict():
    net = nn.Sequential(OrderedDict(first=nn.ReLU(), second=nn.Tanh()))
    assert names(net) == ["first", "second"]
    assert net.first is net[0]
    assert names(net[1:]) == ["second"]
    with pytest.raises(KeyError, match="'forward' already exists"):
        nn.Sequential(OrderedDict(forward=nn.ReLU()))
    with pytest.raises(TypeError, match=r"Sequential\.1: expected a module or None, got function"):
        nn.Sequential(nn.ReLU(), lambda x: x)


def test_sequential_arithmetic():
    a, b, c = three()
    net = nn.Sequential(a, b)
    assert list(net + nn.Sequential(c)) == [a, b, c]
    assert list(net * 2) == [a, b, a, b] == list(2 * net)
    net *= 2
    assert list(net) == [a, b, a, b] and names(net) == ["0", "1"]
    for times, error, text in ((0, ValueError, "1 time or more"), ("x", TypeError, "expected an")):
        with pytest.raises(error, match=text):
            net * times
    with pytest.raises(TypeError):
        net + [c]


def test_module_list_arithmetic():
    a, b, c = three()
    net = nn.ModuleList([a])
    assert isinstance(net + [b, c], nn.ModuleList) and list(net + [b, c]) == [a, b, c]
    assert list(nn.ModuleList()) == []
    with pytest.raises(TypeError):
        net + 3
    with pytest.raises(NotImplementedError, match="has no forward"):
        net(1)


def test_module_list_prints_equal_ones_together():
    net = nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh(), nn.ReLU()])
    assert repr(net) == ("ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Tanh()\n  (3): ReLU()\n)")
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_module_dict():
    a, b, c = three()
    net = nn.ModuleDict({"x": a, "y": b})
    assert list(net) == list(net.keys()) == ["x", "y"]
    assert list(net.values()) == [a, b] and list(net.items()) == [("x", a), ("y", b)]
    assert len(net) == 2 and "x" in net and "z" not in net and net["x"] is a is net.x
    net["z"] = c
    net.update({"x": b})
    net.update([("w", a)])
    net.update(nn.ModuleDict({"v": a}))
    assert list(net.items()) == [("x", b), ("y", b), ("z", c), ("w", a), ("v", a)]
    assert net.pop("x") is b and "x" not in net
    assert net.pop("x", None) is None
    del net["y"]
    with pytest.raises(KeyError, match="ModuleDict has no 'x' \\(it has 'z', 'w', 'v'\\)"):
        net["x"]
    with pytest.raises(KeyError, match="has no 'x'"):
        del net["x"]
    with pytest.raises(KeyError, match="has no 'x'"):
        net.pop("x")
    net.clear()
    assert len(net) == 0 and repr(net) == "ModuleDict()"


@pytest.mark.parametrize("make", [nn.ModuleDict, nn.ParameterDict])
def test_keys_that_are_refused(make):
    item = nn.ReLU() if make is nn.ModuleDict else jnp.ones(1)
    for key, error in (
        ("keys", KeyError),
        ("items", KeyError),
        ("values", KeyError),
        ("training", KeyError),
        ("forward", KeyError),
        ("a.b", KeyError),
        ("", KeyError),
        (3, TypeError),
    ):
        holder = make()
        with pytest.raises(error):
            holder[key] = item
        with pytest.raises(error):
            holder.update([("fine", item), (key, item)])
        assert len(holder) == 0
    with pytest.raises(TypeError, match="expected a string for a key, got int"):
        make({3: item})


@pytest.mark.parametrize("make", [nn.ModuleDict, nn.ParameterDict])
def test_updates_that_are_refused(make):
    with pytest.raises(TypeError, match="expected a mapping or pairs of key and item, got int"):
        make(3)
    with pytest.raises(ValueError, match="expected pairs of key and item, got 3 at position 0"):
        make([3])
    with pytest.raises(ValueError, match="at position 1"):
        make([("a", nn.ReLU()), ("b", nn.ReLU(), 1)])


def test_module_dict_holds_modules_only():
    with pytest.raises(TypeError, match=r"ModuleDict\.x: expected a module, got int"):
        nn.ModuleDict({"x": 3})


def test_parameter_list():
    weight = nn.Parameter(jnp.ones(2))
    net = nn.ParameterList([weight, jnp.zeros(3)])
    assert net[0] is weight and isinstance(net[1], nn.Parameter) and len(net) == 2
    net.append(jnp.ones(1))
    net += [jnp.ones(4)]
    assert [p.shape for p in net] == [(2,), (3,), (1,), (4,)]
    assert list(net.state_dict()) == ["0", "1", "2", "3"]
    assert type(net[1:]) is nn.ParameterList and len(net[1:]) == 3
    net[0] = jnp.full(2, 5.0)
    assert net[0] is not weight and net[0].tolist() == [5.0, 5.0]
    del net[1]
    net.insert(0, weight)
    assert [p.shape for p in net] == [(2,), (2,), (1,), (4,)]
    assert net.pop().shape == (4,) and len(net) == 3
    assert repr(nn.ParameterList([jnp.ones(2), "x"])) == (
        "ParameterList(\n  (0): Parameter of shape (2,) and dtype float32\n  (1): str 'x'\n)"
    )
    with pytest.raises(RuntimeError, match="a ParameterList can't be called"):
        net(1)
    with pytest.raises(TypeError, match="extend\\(\\) expects"):
        net.extend(3)


def test_parameter_dict():
    weight = nn.Parameter(jnp.ones(2))
    net = nn.ParameterDict({"x": weight, "y": jnp.zeros(3)})
    assert net["x"] is weight is net.x and isinstance(net["y"], nn.Parameter)
    assert list(net.state_dict()) == ["x", "y"]
    assert net.get("x") is weight and net.get("z") is None
    assert net.setdefault("x", 3) is weight
    assert net.setdefault("z", jnp.ones(1)).shape == (1,)
    assert list(reversed(net)) == ["z", "y", "x"]
    assert net.popitem()[0] == "z"
    both = net | nn.ParameterDict({"w": jnp.ones(1)})
    assert list(both) == ["x", "y", "w"] and both["x"] is weight and len(net) == 2
    net |= nn.ParameterDict({"w": jnp.ones(1)})
    assert list(net) == ["x", "y", "w"]
    twin = net.copy()
    del twin["w"]
    assert "w" in net and twin["x"] is weight
    assert list(net.fromkeys(["a", "b"], 1.0).items()) == [("a", 1.0), ("b", 1.0)]
    assert repr(nn.ParameterDict({"x": jnp.ones(2)})) == (
        "ParameterDict((x): Parameter of shape (2,) and dtype float32)"
    )
    net.clear()
    with pytest.raises(KeyError, match="popitem\\(\\) on an empty container"):
        net.popitem()
    with pytest.raises(RuntimeError, match="a ParameterDict can't be called"):
        net(1)
    with pytest.raises(TypeError):
        net | {"a": 1}
