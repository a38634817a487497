"""What a cubin states of its kernels, against the tools' own figures and against damage."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from paths import TRACES

from analyzer.frontend.cubin_info import parse_cubin
from analyzer.frontend.cuda_tools import find_tool
from analyzer.frontend.disassembler import read_binary_resource_usage
from analyzer.frontend.input_format import detect_format
from analyzer.frontend.resource_usage import read_resource_usage
from analyzer.ir.module import KernelResources
from analyzer.text.errors import InputError

CUBINS = sorted((TRACES / "cubin").glob("*.cubin"))
SAMPLE = (TRACES / "cubin" / "softmax_sm_90.cubin").read_bytes()
_TABLE = int.from_bytes(SAMPLE[0x28:0x30], "little")  # of sections
_INFO = SAMPLE.find(b"\x04\x2f\x08\x00")  # the first EIATTR_REGCOUNT
NO_TOOLS = "cuobjdump and nvdisasm are not installed here"


def _stem_and_arch(path: Path) -> tuple[str, str]:
    stem, _, number = path.stem.rpartition("_sm_")
    return stem, f"sm_{number}"


def _usage_fields(resources: KernelResources) -> tuple[int | None, ...]:
    return (resources.registers, resources.stack_bytes, resources.shared_bytes, resources.local_bytes)


@pytest.mark.parametrize("path", CUBINS, ids=lambda path: path.name)
def test_agrees_with_the_recorded_resource_usage(path: Path) -> None:
    stem, arch = _stem_and_arch(path)
    recorded = read_resource_usage(TRACES / "triton" / arch / f"{stem}.res")
    found = parse_cubin(path.read_bytes()).resources
    assert {name: _usage_fields(r) for name, r in found.items()} == {
        name: _usage_fields(r) for (_, name), r in recorded.items()
    }


@pytest.mark.skipif(find_tool("cuobjdump") is None or find_tool("nvdisasm") is None, reason=NO_TOOLS)
@pytest.mark.parametrize("path", CUBINS, ids=lambda path: path.name)
def test_agrees_with_the_installed_cuobjdump(path: Path) -> None:
    printed = {name: r for (_, name), r in read_binary_resource_usage(str(path)).items()}
    found = parse_cubin(path.read_bytes()).resources
    assert {name: _usage_fields(r) for name, r in found.items()} == {
        name: _usage_fields(r) for name, r in printed.items()
    }


@pytest.mark.parametrize("path", CUBINS, ids=lambda path: path.name)
def test_required_block_and_barriers_of_triton_kernels(path: Path) -> None:
    """Triton writes `.reqntid 32 * num_warps` and its reductions and tiles use one barrier."""
    (resources,) = parse_cubin(path.read_bytes()).resources.values()
    assert (resources.block_threads, resources.has_exact_block_threads) == (128, True)
    assert resources.has_exact_registers
    assert resources.barriers == 1


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ\x90", SAMPLE[:30].replace(b"\x02", b"\x01")])
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        parse_cubin(data)
    assert caught.value.diagnostic.hint


def test_every_truncation_is_refused() -> None:
    """Up to the end of the section table; only program headers stand behind it."""
    n_sections = int.from_bytes(SAMPLE[0x3C:0x3E], "little")
    for size in range(0, _TABLE + 64 * n_sections, 61):
        with pytest.raises(InputError):
            parse_cubin(SAMPLE[:size])


def test_a_section_beyond_the_file_is_named() -> None:
    data = bytearray(SAMPLE)
    data[_TABLE + 64 + 0x20 : _TABLE + 64 + 0x28] = b"\xff" * 8  # size of the section of names
    with pytest.raises(InputError, match="section of names lies outside the file"):
        parse_cubin(bytes(data))


@given(st.lists(st.tuples(st.integers(0, len(SAMPLE) - 1), st.integers(0, 255)), max_size=40))
def test_mutations_never_escape(changes: list[tuple[int, int]]) -> None:
    _read_mutated(changes)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 63) | st.integers(_TABLE, len(SAMPLE) - 1) | st.integers(_INFO, _INFO + 400),
            st.sampled_from((0, 1, 4, 0x12, 0x2F, 0x7F, 0x80, 0xFF)),
        ),
        max_size=12,
    )
)
def test_mutations_of_the_tables_never_escape(changes: list[tuple[int, int]]) -> None:
    _read_mutated(changes)


def _read_mutated(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SAMPLE)
    for place, value in changes:
        data[place] = value
    detect_format(bytes(data))
    try:
        found = parse_cubin(bytes(data)).resources
    except InputError:
        return
    assert all(isinstance(resources, KernelResources) for resources in found.values())
