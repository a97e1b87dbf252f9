"""Saving and restoring objects: which arrays go into the file, and where they go from there.

The manifest's ``objects`` has, for each object, the member of every dotted path to one of its
boxes; tied boxes have several paths to one member. A restore compares everything that it can
without reading arrays, reads and checks all arrays, and only then writes the boxes, all at once.
"""

from __future__ import annotations

import copy
import os
import platform
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from jaxsaw import _jax
from jaxsaw.checkpoint.errors import CheckpointError
from jaxsaw.checkpoint.npz import KeyData, Reader, check_jsonable, read_manifest, write
from jaxsaw.checkpoint.paths import boxes_by_path, configurations, objects_by_path
from jaxsaw.state import pack as packs
from jaxsaw.state import scope as scopes
from jaxsaw.state.node import Node
from jaxsaw.state.variable import Variable

Path = str | os.PathLike[str]


def save(
    path: Path,
    *,
    model: Node | None = None,
    optimizer: Node | None = None,
    rngs: Node | None = None,
    progress: Any = None,
    metadata: Any = None,
    **others: Node,
) -> None:
    """Write the state of objects into one file, atomically.

    The file holds every box of each object, as they all are at one instant: parameters, buffers
    (also non-persistent ones), moments, step counts, hyper-parameters and random streams.

    Args:
        path: The file, by convention ``*.npz``; missing folders are made.
        model: A module.
        optimizer: Its optimizer.
        rngs: Random streams.
        progress: Where the program is: None, bool, int, float, str, and lists and dicts of these.
        metadata: Anything of the same kinds that describes the run.
        **others: More objects, each under its name.

    Raises:
        TypeError: If an object isn't Stateful, or ``progress`` or ``metadata`` hold other types.
        RuntimeError: Inside a traced function.
        OSError: If the file can't be written; an older one at this path is left as it was.

    Example:
        >>> import jaxsaw as js
        >>> from jaxsaw import checkpoint, nn
        >>> model = nn.Linear(2, 1, rngs=js.Rngs(0))
        >>> checkpoint.save("example.npz", model=model, progress={"epoch": 3})
        >>> checkpoint.restore("example.npz", model=model).progress
        {'epoch': 3}
    """
    objects = {"model": model, "optimizer": optimizer, "rngs": rngs, **others}
    Snapshot(objects, progress, metadata).write(path)


class Snapshot:
    """The state of objects at one instant, which stays as it is while they go on.

    It holds the arrays until it is written or dropped: a step that runs meanwhile copies what it
    would have overwritten.

    Args:
        objects: Stateful objects by name; None stands for none.
        progress: As in :func:`save`.
        metadata: As in :func:`save`.
        **more: Further fields of the manifest.

    Raises:
        TypeError: As :func:`save` does.
        RuntimeError: Inside a traced function.
    """

    def __init__(
        self, objects: Mapping[str, Any], progress: Any, metadata: Any, **more: Any
    ) -> None:
        given = _given("save", **objects)
        check_jsonable(progress, "progress")
        check_jsonable(metadata, "metadata")
        _refuse_tracing("save")
        sections = {name: boxes_by_path(obj) for name, obj in given.items()}
        boxes = list(dict.fromkeys(box for paths in sections.values() for box in paths.values()))
        members = {box: f"a{i}" for i, box in enumerate(boxes)}
        self._manifest = {
            "objects": {
                name: {
                    "class": type(given[name]).__name__,
                    "boxes": {path: members[box] for path, box in paths.items()},
                    "configuration": configurations(given[name]),
                }
                for name, paths in sections.items()
            },
            "progress": copy.deepcopy(progress),
            "metadata": copy.deepcopy(metadata),
            "versions": versions_now(),
            **more,
        }
        self._arrays, self._tokens = packs.hold(boxes)

    def write(self, path: Path) -> None:
        """Write it into a file, atomically, and drop it.

        Args:
            path: The file; missing folders are made.

        Raises:
            OSError: If the file can't be written; an older one is left as it was.
        """
        try:
            write(path, [storable(array) for array in self._arrays], self._manifest)
        finally:
            self.drop()

    def drop(self) -> None:
        """Let go of the arrays."""
        self._arrays = []
        packs.release(self._tokens)


