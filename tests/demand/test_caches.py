"""The caches: closed forms, a reference that steps sector by sector, and kernels whose rates follow by hand."""

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from analyzer.demand.cache_simulation import (
    CacheHierarchy,
    GridReuse,
    build_cache_hierarchy,
    simulate_caches,
)
from analyzer.demand.hit_rates import KernelHitRates, MemoryLatencies
from analyzer.demand.l1_policies import L1Policy, find_l1_policy
from analyzer.demand.pending_fills import CacheFillTiming
from analyzer.demand.sectored_cache import CacheGeometry, compute_set_indices, find_hits
from analyzer.execution.traces.address_streams import AddressStream
from analyzer.hardware.gpu_database import load_arch
from analyzer.ir.scheduling import SchedClass
from analyzer.isa.opcode_table import resolve_opcode

LINE, SECTOR = 128, 32
LATENCIES = MemoryLatencies(30.0, 200.0, 500.0)
BIG = CacheGeometry(size_bytes=1 << 24, line_bytes=LINE, sector_bytes=SECTOR, ways=16)


def shape(n_lines: int, ways: int, *, hashes_sets: bool = False) -> CacheGeometry:
    return CacheGeometry(
        size_bytes=n_lines * LINE,
        line_bytes=LINE,
        sector_bytes=SECTOR,
        ways=ways,
        has_hashed_sets=hashes_sets,
    )


def stream(
    sectors: Sequence[int],
    rows: Sequence[int] | None = None,
    requests: Sequence[int] | None = None,
    words: int | Sequence[int] = 0xFF,
    turns: Sequence[int] | None = None,
    warps: Sequence[int] | None = None,
) -> AddressStream:
    """One sector a request, touched whole, all of row 0 and by one warp, unless said otherwise."""
    n = len(sectors)
    return AddressStream(
        ctas=(0,),
        warps_per_cta=1,
        rows=np.array(rows if rows is not None else [0] * n, dtype=np.int32),
        warps=np.array(warps if warps is not None else [0] * n, dtype=np.int32),
        sectors=np.array(sectors, dtype=np.uint64) * np.uint64(SECTOR),
        word_masks=np.full(n, words, dtype=np.uint8),
        is_store=np.zeros(n, dtype=np.bool_),
        request_numbers=np.array(requests if requests is not None else range(n), dtype=np.int64),
        l1_epochs=np.zeros(n, dtype=np.int64),
        issue_indices=np.array(turns if turns is not None else range(n), dtype=np.int64),
        unknown_requests=(),
        speculative_rows=(),
    )


def simulate(
    sectors: Sequence[int],
    l1: CacheGeometry,
    *,
    rows: Sequence[int] | None = None,
    policies: Sequence[L1Policy] = (L1Policy.READ_ALLOCATE,),
    requests: Sequence[int] | None = None,
    reuse: GridReuse | None = None,
) -> KernelHitRates:
    return simulate_caches(stream(sectors, rows, requests), policies, CacheHierarchy(l1, BIG), reuse)


# ---- closed forms ------------------------------------------------------------------------------------


def test_a_stream_that_fits_misses_once_a_sector() -> None:
    rates = simulate([*range(64)] * 5, shape(16, 4)).by_row[0]
    assert rates.l1_hit_rate == 4 / 5
    assert rates.l2_hit_rate == 0.0
    assert (rates.n_requests, rates.n_sectors) == (320, 320)


@pytest.mark.parametrize("ways", [1, 4, 16])
def test_a_cyclic_sweep_over_one_line_too_many_never_hits(ways: int) -> None:
    lines = 16 + 16 // ways  # each set gets one more than it holds
    rates = simulate([4 * line for line in range(lines)] * 4, shape(16, ways)).by_row[0]
    assert rates.l1_hit_rate == 0.0
    assert rates.l2_hit_rate == 3 / 4


def test_another_sector_of_a_line_that_is_there_misses() -> None:
    rates = simulate([0, 1, 2, 3, 0, 1, 2, 3], shape(4, 4)).by_row[0]
    assert rates.l1_hit_rate == 1 / 2


def test_an_evicted_line_takes_all_its_sectors_along() -> None:
    found = hits_of([0, 1, 4, 0, 1], shape(1, 1))
    assert found == [False, False, False, False, False]


def test_stores_beyond_the_sm_do_not_put_sectors_in_and_serve_nothing() -> None:
    policies = (L1Policy.WRITE_NO_ALLOCATE, L1Policy.READ_ALLOCATE)
    rates = simulate([0, 0, 0, 0], shape(4, 4), rows=[0, 1, 0, 1], policies=policies)
    assert rates.by_row[0].l1_hit_rate == 0.0
    assert rates.by_row[1].l1_hit_rate == 1 / 2  # by the first load, not by the store
    assert rates.by_row[1].l2_hit_rate == 1.0


