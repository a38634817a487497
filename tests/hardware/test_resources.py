"""The machine as resources: every figure belongs to one, and edits of resources obey simple laws."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from analyzer.hardware.derived_figures import DERIVATION_RULES, DerivationRule
from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_all_gpus, load_gpu
from analyzer.hardware.parameter_edits import (
    ParameterSetting,
    find_direction,
    find_hardware_parameter,
    parse_setting,
    with_settings,
)
from analyzer.hardware.parameter_paths import collect_parameters
from analyzer.hardware.resources import (
    RESOURCES,
    FigureRow,
    PerformanceDirection,
    Resource,
    Scaling,
    find_row,
    iterate_rows,
)
from analyzer.hardware.schema import Arch, GpuFile, HardwareParameter
from analyzer.text.errors import HardwareError, UsageError

SHIPPED = load_all_gpus()
ROLES = [(resource, role) for resource in RESOURCES for role in resource.roles]


def values(gpu: Gpu) -> dict[str, float]:
    return {key: figure.value for key, figure in collect_parameters(gpu).items()}


def edited(gpu: Gpu, *texts: str) -> Gpu:
    return with_settings(gpu, [parse_setting(text) for text in texts])


# ---- the table ---------------------------------------------------------------------------------


def walk_schema(kind: Any, key: str = "") -> Iterator[str]:
    """Yield the keys of the parameters that a value of a type can have."""
    if kind is HardwareParameter:
        yield key
    elif get_origin(kind) is Mapping and issubclass(get_args(kind)[0], Enum):
        for name in get_args(kind)[0]:
            yield from walk_schema(get_args(kind)[1], f"{key}.{name.value}")
    elif get_origin(kind) in {Union, UnionType}:
        yield from walk_schema(get_args(kind)[0], key)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        for field in msgspec.structs.fields(kind):
            if field.name != "constant_bank":
                yield from walk_schema(field.type, f"{key}.{field.name}" if key else field.name)


def test_every_figure_of_the_schema_belongs_to_one_resource() -> None:
    counts = Counter(row.key for resource in RESOURCES for row in resource.rows)
    assert set(counts) == {*walk_schema(GpuFile), *walk_schema(Arch)}
    assert set(counts.values()) == {1}


def test_relations_name_figures_of_the_table() -> None:
    for row in iterate_rows():
        named = {*row.follows, *(key for one in row.per for key in one.keys)}
        assert row.key not in named
        assert all(find_row(key) is not None for key in named), row.key
    for resource in RESOURCES:
        assert {row.key for row in resource.rows} >= set(resource.bases.values())


def test_rates_are_faster_the_larger_and_times_and_latencies_the_smaller() -> None:
    for row in iterate_rows():
        if row.scaling is Scaling.RATE:
            assert row.direction is PerformanceDirection.MORE_IS_FASTER
        if row.scaling in {Scaling.TIME, Scaling.LATENCY}:
            assert row.direction is PerformanceDirection.LESS_IS_FASTER
        if row.scaling is Scaling.SIZE:
            assert row.direction is PerformanceDirection.CAPACITY


@pytest.mark.parametrize(("resource", "role"), ROLES, ids=lambda one: getattr(one, "name", one))
def test_a_role_has_a_direction(resource: Resource, role: str) -> None:
    expected = {"latency": PerformanceDirection.LESS_IS_FASTER, "rate": PerformanceDirection.MORE_IS_FASTER}
    if role in expected:
        assert find_direction(f"{resource.name}.{role}") is expected[role]


# ---- laws of edits -----------------------------------------------------------------------------


@st.composite
def a_role(draw: st.DrawFn) -> tuple[Gpu, Resource, str]:
    """A GPU, and a resource with a role of which it has a figure."""
    gpu = draw(st.sampled_from(SHIPPED))
    resource, role = draw(st.sampled_from(ROLES))
    known = values(gpu)
    if role in resource.bases:
        assume(resource.bases[role] in known)
    elif role == "rate":
        assume(any(row.key in known and row.exponent for row in resource.rows))
    else:
        assume(any(known.get(row.key) and row.scaling == role for row in resource.rows))
    return gpu, resource, role


@given(a_role())
def test_twice_then_half_of_a_role_is_the_same_gpu(case: tuple[Gpu, Resource, str]) -> None:
    gpu, resource, role = case
    key = f"{resource.name}.{role}"
    after = edited(edited(gpu, f"{key}=x2"), f"{key}=x0.5")
    assert values(after) == pytest.approx(values(gpu))
    assert find_hardware_parameter(after, key).value == pytest.approx(find_hardware_parameter(gpu, key).value)


@given(a_role())
def test_a_role_moves_its_figures_and_no_others_of_its_resource(case: tuple[Gpu, Resource, str]) -> None:
    gpu, resource, role = case
    before, after = values(gpu), values(edited(gpu, f"{resource.name}.{role}=x2"))
    for row in resource.rows:
        if not before.get(row.key) or row.key in resource.bases.values():
            continue
        if role in {"latency", "size"}:
            exponent = int(row.scaling == role)
        else:
            exponent = row.exponent if role == "rate" or row.part == "rate" else 0
        moved = after[row.key] / before[row.key]
        follows = any(after.get(key) != before.get(key) for key in row.follows)
        assert moved == pytest.approx(2.0**exponent) or follows, row.key


def list_moving_rates() -> list[FigureRow]:
    return [row for row in iterate_rows() if row.scaling is Scaling.RATE and row.moves_part]


@given(st.sampled_from(SHIPPED), st.sampled_from(list_moving_rates()), st.sampled_from([0.5, 2.0, 3.0]))
def test_an_edit_of_a_rate_moves_all_of_its_part(gpu: Gpu, row: FigureRow, factor: float) -> None:
    before = values(gpu)
    assume(before.get(row.key))
    after = values(with_settings(gpu, [ParameterSetting(row.key, factor, is_factor=True)]))
    part = [other for other in iterate_rows() if (other.resource, other.part) == (row.resource, row.part)]
    assert row in part
    for other in part:
        if before.get(other.key):
            assert after[other.key] / before[other.key] == pytest.approx(factor**other.exponent), other.key


@given(st.sampled_from(SHIPPED), st.floats(0.5, 4.0))
def test_more_sms_leave_the_rates_of_the_whole_gpu(gpu: Gpu, factor: float) -> None:
    after = with_settings(gpu, [ParameterSetting("sms", factor, is_factor=True)])
    ratio = after.sm_count / gpu.sm_count
    old, new = values(gpu), values(after)
    for row in iterate_rows():
        if row.key in old and row.resource in {"l2", "dram", "links", "launch"} and not row.per:
            assert new[row.key] == old[row.key], row.key
    share = "memory.l2_bytes_per_cycle_per_sm"
    if share in old:
        assert new[share] * ratio == pytest.approx(old[share])
    for name in ("peak.fp32_tflops", "peak.bf16_tensor_tflops"):
        if name in old:
            assert new[name] == pytest.approx(old[name] * ratio)


@pytest.mark.parametrize("gpu", SHIPPED, ids=lambda gpu: gpu.key)
def test_twice_the_clock_is_twice_each_clock_and_peak_of_the_sms(gpu: Gpu) -> None:
    after, old = values(edited(gpu, "clock=x2")), values(gpu)
    faster = {key for key in old if key.startswith(("clock.", "peak.")) and key != "clock.tensor_share"}
    assert all(after[key] == pytest.approx(2 * old[key]) for key in faster)
    for row in iterate_rows():  # the L2 has a clock of its own: its rates and times stay
        if row.key in old and row.key not in faster:
            is_in_cycles = row.resource == "l2" and row.exponent and "_cycle" in row.key
            factor = 2.0**-row.exponent if is_in_cycles else 1.0
            assert after[row.key] == pytest.approx(factor * old[row.key]), row.key


def test_roles_of_a_resource_multiply_with_its_bases() -> None:
    gpu = load_gpu("h100")
    both = edited(gpu, "l2.rate=x2", "l2.units=x1.5")
    assert values(both)["l2.bandwidth_gbps"] == pytest.approx(3 * values(gpu)["l2.bandwidth_gbps"])
    own = edited(gpu, "l2.rate=x2", "l2.requests_per_us=x1")
    assert values(own)["l2.requests_per_us"] == values(gpu)["l2.requests_per_us"]


NO_ROLES = [
    ("a100", "l1.rate=2", UsageError, "l1.rate takes a factor alone", "write l1.rate=x2"),
    ("a100", "l1=2", UsageError, "l1.rate takes a factor alone", "write l1.rate=x2"),
    ("a100", "copy_engine.rate=x2", HardwareError, "A100-80GB SXM has no figure of copy_engine.rate", "--explain"),
    ("mi300x", "l1.rate=x2", HardwareError, "MI300X has no figure of l1.rate", "--explain"),
    ("a100", "l1.weight=x2", HardwareError, "A100-80GB SXM has no figure 'l1.weight'", "nearest: "),
    ("t4", "l2.clock=x2", HardwareError, "l2.clock_mhz is not known for T4", "l2.clock_mhz=VALUE"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "kind", "message", "hint"), NO_ROLES)
def test_a_role_that_cannot_be_edited_is_told(
    name: str, text: str, kind: type[UsageError | HardwareError], message: str, hint: str
) -> None:
    with pytest.raises(kind) as caught:
        edited(load_gpu(name), text)
    assert str(caught.value) == message
    assert hint in caught.value.diagnostic.hint


# ---- derived figures ---------------------------------------------------------------------------

# What was measured of derived figures: the sources stand in the notes of `l2.slice_efficiency`.
CHECKS = [
    ("h100", "l2.slice_gbps", 8300, 0.015),
    ("h100", "l2.requests_per_us", 133_000, 0.015),
    ("h200", "l2.requests_per_us", 153_000, 0.015),
]


@pytest.mark.parametrize(("name", "key", "measured", "tolerance"), CHECKS)
def test_a_rule_meets_what_was_measured(name: str, key: str, measured: float, tolerance: float) -> None:
    assert find_hardware_parameter(load_gpu(name), key).value == pytest.approx(measured, rel=tolerance)


@pytest.mark.parametrize("rule", DERIVATION_RULES, ids=lambda rule: rule.key)
def test_a_derived_figure_is_the_product_that_its_rule_says(rule: DerivationRule) -> None:
    gpu = load_gpu("h100")
    known = values(gpu)
    product = rule.constant * math.prod(known[key] for key in rule.inputs)
    assert known[rule.key] == pytest.approx(product)
    assert find_hardware_parameter(gpu, rule.key).source == f"derived: {rule}"
    for key in rule.inputs:
        after = values(with_settings(gpu, [ParameterSetting(key, 0.5, is_factor=True)]))
        assert after[rule.key] == pytest.approx(known[rule.key] / 2)
