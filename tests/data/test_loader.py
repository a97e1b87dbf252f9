"""Batches, their number and their order."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw.data import DataLoader, IterableDataset, TensorDataset


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))


class SizedStream(Stream):
    def __len__(self):
        return self.n


def lists(loader):
    return [batch.tolist() for batch in loader]


def flat(loader):
    return [item for batch in lists(loader) for item in batch]


def grouped(items, size, drop_last=False):
    groups = [items[i : i + size] for i in range(0, len(items), size)]
    return [group for group in groups if len(group) == size or not drop_last]


@pytest.mark.parametrize("n", [0, 1, 5, 6])
@pytest.mark.parametrize("size", [1, 2, 3, 10])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("kind", [list, np.asarray, SizedStream, "tensors"])
def test_batches_in_order(n, size, drop_last, kind):
    items = list(range(n))
    dataset = SizedStream(n) if kind is SizedStream else items
    if kind == "tensors":
        dataset = TensorDataset(np.asarray(items))
    elif kind is not SizedStream:
        dataset = kind(items)
    loader = DataLoader(dataset, size, drop_last=drop_last)
    got = [(batch[0] if kind == "tensors" else batch).tolist() for batch in loader]
    assert got == grouped(items, size, drop_last)
    assert len(loader) == len(got)


def test_shuffling_permutes_anew_each_epoch():
    loader = DataLoader(range(50), 8, shuffle=True, rngs=js.Rngs(data=0))
    epochs = [flat(loader) for _ in range(3)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in [*epochs, range(50)]}) == 4
    again = DataLoader(range(50), 8, shuffle=True, rngs=js.Rngs(data=0))
    assert [flat(again) for _ in range(3)] == epochs
    other = DataLoader(range(50), 8, shuffle=True, rngs=js.Rngs(data=1))
    assert flat(other) != epochs[0]


def test_an_epoch_draws_one_key_from_the_stream_data():
    rngs = js.Rngs(data=0, params=1)
    loader = DataLoader(range(4), 2, shuffle=True, rngs=rngs)
    assert rngs.counts == {"data": 0, "params": 0}
    for _ in range(3):
        lists(loader)
    assert rngs.counts == {"data": 3, "params": 0}
    expected = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), 2)
    assert loader.epoch_key.value == expected


def test_an_iterator_draws_nothing_before_its_first_batch():
    rngs = js.Rngs(data=0)
    loader = DataLoader(range(4), 2, shuffle=True, rngs=rngs)
    iter(loader), len(loader)
    assert rngs.counts == {"data": 0}


def test_samplers_give_the_order():
    assert lists(DataLoader(b"abc", 2, sampler=[2, 0])) == [[99, 97]]
    assert lists(DataLoader(range(9), batch_sampler=[[8, 1], [2]])) == [[8, 1], [2]]
    assert lists(DataLoader({"a": 1, "b": 2}, 2, sampler=["b", "a"])) == [[2, 1]]
    assert len(DataLoader(range(9), 2, sampler=[2, 0, 1])) == 2
    assert len(DataLoader(range(9), batch_sampler=[[8, 1], [2]])) == 2
    assert lists(DataLoader(range(9), sampler=[])) == []


class RandomSampler:
    def __init__(self, n, sized):
        self.n = n
        if sized:
            self.__class__ = SizedRandomSampler

    def __iter__(self):
        for _ in range(self.n):
            yield np.random.randint(1000)


class SizedRandomSampler(RandomSampler):
    def __len__(self):
        return self.n


@pytest.mark.parametrize("sized", [True, False])
def test_a_sampler_may_draw_from_the_global_generators(sized):
    def loader(seed):
        return DataLoader(range(1000), 4, sampler=RandomSampler(12, sized), rngs=js.Rngs(data=seed))

    np.random.seed(0)
    expected = np.random.rand()
    np.random.seed(0)
    one = loader(0)
    first, second = lists(one), lists(one)
    assert first != second
    assert lists(loader(0)) == first
    assert lists(loader(1)) != first
    assert len({index for batch in first for index in batch}) > 6
    assert np.random.rand() == expected


def test_an_endless_sampler():
    import itertools

    loader = DataLoader(range(3), 2, sampler=itertools.cycle([0, 1, 2]))
    assert [batch.tolist() for batch, _ in zip(loader, range(4))] == [
        [0, 1],
        [2, 0],
        [1, 2],
        [0, 1],
    ]
    with pytest.raises(TypeError, match="cycle has no length"):
        len(loader)


def test_items_without_batches():
    loader = DataLoader([np.ones(2), np.zeros(2)], batch_size=None)
    assert [item.shape for item in loader] == [(2,), (2,)]
    assert len(loader) == 2
    assert [int(item) for item in DataLoader(Stream(3), batch_size=None)] == [0, 1, 2]
    sampled = DataLoader("ab", batch_size=None, sampler=[1, 0])
    assert list(sampled) == ["b", "a"]


def test_a_stream_has_the_length_that_it_says():
    assert len(DataLoader(SizedStream(5), 2)) == math.ceil(5 / 2)
    with pytest.raises(TypeError, match="Stream has no length, so the loader has none"):
        len(DataLoader(Stream(5), 2))


@pytest.mark.parametrize(
    ("kwargs", "error", "text"),
    [
        ({"shuffle": True}, TypeError, r"Pass rngs=js.Rngs\(data=seed\)"),
        ({"generator": 1}, TypeError, r"no generator. Pass rngs=js.Rngs\(data=seed\)"),
        ({"rngs": 0}, TypeError, "expected rngs to be a js.Rngs, got int"),
        ({"rngs": js.Rngs(params=0)}, KeyError, r"no stream 'data' .* Pass Rngs\(data=0\)"),
        ({"batch_size": 0}, ValueError, "positive integer, got 0"),
        ({"batch_size": 2.0}, ValueError, "positive integer, got 2.0"),
        ({"num_workers": -1}, ValueError, "at least 0, got -1"),
        ({"timeout": -1}, ValueError, "at least 0, got 0 and -1"),
        ({"prefetch_factor": 0}, ValueError, "prefetch_factor of at least 1, got 0"),
        ({"persistent_workers": True}, ValueError, "needs num_workers > 0"),
        ({"sampler": [0], "shuffle": True}, ValueError, "sampler excludes shuffle"),
        ({"batch_sampler": [[0]], "batch_size": 2}, ValueError, "batch_sampler excludes"),
        ({"batch_sampler": [[0]], "sampler": [0]}, ValueError, "batch_sampler excludes"),
        ({"batch_sampler": [[0]], "drop_last": True}, ValueError, "batch_sampler excludes"),
        ({"batch_size": None, "drop_last": True}, ValueError, "excludes drop_last"),
        ({"multiprocessing_context": "fork"}, ValueError, "'fork' doesn't work .* 'spawn'"),
    ],
)
def test_refused_arguments(kwargs, error, text):
    with pytest.raises(error, match=text):
        DataLoader([1, 2, 3], **kwargs)


@pytest.mark.parametrize("kwargs", [{"shuffle": True}, {"sampler": []}, {"batch_sampler": []}])
def test_a_stream_has_its_own_order(kwargs):
    with pytest.raises(ValueError, match="Stream is an IterableDataset"):
        DataLoader(Stream(3), rngs=js.Rngs(0), **kwargs)


class Failing:
    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index == 5:
            raise self.error
        return index


class TwoArguments(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


class Forgetful(Exception):
    def __init__(self, text):
        super().__init__()


@pytest.mark.parametrize("kwargs", [{}, {"prefetch_factor": 3}])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no such file"), ValueError),
        (KeyError("name"), KeyError),
        (TwoArguments(1, 2), RuntimeError),
        (Forgetful("x"), RuntimeError),
        (StopIteration(), RuntimeError),
    ],
)
def test_what_an_item_raises_comes_at_its_batch_and_names_it(kwargs, error, kind):
    iterator = iter(DataLoader(Failing(error), 2, **kwargs))
    assert [next(iterator).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(kind, match=f"item 5 of Failing raised {type(error).__name__}: ") as info:
        next(iterator)
    assert info.value.__cause__ is error
    with pytest.raises(StopIteration):
        next(iterator)


def test_what_collating_raises_names_the_items():
    with pytest.raises(ValueError, match="collating items 0, 1 of list raised .* one shape"):
        next(iter(DataLoader([np.zeros(1), np.zeros(2)], 2)))


def test_what_a_stream_raises_names_the_item():
    class Broken(IterableDataset):
        def __iter__(self):
            yield 0
            raise OSError("gone")

    iterator = iter(DataLoader(Broken(), 1))
    assert next(iterator).tolist() == [0]
    with pytest.raises(OSError, match="item 1 of Broken raised OSError: gone"):
        next(iterator)


def test_two_iterators_at_one_time_are_independent():
    loader = DataLoader(range(4), 1, shuffle=True, rngs=js.Rngs(data=0))
    pairs = [(int(a[0]), int(b[0])) for a in loader for b in loader]
    assert len(pairs) == 16
    assert len(set(pairs)) == 16


def test_a_dataset_is_neither_boxed_nor_looked_through():
    items = [jnp.ones(2), {"a": np.ones(1)}]
    loader = DataLoader(items)
    assert loader.dataset is items
    assert isinstance(loader.dataset[0], jax.Array)


def test_a_loop_inside_of_a_trace_is_refused():
    loader = DataLoader(range(4), 2)

    @js.jit
    def total():
        return sum(batch.sum() for batch in loader)

    with pytest.raises(RuntimeError, match="DataLoader was iterated inside a traced function"):
        total()
    assert lists(loader) == [[0, 1], [2, 3]]


def test_repr():
    assert repr(DataLoader([1], 3)) == "DataLoader(list, batch_size=3, shuffle=False)"
