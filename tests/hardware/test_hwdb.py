"""The shipped figures: complete, sourced, and in keeping with what the vendors print."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from _pytest.mark.structures import ParameterSet
from paths import HWDB

from analyzer.hardware.gpu import Gpu, find_sched_timing
from analyzer.hardware.gpu_database import (
    find_gpu_paths,
    list_known_archs,
    load_all_gpus,
    load_arch,
    load_gpu,
    normalize_gpu_name,
    strip_arch_suffix,
)
from analyzer.hardware.schema import Arch, HardwareParameter, SchedClassTiming
from analyzer.ir.scheduling import SchedClass, TensorRate
from analyzer.isa.opcode_table import load_opcode_table

ARCHS = sorted(path.stem for path in (HWDB / "arch").glob("*.toml"))
GPUS = sorted(path.stem for path in (HWDB / "gpu").glob("*.toml"))
CHIPS = sorted(path.stem for path in (HWDB / "chip").glob("*.toml"))
OF_THE_DIE = {"schema", "vendor", "chip", "arch", "support", "sources", "tensor", "l2", "launch", "operators"}
LANES = 32


def figures(value: object, path: str = "") -> Iterator[tuple[str, HardwareParameter]]:
    """Every figure of a file, with its key path."""
    if isinstance(value, HardwareParameter):
        yield path, value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from figures(getattr(value, name), f"{path}.{name}".strip("."))
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from figures(inner, f"{path}.{key}".strip("."))


def is_source(text: str, listed: dict[str, str]) -> bool:
    """An id of the file's sources, or words that name one; an id that is not listed is neither."""
    return text in listed or len(text.split()) > 1


@pytest.fixture(autouse=True)
def _no_user_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARPLENS_HWDB", str(tmp_path))


def test_files_are_found() -> None:
    assert set(list_known_archs()) == set(ARCHS)
    assert set(find_gpu_paths()) == set(GPUS)
    assert len(ARCHS) >= 10
    assert len(GPUS) >= 30


@pytest.mark.parametrize("name", ARCHS)
def test_every_class_is_either_described_or_unsupported(name: str) -> None:
    arch = load_arch(name)
    described, unsupported = set(arch.sched), set(arch.unsupported)
    assert len(arch.unsupported) == len(unsupported), "a class is listed twice"
    own = tomllib.loads((HWDB / "arch" / f"{name}.toml").read_text(encoding="utf-8"))
    assert unsupported.isdisjoint(own.get("sched", {})), "a class is described and unsupported in one file"
    assert described | unsupported == set(SchedClass)
    assert described & unsupported == set(), "unsupported, and yet figures come down from the parent"


@pytest.mark.parametrize("name", ARCHS)
def test_arch_is_what_it_says(name: str) -> None:
    arch = load_arch(name)
    assert arch.name == name
    assert load_arch(f"{name}a") is load_arch(f"{name}a")
    if arch.typical_gpu is not None:
        gpu = load_gpu(arch.typical_gpu)
        assert gpu.arch is not None
        assert gpu.arch.name == name


@pytest.mark.parametrize("name", ARCHS)
def test_arch_figures_have_sources_and_sense(name: str) -> None:
    arch = load_arch(name)
    found = list(figures(arch))
    assert len(found) > 100
    for path, figure in found:
        assert is_source(figure.source, arch.sources), f"{path}: source {figure.source!r}"
        assert figure.value >= 0, path
    assert all(text.strip() for text in arch.sources.values())
    for sched, row in arch.sched.items():
        mma = sched.value.startswith("mma_")
        assert mma or row.issue_cycles.value > 0 or sched is SchedClass.FRONTEND, sched
        assert row.latency_cycles.value > 0 or sched in (SchedClass.FRONTEND,), sched
        assert row.alternate_pipe is not row.pipe, sched
    limits, memory = arch.limits, arch.memory
    assert limits.shared_bytes_per_cta.value <= limits.shared_bytes_per_sm.value
    assert limits.shared_bytes_per_sm.value <= memory.l1_shared_bytes_per_sm.value
    assert limits.registers_per_sm.value % limits.subcores_per_sm.value == 0
    assert memory.l1_latency_cycles.value < memory.l2_latency_cycles.value < memory.dram_latency_cycles.value
    assert 0 < arch.warp_mma_share.value <= 1