def test_other_stores_put_sectors_in() -> None:
    rates = simulate(
        [0, 0], shape(4, 4), rows=[0, 1], policies=(L1Policy.WRITE_ALLOCATE, L1Policy.READ_ALLOCATE)
    )
    assert rates.by_row[0].l1_hit_rate == 0.0
    assert rates.by_row[1].l1_hit_rate == 1.0


def test_what_goes_beyond_the_l1_neither_hits_nor_fills() -> None:
    rates = simulate(
        [0, 0, 0], shape(4, 4), rows=[0, 0, 1], policies=(L1Policy.BYPASS, L1Policy.READ_ALLOCATE)
    )
    assert rates.by_row[0].l1_hit_rate == 0.0
    assert rates.by_row[0].l2_hit_rate == 1 / 2
    assert rates.by_row[1].l1_hit_rate == 0.0


def test_looking_up_alone_hits_what_others_put_in() -> None:
    rates = simulate(
        [0, 0, 0], shape(4, 4), rows=[0, 1, 0], policies=(L1Policy.READ_NO_ALLOCATE, L1Policy.READ_ALLOCATE)
    )
    assert rates.by_row[0].l1_hit_rate == 1 / 2
    assert rates.by_row[1].l1_hit_rate == 0.0


def test_no_room_for_a_line_is_no_cache() -> None:
    assert simulate([0] * 5, shape(0, 4)).by_row[0].l1_hit_rate == 0.0


def test_an_empty_stream_has_no_rates() -> None:
    rates = simulate([], shape(4, 4))
    assert (rates.by_row, rates.loads, rates.total) == ({}, None, None)
    assert rates.compute_amat_cycles(0, LATENCIES) is None


def test_a_request_waits_for_its_slowest_sector() -> None:
    rates = simulate([0, 0, 1], shape(4, 4), requests=[0, 1, 1])
    found = rates.by_row[0]
    assert (found.n_requests, found.n_sectors, found.l1_hit_rate) == (2, 3, 1 / 3)
    assert (found.l1_request_share, found.l2_request_share, found.dram_request_share) == (0.0, 0.0, 1.0)
    assert rates.compute_amat_cycles(0, LATENCIES) == 500.0


def test_who_asks_for_what_is_on_its_way_waits_for_the_rest_of_its_trip() -> None:
    figures = CacheHierarchy(
        shape(4, 4),
        BIG,
        fill_timing=CacheFillTiming(l2_fill_cycles=200, warp_turn_cycles=2, request_issue_cycles=4),
    )
    policies = (L1Policy.READ_ALLOCATE,)
    by_two = partial(stream, [0, 0], warps=[0, 1])
    side_by_side = simulate_caches(by_two(turns=[7, 7]), policies, figures).by_row[0]
    assert side_by_side.l1_hit_rate == 0.5
    assert (side_by_side.l1_request_share, side_by_side.dram_request_share) == pytest.approx((0.01, 0.99))
    half_way = simulate_caches(by_two(turns=[7, 57]), policies, figures).by_row[0]
    assert (half_way.l1_request_share, half_way.dram_request_share) == pytest.approx((0.25, 0.75))
    later = simulate_caches(by_two(turns=[7, 107]), policies, figures).by_row[0]
    assert (later.l1_request_share, later.dram_request_share) == (0.5, 0.5)
    not_brought = simulate_caches(stream([0, 0], turns=[7, 7]), (L1Policy.READ_NO_ALLOCATE,), figures).by_row[
        0
    ]
    assert (not_brought.l1_hit_rate, not_brought.l1_request_share) == (0.0, 0.0)


def test_a_loop_waits_once_for_each_sector() -> None:
    """The same load again: its register has got the word; another load of the warp may come before that."""
    figures = CacheHierarchy(
        shape(4, 4),
        BIG,
        fill_timing=CacheFillTiming(l2_fill_cycles=200, warp_turn_cycles=1, request_issue_cycles=1),
    )
    policies = (L1Policy.READ_ALLOCATE,) * 2
    again = simulate_caches(stream([0] * 4, turns=[0, 5, 10, 15]), policies, figures).by_row[0]
    assert again.l1_request_share == pytest.approx(3 / 4)
    others = simulate_caches(stream([0, 0], [0, 1], turns=[0, 5]), policies, figures).by_row[1]
    assert others.l1_request_share < 0.1
    copies = replace(stream([0] * 2, turns=[0, 5]), is_copy=np.ones(2, dtype=np.bool_))
    assert simulate_caches(copies, policies, figures).by_row[0].l1_request_share < 0.1
    # Warp 1 waited at the load itself after warp 0 had missed, so the fill is over when it comes again.
    shared = stream([0, 0, 0], turns=[0, 0, 5], warps=[0, 1, 1])
    assert simulate_caches(shared, policies, figures).by_row[0].l1_request_share == pytest.approx(
        1 / 3, abs=0.01
    )


