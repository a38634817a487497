"""The report of `analyze`: schema `warplens/analyze/1`, one value for all outputs.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/analyze-1.json`. Units: cycles are SM cycles, times are microseconds, bytes are those of one
warp unless a name says otherwise.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from analyzer.models.prediction_figures import PredictionFigures
from analyzer.report.notebook import (
    KernelTitle,
    describe_kernel,
    describe_report,
    render_kernel_html,
    render_report_html,
)

ANALYZE_SCHEMA: Literal["warplens/analyze/1"] = "warplens/analyze/1"
Amount = int | float  # an integer where it was counted, a mean or an estimate where not


class InputEntry(Struct, frozen=True, kw_only=True):
    """One input file."""

    path: str
    format: str
    architecture: tuple[str, ...]
    toolchain: str
    levels: Annotated[
        Mapping[str, str] | UnsetType,
        Meta(description="Files of the kernel at all levels of its compiler; of the kernels in a folder."),
    ] = UNSET
    triton: Annotated[
        Mapping[str, str | int] | UnsetType,
        Meta(description="What Triton notes of the kernel: hash, num_warps, num_ctas, shared, num_stages."),
    ] = UNSET


class LaunchEntry(Struct, frozen=True, kw_only=True):
    """Launch of a kernel; null where not known."""

    grid: tuple[int, int, int] | None
    block: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None = None
    dynamic_shared_bytes: int | None
    arguments: Annotated[
        Mapping[str, str], Meta(description="Arguments as the user gave them, by position or name.")
    ] = {}


class PipeEntry(Struct, frozen=True, kw_only=True):
    """Demand of one warp on a pipe."""

    operations: Annotated[float, Meta(description="Warp instructions of one warp.")]
    cycles: Annotated[float, Meta(description="Cycles of one sub-core's pipe that they occupy.")]


class BlockEntry(Struct, frozen=True, kw_only=True):
    """A basic block: byte addresses [start, end)."""

    start: int
    end: int
    successors: Annotated[tuple[int, ...], Meta(description="Start addresses.")]
    executed_warps: Annotated[Amount | None, Meta(description="Warp executions over the grid.")]
    executed_per_warp: Annotated[float, Meta(description="Executions by one warp.")]
    active_lanes: Annotated[Amount | None, Meta(description="Lane executions over the grid.")]
    provenance: str


class UnknownBranchEntry(Struct, frozen=True, kw_only=True):
    """A branch whose outcome depends on something that is not known."""

    address: int
    instruction: str
    origin: Annotated[str, Meta(description="What the outcome depends on.")]
    share: Annotated[float, Meta(description="Share of the executed instructions that depend on it.")]
    settle: Annotated[str, Meta(description="Command line option that settles it.")]
    rule: Annotated[str, Meta(description="What was assumed.")]


class CountsEntry(Struct, frozen=True, kw_only=True):
    """Execution counts; sums over the grid are null while the launch is not known."""

    provenance: str
    assumed_share: Annotated[
        float,
        Meta(description="Share of executed warp instructions in blocks with assumed or unknown counts."),
    ]
    assumed_time_share: Annotated[
        float | None,
        Meta(description="The same share of a warp's cycles on the first GPU; null where there is none."),
    ]
    addresses: Annotated[
        str,
        Meta(
            description="Provenance of the addresses of memory requests, the worst of all, apart from that "
            "of the counts; unknown without a launch."
        ),
    ] = "unknown"
    assumed_address_share: Annotated[
        float, Meta(description="Share of the requests to memory at assumed or unknown addresses.")
    ] = 0.0
    executed_warp_instructions: Amount | None
    instructions_per_warp: float
    is_sample: Annotated[
        bool,
        Meta(description="Other CTAs are assumed to be like those looked at; false where they are proven."),
    ] = False
    looked_at_ctas: Annotated[int | None, Meta(description="CTAs that were executed or traced.")]
    assumptions: tuple[str, ...]
    blocks: tuple[BlockEntry, ...]
    unknown_branches: tuple[UnknownBranchEntry, ...]


class UnknownEntry(Struct, frozen=True, kw_only=True):
    """Something that the prediction depends on and that nobody gave."""

    what: Annotated[
        str,
        Meta(
            description="What is unknown: grid, block, trips, branches, addresses, code, tiles of products."
        ),
    ]
    settle: Annotated[tuple[str, ...], Meta(description="Options of the command line that settle it.")]
    names: Annotated[
        tuple[str, ...],
        Meta(description="Names of the parameters that the options give, in their order; empty: not known."),
    ]
    share: Annotated[
        float,
        Meta(description="Share of the executed instructions, or for addresses of the requests to memory."),
    ]


class MemoryEntry(Struct, frozen=True, kw_only=True):
    """One memory instruction, summed over the grid; null where neither the launch nor a trace says.

    An LDGSTS is listed with its global side, except for the wavefronts, which are of its shared memory side.
    """

    address: int
    opcode: str
    source: str
    space: str
    requests: Annotated[Amount | None, Meta(description="Executions with an active lane.")]
    requests_per_warp: Annotated[float, Meta(description="Requests of the mean warp.")]
    lanes: Annotated[Amount | None, Meta(description="Active lanes of the requests.")]
    bytes: Annotated[Amount | None, Meta(description="Bytes that those lanes request.")]
    sectors: Annotated[Amount | None, Meta(description="32-byte sectors that the requests touch.")]
    ideal_sectors: Annotated[
        float | None,
        Meta(
            description="Sectors that hold the requested bytes without gaps, or the actual ones where lanes "
            "share bytes and take fewer."
        ),
    ]
    wavefronts: Annotated[
        Amount | None, Meta(description="Passes of the data path; of a constant load its distinct words.")
    ]
    ideal_wavefronts: Annotated[float | None, Meta(description="As ideal_sectors.")]
    wavefront_requests: Annotated[
        Amount | None, Meta(description="Requests that the wavefronts are counted over.")
    ]
    unique_bytes: Annotated[int | None, Meta(description="Distinct bytes of the grid.")]
    provenance: str


class MemorySpaceEntry(Struct, frozen=True, kw_only=True):
    """All accesses of the grid to one memory space.

    Shared and constant memory have wavefronts only, other spaces have sectors only; both are those of known
    addresses.
    """

    space: str
    requests: int
    bytes: int
    unknown_requests: Annotated[int, Meta(description="Requests whose addresses are not known.")]
    sectors: int | None
    ideal_sectors: float | None
    wavefronts: int | None
    ideal_wavefronts: float | None
    worst_address: Annotated[
        int | None,
        Meta(description="Instruction that costs most beyond the ideal; null where none costs more."),
    ]
    provenance: Annotated[
        str, Meta(description="Of sectors and wavefronts, the worst of all accesses that have any.")
    ] = "unknown"


class TrafficEntry(Struct, frozen=True, kw_only=True):
    """Global memory traffic of the whole grid: requested bytes, and distinct ones (null: not known)."""

    read_bytes: int
    read_unique_bytes: int | None
    written_bytes: int
    written_unique_bytes: int | None
    read_provenance: Annotated[str, Meta(description="Of the distinct bytes that are read.")] = "unknown"
    written_provenance: Annotated[str, Meta(description="Of those that are written.")] = "unknown"


class LoopEntry(Struct, frozen=True, kw_only=True):
    """A natural loop on the first GPU; bounds are those of the launch's warps that one SM holds at a time."""

    header: Annotated[int, Meta(description="Address of the header block.")]
    depth: int
    instructions: int
    trip_count: Annotated[Amount, Meta(description="Iterations each time that the loop is entered.")]
    provenance: str
    trip_reason: str
    cycles_per_iteration: Annotated[
        float | None, Meta(description="Cycles of one iteration of all resident warps that enter the loop.")
    ]
    bound: str
    bounds: Mapping[str, float]
    limited_by_recurrence: Annotated[
        bool, Meta(description="The latency that binds is a chain of results from iteration to iteration.")
    ] = False
    busiest: Annotated[str, Meta(description="Pipe or memory level that an iteration occupies longest.")]
    busiest_share: Annotated[float, Meta(description="Share of the iteration's cycles that it is occupied.")]
    pipes: Mapping[str, PipeEntry]
    cpi_stack: Annotated[Mapping[str, float], Meta(description="One warp's cycles per iteration, by stall.")]
    launch_stack: Annotated[
        Mapping[str, float],
        Meta(description="Cycles of the launch due to its instructions, by stall."),
    ]
    share: Annotated[float, Meta(description="Share of the executed instructions.")]
    warp_share: Annotated[float, Meta(description="Share of the grid's warps, those that enter it.")] = 1.0
    source: str


