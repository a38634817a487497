"""The report of `analyze`: schema `warplens/analyze/1`, one value for all outputs.

Field names are the JSON contract: keys may be added, never renamed. Units: cycles are SM cycles, times
microseconds, bytes are of one warp unless a name says otherwise.
"""

from typing import Literal

import msgspec

from analyzer.models.prediction_figures import PredictionFigures

ANALYZE_SCHEMA: Literal["warplens/analyze/1"] = "warplens/analyze/1"
Amount = int | float  # whole where it was counted, a mean or a guess where not


class InputEntry(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    format: str
    architecture: tuple[str, ...]
    toolchain: str


class LaunchEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Launch facts; None where not known. Arguments as the user gave them, by place or name."""

    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None = None
    dynamic_shared_bytes: int | None
    arguments: dict[str, str] = {}


class PipeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Warp instructions of one warp on a pipe, and the cycles of one sub-core's pipe that they hold."""

    operations: float
    cycles: float


class BlockEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A basic block: byte addresses [start, end), successors' start addresses, executions by one warp."""

    start: int
    end: int
    successors: tuple[int, ...]
    executed_warps: Amount | None
    executed_per_warp: float
    active_lanes: Amount | None
    provenance: str


class UnknownBranchEntry(msgspec.Struct, frozen=True, kw_only=True):
    address: int
    instruction: str
    origin: str
    share: float
    settle: str
    rule: str


class CountsEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Execution counts; sums over the grid are None while the launch is not known.

    assumed_share: of the executed warp instructions, those in blocks whose counts are assumed or unknown;
    assumed_time_share: the same of a warp's cycles on the first GPU, None where there is none.
    """

    provenance: str
    assumed_share: float
    assumed_time_share: float | None
    executed_warp_instructions: Amount | None
    instructions_per_warp: float
    looked_at_ctas: int | None
    assumptions: tuple[str, ...]
    blocks: tuple[BlockEntry, ...]
    unknown_branches: tuple[UnknownBranchEntry, ...]


class MemoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One memory instruction, summed over the grid; None where neither the launch nor a trace says.

    requests: executions with an active lane; lanes, bytes: what those lanes ask for; sectors: 32-byte sectors
    that the requests touch; wavefronts: passes of the data path; unique_bytes: distinct bytes of the grid.
    ideal_sectors, ideal_wavefronts: those that hold the bytes asked for without gaps, or the actual ones
    where lanes share bytes and take fewer. requests_per_warp: of the mean warp. An LDGSTS stands for its
    global side, but for the wavefronts, which are of what it writes to shared memory; wavefront_requests: the
    requests that took them.
    """

    address: int
    opcode: str
    source: str
    space: str
    requests: Amount | None
    requests_per_warp: float
    lanes: Amount | None
    bytes: Amount | None
    sectors: Amount | None
    ideal_sectors: float | None
    wavefronts: Amount | None
    ideal_wavefronts: float | None
    wavefront_requests: Amount | None
    unique_bytes: int | None
    provenance: str


class MemorySpaceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """All accesses of the grid to one memory space.

    unknown_requests: those whose addresses are not known; sectors, wavefronts and the ideal ones are of the
    others. In shared memory only wavefronts count, elsewhere only sectors.
    worst_address: the instruction that costs most beyond the ideal, None where none costs more.
    """

    space: str
    requests: int
    bytes: int
    unknown_requests: int
    sectors: int | None
    ideal_sectors: float | None
    wavefronts: int | None
    ideal_wavefronts: float | None
    worst_address: int | None


class TrafficEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Global memory of the whole grid: bytes asked for, and distinct ones among them (None: not known)."""

    read_bytes: int
    read_unique_bytes: int | None
    written_bytes: int
    written_unique_bytes: int | None


class LoopEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A natural loop on the first GPU: header address, cycles of one iteration with resident warps.

    busiest: the pipe or memory level that an iteration needs longest, and for which share of its cycles.
    cpi_stack: one warp's cycles per iteration; launch_stack: cycles of the launch that stand to the account
    of the loop's instructions.
    """

    header: int
    depth: int
    instructions: int
    trip_count: Amount
    provenance: str
    trip_reason: str
    cycles_per_iteration: float | None
    bound: str
    bounds: dict[str, float]
    busiest: str
    busiest_share: float
    pipes: dict[str, PipeEntry]
    cpi_stack: dict[str, float]
    launch_stack: dict[str, float]
    share: float
    source: str


class PredictionEntry(PredictionFigures, frozen=True, kw_only=True):
    """One kernel on one GPU by one model; cpi_stack sums to cycles."""

    cpi_stack: dict[str, float]
    bounds: dict[str, float]
    pipes: dict[str, PipeEntry]
    basis: str
    transferred: bool
    assumptions: tuple[str, ...]


class DifferenceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A stall in which two models of one kernel on one GPU part, and why; address: where it shows most."""

    gpu: str
    stall: str
    model: str
    cycles: float
    other_model: str
    other_cycles: float
    reason: str
    address: int | None
    source: str


class RefusalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU on which the kernel cannot be predicted, and why."""

    gpu: str
    gpu_name: str
    reason: str


class AdviceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with the cycles that acting on it may gain, at the instruction that shows it."""

    finding: str
    gain_cycles: float
    gain_share: float
    address: int | None
    source: str


class ListingEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One instruction as `annotate` prints it: waits per execution, producer that it waits for.

    share: of the launch's cycles; cpi_stack: cycles of the launch by stall that stand to its account.
    executed_warps: warp executions over the grid, None where it was neither executed nor traced.
    """

    address: int
    instruction: str
    pipe: str
    known: bool
    control: str
    executed_per_warp: float
    executed_warps: Amount | None
    provenance: str
    stall_cycles: float
    stall: str
    share: float
    cpi_stack: dict[str, float]
    producer: int | None
    source: str


class KernelReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known of one kernel; `pipes` and `loops` are for the first GPU of the list.

    ordinal: place among the kernels of its input, from 1.
    """

    name: str
    demangled: str
    architecture: str
    ordinal: int
    line: int
    instructions: int
    coverage: float
    has_control_codes: bool
    registers: int | None
    registers_exact: bool
    shared_bytes: int | None
    spill_bytes: int
    launch: LaunchEntry
    mix: dict[str, int]
    modifiers: dict[str, int]
    constant_operands: int
    pipes: dict[str, PipeEntry]
    bytes: dict[str, float]
    flops: float
    tensor_fma: float
    arithmetic_intensity: float | None
    counts: CountsEntry
    memory: tuple[MemoryEntry, ...]
    memory_spaces: tuple[MemorySpaceEntry, ...]
    traffic: TrafficEntry | None
    loops: tuple[LoopEntry, ...]
    predictions: tuple[PredictionEntry, ...]
    refused: tuple[RefusalEntry, ...]
    advice: tuple[AdviceEntry, ...]
    listing: tuple[ListingEntry, ...] = ()
    differences: tuple[DifferenceEntry, ...] = ()


class WarningEntry(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    path: str
    line: int | None
    count: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What `analyze` found in all inputs, on all GPUs asked for."""

    schema: Literal["warplens/analyze/1"]
    tool_version: str
    inputs: tuple[InputEntry, ...]
    gpus: tuple[str, ...]
    kernels: tuple[KernelReport, ...]
    warnings: tuple[WarningEntry, ...]
