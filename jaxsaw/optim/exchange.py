"""What ``load_state_dict`` takes and ``torch_state_dict`` gives: two layouts of one state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.optim.group import ParamGroup, look
from jaxsaw.state.variable import Variable

if TYPE_CHECKING:
    from jaxsaw.optim.optimizer import Optimizer


class Saved(NamedTuple):
    """A state that was found to fit an optimizer.

    Attributes:
        step_count: How many steps were done, int32.
        lags: For each Parameter, how many of them it wasn't part of, int32.
        arrays: Boxes and what they shall hold.
        settings: Groups and the numbers that they shall have.
    """

    step_count: Any
    lags: np.ndarray
    arrays: list[tuple[Variable, Any]]
    settings: list[tuple[ParamGroup, dict[str, Any]]]


def read(optimizer: Optimizer, state_dict: Mapping[str, Any]) -> Saved:
    """Check a state dict of either layout against an optimizer.

    Args:
        optimizer: Whose state it shall become; it isn't changed.
        state_dict: The state.

    Raises:
        RuntimeError: If it doesn't fit, with all that doesn't.
    """
    who = f"{type(optimizer).__name__}.load_state_dict"
    by_position = _is_by_position(state_dict)
    needed = {"state", "param_groups"} if by_position else {"state", "param_groups", "step_count"}
    if missing := needed - set(state_dict):
        raise RuntimeError(f"{who}: this is no state of an optimizer, it lacks {sorted(missing)}.")
    state, groups = state_dict["state"], state_dict["param_groups"]
    if by_position:
        state, groups = _by_name(who, optimizer, state, groups)
        count = _count(state)
    else:
        count = int(np.asarray(state_dict["step_count"]))

    problems: list[str] = []
    pairs = _pair_groups(optimizer, groups, problems)
    settings = [(group, _settings(group, saved, optimizer, problems)) for group, saved in pairs]
    names = optimizer._names()
    problems += [f"unexpected state of {name!r}" for name in state if name not in set(names)]
    arrays = []
    lags = np.zeros(len(names), np.int32)
    for i, name in enumerate(names):
        slots = dict(state.get(name, {}))
        lags[i] = count - int(np.asarray(_numpy(slots.pop("step", count))))
        own = optimizer._state[name]
        problems += [f"unexpected state {name}.{slot}" for slot in slots if slot not in own]
        for slot, box in own.items():
            if slot not in slots:
                problems.append(f"missing state {name}.{slot}")
                continue
            array = as_array(slots[slot], box)
            if array.shape != box.shape:
                problems.append(f"{name}.{slot} has shape {array.shape}, expected {box.shape}")
            arrays.append((box, array))
    if problems:
        raise RuntimeError(f"{who}: nothing was loaded. " + "; ".join(problems) + ".")
    return Saved(np.int32(count), lags, arrays, settings)


def _is_by_position(state_dict: Mapping[str, Any]) -> bool:
    groups = state_dict.get("param_groups", ())
    members = [member for group in groups for member in group["params"]]
    return "step_count" not in state_dict and not any(isinstance(m, str) for m in members)


def _by_name(
    who: str, optimizer: Optimizer, state: Mapping[Any, Any], groups: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Turn PyTorch's layout into ours; a Parameter without state has done no step."""
    sizes = [len(group["params"]) for group in groups]
    expected = [len(group._params) for group in optimizer.param_groups]
    names = [name for group in groups for name in group.get("param_names", ())]
    if sorted(names) != sorted(optimizer._names()):
        if sizes != expected:
            raise RuntimeError(
                f"{who}: this state, in PyTorch's layout, is for groups of {sizes} Parameters, "
                f"the optimizer has groups of {expected}. Nothing was loaded."
            )
        names = optimizer._names()
    numbers = [number for group in groups for number in group["params"]]
    name_of = dict(zip(numbers, names, strict=True))
    found = {name_of[number]: dict(slots) for number, slots in state.items()}
    for group in optimizer.param_groups:
        for name, p in zip(group._names, group._params, strict=True):
            slots = {k: v for k, v in found.get(name, {}).items() if v is not None}
            slots = optimizer._from_torch(slots)
            if not slots and not optimizer._state[name]:
                slots = {}
            elif not slots:
                slots = {**optimizer._first_state(group, look(p)), "step": 0}
            elif "step" not in slots:
                slots["step"] = 1  # PyTorch doesn't count; what matters: there was a first
            if "master" in optimizer._state[name] and "master" not in slots:
                slots["master"] = look(p).astype(jnp.float32)
            found[name] = slots
    named = [{**group, "params": [name_of[k] for k in group["params"]]} for group in groups]
    return found, named


