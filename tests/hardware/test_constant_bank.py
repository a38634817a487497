"""Offsets of the driver's words in constant bank 0, against the code that compilers wrote."""

import re
from pathlib import Path

import pytest
from paths import format_trace_name, list_sass_dumps

from analyzer.hardware.gpu_database import list_known_archs, load_arch
from analyzer.hardware.schema import ConstantBankLayout, HardwareParameter

_READ = re.compile(r"c\[0x0\]\[(?:U?R\d+\+)?(0x[0-9a-f]+|RZ|URZ)\]")
_ARCH = re.compile(r"code for (sm_\d+)")
_WORDS = {
    "block_dim": 3,
    "grid_dim": 3,
    "cluster_dim": 3,
    "cluster_counts": 3,
    "cluster_reciprocals": 3,
    "global_descriptor": 2,
    "shared_window": 2,
    "local_window": 2,
    "argument_window": 2,
    "user_window": 2,
    "grid_id": 2,
    "argument_window_start": 0,  # a place that a word stands for
    "arguments": 0,
}


def words(bank: ConstantBankLayout) -> list[int]:
    """Offsets of all words that are described."""
    found: list[int] = []
    for name in bank.__struct_fields__:
        figure = getattr(bank, name)
        if isinstance(figure, HardwareParameter):
            found += range(int(figure.value), int(figure.value) + 4 * _WORDS.get(name, 1), 4)
    return found


@pytest.mark.parametrize("name", list_known_archs())
def test_words_lie_below_the_arguments_and_not_over_each_other(name: str) -> None:
    bank = load_arch(name).constant_bank
    found = words(bank)
    assert len(found) == len(set(found))
    assert all(offset % 4 == 0 and offset < bank.arguments.value for offset in found)


@pytest.mark.parametrize("path", list_sass_dumps(), ids=format_trace_name)
def test_every_word_that_real_code_reads_is_described(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    match = _ARCH.search(text)
    assert match is not None
    bank = load_arch(match[1]).constant_bank
    known = set(words(bank))
    read = {0 if place.endswith("RZ") else int(place, 16) for place in _READ.findall(text)}
    assert {offset for offset in read if offset < bank.arguments.value} <= known


@pytest.mark.parametrize(
    ("name", "arguments", "block", "grid", "stack", "descriptor"),
    [
        ("sm_75", 0x160, 0x0, 0xC, 0x28, None),
        ("sm_80", 0x160, 0x0, 0xC, 0x28, 0x118),
        ("sm_89", 0x160, 0x0, 0xC, 0x28, 0x118),
        ("sm_90", 0x210, 0x0, 0xC, 0x28, 0x208),
        ("sm_100", 0x380, 0x360, 0x370, 0x37C, 0x358),
        ("sm_103", 0x380, 0x360, 0x370, 0x37C, 0x358),
        ("sm_120", 0x380, 0x360, 0x370, 0x37C, 0x358),
    ],
)
def test_known_places(
    name: str, arguments: int, block: int, grid: int, stack: int, descriptor: int | None
) -> None:
    bank = load_arch(name).constant_bank
    assert (bank.arguments.value, bank.block_dim.value, bank.grid_dim.value) == (arguments, block, grid)
    assert bank.stack_pointer.value == stack
    assert (None if bank.global_descriptor is None else bank.global_descriptor.value) == descriptor
