"""The verifier between lowering and execution: what is read has a value, or is unknown and says so."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from msgspec.structs import replace
from paths import TRACES

from analyzer.execution.lowering.kernel_compiler import compile_kernel
from analyzer.execution.lowering.segments import Action, ActionKind, CompiledKernel
from analyzer.execution.lowering.slice_verification import find_slice_gaps
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Argument, Dim3, Launch
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import LoadedKernel, load

DUMPS = ("cuda/sm_90/exactness.sass", "triton/sm_80/softmax.sass", "cuda/sm_120/report16.sass")


def compile_all(dump: str) -> list[CompiledKernel]:
    return [compile_kernel(k.cfg, k.loops, knows_memory=False) for k in load(str(TRACES / dump)).kernels]


def drop_action(kernel: CompiledKernel, index: int, action: Action) -> CompiledKernel:
    segments = list(kernel.segments)
    actions = tuple(own for own in segments[index].actions if own is not action)
    segments[index] = replace(segments[index], actions=actions)
    return replace(kernel, segments=tuple(segments))


@pytest.mark.parametrize("dump", DUMPS)
def test_shipped_kernels_have_no_gaps(dump: str) -> None:
    for kernel in compile_all(dump):
        assert kernel.unset_rows == ()


@pytest.mark.parametrize("dump", DUMPS)
def test_each_dropped_step_is_found(dump: str) -> None:
    random = Random(dump)
    for kernel in compile_all(dump):
        steps = [(s.index, a) for s in kernel.segments for a in s.actions if a.kind is ActionKind.COMPUTE]
        for index, action in random.sample(steps, min(4, len(steps))):
            gaps = find_slice_gaps(drop_action(kernel, index, action)).results
            # a step that is in the slice for one of its results has no gap for the others
            assert action.step is not None
            assert action.row in gaps, kernel.cfg.kernel.decode_form(action.row).text
            assert set(gaps[action.row]) <= set(action.step.writes)


def write_mutant(folder: Path, text: str) -> LoadedKernel:
    path = folder / "mutant.sass"
    path.write_text(text)
    (kernel,) = load(str(path)).kernels
    return kernel


def execute(kernel: LoadedKernel, *numbers: int) -> ExecutionProfile:
    arguments = tuple(Argument(place, number) for place, number in enumerate(numbers, 1))
    found = execute_kernel(kernel, Launch(grid=Dim3(3), block=Dim3(64), arguments=arguments))
    assert found is not None
    return found.profile


LOOP = """code for sm_80
	Function : sums
MOV R1, c[0x0][0x28]
S2R R0, SR_CTAID.X
S2R R3, SR_TID.X
IMAD R0, R0, c[0x0][0x0], R3
ISETP.GE.U32.AND P0, PT, R0, c[0x0][0x168], PT
@P0 EXIT
MOV R2, 0x4
IMAD.WIDE.U32 R4, R0, R2, c[0x0][0x160]
LOP3.LUT R6, R0, 0x7, RZ, 0xc0, !PT
IADD3 R7, R6, 0x2, RZ
STG.E [R4.64], R7
IADD3 R7, R7, -0x1, RZ
IADD3 R4, P1, R4, 0x400, RZ
IADD3.X R5, RZ, R5, RZ, P1, !PT
ISETP.NE.AND P2, PT, R7, RZ, PT
@P2 BRA 0xa0
EXIT
"""


def format_loop(change: tuple[int, str] | None = None) -> str:
    header, lines = LOOP.splitlines()[:2], LOOP.splitlines()[2:]
    if change is not None:
        lines[change[0]] = change[1]
    body = [f"        /*{16 * place:04x}*/  {line} ;" for place, line in enumerate(lines)]
    return "\n".join([*header, *body]) + "\n"


def is_same(first: ExecutionProfile, second: ExecutionProfile) -> bool:
    return bool(np.array_equal(first.block_active_lanes, second.block_active_lanes)) and [
        (a.row, a.lanes, a.unique_bytes) for a in first.accesses
    ] == [(a.row, a.lanes, a.unique_bytes) for a in second.accesses]


def is_claimed(profile: ExecutionProfile) -> bool:
    """Return whether a profile claims to know all counts and all bytes."""
    return profile.provenance is Provenance.EXACT and all(
        access.provenance is Provenance.EXACT for access in profile.accesses
    )


@pytest.mark.parametrize("name", ["QZXW", "B2R.WARP", "TTULD", "LDT"])
def test_an_opcode_without_semantics_makes_its_results_unknown(tmp_path: Path, name: str) -> None:
    truth = execute(write_mutant(tmp_path, format_loop()), 150)
    assert is_claimed(truth)
    lines = LOOP.splitlines()[2:]
    n_tried = 0
    for place, line in enumerate(lines):
        mnemonic, _, rest = line.partition(" ")
        if mnemonic[0] == "@" or mnemonic in ("EXIT", "STG.E"):
            continue
        n_tried += 1
        profile = execute(write_mutant(tmp_path, format_loop((place, f"{name} {rest}"))), 150)
        assert not is_claimed(profile) or is_same(profile, truth), line
    assert n_tried > 10


@pytest.mark.parametrize("place", [1, 2, 4, 6, 7, 8, 9, 14])
def test_a_register_that_nothing_sets_is_unknown(tmp_path: Path, place: int) -> None:
    profile = execute(write_mutant(tmp_path, format_loop((place, "NOP"))), 150)
    assert not is_claimed(profile)
    if place in (1, 2, 4, 8, 9, 14):  # a branch depends on it, not only an address
        assert any("nothing sets" in branch.origin for branch in profile.unknown_branches)


def test_operands_that_cannot_be_read_make_all_unknown(tmp_path: Path) -> None:
    # an encoding beside it proves that it is an instruction, of a newer tool
    unread = "IADD3 ??R7, R6, 0x2, RZ ;  /* 0x0000000206077810 */"
    text = format_loop((9, unread)).replace("*/ ;", "*/\n" + " " * 60 + "/* 0x000fe20007ffe0ff */")
    profile = execute(write_mutant(tmp_path, text), 150)
    assert not is_claimed(profile)


MASKED = """code for sm_80
	Function : masked
S2R R0, SR_TID.X
ISETP.LT.AND P3, PT, R0, 0x8, PT
LOP3.LUT R252, R252, 0xfffffffe, RZ, 0xc0, !PT
IMAD.WIDE.U32 R4, R0, 0x4, c[0x0][0x160]
@P3 LOP3.LUT R252, R252, 0x1, RZ, 0xfc, !PT
LOP3.LUT P5, RZ, R252, 0x1, RZ, 0xc0, !PT
@P5 STG.E [R4.64], R0
EXIT
"""


def format_code(text: str) -> str:
    header, lines = text.splitlines()[:2], text.splitlines()[2:]
    body = [f"        /*{16 * place:04x}*/  {line} ;" for place, line in enumerate(lines)]
    return "\n".join([*header, *body]) + "\n"


def test_a_bit_of_a_register_of_which_nothing_sets_the_others(tmp_path: Path) -> None:
    profile = execute(write_mutant(tmp_path, format_code(MASKED)))
    assert is_claimed(profile)
    assert [access.lanes for access in profile.accesses] == [3 * 8]
    # a mask that keeps bits needs them: they are what a lost instruction would have set
    profile = execute(write_mutant(tmp_path, format_code(MASKED.replace("0xfffffffe", "0x7fff"))))
    assert not is_claimed(profile)
