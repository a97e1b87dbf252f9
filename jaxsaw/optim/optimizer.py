"""The base of all optimizers: parameters, groups, counting, and what a state dict holds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.optim import exchange
from jaxsaw.optim.group import HyperParameter, ParamGroup, at_once, look, place
from jaxsaw.optim.rule import rule
from jaxsaw.state import scope as scopes
from jaxsaw.state.graph import named_boxes
from jaxsaw.state.node import Node, path_from_root
from jaxsaw.state.signature import intern, static_key
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.grads import Grads

Array = jax.Array

_LINE = "loss, grads = js.value_and_grad(loss_fn)(model); optimizer.step(grads)"


class Item(NamedTuple):
    """A Parameter that a step changes, its gradient, and its state by slot."""

    parameter: Any
    gradient: Any
    slots: dict[str, Variable]


class Optimizer(Stateful):
    """Base class of optimizers.

    A subclass names its formula in ``_rule``, a function of one Parameter's arrays (see
    :func:`rule`), the arrays that the formula keeps in ``_state_names``, and gives it its
    keywords in :meth:`_settings`. One that doesn't go Parameter by Parameter says in
    :meth:`_update` what a step does.

    Args:
        params: Parameters, as an iterable of them, of ``(name, Parameter)`` pairs, or of dicts
            with a key ``"params"`` and settings of their own (groups). Any group may have
            ``"frozen": True``, which skips its Parameters, and ``"master_weights": True``, which
            keeps Parameters in bfloat16 or float16 in float32, too, with float32 moments.
        defaults: The settings of groups that don't say otherwise. Numbers become Variables.

    Attributes:
        step_count: How many steps were done, a Variable (int32).
        param_groups: The groups; ``optimizer.param_groups[0]["lr"] = 0.1`` writes.

    Raises:
        TypeError: If ``params`` isn't an iterable of Parameters.
        ValueError: If there are none, or one occurs twice.

    Source: ``torch.optim.Optimizer``.

    Example:
        >>> import jax.numpy as jnp
        >>> class SignDescent(Optimizer):
        ...     _rule = staticmethod(rule()(lambda p, g, *, lr: p - lr * jnp.sign(g)))
        ...     def __init__(self, params, lr):
        ...         super().__init__(params, {"lr": lr})
        ...     def _settings(self, group, steps):
        ...         return {"lr": group["lr"].value}
        >>> w = nn.Parameter(jnp.zeros(2))
        >>> optimizer = SignDescent([w], lr=0.5)
        >>> optimizer.step([jnp.array([3.0, -7.0])])
        >>> w.value
        Array([-0.5,  0.5], dtype=float32)
    """

    _flags: ClassVar[tuple[str, ...]] = ()  # static settings that state must agree with
    _static: ClassVar[tuple[str, ...]] = ()  # numbers that aren't boxed
    _precise: ClassVar[tuple[str, ...]] = ()  # numbers of which the complement is used
    _dormant: ClassVar[tuple[str, ...]] = ()  # numbers that need no state while they are zero
    _counted: ClassVar[bool] = True  # whether PyTorch keeps the number of steps, too
    _begun: ClassVar[bool] = False  # whether PyTorch has a state before the first step, too
    _state_names: ClassVar[tuple[str, ...]] = ()  # the arrays of a Parameter that the rule takes
    _rule: ClassVar[Callable[..., Any]]  # the formula

    def __init__(self, params: Any, defaults: Mapping[str, Any]) -> None:
        groups = _as_groups(type(self).__name__, params)
        self.defaults = dict(defaults)
        self._dtype, home = _home_of([p for group in groups for _, p in group["params"]])
        self.step_count = Variable.own(place(np.zeros((), np.int32), home))
        self._lags: Variable | None = None
        self._state: dict[str, dict[str, Variable]] = {}
        self.param_groups: list[ParamGroup] = []
        self._add(groups)

    # What a subclass says.

    def _settings(self, group: ParamGroup, steps: Any) -> dict[str, Any]:
        """Return the keywords of the formula.

        Args:
            group: The group.
            steps: How many steps there were with this one: a scalar, or one for each Parameter
                that is changed. What depends on it may be one for each, too.
        """
        raise NotImplementedError(f"{type(self).__name__} has no _settings().")

    def _slots(self, group: ParamGroup) -> tuple[str, ...]:
        """Return those of ``_state_names`` that a group needs."""
        return self._state_names

    def _begin(self, group: ParamGroup, p: Any) -> dict[str, Any]:
        """Return the first state of a Parameter, given an array like it: zeros of its shape."""
        return {slot: jnp.zeros_like(p) for slot in self._slots(group)}

    def _check(self, name: str, p: Any) -> None:
        """Refuse a Parameter, given its abstract value, that can't be trained so."""

    def _update(self, group: ParamGroup, items: Sequence[Item], steps: Any) -> None:
        """Write new values into the Parameters of a group, and into their slots.

        Args:
            group: The group, for its settings.
            items: What to change.
            steps: How many steps there were with this one: a scalar, or one for each item.
        """
        settings = self._settings(group, steps)
        each = {key: x for key, x in settings.items() if getattr(x, "ndim", 0)}
        for k, (p, g, slots) in enumerate(items):
            boxes = [slots.get(name) for name in self._state_names]
            state = [None if box is None else box.value for box in boxes]
            own = {**settings, **{key: x[k] for key, x in each.items()}}
            master = slots.get("master")
            precise = p.value if master is None else _unrounded(master.value, p.value)
            new = self._rule(precise, g, *state, **own)
            first, *rest = new if boxes else (new,)
            if master is not None:
                master.value, first = first, first.astype(p.dtype)
            p.value = first
            for box, array in zip(boxes, rest, strict=True):
                if box is not None:
                    box.value = array

    # Steps.

    def step(self, grads: Any = None) -> None:
        """Change the Parameters, all of them or, where it raises, none.

        Args:
            grads: A :class:`~jaxsaw.Grads`, or a sequence of arrays in the order of the
                Parameters (None for one to skip). A Parameter without a gradient, or with
                ``requires_grad=False``, is skipped: neither changed nor decayed.

        Raises:
            RuntimeError: If there are no gradients.
            TypeError: If ``grads`` is neither.
            ValueError: If a gradient has the wrong shape or belongs to no Parameter.
        """
        who = f"{type(self).__name__}.step"
        if grads is None or callable(grads):
            raise RuntimeError(f"{who} takes the gradients, there is no tape. Write: {_LINE}")
        gradients = self._in_order(who, grads)
        with at_once():
            self._advance(gradients)

    def _in_order(self, who: str, grads: Any) -> list[Any]:
        """Return a gradient, or None, for each Parameter."""
        params, names = self._params(), self._names()
        found: list[Any]
        if isinstance(grads, Grads):
            places = {id(p): i for i, p in enumerate(params)}
            found = [None] * len(params)
            for (name, gradient), box in zip(grads.items(), grads.boxes, strict=True):
                if id(box) not in places:
                    raise ValueError(
                        f"{who}: the gradient {name!r} belongs to no Parameter of this optimizer. "
                        "Pass grads.only(optimizer), or build the optimizer with this Parameter."
                    )
                found[places[id(box)]] = gradient
        elif isinstance(grads, tuple) and any(isinstance(part, Grads) for part in grads):
            raise TypeError(
                f"{who}: got a tuple with a Grads in it, as js.value_and_grad and "
                "optim.clip_grad_norm return. Unpack it, and pass the Grads alone."
            )
        elif isinstance(grads, Sequence) and not isinstance(grads, str):
            found = list(grads)
            if len(found) != len(params):
                raise ValueError(
                    f"{who}: expected {len(params)} gradients, one for each Parameter, got "
                    f"{len(found)}. Give None for a Parameter that shall be skipped."
                )
        else:
            raise TypeError(
                f"{who}: expected what js.grad returns, or a list of arrays in the order of the "
                f"Parameters, got {type(grads).__name__}. Write: {_LINE}"
            )
        frozen = [group.get("frozen", False) for group in self.param_groups for _ in group._params]
        for i, (name, p, g) in enumerate(zip(names, params, found, strict=True)):
            if g is None or frozen[i] or not p.requires_grad:
                found[i] = None
                continue
            g = found[i] = g.value if isinstance(g, Variable) else g
            if not hasattr(g, "dtype") or not jnp.issubdtype(g.dtype, jnp.inexact):
                kind = getattr(g, "dtype", type(g).__name__)
                raise TypeError(f"{who}: the gradient of {name} must be floats, got {kind}.")
            if g.shape != p.shape:
                raise ValueError(
                    f"{who}: the gradient of {name} has shape {g.shape}, expected {p.shape}."
                )
        return found

    def _advance(self, gradients: Sequence[Any]) -> None:
        count = self.step_count.value + 1
        self.step_count.value = count
        skipped = np.array([g is None for g in gradients])
        if skipped.any() and self._lags is None:
            self._add_lags()
        own = None
        if self._lags is not None:
            if skipped.any():
                self._lags.value = self._lags.value + skipped.astype(np.int32)
            own = count - self._lags.value
        start = 0
        for group in self.param_groups:
            stop = start + len(group._params)
            present = [i for i in range(start, stop) if not skipped[i]]
            if present:
                items = [
                    Item(p, gradients[start + k], self._state[name])
                    for k, (name, p) in enumerate(zip(group._names, group._params, strict=True))
                    if not skipped[start + k]
                ]
                self._update(group, items, count if own is None else own[np.array(present)])
            start = stop

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Raise an error that shows what to write: gradients aren't stored anywhere."""
        raise RuntimeError(
            f"{type(self).__name__}.zero_grad: gradients are values here, there is nothing to "
            f"reset. Write: {_LINE}"
        )

    # Parameters and their state.

    @property
    def state(self) -> Mapping[Any, dict[str, Variable]]:
        """The state of each Parameter: ``optimizer.state[parameter]["exp_avg"]``."""
        pairs = zip(self._params(), self._names(), strict=True)
        return {p: dict(self._state[name]) for p, name in pairs}

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add Parameters, as a group of their own; their steps are counted from now on.

        Args:
            param_group: A dict with a key ``"params"``, and settings that differ from the
                optimizer's defaults.

        Raises:
            TypeError: If it isn't a dict, or has something else than Parameters.
            ValueError: If the optimizer has one of the Parameters already.
        """
        who = type(self).__name__
        if not isinstance(param_group, Mapping):
            raise TypeError(f"{who}: a group must be a dict, got {type(param_group).__name__}.")
        self._add(_as_groups(who, [param_group]))

    def _add(self, groups: Sequence[dict[str, Any]]) -> None:
        self._check_assignable("param_groups")
        old = len(self._params())
        named = [
            (i, name, p)
            for i, group in enumerate(groups, len(self.param_groups))
            for name, p in group["params"]
        ]
        self._refuse_repeats(named)
        for _, name, p in named:
            self._check(name or _path(p), p.aval)  # which a Lazy layer that wasn't called lacks
        taken = set(self._names())
        names = iter([_free_name(name, p, taken) for _, name, p in named])
        made = []
        for group in groups:
            settings = {**self.defaults, **group}
            params = [p for _, p in settings.pop("params")]
            made.append(
                ParamGroup(
                    params,
                    [next(names) for _ in params],
                    settings,
                    static=self._static,
                    precise=self._precise,
                    dormant=self._dormant,
                    dtype=self._dtype,
                    like=look(self.step_count),
                )
            )
        state = {name: self._boxes(group, p) for group in made for name, p in _members(group)}
        lags = self._lags_with(len(state)) if old else None
        self._state = {**self._state, **state}
        self.param_groups = [*self.param_groups, *made]
        if lags is not None:
            self._lags = lags

    def _boxes(self, group: ParamGroup, p: Any) -> dict[str, Variable]:
        return {slot: Variable.own(x) for slot, x in self._first_state(group, look(p)).items()}

    def _first_state(self, group: ParamGroup, p: Any) -> dict[str, Any]:
        if not group.get("master_weights", False) or p.dtype not in (jnp.bfloat16, jnp.float16):
            return self._begin(group, p)
        wide = p.astype(jnp.float32)
        return {**self._begin(group, wide), "master": wide}

    def _fill_slots(self, group: ParamGroup) -> None:
        """Make the state that a group needs since one of its settings has changed."""
        missing = {
            name: {**self._boxes(group, p), **self._state[name]} for name, p in _members(group)
        }
        self._state = {**self._state, **missing}

    def _from_torch(self, slots: dict[str, Any]) -> dict[str, Any]:
        """Return the state of a Parameter, given what PyTorch keeps."""
        return slots

    def _to_torch(self, slots: dict[str, Any]) -> dict[str, Any]:
        """Return what PyTorch keeps, given the state of a Parameter."""
        return slots

    def _refuse_repeats(self, named: Sequence[tuple[int, str | None, Any]]) -> None:
        seen: dict[int, tuple[int, str]] = {}
        for i, group in enumerate(self.param_groups):
            seen.update((id(p), (i, name)) for name, p in _members(group))
        for i, name, p in named:
            name = name or _path(p)
            if id(p) in seen:
                j, other = seen[id(p)]
                raise ValueError(
                    f"{type(self).__name__}: a Parameter may occur once, but {other!r} of "
                    f"param_groups[{j}] and {name!r} of param_groups[{i}] are the same one."
                )
            seen[id(p)] = (i, name)

    def _params(self) -> list[Any]:
        return [p for group in self.param_groups for p in group._params]

    def _names(self) -> list[str]:
        return [name for group in self.param_groups for name in group._names]

    # Steps that a Parameter wasn't part of.

    def _own_steps(self) -> Any:
        """Return how many steps each Parameter was part of, in the order of the Parameters."""
        count = self.step_count.value
        if self._lags is not None:
            return count - self._lags.value
        return jnp.broadcast_to(count, (len(self._params()),))

    def _add_lags(self) -> None:
        """Count skipped steps from now on, also where a trace has just found the first one."""
        zeros = np.zeros(len(self._params()), np.int32)
        active = scopes.current()
        if active is not None and active.encloses(self._birth):
            box = Variable.own(jnp.asarray(zeros))
        else:
            with jax.ensure_compile_time_eval():
                array = place(zeros, look(self.step_count))
            box = Variable.__new__(Variable)
            box._settle(array)
            if active is not None:
                active.grew(self, "lags", lambda: self._set_lags(None))
        self._set_lags(box)

    def _set_lags(self, box: Variable | None) -> None:
        self.__dict__["_lags"] = box
        self._link("_lags", box)
        self._signature = None
        self._changed(structure=True)

    def _grow(self, what: str) -> Callable[[], None]:
        """Add what a trace or a checkpoint found missing; return what takes it away again."""
        if what == "lags":
            if self._lags is None:
                self._add_lags()
            return lambda: self._set_lags(None)
        index, key = _place_of_setting(what)
        group, state = self.param_groups[index], self._state
        before = group[key]
        group[key] = 1.0  # any number that isn't zero; a checkpoint has the right one

        def forget() -> None:
            group._entries[key] = before
            self._state = state

        return forget

    def _on_demand(self, names: list[str]) -> list[str]:
        """Return what to add so that a checkpoint with these names fits."""
        missing = ["lags"] if "lags" in names and self._lags is None else []
        for name in names:
            index, key = _place_of_setting(name)
            if index < len(self.param_groups) and key in self._dormant:
                if not self.param_groups[index].is_boxed(key):
                    missing.append(name)
        return missing

    def _first_value(self, name: str, names: list[str]) -> Any:
        """Return what a box that a checkpoint with these names lacks was then, if that is known.

        Nothing was skipped, and a setting that had no box was zero and needed no state.
        """
        box = self._owned_boxes()[name]
        if name == "lags":
            return np.zeros(box.shape, box.dtype)
        for i, group in enumerate(self.param_groups):
            then = copy(group)  # as it was when it was saved
            for key in self._dormant:
                if f"param_groups.{i}.{key}" not in names:
                    then._entries[key] = 0
            unneeded = {f"param_groups.{i}.{k}" for k in self._dormant if not then.is_boxed(k)}
            for n in group._names:
                unneeded.update(f"state.{n}.{k}" for k in self._state[n].keys() - self._slots(then))
            if name in unneeded:
                return np.zeros(box.shape, box.dtype)
        return None

    def _lags_with(self, new: int) -> Variable | None:
        """Return the lags when ``new`` Parameters come, which took no part in any step yet."""
        count, lags = self.step_count.value, self._lags
        if lags is None and not isinstance(count, jax.core.Tracer) and not np.any(count):
            return None
        old = jnp.zeros(len(self._params()), jnp.int32) if lags is None else lags.value
        array = jnp.concatenate([old, jnp.broadcast_to(count, (new,))])
        return Variable.own(place(array, look(self.step_count)))

    # Saving and restoring.

    def state_dict(self) -> dict[str, Any]:
        """Return the state by name.

        Returns:
            A dict with ``step_count``, ``state`` (by the names of Parameters and of slots; of a
            Parameter that was skipped, ``step`` too, its own number of steps) and
            ``param_groups`` (with names in ``params``).
        """
        state = {
            name: {slot: box.value for slot, box in slots.items()}
            for name, slots in self._state.items()
        }
        if self._lags is not None:
            for name, steps in zip(self._names(), self._own_steps(), strict=True):
                state[name]["step"] = steps
        return {
            "step_count": self.step_count.value,
            "state": state,
            "param_groups": [
                {"params": list(group._names), **group.numbers()} for group in self.param_groups
            ],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over a state, all of it or, where it raises, nothing.

        Args:
            state_dict: What :meth:`state_dict` returned, here or in PyTorch. Arrays may be
                NumPy's, JAX's or PyTorch's; moments keep the dtype that they come with.

        Raises:
            RuntimeError: If it doesn't fit, with all that is missing or unexpected.
        """
        saved = exchange.read(self, state_dict)
        if saved.lags.any() and self._lags is None:
            self._check_assignable("_lags")
            self._add_lags()
        for group, settings in saved.settings:
            if "initial_lr" in settings:
                group.remember("initial_lr", settings["initial_lr"])
        with at_once():
            self.step_count.value = place(saved.step_count, look(self.step_count))
            if self._lags is not None:
                self._lags.value = place(saved.lags, look(self._lags))
            for box, array in saved.arrays:
                box.value = place(array, look(box))
            for group, settings in saved.settings:
                for key, value in settings.items():
                    group[key] = value

    def torch_state_dict(self) -> dict[str, Any]:
        """Return the state in PyTorch's own layout, by position.

        Returns:
            What ``load_state_dict`` of the PyTorch optimizer takes: its arrays are tensors where
            PyTorch is installed, NumPy's otherwise.
        """
        return exchange.to_torch(self)

    def _owned_boxes(self) -> dict[str, Variable]:
        """Return the boxes that are this optimizer's own, by name, for a checkpoint."""
        foreign = {id(p) for p in self._params()}
        # The initial rates belong to the schedulers that have asked for them.
        foreign |= {id(group["initial_lr"]) for group in self.param_groups if "initial_lr" in group}
        return {name: box for name, box in named_boxes(self) if id(box) not in foreign}

    def _configuration(self) -> dict[str, Any]:
        """Return what must agree with a checkpoint that is restored."""
        groups = [
            {"params": list(group._names), **{flag: group[flag] for flag in self._flags}}
            for group in self.param_groups
        ]
        return {"class": type(self).__name__, "param_groups": groups}

    # The object graph.

    def _edges(self) -> Iterator[tuple[str, Node]]:
        for name, node in super()._edges():
            yield name.lstrip("_"), node
        for group in self.param_groups:
            for name, p in _members(group):
                yield f"params.{name}", p

    def _sign(self) -> Any:
        # Without the defaults, which are only for groups that are added later.
        items = self.__dict__.items()
        return intern(
            (type(self), *((name, static_key(v)) for name, v in items if name != "defaults"))
        )

    def __repr__(self) -> str:
        groups = (f"  group {i}:\n{group}" for i, group in enumerate(self.param_groups))
        return "\n".join([f"{type(self).__name__}(", *groups, ")"])


