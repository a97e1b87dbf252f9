"""What all optimizers share: parameters, groups, steps, counting, state dicts."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import optim
from jaxsaw.nn import Buffer, Parameter
from jaxsaw.state.graph import named_boxes


class Pair(js.Stateful):
    """A model of two Parameters."""

    def __init__(self, scale=1.0):
        self.weight = Parameter(jnp.arange(6.0).reshape(2, 3) * scale)
        self.bias = Parameter(jnp.ones(2) * scale)

    def parameters(self):
        return iter([self.weight, self.bias])

    def loss(self):
        return (self.weight.value**2).sum() + (self.bias.value**3).sum()


def gradients(model):
    return js.grad(lambda m: m.loss())(model)


def snapshot(*objects):
    return {(i, n): np.asarray(b) for i, o in enumerate(objects) for n, b in named_boxes(o)}


def assert_same(before, after):
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name], err_msg=str(name))


MAKERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "adam": lambda p: optim.Adam(p, lr=0.1),
    "adamw": lambda p: optim.AdamW(p, lr=0.1, amsgrad=True),
}
makers = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


# Parameters.


@pytest.mark.parametrize(
    "params, error, text",
    [
        (lambda m: m.weight, TypeError, r"got a bare Parameter. Pass \[parameter\]"),
        (lambda m: m, TypeError, r"got Pair. Pass model.parameters\(\)"),
        (lambda m: [m], TypeError, "only Parameters can be trained, got Pair"),
        (lambda m: [], ValueError, "Adam: got an empty list of Parameters"),
        (lambda m: {m.weight}, TypeError, "in a fixed order, .* got set"),
        (lambda m: 3, TypeError, "expected Parameters in a fixed order, .* got int"),
        (lambda m: [jnp.ones(2)], TypeError, "only Parameters can be trained"),
        (lambda m: [Buffer(jnp.ones(2))], TypeError, "only Parameters .* got Buffer"),
        (lambda m: [js.Variable(jnp.ones(2))], TypeError, "only Parameters .* got Variable"),
        (lambda m: [{"lr": 1.0}], TypeError, "group 0 must be a dict with a key 'params'"),
        (lambda m: [{"params": {m.weight}}], TypeError, "'params' of group 0 .* got set"),
        (lambda m: [("a", m.weight), m.bias], ValueError, "some Parameters have names and some"),
        (lambda m: [m.weight, m.bias, m.weight], ValueError, "'weight' .* 'weight' .* same one"),
        (
            lambda m: [{"params": [("a", m.weight)]}, {"params": [("b", m.weight)]}],
            ValueError,
            r"'a' of param_groups\[0\] and 'b' of param_groups\[1\] are the same one",
        ),
    ],
)
def test_refused_parameters(params, error, text):
    model = Pair()
    with pytest.raises(error, match=text):
        optim.Adam(params(model))


def test_names_are_paths_in_the_outermost_object():
    class Outer(js.Stateful):
        def __init__(self):
            self.layers = [Pair(), Pair()]

    outer, other, third = Outer(), Pair(), Pair()
    params = [*outer.layers[0].parameters(), *other.parameters(), *third.parameters()]
    lone = Parameter(jnp.ones(1))
    optimizer = optim.SGD([*params, lone], lr=0.1)
    assert list(optimizer.state_dict()["state"]) == [
        *("layers.0.weight", "layers.0.bias", "weight", "bias", "weight#2", "bias#2", "Parameter")
    ]
    named = optim.SGD([("w", other.weight), ("w", other.bias)], lr=0.1)
    assert list(named.state_dict()["state"]) == ["w", "w#2"]


def test_names_stay_when_the_model_moves():
    model = Pair()
    optimizer = optim.Adam(model.parameters())

    class Outer(js.Stateful):
        def __init__(self):
            self.inner = model

    outer = Outer()
    assert list(optimizer.state_dict()["state"]) == ["weight", "bias"]
    assert outer.inner.weight.path == "inner.weight"


def test_an_optimizer_is_no_owner_of_its_parameters():
    lone = Parameter(jnp.ones(1))
    first, second = optim.SGD([lone], lr=0.1), optim.SGD([lone], lr=0.1)
    assert first._names() == second._names() == ["Parameter"]


# Groups.


def test_groups_read_and_write_like_pytorchs():
    model = Pair()
    optimizer = optim.Adam(
        [{"params": [model.weight], "lr": 0.5, "mine": "x"}, {"params": model.bias}], lr=0.1
    )
    first, second = optimizer.param_groups
    assert (float(first["lr"]), float(second["lr"])) == (0.5, 0.1)
    assert first["params"] == [model.weight] and second["params"][0] is model.bias
    assert first["mine"] == "x" and "mine" not in second
    assert isinstance(first["lr"], js.Variable)
    assert list(second)[:5] == ["params", "lr", "betas", "eps", "weight_decay"]
    lr = first["lr"]
    first["lr"] = 0.25
    first["lr"] *= 0.5
    assert first["lr"] is lr and lr.value == 0.125 and lr.dtype == jnp.float32
    first.update(betas=(0.8, 0.99), mine="y")
    assert [float(b) for b in first["betas"]] == [0.8, 0.99] and first["mine"] == "y"
    first["betas"][1].value = 0.9999
    assert float(first["betas"][1].complement()) == np.float32(1 - 0.9999)
    assert float(jnp.sqrt(first["lr"]).round(3)) == np.float32(0.354)


@pytest.mark.parametrize(
    "write, error, text",
    [
        (lambda g: g.__setitem__("params", []), TypeError, "'params'. is fixed; see .*add_param"),
        (lambda g: g.__setitem__("lr", "0.1"), TypeError, r"param_groups.0\['lr'\]: .* got '0.1'"),
        (
            lambda g: g.__setitem__("lr", np.ones(3)),
            ValueError,
            r"expected a number, got shape \(3",
        ),
        (lambda g: g.__setitem__("betas", 0.9), TypeError, "expected 2 numbers, got 0.9"),
        (lambda g: g.__setitem__("betas", (0.9, None)), TypeError, "expected a number, got None"),
        (lambda g: g.pop("lr"), TypeError, r"\['lr'\] can't be deleted"),
        (lambda g: g["lrr"], KeyError, "param_groups.0 has no 'lrr'; it has: params, lr, betas"),
    ],
)
def test_refused_writes_change_nothing(write, error, text):
    model = Pair()
    optimizer = optim.Adam(model.parameters())
    before = snapshot(optimizer)
    with pytest.raises(error, match=text):
        write(optimizer.param_groups[0])
    assert_same(before, snapshot(optimizer))


@pytest.mark.parametrize(
    "number", [0.3, np.float64(0.3), np.float32(0.3), jnp.float16(0.3), jnp.ones(()), 1, True + 1]
)
def test_any_kind_of_number_is_used_without_a_trace(number):
    model = Pair()
    optimizer = optim.SGD(model.parameters(), lr=1.0)
    step = js.jit(lambda grads: optimizer.step(grads))
    grads = gradients(model)
    step(grads)
    optimizer.param_groups[0]["lr"] = number
    before = np.asarray(model.bias)
    step(grads)
    np.testing.assert_allclose(
        before - np.asarray(model.bias), np.float32(number) * grads["bias"], rtol=1e-6
    )
    assert step.trace_count == 1


@makers
def test_changing_any_number_compiles_nothing(make):
    model = Pair()
    optimizer = make(model.parameters())
    step = js.jit(lambda: optimizer.step(gradients(model)))
    twin = copy.deepcopy((model, optimizer))
    for t in range(6):
        step()
        twin[1].step(gradients(twin[0]))
        for group in (optimizer.param_groups[0], twin[1].param_groups[0]):
            group["lr"] = 0.1 / (t + 1)
            group["weight_decay"] = 0.1 * t
            if "betas" in group:
                group["betas"] = (0.5 + 0.01 * t, 0.9 + 0.01 * t)
                group["eps"] = 1e-6
            elif group["momentum"]:
                group["momentum"] = 0.5
                group["dampening"] = 0.1
    assert step.trace_count == 1
    for (name, a), (_, b) in zip(named_boxes(optimizer), named_boxes(twin[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7, err_msg=name)


def test_a_number_may_change_inside_of_a_compiled_function():
    model = Pair()
    optimizer = optim.Adam(model.parameters(), lr=1.0, weight_decay=0.0)

    @js.jit
    def step(scale):
        optimizer.param_groups[0]["lr"] *= scale
        optimizer.param_groups[0]["betas"] = (0.5, scale)
        optimizer.step(gradients(model))

    step(jnp.float32(0.5))
    step(jnp.float32(0.5))
    assert step.trace_count == 1
    assert float(optimizer.param_groups[0]["lr"]) == 0.25
    assert [float(b) for b in optimizer.param_groups[0]["betas"]] == [0.5, 0.5]


def test_flags_are_static():
    model = Pair()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    step = js.jit(lambda: optimizer.step(gradients(model)))
    step()
    optimizer.param_groups[0]["maximize"] = True
    before = np.asarray(model.bias)
    step()
    assert step.trace_count == 2 and (np.asarray(model.bias) > before).all()
    with pytest.raises(RuntimeError, match="assigned inside a traced function"):
        js.jit(lambda: optimizer.param_groups[0].update(maximize=False))()


def test_momentum_can_be_turned_on_later():
    model = Pair()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    assert optimizer.param_groups[0]["momentum"] == 0 and not optimizer.state[model.bias]
    optimizer.param_groups[0]["momentum"] = 0.5
    ones = [jnp.ones((2, 3)), jnp.ones(2)]
    optimizer.step(ones)
    optimizer.step(ones)
    np.testing.assert_allclose(optimizer.state[model.bias]["momentum_buffer"], 1.5)


def test_a_group_that_is_added_later():
    model, late = Pair(), Pair()
    optimizer = optim.Adam([model.weight], lr=0.1)
    optimizer.step([jnp.ones((2, 3))])
    optimizer.add_param_group({"params": late.parameters(), "lr": 0.01})
    optimizer.step([None, jnp.ones((2, 3)), jnp.ones(2)])
    # The first step of Adam is as long as the learning rate.
    np.testing.assert_allclose(late.bias, 0.99, rtol=1e-6)
    assert optimizer._own_steps().tolist() == [1, 1, 1]
    before = snapshot(optimizer)
    with pytest.raises(ValueError, match=r"'bias' of param_groups\[1\] and 'bias' of param_gro"):
        optimizer.add_param_group({"params": [model.bias, late.bias]})
    with pytest.raises(TypeError, match="a group must be a dict, got list"):
        optimizer.add_param_group([model.bias])
    assert_same(before, snapshot(optimizer))


# Steps.


@makers
def test_the_way_gradients_come_makes_no_difference(make):
    states = []
    for how in ("grads", "list", "jit", "part"):
        model = Pair()
        optimizer = make(model.parameters())
        for _ in range(3):
            grads = gradients(model)
            if how == "list":
                optimizer.step(list(grads.values()))
            elif how == "jit":
                js.jit(lambda o, g: o.step(g))(optimizer, grads)
            elif how == "part":
                both = js.grad(lambda a, b: a.loss() + b.loss(), argnums=(0, 1))(model, Pair())
                optimizer.step(both[0])
            else:
                optimizer.step(grads)
        states.append(snapshot(model, optimizer))
    for other in states[1:]:
        for name, value in states[0].items():
            np.testing.assert_allclose(value, other[name], rtol=2e-6, err_msg=str(name))


@pytest.mark.parametrize(
    "grads, error, text",
    [
        (
            lambda m: None,
            RuntimeError,
            r"Adam.step takes the gradients.*js.value_and_grad\(loss_fn",
        ),
        (lambda m: lambda: 1.0, RuntimeError, "no tape. Write: loss, grads = "),
        (lambda m: jnp.ones(2), TypeError, "expected what js.grad returns, or a list"),
        (lambda m: {"weight": 1}, TypeError, "expected what js.grad returns.* got dict"),
        (
            lambda m: [jnp.ones(2)],
            ValueError,
            "expected 2 gradients, one for each Parameter, got 1",
        ),
        (
            lambda m: [jnp.ones((2, 3)), jnp.ones(3)],
            ValueError,
            r"bias has shape \(3,\), .* \(2,\)",
        ),
        (lambda m: [jnp.ones((2, 3)), jnp.ones(2, int)], TypeError, "bias must be floats, got int"),
        (lambda m: [jnp.ones((2, 3)), "x"], TypeError, "bias must be floats, got str"),
    ],
)
@pytest.mark.parametrize("compiled", [False, True])
def test_refused_gradients_change_nothing(grads, error, text, compiled):
    model = Pair()
    optimizer = optim.Adam(model.parameters())
    grads = grads(model)
    before = snapshot(model, optimizer)
    step = js.jit(lambda: optimizer.step(grads)) if compiled else lambda: optimizer.step(grads)
    with pytest.raises(error, match=text):
        step()
    assert_same(before, snapshot(model, optimizer))


def test_an_unknown_gradient_is_named():
    model = Pair()
    optimizer = optim.Adam([model.weight])
    grads = gradients(model)
    with pytest.raises(ValueError, match=r"'bias' belongs to no Parameter.*grads.only\(optimizer"):
        optimizer.step(grads)
    optimizer.step(grads.only(optimizer))
    assert optimizer.step_count == 1


def test_zero_grad_says_what_to_write():
    with pytest.raises(RuntimeError, match="Adam.zero_grad.*optimizer.step.grads"):
        optim.Adam(Pair().parameters()).zero_grad()


@makers
def test_a_step_that_raises_in_the_middle_changes_nothing(make, monkeypatch):
    model = Pair()
    optimizer = make(model.parameters())
    optimizer.step(gradients(model))
    before = snapshot(model, optimizer)
    grads = gradients(model)

    def fail(self, group, items, steps):
        for p, g, _ in items:
            p.value = p.value - g
        raise KeyboardInterrupt

    monkeypatch.setattr(type(optimizer), "_update", fail)
    for step in (optimizer.step, js.jit(lambda g: optimizer.step(g))):
        with pytest.raises(KeyboardInterrupt):
            step(grads)
        with pytest.raises(KeyboardInterrupt):
            step([None, grads["bias"]])
        assert_same(before, snapshot(model, optimizer))
        assert optimizer._lags is None


@makers
def test_frozen_parameters_stay(make):
    model = Pair()
    optimizer = make(model.parameters())
    optimizer.param_groups[0]["weight_decay"] = 0.1
    step = js.jit(lambda: optimizer.step(gradients(model)))
    step()
    model.bias.requires_grad = False
    before = {n: v for n, v in snapshot(model, optimizer).items() if "bias" in n[1]}
    step()
    optimizer.step(gradients(model))
    optimizer.step([jnp.ones((2, 3)), jnp.ones(2)])
    after = snapshot(model, optimizer)
    assert_same(before, {n: after[n] for n in before})
    assert optimizer._own_steps().tolist() == [4, 1]
    model.bias.requires_grad = True
    step()
    assert optimizer._own_steps().tolist() == [5, 2]
    assert not np.array_equal(before[0, "bias"], np.asarray(model.bias))


@makers
def test_skipping_in_a_compiled_function(make):
    """The lags come into being inside of the trace, and it isn't traced again."""
    model, eager = Pair(), Pair()
    optimizer, reference = make(model.parameters()), make(eager.parameters())
    step = js.jit(lambda: optimizer.step([gradients(model)["weight"], None]))
    full = js.jit(lambda: optimizer.step(gradients(model)))
    for t in range(6):
        (full if t in (2, 4) else step)()
        grads = list(gradients(eager).values())
        reference.step(grads if t in (2, 4) else [grads[0], None])
    assert step.trace_count == 1
    assert optimizer._own_steps().tolist() == [6, 2]
    a, b = snapshot(model, optimizer), snapshot(eager, reference)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-5, atol=1e-7, err_msg=str(name))


