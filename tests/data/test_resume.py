"""A loader's state: where it is, and that it goes on from there."""

import copy
import pickle
import tempfile

import jax
import numpy as np
import pytest

import jaxsaw as js
from jaxsaw import checkpoint
from jaxsaw.data import DataLoader, Dataset, IterableDataset
from jaxsaw.state.graph import named_boxes


class Noise(Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return np.float64(index), np.random.rand()


class NoiseStream(IterableDataset):
    def __init__(self, n=10):
        self.n = n

    def __iter__(self):
        offset = np.random.rand()
        return ((float(i), offset + np.random.rand()) for i in range(self.n))


class RandomOrder:
    def __iter__(self):
        for _ in range(10):
            yield np.random.randint(10)


KINDS = {
    "shuffled": lambda: DataLoader(Noise(), 3, shuffle=True, rngs=js.Rngs(data=5)),
    "derived": lambda: DataLoader(Noise(), 3, shuffle=True, rngs=js.Rngs(5)),
    "prefetched": lambda: DataLoader(
        Noise(), 3, shuffle=True, prefetch_factor=2, rngs=js.Rngs(data=5)
    ),
    "in order": lambda: DataLoader(Noise(), 3),
    "sampled": lambda: DataLoader(Noise(), 3, sampler=RandomOrder(), rngs=js.Rngs(data=5)),
    "stream": lambda: DataLoader(NoiseStream(), 3),
    "one by one": lambda: DataLoader(Noise(4), None, shuffle=True, rngs=js.Rngs(data=5)),
}


def by_deepcopy(loader, make):
    return copy.deepcopy(loader)


def by_pickle(loader, make):
    return pickle.loads(pickle.dumps(loader))


def by_state_dict(loader, make):
    twin = make()
    twin.load_state_dict(loader.state_dict())
    return twin


def by_numpy_state_dict(loader, make):
    twin = make()
    state = loader.state_dict()
    twin.load_state_dict(
        {k: v if "key" in k or "_default" in k else np.asarray(v) for k, v in state.items()}
    )
    return twin


def by_boxes(loader, make):
    twin = make()
    for (_, old), (_, new) in zip(named_boxes(loader), named_boxes(twin), strict=True):
        new.value = old.value
    return twin


def by_checkpoint(loader, make):
    twin = make()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(f"{folder}/state.npz", loader=loader)
        checkpoint.restore(f"{folder}/state.npz", loader=twin)
    return twin


def by_checkpoint_into_itself(loader, make):
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(f"{folder}/state.npz", loader=loader)
        next(iter(loader))
        checkpoint.restore(f"{folder}/state.npz", loader=loader)
    return loader


def by_itself(loader, make):
    """Restore the loader that was saved, after it has gone on."""
    state = loader.state_dict()
    for _ in loader:
        pass
    for _ in loader:
        break
    loader.load_state_dict(state)
    return loader


WAYS = [
    by_deepcopy,
    by_pickle,
    by_state_dict,
    by_numpy_state_dict,
    by_boxes,
    by_itself,
    by_checkpoint,
    by_checkpoint_into_itself,
]


def plain(batch):
    return np.stack(jax.tree.leaves(batch), -1).tolist()


def epochs(loader, n):
    return [[plain(batch) for batch in loader] for _ in range(n)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_loader_goes_on_at_the_very_next_batch(kind, way):
    make = KINDS[kind]
    expected = epochs(make(), 3)
    for stop in range(len(expected[1]) + 1):
        loader = make()
        epochs(loader, 1)
        iterator = iter(loader)
        for _ in range(stop):
            next(iterator)
        twin = way(loader, make)
        if stop:
            assert epochs(twin, 2) == [expected[1][stop:], expected[2]]
        else:
            assert epochs(twin, 2) == expected[1:]


@pytest.mark.parametrize("kind", KINDS)
def test_between_two_epochs_the_next_one_begins(kind):
    make = KINDS[kind]
    expected = epochs(make(), 2)
    loader = make()
    epochs(loader, 1)
    assert int(loader.position) == 0
    assert epochs(by_state_dict(loader, make), 1) == expected[1:]


@pytest.mark.parametrize("kind", KINDS)
def test_a_break_without_a_restore_begins_a_new_epoch(kind):
    make = KINDS[kind]
    expected = epochs(make(), 2)
    loader = make()
    for _ in loader:
        break
    assert int(loader.position) == 1
    assert epochs(loader, 1) == expected[1:]


def test_a_state_saved_after_a_break_continues():
    loader = KINDS["shuffled"]()
    expected = epochs(KINDS["shuffled"](), 1)[0]
    for i, _ in enumerate(loader):
        if i == 1:
            break
    state = loader.state_dict()
    loader.load_state_dict(state)  # at once: nothing has moved in between
    assert epochs(loader, 1)[0] == expected[2:]


def test_a_restore_counts_once():
    loader = KINDS["shuffled"]()
    expected = epochs(KINDS["shuffled"](), 2)
    next(iter(loader))
    twin = copy.deepcopy(loader)
    assert plain(next(iter(twin))) == expected[0][1]
    assert epochs(twin, 1)[0] == expected[1]


def test_a_hook_tells_of_a_restore_that_wrote_nothing_new():
    loader = KINDS["in order"]()
    next(iter(loader))
    loader._restored()
    assert [rows[0][0] for rows in epochs(loader, 1)[0]] == [3, 6, 9]


def test_a_loop_follows_a_restore_of_its_own_loader():
    loader = KINDS["in order"]()
    seen = []
    state = None
    for batch in loader:
        seen.append(int(batch[0][0]))
        if len(seen) == 2:
            state = loader.state_dict()
        if len(seen) == 4:
            loader.load_state_dict(state)
    assert seen == [0, 3, 6, 9, 6, 9]


def test_the_position_counts_what_was_delivered():
    loader = DataLoader(range(10), 2, prefetch_factor=4)
    for i, _ in enumerate(loader):
        assert int(loader.position) == i + 1
    assert int(loader.position) == 0
    assert loader.position.dtype == np.int32


def test_epochs_are_counted():
    loader = DataLoader(range(10), 5)
    assert int(loader.epoch) == 0
    for epoch in range(1, 4):
        for _ in loader:
            assert int(loader.epoch) == epoch
    assert int(loader.epoch) == 3


def test_the_iterator_that_began_last_is_the_one_that_is_saved():
    loader = DataLoader(range(4), 1)
    first, second = iter(loader), iter(loader)
    next(first), next(first), next(second)
    assert int(loader.position) == 1
    next(first)
    assert int(loader.position) == 1
    list(first)
    assert int(loader.position) == 1
    next(second)
    assert int(loader.position) == 2


def test_a_failed_batch_moves_nothing():
    loader = DataLoader([0, 1, object()], 1)
    iterator = iter(loader)
    next(iterator), next(iterator)
    with pytest.raises(TypeError):
        next(iterator)
    assert int(loader.position) == 2


def test_state_of_another_dataset_is_refused():
    loader, other = KINDS["in order"](), DataLoader(Noise(11), 3)
    next(iter(loader))
    before = other.state_dict()
    with pytest.raises(RuntimeError, match="a loader over 10 items, but the dataset has 11"):
        other.load_state_dict(loader.state_dict())
    assert all(before[k] is other.state_dict()[k] for k in before)
    for name in ("position", "length"):
        getattr(other, name).value = getattr(loader, name).value
    with pytest.raises(ValueError, match="a loader over 10 items, but its dataset has 11"):
        next(iter(other))


@pytest.mark.parametrize(
    "other",
    [DataLoader(Noise(11), 3), DataLoader(Noise(), 2), DataLoader(Noise(), 3, drop_last=True)],
)
def test_a_checkpoint_of_another_loader_is_refused(other, tmp_path):
    loader = KINDS["in order"]()
    next(iter(loader))
    checkpoint.save(tmp_path / "state.npz", loader=loader)
    with pytest.raises(checkpoint.CheckpointError, match="loader"):
        checkpoint.restore(tmp_path / "state.npz", loader=other)
    assert int(other.position) == 0


def test_state_of_another_kind_is_refused():
    with pytest.raises(RuntimeError, match="load_state_dict: expected .*'rngs.data.count'"):
        KINDS["shuffled"]().load_state_dict(KINDS["in order"]().state_dict())


def test_a_position_beyond_the_end_is_refused():
    loader = KINDS["in order"]()
    loader.position.value = 9
    with pytest.raises(ValueError, match="at batch 9 of an epoch that has 4"):
        next(iter(loader))


def test_a_dataset_may_grow_between_epochs():
    items = [0, 1]
    loader = DataLoader(items, 1)
    list(loader)
    items.append(2)
    assert len(list(loader)) == 3
    assert int(loader.length) == 3


def test_what_belongs_in_a_checkpoint():
    rngs = js.Rngs(data=0, dropout=1)
    loader = DataLoader(range(4), 2, shuffle=True, rngs=rngs)
    assert set(loader._owned_boxes()) == {
        "rngs.data.key",
        "rngs.data.count",
        "position",
        "epoch",
        "epoch_key",
        "length",
    }
    assert set(DataLoader(range(4))._owned_boxes()) == {"position", "epoch", "epoch_key", "length"}
    assert {"rngs._default.key", "rngs.data.count"} <= DataLoader(
        range(4), rngs=js.Rngs(0)
    )._owned_boxes().keys()
    assert loader._configuration() == {
        "batch_size": 2,
        "shuffle": True,
        "drop_last": False,
        "length": 4,
    }


def test_a_copy_shares_nothing():
    loader = KINDS["shuffled"]()
    next(iter(loader))
    twin = copy.deepcopy(loader)
    epochs(twin, 2)
    assert int(loader.position) == 1
    assert loader.rngs.counts == {"data": 1}
    assert twin.rngs is not loader.rngs
