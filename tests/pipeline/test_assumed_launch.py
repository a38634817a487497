"""What diff and check assume of arguments that nobody gives."""

from paths import parse_lines, read_kernel

from analyzer.ir.launch import Launch, Pointer
from analyzer.pipeline.assumed_launch import assume_launch


def given(launch: Launch) -> dict[str, object]:
    return {str(each.parameter): each.value for each in launch.arguments}


def test_each_integer_of_a_kernel_gets_one_value() -> None:
    launch = assume_launch(read_kernel("cuda/sm_80/report16.sass", "saxpy"), Launch())
    assert set(given(launch)) == {"0", "4"}  # alpha, whose type nobody knows, and n
    assert len(set(given(launch).values())) == 1
    assert launch.has_dimensions


def test_a_long_that_is_compared_is_a_size_and_one_that_is_added_a_pointer() -> None:
    kernel = parse_lines(
        "ULDC.64 UR6, c[0x0][0x210]",
        "ULDC.64 UR8, c[0x0][0x218]",
        "ISETP.GE.U32.AND P0, PT, R7, UR6, PT",
        "ISETP.GE.U32.AND.EX P0, PT, RZ, UR7, PT, P0",
        "LEA R2, P1, R7, UR8, 0x2",
        "LEA.HI.X R3, R7, UR9, RZ, 0x2, P1",
        "LDG.E R4, desc[UR4][R2.64]",
        "EXIT",
    )
    assert list(given(assume_launch(kernel, Launch()))) == ["0"]


def test_given_arguments_stay_alone() -> None:
    kernel = read_kernel("cuda/sm_80/report16.sass", "saxpy")
    first = assume_launch(kernel, Launch())
    assert assume_launch(kernel, first).arguments == first.arguments
    assert not any(isinstance(value, Pointer) for value in given(first).values())
