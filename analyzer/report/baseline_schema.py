"""The committed baseline of `check`: schema `warplens/baseline/1`.

Docstrings and descriptions are published in `hwdb/schema/baseline-1.json`. A file has one line for each
kernel, in a fixed order, so that two branches which change different kernels merge.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

Amount = int | float  # an integer stays one, so that a file read and written again is the same
BaselineKey = tuple[str, str, str, str, str, str]
BASELINE_SCHEMA: Literal["warplens/baseline/1"] = "warplens/baseline/1"


class BaselineGpu(Struct, frozen=True, kw_only=True):
    """A GPU that times are predicted for."""

    gpu: str
    figures: Annotated[str, Meta(description="Digest of all its figures, as its file and ours give them.")]


class BaselineInput(Struct, frozen=True, kw_only=True):
    """A file or folder that kernels come from."""

    path: Annotated[str, Meta(description="From the folder of the baseline, with forward slashes.")]
    toolchain: Annotated[tuple[str, ...], Meta(description="Names and versions of the tools that made it.")]


class BaselinePrediction(Struct, frozen=True, kw_only=True):
    """What is predicted for a kernel on one GPU."""

    metrics: Mapping[str, Amount]
    cpi_stack: Annotated[Mapping[str, Amount], Meta(description="Cycles per instruction, by stall.")] = {}


class BaselineKernel(Struct, frozen=True, kw_only=True):
    """One kernel and launch."""

    name: Annotated[str, Meta(description="As compiled.")]
    input: str
    architecture: str
    launch: Annotated[str, Meta(description="Grid and block as completed from metadata, for people.")]
    launch_digest: Annotated[str, Meta(description="Of the launch as it was given.")]
    assumed_launch: Annotated[
        str, Meta(description="What was assumed of it: times of another assumption do not compare.")
    ] = ""
    code: Annotated[str, Meta(description="Digest of instructions, control codes and resources.")]
    metrics: Annotated[Mapping[str, Amount], Meta(description="Figures that do not depend on a GPU.")]
    gpus: Mapping[str, BaselinePrediction]

    @property
    def key(self) -> BaselineKey:
        """What no two kernels of a baseline share; they are sorted by it."""
        return (self.input, self.name, self.architecture, self.launch_digest, self.launch, self.code)


class Baseline(Struct, frozen=True, kw_only=True):
    """Kernels as they were accepted, and what their figures rest on."""

    schema: Literal["warplens/baseline/1"]
    tool_version: str
    model: str
    model_fingerprint: Annotated[str, Meta(description="Hash of the code and the tables that decide a time.")]
    assumed_launch: Annotated[bool, Meta(description="Kernels without a launch were given an assumed one.")]
    gpus: tuple[BaselineGpu, ...]
    inputs: tuple[BaselineInput, ...]
    kernels: tuple[BaselineKernel, ...]
