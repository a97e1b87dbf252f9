"""The loader: batches in an order that is state."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsaw.data.collate import default_collate, to_device
from jaxsaw.data.dataset import IterableDataset, taker
from jaxsaw.data.fetch import Fetcher
from jaxsaw.data.prefetch import Prefetcher
from jaxsaw.data.seeding import (
    Words,
    generator_states,
    generators_put_back,
    permutation,
    seed_generators,
    set_generator_states,
    words_of,
)
from jaxsaw.data.worker import Epoch, WorkerPool, start_method
from jaxsaw.rngs import IMPL, Rngs
from jaxsaw.state import graph
from jaxsaw.state import scope as scopes
from jaxsaw.state.node import Node
from jaxsaw.state.signature import Signature, intern
from jaxsaw.state.stateful import Stateful
from jaxsaw.state.variable import Variable

STREAM = "data"
_BOXES = ("position", "epoch", "epoch_key", "length")


class DataLoader(Stateful):
    """Batches of a dataset, on the device, in an order that can be saved and restored.

    A loader is state: it goes into a checkpoint, and the first ``iter()`` after a restore (also
    after ``load_state_dict``, a deep copy or unpickling) gives the very next batch of the epoch
    that was saved. Without a restore ``iter()`` begins a new epoch, also after a ``break``.

    Each epoch draws one key from the stream ``data``. Both the order and the seeds of the items
    follow from it: Python's and NumPy's global generators are seeded for each item, from the key
    and its index, and put back afterwards. So what random augmentations give doesn't depend on
    ``num_workers``, and is the same after a restore. Without ``rngs`` the keys follow from the
    number of the epoch.

    Args:
        dataset: Has ``__getitem__`` and ``__len__``, or is an :class:`IterableDataset`.
        batch_size: The number of items of a batch; None for items without batching.
        shuffle: Whether each epoch has a random order of its own.
        sampler: Gives the indices of an epoch, in their order; instead of ``shuffle``. The
            global generators are seeded while it runs, so it may draw from them.
        batch_sampler: Gives the lists of indices of the batches; instead of ``batch_size``,
            ``shuffle``, ``sampler`` and ``drop_last``.
        num_workers: How many processes make the batches; 0 for this one.
        collate_fn: From a list of items to a batch; by default :func:`default_collate`.
        pin_memory: Changes nothing; copies to the device run in the background anyway.
        drop_last: Whether to leave out a last batch that is smaller.
        timeout: Seconds to wait for a batch that workers or a thread make; 0 means forever.
        worker_init_fn: Called in each worker process with its number.
        multiprocessing_context: ``"forkserver"`` (the default where there is one) or
            ``"spawn"``, or such a context.
        generator: Refused; ``rngs`` is what takes its place.
        prefetch_factor: How many batches are made ahead: of each worker (2 by default); without
            workers, of a thread, in which the dataset's code then runs (by default there is
            none, and a batch is made when it is asked for).
        persistent_workers: Whether the processes stay for the next epoch.
        rngs: Where keys are drawn from; required for ``shuffle=True``.

    Attributes:
        position: How many batches of the present epoch were delivered; 0 between epochs.
        epoch: How many epochs were begun.
        epoch_key: The key of the present epoch.
        length: The length of the dataset that the above belong to; -1 if it has none.

    Raises:
        ValueError: For arguments that exclude each other.
        TypeError: For ``shuffle=True`` without ``rngs``.

    Example:
        >>> loader = DataLoader([1, 2, 3, 4, 5], batch_size=2)
        >>> [batch.tolist() for batch in loader]
        [[1, 2], [3, 4], [5]]
        >>> shuffled = DataLoader(range(100), 10, shuffle=True, rngs=js.Rngs(data=0))
        >>> first = next(iter(shuffled))
        >>> first.shape, int(shuffled.position), len(shuffled)
        ((10,), 1, 10)
    """

    # Of the iteration that is going on; neither state nor of interest to a trace.
    _current: weakref.ref[_Iteration] | None
    _left: Any
    _pool: WorkerPool | None

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Sequence[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        rngs: Rngs | None = None,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = bool(shuffle)
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.drop_last = drop_last
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.rngs = rngs
        self._check(generator)
        if batch_sampler is not None:
            self.batch_size = None
        self.collate_fn = collate_fn or (default_collate if self._batched else _as_it_is)
        if rngs is not None:
            rngs._grow(STREAM)  # so that it is there to be saved before the first draw
        self.position = Variable.own(jnp.zeros((), jnp.int32))
        self.epoch = Variable.own(jnp.zeros((), jnp.int32))
        self.epoch_key = Variable.own(jax.random.key(0, impl=IMPL))
        self.length = Variable.own(jnp.asarray(self._length(), jnp.int32))
        self.__dict__.update(_current=None, _left=self.position.value, _pool=None)

    def _check(self, generator: Any) -> None:
        if generator is not None:
            raise TypeError("DataLoader takes no generator. Pass rngs=js.Rngs(data=seed).")
        if self.batch_sampler is not None and (
            self.batch_size != 1 or self.shuffle or self.sampler is not None or self.drop_last
        ):
            raise ValueError(
                "DataLoader: batch_sampler excludes batch_size, shuffle, sampler and drop_last."
            )
        if self.sampler is not None and self.shuffle:
            raise ValueError("DataLoader: sampler excludes shuffle; pass one of them.")
        if self.batch_size is None and self.drop_last:
            raise ValueError("DataLoader: batch_size=None makes no batches and excludes drop_last.")
        if self.batch_size is not None and (
            not isinstance(self.batch_size, int) or self.batch_size < 1
        ):
            raise ValueError(
                f"DataLoader: expected batch_size to be a positive integer, got {self.batch_size}."
            )
        if self.num_workers < 0 or self.timeout < 0:
            raise ValueError(
                "DataLoader: expected num_workers and timeout of at least 0, got "
                f"{self.num_workers} and {self.timeout}."
            )
        if self.prefetch_factor is not None and self.prefetch_factor < 1:
            raise ValueError(
                f"DataLoader: expected prefetch_factor of at least 1, got {self.prefetch_factor}."
            )
        if self.persistent_workers and not self.num_workers:
            raise ValueError("DataLoader: persistent_workers needs num_workers > 0.")
        if self.multiprocessing_context is not None:
            start_method(self.multiprocessing_context)
        ordered = self.shuffle or self.sampler is not None or self.batch_sampler is not None
        if self._iterable and ordered:
            raise ValueError(
                f"DataLoader: {type(self.dataset).__name__} is an IterableDataset, which gives "
                "its own order: shuffle, sampler and batch_sampler need a dataset with indices."
            )
        if self.shuffle and self.rngs is None:
            raise TypeError(
                "DataLoader: shuffle=True needs a random stream. Pass rngs=js.Rngs(data=seed)."
            )
        if self.rngs is not None and not isinstance(self.rngs, Rngs):
            raise TypeError(
                f"DataLoader: expected rngs to be a js.Rngs, got {type(self.rngs).__name__}."
            )

    @property
    def _iterable(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    @property
    def _batched(self) -> bool:
        return self.batch_sampler is not None or self.batch_size is not None

    def _length(self) -> int:
        if self._iterable or not hasattr(self.dataset, "__len__"):
            return -1
        return len(self.dataset)

    # Iterating.

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over the rest of a restored epoch, or over a new one.

        It begins at its first ``next()``. Of several iterators at one time, the one that began
        last is the one whose position is saved.
        """
        return _Iteration(self)

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        source: Any = self.sampler if self.sampler is not None else self.dataset
        if self.batch_sampler is not None:
            source = self.batch_sampler
        try:
            count = len(source)
        except TypeError:
            raise TypeError(
                f"DataLoader: {type(source).__name__} has no length, so the loader has none."
            ) from None
        if self.batch_sampler is not None or self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else math.ceil(count / self.batch_size)

    def _begin(self, iteration: _Iteration) -> tuple[Words, int]:
        """Begin or continue an epoch; return the bits of its key and where to start."""
        if scopes.current() is not None:
            raise RuntimeError(
                f"{self.path} was iterated inside a traced function, which would see one batch "
                "only. Loop over it outside, and pass the batches to the function."
            )
        length = self._length()
        restored = self._was_restored()
        if restored and int(self.length) != length:
            raise ValueError(
                f"{self.path} was restored from the state of a loader over {int(self.length)} "
                f"items, but its dataset has {length}. Restore it with the same dataset."
            )
        if not restored or int(self.position) == 0:
            self._next_epoch(length)
        self.__dict__["_current"] = weakref.ref(iteration)
        self.__dict__["_left"] = self.position.value
        return words_of(self.epoch_key.value), int(self.position)

    def _next_epoch(self, length: int) -> None:
        with scopes.Scope() as scope:  # all or nothing
            epoch = int(self.epoch) + 1
            if self.rngs is None:
                key = jax.random.fold_in(jax.random.key(0, impl=IMPL), epoch)
            else:
                key = self.rngs.next(STREAM)
            self.epoch_key.value = key
            self.epoch.value = epoch
            self.position.value = 0
            self.length.value = length
        scope.commit({box: scope.values[box] for box in scope.written})

    def _was_restored(self) -> bool:
        """Whether the position is another one than the last iteration left there."""
        return self.position.value is not self._left

    def _restored(self) -> None:
        self.__dict__["_left"] = None

    def _is_at(self, iteration: _Iteration) -> bool:
        """Whether the state is that of ``iteration``."""
        current = self._current
        return current is not None and current() is iteration

    def _move(self, position: int) -> None:
        self.position.value = np.int32(position)
        self.__dict__["_left"] = self.position.value

    # Making batches.

    def _source(self, words: Words, start: int) -> tuple[Iterator[Any], WorkerPool | None]:
        """Return an iterator over the batches of an epoch, and the processes that it needs."""
        fetcher = Fetcher(self.dataset, self.collate_fn, self._batched)
        fresh = self._batched and self.collate_fn is default_collate
        if self.num_workers:
            pool = self._processes(fetcher)
            epoch = Epoch(words, start, self.batch_size, self.drop_last)
            tasks = itertools.repeat(None) if self._iterable else self._indices(words, start)
            ahead = self.prefetch_factor or 2
            batches = pool.run(epoch, iter(tasks), ahead)
            placed = (to_device(batch, fresh=True) for batch in batches)
            return Prefetcher(placed, 2, pool.interrupt, self.timeout), pool
        placed = (to_device(batch, fresh=fresh) for batch in self._here(fetcher, words, start))
        if self.prefetch_factor:
            return Prefetcher(placed, self.prefetch_factor, timeout=self.timeout), None
        return placed, None

    def _here(self, fetcher: Fetcher, words: Words, start: int) -> Iterator[Any]:
        if self._iterable:
            return fetcher.stream(words, start, self.batch_size, self.drop_last)
        indices = self._indices(words, start)
        take = taker(self.dataset) if self.collate_fn is default_collate and self._batched else None
        if take is not None:
            return map(take, indices)
        return (fetcher.fetch(batch, words) for batch in indices)

    def _indices(self, words: Words, start: int) -> Iterator[Any]:
        """Return the indices of the batches from number ``start`` on."""
        if self.batch_sampler is not None:
            batches: Iterator[Any] = map(list, _sampled(self.batch_sampler, words))
        else:
            items: Iterator[Any]
            if self.shuffle:
                items = iter(permutation(words, len(self.dataset)).tolist())
            elif self.sampler is not None:
                items = _sampled(self.sampler, words)
            else:
                items = iter(range(len(self.dataset)))
            batches = items if self.batch_size is None else self._grouped(items)
        skipped = sum(1 for _ in itertools.islice(batches, start))
        if skipped < start:
            raise ValueError(
                f"{self.path} is at batch {start} of an epoch that has {skipped}. Restore it with "
                "the same dataset, sampler and batch size."
            )
        return batches

    def _grouped(self, items: Iterator[Any]) -> Iterator[list[Any]]:
        size = self.batch_size
        while batch := list(itertools.islice(items, size)):
            if len(batch) == size or not self.drop_last:
                yield batch

    def _processes(self, fetcher: Fetcher) -> WorkerPool:
        pool = self._pool
        if pool is not None and pool.alive:
            return pool
        count = 1 if self._iterable else self.num_workers
        pool = WorkerPool(fetcher, count, self.multiprocessing_context, self.worker_init_fn)
        if self.persistent_workers:
            self.__dict__["_pool"] = pool
        return pool

    # State.

    def state_dict(self) -> dict[str, Any]:
        """Return position, epoch, its key, the dataset's length and the stream, by name."""
        return {name: box.value for name, box in self._owned_boxes().items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where :meth:`state_dict` was called, with the next ``iter()``.

        Args:
            state_dict: What it returned.

        Raises:
            RuntimeError: If names or the dataset's length differ; nothing has changed then.
        """
        boxes = self._owned_boxes()
        if boxes.keys() != state_dict.keys():
            raise RuntimeError(
                f"{self.path}.load_state_dict: expected {sorted(boxes)}, got {sorted(state_dict)}."
            )
        if int(state_dict["length"]) != self._length():
            raise RuntimeError(
                f"{self.path}.load_state_dict: the state is that of a loader over "
                f"{int(state_dict['length'])} items, but the dataset has {self._length()}."
            )
        with scopes.Scope() as scope:  # all or nothing
            for name, box in boxes.items():
                box.value = state_dict[name]
        scope.commit({box: scope.values[box] for box in scope.written})
        self._restored()

    def _owned_boxes(self) -> dict[str, Variable]:
        """Return what belongs in a checkpoint: of the streams only the one that is drawn from."""
        others = set()
        if self.rngs is not None:
            for name, box in graph.named_boxes(self.rngs):
                if name.split(".")[0] not in (STREAM, "_default"):
                    others.add(box)
        return {name: box for name, box in graph.named_boxes(self) if box not in others}

    def _configuration(self) -> dict[str, Any]:
        """Return what has to agree between the loader that was saved and the one restored."""
        return {
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "length": self._length(),
        }

    # The object graph. A dataset may hold millions of items, which aren't looked through.

    def _admit_item(self, name: str, value: Any) -> Any:
        return value

    def _edges(self) -> Iterator[tuple[str, Node]]:
        for name, value in self.__dict__.items():
            if isinstance(value, Node):
                yield name, value

    def _link(self, name: str, value: Any) -> None:
        if isinstance(value, Node):
            self._adopt(value, name)

    def _sign(self) -> Signature:
        items = self.__dict__.items()
        return intern((type(self), *((name, _Same(v)) for name, v in items if name[0] != "_")))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_current": None, "_left": None, "_pool": None}

    def __repr__(self) -> str:
        kind = type(self.dataset).__name__
        return f"DataLoader({kind}, batch_size={self.batch_size}, shuffle={self.shuffle})"


class _Iteration:
    """An iterator over (the rest of) one epoch of a loader, which it keeps informed."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._batches: Any = None
        self._pool: WorkerPool | None = None
        self._position = 0
        self._ended = False

    def __iter__(self) -> _Iteration:
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        loader = self._loader
        current = loader._is_at(self)
        if self._batches is None or (current and loader._was_restored()):
            self._start()  # again, where the loader was restored while this ran
        try:
            batch = next(self._batches)
        except BaseException as error:
            self.close()
            if isinstance(error, StopIteration) and loader._is_at(self):
                loader._move(0)
            raise
        self._position += 1
        if loader._is_at(self):
            loader._move(self._position)
        return batch

    def _start(self) -> None:
        self.close()
        self._ended = False
        words, self._position = self._loader._begin(self)
        self._batches, self._pool = self._loader._source(words, self._position)

    def close(self) -> None:
        """End what runs in the background. A loop that is left does this by itself."""
        self._ended = True
        if isinstance(self._batches, Prefetcher):
            self._batches.close()
        self._batches = None
        if self._pool is not None and not self._loader.persistent_workers:
            self._pool.close()
        self._pool = None

    def __del__(self) -> None:
        self.close()


def _as_it_is(item: Any) -> Any:
    return item


def _sampled(sampler: Iterable[Any], words: Words) -> Iterator[Any]:
    """Return what a sampler gives while the global generators have a state of its own."""
    with generators_put_back():
        seed_generators(words, "sampler")
        if hasattr(sampler, "__len__"):
            return iter(list(sampler))
        return _one_by_one(iter(sampler), generator_states())


def _one_by_one(iterator: Iterator[Any], states: Any) -> Iterator[Any]:
    while True:
        with generators_put_back():
            set_generator_states(states)
            try:
                item = next(iterator)
            except StopIteration:
                return
            states = generator_states()
        yield item


class _Same:
    """A key for an object that is equal to itself alone."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return hash(id(self.value))
