"""A compiled function together with the places of particular objects' arrays.

What happens on a call that is recognised is all here, in :attr:`Binding.run`: take the arrays out
of the packs, call, put the new arrays in.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import jax

from jaxsaw import _jax
from jaxsaw.state import pack as packs
from jaxsaw.state.node import Node
from jaxsaw.state.pack import Pack
from jaxsaw.state.variable import Variable
from jaxsaw.transforms.grads import Names
from jaxsaw.transforms.output import GradsOut, Output
from jaxsaw.transforms.program import World

if TYPE_CHECKING:
    from jaxsaw.transforms.jit import JitFunction

BUSY = object()
_NOTHING: list[Any] = []  # in the place of lists of which a program has none


class Binding:
    """A plan together with the places of the arrays of particular objects.

    Attributes:
        run: Calls the compiled function on the arrays that the objects have now, given the
            other positional arguments and the keyword arguments; or ``BUSY``, where not all of
            them are there.
    """

    def __init__(self, plan: Any, call: Any) -> None:
        self.plan = plan
        self.roots = [weakref.ref(root) for root in call.roots]
        forget = functools.partial(_forget, weakref.ref(call.fn), call.key)
        self.refs = [weakref.ref(graph, forget) for graph in call.graphs]
        self._names: dict[GradsOut, Names] = {}
        self._place(call.world)

    def _place(self, world: World) -> None:
        """Find the arrays' places, and move boxes together where they aren't yet."""
        self.arranged = self.plan.arranged
        in_place, anew, read = (
            [[world.boxes[i] for i in part] for part in group] for group in self.arranged[0]
        )
        for part in (*in_place, *anew, *read):
            packs.gather(part)
        self.n_in_place = len(in_place)
        self.written = _Order([*in_place, *anew])
        self.read = _Order(read)
        self.packs = [*self.written.packs, *self.read.packs]
        self.slots = [pack.slot for pack in self.packs]
        self.run = self._writing() if self.written.packs else self._reading()

    def inputs(self) -> tuple[Any, Any]:
        """Return the arrays as they are now, for lowering."""
        contents = self.written.arrange([pack.slot[0] for pack in self.written.packs])
        reads = self.read.arrange([pack.slot[0] for pack in self.read.packs])
        n = self.n_in_place
        return contents[:n], (contents[n:], reads)

    def _writing(self) -> Callable[[Any, Any], Any]:
        """Return the ``run`` of a function that writes state.

        It takes all packs while it dispatches. What isn't free at once is given back and tried
        again later, so that nobody holds one pack while waiting for another.
        """
        plan, slots, n_in_place = self.plan, self.slots, self.n_in_place
        _, compiled, _ = self.arranged
        n = len(self.written.packs)
        written, read = self.written, self.read
        direct = written.direct and read.direct and n_in_place == n
        guards = [*(p.exposed for p in written.packs), *(p.readers for p in self.packs)]
        awaits, nans, infs = plan.awaits, _jax.debug_nans, _jax.debug_infs

        def run(args: Any, kwargs: Any) -> Any:
            taken: list[Any] = []
            results: list[Any] = []
            try:
                taken.extend(map(_pop, slots))
                if any(guards):
                    self._protect(taken)
                if awaits or nans.value or infs.value:
                    self._run_awaited(taken, args, kwargs, results)
                elif direct:
                    # From dispatch to result is one bytecode: no signal comes between.
                    rest: Any = (_NOTHING, taken[n:], args, kwargs)
                    results.extend(map(compiled, (taken[:n],), (rest,)))
                else:
                    lists = written.arrange(taken[:n])
                    rest = (lists[n_in_place:], read.arrange(taken[n:]), args, kwargs)
                    results.extend(map(compiled, (lists[:n_in_place],), (rest,)))
            except IndexError:
                if len(taken) == len(slots):
                    raise
            finally:
                contents = taken
                if results:
                    contents = written.restore(results[0][0])
                    contents += taken[n:]
                _consume(map(_append, slots, contents))
            return results[0][1] if results else BUSY

        return run

    def _reading(self) -> Callable[[Any, Any], Any]:
        """Return the ``run`` of a function that only reads state, in as many threads as may be."""
        (_, compiled, _), slots, read = self.arranged, self.slots, self.read
        readers = [pack.readers for pack in self.packs]
        if len(slots) == 1 and read.direct:
            (pack,) = self.packs
            return self._reading_one(pack, compiled)

        def run(args: Any, kwargs: Any) -> Any:
            me = threading.get_ident()
            out = BUSY
            lists = None
            try:
                for reading in readers:
                    reading.add(me)
                try:
                    lists = [slot[0] for slot in slots]
                except IndexError:
                    lists = [pack.content() for pack in self.packs]
                _, out = compiled(_NOTHING, (_NOTHING, read.arrange(lists), args, kwargs))
            except IndexError:
                if lists is not None:
                    raise
            finally:
                _consume(map(_discard, readers, itertools.repeat(me)))
            return out

        return run

    def _reading_one(self, pack: Pack, compiled: Any) -> Callable[[Any, Any], Any]:
        """Return what :meth:`_reading` does where all boxes are in one pack: the usual case."""
        slot, readers, get_ident = pack.slot, pack.readers, threading.get_ident

        def run(args: Any, kwargs: Any) -> Any:
            me = get_ident()
            readers.add(me)
            try:
                contents = slot[:]  # a list of one list, or of none while a writer is at work
                if not contents:
                    shadow = pack.shadow
                    if shadow is None:
                        return BUSY
                    contents = [shadow]
                return compiled(_NOTHING, (_NOTHING, contents, args, kwargs))[1]
            finally:
                readers.discard(me)

        return run

    def finish(self, out: Any) -> Any:
        """Return what the caller gets for what ``run`` returned.

        This is apart from ``run``, so that what raises here, with the state in place, is no
        reason to run again.
        """
        if type(out) is dict and len(out) == 1:
            ((output, arrays),) = out.items()
            if type(output) is Output:
                return output.build(arrays, self)
        return out

    def insist(self, args: Any, kwargs: Any) -> Any:
        """Run until it isn't put off by another thread, or by boxes that have moved."""
        while (out := self.run(args, kwargs)) is BUSY:
            if all(pack.alive for pack in self.packs):
                packs.pause()
            else:
                self._place(self._world())
        return out

    def _protect(self, taken: list[Any]) -> None:
        """Copy what someone outside holds, and let those who are reading get away."""
        for i, pack in enumerate(self.packs):
            pack.wait_for_readers()
            if pack.exposed and i < len(self.written.packs):
                taken[i] = pack.protect(taken[i])

    def _run_awaited(self, taken: Any, args: Any, kwargs: Any, results: list[Any]) -> None:
        """Run without donation, and count the result only when it has come without an error."""
        n = len(self.written.packs)
        lists = self.written.arrange(taken[:n])
        rest = (lists[self.n_in_place :], self.read.arrange(taken[n:]), args, kwargs)
        for pack, content in zip(self.packs, taken, strict=True):
            pack.shadow = content
        try:
            out = self.arranged[2](lists[: self.n_in_place], rest)
            results.append(jax.block_until_ready(out))
        finally:
            for pack in self.packs:
                pack.shadow = None

    def _world(self) -> World:
        roots = [ref() for ref in self.roots]
        return World(roots, self.plan.strays)  # type: ignore[arg-type]

    def find(self, place: Any) -> Any:
        """Return the object at a place in the world of this binding."""
        return place if isinstance(place, Node) else self._world().find(place)

    def names(self, grads: GradsOut) -> Names:
        """Return the static part of gradients that the program returned."""
        names = self._names.get(grads)
        if names is None:
            names = self._names[grads] = self._world().names(grads)
        return names