def test_lags_exist_only_once_something_was_skipped():
    model = Pair()
    optimizer = optim.Adam(model.parameters())
    optimizer.step(gradients(model))
    assert "lags" not in optimizer._owned_boxes()
    optimizer.step([None, jnp.ones(2)])
    assert optimizer._owned_boxes()["lags"].value.tolist() == [1, 0]


def test_an_optimizer_may_be_made_inside_of_a_trace():
    @js.jit
    def fit(model):
        optimizer = optim.Adam(model.parameters(), lr=0.1)
        optimizer.step(gradients(model))
        optimizer.step([None, gradients(model)["bias"]])
        return optimizer

    model, eager = Pair(), Pair()
    optimizer = fit(model)
    reference = fit.__wrapped__(eager)
    assert_close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)
    for p, q in zip(model.parameters(), eager.parameters(), strict=True):
        assert_close(p, q)
        assert_close(optimizer.state[p]["exp_avg"], reference.state[q]["exp_avg"])
    optimizer.step(gradients(model))
    assert optimizer._own_steps().tolist() == [2, 3]


def test_the_dtypes_of_state_are_those_of_parameters():
    model = Pair()
    model.weight.value = model.weight.value.astype(jnp.bfloat16)
    optimizer = optim.Adam(model.parameters(), weight_decay=0.1)
    for step in (optimizer.step, js.jit(lambda g: optimizer.step(g))):
        step([jnp.ones((2, 3), jnp.bfloat16), jnp.ones(2)])
        assert model.weight.dtype == optimizer.state[model.weight]["exp_avg"].dtype == jnp.bfloat16
        assert model.bias.dtype == optimizer.state[model.bias]["exp_avg"].dtype == jnp.float32
    assert optimizer.step_count.dtype == jnp.int32
    assert not any(box.value.weak_type for _, box in named_boxes(optimizer))