def test_every_class_of_the_opcode_table_exists_on_some_arch() -> None:
    used = {row.sched for row in load_opcode_table().opcode.values()}
    used |= {rule.sched for row in load_opcode_table().opcode.values() for rule in row.when if rule.sched}
    described = {sched for name in ARCHS for sched in load_arch(name).sched}
    assert used <= described


@pytest.mark.parametrize("name", ARCHS)
def test_an_unsupported_class_is_taken_as_unknown(name: str) -> None:
    arch = load_arch(name)
    for sched in arch.unsupported:
        if sched not in arch.sched:
            assert find_sched_timing(arch, sched) is arch.sched[SchedClass.UNKNOWN]
    assert find_sched_timing(arch, SchedClass.FP32) is arch.sched[SchedClass.FP32]


@pytest.mark.parametrize("key", GPUS)
def test_gpu_figures_have_sources_and_sense(key: str) -> None:
    gpu = load_gpu(key)
    assert gpu.key == key
    found = list(figures(gpu.file))
    assert len(found) >= 8
    for path, figure in found:
        assert is_source(figure.source, gpu.file.sources), f"{path}: source {figure.source!r}"
        assert figure.value >= 0, path
    assert gpu.sm_count >= 1
    assert 500 < gpu.find_clock_mhz(tensor=None).value < 4000
    memory = gpu.file.memory
    best = memory.sustained_gbps or memory.bandwidth_gbps
    assert best.value <= memory.bandwidth_gbps.value * 1.02
    assert memory.streaming_gbps is None or memory.streaming_gbps.value <= best.value
    assert gpu.sustained_dram_gbps.value <= best.value
    assert (gpu.arch is None) == (gpu.file.support == "operators")


# ---- chips -------------------------------------------------------------------------------------


def read(kind: str, key: str) -> dict[str, object]:
    return tomllib.loads((HWDB / kind / f"{key}.toml").read_text(encoding="utf-8"))


def test_products_inherit_from_chips_alone() -> None:
    parents = {key: read("gpu", key)["inherits"] for key in GPUS}
    assert {key: parent for key, parent in parents.items() if parent not in CHIPS} == {}
    assert set(CHIPS) == set(parents.values()), "a chip without a product"
    assert set(CHIPS).isdisjoint(GPUS), "a name that is a product and a chip"


@pytest.mark.parametrize("key", CHIPS)
def test_a_chip_says_what_its_products_share(key: str) -> None:
    chip = read("chip", key)
    assert chip["schema"] == "warplens/chip/1"
    assert set(chip) <= OF_THE_DIE, "what is a product's stands in its own file"
    assert str(chip["chip"]).lower().split()[0] == key


@pytest.mark.parametrize("key", GPUS)
def test_a_product_says_nothing_twice(key: str) -> None:
    product = read("gpu", key)
    chip = dict(leaves(read("chip", str(product["inherits"]))))
    assert [path for path, value in leaves(product) if chip.get(path) == value] == []