class ComputeThroughputEntry(Struct, frozen=True, kw_only=True):
    """Achieved operations of one data type; a multiply-add counts two, a sparse product as a dense one."""

    data_type: Annotated[str, Meta(description="FP32, FP16, BF16, TF32, FP64, FP8, FP4, INT8 and so on.")]
    unit: Annotated[str, Meta(description="tensor or vector.")]
    operations: Annotated[float, Meta(description="Of the whole grid.")]
    operations_per_second: float
    peak_per_second: Annotated[
        float | None, Meta(description="Dense peak at the datasheet's clock, or a higher one of the launch.")
    ]
    peak_share: Annotated[
        float | None, Meta(description="Of the peak; 2:4 sparse products count half of their operations.")
    ]


class MemoryThroughputEntry(Struct, frozen=True, kw_only=True):
    """Achieved bytes of one memory level."""

    level: Annotated[str, Meta(description="DRAM or L2.")]
    bytes: Annotated[float, Meta(description="Of the whole grid.")]
    gbps: Annotated[float, Meta(description="10^9 bytes per second.")]
    peak_gbps: Annotated[float, Meta(description="DRAM: of the datasheet. L2: what loads reach.")]
    peak_share: float


class SpeedOfLightEntry(Struct, frozen=True, kw_only=True):
    """Achieved throughput at the predicted time, and its share of the GPU's peaks."""

    compute: Annotated[tuple[ComputeThroughputEntry, ...], Meta(description="Largest share of a peak first.")]
    memory: tuple[MemoryThroughputEntry, ...]
    l1: Annotated[
        MemoryThroughputEntry | None,
        Meta(description="The L1: bytes that lanes ask for, against what the data paths of all SMs move."),
    ] = None
    issue_share: Annotated[float, Meta(description="Issue slots that are used, of all.")]
    provenance: Annotated[str, Meta(description="Of the counts that the operations and bytes come from.")]
    address_provenance: Annotated[str, Meta(description="Of the addresses that the bytes come from.")]
    assumes_one_wave: Annotated[bool, Meta(description="The grid is not known: one full wave is taken.")]


