import struct

import pytest

from step0_wandb.errors import SourceError
from step0_wandb.sources.offline import frames
from step0_wandb.sources.offline.frames import BLOCK, START, Damage, LogReader, Record, begins_well
from tests.support.runs import HEADER, append, frame, wandb_file


def reader(file, **how):
    return LogReader(lambda at, size: file[at : at + size], len(file), **how)


def read(file, **how):
    return list(reader(file, **how).records())


def payloads(items):
    return [item.data for item in items if isinstance(item, Record)]


def damage(items):
    return [item for item in items if isinstance(item, Damage)]


@pytest.mark.parametrize(
    "size", [0, 1, BLOCK - 21, BLOCK - 14, BLOCK - 13, BLOCK - 8, BLOCK - 7, BLOCK, 3 * BLOCK, 500_000]
)
def test_a_record_of_any_size_comes_back_whole(size):
    records = [b"first", bytes(range(256)) * (size // 256) + b"x" * (size % 256), b"last"]
    assert payloads(read(wandb_file(*records))) == records


def test_records_are_named_by_the_byte_where_they_start():
    assert [item.offset for item in read(wandb_file(b"abc", b"de"))] == [START, START + 7 + 3]


def test_an_end_of_a_block_too_small_for_a_frame_is_padding():
    for rest in range(7):
        records = [b"x" * (BLOCK - START - 7 - rest), b"next"]
        assert payloads(read(wandb_file(*records))) == records, rest


def test_a_file_cut_anywhere_gives_the_records_before_the_cut_and_no_damage():
    records = [b"a" * 10, b"b" * (BLOCK + 5), b"c" * 20]
    file = wandb_file(*records)
    ends = [len(wandb_file(*records[:count])) for count in range(4)]
    for cut in [*range(START, START + 40), *range(BLOCK - 9, BLOCK + 9), *range(len(file) - 60, len(file))]:
        whole = sum(cut >= end for end in ends) - 1
        items = read(file[:cut])
        assert payloads(items) == records[:whole], cut
        assert not damage(items), cut


def test_reading_goes_on_where_a_growing_file_had_ended():
    records = [bytes([number]) * 5000 for number in range(30)]
    file = wandb_file(*records)
    for cut in (START, 4000, BLOCK, BLOCK + 3, 70_000):
        early = reader(file[:cut])
        before = payloads(early.records())
        assert before + payloads(read(file, offset=early.offset)) == records


def test_a_flipped_bit_costs_one_record_which_is_named():
    records = [b"a" * 100, b"b" * 100, b"c" * 100]
    file = bytearray(wandb_file(*records))
    second = START + 107
    file[second + 50] ^= 1
    items = read(bytes(file))
    assert payloads(items) == [records[0], records[2]]
    assert damage(items) == [Damage(second, second + 107, "its checksum is wrong")]


@pytest.mark.parametrize("length", [0, 40, 99, 101, 5000, 30_000, 60_000])
def test_a_wrong_length_costs_one_record_too(length):
    records = [b"a" * 100, b"b" * 100, *[bytes([number]) * 1000 for number in range(20)]]
    file = bytearray(wandb_file(*records))
    second = START + 107
    file[second + 4 : second + 6] = struct.pack("<H", length)
    items = read(bytes(file))
    assert payloads(items) == [records[0], *records[2:]]
    assert [(place.offset, place.end) for place in damage(items)] == [(second, second + 107)]


def test_where_nothing_sound_follows_in_the_block_reading_goes_on_at_the_next():
    records = [b"a" * 100, b"b" * (BLOCK - START - 107 - 7), b"c" * 100]
    file = bytearray(wandb_file(*records))
    file[START + 107 + 6] = 9
    items = read(bytes(file))
    assert payloads(items) == [records[0], records[2]]
    assert [(place.offset, place.end) for place in damage(items)] == [(START + 107, BLOCK)]


def test_a_file_of_damage_alone_is_passed_over_block_by_block():
    junk = bytes(range(1, 5)) * 3 * BLOCK
    file = append(HEADER + junk[: 12 * BLOCK - START], b"behind")
    items = read(file)
    assert payloads(items) == [b"behind"]
    assert len(damage(items)) == 12


@pytest.mark.parametrize("piece", [0, 1, 2])
def test_a_long_record_with_a_damaged_piece_is_told_once_and_passed_over(piece):
    records = [b"a" * 10, b"b" * (2 * BLOCK + 100), b"c" * 10]
    file = bytearray(wandb_file(*records))
    file[START + 17 + 20 if piece == 0 else piece * BLOCK + 20] ^= 0x40
    items = read(bytes(file))
    assert payloads(items) == [records[0], records[2]]
    assert len(damage(items)) == 1


def test_zeros_at_the_end_are_an_end():
    file = wandb_file(b"abc") + bytes(100_000)
    early = reader(file)
    assert payloads(early.records()) == [b"abc"]
    assert early.offset == START + 10, "so that what is written there later is read"


def test_zeros_in_the_middle_are_damage():
    head = wandb_file(b"abc")
    file = append(head + bytes(2 * BLOCK - len(head)), b"behind")
    items = read(file)
    assert payloads(items) == [b"abc", b"behind"]
    assert damage(items)[0].offset == len(head)


def test_reading_may_start_midway_and_passes_over_the_rest_of_a_record():
    records = [b"a" * (BLOCK + 500), b"b" * 10]
    assert payloads(read(wandb_file(*records), offset=BLOCK, midway=True)) == [records[1]]
    assert not damage(read(wandb_file(*records), offset=BLOCK, midway=True))


def test_pieces_without_a_beginning_or_an_end_are_told():
    file = HEADER + frame(4, b"tail") + frame(2, b"head") + frame(1, b"whole")
    items = read(file)
    assert payloads(items) == [b"whole"]
    assert [place.what for place in damage(items)] == ["it has no beginning", "it has no end"]


def test_a_record_that_never_ends_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(frames, "LONGEST_RECORD", 3 * BLOCK)
    items = read(wandb_file(b"x" * (9 * BLOCK), b"next"))
    assert payloads(items) == [b"next"]
    assert [place.what for place in damage(items)] == ["it is too long"]


def test_a_file_that_shrinks_while_it_is_read_just_ends():
    file = wandb_file(*[b"x" * 9000] * 40)
    shrunk = LogReader(lambda at, size: file[:BLOCK][at : at + size], len(file))
    assert len(payloads(shrunk.records())) == BLOCK // 9007


def test_a_header_may_be_whole_or_cut():
    assert begins_well(HEADER + b"more")
    assert not any(begins_well(HEADER[:size]) for size in range(START))


def test_other_files_and_newer_versions_are_refused():
    with pytest.raises(SourceError, match=r"not a \.wandb file"):
        begins_well(b"{'train/step': 0}")
    with pytest.raises(SourceError, match="version 1"):
        begins_well(HEADER[:-1] + b"\x01")
