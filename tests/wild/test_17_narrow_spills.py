"""Stores to the stack and loads from it in bytes, half words and words, against bytes in numpy.

The code is put together here: a thread stores parts of its number in random widths, loads others back, and
stores to global memory where what it loaded is odd.
"""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.profile.provenance import Provenance
from analyzer.ir.launch import Argument, Dim3, Launch
from analyzer.ir.opcode import AddressSpace
from analyzer.pipeline.launch_execution import execute_kernel
from analyzer.pipeline.loaded_program import load

FOLDER = Path(__file__).parent / "17-narrow-spills"
FRAME_BYTES = 16
STORES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "": 4, "64": 8, "128": 16}
HEADER = "code for sm_80\n\tFunction : spilled\n"
PROLOGUE = ["MOV R1, c[0x0][0x28]", "S2R R0, SR_TID.X", "IMAD R20, R0, 0x9e3779b1, RZ"]
EPILOGUE = [
    "MOV R2, 0x4",
    "IMAD.WIDE R2, R0, R2, c[0x0][0x160]",
    "LOP3.LUT P0, RZ, R4, 0x1, RZ, 0xc0, !PT",
    "@!P0 EXIT",
    "STG.E [R2.64], R0",
    "EXIT",
]


def format_access(name: str, modifier: str, offset: int) -> tuple[str, str]:
    return f"{name}{'.' * bool(modifier)}{modifier}", f"[R1+{offset:#x}]" if offset else "[R1]"


def write_dump(folder: Path, lines: list[str]) -> str:
    path = folder / "spilled.sass"
    text = "".join(f"        /*{16 * place:04x}*/  {line} ;\n" for place, line in enumerate(lines))
    path.write_text(HEADER + text)
    return str(path)


def run(folder: Path, lines: list[str], grid: int = 1) -> ExecutionProfile:
    (kernel,) = load(write_dump(folder, [*PROLOGUE, *lines, *EPILOGUE])).kernels
    launch = Launch(grid=Dim3(grid), block=Dim3(96), arguments=(Argument(1, 5),))
    found = execute_kernel(kernel, launch)
    assert found is not None
    return found.profile


def count_stored_lanes(profile: ExecutionProfile) -> int:
    return sum(a.lanes for a in profile.accesses if a.is_store and a.space is AddressSpace.GLOBAL)