@dataclass(frozen=True)
class Restored:
    """What :func:`restore` returns.

    Attributes:
        progress: As it was saved.
        metadata: As it was saved.
        versions: Of jaxsaw, JAX, NumPy and Python when the file was written.
        missing: Names, with their object, that the objects have and the file hasn't.
        unexpected: Names that the file has and the objects haven't.
        mismatched: Names, and configurations, that differ, with what differs.
        step: The step that a :class:`Manager` restored.
    """

    progress: Any
    metadata: Any
    versions: dict[str, str]
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)
    step: int | None = None


def restore(
    path: Path,
    *,
    strict: bool = True,
    model: Node | None = None,
    optimizer: Node | None = None,
    rngs: Node | None = None,
    **others: Node,
) -> Restored:
    """Write the state in a file back into objects, all or nothing.

    Args:
        path: The file.
        strict: Whether every name must be on both sides and fit. Otherwise what doesn't is
            skipped and listed in the result.
        model: The object to write what was saved as ``model`` into; it must be in the file.
        optimizer: Likewise.
        rngs: Likewise.
        **others: Likewise.

    Returns:
        Progress, metadata and versions from the file, and what was skipped.

    Raises:
        CheckpointError: If the file is damaged, of a newer format, or doesn't fit. Nothing has
            changed then.
        FileNotFoundError: If there is no such file.
        TypeError: If an object isn't Stateful.
        RuntimeError: Inside a traced function.

    Example:
        >>> import jaxsaw as js
        >>> from jaxsaw import checkpoint
        >>> rngs = js.Rngs(dropout=0)
        >>> checkpoint.save("example.npz", rngs=rngs)
        >>> _ = rngs.dropout()
        >>> restored = checkpoint.restore("example.npz", rngs=rngs)
        >>> rngs.counts
        {'dropout': 0}
    """
    objects = _given("restore", model=model, optimizer=optimizer, rngs=rngs, **others)
    _refuse_tracing("restore")
    if not isinstance(strict, bool):
        raise TypeError(f"checkpoint.restore: strict must be a bool, got {type(strict).__name__}.")
    with Reader(path) as reader:
        match = _Match(os.fspath(path), reader)
        try:
            match.require(objects)
            for name, obj in objects.items():
                match.compare(name, obj)
            if strict:
                match.refuse_differences()
            values = match.read()
            if strict:
                match.refuse_differences()
            _commit(values)
        except BaseException:
            match.undo()
            raise
    for node in match.nodes:
        node._restored()  # type: ignore[attr-defined]
    manifest = reader.manifest
    return Restored(
        manifest["progress"],
        manifest["metadata"],
        manifest["versions"],
        match.missing,
        match.unexpected,
        match.mismatched,
    )


class Loaded(Mapping[str, Mapping[str, Any]]):
    """The content of a file: arrays by object and name, read when they are asked for.

    The file stays open as long as this object, or the part for one object, is in use.

    Attributes:
        progress: As it was saved.
        metadata: As it was saved.
        versions: Of jaxsaw, JAX, NumPy and Python when the file was written.
    """

    def __init__(self, reader: Reader) -> None:
        manifest = reader.manifest
        self.progress = manifest["progress"]
        self.metadata = manifest["metadata"]
        self.versions = manifest["versions"]
        self._sections = {
            name: _Section(reader, section["boxes"])
            for name, section in manifest["objects"].items()
        }

    def __getitem__(self, name: str) -> Mapping[str, Any]:
        return self._sections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sections)

    def __len__(self) -> int:
        return len(self._sections)

    def __repr__(self) -> str:
        return f"Loaded({', '.join(f'{k}: {len(v)} arrays' for k, v in self._sections.items())})"


class _Section(Mapping[str, Any]):
    def __init__(self, reader: Reader, members: dict[str, str]) -> None:
        self._reader = reader
        self._members = members

    def __getitem__(self, name: str) -> Any:
        array = self._reader.array(self._members[name])
        if not isinstance(array, KeyData):
            return array
        try:
            return jax.random.wrap_key_data(jax.numpy.asarray(array.data), impl=array.impl)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{self._reader.path}: {name}: {error}.") from None

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