def test_resident_warps_take_turns_while_a_sector_comes() -> None:
    arch = load_arch("sm_75")
    asked = partial(
        build_cache_hierarchy, arch, l2_bytes=1 << 20, shared_bytes_in_use=0, ctas_per_sm=4, n_recorded=2
    )
    assert asked().fill_timing is None
    found = asked(warps_per_cta=8, l2_latency_cycles=300).fill_timing
    assert found is not None
    assert (found.l2_fill_cycles, found.warp_turn_cycles) == (300, 8)
    assert found.request_issue_cycles == arch.sched[SchedClass.GLOBAL_LOAD].issue_cycles.value / 2


def test_other_sms_bring_in_what_the_grid_shares() -> None:
    sectors = [*range(64)]
    own = simulate(sectors, shape(16, 4)).by_row[0]
    assert own.compute_amat_cycles(LATENCIES) == 500.0
    shared = simulate(sectors, shape(16, 4), reuse=GridReuse({0: 1 / 8})).by_row[0]
    assert shared.l2_hit_rate == pytest.approx(7 / 8)
    assert shared.compute_amat_cycles(LATENCIES) == pytest.approx(200 * 7 / 8 + 500 / 8)
    again = simulate(sectors, shape(16, 4), reuse=GridReuse({0: 1 / 8}, {}, 1e6, 4e6)).by_row[0]
    assert again.l2_hit_rate == pytest.approx(1 / 2)  # read again by each wave: it does not fit
    never = simulate(sectors, shape(16, 4), reuse=GridReuse({0: 1 / 8}, {}, 1e6, 4e8)).by_row[0]
    assert never == own


def test_who_waits_for_the_fill_of_another_waits_as_long_as_that_does() -> None:
    """A table of two words that each of 40 CTAs of a warp reads in whole, a word by each of two loads: four waves."""
    figures = CacheHierarchy(
        shape(4, 4),
        BIG,
        fill_timing=CacheFillTiming(l2_fill_cycles=200, warp_turn_cycles=0, request_issue_cycles=0),
    )
    read, policies = stream([0, 0], [0, 1], turns=[0, 1]), (L1Policy.READ_ALLOCATE,) * 2
    table = GridReuse({0: 1 / 40}, {0: 40.0, 1: 40.0}, n_ctas=40.0, n_waves=4.0)
    found = simulate_caches(read, policies, figures, table).by_row[1]
    assert (found.l1_hit_rate, found.l2_request_share, found.dram_request_share) == (1.0, 0.75, 0.25)
    tile = replace(table, distinct_share={0: 1 / 10})  # of four words, one for each ten CTAs
    assert simulate_caches(read, policies, figures, tile).by_row[1].dram_request_share == 1.0


def test_a_load_that_was_not_recorded_does_as_those_that_load_the_same() -> None:
    read = replace(stream([0, 0, 4, 4], [0, 0, 1, 1]), stop_reason="more than 4 sectors")
    policies, caches = (L1Policy.READ_ALLOCATE,) * 4, CacheHierarchy(shape(4, 4), BIG)
    same, other = (64.0, 1.0), (128.0, 1.0)
    reuse = GridReuse({}, patterns={0: same, 1: same, 2: same, 3: other})
    found = simulate_caches(read, policies, caches, reuse).by_row
    assert found[2].l1_hit_rate == found[0].l1_hit_rate == 1 / 2
    assert 3 not in found
    whole = replace(read, stop_reason="")
    assert 2 not in simulate_caches(whole, policies, caches, reuse).by_row


def test_what_an_l2_full_of_others_loses_comes_again() -> None:
    """Of 64 sectors that are read twice, none is found again where others fill the L2."""
    sectors = [*range(64), *range(64)]
    read = stream([4 * sector for sector in sectors])
    reuse = GridReuse({0: 0.5}, {0: 128.0}, 64.0, 64.0)
    policies = (L1Policy.READ_ALLOCATE,)
    alone = CacheHierarchy(shape(4, 4), BIG)
    crowded = alone.with_l2_contention(read, 64 * BIG.size_bytes / BIG.sector_bytes, 1.0)
    assert simulate_caches(read, policies, alone, reuse).by_row[0].dram_share == 0.5
    assert crowded.contended_l2 is not None
    assert crowded.contended_l2.size_bytes < BIG.size_bytes // 32
    assert simulate_caches(read, policies, crowded, reuse).by_row[0].dram_share == 1.0
    roomy = alone.with_l2_contention(read, 64.0, 1.0)
    assert roomy.contended_l2 is None


