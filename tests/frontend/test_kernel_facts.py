"""Parameters and constants as cubins and `cuobjdump -elf` text state them."""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import TRACES

from analyzer.frontend.cubin_info import parse_cubin
from analyzer.frontend.cuda_tools import find_tool
from analyzer.frontend.disassembler import make_tool_environment
from analyzer.frontend.elf_text import parse_elf_text
from analyzer.frontend.kernel_metadata import KernelMetadata
from analyzer.frontend.module_reader import read_module
from analyzer.ir.launch import Dim3
from analyzer.ir.module import Kernel
from analyzer.text.errors import InputError

FOLDER = Path(__file__).parent / "launch_facts"
CUBINS = sorted([*FOLDER.glob("*.cubin"), *(TRACES / "cubin").glob("*.cubin")])
SAMPLES = {path.name: path.read_bytes() for path in CUBINS}
ELF_TEXT = FOLDER / "launch_facts.sm_80.elf"
NO_TOOLS = "cuobjdump and nvdisasm are not installed here"
has_tools = pytest.mark.skipif(
    find_tool("cuobjdump") is None or find_tool("nvdisasm") is None, reason=NO_TOOLS
)
TYPES = [(0, 8), (8, 8), (16, 4), (24, 8), (32, 4), (36, 1), (38, 2), (40, 8), (48, 24)]


def facts(arch: str, kernel: str) -> KernelMetadata:
    return parse_cubin(SAMPLES[f"launch_facts.{arch}.cubin"]).metadata[kernel]


def comparable(found: KernelMetadata) -> tuple[object, ...]:
    constants = sorted(found.constant_banks, key=lambda bank: bank.number)
    return (
        found.build_parameter_list(),
        found.parameter_base,
        constants,
        found.cluster,
        found.required_block_threads,
    )


@pytest.mark.parametrize(
    ("arch", "base", "map_offset", "pointers"),
    [("sm_80", 0x160, 0x60, None), ("sm_90", 0x210, 0x70, None), ("sm_100", 0x380, 0x80, True)],
)
def test_parameters_of_every_size(arch: str, base: int, map_offset: int, pointers: bool | None) -> None:
    """The tensor map is aligned in the bank, not in the block of parameters."""
    found = facts(arch, "types")
    parameters = found.build_parameter_list()
    assert parameters is not None
    assert found.parameter_base == base
    assert [(p.offset, p.size_bytes) for p in parameters] == [
        *TYPES,
        (map_offset, 128),
        (map_offset + 128, 1),
    ]
    assert (base + map_offset) % 64 == 0
    assert [p.is_pointer for p in parameters[:4]] == [pointers, pointers, False, None]


def test_a_kernel_without_parameters_has_none_rather_than_unknown_ones() -> None:
    assert facts("sm_80", "none").build_parameter_list() == ()


def test_constant_banks_hold_tables_variables_and_addresses() -> None:
    banks = {bank.number: bank for bank in facts("sm_80", "table").constant_banks}
    assert set(banks) == {2, 3, 4}
    assert len(banks[2].contents) >= 7 * 4
    assert {r.symbol for r in banks[4].relocations} == {"counter", "__cudart_i2opi_f"}
    relocation = next(r for r in banks[4].relocations if r.offset == 0)
    assert relocation.size_bytes == 8
    assert (relocation.symbol, relocation.object_bytes) == ("counter", 400)
    assert banks[3].contents[:16] == b"".join(n.to_bytes(4, "little") for n in (2, 3, 5, 7))
    (unset,) = banks[3].uninitialized
    assert (unset.name, unset.offset, unset.size_bytes) == ("scale", 16, 12)
    assert {bank.number for bank in facts("sm_80", "none").constant_banks} == {3, 4}


def test_cluster_is_read() -> None:
    assert facts("sm_90", "clustered").cluster == Dim3(2, 4, 1)
    assert facts("sm_100", "clustered").cluster == Dim3(2, 4, 1)
    assert facts("sm_100", "types").cluster is None


def test_elf_text_says_what_the_cubin_does() -> None:
    printed = parse_elf_text(ELF_TEXT.read_bytes().splitlines(keepends=True))
    stated = parse_cubin(SAMPLES["launch_facts.sm_80.cubin"]).metadata
    assert {name for _, name in printed} == set(stated)
    assert {arch for arch, _ in printed} == {"sm_80"}
    for (_, name), found in printed.items():
        assert comparable(found) == comparable(stated[name])


@has_tools
@pytest.mark.parametrize("path", CUBINS, ids=lambda path: path.name)
def test_agrees_with_the_installed_cuobjdump(path: Path) -> None:
    tool = find_tool("cuobjdump")
    assert tool is not None
    done = subprocess.run(
        [tool.path, "-elf", str(path)], capture_output=True, check=True, env=make_tool_environment(tool)
    )
    printed = parse_elf_text(done.stdout.splitlines(keepends=True))
    stated = parse_cubin(path.read_bytes()).metadata
    assert printed
    for (_, name), found in printed.items():
        assert comparable(found) == comparable(stated[name])


