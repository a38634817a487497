"""Work of a launch at one level of a kernel, by source line, before it becomes report entries."""

from enum import StrEnum

from msgspec import Struct

from analyzer.demand.launch_work import Work


class LevelName(StrEnum):
    """A form of a kernel, highest first."""

    TTGIR = "ttgir"
    PTX = "ptx"
    SASS = "sass"


# What levels are compared by, in the order of amounts.
LINE_WORK = (
    Work.MMA_FMA,
    Work.GLOBAL_LOADED_BYTES,
    Work.GLOBAL_STORED_BYTES,
    Work.SHARED_BYTES,
    Work.BARRIERS,
    Work.XU_OPERATIONS,
)


class LineWork(Struct, frozen=True):
    """Work of one source line, summed over the grid."""

    place: str  # `/home/me/kernel.py:41`; "" where no line is known
    amounts: tuple[int, ...]  # as `LINE_WORK`


class LevelWork(Struct, frozen=True, kw_only=True):
    """Work of a launch at one level."""

    level: LevelName
    path: str
    # As `LINE_WORK`, None for what is not known; None where the level could not be counted.
    totals: tuple[int | None, ...] | None = None
    lines: tuple[LineWork, ...] = ()
    assumptions: tuple[str, ...] = ()
    note: str = ""  # why it could not be counted