def test_sectors_touched_in_part_are_more_than_their_bytes() -> None:
    figures, reuse = CacheHierarchy(shape(16, 4), BIG), GridReuse({0: 1 / 8})
    found = simulate_caches(stream([*range(64)], words=0b1), (L1Policy.READ_ALLOCATE,), figures, reuse)
    assert found.by_row[0].dram_share == 1.0  # one word in eight
    found = simulate_caches(stream([*range(64)], words=0b11000011), (L1Policy.READ_ALLOCATE,), figures, reuse)
    assert found.by_row[0].dram_share == pytest.approx(1 / 4)


def test_a_rim_finds_the_sectors_that_tiles_bring() -> None:
    """Those who touch whole sectors bring them; rims bring what is left, no more than comes in all."""
    both = stream([*range(128)], rows=[0] * 64 + [1] * 64, words=[0xFF] * 64 + [0b1] * 64)
    figures, policies = CacheHierarchy(shape(16, 4), BIG), (L1Policy.READ_ALLOCATE, L1Policy.READ_ALLOCATE)
    for n_sectors, shares in ((48, (3 / 4, 0)), (64, (1, 0)), (68, (1, 1 / 16)), (1e6, (1, 1))):
        reuse = GridReuse({}, {0: 64, 1: 64}, dram_sectors=n_sectors)
        found = simulate_caches(both, policies, figures, reuse).by_row
        assert (found[0].dram_share, found[1].dram_share) == pytest.approx(shares)


def test_columns_of_words_bring_each_word_once() -> None:
    """Nothing brings whole sectors of which they could be the rim."""
    both = stream([*range(128)], rows=[0] * 64 + [1] * 64, words=0b1)
    figures, policies = CacheHierarchy(shape(16, 4), BIG), (L1Policy.READ_ALLOCATE, L1Policy.READ_ALLOCATE)
    for n_sectors, share in ((4, 1 / 4), (16, 1), (64, 1)):
        reuse = GridReuse({}, {0: 64, 1: 64}, dram_sectors=n_sectors)
        found = simulate_caches(both, policies, figures, reuse).by_row
        assert (found[0].dram_share, found[1].dram_share) == pytest.approx((share, share))


def test_loads_that_no_recorded_cta_comes_to_bring_their_part() -> None:
    """A mask's first tiles skip the loop that asks for most of the grid's sectors."""
    reuse = GridReuse({}, {0: 64, 1: 576}, dram_sectors=64)
    found = simulate_caches(
        stream([*range(64)]),
        (L1Policy.READ_ALLOCATE, L1Policy.READ_ALLOCATE),
        CacheHierarchy(shape(16, 4), BIG),
        reuse,
    ).by_row
    assert set(found) == {0}
    assert found[0].dram_share == pytest.approx(0.1)


def test_shared_memory_and_ctas_that_are_not_recorded_take_their_part_of_the_l1() -> None:
    arch = load_arch("sm_80")
    whole = build_cache_hierarchy(arch, l2_bytes=1 << 20, shared_bytes_in_use=0, ctas_per_sm=4, n_recorded=4)
    assert whole.l1.size_bytes == arch.memory.l1_shared_bytes_per_sm.value
    part = build_cache_hierarchy(
        arch, l2_bytes=1 << 20, shared_bytes_in_use=40_000, ctas_per_sm=4, n_recorded=1
    )
    assert part.l1.size_bytes == (arch.memory.l1_shared_bytes_per_sm.value - 65536) / 4
    assert part.l2.size_bytes == 1 << 20


def test_the_driver_cuts_the_l1_in_steps() -> None:
    """A Turing SM has no more than 64 KB of L1, though it may ask for no shared memory."""
    sizes = {
        (name, used): build_cache_hierarchy(
            load_arch(name), l2_bytes=1, shared_bytes_in_use=used, ctas_per_sm=1, n_recorded=1
        ).l1.size_bytes
        for name, used in (("sm_75", 0), ("sm_75", 33_000), ("sm_70", 240), ("sm_90", 233_472))
    }
    assert list(sizes.values()) == [65_536, 32_768, 122_880, 28_672]


