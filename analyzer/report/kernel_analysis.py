"""The analysis of one kernel, before it becomes report entries."""

from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct

from analyzer.advice.interface import Finding
from analyzer.demand.instruction_mix import InstructionMix
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.static_counts.block_counts import BlockCounts
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopForest
from analyzer.ir.launch import Launch
from analyzer.ir.module import Kernel
from analyzer.models.loop_bounds import LoopBounds
from analyzer.models.model_result import ModelResult
from analyzer.report.analyze_schema import HardwareCurve
from analyzer.report.level_work import LevelWork


class GpuResult(Struct, frozen=True, kw_only=True):
    """One model's result for a kernel on one GPU, or a refusal."""

    gpu: str
    gpu_name: str
    transferred: bool  # the code is not of the GPU's architecture
    refusal_reason: str  # empty where there is a result
    result: ModelResult | None


class KernelAnalysis(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One kernel and launch on all GPUs."""

    kernel: Kernel
    ordinal: int
    cfg: Cfg
    loop_forest: LoopForest
    counts: BlockCounts
    profile: ExecutionProfile | None  # None where the launch was neither executed nor traced
    mix: InstructionMix
    launch: Launch
    results: tuple[GpuResult, ...]
    loops: tuple[LoopBounds, ...]  # of `first_result`
    findings: tuple[Finding, ...]  # of `first_result`; none where no advice was asked for
    hardware_curves: tuple[HardwareCurve, ...] = ()  # none where they were not asked for
    levels: tuple[LevelWork, ...] = ()  # highest first; none where they were not asked for

    @cached_property
    def instructions_per_warp(self) -> float:
        """Instructions that the mean warp executes."""
        return self._count_executed(range(len(self.cfg.blocks)))

    def compute_instruction_share(self, loop: Loop) -> float:
        """Return the share of the executed instructions that are in the loop."""
        total = self.instructions_per_warp
        return self._count_executed(loop.blocks) / total if total else 0.0

    def _count_executed(self, blocks: Iterable[int]) -> float:
        return sum(self.counts.per_warp[block] * len(self.cfg.blocks[block]) for block in blocks)

    @property
    def first_result(self) -> ModelResult | None:
        """First result on any GPU, to which pipes, loops and advice belong."""
        return next((each.result for each in self.results if each.result is not None), None)