class _Order:
    """How lists of boxes, in the order that a program wants, lie in packs.

    Normally each list is the whole content of one pack, and nothing has to be done.
    """

    def __init__(self, parts: list[list[Variable]]) -> None:
        boxes: list[Any] = [*itertools.chain(*parts)]
        self.packs = [*dict.fromkeys(box._place[0] for box in boxes)]
        self._pack_sizes = [len(pack.boxes) or 1 for pack in self.packs]
        starts = dict(zip(self.packs, itertools.accumulate(self._pack_sizes, initial=0)))
        self._places = [starts[box._place[0]] + box._place[1] for box in boxes]
        self._sizes = [len(part) for part in parts]
        total = sum(self._pack_sizes)
        self.direct = self._places == [*range(total)] and self._sizes == self._pack_sizes
        if not self.direct:
            self._pick = itemgetter(*self._places, 0)  # one more, so that it gives a tuple
            back = dict(zip(self._places, range(total)))
            # Places that the program doesn't want only occur in packs that are only read.
            self._unpick = itemgetter(*(back.get(place, 0) for place in range(total)), 0)

    def arrange(self, contents: list[Any]) -> list[Any]:
        """Return the lists that the program wants for the contents of the packs."""
        if self.direct:
            return contents
        return _cut(self._pick([*itertools.chain(*contents)]), self._sizes)

    def restore(self, lists: list[Any]) -> list[Any]:
        """Return contents for the packs from lists in the program's order."""
        if self.direct:
            return lists
        return _cut(self._unpick([*itertools.chain(*lists)]), self._pack_sizes)


def _cut(flat: Sequence[Any], sizes: list[int]) -> list[Any]:
    rest = iter(flat)
    return [[*itertools.islice(rest, size)] for size in sizes]


_pop = list.pop
_append = list.append
_discard = set.discard
_consume: Callable[[Any], None] = deque(maxlen=0).extend


def _forget(fn_ref: weakref.ref[JitFunction], key: Any, _: Any) -> None:
    fn = fn_ref()
    if fn is not None:
        fn._bindings.pop(key, None)
