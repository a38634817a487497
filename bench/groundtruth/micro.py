"""Micro-benchmarks beside the figures of hwdb: latencies, rates of pipes, memory."""

from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.hardware.gpu_database import load_arch, load_gpu
from analyzer.ir.scheduling import SchedClass, TensorRate
from groundtruth.records import GPU, Record, read_document

_SUB_CORES = 4


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A measured figure and ours."""

    name: str
    unit: str
    measured: float
    ours: float
    basis: str  # of ours

    @property
    def ratio(self) -> float:
        """Ours over measured."""
        return self.ours / self.measured


def _read_cases() -> Mapping[str, Record]:
    return {record["case_id"]: record for record in read_document("micro")["records"]}


# Template of a micro-benchmark, its scheduling class, and how many instructions of it stand in a template.
_OPERATIONS = {
    "FFMA": ("fp32", 1),
    "IADD3": ("int_add", 1),
    "IMAD": ("int_mul", 1),
    "IMAD_WIDE": ("int_mul_wide", 1),
    "SHF": ("int_logic", 1),
    "POPC": ("bit_count", 1),
    "HFMA2": ("fp16", 1),
    "DFMA": ("fp64", 1),
    "MUFU_EX2": ("special_function", 1),
    "F2I": ("convert", 1),
    "F2FP_BF16": ("pack_convert", 1),
    "F2F_F64_F32": ("convert_64", 2),
    "SHFL_IDX": ("shuffle", 1),
    "ATOMS_ADD": ("shared_atomic", 1),
    "ATOMG_ADD": ("global_atomic", 1),
}


def compare_figures() -> tuple[ComparedFigure, ...]:
    """Return all figures that both sides have."""
    cases = _read_cases()
    return (*_compare_operations(cases), *_compare_memory(cases), *_compare_tensor(cases))


def _compare_operations(cases: Mapping[str, Record]) -> list[ComparedFigure]:
    sched = load_arch("sm_90").sched
    found = []
    for template, (name, count) in _OPERATIONS.items():
        record, figures = cases[f"op/{template}"], sched[SchedClass(name)]
        best = max(row["templates_per_cycle_per_sm"] for row in record["by_warps"].values()) * count
        latency = record["latency_cycles_per_template"] / count
        issue, basis = figures.issue_cycles, figures.latency_cycles.basis
        lanes = 2 if name in ("fp32", "fp16") else 1  # two pipes take turns
        found.append(
            ComparedFigure(f"{template} latency", "cycles", latency, figures.latency_cycles.value, basis)
        )
        if issue.value and name != "global_atomic":
            ours = _SUB_CORES * lanes / issue.value
            found.append(ComparedFigure(f"{template} rate", "per cycle and SM", best, ours, issue.basis))
    return found


def _compare_memory(cases: Mapping[str, Record]) -> list[ComparedFigure]:
    gpu, arch = load_gpu(GPU), load_arch("sm_90")
    memory, file = arch.memory, gpu.file
    l2_latency = file.memory.l2_latency_cycles or memory.l2_latency_cycles
    dram_latency = file.memory.dram_latency_cycles or memory.dram_latency_cycles

    def chase(name: str) -> float:
        return float(cases[f"chase/{name}"]["latency_cycles"])

    def best(name: str) -> float:
        return float(cases[f"bandwidth/{name}"]["gb_per_s_best"])

    port = cases["l2/LDG_128_one_sm"]["by_warps"]["32"]["bytes_per_cycle_per_sm"]
    sched = arch.sched
    rows = [
        ("L1 latency", "cycles", chase("weak_64KB_lcg"), memory.l1_latency_cycles),
        ("L2 latency, 4 MiB", "cycles", chase("cg_4096KB_lcg"), l2_latency),
        ("L2 latency, 32 MiB", "cycles", chase("cg_32768KB_lcg"), l2_latency),
        ("DRAM latency", "cycles", chase("cg_262144KB_lcg"), dram_latency),
        (
            "LDS latency",
            "cycles",
            cases["smem/LDS_32_latency"]["latency_cycles"],
            sched[SchedClass.SHARED_LOAD].latency_cycles,
        ),
        (
            "LDSM.x4 latency",
            "cycles",
            cases["smem/LDSM_x4_latency"]["latency_cycles"],
            sched[SchedClass.SHARED_MATRIX].latency_cycles,
        ),
        ("L2 loads, 8 MiB in all", "GB/s", best("read_8MiB"), file.l2.bandwidth_gbps),
        ("L2 loads, 32 MiB in all", "GB/s", best("read_32MiB"), file.l2.bandwidth_gbps),
        ("one SM's loads from the L2", "bytes per cycle", port, memory.l2_port_bytes_per_cycle),
    ]
    found = [ComparedFigure(n, u, measured, ours.value, ours.basis) for n, u, measured, ours in rows if ours]
    dram = gpu.sustained_dram_gbps
    for kind in ("read", "copy", "write"):
        found.append(ComparedFigure(f"DRAM, {kind}", "GB/s", best(f"{kind}_2048MiB"), dram.value, dram.basis))
    return found


_TENSOR = {
    "HMMA_16816_F32_BF16": TensorRate.BF16,
    "HMMA_1688_F32_TF32": TensorRate.TF32,
    "IMMA_16832_S8": TensorRate.INT8,
}
_WARPGROUP = {
    "HGMMA_64x256x16_BF16": TensorRate.BF16,
    "QGMMA_64x256x32_E4M3": TensorRate.FP8,
    "HGMMA_64x64x16_BF16": TensorRate.BF16,
}


def _compare_tensor(cases: Mapping[str, Record]) -> list[ComparedFigure]:
    gpu, arch = load_gpu(GPU), load_arch("sm_90")
    rates = gpu.file.tensor
    share = arch.warp_mma_share
    found = []
    for name, kind in _TENSOR.items():
        rate = rates[kind].fma_per_cycle_per_sm
        best = max(row["fma_per_cycle_per_sm"] for row in cases[f"mma/{name}"]["by_warps"].values())
        ours = rate.value * (share.value if share else 1.0)
        found.append(ComparedFigure(name, "FMA per cycle and SM", best, ours, share.basis if share else ""))
    for name, kind in _WARPGROUP.items():
        rate = rates[kind].fma_per_cycle_per_sm
        record = cases[f"wgmma/{name}"]
        best = max(row["fma_per_cycle_per_sm"] for row in record["by_warpgroups"].values())
        found.append(ComparedFigure(name, "FMA per cycle and SM", best, rate.value, rate.basis))
    latency = arch.sched[SchedClass.MMA_HALF].latency_cycles
    chain = cases["mma/HMMA_16816_F32_BF16"]["latency_cycles"]
    found.append(ComparedFigure("HMMA.16816 latency", "cycles", chain, latency.value, latency.basis))
    return found