def load(path: Path) -> Loaded:
    """Open a file without objects to restore into.

    Args:
        path: The file.

    Returns:
        ``{object: {name: array}}`` with ``.progress`` and ``.metadata``. Arrays are NumPy's, or
        typed keys, and are read (and checked) each time that they are asked for.

    Raises:
        CheckpointError: If the file is damaged.
        FileNotFoundError: If there is no such file.

    Example:
        >>> import jaxsaw as js
        >>> from jaxsaw import checkpoint, nn
        >>> model = nn.Linear(2, 1, rngs=js.Rngs(0))
        >>> checkpoint.save("example.npz", model=model)
        >>> checkpoint.load("example.npz")["model"]["weight"].shape
        (1, 2)
    """
    reader = Reader(path)
    weakref.finalize(reader, reader._file.close)
    try:
        check_sections(os.fspath(path), reader.manifest)
        return Loaded(reader)
    except BaseException:
        reader.close()
        raise


def inspect(path: Path) -> dict[str, Any]:
    """Return the manifest of a file, after its structure has been checked.

    Args:
        path: The file.

    Returns:
        ``format_version``, ``arrays`` (dtype, shape and checksum of each member), ``objects``,
        ``progress``, ``metadata`` and ``versions``.

    Raises:
        CheckpointError: If the structure of the file is damaged.
        FileNotFoundError: If there is no such file.
    """
    manifest = read_manifest(path)
    check_sections(os.fspath(path), manifest)
    return manifest


def verify(path: Path) -> None:
    """Read a whole file and check every checksum in it.

    Args:
        path: The file.

    Raises:
        CheckpointError: If anything in the file is damaged.
        FileNotFoundError: If there is no such file.
    """
    with Reader(path) as reader:
        check_sections(os.fspath(path), reader.manifest)
        for _ in reader.arrays():
            pass


class _Match:
    """The comparison of a file with the objects that it is restored into.

    Attributes:
        members: The names of each box that the file has values for, and their members there.
        nodes: The objects that take part, and hear of it afterwards.
        resets: Boxes that have been made since the file was written, and their values then.
        skipped: Boxes that something of the file doesn't fit.
    """

    def __init__(self, path: str, reader: Reader) -> None:
        check_sections(path, reader.manifest)
        self.path = path
        self.reader = reader
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.mismatched: list[str] = []
        self.members: dict[Variable, list[tuple[str, str]]] = {}
        self.nodes: list[Node] = []
        self.resets: dict[Variable, Any] = {}
        self.skipped: set[Variable] = set()
        self._undo: list[Callable[[], None]] = []

    def require(self, names: Mapping[str, Node]) -> None:
        """Check that the file has a part for each object."""
        sections = self.reader.manifest["objects"]
        absent = [name for name in names if name not in sections]
        if absent:
            asked, known = ", ".join(map(repr, absent)), ", ".join(map(repr, sections))
            raise CheckpointError(
                f"{self.path} holds no {asked} (it holds: {known or 'no objects'}). Ask only for "
                "what was saved, under the same name.",
                missing=absent,
            )

    def compare(self, name: str, obj: Node) -> None:
        """Compare the part for one object, without reading arrays."""
        section = self.reader.manifest["objects"][name]
        other = self._compare_configurations(name, section["configuration"], configurations(obj))
        saved = section["boxes"]
        objects = {p: node for p, node in objects_by_path(obj).items() if not _is_below(p, other)}
        self.nodes += objects.values()
        self._add_on_demand(objects, saved)
        boxes = boxes_by_path(obj)
        for path, box in boxes.items():
            full = full_name(name, path)
            if _is_below(path, other):
                continue
            if path not in saved:
                reset = _reset(objects, path, saved)
                if reset is None:
                    self.missing.append(full)
                else:
                    self.resets[box] = reset
            elif self._fits(full, box, saved[path]):
                self.members.setdefault(box, []).append((full, saved[path]))
        self.unexpected += [
            full_name(name, path)
            for path in saved
            if path not in boxes and not _is_below(path, other)
        ]

    def undo(self) -> None:
        """Take away the boxes that were added."""
        while self._undo:
            self._undo.pop()()

    def _compare_configurations(
        self, name: str, saved: dict[str, Any], here: dict[str, Any]
    ) -> list[str]:
        """Return the paths of objects with another configuration, which are skipped whole."""
        other = []
        for path in saved.keys() & here.keys():
            if saved[path] != here[path]:
                other.append(path)
        for path in sorted(other):
            where = full_name(name, path)
            self.mismatched += [f"{where}: {t}" for t in _differences(saved[path], here[path])]
        return other

    def _add_on_demand(self, objects: dict[str, Node], saved: dict[str, str]) -> None:
        """Add the boxes that the file has and that the objects only make when they need them."""
        for prefix, node in objects.items():
            if hasattr(node, "_on_demand"):
                for what in node._on_demand(_names_below(prefix, saved)):
                    self._undo.append(node._grow(what))  # type: ignore[attr-defined]

    def _fits(self, name: str, box: Variable, member: str) -> bool:
        entry = self.reader.manifest["arrays"][member]
        array = box._peek()
        saved = describe(entry["dtype"], entry["shape"], entry.get("key_impl"))
        if _is_key(array):
            data = jax.eval_shape(jax.random.key_data, array)
            here = describe(str(data.dtype), list(data.shape), _impl(array))
        else:
            here = describe(str(array.dtype), list(array.shape), None)
        if saved != here:
            self.mismatched.append(f"{name}: {saved} in the file, {here} here")
            self.skipped.add(box)
        return saved == here

    def refuse_differences(self) -> None:
        """Raise an error that lists them, if there are any."""
        parts = [
            f"{title}: {'; '.join(names)}"
            for title, names in (
                ("missing in the file", self.missing),
                ("unexpected in the file", self.unexpected),
                ("mismatched", self.mismatched),
            )
            if names
        ]
        if parts:
            raise CheckpointError(
                f"{self.path} doesn't fit the objects to restore. {'. '.join(parts)}. "
                "Build them as they were when it was saved, or pass strict=False to skip these.",
                missing=self.missing,
                unexpected=self.unexpected,
                mismatched=self.mismatched,
            )

    def read(self) -> dict[Variable, Any]:
        """Read the arrays for all boxes, on the host, and check them."""
        values: dict[Variable, Any] = {}
        boxes_of: dict[str, list[Variable]] = {}
        for box, uses in self.members.items():
            for member in dict.fromkeys(member for _, member in uses):
                boxes_of.setdefault(member, []).append(box)
        for member, array in self.reader.arrays(boxes_of):
            for box in boxes_of[member]:
                if not identical(values.setdefault(box, array), array):
                    self._refuse_tie(box)
        values = {**self.resets, **values}
        return {box: value for box, value in values.items() if box not in self.skipped}

    def _refuse_tie(self, box: Variable) -> None:
        if box not in self.skipped:
            names = " and ".join(name for name, _ in self.members[box])
            self.mismatched.append(f"{names}: one array here, but different ones in the file")
            self.skipped.add(box)


