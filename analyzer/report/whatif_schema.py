"""What `whatif` found: the schema of its JSON and the value that its other outputs print."""

from typing import Literal

import msgspec

from analyzer.report.analyze_schema import PredictionEntry

WHATIF_SCHEMA: Literal["warplens/whatif/1"] = "warplens/whatif/1"


class FigureEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of the GPU as it is, and what it rests on."""

    value: float
    basis: str
    source: str


class PointEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One edited GPU: the figures that were set, and the prediction there; None where it was refused."""

    set: dict[str, float]
    prediction: PredictionEntry | None
    refused: str = ""


class WhatIfKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel on a GPU as it is, on edited ones, and how its time follows each figure.

    elasticity: d log time / d log figure, by central difference; -1: twice the figure halves the time.
    """

    name: str
    demangled: str
    architecture: str
    base: PredictionEntry
    points: tuple[PointEntry, ...]
    elasticity: dict[str, float]


class WhatIfReport(msgspec.Struct, frozen=True, kw_only=True):
    """figures: those that any point sets or that the time follows, as the GPU has them."""

    schema: Literal["warplens/whatif/1"]
    tool_version: str
    gpu: str
    gpu_name: str
    model: str
    figures: dict[str, FigureEntry]
    kernels: tuple[WhatIfKernel, ...]
