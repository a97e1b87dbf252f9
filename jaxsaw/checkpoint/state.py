"""Saving and restoring objects: which arrays go into the file, and where they go from there.

The manifest's ``objects`` has, for each object, the member of every dotted path to one of its
boxes; tied boxes have several paths to one member. A restore compares everything that it can
without reading arrays, reads and checks all arrays, and only then writes the boxes, all at once.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
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
        >>> checkpoint.save("/tmp/jaxsaw-example.npz", model=model, progress={"epoch": 3})
        >>> checkpoint.restore("/tmp/jaxsaw-example.npz", model=model).progress
        {'epoch': 3}
    """
    objects = _given("save", model=model, optimizer=optimizer, rngs=rngs, **others)
    check_jsonable(progress, "progress")
    check_jsonable(metadata, "metadata")
    _refuse_tracing("save")
    sections = {name: boxes_by_path(obj) for name, obj in objects.items()}
    boxes = list(dict.fromkeys(box for paths in sections.values() for box in paths.values()))
    members = {box: f"a{i}" for i, box in enumerate(boxes)}
    arrays, tokens = packs.hold(boxes)
    try:
        write(
            path,
            [_storable(array) for array in arrays],
            {
                "objects": {
                    name: {
                        "class": type(objects[name]).__name__,
                        "boxes": {path: members[box] for path, box in paths.items()},
                        "configuration": configurations(objects[name]),
                    }
                    for name, paths in sections.items()
                },
                "progress": progress,
                "metadata": metadata,
                "versions": _versions(),
            },
        )
    finally:
        packs.release(tokens)


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
    """

    progress: Any
    metadata: Any
    versions: dict[str, str]
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)


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
        >>> checkpoint.save("/tmp/jaxsaw-example.npz", rngs=rngs)
        >>> _ = rngs.dropout()
        >>> restored = checkpoint.restore("/tmp/jaxsaw-example.npz", rngs=rngs)
        >>> rngs.counts
        {'dropout': 0}
    """
    objects = _given("restore", model=model, optimizer=optimizer, rngs=rngs, **others)
    _refuse_tracing("restore")
    with Reader(path) as reader, scopes.Scope():  # takes back added boxes if this fails
        match = _Match(os.fspath(path), reader)
        for name, obj in objects.items():
            match.compare(name, obj)
        if strict:
            match.refuse_differences()
        values = match.read()
        if strict:
            match.refuse_differences()
    _commit(values)
    for obj in objects.values():
        for node in objects_by_path(obj).values():
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
        if isinstance(array, KeyData):
            return jax.random.wrap_key_data(array.data, impl=array.impl)
        return array

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
        >>> checkpoint.save("/tmp/jaxsaw-example.npz", model=model)
        >>> checkpoint.load("/tmp/jaxsaw-example.npz")["model"]["weight"].shape
        (1, 2)
    """
    reader = Reader(path)
    try:
        _check_sections(os.fspath(path), reader.manifest)
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
    _check_sections(os.fspath(path), manifest)
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
        _check_sections(os.fspath(path), reader.manifest)
        for _ in reader.arrays():
            pass


class _Match:
    """The comparison of a file with the objects that it is restored into."""

    def __init__(self, path: str, reader: Reader) -> None:
        _check_sections(path, reader.manifest)
        self.path = path
        self.reader = reader
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.mismatched: list[str] = []
        self.members: dict[Variable, list[tuple[str, str]]] = {}  # names and members for a box
        self.resets: dict[Variable, Any] = {}

    def compare(self, name: str, obj: Node) -> None:
        """Compare the part for one object, without reading arrays."""
        sections = self.reader.manifest["objects"]
        if name not in sections:
            known = ", ".join(sections) or "nothing"
            raise CheckpointError(
                f"{self.path} holds no {name!r} (it holds: {known}).", missing=[name]
            )
        section = sections[name]
        saved = section["boxes"]
        self._add_on_demand(obj, saved)
        boxes = boxes_by_path(obj)
        for path, box in boxes.items():
            full = f"{name}.{path}" if path else name
            if path not in saved:
                reset = self._reset(obj, path)
                if reset is None:
                    self.missing.append(full)
                else:
                    self.resets[box] = reset
            elif self._fits(full, box, saved[path]):
                self.members.setdefault(box, []).append((full, saved[path]))
        self.unexpected += [f"{name}.{path}" for path in saved if path not in boxes]
        now = configurations(obj)
        for path in sorted({*section["configuration"], *now}):
            where = f"{name}.{path}" if path else name
            a, b = section["configuration"].get(path), now.get(path)
            if a is not None and b is not None and _plain(a) != _plain(b):
                self.mismatched += [f"{where}: {text}" for text in _differences(a, _plain(b))]

    def _add_on_demand(self, obj: Node, saved: dict[str, str]) -> None:
        """Add the boxes that the file has and that the objects only make when they need them."""
        for prefix, node in objects_by_path(obj).items():
            if hasattr(node, "_on_demand"):
                names = [p.removeprefix(prefix) for p in saved if p.startswith(prefix)]
                for what in node._on_demand(names):
                    node._grow(what)  # type: ignore[attr-defined]

    def _reset(self, obj: Node, path: str) -> Any:
        """Return the first value of a box that was made on demand and isn't in the file."""
        for prefix, node in objects_by_path(obj).items():
            if path.startswith(prefix) and hasattr(node, "_first_value"):
                value = node._first_value(path.removeprefix(prefix))
                if value is not None:
                    return value
        return None

    def _fits(self, name: str, box: Variable, member: str) -> bool:
        entry = self.reader.manifest["arrays"][member]
        array = box._peek()
        impl = entry.get("key_impl")
        if impl is not None or _is_key(array):
            saved = f"a key of {impl}" if impl is not None else f"an array of {entry['dtype']}"
            here = f"a key of {_impl(array)}" if _is_key(array) else f"an array of {array.dtype}"
            shape = tuple(entry["shape"])[: array.ndim] if impl is not None else ()
            fits = saved == here and shape == array.shape
        else:
            saved = f"{entry['dtype']}{entry['shape']}"
            here = f"{array.dtype}{list(array.shape)}"
            fits = saved == here
        if not fits:
            self.mismatched.append(f"{name}: {saved} in the file, {here} here")
        return fits

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
        values: dict[Variable, Any] = dict(self.resets)
        wanted = list(dict.fromkeys(m for uses in self.members.values() for _, m in uses))
        boxes_of: dict[str, list[Variable]] = {}
        for box, uses in self.members.items():
            for _, member in uses:
                boxes_of.setdefault(member, []).append(box)
        for member, array in self.reader.arrays(wanted):
            for box in boxes_of[member]:
                if box not in values:
                    values[box] = array
                elif not _identical(values[box], array):
                    names = [name for name, _ in self.members[box]]
                    text = f"{' and '.join(names)}: tied here, but with different values there"
                    if text not in self.mismatched:
                        self.mismatched.append(text)
        return values


