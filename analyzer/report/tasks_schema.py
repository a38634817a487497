"""The report of `tasks`: schema `warplens/tasks/1`, one value for all outputs.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/tasks-1.json`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from analyzer.report.analyze_schema import WarningEntry

TASKS_SCHEMA: Literal["warplens/tasks/1"] = "warplens/tasks/1"

Amount = int | float


class RepeatedAmounts(Struct, frozen=True, kw_only=True):
    """The part of amounts that threads do again: the layout gives them elements that others hold too."""

    mma_fma: Amount = 0
    xu_operations: Amount = 0
    fma_operations: Amount = 0
    bytes_loaded: Amount = 0


class TaskAmounts(Struct, frozen=True, kw_only=True):
    """What one task asks for, or all tasks together."""

    count: Annotated[int, Meta(description="Tasks of the class; of the total, all tasks.")]
    mma_fma: Annotated[Amount, Meta(description="Multiply-adds of tensor cores, of whole tiles.")]
    xu_operations: Annotated[
        Amount,
        Meta(description="Operations of special functions, of one lane: exponentials, reciprocals, roots."),
    ]
    fma_operations: Annotated[
        Amount,
        Meta(description="Floating-point additions, multiplications and multiply-adds on CUDA cores."),
    ]
    bytes_loaded: Annotated[Amount, Meta(description="From global memory, by lanes that no mask excludes.")]
    bytes_stored: Annotated[Amount, Meta(description="To global memory, likewise.")]
    shared_bytes: Annotated[Amount, Meta(description="Read from and written to shared memory by threads.")]
    atomics: Annotated[Amount, Meta(description="Elements of atomic operations in global memory.")]
    barriers: Annotated[Amount, Meta(description="Barriers of all threads of a CTA.")]
    trips: Annotated[
        Amount, Meta(description="Of the innermost loops that multiply, else of those that load or store.")
    ]
    repeated: RepeatedAmounts = RepeatedAmounts()


class LoopEntry(Struct, frozen=True, kw_only=True):
    """How often one task runs the body of a loop."""

    line: int
    trips: int


class TaskEntry(TaskAmounts, frozen=True, kw_only=True):
    """A class of tasks that do the same; amounts are of one of them."""

    first_program: Annotated[int | None, Meta(description="The first of them in launch order.")] = None
    loops: tuple[LoopEntry, ...] = ()


class WorkEntry(Struct, frozen=True, kw_only=True):
    """An operation that has work, summed over the launch."""

    operation: str
    line: Annotated[int, Meta(description="Of the file.")]
    source: Annotated[str, Meta(description="Line of Python, empty if not known.")] = ""
    type: Annotated[str, Meta(description="Of the elements.")] = ""
    executions: Annotated[int, Meta(description="By all programs.")]
    mma_fma: Amount = 0
    xu_operations: Amount = 0
    fma_operations: Amount = 0
    bytes_loaded: Amount = 0
    bytes_stored: Amount = 0
    shared_bytes: Amount = 0
    atomics: Amount = 0
    is_assumed: Annotated[
        bool, Meta(description="How often it runs, or on how many elements, rests on an assumption.")
    ] = False
    uncounted: Annotated[
        tuple[str, ...], Meta(description="Amounts of which it asks for more than is known.")
    ] = ()


class TasksReport(Struct, frozen=True, kw_only=True):
    """The tasks of one launch of a kernel."""

    schema: Literal["warplens/tasks/1"]
    tool_version: str
    input: str
    kernel: str
    level: Annotated[
        str,
        Meta(description="ttir, ttgir: from tiles; code: from abstract execution of instructions."),
    ]
    grid: tuple[int, int, int]
    tasks: Annotated[tuple[TaskEntry, ...], Meta(description="The largest class first.")]
    total: TaskAmounts
    assumptions: tuple[str, ...] = ()
    operations: tuple[WorkEntry, ...] = ()
    inexact: Annotated[
        Mapping[str, str],
        Meta(
            description="Provenance of the amounts that are not exact: assumed, or unknown where operations "
            "ask for more than is counted."
        ),
    ] = {}
    warnings: tuple[WarningEntry, ...] = ()