def draw_stores(random: Random, memory: np.ndarray) -> list[str]:
    """Draw stores that fill the frame, and do them in `memory`, [thread, byte]."""
    threads = np.arange(len(memory), dtype=np.uint64)
    lines: list[str] = []
    start = (threads * 0x9E3779B1 & 0xFFFFFFFF).astype(np.uint64)
    draws = [("128", 0), *((random.choice(list(STORES)), random.randrange(16)) for _ in range(9))]
    for modifier, offset in draws:
        width = STORES[modifier]
        offset -= offset % width
        n_words = max(1, width // 4)
        for word in range(n_words):
            factor = random.randrange(1 << 16)
            lines.append(f"IADD3 R{4 + word}, R20, {factor:#x}, RZ")
            value = (start + factor) & 0xFFFFFFFF
            for byte in range(min(4, width)):
                memory[:, offset + 4 * word + byte] = (value >> np.uint64(8 * byte) & 0xFF).astype(np.uint8)
        name, address = format_access("STL", modifier, offset)
        lines.append(f"{name} {address}, R4")
    return lines


@pytest.mark.parametrize("seed", range(8))
def test_any_mix_of_widths_is_exact(tmp_path: Path, seed: int) -> None:
    random, memory = Random(seed), np.zeros((96, FRAME_BYTES), np.uint8)
    lines = draw_stores(random, memory)
    modifier = random.choice(list(STORES))
    offset = random.randrange(16) // STORES[modifier] * STORES[modifier]
    name, address = format_access("LDL", modifier, offset)
    odd = memory[:, offset] & 1
    if modifier in ("S8", "S16"):  # the sign is in the upper bits
        lines += [f"{name} R4, {address}", "SHF.R.U32.HI R4, RZ, 0x1f, R4"]
        odd = memory[:, offset + STORES[modifier] - 1] >> 7
    else:
        lines.append(f"{name} R4, {address}")
    profile = run(tmp_path, lines)
    assert (profile.provenance, count_stored_lanes(profile)) == (Provenance.EXACT, int(odd.sum()))


def test_a_byte_that_nothing_stores_is_unknown(tmp_path: Path) -> None:
    lines = ["STL.U8 [R1+0x1], R0", "LDL.U16 R4, [R1]"]
    profile = run(tmp_path, lines)
    assert profile.provenance is not Provenance.EXACT
    assert any("stack" in branch.origin for branch in profile.unknown_branches)
    assert run(tmp_path, [*lines[:1], "LDL.U8 R4, [R1+0x1]"]).provenance is Provenance.EXACT


def test_lanes_that_do_not_store_are_unknown(tmp_path: Path) -> None:
    guarded = ["ISETP.GE.U32.AND P1, PT, R0, 0x10, PT", "@P1 STL.U16 [R1], R0"]
    assert run(tmp_path, [*guarded, "LDL.U16 R4, [R1]"]).provenance is not Provenance.EXACT
    known = run(tmp_path, [*guarded, "@!P1 STL.U16 [R1], RZ", "LDL.U16 R4, [R1]"])
    assert (known.provenance, count_stored_lanes(known)) == (Provenance.EXACT, 40)


def test_half_words_in_a_loop_and_a_large_grid(tmp_path: Path) -> None:
    lines = [
        "MOV R5, RZ",
        "STL.S16 [R1], R5",
        "IADD3 R5, R5, 0x1, RZ",
        "STL.S16 [R1+0x2], R5",
        "LDL.S16 R4, [R1+0x2]",
        "ISETP.GE.AND P1, PT, R4, 0x12d, PT",
        "@!P1 BRA 0x50",
    ]
    profile = run(tmp_path, lines, grid=200_000)
    assert profile.provenance is Provenance.EXACT
    assert count_stored_lanes(profile) == 200_000 * 96
    assert max(profile.block_executions) == 200_000 * 3 * 301


def evaluate_shorts(n: int) -> int:
    """Count the lanes that `shorts` of arrays.cu lets store."""
    n_stored = 0
    for t in range(128):
        words = [t * 40503 * (i + 1) & 0xFFFF for i in range(16)]
        for k in range(n):
            value = words[(t + k) & 15]
            n_stored += value >> 15
            words[(t * 3 + k) & 15] = (value + k) & 0xFFFF
    return n_stored


def evaluate_mixed(n: int) -> int:
    """Count the lanes that `mixed` of arrays.cu lets store."""
    n_stored = 0
    for t in range(128):
        frame = bytearray(
            b"".join((t * 2654435761 * i & 0xFFFFFFFF).to_bytes(4, "little") for i in range(1, 5))
        )
        for k in range(n):
            value, half = frame[(t * 7 + k) & 15], (t + k) & 7
            frame[2 * half : 2 * half + 2] = (value * 37 & 0xFFFF).to_bytes(2, "little")
            n_stored += frame[4 * ((k + t) & 3)] >> 4 & 1
    return n_stored


@pytest.mark.parametrize("arch", [75, 120])
def test_indexed_arrays_of_the_compiler_are_exact(arch: int) -> None:
    for kernel in load(str(FOLDER / f"arrays_{arch}.txt")).kernels:
        evaluate = {"shorts": evaluate_shorts, "mixed": evaluate_mixed}[kernel.name]
        launch = Launch(grid=Dim3(1), block=Dim3(128), arguments=(Argument(1, 9),))
        found = execute_kernel(kernel, launch)
        assert found is not None
        assert found.profile.provenance is Provenance.EXACT
        assert count_stored_lanes(found.profile) == evaluate(9)