class PredictionEntry(PredictionFigures, frozen=True, kw_only=True):
    """One kernel on one GPU by one model."""

    cpi_stack: Annotated[Mapping[str, float], Meta(description="Cycles by stall; they sum to cycles.")]
    bounds: Annotated[Mapping[str, float], Meta(description="Least cycles by each resource.")]
    pipes: Mapping[str, PipeEntry]
    basis: Annotated[str, Meta(description="Weakest basis of the hardware figures that it depends on.")]
    transferred: Annotated[bool, Meta(description="The code is not of the GPU's architecture.")]
    assumptions: tuple[str, ...]
    tail_share: Annotated[
        float | None,
        Meta(
            description="Share of the time that the last, partly filled wave of CTAs costs, against the same "
            "work spread evenly over the SMs; null where it cannot cost 5 %, or is not known."
        ),
    ] = None
    speed_of_light: SpeedOfLightEntry | None = None


class DifferenceEntry(Struct, frozen=True, kw_only=True):
    """A stall in which two models of one kernel on one GPU differ, and why."""

    gpu: str
    stall: str
    model: str
    cycles: float
    other_model: str
    other_cycles: float
    reason: str
    address: Annotated[int | None, Meta(description="Instruction with the largest difference.")]
    source: str


class Effect(StrEnum):
    """What an edited GPU does to a time; `none` where noise of the model can make as much of a change."""

    FASTER = "faster"
    SLOWER = "slower"
    NONE = "none"


