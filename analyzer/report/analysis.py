"""What the pipeline found of one kernel, before it becomes report entries."""

from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct

from analyzer.demand.mix import Mix
from analyzer.execution.counts import BlockCounts
from analyzer.execution.profile import ExecutionProfile
from analyzer.flow.cfg import Cfg
from analyzer.flow.loops import Loop, LoopNest
from analyzer.ir.launch import Launch
from analyzer.ir.program import Kernel
from analyzer.models.advice import Finding
from analyzer.models.loops import LoopVerdict
from analyzer.models.verdict import Verdict


class GpuVerdict(Struct, frozen=True, kw_only=True):
    """A kernel on one GPU; verdict is None where it was refused for `reason`."""

    gpu: str
    gpu_name: str
    transferred: bool
    reason: str
    verdict: Verdict | None


class KernelAnalysis(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """One kernel and launch on all GPUs; loops and findings are for the first GPU that was not refused."""

    kernel: Kernel
    ordinal: int
    cfg: Cfg
    nest: LoopNest
    counts: BlockCounts
    profile: ExecutionProfile | None
    mix: Mix
    launch: Launch
    verdicts: tuple[GpuVerdict, ...]
    loops: tuple[LoopVerdict, ...]
    findings: tuple[Finding, ...]

    @cached_property
    def instructions_per_warp(self) -> float:
        """Instructions that one warp executes."""
        return self._executed(range(len(self.cfg.blocks)))

    def share_of(self, loop: Loop) -> float:
        """Part of the executed instructions that the loop holds."""
        total = self.instructions_per_warp
        return self._executed(loop.blocks) / total if total else 0.0

    def _executed(self, blocks: Iterable[int]) -> float:
        return sum(self.counts.per_warp[block] * len(self.cfg.blocks[block]) for block in blocks)

    @property
    def first(self) -> Verdict | None:
        """The verdict that pipes, loops and advice are shown for."""
        return next((v.verdict for v in self.verdicts if v.verdict is not None), None)
