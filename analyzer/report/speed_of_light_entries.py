"""Achieved throughput as report entries."""

from analyzer.models.model_result import ModelResult
from analyzer.models.speed_of_light import MemoryThroughput, measure_speed_of_light
from analyzer.report.analyze_schema import ComputeThroughputEntry, MemoryThroughputEntry, SpeedOfLightEntry
from analyzer.report.counts_entries import find_address_provenance


def make_speed_of_light_entry(result: ModelResult) -> SpeedOfLightEntry:
    """Return what a launch achieves at its predicted time, with what the counts rest on."""
    found, model_input = measure_speed_of_light(result), result.model_input
    return SpeedOfLightEntry(
        compute=tuple(
            ComputeThroughputEntry(
                data_type=one.data_type,
                unit=one.unit.value,
                operations=one.operations,
                operations_per_second=one.per_second,
                peak_per_second=one.peak_per_second,
                peak_share=one.peak_share,
            )
            for one in found.compute
        ),
        memory=tuple(map(_make_memory_entry, found.memory)),
        l1=_make_memory_entry(found.l1),
        issue_share=found.issue_share,
        provenance=model_input.block_counts.provenance.value,
        address_provenance=find_address_provenance(model_input.profile).value,
        assumes_one_wave=model_input.grid is None,
    )


def _make_memory_entry(found: MemoryThroughput) -> MemoryThroughputEntry:
    return MemoryThroughputEntry(
        level=found.level,
        bytes=found.moved_bytes,
        gbps=found.gbps,
        peak_gbps=found.peak_gbps,
        peak_share=found.peak_share,
    )
