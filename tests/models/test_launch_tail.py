"""The last wave of a launch, and how CTAs follow each other on an SM."""

import pytest
from msgspec.structs import replace
from test_sm import FIGURES, script_of

from analyzer.models.sm.launch_tail import SmLoad, estimate_waves
from analyzer.models.sm.resource_demand import StepKind
from analyzer.models.sm.sm_simulator import simulate_ctas

N_SMS, N_WARPS, ROUNDS = 132, 4, 50
DRAM_CYCLES, ISSUE_CYCLES = 80.0, 60.0  # of a warp's round; of the DRAM where all SMs load
ALONE = replace(FIGURES, role_by_warp=(0,), max_iterations=ROUNDS)


def find_load(n_ctas: int, n_slots: int = 1) -> SmLoad:
    mean = n_ctas / N_SMS
    busiest = -(-n_ctas // N_SMS)
    return SmLoad(busiest, n_slots, mean, mean / busiest, min_l2_share=0.5)


def estimate(n_ctas: int) -> float:
    """Return the cycles of so many CTAs on SMs of one slot."""
    load = find_load(n_ctas)
    fetch: dict[str, object] = {
        "kind": int(StepKind.LOAD),
        "l2_cycles": 0.1,
        "dram_cycles": DRAM_CYCLES * load.mean_load_share,
        "write_scoreboard": 0,
    }
    work: dict[str, object] = {
        "issue_slots": ISSUE_CYCLES,
        "stall_cycles": ISSUE_CYCLES,
        "wait_scoreboards": (0,),
    }
    script = script_of(*[fetch, work] * ROUNDS)
    figures = replace(ALONE, role_by_warp=(0,) * N_WARPS)
    return estimate_waves((script,), figures, load).cycles


def test_last_wave_has_the_shares_that_it_leaves_unused() -> None:
    """A CTA among few is bound by its own work, one of a full wave by the DRAM; each wave has its own time."""
    full = estimate(N_SMS)
    assert full == pytest.approx(N_WARPS * ROUNDS * DRAM_CYCLES, rel=0.1)
    assert estimate(2 * N_SMS) == pytest.approx(2 * full, rel=0.05)
    assert estimate(N_SMS + 1) == pytest.approx(full + ROUNDS * ISSUE_CYCLES, rel=0.1)
    times = [estimate(N_SMS + n) for n in (1, 40, 80, 120, N_SMS)]
    assert times == sorted(times)


@pytest.mark.parametrize("n_slots", [1, 2])
def test_next_cta_begins_a_turn_after_the_last_one_has_ended(n_slots: int) -> None:
    figures = replace(ALONE, ctas_per_sm=n_slots, cta_turnover_cycles=300.0)
    work = script_of({"issue_slots": 1.0, "stall_cycles": 1000.0})
    assert simulate_ctas((work,), figures, 4 * n_slots).cycles == pytest.approx(4 * 1000 + 3 * 300, rel=0.01)


def test_ends_of_ctas_are_counted_one_by_one() -> None:
    """All begin at once and end at once, but the last end is known only after so many intervals."""
    work = script_of({"issue_slots": 1.0, "stall_cycles": 1000.0})
    figures = replace(ALONE, ctas_per_sm=8, cta_start_interval_cycles=20.0)
    apart = replace(figures, cta_end_interval_cycles=150.0)
    assert simulate_ctas((work,), figures, 8).cycles == pytest.approx(1000 + 7 * 20, rel=0.01)
    assert simulate_ctas((work,), apart, 8).cycles == pytest.approx(1000 + 7 * 150, rel=0.01)
