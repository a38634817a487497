"""Options of an analysis, as the command line and library users give them."""

from pathlib import Path

from msgspec import Struct, field

from analyzer.execution.profile.branch_rules import BranchTakenRule
from analyzer.execution.static_counts.block_counts import TripCountRule
from analyzer.ir.launch import Launch, LaunchTable
from analyzer.models.calibration import Calibration
from analyzer.worker_pool import Backend as Backend


class Options(Struct, frozen=True, kw_only=True):
    """Options of an analysis."""

    kernels: tuple[str, ...] = ()  # globs or parts of names; all kernels where empty
    trip_rules: tuple[TripCountRule, ...] = ()
    launch: Launch = field(default_factory=Launch)
    launch_table: LaunchTable | None = None  # goes before `launch` for the kernels that it names
    branch_rules: tuple[BranchTakenRule, ...] = ()
    listing: bool = False  # report every instruction
    min_coverage: float = 0.0  # least share of instructions with known opcodes, else GateError
    models: tuple[str, ...] = ()  # the first one for loops, listing and advice; the default where empty
    advice: bool = False  # ask the first model again for each rule of advice that applies
    advice_rules: tuple[str, ...] = ()  # rules to look at; all where empty
    levels: bool = False  # count the work at the levels that lie beside the input too
    hardware_curves: bool = False  # predict also where figures of each GPU are others, one at a time
    explain: bool = False  # run a second model where only one is named, so that they can be compared
    step_limit: int | None = None  # of each kernel's abstract execution; None: a few seconds for all kernels
    identifies: bool = False  # report of each kernel what tells whether it is the one of an earlier report
    # Leave out what no comparison looks at: what unknowns do to intervals, and what the last wave costs.
    is_brief: bool = False
    # False: None means a few seconds for each kernel, so that its report depends on its own content alone.
    shares_steps: bool = True
    cache_folder: Path | None = None  # of `analyze_files`, which keeps reports there; None: nowhere
    calibration: Calibration | None = None  # levels of GPUs, of `warplens calibrate`
    # Processes that share the kernels of large inputs. They are forks, and forks of a program that has
    # threads may deadlock: more than one only if the caller has none.
    jobs: int = 1
    backend: Backend = Backend.LOCAL
    scheduler: str | None = None  # address of the cluster's; None: found, or started here
    # Take the launch of `assumed_launch` where nobody gives one, so that two versions of a kernel compare.
    assumes_launch: bool = False