def leaves(table: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Every figure and word of a file as it is written, with its key path."""
    if isinstance(table, dict) and "value" not in table:
        for key, inner in table.items():
            yield from leaves(inner, f"{path}.{key}".strip("."))
    else:
        yield path, table


# ---- peaks -------------------------------------------------------------------------------------

TENSOR_PEAKS = {
    "fp64_tensor_tflops": TensorRate.F64,
    "tf32_tensor_tflops": TensorRate.TF32,
    "fp16_tensor_tflops": TensorRate.F16,
    "bf16_tensor_tflops": TensorRate.BF16,
    "fp8_tensor_tflops": TensorRate.FP8,
    "int8_tensor_tops": TensorRate.INT8,
    "fp4_tensor_tflops": TensorRate.FP4,
}
VECTOR_PEAKS = {
    "fp64_tflops": (SchedClass.FP64, 1),
    "fp32_tflops": (SchedClass.FP32, 1),
    "fp16_tflops": (SchedClass.FP16, 2),
}
NVIDIA = [gpu for gpu in load_all_gpus() if gpu.file.vendor == "NVIDIA"]
_TOLERANCE = 0.03


def printed_peaks(gpu: Gpu) -> Iterator[tuple[str, HardwareParameter]]:
    for name in gpu.file.peak.__struct_fields__:
        figure: HardwareParameter | None = getattr(gpu.file.peak, name)
        if figure is not None:
            yield name, figure


def lanes_per_sm(arch: Arch, row: SchedClassTiming) -> float:
    pipes = 1 if row.alternate_pipe is None else 2
    return LANES / row.issue_cycles.value * pipes * arch.limits.subcores_per_sm.value


def computed_tflops(gpu: Gpu, name: str) -> list[float]:
    """SMs x rate x clock, at the boost clock and at the clock of the printed tensor peaks."""
    clocks = [gpu.file.clock.boost_mhz.value]
    if gpu.file.clock.tensor_mhz is not None:
        clocks.append(gpu.file.clock.tensor_mhz.value)
    if name in TENSOR_PEAKS:
        row = gpu.file.tensor.get(TENSOR_PEAKS[name])
        if row is None:
            return []
        fma = row.fma_per_cycle_per_sm.value
    else:
        sched, per_lane = VECTOR_PEAKS[name]
        if gpu.arch is None:
            return []
        fma = lanes_per_sm(gpu.arch, gpu.arch.sched[sched]) * per_lane
    return [gpu.sm_count * fma * 2 * mhz * 1e-6 for mhz in clocks]


def _peak_case(gpu: Gpu, name: str, figure: HardwareParameter) -> ParameterSet:
    return pytest.param(gpu, name, figure, id=f"{gpu.key}-{name}")


PEAKS = [_peak_case(gpu, name, figure) for gpu in NVIDIA for name, figure in printed_peaks(gpu)]


@pytest.mark.parametrize(("gpu", "name", "figure"), PEAKS)
def test_printed_peak_follows_from_the_rates(gpu: Gpu, name: str, figure: HardwareParameter) -> None:
    computed = computed_tflops(gpu, name)
    if not computed:
        assert gpu.arch is None or figure.note, "a peak is printed, but no rate gives it"
        return
    near = min(abs(value / figure.value - 1) for value in computed)
    assert near <= _TOLERANCE or figure.note, f"printed {figure.value}, computed {computed}"


# ---- names -------------------------------------------------------------------------------------


def test_aliases_are_unique_and_no_key_of_another() -> None:
    owner: dict[str, str] = {}
    for key, path in find_gpu_paths().items():
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        for alias in {normalize_gpu_name(alias) for alias in table.get("aliases", ())} | {key}:
            assert alias not in owner, f"{alias}: {key} and {owner[alias]}"
            owner[alias] = key
    assert len(owner) > len(GPUS)


def test_every_alias_and_full_name_finds_its_file() -> None:
    for key, path in find_gpu_paths().items():
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        for alias in table.get("aliases", ()):
            assert load_gpu(alias).key == key
            assert load_gpu(alias.upper()).key == key
    assert load_gpu("NVIDIA GeForce RTX 3080 Laptop GPU").key == "rtx-3080-laptop"


FORGIVING = [
    ("h100", "h100-sxm"),
    ("H100", "h100-sxm"),
    ("NVIDIA H100 PCIe", "h100-pcie"),
    ("rtx_4090", "rtx-4090"),
    ("RTX 4090", "rtx-4090"),
    ("NVIDIA GeForce RTX 4090", "rtx-4090"),
    ("  geforce rtx-4090 ", "rtx-4090"),
    ("4090", "rtx-4090"),
    ("Tesla T4", "t4"),
    ("Tesla V100", "v100-sxm2"),
    ("NVIDIA RTX A6000", "rtx-a6000"),
    ("AMD Instinct MI300X", "mi300x"),
    ("b200", "b200"),
]


@pytest.mark.parametrize(("name", "key"), FORGIVING)
def test_names_are_forgiving(name: str, key: str) -> None:
    assert load_gpu(name).key == key


def test_feature_suffixes_share_the_figures() -> None:
    assert (strip_arch_suffix("sm_90a"), strip_arch_suffix("sm_100f"), strip_arch_suffix("sm_89")) == (
        "sm_90",
        "sm_100",
        "sm_89",
    )
    assert load_arch("sm_90a") == load_arch("sm_90")


def test_gpus_come_in_order_of_architecture() -> None:
    gpus = load_all_gpus(kernels_only=True)
    numbers = [int(gpu.file.arch.removeprefix("sm_")) for gpu in gpus]
    assert numbers == sorted(numbers)
    assert len(load_all_gpus()) == len(GPUS) > len(gpus)
