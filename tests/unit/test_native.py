"""The native module. Were it wrong, a seed would not give the same numbers on two backends."""

import array
import threading
import time

import numpy as np
import pytest

from backend_sdk import _native

ALL_ONES = 0xFFFFFFFF

# Known answers of Philox4x32-10: counter, key, words. Source: the file kat_vectors of the authors' Random123.
KNOWN_ANSWERS = {
    "zeros": (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    "ones": (
        (ALL_ONES, ALL_ONES, ALL_ONES, ALL_ONES),
        (ALL_ONES, ALL_ONES),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}

# Seeds and streams with distinct low and high words, so that a swap or a lost half shows.
SEEDS_AND_STREAMS = [
    (0, 0),
    (1, 0),
    (0, 1),
    (1 << 32, 0),
    (0, 1 << 32),
    (0x0123456789ABCDEF, 0xFEDCBA9876543210),
    (2**64 - 1, 2**64 - 1),
]


def philox_in_python(counter, key):
    """Section 4.3 of the paper, word by word, with Python's integers."""
    counter, key = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * counter[0], 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * counter[2], 1 << 32)
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(key[0] + 0x9E3779B9) & ALL_ONES, (key[1] + 0xBB67AE85) & ALL_ONES]
    return tuple(counter)


def word_in_python(index, seed, stream):
    """Element `index` of a fill, from the definition."""
    block = index // 4
    counter = (block & ALL_ONES, block >> 32, stream & ALL_ONES, stream >> 32)
    return philox_in_python(counter, (seed & ALL_ONES, seed >> 32))[index % 4]


def filled(size, seed, stream, dtype=np.uint32):
    out = np.zeros(size, dtype)
    assert _native.philox_fill(out, seed, stream) is None
    return out


# ------------------------------------------------------------------ the numbers


@pytest.mark.parametrize("name", KNOWN_ANSWERS)
def test_block_gives_the_published_known_answers(name):
    counter, key, words = KNOWN_ANSWERS[name]
    assert _native.philox4x32_10(counter, key) == words
    assert philox_in_python(counter, key) == words  # the yardstick of the other tests


def test_block_agrees_with_plain_python_on_random_inputs():
    generator = np.random.default_rng(20110101)
    for _ in range(200):
        words = [int(word) for word in generator.integers(0, 1 << 32, 6)]
        assert _native.philox4x32_10(words[:4], words[4:]) == philox_in_python(words[:4], words[4:])


@pytest.mark.parametrize(("seed", "stream"), SEEDS_AND_STREAMS)
def test_fill_is_what_its_definition_says(seed, stream):
    expected = [word_in_python(i, seed, stream) for i in range(103)]
    assert filled(103, seed, stream).tolist() == expected


def test_streams_and_seeds_give_different_numbers():
    fills = {filled(8, seed, stream).tobytes() for seed, stream in SEEDS_AND_STREAMS}
    assert len(fills) == len(SEEDS_AND_STREAMS)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 7, 8, 9, 1000])
def test_a_longer_fill_starts_with_the_shorter(size):
    whole = filled(1_000_003, 42, 7)
    assert np.array_equal(filled(size, 42, 7), whole[:size])


def test_last_elements_of_a_large_odd_fill():
    whole = filled(1_000_003, 42, 7)
    for index in (999_999, 1_000_000, 1_000_001, 1_000_002):
        assert int(whole[index]) == word_in_python(index, 42, 7)


def test_int32_gets_the_same_bits_as_uint32():
    assert filled(101, 3, 5, np.int32).tobytes() == filled(101, 3, 5).tobytes()


def test_nothing_is_written_outside_the_array():
    guarded = np.full(64, 0xABABABAB, np.uint32)
    for size in range(9):
        guarded[:] = 0xABABABAB
        _native.philox_fill(guarded[20 : 20 + size], 1, 2)
        assert (guarded[:20] == 0xABABABAB).all()
        assert (guarded[20 + size :] == 0xABABABAB).all()
        assert np.array_equal(guarded[20 : 20 + size], filled(size, 1, 2))


def test_other_owners_of_memory_can_be_filled():
    expected = filled(10, 1, 2).tolist()
    plain = array.array("I", [0] * 10)
    _native.philox_fill(plain, 1, 2)
    assert plain.tolist() == expected
    with memoryview(bytearray(40)).cast("I") as view:
        _native.philox_fill(view, 1, 2)
        assert view.tolist() == expected


def test_numpy_integers_are_seeds():
    expected = filled(5, 2**63 + 1, 3)
    assert np.array_equal(filled(5, np.uint64(2**63 + 1), np.int8(3)), expected)


# ------------------------------------------------------------------ threads


