"""Invariants of predictions through the public entry point, on real kernels."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import analyzer
from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.hardware.gpu import compute_mma_issue_cycles
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.launch import Launch
from analyzer.isa.opcode_table import resolve_opcode
from analyzer.pipeline import Options, Program
from analyzer.report.analyze_schema import KernelReport, PredictionEntry

ROOT = Path(__file__).resolve().parents[2]
TRACES = ROOT / "traces"
DUMPS = [
    TRACES / "cuda" / "sm_80" / "report16.sass",
    TRACES / "triton" / "sm_80" / "matmul.sass",
    TRACES / "triton" / "sm_90" / "matmul.sass",
    TRACES / "triton" / "sm_90" / "flash_attention.sass",
    TRACES / "triton" / "sm_100" / "matmul.sass",
    TRACES / "triton" / "sm_120" / "softmax.sass",
]
PROGRAMS: dict[Path, Program] = {}


def program(path: Path) -> Program:
    if path not in PROGRAMS:
        PROGRAMS[path] = analyzer.load(str(path))
    return PROGRAMS[path]


def predict(
    path: Path, gpu: str | None = None, trips: int = 16, ctas: int | None = None
) -> list[KernelReport]:
    options = Options(trip_rules=(TripCountRule(trips),), launch=Launch())
    grid = None if ctas is None else (ctas, 1, 1)
    return list(analyzer.analyze(program(path), gpu, grid=grid, options=options).kernels)


def first(kernel: KernelReport) -> PredictionEntry:
    return kernel.predictions[0]


@settings(max_examples=30)
@given(
    path=st.sampled_from(DUMPS),
    trips=st.integers(0, 30),
    ctas=st.one_of(st.none(), st.integers(1, 300)),
)
def test_stack_sums_to_cycles_and_interval_holds_the_estimate(
    path: Path, trips: int, ctas: int | None
) -> None:
    for kernel in predict(path, None, trips, ctas):
        entry = first(kernel)
        assert sum(entry.cpi_stack.values()) == pytest.approx(entry.cycles)
        assert all(cycles >= 0 for cycles in entry.cpi_stack.values())
        assert entry.time_us_low <= entry.time_us <= entry.time_us_high
        assert entry.time_us == pytest.approx(entry.cycles / entry.clock_mhz)


def test_order_of_kernels_changes_nothing(tmp_path: Path) -> None:
    text = DUMPS[0].read_text()
    head, *functions = re.split(r"(?=^\t\tFunction : )", text, flags=re.M)
    shuffled = tmp_path / "shuffled.sass"
    shuffled.write_text(head + "".join(reversed(functions)))
    before = {k.name: first(k).cycles for k in predict(DUMPS[0], "a100")}
    after = {k.name: first(k).cycles for k in predict(shuffled, "a100")}
    assert before == after


@pytest.mark.parametrize(
    ("mnemonic", "gpu", "cycles"),
    [
        ("HMMA.16816.F32", "a100", 8),  # AMALI section 4, A100
        ("HMMA.1688.F32", "a100", 4),
        ("HMMA.16816.F32", "rtx-3090", 32),  # GeForce: FP32 accumulation at half rate
        ("HMMA.16816.F16", "rtx-3090", 16),
        ("HGMMA.64x128x16.F32", "h100", 64),  # N / 2, MECHANISMS
        ("QGMMA.64x128x32.F32.E4M3.E4M3", "h100", 64),
        ("DMMA.884", "a100", 16),
        ("DMMA.884", "h100", 8),  # warps are the only ones to make it: no share of what warpgroups reach
        ("HMMA.SP.16832.F32", "a100", 8),
        # flashinfer-ai/flashinfer#3628: block scales escape the half rate of GeForce's FP32 accumulation
        ("QMMA.16832.F32.E4M3.E4M3", "rtx-5090", 32),
        ("QMMA.16832.F16.E4M3.E4M3", "rtx-5090", 16),
        ("QMMA.SF.16832.F32.E4M3.E4M3.E8", "rtx-5090", 16),
        ("QMMA.SF.16832.F32.E4M3.E4M3.E8", "rtx-5060-ti", 16),
        ("QMMA.SF.16832.F32.E4M3.E4M3.E8", "rtx-pro-6000-blackwell-server", 16),
        ("QMMA.16832.F32.E4M3.E4M3", "rtx-pro-6000-blackwell-server", 16),
        # mmapeak on an RTX 5090: FP6 at half of FP8's full rate, scaled or not, with either accumulator
        ("QMMA.SF.16832.F32.E3M2.E3M2.E8", "rtx-5090", 32),
        ("QMMA.16832.F16.E3M2.E3M2", "rtx-5090", 32),
        ("OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X", "rtx-5090", 16),
    ],
)
def test_tensor_initiation_intervals(mnemonic: str, gpu: str, cycles: float) -> None:
    opcode, part = resolve_opcode(mnemonic), load_gpu(gpu)
    assert opcode.mma_shape is not None
    assert part.arch is not None
    cost = compute_mma_issue_cycles(part, part.arch, opcode.sched_class, opcode.mma_shape)
    assert cost is not None
    assert cost.cycles == pytest.approx(cycles)


def test_tensor_bound_loop_sits_at_the_pipe_bound() -> None:
    """Triton's sm_80 matmul: HMMA cycles of the resident warps bind the K loop on a GPU of half rate."""
    (kernel,) = predict(DUMPS[1], "a40", 64, 1_000)
    loop = kernel.loops[0]
    assert kernel.mix["HMMA"] > 0
    assert loop.pipes["tensor"].cycles > 0
    assert loop.cycles_per_iteration is not None
    assert loop.cycles_per_iteration >= loop.bounds["tensor"] * (1 - 1e-9)