class CurvePoint(Struct, frozen=True, kw_only=True):
    """A kernel's prediction where one figure of the GPU is another."""

    value: Annotated[float, Meta(description="Of the figure, in its unit.")]
    factor: Annotated[float, Meta(description="On the GPU's own value.")]
    cycles: Annotated[float | None, Meta(description="Null where the kernel does not run there.")]
    time_us: float | None
    effect: Annotated[
        Effect | None,
        Meta(
            description="How the time changed; none: by no more than the resolution of the model, "
            "which is no effect. Null where it does not run."
        ),
    ] = None
    bound: str = ""
    cpi_stack: Annotated[Mapping[str, float], Meta(description="Cycles by stall; they sum to cycles.")] = {}
    refused: Annotated[str, Meta(description="Why it does not run there.")] = ""


class HardwareCurve(Struct, frozen=True, kw_only=True):
    """How a kernel's prediction follows one figure of a GPU, all others as they are."""

    gpu: str
    model: str
    key: Annotated[str, Meta(description="Of the figure, as `whatif --set` takes it.")]
    value: Annotated[float, Meta(description="Of the GPU as it is.")]
    basis: str
    points: Annotated[
        tuple[CurvePoint, ...], Meta(description="By value, that of the GPU as it is among them.")
    ]


class RefusalEntry(Struct, frozen=True, kw_only=True):
    """A GPU on which the kernel cannot be predicted, and why."""

    gpu: str
    gpu_name: str
    reason: str


class AdviceEntry(Struct, frozen=True, kw_only=True):
    """A rule that applies to the kernel, with the cycles that following it gains."""

    rule: Annotated[str, Meta(description="Identifier of the rule, with a page in docs/rules.")]
    finding: Annotated[str, Meta(description="The cause, at the worst place.")]
    action: Annotated[str, Meta(description="What to do.")]
    gain_cycles: float
    gain_share: Annotated[float, Meta(description="Share of the cycles of the first prediction.")]
    gain_is_limit: Annotated[
        bool, Meta(description="The model was not asked, since the gain is at most this, below 3 %.")
    ]
    is_guess: Annotated[
        bool, Meta(description="The addresses of the instructions are not known, random ones stand for them.")
    ] = False
    gain_basis: Annotated[str, Meta(description="How the gain was found, and what it takes for granted.")]
    address: Annotated[int | None, Meta(description="Worst instruction; null for the kernel as a whole.")]
    opcode: str
    source: Annotated[str, Meta(description="Line in the kernel's own file; of inlined code, its call.")]
    other_addresses: Annotated[
        tuple[int, ...], Meta(description="Other instructions with the same cause, worst first.")
    ]
    inlined_source: Annotated[
        str, Meta(description="Line of the code that was inlined at `source`; empty where none was.")
    ] = ""


class ListingEntry(Struct, frozen=True, kw_only=True):
    """One instruction as `annotate` prints it."""

    address: int
    instruction: str
    pipe: str
    known: Annotated[bool, Meta(description="The table of opcodes has its opcode.")]
    control: str
    executed_per_warp: float
    executed_warps: Annotated[
        Amount | None,
        Meta(description="Warp executions over the grid; null where it was neither executed nor traced."),
    ]
    provenance: str
    stall_cycles: Annotated[float, Meta(description="Cycles that a warp waits per execution.")]
    stall: Annotated[str, Meta(description="Largest stall.")]
    share: Annotated[float, Meta(description="Share of the launch's cycles.")]
    cpi_stack: Annotated[
        Mapping[str, float], Meta(description="Cycles of the launch due to the instruction, by stall.")
    ]
    producer: Annotated[int | None, Meta(description="Address of the instruction that it waits for.")]
    source: str
    source_text: Annotated[
        str, Meta(description="The source line, where its file was found; empty where not.")
    ] = ""
    loops: Annotated[
        tuple[int, ...], Meta(description="Headers of the loops around it, the outermost first.")
    ] = ()
    ptx_line: Annotated[
        int | UnsetType,
        Meta(description="Line of the PTX beside the source; left out where no PTX is at hand."),
    ] = UNSET


