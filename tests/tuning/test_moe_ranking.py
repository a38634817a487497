"""Ranking of fused-MoE configurations: the space, the facts, the model's terms, measured times."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.hardware.gpu_selection import find_gpus
from analyzer.operators.expert_tiles import count_row_blocks, load_tile_figures
from analyzer.pipeline.operator_prediction import predict
from analyzer.report.tune_schema import TuneRankReport
from analyzer.text.errors import HardwareError, InputError, UsageError
from analyzer.tuning.chosen_codes import load_chosen_codes
from analyzer.tuning.fused_moe_space import (
    CODE_COLUMNS,
    CONFIG_COLUMNS,
    KERNEL,
    MoeShape,
    list_configs,
    list_fitting_codes,
)
from analyzer.tuning.kernel_facts import list_shipped_archs, load_facts, load_shipped_facts, save_facts
from analyzer.tuning.moe_ranking import find_candidates, rank_configs, read_measurements
from analyzer.tuning.moe_time_model import make_time_model

DECODE = MoeShape(64, 64, 6, 3584, 1536)
PREFILL = MoeShape(4096, 64, 6, 3584, 1536)


def rank(shape: MoeShape, gpu: str, **options: object) -> TuneRankReport:
    return rank_configs(shape, find_gpus(gpu)[0], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_120"])
def test_facts_have_every_code_that_can_run(arch: str) -> None:
    gpu = find_gpus(
        {"sm_80": "a100", "sm_86": "a40", "sm_89": "l40s", "sm_90": "h800", "sm_120": "rtx-5090"}[arch]
    )[0]
    limits = gpu.arch.limits
    wanted = list_fitting_codes(int(limits.shared_bytes_per_sm.value), int(limits.shared_bytes_per_cta.value))
    facts = load_shipped_facts(KERNEL, arch)
    assert (facts.find_rows(np.array(wanted)) >= 0).all()
    assert (facts.get_column("registers") > 0).all()
    assert (facts.get_column("tensor_cycles") > 0).all()


def test_weights_that_fill_the_l2_are_mostly_read_from_it() -> None:
    """On an L40 (96 MiB) 100 MB of weights are read in 24.8 us; all of them from the DRAM would take 130."""
    fits, fills, exceeds = (
        rank(MoeShape(64, 8, 2, 4096, width), "l40").configurations[0].time_us for width in (704, 768, 896)
    )
    assert 22 < fits < 30
    assert fits < fills < 50
    assert exceeds > 130


def test_products_take_the_cycles_of_their_tile() -> None:
    facts = load_shipped_facts(KERNEL, "sm_80")
    rows, columns, depth = facts.codes[:, :3].T
    # A warp makes 16 x 8 at least: where there are more warps than such tiles, some do the same.
    repeated = np.maximum(1.0, facts.codes[:, 3] * 16 * 8 / (rows * columns))
    expected = rows * columns * depth / 1024.0 * repeated
    assert np.allclose(facts.get_column("tensor_cycles"), expected, rtol=0.02)


def test_a_table_is_written_and_read_alike(tmp_path) -> None:
    facts = load_shipped_facts(KERNEL, "sm_90")
    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    save_facts(facts, first)
    save_facts(load_facts(first), second)
    assert first.read_bytes() == second.read_bytes()
    assert (load_facts(second).values == facts.values).all()


def test_a_damaged_table_is_an_input_error(tmp_path) -> None:
    path = tmp_path / "facts.npz"
    path.write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(InputError, match="no table of compiled facts"):
        load_facts(path)


def test_a_gpu_without_facts_says_which_have_some() -> None:
    with pytest.raises(HardwareError, match="sm_75") as error:
        rank(DECODE, "t4")
    assert all(arch in error.value.diagnostic.hint for arch in list_shipped_archs(KERNEL))


@pytest.mark.parametrize("gpu", ["a100", "a40", "h800", "l20", "h20", "b200"])
def test_all_that_can_run_is_ranked_best_first(gpu: str) -> None:
    report = rank(PREFILL, gpu)
    times = [each.time_us for each in report.configurations]
    assert times == sorted(times)
    assert times[0] > 0
    assert len(report.configurations) + sum(report.pruned.values()) == report.enumerated
    assert [each.rank for each in report.configurations] == list(range(1, len(times) + 1))
    assert len({tuple(each.config.values()) for each in report.configurations}) == len(times)


def test_a_decode_batch_takes_its_weights_from_dram() -> None:
    best = rank(DECODE, "a100", top=1).configurations[0]
    weights = 64 * 2 * 1536 * 3584 * 2
    assert best.bound == "DRAM"
    assert 0.80 < weights / best.time_us / 1e3 / 2039 < 1.0
    assert best.config["BLOCK_SIZE_M"] == 16


def test_a_long_prefill_takes_large_tiles() -> None:
    best = rank(PREFILL, "h800", top=1).configurations[0]
    flops = 2 * 4096 * 6 * 2 * 1536 * 3584
    assert best.bound != "DRAM"
    assert best.config["BLOCK_SIZE_M"] >= 128
    assert 0.4 < flops / best.time_us / 1e6 / 989 < 0.9


def test_no_tile_is_taller_than_an_experts_padded_rows() -> None:
    for tokens, most in ((1, 16), (170, 16), (171, 32), (4096, 256)):
        report = rank(MoeShape(tokens, 64, 6, 2048, 512), "a100")
        assert max(each.config["BLOCK_SIZE_M"] for each in report.configurations) <= most


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9000), st.integers(1, 200), st.integers(1, 16), st.sampled_from([16, 32, 64, 128, 256]))
def test_row_blocks_are_those_of_balanced_routing(tokens: int, experts: int, topk: int, rows: int) -> None:
    shape = MoeShape(tokens, experts, min(topk, experts), 512, 256)
    counts = np.bincount(np.arange(shape.n_slots) % experts, minlength=experts)
    expected = int(np.ceil(counts / rows).sum())
    pairs, of_experts, block_m = (np.array([float(each)]) for each in (shape.n_slots, experts, rows))
    assert count_row_blocks(pairs, of_experts, block_m)[0] == expected


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4096), st.sampled_from([8, 60, 128]), st.sampled_from([1024, 2048, 4096]))
def test_twice_as_wide_takes_no_less(tokens: int, experts: int, hidden: int) -> None:
    gpu = find_gpus("a40")[0]
    model = make_time_model(gpu, load_shipped_facts(KERNEL, "sm_86"))
    narrow, wide = (MoeShape(tokens, experts, 4, hidden, width) for width in (1024, 2048))
    candidates = find_candidates(narrow, model)
    before = model.predict(narrow, candidates.configs, candidates.rows).time_us
    after = model.predict(wide, candidates.configs, candidates.rows).time_us
    assert (after >= before * 0.999).all()


def test_other_figures_count_where_they_are_given() -> None:
    model = make_time_model(find_gpus("a100")[0], load_shipped_facts(KERNEL, "sm_80"))
    candidates = find_candidates(DECODE, model)
    shipped = load_tile_figures().parameters
    slower = shipped | {"launch_us": shipped["launch_us"] + 5.0}
    before, after = (
        model.predict(DECODE, candidates.configs, candidates.rows, each).time_us for each in (None, slower)
    )
    assert np.allclose(after, before + 5.0)


@pytest.mark.parametrize("gpu", ["a100", "a40", "h800", "l40", "b200"])
def test_what_no_sweep_chose_is_left_out_and_counted_unless_all_is_asked_for(gpu: str) -> None:
    narrow, wide = rank(DECODE, gpu), rank(DECODE, gpu, lists_all=True)
    assert 10 <= len(narrow.configurations) < len(wide.configurations)
    (reason,) = set(narrow.pruned) - set(wide.pruned)
    assert "sweep" in reason
    assert len(narrow.configurations) + narrow.pruned[reason] == len(wide.configurations)
    times = {tuple(each.config.values()): each.time_us for each in wide.configurations}
    assert all(times[tuple(each.config.values())] == each.time_us for each in narrow.configurations)
    codes = load_chosen_codes()[16]
    assert {
        tuple(np.array([*each.config.values()])[list(CODE_COLUMNS)]) for each in narrow.configurations
    } <= codes


@pytest.mark.parametrize("gpu", ["a100-80gb-sxm", "a40", "h800-sxm"])
@pytest.mark.parametrize("tokens", [16, 512, 4096])
def test_the_default_configuration_takes_what_predict_says(gpu: str, tokens: int) -> None:
    """One reference: what is left between both is the learned correction and the code, compiled or estimated."""
    shape = MoeShape(tokens, 64, 6, 3072, 2048)
    default = (16, 32, 64, 1, 4, 3) if tokens <= 64 else (64, 64, 32, 8, 4, 3)
    ranked = {tuple(each.config.values()): each for each in rank(shape, gpu, lists_all=True).configurations}
    sizes = {"m": tokens, "experts": 64, "topk": 6, "hidden": 3072, "intermediate": 2048}
    predicted = predict("moe", gpu=gpu, dtype="bf16", which="w13", **sizes).predictions[0]
    assert ranked[default].time_us == pytest.approx(predicted.time_us, rel=0.15)


def test_measured_times_stand_and_scale_their_tile(tmp_path) -> None:
    plain = {tuple(each.config.values()): each.time_us for each in rank(DECODE, "a100").configurations}
    slow = next(iter(plain))
    path = tmp_path / "measured.csv"
    lines = [",".join((*CONFIG_COLUMNS, "M", "time_us"))]
    lines += [",".join(map(str, (*slow, 64, 2.0 * plain[slow]))), ",".join(map(str, (*slow, 65, 1.0)))]
    path.write_text("\n".join(lines) + "\n")
    report = rank(DECODE, "a100", measurements=read_measurements(path, DECODE))
    entries = {tuple(each.config.values()): each for each in report.configurations}
    assert entries[slow].basis == "measured"
    assert entries[slow].time_us_high is None
    assert entries[slow].time_us == pytest.approx(2.0 * plain[slow])
    assert sum(each.basis == "measured" for each in report.configurations) == 1
    ratios = {entries[config].time_us / plain[config] for config in plain}
    assert max(ratios) == pytest.approx(min(ratios)) == pytest.approx(2.0)
    assert any("1 measured" in each for each in report.assumptions)


def test_measurements_of_another_shape_are_an_input_error(tmp_path) -> None:
    path = tmp_path / "measured.csv"
    path.write_text(",".join((*CONFIG_COLUMNS, "M", "time_us")) + "\n16,64,128,1,4,3,7,5.0\n")
    with pytest.raises(InputError, match="no row of this shape"):
        read_measurements(path, DECODE)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (MoeShape(0, 8, 2, 64, 64), "--m 0"),
        (MoeShape(1, 8, 9, 64, 64), "--topk 9"),
        (MoeShape(1, 8, 2, -1, 64), "--hidden -1"),
        (MoeShape(1, 60000, 2, 1 << 20, 1 << 20), "TiB"),
        (MoeShape(1 << 40, 8, 2, 64, 64), "--m"),
    ],
)
def test_an_impossible_shape_is_one_error(shape: MoeShape, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rank(shape, "a100")


def test_the_space_has_what_the_frameworks_run_by_default() -> None:
    configs = {tuple(each) for each in list_configs(228 << 10).tolist()}
    assert {(64, 64, 32, 8, 4, 3), (16, 32, 64, 1, 4, 3)} <= configs
    assert len(CODE_COLUMNS) == 5
    assert max(each[5] for each in list_configs(100 << 10).tolist()) == 4


def test_what_triton_compiles_has_the_facts_that_are_shipped(tmp_path) -> None:
    pytest.importorskip("triton")
    from analyzer.tuning.fact_extraction import extract_facts
    from analyzer.tuning.triton_compilation import compile_codes, write_cubins

    code = (16, 64, 128, 4, 3)
    cubins = write_cubins(compile_codes([code], 80, "bf16", 1), tmp_path)
    made = extract_facts(KERNEL, "sm_80", find_gpus("a100")[0], "here", cubins)
    shipped = load_shipped_facts(KERNEL, "sm_80")
    assert made.values[0].tolist() == shipped.values[shipped.find_rows(np.array([code]))[0]].tolist()


def test_intervals_hold_the_time_and_widen_beyond_the_fastest_and_the_fitted_gpus() -> None:
    fitted, other = rank(DECODE, "a100").configurations, rank(DECODE, "l40s").configurations
    for entries in (fitted, other):
        assert all(each.time_us_low < each.time_us < each.time_us_high for each in entries)
    widths = [
        [each.time_us_high / each.time_us_low for each in (entries[0], entries[-1])]
        for entries in (fitted, other)
    ]
    assert widths[0][0] < widths[0][1]
    assert widths[0][0] < widths[1][0]
