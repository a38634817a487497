"""Find the gathers and scatters of a launch: accesses whose addresses depend on loaded words.

Where words are unknown, the executed CTAs say so. Words that the user gave are read, and the addresses of
executed CTAs are as exact as any; but other CTAs read other places, which no formula tells. Such accesses are
found by what each request does: its lanes read a sector each.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from analyzer.execution.footprint.footprint import count_union_bytes
from analyzer.execution.machine.access_totals import AccessTotals
from analyzer.execution.machine.random_data import find_target_buffers
from analyzer.execution.machine.unknown_words import AddressConfidence
from analyzer.execution.sampling.cta_samples import CtaSample
from analyzer.execution.sampling.execution_task import ExecutionTask
from analyzer.execution.sampling.launch_sums import LaunchSums
from analyzer.ir.opcode import GLOBAL_SPACES, OpKind

if TYPE_CHECKING:
    from analyzer.execution.sampling.gather_estimate import GatherEstimate, InstructionKey


def find_gathers(
    task: ExecutionTask, sample: CtaSample, sums: LaunchSums
) -> "Mapping[InstructionKey, GatherEstimate]":
    """Return estimates of the accesses whose addresses depend on loaded words, by instruction.

    Unknown words are replaced by random ones. Words that the user gave are read, where executed CTAs do not
    show what the others access.
    """
    placed = [
        totals
        for totals in sums.access_totals.values()
        if totals.access.address is not None and totals.access.bulk is None
    ]
    unknown = {
        (totals.access.row, totals.access.space): totals
        for totals in placed
        if totals.trust < AddressConfidence.LANE_PATTERN
    }
    given = {
        (totals.access.row, totals.access.space) for totals in placed if _may_be_gather(task, sample, totals)
    } - unknown.keys()
    if not unknown and not given:
        return {}
    from analyzer.execution.sampling.gather_estimate import estimate_gathers

    tables = find_target_buffers(task.image, ((t.access.row, t.base_address) for t in unknown.values()))
    return estimate_gathers(task, unknown, given, tables)


def _may_be_gather(task: ExecutionTask, sample: CtaSample, totals: AccessTotals) -> bool:
    """Return whether words that the user gave may select what is read, and the grid's bytes are not known.

    Each lane then reads a sector of its own.
    """
    return (
        task.image.has_contents
        and totals.access.kind is OpKind.LOAD
        and totals.access.space in GLOBAL_SPACES
        and totals.trust is AddressConfidence.EXACT
        and totals.is_scattered
        and not (sample.has_affine_accesses and count_union_bytes([totals.footprint]) is not None)
    )
