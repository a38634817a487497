"""The report of `whatif`: schema `warplens/whatif/1`, one value for all outputs.

Field names are the JSON contract: keys may be added, never renamed. Docstrings and descriptions are published
in `hwdb/schema/whatif-1.json`.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from analyzer.report.analyze_schema import Effect, PredictionEntry

WHATIF_SCHEMA: Literal["warplens/whatif/1"] = "warplens/whatif/1"


class FigureEntry(Struct, frozen=True, kw_only=True):
    """A figure of the GPU as it is, with its basis and source."""

    value: float
    basis: str
    source: str


class PointEntry(Struct, frozen=True, kw_only=True):
    """One edited GPU and the prediction there."""

    set: Annotated[Mapping[str, float], Meta(description="The figures that were set.")]
    prediction: Annotated[PredictionEntry | None, Meta(description="Null where the kernel was refused.")]
    refused: str = ""
    effect: Annotated[
        Effect | None,
        Meta(
            description="How the time changed; none: by no more than the resolution of the model, "
            "which is no effect. Null where the kernel was refused."
        ),
    ] = None
    scaled: Annotated[
        Mapping[str, float],
        Meta(description="Figures that follow those that were set, and their values there."),
    ] = {}


class WhatIfKernel(Struct, frozen=True, kw_only=True):
    """A kernel on a GPU as it is, on edited ones, and how its time follows each figure."""

    input: Annotated[str, Meta(description="Path of its input.")] = ""
    name: str
    demangled: str
    architecture: str
    base: PredictionEntry
    points: tuple[PointEntry, ...]
    elasticity: Annotated[
        Mapping[str, float] | None,
        Meta(
            description="d log time / d log figure, by central difference; -1: twice as much, half the time. "
            "Figures are left out whose effect the noise of the model exceeds. Null where not asked for."
        ),
    ]
    elasticity_of_others: Annotated[
        Mapping[str, float],
        Meta(
            description="Figures that the search did not tell apart: by how many percent the time rises "
            "where all of them are one percent worse."
        ),
    ] = {}
    resolution: Annotated[
        float,
        Meta(
            description="Relative change of time that can be noise of the model: less is no effect, and no "
            "elasticity."
        ),
    ] = 0.0


class WhatIfReport(Struct, frozen=True, kw_only=True):
    """Report of `whatif` on all kernels chosen."""

    schema: Literal["warplens/whatif/1"]
    tool_version: str
    model_fingerprint: Annotated[
        str, Meta(description="Hash of the code and the tables that decide a time; equal for equal models.")
    ] = ""
    gpu: str
    gpu_name: str
    model: str
    figures: Annotated[
        Mapping[str, FigureEntry],
        Meta(description="Figures that any point sets or that the time follows, as the GPU has them."),
    ]
    kernels: tuple[WhatIfKernel, ...]
    notes: Annotated[
        tuple[str, ...],
        Meta(description="What the points and elasticities rest on."),
    ] = ()
