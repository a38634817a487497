"""Hold counts of abstract execution against Nsight Compute's, per SASS instruction and per kernel.

Counts per instruction are exact on both sides, so that any difference has a reason; `DIFFERENCES` names the
known ones. Per-kernel counters of caches and DRAM are what a simulation of caches predicts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from statistics import median

from msgspec import Struct
from msgspec.structs import replace

import analyzer
from analyzer.evaluation.case_table import Case, make_launch, read_cases
from analyzer.pipeline.loaded_program import Program
from analyzer.report.analyze_schema import KernelReport, MemoryEntry
from groundtruth.cached import find_or_make
from groundtruth.launch_table import write_launches
from groundtruth.records import CODE, GPU, MeasuredLaunch, Record, read_launches, read_lines

# Columns of the source page, and what `analyze` calls them.
COLUMNS = {
    "inst_executed": "executions",
    "thread_inst_executed": "threads",
    "pred_on_thread_inst_executed": "predicated threads (memory instructions)",
    "l1_tag_requests_global": "requests, global",
    "l2_theoretical_sectors_global": "sectors, global",
    "l2_theoretical_sectors_global_ideal": "ideal sectors, global",
    "l1_wavefronts_shared": "wavefronts, shared",
    "l1_wavefronts_shared_ideal": "ideal wavefronts, shared",
}
_GLOBAL_COLUMNS = {
    "l1_tag_requests_global": "requests",
    "l2_theoretical_sectors_global": "sectors",
    "l2_theoretical_sectors_global_ideal": "ideal_sectors",
}
_SHARED_COLUMNS = {"l1_wavefronts_shared": "wavefronts", "l1_wavefronts_shared_ideal": "ideal_wavefronts"}


class Difference(Struct, frozen=True, kw_only=True):
    """A count that differs."""

    case: str
    column: str
    address: int
    instruction: str
    measured: float
    found: float | None  # None where the report has no number
    executions: int  # measured


class ComparedKernel(Struct, frozen=True, kw_only=True):
    """One profiled launch: counts that were compared by column, what differs, and counters of the whole."""

    case: str
    family: str
    provenance: str
    addresses: str  # provenance of the addresses
    compared: Mapping[str, int]
    differences: tuple[Difference, ...]
    measured: Mapping[str, float]  # Nsight Compute's metrics by our name
    predicted: Mapping[str, float]  # the same names
    stalls_measured: Mapping[str, float]  # shares of the samples
    stalls_predicted: Mapping[str, float]
    ncu_us: float
    sm_us: float
    registers: tuple[int, int]  # measured, ours


def compare_kernels() -> tuple[ComparedKernel, ...]:
    """Return all profiled kernels whose cubins are there; those of libraries are left out."""
    launches = {launch.case: launch for launch in read_launches()}
    counted = {record["case_id"]: record for record in read_lines("ncu") if record["record"] == "ncu"}
    pages = {record["case_id"]: record for record in read_lines("source_counts")}
    cases = sorted(case for case in counted if case in launches and case in pages)
    rows = _read_rows(launches[case] for case in cases)
    return tuple(_compare(launches[case], rows[case], counted[case], pages[case]) for case in cases)


def _read_rows(launches: Iterable[MeasuredLaunch]) -> dict[str, Case]:
    """Return the launches as rows of a table with a cold L2 and Nsight Compute's timing."""
    table = CODE / "profiled.csv"
    CODE.mkdir(parents=True, exist_ok=True)
    write_launches(table, launches, (0.0, 0.0))
    cold = (case for case in read_cases(table) if case.l2 == "cold")
    return {case.name.removesuffix(" (cold)"): replace(case, timing="ncu") for case in cold}


def _compare(launch: MeasuredLaunch, case: Case, counted: Record, page: Record) -> ComparedKernel:
    key = [case.execution_key, str(case.l2), case.timing, counted, page, _RESULT_VERSION]
    return find_or_make(
        [launch.cubin, *case.data_files],
        key,
        ComparedKernel,
        lambda: _compare_now(launch, case, counted, page),
    )


