"""Where spilled registers are served: what all threads touch between two touches of a slot, against caches."""

from pathlib import Path

import numpy as np
import pytest
from kernel_launches import KernelLaunch, make_model_input
from paths import format_dump

from analyzer.models.sm.spill_reuse import SpillAccesses, measure_spill_reuse

# An RTX 2080 Ti has 96 KB of L1 and some 81 KB of L2 for each SM; one CTA of 1,024 threads runs there.
THREADS = 1024


def spilled(tmp_path: Path, *lines: str) -> SpillAccesses:
    path = tmp_path / "spilled.sass"
    path.write_text(format_dump("sm_75", *lines, "EXIT"))
    return measure_spill_reuse(
        make_model_input(KernelLaunch(path, "kernel", "rtx-2080-ti", (68,), (THREADS,)))
    )


def stored(n: int, step: int = 4) -> list[str]:
    return [f"STL [R1+{step * place:#x}], R2" for place in range(n)]


def loaded(n: int, step: int = 4) -> list[str]:
    return [f"LDL.LU R2, [R1+{step * place:#x}]" for place in range(n)]


def test_words_that_are_loaded_at_once_stay_in_the_l1(tmp_path: Path) -> None:
    pairs = [line for pair in zip(stored(100), loaded(100), strict=True) for line in pair]
    found = spilled(tmp_path, *pairs)
    assert found.l1_miss_rate.max() == found.dram_share.max() == found.added_latency_cycles.max() == 0.0
    assert found.is_local.sum() == 200


def test_what_is_stored_past_the_l1_is_written_back_from_the_l2(tmp_path: Path) -> None:
    """Loaded at once, 250 words of 135,168 threads stay in an H100's L1; its L2 of 50 MB holds less than half."""
    path = tmp_path / "stored.sass"
    pairs = [line for pair in zip(stored(250), loaded(250), strict=True) for line in pair]
    path.write_text(format_dump("sm_90", *pairs, "EXIT"))
    found = measure_spill_reuse(
        make_model_input(KernelLaunch(path, "kernel", "h100-sxm", (132,), (THREADS,)))
    )
    assert found.dram_share[0:500:2].min() >= 0.5
    assert found.dram_share[1:500:2].max() == 0.0


def test_words_that_are_far_apart_come_from_dram(tmp_path: Path) -> None:
    """100 words of 1,024 threads are 400 KB, more than the L1 and the SM's part of the L2; words that were
    loaded for the last time make room for the others.
    """
    found = spilled(tmp_path, *stored(100), *loaded(100))
    assert found.dram_share[:60] == pytest.approx(np.ones(60))
    assert found.dram_share[100:160] == pytest.approx(np.ones(60))
    assert found.dram_share[199] == 0.0


def test_a_frame_that_the_l2_holds_does_not_reach_dram(tmp_path: Path) -> None:
    """Four words are 16 KB, a fifth of either cache."""
    found = spilled(tmp_path, *stored(4), *loaded(4))
    assert found.dram_share.max() == 0.0


@pytest.mark.parametrize("load", ["LDG.E", "LDG.E.STRONG.GPU"])
def test_what_passes_the_l1_between_two_touches_pushes_words_out(tmp_path: Path, load: str) -> None:
    """80 loads bring 320 KB, into the L1 unless they bypass it."""
    found = spilled(tmp_path, *stored(4), *[f"{load} R4, [R6]"] * 80, *loaded(4))
    assert (found.l1_miss_rate.max() > 0.5) == (load == "LDG.E")


def test_words_that_are_touched_all_the_time_stay_in_the_l1(tmp_path: Path) -> None:
    """The same 320 KB, but 4 KB between two touches of a word."""
    again = [line.replace(".LU", "") for line in loaded(4)]
    found = spilled(tmp_path, *stored(4), *["LDG.E R4, [R6]", *again] * 80)
    assert found.l1_miss_rate.max() == found.dram_share.max() == 0.0


def test_a_wide_access_touches_each_of_its_words(tmp_path: Path) -> None:
    narrow = spilled(tmp_path, *stored(40), *loaded(40))
    lines = (*stored(10, 16), *loaded(10, 16))
    found = spilled(tmp_path, *(line.replace("STL", "STL.128").replace(".LU", ".LU.128") for line in lines))
    assert found.dram_share[0] == pytest.approx(narrow.dram_share[:4].mean(), abs=0.1)


def test_code_without_spills_has_none(tmp_path: Path) -> None:
    assert not spilled(tmp_path, "MOV R2, R3").is_local.any()