def _unrounded(master: Any, p: Any) -> Any:
    """Return a Parameter in float32; where somebody has assigned to it, that counts."""
    return jnp.where(master.astype(p.dtype) == p, master, p.astype(master.dtype))


def _place_of_setting(name: str) -> tuple[int, str]:
    """Return the group's number and the key in the name of a setting's box."""
    parts = name.split(".", 2)
    if len(parts) == 3 and parts[0] == "param_groups" and parts[1].isdigit():
        return int(parts[1]), parts[2]
    return sys.maxsize, ""


def _members(group: ParamGroup) -> Iterable[tuple[str, Any]]:
    return zip(group._names, group._params, strict=True)


def _as_groups(who: str, params: Any) -> list[dict[str, Any]]:
    """Return groups whose ``"params"`` are lists of (name or None, Parameter)."""
    if isinstance(params, Node):
        given = "a bare Parameter" if isinstance(params, Variable) else type(params).__name__
        more = "[parameter]" if isinstance(params, Variable) else "model.parameters()"
        raise TypeError(f"{who}: expected an iterable of Parameters, got {given}. Pass {more}.")
    if isinstance(params, set | frozenset | Mapping | str) or not isinstance(params, Iterable):
        raise TypeError(
            f"{who}: expected Parameters in a fixed order, such as model.parameters() or a list, "
            f"got {type(params).__name__}."
        )
    listed = list(params)
    if not listed:
        raise ValueError(f"{who}: got an empty list of Parameters.")
    if not isinstance(listed[0], Mapping):
        listed = [{"params": listed}]
    groups = []
    for i, group in enumerate(listed):
        if not isinstance(group, Mapping) or "params" not in group:
            raise TypeError(f"{who}: group {i} must be a dict with a key 'params', got {group!r}.")
        members = group["params"]
        if isinstance(members, Variable):
            members = [members]
        elif isinstance(members, set | frozenset | Mapping | str | Node):
            raise TypeError(
                f"{who}: 'params' of group {i} must have a fixed order, such as a list, got "
                f"{type(members).__name__}."
            )
        pairs = [item if _is_pair(item) else (None, item) for item in members]
        if len({name is None for name, _ in pairs}) > 1:
            raise ValueError(f"{who}: in group {i} some Parameters have names and some haven't.")
        for _, p in pairs:
            _check_parameter(who, p)
        groups.append({**group, "params": pairs})
    return groups