def test_steps_of_bfloat16_are_computed_in_float32_and_rounded_once():
    low = lambda x: np.asarray(x, jnp.bfloat16).astype(np.float64)
    p = Parameter(jnp.array([1.0, -3.0, 0.01], jnp.bfloat16))
    optimizer = optim.Adam([p], lr=0.0625)
    x, m, v = low(p), np.zeros(3), np.zeros(3)
    for t in range(8):
        g = low([0.3, 1e-3, 7.0 - t])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = 0.0625 / (1 - 0.9 ** (t + 1)) * m
        x = low(x - step / (np.sqrt(v / (1 - 0.999 ** (t + 1))) + 1e-8))
        m, v = low(m), low(v)
        optimizer.step([jnp.asarray(g, jnp.bfloat16)])
        np.testing.assert_array_equal(low(p), x)


def test_complex_parameters_descend():
    z = Parameter(jnp.array([3 + 4j]))
    loss = lambda z: (jnp.abs(z) ** 2).sum()
    for make in MAKERS.values():
        z.value = jnp.array([3 + 4j], jnp.complex64)
        optimizer = make([z])
        for _ in range(100):
            optimizer.step([jax.grad(loss)(z.value)])
        assert jnp.abs(z.value[0]) < 1


def test_gradients_of_equal_models_are_told_apart():
    a, b = Pair(), Pair()
    optimizer = optim.SGD(a.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="'weight' belongs to no Parameter"):
        optimizer.step(gradients(b))