@lru_cache(maxsize=2)
def _load(path: Path) -> Program:
    return analyzer.load(str(path))


def _compare_now(launch: MeasuredLaunch, case: Case, counted: Record, page: Record) -> ComparedKernel:
    options = analyzer.Options(kernels=(launch.kernel,), launch=make_launch(case), listing=True)
    report = analyzer.analyze(_load(launch.cubin), gpu=GPU, options=options).kernels[0]
    rows = [dict(zip(page["columns"], row, strict=True)) for row in page["rows"]]
    compared: Counter[str] = Counter()
    differences = []
    for column, row, found in _pair_counts(report, rows):
        compared[column] += 1
        if found is None or found != row[column]:
            differences.append(
                Difference(
                    case=launch.case,
                    column=column,
                    address=row["pc_offset"],
                    instruction=row["sass"].strip(),
                    measured=row[column],
                    found=found,
                    executions=row["inst_executed"],
                )
            )
    prediction = report.predictions[0]
    metrics = counted["metrics"]
    busy = {k: v for k, v in prediction.cpi_stack.items() if k not in ("launch", "idle")}
    return ComparedKernel(
        case=launch.case,
        family=launch.family,
        provenance=report.counts.provenance,
        addresses=report.counts.addresses,
        compared=compared,
        differences=tuple(differences),
        measured=_list_measured(metrics),
        predicted=_list_predicted(report),
        stalls_measured=_share_samples(metrics),
        stalls_predicted={stall: cycles / sum(busy.values()) for stall, cycles in busy.items()},
        ncu_us=metrics["gpu__time_duration.sum"] / 1e3,
        sm_us=prediction.time_us,
        registers=(metrics["launch__registers_per_thread"], report.registers or 0),
    )


# ---- counts per instruction --------------------------------------------------------------------------


def _pair_counts(report: KernelReport, rows: Iterable[Record]) -> Iterator[tuple[str, Record, float | None]]:
    """Yield column, measured row and our count of all that is compared."""
    executed = {entry.address: entry.executed_warps for entry in report.listing}
    lanes = {
        address: block.active_lanes
        for block in report.counts.blocks
        for address in range(block.start, block.end, 16)
    }
    memory: dict[int, list[MemoryEntry]] = defaultdict(list)
    for access in report.memory:
        memory[access.address].append(access)
    for row in rows:
        address = row["pc_offset"]
        yield "inst_executed", row, executed.get(address)
        yield "thread_inst_executed", row, lanes.get(address)
        for access in memory[address]:
            yield from _pair_access(access, row)


def _pair_access(access: MemoryEntry, row: Record) -> Iterator[tuple[str, Record, float | None]]:
    if access.space in ("global", "shared") and "UBLKCP" not in access.opcode:
        yield "pred_on_thread_inst_executed", row, access.lanes
    if access.space == "global":
        for column, field in _GLOBAL_COLUMNS.items():
            yield column, row, getattr(access, field)
    if access.space == "shared" or access.opcode.startswith("LDGSTS"):
        for column, field in _SHARED_COLUMNS.items():
            yield column, row, getattr(access, field)


# ---- counters of the whole kernel --------------------------------------------------------------------

_RESULT_VERSION = 1  # of what is kept on disk: to be raised when the comparison changes
MIN_COMPARED = 1000  # of a counter; smaller ones are noise
METRICS = {
    "instructions": "smsp__inst_executed.sum",
    "pipe alu": "sm__inst_executed_pipe_alu.sum",
    "pipe fma": "sm__inst_executed_pipe_fma.sum",
    "pipe adu": "sm__inst_executed_pipe_adu.sum",
    "pipe cbu": "sm__inst_executed_pipe_cbu.sum",
    "pipe lsu": "sm__inst_executed_pipe_lsu.sum",
    "pipe xu": "sm__inst_executed_pipe_xu.sum",
    "pipe tensor": "sm__inst_executed_pipe_tensor.sum",
    "pipe uniform": "sm__inst_executed_pipe_uniform.sum",
    "global load sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global store sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "global load requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global store requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "L2 sectors": "lts__t_sectors.sum",
    "DRAM bytes": "",  # read and written
}


