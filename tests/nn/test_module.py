"""The surface of ``Module``: attributes, walks, states, modes, hooks, copies, and every error."""

import copy
import gc
import pickle
import weakref
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import nn
from jaxsaw.nn.parameter import NoTapeError
from jaxsaw.state.graph import graph_of


class Scale(nn.Module):
    def __init__(self, n=2, value=1.0):
        super().__init__()
        self.weight = nn.Parameter(np.full(n, value, np.float32))

    def forward(self, x):
        return x * self.weight


class Net(nn.Module):
    """Two of everything: own state, a child, a grandchild."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(Scale(), nn.ReLU())
        self.bias = nn.Parameter(np.zeros(2, np.float32))
        self.register_buffer("mean", np.zeros(2, np.float32))
        self.register_buffer("cache", np.zeros(2, np.float32), persistent=False)

    def forward(self, x, shift=0.0):
        return self.inner(x) + self.bias + shift


def names(pairs):
    return [name for name, _ in pairs]


# Calling.


def test_call_runs_forward_with_all_arguments():
    assert Net()(jnp.ones(2), shift=1.0).tolist() == [2.0, 2.0]


def test_forgetting_super_init_is_fine():
    class Forgetful(nn.Module):
        def __init__(self):
            self.scale = Scale()

        def forward(self, x):
            return self.scale(x)

    net = Forgetful()
    assert net.training
    assert net.eval()(jnp.ones(2)).tolist() == [1.0, 1.0]
    assert names(net.named_parameters()) == ["scale.weight"]


def test_a_module_without_forward_says_so():
    with pytest.raises(NotImplementedError, match="0 \\(Bare\\) has no forward method"):
        nn.Sequential(type("Bare", (nn.Module,), {})())(1)


def test_a_missing_attribute_has_python_s_text():
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'wieght'"):
        _ = Net().wieght


def test_errors_of_functional_name_the_layer():
    net = nn.Sequential(nn.Identity(), nn.Sequential(nn.Linear(3, 2, rngs=js.Rngs(0))))
    with pytest.raises(ValueError, match=r"^1\.0 \(Linear\): expected input \(\.\.\., 3\), got"):
        net(jnp.ones((4, 2)))
    with pytest.raises(ValueError, match=r"^Linear: expected input"):
        nn.Linear(3, 2, rngs=js.Rngs(0))(jnp.ones((4, 2)))


def test_errors_of_functional_name_the_user_s_module_too():
    class Own(nn.Module):
        def forward(self, x):
            return nn.functional.linear(x, jnp.ones((2, 3)))

    with pytest.raises(ValueError, match=r"^0 \(Own\): linear: expected input"):
        nn.Sequential(Own())(jnp.ones((4, 2)))


def test_other_errors_stay_as_they_are():
    class Own(nn.Module):
        def forward(self, x):
            raise ValueError("mine: alone")

    with pytest.raises(ValueError, match=r"^mine: alone$"):
        nn.Sequential(Own())(1)


# rngs.


class Takes(nn.Module):
    def forward(self, x, rngs=None):
        return rngs


class TakesNot(nn.Module):
    def forward(self, x):
        return js.rngs.ambient("dropout")


def test_rngs_are_handed_to_forward_where_it_names_them():
    rngs = js.Rngs(0)
    assert Takes()(1, rngs=rngs) is rngs
    assert Takes()(1) is None
    assert TakesNot()(1, rngs=rngs) is rngs


def test_a_forward_of_the_instance_is_asked_for_its_own_signature():
    net = Takes()
    net.forward = lambda x: "mine"
    assert net(1, rngs=js.Rngs(0)) == "mine"
    assert isinstance(Takes()(1, rngs=js.Rngs(0)), js.Rngs)


def test_rngs_are_ambient_inside_and_end_with_the_call_also_when_it_raises():
    outer, inner = js.Rngs(0), js.Rngs(1)

    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.child = TakesNot()

        def forward(self, x):
            assert self.child(x) is outer
            assert self.child(x, rngs=inner) is inner
            assert self.child(x) is outer
            raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        Nested()(1, rngs=outer)
    with pytest.raises(RuntimeError, match="has no stream 'dropout'"):
        TakesNot()(1)


def test_rngs_of_another_type_are_refused():
    with pytest.raises(TypeError, match="Takes: expected rngs to be a js.Rngs, got int"):
        Takes()(1, rngs=0)


def test_no_streams_names_the_layer():
    net = nn.Sequential(nn.Dropout(0.5))
    with pytest.raises(RuntimeError, match=r"^0 \(Dropout\) draws random numbers"):
        net(jnp.ones(2))
    with pytest.raises(KeyError, match="has no stream 'dropout' \\(it has: params\\)"):
        net(jnp.ones(2), rngs=js.Rngs(params=0))


# What assignment does.


def test_arrays_become_buffers_that_are_not_persistent():
    net = Net()
    net.table = jnp.arange(3)
    assert isinstance(net.table, nn.Buffer) and not net.table.persistent
    assert names(net.named_buffers()) == ["mean", "cache", "table"]
    assert "table" not in net.state_dict()


def test_numpy_arrays_stay_attributes():
    net = Net()
    net.table = np.arange(3)
    assert type(net.table) is np.ndarray


def test_assigning_an_array_writes_a_buffer():
    net = Net()
    box = net.mean
    net.mean = jnp.ones(2)
    assert net.mean is box and box.tolist() == [1.0, 1.0]
    net.mean = np.array([2.0, 3.0])
    assert net.mean is box and box.dtype == jnp.float32 and box.tolist() == [2.0, 3.0]
    net.mean += 1
    assert net.mean is box and box.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("value", [jnp.ones(2), np.ones(2), 3, [1.0, 2.0], nn.ReLU()])
def test_assigning_anything_else_to_a_parameter_is_refused(value):
    net = Net()
    with pytest.raises(TypeError, match=r"Net\.bias is a Parameter: assign a Parameter or None"):
        net.bias = value
    assert net.bias.tolist() == [0.0, 0.0]


def test_assigning_anything_else_to_a_module_is_refused():
    net = Net()
    for value in (3, jnp.ones(2), nn.Buffer(jnp.ones(2)), F := jax.nn.relu, [F]):
        with pytest.raises(TypeError, match=r"Net\.inner is a module: assign a module"):
            net.inner = value


def test_assigning_anything_else_to_a_buffer_is_refused():
    net = Net()
    for value in (3, "x", [1.0]):
        with pytest.raises(TypeError, match=r"Net\.mean is a Buffer: assign an array or None"):
            net.mean = value
    with pytest.raises(TypeError, match=r"Net\.mean is a Buffer: assign a Buffer"):
        net.mean = js.Variable(jnp.ones(2))


def test_parameters_buffers_and_modules_replace_each_other_as_in_pytorch():
    net = Net()
    weight = nn.Parameter(jnp.ones(3))
    net.bias = weight
    assert net.bias is weight
    net.mean = nn.Parameter(jnp.ones(3))
    assert names(net.named_buffers()) == ["cache"]
    # As in PyTorch, what becomes another kind of thing goes to the end of its kind.
    assert names(net.named_parameters()) == ["bias", "mean", "inner.0.weight"]
    net.inner = nn.Parameter(jnp.ones(3))
    assert names(net.named_parameters()) == ["bias", "mean", "inner"]
    net.cache = nn.ReLU()
    assert names(net.named_children()) == ["cache"]


def test_none_keeps_the_kind_of_a_name():
    net = Net()
    net.bias = net.mean = net.cache = net.inner = None
    assert list(net.state_dict()) == []
    assert net._parameters == {"bias": None}
    assert net._modules == {"inner": None}
    assert repr(net) == "Net(\n  (inner): None\n)"
    with pytest.raises(TypeError, match="is a Parameter"):
        net.bias = jnp.ones(2)
    with pytest.raises(TypeError, match="is a module"):
        net.inner = 3
    net.mean = jnp.ones(2)
    net.cache = jnp.ones(2)
    net.bias = nn.Parameter(jnp.ones(2))
    assert list(net.state_dict()) == ["bias", "mean"]
    assert net.mean.persistent and not net.cache.persistent


def test_registering_none_is_remembered():
    net = nn.Module()
    net.register_buffer("a", None)
    net.register_buffer("b", None, persistent=False)
    net.register_parameter("c", None)
    net.add_module("d", None)
    assert (net.a, net.b, net.c, net.d) == (None, None, None, None)
    assert net._buffers == {"a": None, "b": None}
    net.a, net.b = jnp.ones(2), np.ones(2)
    assert net.a.persistent and not net.b.persistent
    with pytest.raises(TypeError, match="is a Parameter"):
        net.c = jnp.ones(2)
    with pytest.raises(TypeError, match=r"Module\.a is a Buffer"):
        net.a = 3
    net.register_parameter("c", nn.Parameter(jnp.ones(1)))
    assert list(net.state_dict()) == ["c", "a"]


def test_copies_remember_none_too():
    net = nn.Module()
    net.register_buffer("a", None, persistent=False)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net)), copy.copy(net)):
        twin.a = jnp.ones(2)
        assert not twin.a.persistent
        assert net.a is None


def test_plain_none_becomes_anything():
    net = nn.Module()
    net.x = None
    net.x = jnp.ones(2)
    assert isinstance(net.x, nn.Buffer)


def test_register_buffer_takes_a_buffer():
    net = nn.Module()
    box = nn.Buffer(jnp.ones(2))
    net.register_buffer("a", box, persistent=False)
    assert net.a is box and not box.persistent


def test_what_register_refuses():
    net = Net()
    with pytest.raises(TypeError, match=r"Net\.a: expected an array, a Buffer or None, got int"):
        net.register_buffer("a", 3)
    with pytest.raises(TypeError, match=r"Net\.a: expected a Parameter or None, got .*Wrap"):
        net.register_parameter("a", jnp.ones(2))
    with pytest.raises(TypeError, match=r"Net\.a: expected a module or None, got int"):
        net.add_module("a", 3)
    with pytest.raises(TypeError, match="name of a module must be a string, got int"):
        net.register_module(3, nn.ReLU())
    for name, value in (("inner", jnp.ones(2)), ("bias", jnp.ones(2)), ("training", None)):
        with pytest.raises(KeyError, match="already exists"):
            net.register_buffer(name, value)
    with pytest.raises(KeyError, match="already exists"):
        net.add_module("mean", nn.ReLU())
    net.register_buffer("mean", jnp.ones(2))  # again is fine
    assert net.mean.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", ["", "a.b"])
def test_names_without_sense_are_refused(name):
    net = Net()
    for value in (nn.ReLU(), nn.Parameter(jnp.ones(1)), nn.Buffer(jnp.ones(1)), jnp.ones(1)):
        with pytest.raises(KeyError, match="can't be empty or have a dot"):
            setattr(net, name, value)


@pytest.mark.parametrize("name", ["training", "forward", "parameters", "train", "to", "type"])
def test_names_of_the_class_are_refused(name):
    net = Net()
    with pytest.raises(KeyError, match=f"Net: the attribute '{name}' already exists"):
        setattr(net, name, nn.ReLU())
    with pytest.raises(KeyError, match="already exists"):
        net.add_module(name, nn.ReLU())


def test_ordinary_names_are_free():
    net = nn.Module()
    net.keys, net.items, net.values = nn.ReLU(), nn.Parameter(jnp.ones(1)), jnp.ones(1)
    assert list(net.state_dict()) == ["items"]
    assert names(net.named_children()) == ["keys"]


def test_a_default_of_the_class_may_be_replaced():
    class Default(nn.Module):
        weight = None
        act = nn.ReLU()

    net = Default()
    net.weight, net.act = nn.Parameter(jnp.ones(1)), nn.Tanh()
    assert names(net.named_parameters()) == ["weight"]


def test_deleting_an_attribute_forgets_it():
    net = Net()
    del net.bias
    assert "bias" not in net.state_dict()
    with pytest.raises(AttributeError):
        _ = net.bias
    net.bias = jnp.ones(2)
    assert isinstance(net.bias, nn.Buffer)


def test_vars_look_like_pytorch_s():
    net = Net()
    assert list(net._parameters) == ["bias"]
    assert list(net._buffers) == ["mean", "cache"]
    assert list(net._modules) == ["inner"]
    net._modules.clear()
    assert list(net._modules) == ["inner"]


# Lists and dicts.


def test_lists_tuples_and_dicts_become_containers():
    net = nn.Module()
    net.a = [Scale(), Scale()]
    net.b = (Scale(),)
    net.c = {"x": Scale()}
    net.d = [nn.Parameter(jnp.ones(1))]
    net.e = {"x": nn.Parameter(jnp.ones(1))}
    kinds = [type(v).__name__ for v in (net.a, net.b, net.c, net.d, net.e)]
    assert kinds == ["ModuleList", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"]
    assert list(net.state_dict()) == [
        "a.0.weight",
        "a.1.weight",
        "b.0.weight",
        "c.x.weight",
        "d.0",
        "e.x",
    ]
    net.a.append(Scale())
    assert "a.2.weight" in net.state_dict()
    net.a = [Scale()]
    assert "a.1.weight" not in net.state_dict()


def test_empty_and_mixed_ones_are_watched():
    net = nn.Module()
    net.a, net.b, net.c = [], {}, [Scale(), jnp.tanh, [Scale()]]
    assert isinstance(net.a, list) and isinstance(net.b, dict) and isinstance(net.c, list)
    assert net.eval() is net
    net.a.append(Scale())
    net.a += [Scale()]
    net.b["x"] = Scale()
    net.b.update(y=Scale(), z=3)
    assert list(net.state_dict()) == [
        "a.0.weight",
        "a.1.weight",
        "b.x.weight",
        "b.y.weight",
        "c.0.weight",
        "c.2.0.weight",
    ]
    net.eval()
    assert not any(module.training for module in net.modules())
    assert net.get_submodule("c.2.0") is net.c[2][0]
    assert net.get_parameter("b.x.weight") is net.b["x"].weight
    del net.a[0]
    assert "a.1.weight" not in net.state_dict()
    assert repr(net).count("Scale()") == 5
    assert net.c[2][0].path == "c.2.0"


def test_arrays_in_lists_are_buffers():
    net = nn.Module()
    net.scales = [jnp.ones(1), jnp.ones(2)]
    assert names(net.named_buffers()) == ["scales.0", "scales.1"]


def test_keys_that_are_not_strings_are_refused():
    net = nn.Module()
    with pytest.raises(TypeError, match=r"Module\.a: a dict of modules or Parameters needs str"):
        net.a = {1: Scale()}
    with pytest.raises(TypeError, match="needs strings for keys, got 1"):
        net.a = {1: Scale(), "x": 3}
    net.b = {1: "fine"}
    with pytest.raises(TypeError, match=r"Module\.b: .* needs strings for keys, got 2"):
        net.b[2] = Scale()
    assert net.b == {1: "fine"}
    net.b.update(x=Scale())
    assert list(net.state_dict()) == ["b.x.weight"]


def test_sets_of_modules_are_refused():
    with pytest.raises(TypeError, match=r"Module\.a: a set has no order"):
        nn.Module().a = {Scale()}


# Walking.


def test_walks():
    net = Net()
    assert names(net.named_modules()) == ["", "inner", "inner.0", "inner.1"]
    assert names(net.named_modules(prefix="net")) == [
        "net",
        "net.inner",
        "net.inner.0",
        "net.inner.1",
    ]
    assert names(net.named_children()) == ["inner"]
    assert names(net.named_parameters()) == ["bias", "inner.0.weight"]
    assert names(net.named_parameters(prefix="net")) == ["net.bias", "net.inner.0.weight"]
    assert names(net.named_parameters(recurse=False)) == ["bias"]
    assert names(net.named_buffers()) == ["mean", "cache"]
    assert list(net.parameters()) == [net.bias, net.inner[0].weight]
    assert [*net.buffers()] == [net.mean, net.cache]
    assert [*net.modules()] == [net, net.inner, *net.inner]
    assert [*net.children()] == [net.inner]


def test_ties_are_walked_once_unless_asked():
    net = nn.Module()
    net.a, net.b = Scale(), Scale()
    net.c = net.a
    net.b.weight = net.a.weight
    assert names(net.named_parameters()) == ["a.weight"]
    every = names(net.named_parameters(remove_duplicate=False))
    assert every == ["a.weight", "b.weight", "c.weight"]
    assert names(net.named_modules()) == ["", "a", "b"]
    assert names(net.named_modules(remove_duplicate=False)) == ["", "a", "b", "c"]
    assert names(net.named_children()) == ["a", "b"]
    assert list(net.state_dict()) == every


def test_a_memo_leaves_modules_out():
    net = Net()
    memo = {net.inner[0]}
    assert names(net.named_modules(memo)) == ["", "inner", "inner.1"]
    assert net in memo


def test_getting_by_name():
    net = Net()
    assert net.get_submodule("") is net
    assert net.get_submodule("inner.0") is net.inner[0]
    assert net.get_parameter("inner.0.weight") is net.inner[0].weight
    assert net.get_buffer("cache") is net.cache
    for get, name, text in (
        (net.get_submodule, "inner.5", r"Net\.inner has no attribute '5'"),
        (net.get_submodule, "other.x", r"Net has no attribute 'other'"),
        (net.get_submodule, "bias", r"Net\.bias is no module but a Parameter"),
        (net.get_parameter, "mean", r"Net\.mean is no Parameter but a Buffer"),
        (net.get_buffer, "bias", r"Net\.bias is no Buffer but a Parameter"),
    ):
        with pytest.raises(AttributeError, match=text):
            get(name)


def test_setting_a_submodule_by_name():
    net = Net()
    net.set_submodule("inner.1", nn.Tanh())
    assert isinstance(net.inner[1], nn.Tanh)
    net.set_submodule("extra", nn.Tanh())
    assert isinstance(net.extra, nn.Tanh)
    net.things = [Scale(), None]
    net.set_submodule("things.0", nn.Tanh())
    assert isinstance(net.things[0], nn.Tanh)
    for error, text, name, module, strict in (
        (ValueError, "expected the name of a submodule", "", nn.Tanh(), False),
        (ValueError, "expected a module, got int", "inner", 3, False),
        (AttributeError, "more doesn't exist", "more", nn.Tanh(), True),
        (AttributeError, "has no attribute 'none'", "none.x", nn.Tanh(), False),
        (AttributeError, "bias is no module", "bias", nn.Tanh(), False),
        (AttributeError, "bias holds no modules", "bias.x", nn.Tanh(), False),
    ):
        with pytest.raises(error, match=text):
            net.set_submodule(name, module, strict)


def test_apply_visits_children_first():
    seen = []
    net = Net()
    assert net.apply(seen.append) is net
    assert seen == [*net.inner, net.inner, net]


def test_dir_has_attributes_but_no_positions():
    net = nn.Sequential(nn.ReLU())
    net.extra = nn.ReLU()
    assert "extra" in dir(net) and "forward" in dir(net) and "0" not in dir(net)


def test_text():
    class Titled(nn.Module):
        def extra_repr(self):
            return "first\nsecond"

    net = nn.Sequential(OrderedDict(a=nn.ReLU(), b=Titled(), c=nn.Sequential(nn.Dropout(0.1))))
    assert repr(net) == (
        "Sequential(\n"
        "  (a): ReLU()\n"
        "  (b): Titled(\n"
        "    first\n"
        "    second\n"
        "  )\n"
        "  (c): Sequential(\n"
        "    (0): Dropout(p=0.1, inplace=False)\n"
        "  )\n"
        ")"
    )


# Modes.


def test_train_and_eval_reach_everything():
    net = Net()
    assert net.eval() is net
    assert not any(module.training for module in net.modules())
    assert net.train() is net
    assert all(module.training for module in net.modules())
    net.inner.eval()
    assert net.training and not net.inner[0].training
    net.train()
    net.extra = Scale().eval()
    net.eval()
    net.train()
    assert net.extra.training
    with pytest.raises(ValueError, match="train\\(\\) expects a bool, got 1"):
        net.train(1)


def test_a_module_with_a_train_of_its_own_decides_for_what_is_in_it():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(2)

        def train(self, mode=True):
            super().train(mode)
            self.norm.eval()
            return self

    net = nn.Sequential(Frozen(), nn.ReLU())
    net.train()
    assert net[0].training and net[1].training and not net[0].norm.training
    net.eval()
    assert not net[0].training


def test_train_tells_graphs_and_returns_to_the_same_stamp():
    net, other = Net(), Net()
    stamps = {mode: graph_of(net.train(mode)).stamp for mode in (True, False)}
    assert stamps[True] != stamps[False]
    untouched = graph_of(other).stamp
    for mode in (True, False, True):
        assert graph_of(net.train(mode)).stamp == stamps[mode]
    assert graph_of(other).stamp == untouched
    fresh = graph_of(Net().eval())
    assert fresh.key == graph_of(net.eval()).key
    net.inner.training = True  # the slow way gives what train() gives
    net.inner.eval()
    assert graph_of(net).stamp == stamps[False]


def test_train_keeps_no_module_alive():
    net = Net().eval()
    ref = weakref.ref(net.inner)
    del net.inner
    gc.collect()
    net.train()
    gc.collect()
    assert ref() is None


def test_modes_inside_a_trace():
    net = Net().eval()
    assert js.jit(lambda m, x: m.eval()(x))(net, jnp.ones(2)).tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match=r"training was assigned inside a traced function"):
        js.jit(lambda m, x: m.train()(x))(net, jnp.ones(2))
    assert not any(module.training for module in net.modules())


def test_a_mode_retraces_and_going_back_does_not():
    net = nn.Sequential(nn.BatchNorm1d(2))
    step = js.jit(lambda m, x: m(x))
    x = jnp.array([[1.0, 2.0], [3.0, 5.0]])
    for mode, count in ((True, 1), (False, 2), (True, 2), (False, 2)):
        step(net.train(mode), x)
        assert step.trace_count == count


def test_requires_grad_():
    net = Net()
    assert net.requires_grad_(False) is net
    assert [p.requires_grad for p in net.parameters()] == [False, False]
    net.requires_grad_()
    assert all(p.requires_grad for p in net.parameters())


# Dtypes and devices.


def test_casting_keeps_boxes_and_integers():
    net = Net()
    net.register_buffer("count", jnp.zeros((), jnp.int32))
    boxes = [*net.parameters(), *net.buffers()]
    for cast in (nn.Module.half, nn.Module.bfloat16, nn.Module.float):
        assert cast(net) is net
        assert [*net.parameters(), *net.buffers()] == boxes
        assert net.count.dtype == jnp.int32
    assert net.to(jnp.bfloat16).bias.dtype == jnp.bfloat16
    assert net.to("float16").mean.dtype == jnp.float16
    assert net.to(dtype=jnp.float32).cache.dtype == jnp.float32
    assert net.to(jnp.ones(1, jnp.float16)).bias.dtype == jnp.float16
    assert net.type(jnp.float32).count.dtype == jnp.float32


def test_complex_numbers_are_not_cast_to_real_ones():
    net = nn.Module()
    net.weight = nn.Parameter(jnp.ones(2, jnp.complex64))
    assert net.half().weight.dtype == jnp.complex64


def test_moving_to_a_device_or_sharding():
    device = jax.devices("cpu")[0]
    net = Net()
    for place in (device, "cpu", "cpu:0", 0, jax.sharding.SingleDeviceSharding(device)):
        net.to(place)
        assert net.bias.devices() == {device}
    net.to(device, jnp.float16).cpu().to(device=device)
    assert net.bias.dtype == jnp.float16 and net.bias.committed


def test_what_to_refuses():
    net = Net()
    with pytest.raises(TypeError, match="Net: to\\(\\) casts to floating and complex dtypes only"):
        net.to(jnp.int32)
    with pytest.raises(ValueError, match="There is no device 'mars:1'. JAX has:"):
        net.to("mars:1")
    with pytest.raises(
        TypeError, match="to\\(\\) expects a device, a sharding, a dtype or an array"
    ):
        net.to(object())
    with pytest.raises(ValueError, match="float64 needs JAX's 64-bit mode"):
        net.double()


def test_an_array_taken_out_survives_moving_and_training():
    net = nn.Linear(2, 2, rngs=js.Rngs(0))
    before = net.weight.value
    net.to(jax.devices("cpu")[0])

    @js.jit
    def step(m):
        m.weight.value = m.weight * 2

    step(net)
    np.testing.assert_array_equal(net.weight, before * 2)


# Hooks.


def test_hooks_change_arguments_and_results_in_order():
    net, log = Scale(), []

    def pre(module, args):
        log.append("pre")
        return args[0] + 1

    def post(module, args, output):
        log.append(("post", args[0].tolist()))
        return output * 10

    handles = [net.register_forward_pre_hook(pre), net.register_forward_hook(post)]
    assert net(jnp.ones(2)).tolist() == [20.0, 20.0]
    assert log == ["pre", ("post", [2.0, 2.0])]
    net.register_forward_hook(lambda m, a, y: y + 1, prepend=True)
    assert net(jnp.ones(2)).tolist() == [30.0, 30.0]
    for handle in handles:
        handle.remove()
        handle.remove()
    assert net(jnp.ones(2)).tolist() == [2.0, 2.0]


def test_hooks_with_kwargs():
    net = Net()
    with net.register_forward_pre_hook(lambda m, a, k: (a, {"shift": 1.0}), with_kwargs=True):
        with net.register_forward_hook(lambda m, a, k, y: y * k["shift"] * 2, with_kwargs=True):
            assert net(jnp.ones(2), shift=5.0).tolist() == [4.0, 4.0]
    assert net._hooks is None
    with net.register_forward_pre_hook(lambda m, a, k: a, with_kwargs=True):
        with pytest.raises(
            RuntimeError, match="Net: a forward pre-hook with with_kwargs=True must"
        ):
            net(jnp.ones(2))


def test_hooks_that_are_always_called():
    net, log = Scale(), []
    net.register_forward_hook(lambda m, a, y: log.append(y), always_call=True)
    net.register_forward_hook(lambda m, a, y: log.append("never"))
    with pytest.raises(TypeError):
        net(object())
    assert log == [None]

    def fails(module, args, output):
        raise KeyError("hook")

    net.register_forward_hook(fails, always_call=True)
    with pytest.warns(UserWarning, match="always_call=True raised KeyError"):
        with pytest.raises(TypeError):
            net(object())


def test_hooks_and_rngs():
    net = TakesNot()
    net.register_forward_pre_hook(lambda m, a, k: (a, k), with_kwargs=True)
    rngs = js.Rngs(0)
    assert net(1, rngs=rngs) is rngs


def test_hooks_are_part_of_what_is_compiled():
    net = Scale()
    call = js.jit(lambda m, x: m(x))
    assert call(net, jnp.ones(2)).tolist() == [1.0, 1.0]
    handle = net.register_forward_hook(lambda m, a, y: y + 1)
    assert call(net, jnp.ones(2)).tolist() == [2.0, 2.0]
    handle.remove()
    assert call(net, jnp.ones(2)).tolist() == [1.0, 1.0]
    assert call.trace_count == 2
    with pytest.raises(RuntimeError, match="inside a traced function"):
        js.jit(lambda m: m.register_forward_hook(print) and None)(net)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = []
        self.register_forward_hook(Counting.count)

    @staticmethod
    def count(module, args, output):
        module.calls.append(1)

    def forward(self, x):
        return x


def test_copies_have_hooks_of_their_own():
    net = Counting()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        twin(1)
        assert (len(twin.calls), len(net.calls)) == (1, 0)
    handle = net.register_forward_hook(lambda m, a, y: 0)
    twin = copy.deepcopy(net)
    handle.remove()
    assert (net(1), twin(1)) == (1, 0)


def test_a_hook_that_is_bound_to_the_module_is_bound_to_the_copy():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []
            self.register_forward_pre_hook(self.look)

        def look(self, module, args):
            self.seen.append(args)

        def forward(self, x):
            return x

    net = Own()
    twin = copy.deepcopy(net)
    twin(1)
    assert (twin.seen, net.seen) == ([(1,)], [])


# No tape.


@pytest.mark.parametrize(
    "call",
    [
        lambda net: net.zero_grad(),
        lambda net: net.backward(),
        lambda net: net.register_full_backward_hook(print),
        lambda net: net.register_full_backward_pre_hook(print),
        lambda net: net.register_backward_hook(print),
        lambda net: net.bias.backward(),
        lambda net: net.bias.grad,
        lambda net: setattr(net.bias, "grad", 0),
        lambda net: net.bias.zero_grad(),
        lambda net: net.bias.register_hook(print),
    ],
)
def test_what_needs_a_tape_shows_the_line_to_write(call):
    with pytest.raises(NoTapeError, match=r"js\.value_and_grad\(loss_fn\)\(model\); optimizer\.st"):
        call(Net())
    assert not hasattr(Net().bias, "grad")


# States.


def test_state_dict():
    net = Net()
    state = net.state_dict()
    assert isinstance(state, OrderedDict)
    assert list(state) == ["bias", "mean", "inner.0.weight"]
    assert all(isinstance(value, jax.Array) for value in state.values())
    assert not any(isinstance(value, js.Variable) for value in state.values())
    assert np.asarray(state["bias"]).tolist() == [0.0, 0.0]
    assert net.state_dict(keep_vars=True)["bias"] is net.bias
    into = {}
    assert net.state_dict(destination=into, prefix="net.") is into
    assert list(into) == ["net.bias", "net.mean", "net.inner.0.weight"]


def test_a_state_survives_training():
    net = nn.Linear(2, 2, rngs=js.Rngs(0))
    state = net.state_dict()
    copied = {name: np.array(value) for name, value in state.items()}

    @js.jit
    def step(m):
        m.weight.value = m.weight + 1

    step(net)
    step(net)
    for name, value in state.items():
        np.testing.assert_array_equal(value, copied[name])


@pytest.mark.parametrize(
    "cast",
    [
        lambda v: np.asarray(v),
        lambda v: jnp.asarray(v),
        lambda v: np.asarray(v, np.float64),
        lambda v: np.asarray(v).astype(np.float16),
        lambda v: js.Variable(v),
    ],
)
def test_loading(cast):
    net = Net()
    boxes = dict(net.named_parameters())
    state = {name: cast(value + 2.0) for name, value in net.state_dict().items()}
    keys = net.load_state_dict(state)
    assert keys == ([], []) and keys.missing_keys == [] and keys.unexpected_keys == []
    assert net.bias.tolist() == [2.0, 2.0] and net.inner[0].weight.tolist() == [3.0, 3.0]
    assert net.bias.dtype == jnp.float32
    assert dict(net.named_parameters()) == boxes


def test_loading_copies():
    net = Scale()
    source = {"weight": np.ones(2, np.float32)}
    net.load_state_dict(source)
    source["weight"][:] = 7
    assert net.weight.tolist() == [1.0, 1.0]
    array = jnp.array([3.0, 3.0])
    net.load_state_dict({"weight": array})

    @js.jit
    def step(m):
        m.weight.value = m.weight + 1

    step(net)
    assert array.tolist() == [3.0, 3.0] and net.weight.tolist() == [4.0, 4.0]


def test_loading_an_int64_counter():
    norm = nn.BatchNorm1d(2)
    state = {**norm.state_dict(), "num_batches_tracked": np.array(7, np.int64)}
    norm.load_state_dict(state)
    assert int(norm.num_batches_tracked) == 7
    assert norm.num_batches_tracked.dtype == jnp.int32


def test_loading_lists_all_that_differs_and_changes_nothing():
    net = Net()
    before = {name: np.array(value) for name, value in net.state_dict().items()}
    state = {"bias": np.ones(2), "inner.0.weight": np.ones(3), "x": 1, "inner.y": 2}
    with pytest.raises(RuntimeError) as info:
        net.load_state_dict(state)
    text = str(info.value)
    assert "Net: nothing was loaded" in text
    assert 'Missing key(s): "mean".' in text
    assert 'Unexpected key(s): "x", "inner.y".' in text
    assert "size mismatch for inner.0.weight: the state has shape (3,), the module (2,)." in text
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value, before[name])
    with pytest.raises(RuntimeError, match="size mismatch") as info:
        net.load_state_dict(state, strict=False)
    assert "Missing" not in str(info.value)


def test_loading_without_strict_returns_the_names():
    net = Net()
    keys = net.load_state_dict({"bias": np.ones(2), "x": np.ones(2)}, strict=False)
    assert keys == (["mean", "inner.0.weight"], ["x"])
    assert net.bias.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1.0, 2.0], "weight: expected an array, got list"),
        (np.array(["a", "b"]), "weight: expected an array of numbers"),
        (np.ones((2, 1)), r"size mismatch for weight: the state has shape \(2, 1\)"),
        (np.ones(()), r"size mismatch for weight: the state has shape \(\)"),
        (jax.random.split(jax.random.key(0)), "weight: expected dtype float32, got key"),
    ],
)
def test_what_loading_refuses(value, text):
    with pytest.raises(RuntimeError, match=text):
        Scale().load_state_dict({"weight": value})


def test_loading_wants_a_mapping():
    with pytest.raises(TypeError, match="expects a mapping of names to arrays, got list"):
        Scale().load_state_dict([1])


def test_loading_with_assign_takes_the_dtype():
    net = Scale()
    box = net.weight
    net.load_state_dict({"weight": jnp.ones(2, jnp.bfloat16)}, assign=True)
    assert net.weight is box and box.dtype == jnp.bfloat16
    with pytest.raises(RuntimeError, match="weight: expected floats for a Parameter, got int32"):
        net.load_state_dict({"weight": jnp.ones(2, jnp.int32)}, assign=True)


def test_loading_fills_tied_names():
    net = nn.Module()
    net.a = net.b = Scale()
    net.load_state_dict({"a.weight": np.ones(2), "b.weight": np.full(2, 5.0)})
    assert net.a.weight.tolist() == [5.0, 5.0]
    with pytest.raises(RuntimeError, match='Missing key\\(s\\): "b.weight"'):
        net.load_state_dict({"a.weight": np.ones(2)})


def test_loading_a_random_key():
    net = nn.Module()
    net.register_buffer("key", jax.random.key(0))
    net.load_state_dict({"key": jax.random.key(5)})
    assert (jax.random.key_data(net.key.value) == jax.random.key_data(jax.random.key(5))).all()
    with pytest.raises(RuntimeError, match="key: expected dtype key<fry>, got float32"):
        net.load_state_dict({"key": np.float32(1)})


def test_loading_inside_a_trace():
    net = Net()
    js.jit(lambda m, s: m.load_state_dict(s) and None)(
        net, {name: value + 4 for name, value in net.state_dict().items()}
    )
    assert net.bias.tolist() == [4.0, 4.0]


class Tensor:
    """What loading sees of a PyTorch tensor."""

    def __init__(self, values, dtype="torch.float32"):
        self.values, self.dtype, self.shape = np.asarray(values), dtype, np.shape(values)

    def detach(self):
        return self

    cpu = resolve_conj = resolve_neg = detach

    def float(self):
        return Tensor(self.values)

    def numpy(self):
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.values


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16"])
def test_loading_tensors(dtype):
    net = Scale()
    net.load_state_dict({"weight": Tensor(np.array([1.5, 2.5], np.float32), dtype)})
    assert net.weight.tolist() == [1.5, 2.5] and net.weight.dtype == jnp.float32


class Extra(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = value
        self.weight = nn.Parameter(jnp.ones(1))

    def get_extra_state(self):
        return {"value": self.value}

    def set_extra_state(self, state):
        if state["value"] < 0:
            raise ValueError("negative")
        self.value = state["value"]


def test_extra_state():
    net = nn.Sequential(Extra(1), Extra(2))
    state = net.state_dict()
    assert state["0._extra_state"] == {"value": 1}
    state["0._extra_state"] = {"value": 5}
    net.load_state_dict(state)
    assert net[0].value == 5
    bad = {**state, "0._extra_state": {"value": 6}, "1._extra_state": {"value": -1}}
    bad["0.weight"] = np.full(1, 9.0)
    with pytest.raises(ValueError, match="negative"):
        net.load_state_dict(bad)
    assert (net[0].value, net[1].value, net[0].weight.tolist()) == (5, 2, [1.0])
    del state["1._extra_state"]
    with pytest.raises(RuntimeError, match='Missing key\\(s\\): "1._extra_state"'):
        net.load_state_dict(state)


def test_extra_state_that_is_not_defined():
    with pytest.raises(RuntimeError, match="get_extra_state\\(\\) isn't defined"):
        nn.Module().get_extra_state()
    with pytest.raises(RuntimeError, match="set_extra_state\\(\\) isn't defined"):
        nn.Module().set_extra_state(1)


def test_hooks_of_states():
    net, log = nn.Sequential(Scale()), []
    net.register_state_dict_pre_hook(lambda m, prefix, keep: log.append(("pre", prefix, keep)))
    net.register_state_dict_post_hook(lambda m, s, prefix, meta: s.update(extra=1))
    state = net.state_dict()
    assert log == [("pre", "", False)] and state.pop("extra") == 1

    def rename(module, state, prefix, meta, strict, missing, unexpected, errors):
        state[prefix + "weight"] = state.pop(prefix + "old")

    net[0].register_load_state_dict_pre_hook(rename)
    source = {"0.old": np.full(2, 3.0)}
    net.load_state_dict(source)
    assert net[0].weight.tolist() == [3.0, 3.0] and list(source) == ["0.old"]

    net[0].register_load_state_dict_pre_hook(lambda m, s, *rest: s.pop("0.weight"))
    net.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    assert net.load_state_dict(source) == ([], [])


# Copies.


def test_deepcopy_and_pickle_share_nothing_and_keep_ties_and_modes():
    net = nn.Module()
    net.a = net.b = Scale()
    net.c = Scale().eval()
    net.c.weight = net.a.weight
    net.c.weight.requires_grad = False
    net.things = [net.a, {"x": net.c}]
    net.register_buffer("t", jnp.ones(1), persistent=False)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin.a is twin.b is twin.things[0] and twin.things[1]["x"] is twin.c
        assert twin.c.weight is twin.a.weight and twin.a is not net.a
        assert twin.training and not twin.c.training
        assert not twin.a.weight.requires_grad and not twin.t.persistent
        twin.a.weight.value = jnp.zeros(2)
        assert net.a.weight.tolist() == [1.0, 1.0]
        twin.things.append(Scale())
        assert len(net.things) == 2 and "things.2.weight" in twin.state_dict()
        assert twin.a.path == "a"


def test_copy_shares_the_boxes_only():
    net = Net()
    net.things = []
    twin = copy.copy(net)
    assert twin.bias is net.bias and twin.inner is net.inner
    twin.things.append(Scale())
    twin.extra = Scale()
    assert net.things == [] and not hasattr(net, "extra")


def test_a_compiled_call_takes_a_copy_as_the_original():
    net = Net()
    call = js.jit(lambda m, x: m(x))
    call(net, jnp.ones(2))
    call(copy.deepcopy(net), jnp.ones(2))
    assert call.trace_count == 1


# In compiled functions.


def test_gradients_are_in_the_order_of_the_parameters():
    net = Net()
    net.things = [nn.Parameter(jnp.ones(2)), Scale()]
    net.last = nn.Parameter(jnp.ones(2))
    grads = js.grad(lambda m: m(jnp.ones(2)).sum())(net)
    assert list(grads) == names(net.named_parameters())


def test_a_module_made_inside_a_trace_is_returned():
    net = js.jit(lambda: nn.Sequential(nn.Linear(2, 3, rngs=js.Rngs(0)), nn.BatchNorm1d(3)))()
    plain = nn.Sequential(nn.Linear(2, 3, rngs=js.Rngs(0)), nn.BatchNorm1d(3))
    for name, value in plain.state_dict().items():
        np.testing.assert_allclose(net.state_dict()[name], value, rtol=1e-6)


def test_buffers_written_in_a_trace_are_written():
    norm = nn.BatchNorm1d(2)
    x = jnp.array([[1.0, 2.0], [3.0, 6.0]])
    js.jit(lambda m, x: m(x))(norm, x)
    np.testing.assert_allclose(norm.running_mean, [0.2, 0.4], rtol=1e-6)
    assert int(norm.num_batches_tracked) == 1


def test_new_attributes_in_a_trace_are_refused():
    net = Net()

    def step(m):
        m.last = jnp.ones(2)

    with pytest.raises(RuntimeError, match=r"last was assigned inside a traced function"):
        js.jit(step)(net)
    assert not hasattr(net, "last")
