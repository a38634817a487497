"""What a kernel finds in its constant banks: driver words, arguments, other banks, and the allocations."""

import struct

import numpy as np
import pytest
from msgspec.structs import replace
from paths import TRACES, parse_lines

from analyzer.execution.binding.constant_banks import INITIAL_STACK_POINTER, LOCAL_WINDOW_BASE
from analyzer.execution.binding.image_builder import ConstantImage, build_constant_image
from analyzer.frontend.module_reader import read_module
from analyzer.hardware.gpu_database import list_known_archs, load_arch
from analyzer.ir.launch import Argument, ArgumentValue, Buffer, Dim3, Launch, NullPointer, Pointer, TensorMap
from analyzer.ir.module import ConstantBank, Kernel, Parameter, Relocation, UninitializedConstant
from analyzer.text.errors import UsageError

SOFTMAX = str(TRACES / "triton" / "sm_90" / "softmax.sass")


def parameters(*kinds: tuple[int, int] | tuple[int, int, str]) -> tuple[Parameter, ...]:
    """(offset, size) or (offset, size, name) of each."""
    return tuple(
        Parameter(ordinal=place, offset=kind[0], size_bytes=kind[1], name=kind[2] if len(kind) > 2 else "")
        for place, kind in enumerate(kinds)
    )


def kernel_with(*kinds: tuple[int, int] | tuple[int, int, str], arch: str = "sm_90") -> Kernel:
    return replace(parse_lines("EXIT", arch=arch), parameters=parameters(*kinds))


def image_of(kernel: Kernel, *arguments: tuple[int | str, ArgumentValue], **launch: object) -> ConstantImage:
    given = tuple(Argument(which, value) for which, value in arguments)
    return build_constant_image(kernel, Launch(arguments=given, **launch), load_arch(kernel.arch))  # type: ignore[arg-type]


def argument_words(image: ConstantImage, offset: int, count: int) -> list[int | str]:
    """Values of words after where the arguments start; the reason where one is unknown."""
    words: list[int | str] = []
    for place in range(count):
        value, origin = image.read_word(0, image.parameter_base + offset + 4 * place)
        words.append(image.unknown_reasons[origin] if origin else value)
    return words


@pytest.mark.parametrize(
    ("arch", "block", "grid", "stack"),
    [
        ("sm_80", 0x0, 0xC, 0x28),
        ("sm_90", 0x0, 0xC, 0x28),
        ("sm_100", 0x360, 0x370, 0x37C),
        ("sm_121", 0x360, 0x370, 0x37C),
    ],
)
def test_dimensions_stand_where_the_architecture_has_them(
    arch: str, block: int, grid: int, stack: int
) -> None:
    image = image_of(kernel_with(arch=arch), grid=Dim3(7, 8, 9), block=Dim3(32, 4, 2))
    values, origins = image.read_words(0, np.arange(block, block + 12, 4))
    assert values.tolist() == [32, 4, 2]
    assert not origins.any()
    assert [image.read_word(0, grid + 4 * axis) for axis in range(3)] == [(7, 0), (8, 0), (9, 0)]
    assert image.read_word(0, stack) == (INITIAL_STACK_POINTER, 0)
    assert INITIAL_STACK_POINTER % 16 == 0


def test_dimensions_that_nobody_said_are_unknown_and_named() -> None:
    image = image_of(kernel_with(), block=Dim3(64))
    assert image.read_word(0, 0) == (64, 0)
    value, origin = image.read_word(0, 0xC)
    assert value == 0
    assert image.unknown_reasons[origin] == "gridDim.x (--grid gives it)"


@pytest.mark.parametrize("name", list_known_archs())
def test_windows_and_descriptor_are_known_everywhere(name: str) -> None:
    bank = load_arch(name).constant_bank
    image = image_of(kernel_with((0, 8), arch=name), dynamic_shared_bytes=4096)
    assert image.parameter_base == bank.arguments.value
    low, high = (image.read_word(0, int(bank.local_window.value) + n) for n in (0, 4))
    assert (low[0] | high[0] << 32, low[1], high[1]) == (LOCAL_WINDOW_BASE, 0, 0)
    assert image.read_word(0, int(bank.dynamic_shared_bytes.value)) == (4096, 0)
    if bank.global_descriptor is not None:
        assert image.read_word(0, int(bank.global_descriptor.value))[1] == 0


def test_cluster_words() -> None:
    image = image_of(kernel_with(), grid=Dim3(12, 8, 1), cluster=Dim3(3, 2, 1))
    sizes, _ = image.read_words(0, np.array([0x144, 0x148, 0x14C, 0x15C, 0x160, 0x164, 0x188, 0x140]))
    assert sizes.tolist() == [3, 2, 1, 4, 4, 1, 6, 1]
    reciprocals, _ = image.read_words(0, np.array([0x150, 0x154, 0x158]))
    floats = struct.unpack("<3f", reciprocals.astype("<u4").tobytes())
    assert all(
        int(block * one) == block // size
        for size, one in zip((3, 2, 1), floats, strict=True)
        for block in range(96)
    )