def test_state_is_found_by_parameter():
    model = Pair()
    optimizer = optim.Adam(model.parameters())
    optimizer.step(gradients(model))
    assert set(optimizer.state) == {model.weight, model.bias}
    np.testing.assert_allclose(optimizer.state[model.bias]["exp_avg"], 0.3, rtol=1e-6)


# State dicts.


@makers
def test_state_goes_by_name(make):
    model = Pair()
    optimizer = make(model.parameters())
    for _ in range(3):
        optimizer.step(gradients(model))
    optimizer.step([None, jnp.ones(2)])
    optimizer.param_groups[0]["lr"] = 0.05
    state = optimizer.state_dict()
    assert set(state) == {"step_count", "state", "param_groups"}
    assert state["param_groups"][0]["params"] == ["weight", "bias"]
    assert state["param_groups"][0]["lr"] == 0.05

    other = copy.deepcopy(model)
    reverse = make([other.bias, other.weight])
    reverse.load_state_dict(pickle.loads(pickle.dumps(state)))
    assert reverse.step_count == 4 and reverse._own_steps().tolist() == [4, 3]
    optimizer.step(gradients(model))
    reverse.step(gradients(other))
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        np.testing.assert_array_equal(a, b)
    for name, slots in reverse.state_dict()["state"].items():
        for slot, array in slots.items():
            np.testing.assert_array_equal(array, optimizer.state_dict()["state"][name][slot])


