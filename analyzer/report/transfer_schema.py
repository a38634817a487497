"""The report of `transfer`: schema `warplens/transfer/1`, one value for all outputs.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/transfer-1.json`.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

TRANSFER_SCHEMA: Literal["warplens/transfer/1"] = "warplens/transfer/1"

# Columns that a table of results has behind those of its input.
RESULT_COLUMNS = ("algorithm1_us", "roof_us", "predicted_us", "low_us", "high_us", "basis", "reason")


class TransferRowEntry(Struct, frozen=True, kw_only=True):
    """One measured launch and its times on the target GPU."""

    line: Annotated[int, Meta(description="Of the table, from 1; of a trace, the number of the launch.")]
    fields: Annotated[tuple[str, ...], Meta(description="The row as it was given, by `columns`.")]
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    time_us: Annotated[float, Meta(description="Measured on the source GPU.")]
    algorithm1_us: Annotated[
        float | None,
        Meta(description="By Algorithm 1 of the cross-GPU report; null where operations or bytes lack."),
    ] = None
    roof_us: Annotated[
        float | None, Meta(description="By the same with the roofs that kernels reach, not the datasheet's.")
    ] = None
    predicted_us: Annotated[
        float | None, Meta(description="By our model; null where there is no answer.")
    ] = None
    low_us: Annotated[
        float | None, Meta(description="End of the interval that holds 80 % of such launches.")
    ] = None
    high_us: float | None = None
    basis: Annotated[
        str,
        Meta(
            description="static: the ratio of two predictions from code; analytic: from the row and the "
            "figures of the GPUs; empty where there is no answer."
        ),
    ] = ""
    limit: Annotated[str, Meta(description="What weighs most in the prediction.")] = ""
    reason: Annotated[
        str, Meta(description="Why there is no answer, or why the answer does not rest on the code.")
    ] = ""


class TransferReport(Struct, frozen=True, kw_only=True):
    """Report of `transfer` on all rows of a table, in its order."""

    schema: Literal["warplens/transfer/1"]
    tool_version: str
    model_fingerprint: Annotated[
        str, Meta(description="Hash of the code and the tables that decide a time; equal for equal models.")
    ] = ""
    table: str
    table_format: Annotated[str, Meta(description="csv, ncu or pytorch, as recognized by content.")]
    timing: Annotated[
        str, Meta(description="How times were measured: interval, kernel or ncu; predictions are as such.")
    ]
    source: Annotated[str, Meta(description="Key of the GPU that was measured.")]
    source_name: str
    target: str
    target_name: str
    columns: tuple[str, ...]
    answered: int
    rows: tuple[TransferRowEntry, ...]
    notes: tuple[str, ...] = ()
