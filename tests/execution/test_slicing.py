"""What is executed of code that sends pointers, and later results, through shared memory."""

from pathlib import Path

import pytest
from paths import format_dump

import analyzer
from analyzer.execution.lowering.kernel_compiler import compile_kernel
from analyzer.execution.lowering.segments import ActionKind

# the address of a load goes through shared memory, then a result does
POINTERS = (
    "S2R R0, SR_TID.X",
    "IMAD.SHL.U32 R2, R0, 0x4, RZ",
    "STS [R2], R0",
    "BAR.SYNC.DEFER_BLOCKING 0x0",
    "LDS R4, [R2]",
    "IMAD.WIDE R6, R4, 0x4, RZ",
    "LDG.E R8, [R6.64]",
)
RESULT = (
    "HMMA.16816.F32 R12, R16, R18, R12",
    "FMUL R8, R8, R12",
    "MUFU.EX2 R9, R8",
    "STS [R2], R9",
    "BAR.SYNC.DEFER_BLOCKING 0x0",
    "LDS R10, [R2]",
    "STG.E [R6.64], R10",
    "EXIT",
)
PLAIN_RESULT = ("MUFU.EX2 R9, R0", *RESULT[3:])


@pytest.mark.parametrize("result", [RESULT, PLAIN_RESULT], ids=["of a product", "of a thread's number"])
def test_results_behind_the_last_load_that_matters_are_not_computed(
    tmp_path: Path, result: tuple[str, ...]
) -> None:
    assert steps_of(tmp_path, *POINTERS, *result) == ["S2R", "IMAD", "IMAD"]


def test_words_of_predicates_are_of_those_that_the_mask_names(tmp_path: Path) -> None:
    """What the others were, comparisons of data among it, is not computed."""
    code = (
        "S2R R0, SR_TID.X",
        "MUFU.EX2 R1, R0",
        "FSETP.GEU.AND P1, PT, R1, -126, PT",
        "ISETP.GT.U32.AND P2, PT, R0, 0x5, PT",
        "P2R R3, PR, RZ, 0x4",
        "R2P PR, R3, 0x2",
        "FSETP.GEU.AND P2, PT, R1, -126, PT",
        "R2P PR, R3, 0x4",
        "@P1 BRA 0x0",
        "@P2 BRA 0x0",
        "EXIT",
    )
    assert steps_of(tmp_path, *code) == ["S2R", "ISETP", "P2R", "R2P", "R2P"]


def steps_of(folder: Path, *code: str) -> list[str]:
    """What is executed besides branches and memory accesses."""
    listing = folder / "kernel.sass"
    listing.write_text(format_dump("sm_80", *code))
    (kernel,) = analyzer.load(str(listing)).kernels
    compiled = compile_kernel(kernel.cfg, kernel.loops, knows_memory=False)
    return [
        kernel.kernel.find_opcode(action.row).name
        for segment in compiled.segments
        for action in segment.actions
        if action.kind is ActionKind.COMPUTE
    ]