def test_loading_compiles_nothing_and_keeps_the_parameters():
    model = Pair()
    optimizer = optim.Adam(model.parameters())
    step = js.jit(lambda: optimizer.step(gradients(model)))
    step()
    boxes = [id(box) for _, box in named_boxes(optimizer)]
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step()
    assert step.trace_count == 1 and boxes == [id(box) for _, box in named_boxes(optimizer)]


def test_numbers_come_back_to_the_bit():
    model = Pair()
    betas = (0.87654321012345, 1 / 3)
    optimizer = optim.Adam(model.parameters(), lr=0.1 / 3, betas=betas)
    group = optimizer.param_groups[0]
    group["betas"] = (0.9, group["betas"][1])
    twin = Pair()
    other = optim.Adam(twin.parameters())
    other.load_state_dict(optimizer.state_dict())
    for name, box in optimizer._owned_boxes().items():
        np.testing.assert_array_equal(box, other._owned_boxes()[name], err_msg=name)
    assert other.state_dict()["param_groups"][0]["betas"][0] == 0.9


def test_moments_keep_the_dtype_that_they_come_with():
    model = Pair()
    optimizer = optim.Adam(model.parameters())
    optimizer.step(gradients(model))
    state = optimizer.state_dict()
    model.weight.value = model.weight.value.astype(jnp.bfloat16)
    low = optim.Adam(model.parameters())
    assert low.state[model.weight]["exp_avg"].dtype == jnp.bfloat16
    low.load_state_dict(state)
    assert low.state[model.weight]["exp_avg"].dtype == jnp.float32
    low.step([jnp.ones((2, 3), jnp.bfloat16), jnp.ones(2)])
    assert low.state[model.weight]["exp_avg"].dtype == jnp.float32
    assert model.weight.dtype == jnp.bfloat16