def _count(state: Mapping[str, Mapping[str, Any]]) -> int:
    return max((int(np.asarray(_numpy(s["step"]))) for s in state.values() if s), default=0)


def _pair_groups(
    optimizer: Optimizer, groups: Sequence[Mapping[str, Any]], problems: list[str]
) -> list[tuple[ParamGroup, Mapping[str, Any]]]:
    """Return each group with the saved one of the same Parameters."""
    if len(groups) != len(optimizer.param_groups):
        problems.append(f"{len(groups)} groups, expected {len(optimizer.param_groups)}")
        return []
    pairs = []
    remaining = list(groups)
    for i, group in enumerate(optimizer.param_groups):
        names = set(group._names)
        saved = next((other for other in remaining if set(other["params"]) == names), None)
        if saved is None:
            other = set(groups[i]["params"])
            problems.append(
                f"param_groups[{i}]: missing Parameters {sorted(names - other)}, "
                f"unexpected {sorted(other - names)}"
            )
        else:
            remaining.remove(saved)
            pairs.append((group, saved))
    return pairs


def _settings(
    group: ParamGroup, saved: Mapping[str, Any], optimizer: Optimizer, problems: list[str]
) -> dict[str, Any]:
    """Return the numbers that a saved group has for ours."""
    found = {}
    for key in (*group, "initial_lr"):
        if key not in saved or key == "params":
            continue
        entry = group.get(key)
        if key == "initial_lr" or group.is_boxed(key):
            found[key] = tuple(saved[key]) if isinstance(entry, tuple) else saved[key]
        elif key in (*optimizer._flags, *group._dormant) and entry != saved[key]:
            problems.append(f"{group.path}[{key!r}] is {entry}, in the state {saved[key]}")
    return found


def as_array(value: Any, box: Variable) -> Any:
    """Return a saved array; integers and the like take the dtype of the box."""
    value = _numpy(value)
    inexact = jnp.issubdtype(value.dtype, np.inexact)
    if isinstance(value, jax.Array):
        return value if inexact else value.astype(box.dtype)
    dtype = value.dtype if inexact else box.dtype
    return jnp.array(value, jax.dtypes.canonicalize_dtype(dtype))


def _numpy(value: Any) -> Any:
    """Return a tensor, a Variable or a number as an array."""
    if isinstance(value, Variable):
        return value.value
    if isinstance(value, jax.Array):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # NumPy has no such type of its own
            return value.float().numpy().astype(jnp.bfloat16)
        return value.numpy()
    return np.asarray(value)


def to_torch(optimizer: Optimizer) -> dict[str, Any]:
    """Return the state of an optimizer in PyTorch's layout.

    Args:
        optimizer: The optimizer.
    """
    state: dict[int, dict[str, Any]] = {}
    groups: list[dict[str, Any]] = []
    steps = np.asarray(optimizer._own_steps())
    number = 0
    for group in optimizer.param_groups:
        numbers = []
        for name in group._names:
            if steps[number] or optimizer._begun:
                slots = optimizer._state[name]
                own = {slot: _tensor(np.asarray(box.value)) for slot, box in slots.items()}
                own = optimizer._to_torch(own)
                if optimizer._counted:
                    own["step"] = _tensor(steps[number].astype(np.float32))
                state[number] = own
            numbers.append(number)
            number += 1
        groups.append({**group.numbers(), "params": numbers})
    return {"state": state, "param_groups": groups}


def _tensor(array: np.ndarray) -> Any:
    """Return a tensor with its own memory; the array itself where PyTorch isn't installed."""
    try:
        import torch
    except ImportError:
        return array
    if array.dtype == jnp.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array))