def full_name(name: str, path: str) -> str:
    """Return the dotted name of a path below an object; either may be empty."""
    return f"{name}.{path}" if name and path else name or path


def _is_below(path: str, others: list[str]) -> bool:
    return any(f"{path}.".startswith(f"{other}.") or not other for other in others)


def _names_below(prefix: str, saved: dict[str, str]) -> list[str]:
    return [path.removeprefix(prefix) for path in saved if path.startswith(prefix)]


def _reset(objects: dict[str, Node], path: str, saved: dict[str, str]) -> Any:
    """Return the first value of a box that was made on demand and isn't in the file."""
    for prefix, node in objects.items():
        if path.startswith(prefix) and hasattr(node, "_first_value"):
            names = _names_below(prefix, saved)
            value = node._first_value(path.removeprefix(prefix), names)
            if value is not None:
                return value
    return None


def describe(dtype: str, shape: list[int], impl: str | None) -> str:
    """Return an array's dtype and shape as an error shows them."""
    kind = dtype if impl is None else f"key data of {impl}, {dtype}"
    return f"{kind}[{', '.join(map(str, shape))}]"


def _given(what: str, **objects: Any) -> dict[str, Node]:
    given = {name: obj for name, obj in objects.items() if obj is not None}
    if "strict" in given:
        raise TypeError("checkpoint.save: 'strict' is an option of restore; use another name.")
    for name, obj in given.items():
        if not isinstance(obj, Node):
            raise TypeError(
                f"checkpoint.{what}: {name} must be a Stateful object (a module, an optimizer, "
                f"Rngs, ...), got {type(obj).__name__}. Plain values go into progress= or "
                "metadata=."
            )
    return given


def _refuse_tracing(what: str) -> None:
    if scopes.current() is not None or _jax.current_trace() is not _jax.EVAL:
        raise RuntimeError(
            f"checkpoint.{what} was called inside a traced function, where boxes have no values "
            "yet. Call it between the steps."
        )


