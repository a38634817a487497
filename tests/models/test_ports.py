"""Ports of the register file: one operand a cycle from each of two banks, less what the reuse cache holds."""

from pathlib import Path

import pytest
from kernel_launches import KernelLaunch, make_model_input
from paths import format_dump

from analyzer.models.predictors.sm import predict
from analyzer.models.sm.register_ports import count_port_cycles


def cycles(tmp_path: Path, *lines: str) -> list[float]:
    path = tmp_path / f"{abs(hash(lines))}.sass"
    path.write_text(format_dump("sm_86", *lines, "EXIT"))
    situation = make_model_input(KernelLaunch(path, "kernel", "rtx-a6000", (1,), (32,)))
    pipes = situation.costs.pipe[situation.kernel.opcode_ids].tolist()
    found: list[float] = count_port_cycles(situation.cfg, pipes, 2).tolist()
    return found[: len(lines)]


@pytest.mark.parametrize(("line", "expected"), [
    ("FFMA R1, R2, R4, R6", 3),  # all even
    ("FFMA R1, R2, R3, R6", 2),
    ("FFMA R1, R2, R3, c[0x0][0x160]", 1),  # constants come from elsewhere
    ("FFMA R1, R2, 2, R3", 1),
    ("IADD3 R1, P0, R2, R4, RZ", 2),  # RZ is not read, nor are results
    ("IADD3 R1, R2, UR4, RZ", 1),
    ("ISETP.GE.AND P0, PT, R2, R4, PT", 2),
    ("LOP3.LUT P0, RZ, R2, R4, R3, 0x96, !PT", 2),
    ("IMAD.WIDE R2, R4, R6, R8", 3),  # R8 and R9
    ("MOV R1, R2", 1),
    ("MUFU.RCP R1, R2", 0),  # no fixed latency
    ("LDS R1, [R2]", 0),
])  # fmt: skip
def test_the_bank_that_is_asked_for_most_decides(tmp_path: Path, line: str, expected: int) -> None:
    assert cycles(tmp_path, line) == [expected]


def test_an_operand_of_the_same_slot_is_not_read_again(tmp_path: Path) -> None:
    first = "FFMA R1, R2.reuse, R4, R6"
    assert cycles(tmp_path, first, "FFMA R1, R2, R8, R10") == [3, 2]
    assert cycles(tmp_path, first, "FFMA R1, R8, R2, R10") == [3, 3]  # another slot
    assert cycles(tmp_path, first, "FFMA R1, R12, R8, R10", "FFMA R1, R2, R8, R10") == [3, 3, 3]
    assert cycles(tmp_path, first, "LDS R1, [R20]", "FFMA R1, R2, R8, R10") == [3, 0, 2]


def test_conflicts_cost_a_kernel_time(tmp_path: Path) -> None:
    """On an RTX A6000 a sub-core makes an FFMA a cycle; its operands come in three where all lie in a bank."""

    def time_of(*operands: int) -> float:
        a, b, c = operands
        path = tmp_path / f"{a}-{b}-{c}.sass"
        lines = [f"FFMA R{10 + n % 8}, R{a}, R{b}, R{c}" for n in range(400)]
        path.write_text(format_dump("sm_86", *lines, "EXIT"))
        return predict(
            make_model_input(KernelLaunch(path, "kernel", "rtx-a6000", (84,), (1024,)))
        ).prediction.cycles

    apart, together = time_of(2, 3, 4), time_of(2, 4, 6)
    assert together > 1.2 * apart


def test_conflicts_even_out_where_operands_are_read_within_two_cycles(tmp_path: Path) -> None:
    """As on Hopper: what reads two registers of a bank costs nothing beside others that leave the bank free."""
    conflict, odd, even = "FFMA R1, R2, R4, R3", "FFMA R1, R3, R5, 2", "FFMA R1, R2, R4, R6"

    def within_two(*lines: str) -> list[float]:
        path = tmp_path / f"{abs(hash(lines))}.sass"
        path.write_text(format_dump("sm_90", *lines, "EXIT"))
        situation = make_model_input(KernelLaunch(path, "kernel", "h100", (1,), (32,)))
        pipes = situation.costs.pipe[situation.kernel.opcode_ids].tolist()
        found: list[float] = count_port_cycles(situation.cfg, pipes, 2, 2).tolist()
        return found[: len(lines)]

    assert within_two(conflict, odd, conflict, odd) == [1, 1, 1, 2]
    assert within_two(*[conflict] * 4) == [1, 2, 2, 2]
    assert within_two(*[even] * 3) == [1, 3, 3]