class LevelEntry(Struct, frozen=True, kw_only=True):
    """Work of the launch at one level of the kernel, summed over the grid; None where it was not counted."""

    level: Literal["ttgir", "ptx", "sass"]
    file: str
    mma_fma: Annotated[int | None, Meta(description="Multiply-adds of matrix instructions.")] = None
    global_loaded_bytes: Annotated[int | None, Meta(description="Bytes that active lanes ask for.")] = None
    global_stored_bytes: Annotated[int | None, Meta(description="Of stores, without atomics.")] = None
    shared_bytes: Annotated[int | None, Meta(description="Read and written by lanes in shared memory.")] = (
        None
    )
    barriers: Annotated[int | None, Meta(description="CTA barriers that CTAs pass.")] = None
    xu_operations: Annotated[
        int | None,
        Meta(description="Lane executions of special functions (MUFU), but for those of integer divisions."),
    ] = None
    assumptions: tuple[str, ...] = ()
    note: Annotated[str, Meta(description="Why it was not counted.")] = ""


class LevelPlaceEntry(Struct, frozen=True, kw_only=True):
    """A source line at which two levels differ."""

    source: Annotated[str, Meta(description="File and line; empty where a level names none.")]
    upper_amount: int
    lower_amount: int


class LevelDifferenceEntry(Struct, frozen=True, kw_only=True):
    """A quantity in which a level differs from the next one below."""

    quantity: str
    upper: str
    lower: str
    upper_amount: int
    lower_amount: int
    usual_reason: Annotated[str, Meta(description="What usually makes it differ; not proven here.")]
    places: tuple[LevelPlaceEntry, ...]


class IdentityEntry(Struct, frozen=True, kw_only=True):
    """What tells whether a kernel is the one of an earlier report; the same on any machine."""

    code: Annotated[
        str,
        Meta(description="SHA-256 of instructions, control codes and resources, without names and lines."),
    ]
    launch: Annotated[
        str,
        Meta(description="Digest of the launch as it was given; what metadata add to it is not in it."),
    ]
    assumed_launch: Annotated[
        str, Meta(description="Grid, block and integers that nobody gave, such as `1024/256 n=65536`.")
    ] = ""
    hottest_source: Annotated[
        str, Meta(description="FILE:LINE that costs most cycles on the first GPU; empty without line info.")
    ] = ""