def _commit(values: dict[Variable, Any]) -> None:
    """Write host arrays into boxes, each with the sharding that its array has now."""
    if not values:
        return
    # What stays in the host's memory is taken over as it is. Elsewhere old arrays give way one by
    # one, so that there is never a second copy of the state on a device.
    ready = {}
    for box, value in values.items():
        old = box._peek()
        if _is_host(old):
            ready[box] = _placed(value, old)
    interrupt = None
    with packs.taken(list(values)) as contents:
        waiting = list(values)
        while waiting:
            try:
                while waiting:
                    box = waiting[-1]
                    pack, index = box._place  # type: ignore[misc]
                    old = contents[pack][index]
                    contents[pack][index] = (
                        ready[box] if box in ready else _placed(values[box], old)
                    )
                    pack.exposed.discard(index)
                    waiting.pop()
            except KeyboardInterrupt as error:
                interrupt = error  # half of a state is none: it waits until all is written
    if interrupt is not None:
        raise interrupt


def _is_host(array: Any) -> bool:
    return all(device.platform == "cpu" for device in array.sharding.device_set)


def _placed(value: Any, old: Any) -> Any:
    """Return a host array as one of JAX's, where and how ``old`` is."""
    impl = value.impl if isinstance(value, KeyData) else None
    data = value.data if isinstance(value, KeyData) else value
    committed = bool(getattr(old, "committed", False))
    if committed and impl is None:
        with _wide_types(data):
            return jax.device_put(data, old.sharding)
    with jax.default_device(next(iter(old.sharding.device_set))), _wide_types(data):
        array = jax.device_put(data)
    if impl is None:
        return array
    key = jax.random.wrap_key_data(array, impl=impl)
    return jax.device_put(key, old.sharding) if committed else key


def _wide_types(array: Any) -> Any:
    """Let JAX keep an array of 64 bits as it is, whatever its settings are now."""
    return _jax.enable_x64(True) if array.dtype.itemsize >= 8 else nullcontext()


def storable(array: Any) -> Any:
    """Return an array as the file layer takes it, which knows no typed keys."""
    if _is_key(array):
        return KeyData(np.asarray(jax.random.key_data(array)), _impl(array))
    return array


def _is_key(array: Any) -> bool:
    return bool(jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key))


def _impl(key: Any) -> str:
    return str(jax.random.key_impl(key))


def identical(a: Any, b: Any) -> bool:
    """Return whether two arrays of equal shapes and dtypes have the same bits."""
    if isinstance(a, KeyData):
        a, b = a.data, b.data
    return a is b or bool(np.array_equal(*(x.reshape(-1).view(np.uint8) for x in (a, b))))


def _differences(saved: Any, here: Any, where: str = "") -> Iterator[str]:
    """Describe where two configurations differ, as deep down as they have the same form."""
    parts: list[tuple[str, Any, Any]] = []
    if isinstance(saved, dict) and isinstance(here, dict):
        parts = [(full_name(where, k), saved.get(k), here.get(k)) for k in sorted({*saved, *here})]
    elif isinstance(saved, list) and isinstance(here, list) and len(saved) == len(here):
        pairs = enumerate(zip(saved, here, strict=True))
        parts = [(f"{where}[{i}]", a, b) for i, (a, b) in pairs]
    if not parts:
        yield f"{where or 'configuration'} is {saved!r} in the file, {here!r} here"
    for name, a, b in parts:
        if a != b:
            yield from _differences(a, b, name)


def check_sections(path: str, manifest: dict[str, Any]) -> None:
    """Check the parts of a manifest that this layer has written."""
    wrong = None
    objects = manifest.get("objects")
    if not isinstance(objects, dict) or not isinstance(manifest.get("versions"), dict):
        wrong = "it has no objects or versions"
    elif "progress" not in manifest or "metadata" not in manifest:
        wrong = "it has no progress or metadata"
    else:
        for name, section in objects.items():
            if not isinstance(section, dict) or not all(
                isinstance(section.get(part), dict) for part in ("boxes", "configuration")
            ):
                wrong = f"its object {name!r} is malformed"
            elif not all(
                isinstance(member, str) and member in manifest["arrays"]
                for member in section["boxes"].values()
            ):
                wrong = f"its object {name!r} names members that don't exist"
    if wrong is not None:
        raise CheckpointError(f"{path}: member 'manifest.json': {wrong}.")


def versions_now() -> dict[str, str]:
    """Return the versions that go into a manifest."""
    from jaxsaw import __version__

    return {
        "jaxsaw": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
