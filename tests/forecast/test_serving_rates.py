"""Rates of a GPU: given, measured, or by the rule of power, size and process."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.forecast.deployment import Deployment, Framework
from analyzer.forecast.serving_rates import compute_rates, find_rates
from analyzer.hardware.gpu_database import find_gpu_paths, load_gpu
from analyzer.hardware.parameter_edits import parse_setting, with_settings
from analyzer.hardware.schema import PeakThroughput
from analyzer.hardware.serving_figures import load_serving_figures
from analyzer.ir.scheduling import Basis
from analyzer.operators.names import DataType
from analyzer.operators.sustained_rates import (
    compute_power_limited_tflops,
    find_peak_tflops,
    find_sustained_tflops,
)
from analyzer.text.errors import HardwareError

# The rule's worst are those whose clock exceeds the datasheet's (GeForce) or whose cooler and power are least (A10).
_BEYOND_RULE = {"a10": 0.5, "rtx-5090": 0.2}


@pytest.mark.parametrize("key", sorted(find_gpu_paths()))
def test_every_gpu_has_rates(key):
    gpu = load_gpu(key)
    rates = compute_rates(gpu)
    assert 0 < rates.sustained.tensor_tflops <= 1.2 * find_peak_tflops(gpu)
    for dtype in DataType:
        assert rates.sustained.find(dtype) > 0
    assert all(figure.source for figure in rates.figures)


def test_what_the_user_measured_goes_first():
    a100 = load_gpu("a100")
    given_rates = find_rates(Deployment(gpu=a100, gemm_tflops=200.0))
    given = given_rates.sustained
    assert (given.tensor_tflops, given.origin.basis) == (200.0, Basis.MEASURED)
    known = compute_rates(a100)
    assert known.sustained.origin.basis is Basis.MEASURED
    assert 240 < known.sustained.tensor_tflops < 260
    ruled = compute_rates(a100, uses_measured=False)
    assert ruled.sustained.origin.basis is Basis.ASSUMED
    assert ruled.spreads.tensor > known.spreads.tensor


@pytest.mark.parametrize("entry", load_serving_figures().measured, ids=lambda entry: entry.gpu)
def test_the_rule_is_near_what_was_measured(entry):
    found = find_sustained_tflops(load_gpu(entry.gpu), uses_measured=False).value
    assert found == pytest.approx(entry.tflops.value, rel=_BEYOND_RULE.get(entry.gpu, 0.16))


def _with_tdp(gpu, factor):
    power = gpu.file.power
    tdp = msgspec.structs.replace(power.tdp_w, value=power.tdp_w.value * factor)
    file = msgspec.structs.replace(gpu.file, power=msgspec.structs.replace(power, tdp_w=tdp))
    return msgspec.structs.replace(gpu, file=file)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["a100", "a40", "l40s", "l20", "h100", "h20", "b200"]), st.floats(0.3, 4.0))
def test_more_power_is_a_higher_rate_up_to_the_ceiling(name, factor):
    gpu, figures = load_gpu(name), load_serving_figures()
    ruled, stronger = (
        find_sustained_tflops(g, uses_measured=False).value
        for g in (_with_tdp(gpu, factor), _with_tdp(gpu, 1.3 * factor))
    )
    ceiling = figures.tensor.ceiling.value * find_peak_tflops(gpu)
    assert ruled <= stronger * (1 + 1e-12)
    assert stronger <= ceiling
    limited = compute_power_limited_tflops(_with_tdp(gpu, factor), figures)
    assert ruled <= limited


def test_power_limits_tensor_cores_at_half_rate_less():
    """L40 and L40S are one chip; L40's tensor cores run at half the rate, so its power suffices for most of it."""
    l40, l40s = (find_sustained_tflops(load_gpu(name), uses_measured=False).value for name in ("l40", "l40s"))
    assert l40 / find_peak_tflops(load_gpu("l40")) > 0.8
    assert l40s / find_peak_tflops(load_gpu("l40s")) < 0.6


def test_a_gpu_without_tensor_peak_or_power():
    gpu = load_gpu("a100")
    bare = msgspec.structs.replace(gpu, file=msgspec.structs.replace(gpu.file, power=None))
    found = find_sustained_tflops(bare, uses_measured=False)
    assert found.basis is Basis.ASSUMED
    assert found.value == pytest.approx(0.75 * 312)
    file = msgspec.structs.replace(gpu.file, peak=PeakThroughput(), tensor={}, power=None)
    with pytest.raises(HardwareError, match="neither a tensor peak nor"):
        find_sustained_tflops(msgspec.structs.replace(gpu, file=file), uses_measured=False)


def test_figures_name_their_sources():
    figures = load_serving_figures()
    keys = set(figures.sources)
    for entry in figures.measured:
        assert entry.tflops.source in keys
        load_gpu(entry.gpu)
    for table in (
        figures.tensor,
        figures.transfer,
        figures.host,
    ):
        for name in table.__struct_fields__:
            assert getattr(table, name).source in keys, name


def test_kernels_are_less_certain_where_no_run_taught():
    taught = compute_rates(load_gpu("a40")).spreads
    for gpu in ("rtx-3090", "b200", "t4"):  # without ECC, and of other architectures
        found = compute_rates(load_gpu(gpu)).spreads
        assert found.rows > taught.rows
        assert found.weights > taught.weights


def test_a_framework_without_runs_is_assumed_to_take_the_taught_ones_time():
    gpu = load_gpu("h100")
    taught, other = (compute_rates(gpu, framework=framework) for framework in Framework)
    assert taught.decode_host_us == other.decode_host_us
    assert other.spreads.host > taught.spreads.host
    bases = {figure.name: figure.basis for figure in other.figures}
    assert bases["framework's time per decode step"] is Basis.ASSUMED


@pytest.mark.parametrize("gpu", ["h100", "l40s", "t4"])
def test_an_edit_moves_a_measured_rate_as_much_as_the_rule(gpu):
    plain = load_gpu(gpu)
    rate = find_sustained_tflops(plain).value
    for edit, least, most in (("tensor=x2", 1.2, 2.0), ("power.tdp_w=x0.5", 0.5, 0.9), ("dram=x2", 1.0, 1.0)):
        edited = with_settings(plain, (parse_setting(edit),))
        assert least <= find_sustained_tflops(edited).value / rate <= most, edit