def drop(path):
    def change(state):
        *way, last = path
        for key in way:
            state = state[key]
        del state[last]

    return change


@pytest.mark.parametrize(
    "change, text",
    [
        (drop(["state"]), r"no state of an optimizer, it lacks \['state'\]"),
        (drop(["step_count"]), r"it lacks \['step_count'\]"),
        (drop(["state", "bias"]), "missing state bias.exp_avg; missing state bias.exp_avg_sq"),
        (drop(["state", "bias", "exp_avg"]), "nothing was loaded. missing state bias.exp_avg."),
        (lambda s: s["state"].update(extra={}), "unexpected state of 'extra'"),
        (lambda s: s["state"]["bias"].update(more=1), "unexpected state bias.more"),
        (
            lambda s: s["state"]["bias"].update(exp_avg=np.ones(3)),
            r"bias.exp_avg has shape \(3,\), expected \(2,\)",
        ),
        (lambda s: s["param_groups"].append({"params": []}), "2 groups, expected 1"),
        (
            lambda s: s["param_groups"][0]["params"].append("extra"),
            r"param_groups\[0\]: missing Parameters \[\], unexpected \['extra'\]",
        ),
        (
            lambda s: s["param_groups"][0].update(amsgrad=True),
            r"param_groups.0\['amsgrad'\] is False, in the state True",
        ),
    ],
)
def test_refused_states_change_nothing(change, text):
    model = Pair()
    optimizer = optim.Adam(model.parameters())
    optimizer.step(gradients(model))
    state = copy.deepcopy(optimizer.state_dict())
    state["param_groups"][0]["lr"] = 7.0
    state["step_count"] = 9
    change(state)
    before = snapshot(model, optimizer)
    with pytest.raises(RuntimeError, match=text):
        optimizer.load_state_dict(state)
    assert_same(before, snapshot(model, optimizer))


def test_groups_are_found_by_their_parameters():
    model = Pair()
    split = lambda *ps: [{"params": [p], "lr": 0.1 * (1 + p.ndim)} for p in ps]
    optimizer = optim.SGD(split(model.weight, model.bias))
    other = optim.SGD(split(model.bias, model.weight))
    for group in other.param_groups:
        group["lr"] = 9.0
    other.load_state_dict(optimizer.state_dict())
    assert [round(float(g["lr"]), 3) for g in other.param_groups] == [0.2, 0.3]


def test_pytorchs_layout_without_pytorch():
    """By position; what has no state has done no step."""
    model = Pair()
    optimizer = optim.Adam(model.parameters(), lr=0.5)
    moments = {"step": np.float32(3), "exp_avg": np.ones(2), "exp_avg_sq": np.full(2, 4.0)}
    group = {"lr": 0.25, "betas": [0.5, 0.75], "amsgrad": False, "fused": True, "params": [0, 1]}
    optimizer.load_state_dict({"state": {1: moments}, "param_groups": [group]})
    assert optimizer.step_count == 3 and optimizer._own_steps().tolist() == [0, 3]
    assert float(optimizer.param_groups[0]["lr"]) == 0.25
    assert optimizer.state[model.bias]["exp_avg_sq"].value.tolist() == [4, 4]
    written = optimizer.torch_state_dict()
    assert list(written["state"]) == [1] and written["param_groups"][0]["params"] == [0, 1]
    assert float(written["state"][1]["step"]) == 3
    with pytest.raises(RuntimeError, match=r"groups of \[1\] Parameters, .* groups of \[2\]"):
        optimizer.load_state_dict({"state": {}, "param_groups": [{**group, "params": [0]}]})


