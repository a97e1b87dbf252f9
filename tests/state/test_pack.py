"""Where arrays live: boxes that travel together, and arrays that outlive their boxes' steps."""

import threading

import jax
import jax.numpy as jnp
import pytest

import jaxsaw as js
from jaxsaw.state import pack
from jaxsaw.state.pack import Pack


def boxes(n=4):
    return [js.Variable.own(jnp.full(2, float(i))) for i in range(n)]


def numbers(some):
    return [float(box[0]) for box in some]


def packs_of(some):
    return {box._place[0] for box in some}


def test_a_box_begins_alone():
    assert len(packs_of(boxes(3))) == 3


def test_gathered_boxes_share_one_pack_and_keep_their_values():
    some = boxes()
    pack.gather(some)
    (shared,) = packs_of(some)
    assert [box._place[1] for box in some] == [0, 1, 2, 3]
    assert shared.alive and [ref() for ref in shared.boxes] == some
    assert numbers(some) == [0, 1, 2, 3]
    pack.gather(some)
    assert packs_of(some) == {shared}


def test_gathering_a_part_splits_a_pack():
    some = boxes()
    pack.gather(some)
    old = some[0]._place[0]
    pack.gather(some[1:3])
    assert not old.alive
    assert some[1]._place[0] is some[2]._place[0]
    assert some[0]._place[0] is some[3]._place[0] is not some[1]._place[0]
    assert numbers(some) == [0, 1, 2, 3]


def test_gathering_across_packs_leaves_shared_ones_together():
    some = boxes(5)
    pack.gather(some[:2])
    pack.gather(some[2:4])
    pack.gather(some)
    assert len(packs_of(some)) == 3
    assert numbers(some) == [0, 1, 2, 3, 4]


def test_what_was_read_is_exposed_and_stays_so_when_it_moves():
    some = boxes()
    some[2].value  # noqa: B018
    assert some[2]._place[0].exposed == {0}
    pack.gather(some)
    assert some[0]._place[0].exposed == {2}


def test_looking_at_shape_and_dtype_exposes_nothing():
    (box,) = boxes(1)
    assert (box.shape, box.ndim, box.size, str(box.dtype)) == ((2,), 1, 2, "float32")
    assert len(box) == 2
    assert not box._place[0].exposed


def test_own_exposes_nothing_and_the_public_constructor_does():
    array = jnp.ones(2)
    assert not js.Variable.own(jnp.ones(2))._place[0].exposed
    assert js.Variable(array)._place[0].exposed == {0}


def test_protect_copies_what_is_exposed_and_nothing_else():
    some = boxes()
    pack.gather(some)
    held = some[1].value
    shared = some[0]._place[0]
    content = shared.slot.pop()
    copied = shared.protect(content)
    assert [a is b for a, b in zip(content, copied)] == [True, False, True, True]
    assert content[1] is held and not shared.exposed
    shared.slot.append(copied)
    assert numbers(some) == [0, 1, 2, 3]


def test_a_token_of_hold_stands_for_the_whole_content():
    some = boxes()
    pack.gather(some)
    arrays, tokens = pack.hold(some)
    shared = some[0]._place[0]
    assert [float(a[0]) for a in arrays] == [0, 1, 2, 3]
    content = shared.slot.pop()
    copied = shared.protect(content)
    assert not any(a is b for a, b in zip(content, copied))
    shared.slot.append(copied)
    pack.release(tokens)
    assert not shared.exposed


def test_what_is_held_outlives_donating_steps():
    some = boxes()

    @js.jit
    def step():
        for box in some:
            box.value = box + 1.0

    step()
    arrays, tokens = pack.hold(some)
    step(), step()
    assert [float(array[0]) for array in arrays] == [1, 2, 3, 4]
    pack.release(tokens)
    assert numbers(some) == [3, 4, 5, 6]


def test_released_tokens_keep_nothing_from_donation():
    some = boxes()
    step = js.jit(lambda: [setattr(box, "value", box + 1.0) for box in some] and None)
    step()
    arrays, tokens = pack.hold(some)
    pack.release(tokens)
    step()
    assert all(array.is_deleted() for array in arrays)


def test_commit_puts_all_values_in_and_says_whether_they_are_held():
    some = boxes()
    pack.gather(some[:2])
    pack.commit({box: jnp.full(2, 9.0) for box in some}, exposed=False)
    assert not any(p.exposed for p in packs_of(some))
    pack.commit({some[1]: jnp.full(2, 8.0)})
    assert some[1]._place[0].exposed == {1}
    assert numbers(some) == [9, 8, 9, 9]


def test_commit_in_a_raw_transform_names_the_box():
    class Net(js.Stateful):
        def __init__(self):
            self.w = js.Variable(jnp.ones(2))

    net = Net()

    def write(x):
        pack.commit({net.w: x})
        return x

    with pytest.raises(TypeError, match="w was written inside a raw jax transform"):
        jax.jit(write)(jnp.ones(2))


def test_taking_waits_for_readers_and_gives_back_when_the_block_raises():
    some = boxes()
    pack.gather(some)
    shared, token = some[0]._place[0], object()
    shared.readers.add(token)
    got = threading.Event()

    def writer():
        with pack.taken(some):
            got.set()

    thread = threading.Thread(target=writer)
    thread.start()
    assert not got.wait(0.05)
    shared.readers.discard(token)
    thread.join(10)
    assert got.is_set()
    for error in (ValueError, IndexError, KeyboardInterrupt):
        with pytest.raises(error):
            with pack.taken(some):
                raise error
        assert len(shared.slot) == 1
    assert numbers(some) == [0, 1, 2, 3]


def test_a_reader_waits_for_a_writer_or_sees_what_was_there():
    (box,) = boxes(1)
    place = box._place[0]
    content = place.slot.pop()
    read = []
    thread = threading.Thread(target=lambda: read.append(box.value))
    thread.start()
    thread.join(0.05)
    assert not read
    place.shadow = content  # the writer doesn't donate
    thread.join(10)
    assert read == [content[0]] or read[0] is content[0]
    place.shadow = None
    place.slot.append(content)


def test_a_note_that_a_writer_took_away_is_made_again():
    class Forgetful(set):
        """Loses the first note, as if a writer had come between note and look."""

        lost = False

        def add(self, item):
            if not self.lost:
                self.lost = True
            else:
                super().add(item)

    (box,) = boxes(1)
    place = box._place[0]
    place.exposed = Forgetful()
    box.value  # noqa: B018
    assert place.exposed == {0}


def test_iterating_over_notes_survives_readers_that_add_to_them():
    place = Pack([jnp.zeros(1) for _ in range(50)])
    stop = threading.Event()

    def reader():
        while not stop.is_set():
            for i in range(50):
                place.exposed.add(i)

    thread = threading.Thread(target=reader)
    thread.start()
    try:
        for _ in range(20):
            place.protect(place.slot[0])
    finally:
        stop.set()
        thread.join()


def test_boxes_that_are_gone_are_left_behind_when_others_move():
    some = boxes()
    pack.gather(some)
    del some[0]
    import gc

    gc.collect()
    pack.gather(some[:1])
    pack.gather(some)
    assert numbers(some) == [1, 2, 3]
