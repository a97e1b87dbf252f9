"""Where the arrays of boxes live, and how threads share them.

Boxes that are written together keep their arrays in one list, a *pack*: a compiled call takes
the list out, hands it to XLA and puts the new list in, at the price of two list operations for
any number of boxes. Taking is also the lock. A list pops one content once, so whoever holds it
is alone; readers that find the pack empty wait.

The rules that keep every array whole, without a lock on the way of a call:

- A content is popped from ``slot`` before it is changed or donated, and appended afterwards.
- A reader first notes in ``exposed`` what it is about to hand out, then reads ``slot``. A writer
  looks at ``exposed`` after it has popped: what was handed out before is in there, and is copied
  before XLA may overwrite it.
- A call that only reads joins ``readers``, looks, dispatches, and leaves. A writer waits until
  ``readers`` is empty; no one finds anything to read while it holds the content.
- Who takes several packs gives all of them back when one can't be had, and tries again.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from jaxsaw import _jax


class Pack:
    """A list of arrays that travel together.

    Attributes:
        slot: Holds the content, a list of arrays; empty while a writer has taken it.
        readers: The identity of each thread that is dispatching a call that only reads.
        exposed: The places whose arrays someone outside may hold, and the tokens of
            :func:`hold`, each of which stands for the whole content.
        shadow: The content while a writer that doesn't donate has taken it, for readers.
        boxes: Weak references to the boxes that live here, where there are several.
        alive: False once its boxes have moved; its slot stays empty then.
        trace: The JAX trace that the boxes belong to; not the evaluating one only where
            ``js.merge`` made an object inside a raw transform.
    """

    __slots__ = ("alive", "boxes", "exposed", "readers", "shadow", "slot", "trace")

    def __init__(
        self, arrays: list[Any], exposed: Iterable[int] = (), trace: Any = _jax.EVAL
    ) -> None:
        self.trace = trace
        self.alive = True
        self.boxes: list[weakref.ref[Any]] = []
        self.slot: list[list[Any]] = [arrays]
        self.readers: set[object] = set()
        self.exposed: set[Any] = set(exposed)
        self.shadow: list[Any] | None = None

    def protect(self, content: list[Any]) -> list[Any]:
        """Return ``content``, just taken, with copies of the arrays that are held outside."""
        places = list(self.exposed)  # at one instant: readers go on adding to it
        every = any(type(place) is not int for place in places)
        copied = list(content)
        for place in range(len(content)) if every else places:
            copied[place] = content[place].copy()
        self.exposed.difference_update(places)
        return copied

    def content(self) -> list[Any]:
        """Return the arrays to read: those that a writer left behind, where one is at work.

        Raises:
            IndexError: If a writer has taken them and will overwrite them.
        """
        shadow = self.shadow
        return self.slot[0] if shadow is None else shadow

    def wait_for_readers(self) -> None:
        """Wait until no other thread is about to dispatch a call that reads this content."""
        self.readers.discard(threading.get_ident())  # a call that was interrupted left it
        while self.readers:
            pause()


Place = tuple[Pack, int]


def pause() -> None:
    """Let other threads go on; what is waited for takes no longer than a dispatch."""
    time.sleep(1e-6)


@contextmanager
def taken(boxes: Sequence[Any]) -> Iterator[dict[Pack, list[Any]]]:
    """Hold the contents of all packs that ``boxes`` live in, to change them at one instant.

    Args:
        boxes: Objects with a ``_place``.

    Yields:
        The content of each pack. Changes to the lists are there for everyone afterwards.
    """
    while True:
        packs = [*dict.fromkeys(box._place[0] for box in boxes)]
        slots = [pack.slot for pack in packs]
        contents: list[list[Any]] = []
        try:
            contents.extend(map(list.pop, slots))  # no signal comes between the pops
            if all(box._place[0] in packs for box in boxes):
                for pack in packs:
                    pack.wait_for_readers()
                yield dict(zip(packs, contents, strict=True))
                return
        except IndexError:
            if len(contents) == len(packs):  # raised by the caller's block, not by an empty slot
                raise
        finally:
            for pack, slot, content in zip(packs, slots, contents, strict=False):
                if pack.alive:
                    slot.append(content)
        pause()


def commit(values: dict[Any, Any], *, exposed: bool = True) -> None:
    """Put values into boxes, all at one instant.

    Args:
        values: Boxes and their new arrays; a box made in a scope gets its first place.
        exposed: Whether someone else may hold the arrays.

    Raises:
        TypeError: In a raw JAX transform that a box doesn't belong to.
    """
    trace = _jax.current_trace()
    for box in values:
        if box._place is not None and box._place[0].trace is not trace:
            raise TypeError(
                f"{box.path} was written inside a raw jax transform, where the new value would "
                "be lost. Use the jaxsaw twin, such as js.jit or js.vmap, or return the value."
            )
    placed = {}
    for box, array in values.items():
        if box._place is None:
            box._place = (Pack([array], (0,) if exposed else (), trace), 0)
        else:
            placed[box] = array
    if not placed:
        return
    with taken(list(placed)) as contents:
        for box, array in placed.items():
            pack, index = box._place
            contents[pack][index] = array
            if exposed:
                pack.exposed.add(index)
            else:
                pack.exposed.discard(index)


def gather(boxes: Sequence[Any]) -> None:
    """Let ``boxes`` have packs of their own, made of those that aren't shared with others yet.

    Boxes that are alone move into one common pack; where only some of a pack's boxes are among
    ``boxes``, that pack is split.
    """
    with _moving:
        by_pack: dict[Pack, list[Any]] = {}
        for box in boxes:
            by_pack.setdefault(box._place[0], []).append(box)
        alone = [found[0] for pack, found in by_pack.items() if not pack.boxes]
        if len(alone) > 1:
            _move(alone)
        for pack, found in by_pack.items():
            if len(found) < len(pack.boxes):
                _move(found)


def hold(boxes: Sequence[Any]) -> tuple[list[Any], list[tuple[Pack, object]]]:
    """Return the arrays of ``boxes`` at one instant, and tokens that keep them from donation."""
    tokens: list[tuple[Pack, object]] = []
    if any(box._place[0].shadow is not None for box in boxes):
        # A program with callbacks is running, perhaps the one that we are called from. It
        # leaves the arrays as they are.
        with suppress(IndexError):
            return [box._place[0].content()[box._place[1]] for box in boxes], tokens
    with taken(boxes) as contents:
        for pack in contents:
            token = object()
            pack.exposed.add(token)
            tokens.append((pack, token))
        arrays = [contents[box._place[0]][box._place[1]] for box in boxes]
    return arrays, tokens


def release(tokens: Iterable[tuple[Pack, object]]) -> None:
    """End what :func:`hold` began."""
    for pack, token in tokens:
        pack.exposed.discard(token)


_moving = threading.Lock()


def _move(boxes: list[Any]) -> None:
    with taken(boxes) as contents:
        moving = set(map(id, boxes))
        for pack in contents:
            others = [box for ref in pack.boxes if (box := ref()) is not None]
            _settle([box for box in others if id(box) not in moving], contents)
        _settle(boxes, contents)
        for pack in contents:
            pack.alive = False


def _settle(boxes: list[Any], contents: dict[Pack, list[Any]]) -> None:
    arrays, exposed = [], []
    for index, box in enumerate(boxes):
        pack, place = box._place
        arrays.append(contents[pack][place])
        if any(mark == place or type(mark) is not int for mark in pack.exposed):
            exposed.append(index)
    target = Pack(arrays, exposed)
    target.boxes = [weakref.ref(box) for box in boxes]
    for index, box in enumerate(boxes):
        box._place = (target, index)