# As state.


def test_names_of_boxes_and_configuration():
    model = Pair()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optim.lr_scheduler.StepLR(optimizer, 3)
    assert list(optimizer._owned_boxes()) == [
        "step_count",
        "state.weight.momentum_buffer",
        "state.bias.momentum_buffer",
        "param_groups.0.lr",
        "param_groups.0.momentum",
        "param_groups.0.dampening",
        "param_groups.0.weight_decay",
        "param_groups.0.dampening.rest",
    ]
    flags = {"nesterov": False, "maximize": False}
    groups = [{"params": ["weight", "bias"], **flags}]
    assert optimizer._configuration() == {"class": "SGD", "param_groups": groups}
    assert {"params.weight", "params.bias"} <= {name for name, _ in named_boxes(optimizer)}


def test_the_number_of_arrays_is_that_of_raw_jax():
    model = Pair()
    optimizer = optim.Adam(model.parameters())
    assert sum(box.size > 1 for box in optimizer._owned_boxes().values()) == 2 * 2


@makers
@pytest.mark.parametrize("copier", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_train_alike_and_share_nothing(make, copier):
    model = Pair()
    optimizer = make(model.parameters())
    optimizer.step(gradients(model))
    optimizer.step([None, jnp.ones(2)])
    model2, optimizer2 = copier((model, optimizer))
    assert optimizer2.param_groups[0]["params"][0] is model2.weight
    before = snapshot(model, optimizer)
    optimizer2.param_groups[0]["lr"] = 0.01
    if "betas" in optimizer2.param_groups[0]:
        optimizer2.param_groups[0]["betas"] = (0.9, 0.99)
        assert float(optimizer2.param_groups[0]["betas"][1].complement()) == np.float32(0.01)
    optimizer2.step(gradients(model2))
    assert_same(before, snapshot(model, optimizer))
    model3, optimizer3 = copier((model, optimizer))
    optimizer.step(gradients(model))
    optimizer3.step(gradients(model3))
    assert_same(snapshot(model, optimizer), snapshot(model3, optimizer3))


def test_equal_models_share_a_compiled_step_whatever_their_rates():
    @js.jit
    def step(model, optimizer):
        optimizer.step(gradients(model))

    for lr in (0.1, 0.2, 0.3):
        model = Pair()
        optimizer = optim.AdamW(model.parameters(), lr=lr, betas=(0.5, 0.9 + lr / 10))
        optim.lr_scheduler.StepLR(optimizer, 3)
        step(model, optimizer)
    assert step.trace_count == 1


def test_scalars_live_where_the_parameters_do():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("x",))
    spec = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
    p = Parameter(jax.device_put(jnp.ones(4), spec))
    optimizer = optim.Adam([p])
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    assert optimizer.state[p]["exp_avg"].sharding == spec
    assert optimizer.step_count.sharding == whole
    optimizer.param_groups[0]["lr"] = 0.1
    assert optimizer.param_groups[0]["lr"].sharding == whole


def test_without_strict_promotion_it_is_the_same():
    with jax.numpy_dtype_promotion("standard"):
        model = Pair()
        optimizer = optim.Adam(model.parameters())
        optimizer.step(gradients(model))
        assert not any(box.value.weak_type for _, box in named_boxes(optimizer))


def test_float64_parameters_have_float64_settings():
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        p = Parameter(jnp.ones(2, jnp.float64))
        optimizer = optim.SGD([p], lr=0.1)
        optimizer.step([jnp.ones(2, jnp.float64)])
        assert p.dtype == jnp.float64 and p.value[0] == 0.9
        q = Parameter(jnp.ones(2, jnp.float32))
        optimizer = optim.Adam([q], lr=0.1)
        optimizer.step([jnp.ones(2, jnp.float32)])
        assert q.dtype == optimizer.param_groups[0]["lr"].dtype == jnp.float32