@has_tools
def test_a_cubin_is_read_with_its_facts() -> None:
    kernels = {k.name: k for k in read_module(str(FOLDER / "launch_facts.sm_100.cubin"))}
    types = kernels["types"]
    assert types.parameters is not None
    assert (types.parameter_base, len(types.parameters)) == (0x380, 11)
    assert types.constant_banks is not None
    assert kernels["clustered"].cluster == Dim3(2, 4, 1)


DUMP = """\tcode for sm_80
\t\tFunction : {name}
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/                   EXIT ;
\t\t..........
"""


def read_beside(tmp_path: Path, text: str, *, suffix: str = "", beside: bytes = b"") -> Kernel:
    dump = tmp_path / "dump.sass"
    dump.write_text(text)
    if suffix:
        dump.with_suffix(suffix).write_bytes(beside)
    return read_module(str(dump)).kernels[0]


@pytest.mark.parametrize("suffix", [".elf", ".elf.txt"])
def test_text_beside_a_dump_counts(tmp_path: Path, suffix: str) -> None:
    kernel = read_beside(tmp_path, DUMP.format(name="types"), suffix=suffix, beside=ELF_TEXT.read_bytes())
    assert kernel.parameters is not None
    assert [(p.offset, p.size_bytes) for p in kernel.parameters[:9]] == TYPES
    assert kernel.parameter_base == 0x160


def test_text_in_the_dump_itself_counts_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    tables = ELF_TEXT.read_text()
    kernel = read_beside(tmp_path, tables + DUMP.format(name="table"))
    assert kernel.parameters is not None
    assert [(p.offset, p.size_bytes) for p in kernel.parameters] == [(0, 8), (8, 4)]
    assert kernel.line == tables.count("\n") + 2
    assert len(kernel) == 2


def test_a_dump_alone_tells_nothing(tmp_path: Path) -> None:
    kernel = read_beside(tmp_path, DUMP.format(name="types"))
    assert (kernel.parameters, kernel.parameter_base, kernel.constant_banks) == (None, None, None)


def test_a_cubin_beside_a_dump_counts_where_the_code_is_as_long(tmp_path: Path) -> None:
    cubin = SAMPLES["launch_facts.sm_80.cubin"]
    length = parse_cubin(cubin).code_bytes["none"]
    rows = [f"        /*{16 * row:04x}*/                   NOP ;" for row in range(length // 16)]
    text = "\n".join(["\tcode for sm_80", "\t\tFunction : none", *rows, ""])
    assert read_beside(tmp_path, text, suffix=".cubin", beside=cubin).parameters == ()
    assert read_beside(tmp_path, DUMP.format(name="none")).parameters is None


def test_a_file_beside_that_is_something_else_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not what cuobjdump -elf prints"):
        read_beside(tmp_path, DUMP.format(name="types"), suffix=".elf", beside=b"hello\n")
    with pytest.raises(InputError, match="damaged"):
        read_beside(
            tmp_path,
            DUMP.format(name="types"),
            suffix=".elf",
            beside=SAMPLES["launch_facts.sm_80.cubin"][:999],
        )


@given(
    st.sampled_from(sorted(SAMPLES)),
    st.lists(st.tuples(st.integers(0, 1 << 15), st.binary(min_size=1, max_size=9)), max_size=5),
)
def test_damaged_cubins_are_read_or_refused(name: str, patches: list[tuple[int, bytes]]) -> None:
    data = bytearray(SAMPLES[name])
    for offset, patch in patches:
        start = offset % len(data)
        data[start : start + len(patch)] = patch
    with suppress(InputError):
        for kernel in parse_cubin(bytes(data)).metadata.values():
            kernel.build_parameter_list()


@given(st.data())
def test_damaged_elf_text_is_read_as_far_as_it_goes(data: st.DataObject) -> None:
    lines = ELF_TEXT.read_bytes().splitlines(keepends=True)
    start = data.draw(st.integers(0, len(lines)))
    length = data.draw(st.integers(0, 400))
    noise = data.draw(st.lists(st.binary(max_size=40), max_size=4))
    for found in parse_elf_text([*lines[:start], *noise, *lines[start + length :]]).values():
        found.build_parameter_list()


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed here")
def test_the_shipped_cubins_are_what_the_compiler_makes(tmp_path: Path) -> None:
    target = tmp_path / "made.cubin"
    source = str(FOLDER / "launch_facts.cu")
    subprocess.run(["nvcc", "-arch=sm_80", "-cubin", "-o", str(target), source], check=True)
    made, shipped = parse_cubin(target.read_bytes()), parse_cubin(SAMPLES["launch_facts.sm_80.cubin"])
    assert {n: f.build_parameter_list() for n, f in made.metadata.items()} == {
        n: f.build_parameter_list() for n, f in shipped.metadata.items()
    }
