"""Launches with next to no work against their durations on an H100 (traces/h100/short.jsonl.xz)."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from groundtruth.records import GPU, H200, read_event_times, read_lines, read_measurements
from paths import format_dump

import analyzer

TOLERANCE = 0.12


@cache
def read_durations_us() -> dict[str, float]:
    """Return the median durations by the profiler's interface, by case."""
    return {row["id"]: float(np.median(row["cupti"])) for row in read_lines("short") if "cupti" in row}


def predict_code_us(
    folder: Path, code: Sequence[str], ctas: int, threads: int, dynamic_shared_bytes: int
) -> float:
    """Predict a launch of these instructions."""
    dump = folder / "kernel.sass"
    dump.write_text(format_dump("sm_90", *code))
    launch = analyzer.Launch(
        grid=ctas, block=threads, dynamic_shared_bytes=dynamic_shared_bytes, timing="kernel"
    )
    (kernel,) = analyzer.analyze(str(dump), GPU, launch=launch).kernels
    return kernel.predictions[0].time_us


def predict_us(folder: Path, n_loads: int, ctas: int, threads: int) -> float:
    """Predict warps that load so many words from the L2, one after another."""
    loads = [
        line
        for place in range(n_loads)
        for line in (f"LDG.E.STRONG.GPU R6, desc[UR4][R4.64+{place * 0x1000:#x}]", "IADD3 R4, R4, R6, RZ")
    ]
    code = (
        "LDC R1, c[0x0][0x28]",
        "S2R R0, SR_CTAID.X",
        "S2R R3, SR_TID.X",
        f"IMAD R0, R0, {threads:#x}, R3",
        "IMAD.WIDE R4, R0, 0x4, RZ",
        *loads,
        "EXIT",
    )
    return predict_code_us(folder, code, ctas, threads, dynamic_shared_bytes=0)


@pytest.mark.parametrize("ctas", [1, 132, 1056])
@pytest.mark.parametrize("n_loads", [1, 4])
def test_a_chain_of_loads_takes_its_launch_and_their_latencies(
    tmp_path: Path, n_loads: int, ctas: int
) -> None:
    measured = read_durations_us()[f"chain/g{ctas}_b32_s0_k{n_loads}"]
    assert predict_us(tmp_path, n_loads, ctas, 32) == pytest.approx(measured, rel=TOLERANCE)


def test_a_launch_measured_again_has_the_least_of_its_medians() -> None:
    case = "t/softmax/bf16/128x512/b512_w4"
    (first,) = (row["time_us_warm_median"] for row in read_measurements(GPU) if row["case_id"] == case)
    rows = [row for row in read_lines("again") if row["id"] == case and "warm" in row]
    medians = [float(np.median(row["warm"])) for row in rows]
    assert len(medians) == 2
    assert read_event_times(GPU)[case].warm_us == min(medians) < first - 0.2  # the upper mode of events


def test_a_launch_measured_once_keeps_its_median() -> None:
    (once, *_) = (row for row in read_measurements(H200) if row["record"] == "measurement")
    found = read_event_times(H200)[once["case_id"]]
    assert (found.warm_us, found.cold_us) == (once["time_us_warm_median"], once["time_us_cold_median"])


def predict_loads_and_stores_us(folder: Path, n_loads: int, n_stores: int, ctas: int) -> float:
    """Predict CTAs, one to an SM, that load words one after another and store 4 KiB so many times."""
    loads = [
        f"LDG.E.STRONG.GPU R6, desc[UR4][R4.64+{place:#x}]" for place in range(0, n_loads << 12, 1 << 12)
    ]
    code = (
        "S2R R0, SR_CTAID.X",
        "S2R R3, SR_TID.X",
        "IMAD R0, R0, 0x2000, R3",
        "IMAD.WIDE R4, R0, 0x10, RZ",
        *(line for load in loads for line in (load, "IADD3 R8, R6, R8, RZ")),
        *(f"STG.E.128 desc[UR4][R4.64+{place << 12:#x}], R8" for place in range(n_stores)),
        "EXIT",
    )
    return predict_code_us(folder, code, ctas, threads=256, dynamic_shared_bytes=200_000)


def test_a_cta_keeps_its_slot_until_its_stores_have_left(tmp_path: Path) -> None:
    """A second CTA on each SM begins when the first one's 64 KiB are stored, not beside them."""
    loads, stores, both = (
        predict_loads_and_stores_us(tmp_path, *shape, 264)
        - predict_loads_and_stores_us(tmp_path, *shape, 132)
        for shape in ((8, 0), (0, 16), (8, 16))
    )
    assert both > 0.85 * (loads + stores)