def test_dump_without_hex_words_is_analyzed_by_register_latencies(tmp_path: Path) -> None:
    text = re.sub(r" */\* 0x[0-9a-f]{16} \*/", "", DUMPS[1].read_text())
    plain = tmp_path / "plain.sass"
    plain.write_text(text)
    (with_hex,), (without,) = predict(DUMPS[1], "a100", 64), predict(plain, "a100", 64)
    assert without.mix == with_hex.mix
    assert not without.has_control_codes
    assert any("no control words" in note for note in first(without).assumptions)
    assert first(without).cycles == pytest.approx(first(with_hex).cycles, rel=0.6)


def test_trip_count_moves_time_in_proportion() -> None:
    # 324 CTAs are a full wave: how those of another one gather on the SMs does not matter
    short, long = (first(predict(DUMPS[1], "a100", trips, 324)[0]).cycles for trips in (100, 1000))
    assert 7.5 < long / short < 10.5


def test_known_tile_of_a_tensor_core_instruction_is_taken_from_its_descriptor() -> None:
    (kernel,) = predict(DUMPS[4], "b200", 64)
    assert kernel.mix["UTCHMMA"] > 0
    assert not [note for note in first(kernel).assumptions if "tcgen05" in note]


def test_a_pair_does_the_work_of_two_ctas_where_its_tile_is_not_known(tmp_path: Path) -> None:
    """One instruction multiplies on both SMs: twice the operations of one CTA's, in the same time of each."""

    def analyze(opcode: str) -> KernelReport:
        product = f"{opcode} gdesc[UR10], gdesc[UR12], tmem[UR27], tmem[UR28], idesc[UR29], UPT"
        dump = tmp_path / f"{opcode}.sass"
        lines = (f"        /*{16 * place:04x}*/  {text} ;\n" for place, text in enumerate((product, "EXIT")))
        dump.write_text(f"\tcode for sm_100a\n\t\tFunction : products\n{''.join(lines)}")
        (kernel,) = analyzer.analyze(str(dump), "b200").kernels
        return kernel

    one, pair = analyze("UTCHMMA"), analyze("UTCHMMA.2CTA")
    assert one.flops > 0
    assert (pair.flops, pair.tensor_fma) == (2 * one.flops, 2 * one.tensor_fma)
    assert pair.pipes["tc"].cycles == one.pipes["tc"].cycles


def test_launch_facts_replace_assumptions() -> None:
    options = Options(trip_rules=(TripCountRule(8),))
    report = analyzer.analyze(
        program(DUMPS[0]), "a100", grid=(1000, 1, 1), block=(128, 1, 1), options=options
    )
    notes = [note for kernel in report.kernels for note in first(kernel).assumptions]
    assert not [note for note in notes if "grid not given" in note or "block size not given" in note]
    assert report.kernels[0].counts.executed_warp_instructions is not None


@pytest.mark.parametrize(
    ("copy", "is_left_out"),
    [("UTCCP.T.S.4x32dp128bit tmem[UR9+0x100], gdesc[UR4]", False), ("UTMALDG.2D [UR4], [UR8]", True)],
)
def test_copies_within_the_sm_bring_no_bytes(tmp_path: Path, copy: str, is_left_out: bool) -> None:
    dump = tmp_path / "copies.sass"
    lines = (f"        /*{16 * place:04x}*/  {text} ;\n" for place, text in enumerate((copy, "EXIT")))
    dump.write_text(f"\tcode for sm_100a\n\t\tFunction : copies\n{''.join(lines)}")
    (kernel,) = analyzer.analyze(str(dump), "b200").kernels
    assert any("left out" in note for note in kernel.predictions[0].assumptions) is is_left_out