class KernelReport(Struct, frozen=True, kw_only=True):
    """Everything known of one kernel; `pipes` and `loops` are for the first GPU of the list."""

    input: Annotated[str, Meta(description="Path of its input, as in `inputs`.")] = ""
    name: str
    demangled: str
    architecture: str
    ordinal: Annotated[int, Meta(description="Position among the kernels of its input, from 1.")]
    line: int
    instructions: int
    coverage: Annotated[float, Meta(description="Share of instructions with known opcodes.")]
    has_control_codes: bool
    registers: int | None
    registers_exact: Annotated[bool, Meta(description="False where they were estimated from the code.")]
    shared_bytes: int | None
    spill_bytes: Annotated[int, Meta(description="Part of the frame that holds spilled registers.")]
    stack_frame_bytes: Annotated[
        int,
        Meta(description="Of a thread, with spilled registers and local objects, as ptxas -v says it."),
    ] = 0
    spill_store_bytes: Annotated[
        int,
        Meta(description="Of all instructions that store spilled registers, as ptxas -v says it."),
    ] = 0
    spill_load_bytes: Annotated[int, Meta(description="The same of loads.")] = 0
    spills_estimated: Annotated[
        bool, Meta(description="Local objects lie in the frame as well: the bytes of spills are about right.")
    ] = False
    launch: LaunchEntry
    mix: Annotated[Mapping[str, int], Meta(description="Instructions of the code by opcode.")]
    modifiers: Annotated[Mapping[str, int], Meta(description="The same by opcode with its modifiers.")]
    constant_operands: int
    pipes: Mapping[str, PipeEntry]
    bytes: Mapping[str, float]
    flops: Annotated[
        float, Meta(description="Operations of the mean warp in active lanes; a multiply-add counts two.")
    ]
    helper_flops: Annotated[
        float, Meta(description="Operations that compute nothing: moves, and help for integer divisions.")
    ] = 0.0
    conversions: Annotated[float, Meta(description="Values that are converted to another type.")] = 0.0
    tensor_fma: float
    arithmetic_intensity: float | None
    counts: CountsEntry
    unknowns: Annotated[
        tuple[UnknownEntry, ...],
        Meta(description="What the prediction depends on and nobody gave; the interval covers it."),
    ] = ()
    missing_code: Annotated[
        tuple[str, ...], Meta(description="What the input lacks of the function, where it was cut off.")
    ] = ()
    memory: tuple[MemoryEntry, ...]
    memory_spaces: tuple[MemorySpaceEntry, ...]
    traffic: TrafficEntry | None
    loops: tuple[LoopEntry, ...]
    loops_not_entered: Annotated[
        tuple[int, ...],
        Meta(description="Headers of loops that no warp enters; `loops` leaves them out."),
    ] = ()
    predictions: tuple[PredictionEntry, ...]
    refused: tuple[RefusalEntry, ...]
    advice: tuple[AdviceEntry, ...]
    hardware_curves: Annotated[
        tuple[HardwareCurve, ...], Meta(description="Of each GPU, where they were asked for.")
    ] = ()
    listing: tuple[ListingEntry, ...] = ()
    differences: tuple[DifferenceEntry, ...] = ()
    levels: tuple[LevelEntry, ...] = ()
    level_differences: tuple[LevelDifferenceEntry, ...] = ()
    identity: Annotated[
        IdentityEntry | UnsetType, Meta(description="Left out where no comparison asked for it.")
    ] = UNSET

    def __repr__(self) -> str:
        return describe_kernel(_make_title(self), self.predictions)

    def _repr_html_(self) -> str:
        """Return it as HTML for notebooks."""
        dims = {"grid": self.launch.grid, "block": self.launch.block}
        return render_kernel_html(
            _make_title(self),
            (*(f"{name} {size}" for name, size in dims.items() if size), f"counts {self.counts.provenance}"),
            self.predictions,
            self.predictions[0].cpi_stack if self.predictions else {},
            [f"{refusal.gpu_name}: {refusal.reason}" for refusal in self.refused],
        )


def _make_title(kernel: KernelReport) -> KernelTitle:
    return KernelTitle(kernel.demangled, kernel.architecture, kernel.instructions)


class WarningEntry(Struct, frozen=True, kw_only=True):
    """A warning of an input or of the options; `count` of equal ones."""

    code: str
    message: str
    path: str
    line: int | None
    count: int


class Report(Struct, frozen=True, kw_only=True):
    """Report of `analyze` on all inputs and all GPUs asked for."""

    schema: Literal["warplens/analyze/1"]
    tool_version: str
    model_fingerprint: Annotated[
        str, Meta(description="Hash of the code and the tables that decide a time; equal for equal models.")
    ] = ""
    inputs: tuple[InputEntry, ...]
    gpus: tuple[str, ...]
    kernels: tuple[KernelReport, ...]
    warnings: tuple[WarningEntry, ...]

    def __repr__(self) -> str:
        return describe_report(
            [entry.path for entry in self.inputs],
            len(self.kernels),
            (p.gpu_name for kernel in self.kernels for p in kernel.predictions),
            len(self.warnings),
        )

    def _repr_html_(self) -> str:
        """Return it as HTML for notebooks."""
        kernels = [(_make_title(kernel), kernel.predictions) for kernel in self.kernels]
        return render_report_html(kernels, [f"warning: {warning.message}" for warning in self.warnings])