# ---- routes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mnemonic", "route"),
    [
        ("LDG.E", L1Policy.READ_ALLOCATE),
        ("LDG.E.CONSTANT.SYS", L1Policy.READ_ALLOCATE),
        ("LDG.E.STRONG.SM", L1Policy.READ_ALLOCATE),
        ("LDG.E.STRONG.GPU", L1Policy.BYPASS),
        ("LDG.E.64.STRONG.SYS", L1Policy.BYPASS),
        ("LDG.E.NA.128", L1Policy.READ_NO_ALLOCATE),
        ("LDL", L1Policy.READ_ALLOCATE),
        ("LDGSTS.E.128", L1Policy.READ_ALLOCATE),
        ("LDGSTS.E.BYPASS.LTC128B.128", L1Policy.BYPASS),
        ("STG.E.STRONG.GPU", L1Policy.WRITE_NO_ALLOCATE),
        ("STL.64", L1Policy.WRITE_ALLOCATE),
        ("STG.E.128", L1Policy.WRITE_ALLOCATE),
        ("ATOMG.E.ADD.STRONG.GPU", L1Policy.BYPASS),
        ("REDG.E.ADD.STRONG.GPU", L1Policy.BYPASS),
    ],
)
def test_routes(mnemonic: str, route: L1Policy) -> None:
    assert find_l1_policy(resolve_opcode(mnemonic)) is route


# ---- against a reference -----------------------------------------------------------------------------


def hits_of(sectors: Sequence[int], cache: CacheGeometry, fills: Sequence[bool] | None = None) -> list[bool]:
    n = len(sectors)
    given_fills = np.array(fills if fills is not None else [True] * n, dtype=np.bool_)
    found = find_hits(np.array(sectors, np.uint64) * np.uint64(SECTOR), np.arange(n), given_fills, cache)
    return [bool(hit) for hit in found]


def reference(sectors: Sequence[int], cache: CacheGeometry, fills: Sequence[bool]) -> list[bool]:
    """One sector after the other, lists of (line, sectors) from least to most recently used."""
    sets: dict[int, OrderedDict[int, set[int]]] = {}
    found = []
    for sector, fill in zip(sectors, fills, strict=True):
        line = sector * SECTOR // LINE
        number = int(compute_set_indices(np.array([line], dtype=np.uint64), cache)[0])
        held = sets.setdefault(number, OrderedDict())
        found.append(line in held and sector in held[line])
        if line not in held and fill:
            if len(held) == cache.lines_per_set:
                del held[next(iter(held))]
            held[line] = set()
        if line in held:
            held[line] = held.pop(line) | ({sector} if fill else set())
    return found


@given(
    st.lists(st.tuples(st.integers(0, 120), st.booleans()), max_size=200),
    st.sampled_from([(1, 1), (4, 2), (8, 8), (12, 4), (3, 8), (64, 4)]),
    st.booleans(),
)
def test_hits_are_those_of_the_reference(
    accesses: list[tuple[int, bool]], size: tuple[int, int], hashes_sets: bool
) -> None:
    sectors, fills = [sector for sector, _ in accesses], [fill for _, fill in accesses]
    cache = shape(*size, hashes_sets=hashes_sets)
    assert hits_of(sectors, cache, fills) == reference(sectors, cache, fills)


@given(st.lists(st.integers(0, 200), min_size=1, max_size=100), st.sampled_from([1, 4, 16]))
def test_shares_sum_and_more_l1_never_costs_an_associative_cache(sectors: list[int], n_lines: int) -> None:
    small, large = (simulate(sectors, shape(n, n)).by_row[0] for n in (n_lines, 2 * n_lines))
    assert small.l1_hit_rate <= large.l1_hit_rate
    assert large.compute_amat_cycles(LATENCIES) <= small.compute_amat_cycles(LATENCIES) + 1e-9
    for rates in (small, large):
        assert rates.l1_request_share + rates.l2_request_share + rates.dram_request_share == pytest.approx(
            1.0
        )
        assert rates.l1_hit_rate + rates.l1_miss_rate * rates.l2_hit_rate + rates.dram_share == pytest.approx(
            1
        )


@given(st.integers(0, 1 << 40), st.sampled_from([1, 3, 32, 128, 4096, 1 << 20]))
def test_hashed_sets_take_any_stride_evenly(first: int, stride: int) -> None:
    cache = shape(24 * 64, 64, hashes_sets=True)
    lines = (np.arange(24 * 40, dtype=np.uint64) * np.uint64(stride) + np.uint64(first)).astype(np.uint64)
    loads = np.bincount(compute_set_indices(lines, cache), minlength=24)
    assert loads.max() <= 64