def _is_pair(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)


def _check_parameter(who: str, p: Any) -> None:
    if not isinstance(p, Variable) or type(p).requires_grad is Variable.requires_grad:
        name = f" ({p.path})" if isinstance(p, Node) else ""
        raise TypeError(
            f"{who}: only Parameters can be trained, got {type(p).__name__}{name}. "
            "Pass model.parameters()."
        )


def _path(p: Any) -> str:
    return path_from_root(p)[1] or type(p).__name__


def _free_name(name: str | None, p: Any, taken: set[str]) -> str:
    """Return a name for a Parameter that no other one has, and take it."""
    base = name if name is not None else _path(p)
    name, n = base, 1
    while name in taken:
        n += 1
        name = f"{base}#{n}"
    taken.add(name)
    return name


def _home_of(params: Sequence[Any]) -> tuple[Any, Any]:
    """Return the dtype of hyper-parameters, and an array on the devices of all Parameters.

    Scalars live where the Parameters do, so that they stay there when a step has written them.
    """
    arrays = [look(p) for p in params]
    wide = any(a.dtype in (jnp.float64, jnp.complex128) for a in arrays)
    dtype = np.dtype(np.float64 if wide else np.float32)
    for array in arrays:
        if isinstance(array, jax.core.Tracer) or not getattr(array, "committed", False):
            continue
        sharding = array.sharding
        if isinstance(sharding, jax.sharding.NamedSharding):
            sharding = jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec())
        elif len(sharding.device_set) > 1:
            continue
        return dtype, jax.device_put(np.zeros((), np.float32), sharding)
    return dtype, None


__all__ = ["HyperParameter", "Item", "Optimizer", "ParamGroup", "rule"]
