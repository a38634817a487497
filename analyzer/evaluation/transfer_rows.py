"""Launches to transfer as records, whatever form of file they come from."""

from enum import StrEnum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from analyzer.evaluation.measured_table import Arguments
from analyzer.ir.launch import Dim3, Timing
from analyzer.models.transfer.measured_launch import MeasuredLaunch

LAUNCH_COLUMNS = ("kernel", "grid", "block", "registers", "shared_bytes", "flops", "bytes", "time_us")
MAX_REGISTERS, MAX_SHARED_BYTES = 1 << 16, 1 << 31  # more is a mistake


class TableForm(StrEnum):
    """Form of a file; the value is its name in reports."""

    CSV = "csv"
    NCU = "ncu"
    PYTORCH = "pytorch"

    @property
    def timing(self) -> Timing:
        """Return how the times of such a file were measured, if nobody says otherwise."""
        return {TableForm.NCU: Timing.NCU, TableForm.PYTORCH: Timing.KERNEL}.get(self, Timing.INTERVAL)


class CodeReference(Struct, frozen=True, kw_only=True):
    """Where the code of a launch is, and what its execution needs."""

    source_dump: Path  # for the GPU that was measured
    target_dump: Path
    arguments: Arguments
    cluster: Dim3 | None
    dynamic_shared_bytes: int | None
    problem: str = ""  # why the code cannot be read, or what is not known of its arguments
    is_usable: bool = True


class TransferRow(Struct, frozen=True, kw_only=True):
    """One launch of a table."""

    line: int
    fields: tuple[str, ...]  # as given, by the columns of the table
    kernel: str
    grid: Dim3
    block: Dim3
    registers: int | None
    shared_bytes: int
    flops: float | None
    moved_bytes: float | None
    time_us: float
    code: CodeReference | None = None

    def make_launch(self, timing: Timing) -> MeasuredLaunch:
        """Return what transfer without code reads."""
        return MeasuredLaunch(
            kernel=self.kernel,
            grid_ctas=self.grid.count,
            block_threads=self.block.count,
            registers=self.registers,
            shared_bytes=self.shared_bytes,
            flops=self.flops,
            moved_bytes=self.moved_bytes,
            time_us=self.time_us,
            timing=timing,
        )

    def with_own_fields(self) -> "TransferRow":
        """Return the row with its figures as fields of LAUNCH_COLUMNS, for files that are no such tables."""
        values = (self.registers, self.shared_bytes, self.flops, self.moved_bytes, self.time_us)
        texts = ("" if value is None else f"{value:.12g}" for value in values)
        return replace(self, fields=(self.kernel, str(self.grid), str(self.block), *texts))


class TransferTable(Struct, frozen=True, kw_only=True):
    """All launches of a file."""

    path: Path
    form: TableForm
    columns: tuple[str, ...]
    rows: tuple[TransferRow, ...]
    archs: tuple[str, ...] = ()  # of the GPUs that were measured, as far as the file tells them