def test_other_threads_run_during_a_long_fill():
    # A call that holds the GIL lets no other thread take a step: there would be no tick between its ends.
    out = np.empty(1 << 25, np.uint32)
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        started = time.perf_counter()
        _native.philox_fill(out, 1, 2)
        ended = time.perf_counter()
    finally:
        stop.set()
        thread.join()
    # The edges are left out: a tick at the very start or end proves nothing.
    margin = (ended - started) / 10
    inside = [tick for tick in ticks if started + margin < tick < ended - margin]
    assert len(inside) >= 2, f"{len(inside)} steps of another thread in {ended - started:.3f} s"


def test_an_array_cannot_be_resized_while_it_is_being_filled():
    plain = array.array("I", [0]) * (1 << 25)
    refused = []
    filler = threading.Thread(target=_native.philox_fill, args=(plain, 1, 2))
    filler.start()
    while filler.is_alive() and not refused:
        try:
            plain.append(0)
            plain.pop()
        except BufferError:
            refused.append(True)
    filler.join()
    assert refused
    assert plain[-1] == word_in_python(len(plain) - 1, 1, 2)


# ------------------------------------------------------------------ what is refused


def read_only():
    out = np.zeros(4, np.uint32)
    out.setflags(write=False)
    return out


WRONG_ARRAYS = {
    "a list": (lambda: [0, 0], TypeError, "buffer protocol.*list"),
    "None": (lambda: None, TypeError, "buffer protocol.*NoneType"),
    "float32": (lambda: np.zeros(4, np.float32), TypeError, "uint32 or int32.*'f' of 4 bytes"),
    "int64": (lambda: np.zeros(4, np.int64), TypeError, "uint32 or int32.*of 8 bytes"),
    "uint16": (lambda: np.zeros(4, np.uint16), TypeError, "uint32 or int32.*'H' of 2 bytes"),
    "foreign byte order": (
        lambda: np.zeros(4, np.dtype(np.uint32).newbyteorder()),
        TypeError,
        "native byte order",
    ),
    "a record": (lambda: np.zeros(4, [("a", np.uint32)]), TypeError, "uint32 or int32"),
    "2 dimensions": (lambda: np.zeros((2, 2), np.uint32), ValueError, "1 dimension, got 2"),
    "0 dimensions": (lambda: np.zeros((), np.uint32), ValueError, "1 dimension, got 0"),
    "every second element": (lambda: np.zeros(8, np.uint32)[::2], ValueError, "C-contiguous.*stride of 8"),
    "backwards": (lambda: np.zeros(8, np.uint32)[::-1], ValueError, "C-contiguous.*stride of -4"),
    "one element, seen often": (
        lambda: np.lib.stride_tricks.as_strided(np.zeros(1, np.uint32), (4,), (0,)),
        ValueError,
        "C-contiguous.*stride of 0",
    ),
    "read-only": (read_only, ValueError, "writable.*read-only"),
    "bytes": (lambda: memoryview(bytes(8)).cast("I"), ValueError, "writable.*read-only"),
}


@pytest.mark.parametrize("what", WRONG_ARRAYS)
def test_a_wrong_array_is_refused_with_the_reason(what):
    make, error, message = WRONG_ARRAYS[what]
    with pytest.raises(error, match=f"philox_fill: out must.*{message}"):
        _native.philox_fill(make(), 0, 0)


@pytest.mark.parametrize("name", ["seed", "stream"])
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        (-1, ValueError, "from 0 to 18446744073709551615, got -1"),
        (2**64, ValueError, "from 0 to 18446744073709551615, got 18446744073709551616"),
        (1.0, TypeError, "an integer, got float"),
        ("1", TypeError, "an integer, got str"),
        (None, TypeError, "an integer, got NoneType"),
    ],
)
def test_a_wrong_seed_or_stream_is_refused_and_nothing_is_written(name, value, error, message):
    out = np.zeros(4, np.uint32)
    arguments = {"seed": 1, "stream": 2, name: value}
    with pytest.raises(error, match=f"philox_fill: {name} must be {message}"):
        _native.philox_fill(out, **arguments)
    assert not out.any()


@pytest.mark.parametrize(
    ("counter", "key", "error", "message"),
    [
        ((0, 0, 0), (0, 0), ValueError, "counter must have 4 words, got 3"),
        ((0, 0, 0, 0), (0, 0, 0), ValueError, "key must have 2 words, got 3"),
        (
            (0, 0, 0, 1 << 32),
            (0, 0),
            ValueError,
            r"counter\[3\] must be from 0 to 4294967295, got 4294967296",
        ),
        ((0, 0, 0, 0), (-1, 0), ValueError, r"key\[0\] must be from 0 to 4294967295, got -1"),
        ((0, 0.5, 0, 0), (0, 0), TypeError, r"counter\[1\] must be an integer, got float"),
        (0, (0, 0), TypeError, "counter must be a sequence of 4 integers, got int"),
    ],
)
def test_a_wrong_counter_or_key_is_refused_with_the_reason(counter, key, error, message):
    with pytest.raises(error, match=f"philox4x32_10: {message}"):
        _native.philox4x32_10(counter, key)