def _list_measured(metrics: Record) -> dict[str, float]:
    found = {name: metrics[metric] for name, metric in METRICS.items() if metric and metrics.get(metric)}
    return found | {"DRAM bytes": metrics["dram__bytes_read.sum"] + metrics["dram__bytes_write.sum"]}


def _list_predicted(report: KernelReport) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for entry in report.listing:
        executed = entry.executed_warps or 0
        found["instructions"] += executed
        pipe = {"fmalite": "fma"}.get(entry.pipe, entry.pipe)
        found[f"pipe {pipe}"] += executed
    for access in report.memory:
        if access.space != "global" or access.sectors is None:
            continue
        kind = "load" if access.opcode.startswith("LD") else "store"
        found[f"global {kind} sectors"] += access.sectors
        found[f"global {kind} requests"] += access.requests or 0
    light = report.predictions[0].speed_of_light
    if light is not None:
        levels = {entry.level: entry.bytes for entry in light.memory}
        found["DRAM bytes"] = levels.get("DRAM", 0.0)
        found["L2 sectors"] = levels.get("L2", 0.0) / _SECTOR_BYTES
    return dict(found)


_SECTOR_BYTES = 32
_STALL_PREFIX, _STALL_SUFFIX = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"


def _share_samples(metrics: Record) -> dict[str, float]:
    """Return the shares of the cycles of a resident warp by stall, in our names."""
    found = {
        name.removeprefix(_STALL_PREFIX).removesuffix(_STALL_SUFFIX): value
        for name, value in metrics.items()
        if name.startswith(_STALL_PREFIX) and name.endswith(_STALL_SUFFIX)
    }
    whole = sum(found.values())
    return {name: value / whole for name, value in found.items()}


# ---- why counts differ -------------------------------------------------------------------------------


def explain(kernels: Iterable[ComparedKernel]) -> dict[tuple[str, str], tuple[int, float]]:
    """Return by column and reason how many counts differ, and the median of ours over the measured one."""
    ratios: dict[tuple[str, str], list[float]] = defaultdict(list)
    for kernel in kernels:
        for one in kernel.differences:
            reason = _find_reason(kernel, one)
            ratios[one.column, reason].append((one.found or 0.0) / one.measured if one.measured else 1.0)
    return {key: (len(found), float(median(found))) for key, found in ratios.items()}


def _find_reason(kernel: ComparedKernel, one: Difference) -> str:
    is_copy = "LDGSTS" in one.instruction
    if one.found is None:
        return "not reachable and not counted by us (padding)" if not one.measured else "no count of ours"
    if kernel.addresses != "exact":
        return "addresses of a sample of the CTAs, and called so"
    match one.column:
        case "l1_tag_requests_global":
            return "the page counts look-ups of lines, we count requests"
        case "pred_on_thread_inst_executed" if is_copy:
            return "copies whose source predicate is false fill zeros: no lane asks for memory"
        case "l2_theoretical_sectors_global_ideal" if not is_copy:
            return "the page rounds up to whole sectors, we do not"
        case "l2_theoretical_sectors_global" | "l2_theoretical_sectors_global_ideal" if is_copy:
            return (
                "copies: the page's theoretical count; the hardware's counter of the kernel agrees with ours"
            )
        case "l1_wavefronts_shared" | "l1_wavefronts_shared_ideal" if is_copy:
            return "copies: the page counts a pass for each line that a copy reads, we count banks"
        case "l1_wavefronts_shared" if "ATOMS" in one.instruction:
            return "atomics in shared memory by random data"
    return "not explained"