@pytest.mark.parametrize("size", range(1, 17))
def test_reciprocals_divide_every_block_number(size: int) -> None:
    """Code multiplies the block's number by 1 / size and cuts off."""
    image = image_of(kernel_with(), cluster=Dim3(size))
    one = np.array([image.read_word(0, 0x150)[0]], dtype=np.uint32).view(np.float32)
    blocks = np.arange(0, 65536, dtype=np.float32)
    assert ((blocks * one).astype(np.int64) == np.arange(65536) // size).all()


def test_a_kernel_compiled_for_clusters_has_them() -> None:
    built = replace(kernel_with(), cluster=Dim3(2, 4))
    assert image_of(built).read_word(0, 0x148) == (4, 0)
    with pytest.raises(UsageError, match=r"cluster 2x1x1: kernel is compiled for clusters of 2x4x1"):
        image_of(built, cluster=Dim3(2))
    with pytest.raises(UsageError, match=r"sm_80 has no clusters"):
        image_of(kernel_with(arch="sm_80"), cluster=Dim3(2))


def test_that_there_are_no_clusters_is_said_where_the_code_asks() -> None:
    asks = replace(parse_lines("LDC R5, c[0x0][0x144]", "EXIT"), parameters=())
    assert any("no clusters" in text for text in image_of(asks).assumptions)
    assert not image_of(asks, cluster=Dim3(1)).assumptions
    assert not image_of(kernel_with()).assumptions


def test_numbers_fill_their_parameters() -> None:
    kernel = kernel_with((0, 4, "n"), (4, 4, "x"), (8, 8, "m"), (16, 1, "c"), (18, 2, "h"), (24, 8, "d"))
    image = image_of(kernel, (0, -1), (1, 1.5), ("m", 1 << 40), ("c", 255), (4, 1.5), ("d", 2.5))
    bytes_at = b"".join(int(word).to_bytes(4, "little") for word in argument_words(image, 0, 8))
    assert bytes_at[:8] == struct.pack("<if", -1, 1.5)
    assert bytes_at[8:16] == (1 << 40).to_bytes(8, "little")
    assert bytes_at[16:20] == struct.pack("<BxH", 255, 0x3E00)
    assert bytes_at[24:] == struct.pack("<d", 2.5)
    assert image.assumptions == ()


def test_pointers_lead_far_from_each_other_and_are_the_same_each_time() -> None:
    kernel = kernel_with((0, 8, "a"), (8, 8, "b"), (16, 8, "c"))
    image = image_of(kernel, (0, Pointer()), ("b", NullPointer()), (2, 0x1234_5678_9A))
    (allocation,) = image.allocations
    low, high, *rest = argument_words(image, 0, 6)
    assert allocation.address == int(low) | int(high) << 32
    assert allocation.address % 256 == 0
    assert allocation.label == "argument 0 (a)"
    assert rest == [0, 0, 0x3456789A, 0x12]
    again = image_of(kernel, (0, Pointer()))
    assert again.allocations[0].address == allocation.address
    assert min(np.diff([a.address for a in again.allocations])) >= 1 << 32


def test_of_long_parameters_nothing_is_said_and_the_report_says_so() -> None:
    kernel = kernel_with((0, 8, "a"), (8, 8, "b"), (16, 4, "n"))
    image = image_of(kernel)
    assert [a.ordinal for a in image.allocations] == [0, 1]
    (text,) = image.assumptions
    assert text.startswith("arguments 0 (a), 1 (b) are assumed to point to separate buffers")
    assert argument_words(image, 16, 1) == ["argument 2 (n)"]
    number = replace(kernel, parameters=(replace(parameters((0, 8))[0], is_pointer=False),))
    assert argument_words(image_of(number), 0, 1) == ["argument 0"]


def test_buffers_keep_their_contents() -> None:
    contents = np.arange(12, dtype=np.uint8)
    image = image_of(kernel_with((0, 8), (8, 8)), (1, Buffer(contents, "x.npy")), (0, Pointer()))
    buffer = image.allocations[1]
    assert (buffer.ordinal, buffer.size_bytes) == (1, 12)
    assert buffer.contents is contents
    found = image.find_allocations(np.array([buffer.address, buffer.address + 11, buffer.address + 12, 5]))
    assert found.tolist() == [1, 1, -1, -1]
    assert image.find_allocations(np.array([image.allocations[0].address + 4096])).tolist() == [0]


def test_tensor_map_is_unknown_inside_and_known_by_its_address() -> None:
    image = image_of(kernel_with((0x30, 128, "map"), (0xB0, 4, "n")), (0, TensorMap()), (1, 3))
    assert argument_words(image, 0x30, 2) == ["argument 0 (map), a tensor map"] * 2
    (allocation,) = image.allocations
    assert allocation.is_parameter
    window = image.read_word(0, 0x198)[0] | image.read_word(0, 0x19C)[0] << 32
    assert allocation.address == window + 0x30
    assert allocation.address % 64 == 0


def test_fields_of_a_struct_are_given_by_offset() -> None:
    kernel = kernel_with((0, 8), (8, 24, "s"))
    image = image_of(kernel, (0, NullPointer()), ("s+8", Pointer()), ("1+16", 7), ("1+0x14", 0.5))
    assert argument_words(image, 8, 2) == ["argument 1 (s) at +0", "argument 1 (s) at +4"]
    assert argument_words(image, 24, 2) == [7, 0x3F000000]
    pointer = next(a for a in image.allocations if not a.is_parameter)
    assert (pointer.label, pointer.ordinal) == ("argument s+8", 1)
    with pytest.raises(
        UsageError, match=r"argument s\+20: 8 bytes there go beyond the 24 of argument 1 \(s\)"
    ):
        image_of(kernel, ("s+20", Pointer()))


def test_any_place_of_a_bank_can_be_given() -> None:
    image = image_of(kernel_with((0, 8)), ("c[0x0][0x10c]", 132), ("c[0x3][0x8]", 5), (0, NullPointer()))
    assert image.read_word(0, 0x10C) == (132, 0)
    assert image.read_word(3, 8) == (5, 0)
    assert (
        image.unknown_reasons[image.read_word(3, 0)[1]]
        == "constant bank 3, which a bare dump lacks: give the cubin"
    )


def test_other_banks_come_from_the_binary() -> None:
    banks = (
        ConstantBank(number=2, contents=bytes(range(8))),
        ConstantBank(
            number=3,
            contents=b"\x05\0\0\0" + bytes(8),
            uninitialized=(UninitializedConstant(offset=4, size_bytes=8, name="scale"),),
        ),
        ConstantBank(
            number=4,
            contents=bytes(24),
            relocations=(
                Relocation(offset=0, size_bytes=8, symbol="counter", object_bytes=400),
                Relocation(offset=8, size_bytes=8, symbol="vprintf"),
                Relocation(offset=16, size_bytes=8, symbol="counter", object_bytes=400, addend=16),
            ),
        ),
    )
    image = image_of(replace(kernel_with(), constant_banks=banks))
    assert image.read_word(2, 4) == (0x07060504, 0)
    assert "beyond the end of constant bank 2" in image.unknown_reasons[image.read_word(2, 8)[1]]
    assert image.read_word(3, 0) == (5, 0)
    assert image.unknown_reasons[image.read_word(3, 8)[1]] == "scale, which the host sets before the launch"
    assert image.unknown_reasons[image.read_word(4, 8)[1]] == "the address of vprintf"
    (counter,) = image.allocations
    assert (counter.name, counter.size_bytes) == ("counter", 400)
    assert image.read_word(4, 0)[0] | image.read_word(4, 4)[0] << 32 == counter.address
    assert image.read_word(4, 16)[0] | image.read_word(4, 20)[0] << 32 == counter.address + 16
    assert image.unknown_reasons[image.read_word(5, 0)[1]] == "constant bank 5, which the input does not have"
    assert image.assumptions == ("constant bank 3 holds what the file starts it with",)


def test_a_bare_dump_says_what_it_lacks() -> None:
    image = image_of(parse_lines("EXIT"))
    assert (
        image.unknown_reasons[image.read_word(2, 0)[1]]
        == "constant bank 2, which a bare dump lacks: give the cubin"
    )
    assert (
        image.unknown_reasons[image.read_word(77, 0)[1]]
        == "another constant bank, which a bare dump lacks: give the cubin"
    )
    values, origins = image.read_words(2, np.array([0, 4, 1 << 40]))
    assert values.tolist() == [0, 0, 0]
    assert set(origins.tolist()) == {image.read_word(2, 0)[1]}


def test_one_word_and_many_agree() -> None:
    image = image_of(kernel_with((0, 8), (8, 4)), (1, 9), grid=Dim3(4))
    offsets = np.arange(-8, 0x240)
    values, origins = image.read_words(0, offsets)
    assert values.dtype == np.uint32
    assert origins.dtype == np.int32
    assert [image.read_word(0, int(o)) for o in offsets] == list(
        zip(values.tolist(), origins.tolist(), strict=True)
    )


def test_metadata_gives_names_layout_and_null_for_the_hidden_pointers() -> None:
    (kernel,) = read_module(SOFTMAX).kernels
    image = image_of(kernel, ("columns", 1000), ("x_stride", 1024), ("out_stride", 1024))
    assert argument_words(image, 16, 3) == [1000, 1024, 1024]
    assert argument_words(image, 32, 4) == [0, 0, 0, 0]
    assert [a.label for a in image.allocations] == ["argument 0 (x_ptr)", "argument 1 (out_ptr)"]


def test_a_workspace_that_is_read_means_a_cooperative_launch() -> None:
    kernel = replace(parse_lines("LDC R5, c[0x0][0x48]", "EXIT"), parameters=())
    image = image_of(kernel)
    assert image.read_word(0, 0x48)[1] == 0
    assert image.read_word(0, 0x44)[0] | image.read_word(0, 0x48)[0]
    assert any("cooperative" in text for text in image.assumptions)