def _given(what: str, **objects: Any) -> dict[str, Node]:
    given = {name: obj for name, obj in objects.items() if obj is not None}
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
    with packs.taken(list(values)) as contents:
        # Host copies are complete and checked. Device memory is freed array by array, so that
        # there is never a second copy of the state on the device.
        for box, value in values.items():
            pack, index = box._place  # type: ignore[misc]
            old = contents[pack][index]
            contents[pack][index] = _placed(value, old)
            pack.exposed.discard(index)


def _placed(value: Any, old: Any) -> Any:
    if isinstance(value, KeyData):
        key = jax.random.wrap_key_data(jax.numpy.asarray(value.data), impl=value.impl)
        return jax.device_put(key, old.sharding) if _committed(old) else key
    return jax.device_put(value, old.sharding if _committed(old) else None)


def _committed(array: Any) -> bool:
    return bool(getattr(array, "committed", False))


def _storable(array: Any) -> Any:
    if _is_key(array):
        return KeyData(np.asarray(jax.random.key_data(array)), _impl(array))
    return array


def _is_key(array: Any) -> bool:
    return bool(jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key))


def _impl(key: Any) -> str:
    return str(jax.random.key_impl(key))


def _identical(a: Any, b: Any) -> bool:
    if isinstance(a, KeyData) or isinstance(b, KeyData):
        return a.impl == b.impl and _identical(a.data, b.data)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def _plain(value: Any) -> Any:
    """Return a value as JSON gives it back, to compare with one from a file."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _differences(saved: Any, here: Any, where: str = "") -> Iterator[str]:
    if isinstance(saved, dict) and isinstance(here, dict):
        for key in sorted({*saved, *here}):
            if saved.get(key) != here.get(key):
                yield from _differences(saved.get(key), here.get(key), f"{where} {key}")
    else:
        yield f"{where.strip() or 'configuration'} is {saved!r} in the file, {here!r} here"


def _check_sections(path: str, manifest: dict[str, Any]) -> None:
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


def _versions() -> dict[str, str]:
    from jaxsaw import __version__

    return {
        "jaxsaw": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
