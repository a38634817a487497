"""What the pipeline found of one kernel, before it becomes report entries."""

from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct

from analyzer.demand.instruction_mix import InstructionMix
from analyzer.execution.profile.execution_profile import ExecutionProfile
from analyzer.execution.static_counts.block_counts import BlockCounts
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopForest
from analyzer.ir.launch import Launch
from analyzer.ir.module import Kernel
from analyzer.models.advice import Finding
from analyzer.models.loop_bounds import LoopBounds
from analyzer.models.model_result import ModelResult


class GpuResult(Struct, frozen=True, kw_only=True):
    """A kernel on one GPU; verdict is None where it was refused for `reason`."""

    gpu: str
    gpu_name: str
    transferred: bool
    refusal_reason: str
    result: ModelResult | None


class KernelAnalysis(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One kernel and launch on all GPUs; loops and findings are for the first GPU that was not refused."""

    kernel: Kernel
    ordinal: int
    cfg: Cfg
    loop_forest: LoopForest
    counts: BlockCounts
    profile: ExecutionProfile | None
    mix: InstructionMix
    launch: Launch
    results: tuple[GpuResult, ...]
    loops: tuple[LoopBounds, ...]
    findings: tuple[Finding, ...]

    @cached_property
    def instructions_per_warp(self) -> float:
        """Instructions that one warp executes."""
        return self._count_executed(range(len(self.cfg.blocks)))

    def compute_instruction_share(self, loop: Loop) -> float:
        """Part of the executed instructions that the loop holds."""
        total = self.instructions_per_warp
        return self._count_executed(loop.blocks) / total if total else 0.0

    def _count_executed(self, blocks: Iterable[int]) -> float:
        return sum(self.counts.per_warp[block] * len(self.cfg.blocks[block]) for block in blocks)

    @property
    def first_result(self) -> ModelResult | None:
        """The verdict that pipes, loops and advice are shown for."""
        return next((v.result for v in self.results if v.result is not None), None)
