"""Loops whose code does not fit into the instruction cache, so that warps wait for it in each iteration."""

import math

from msgspec.structs import replace

from analyzer.advice.interface import Edit, Site
from analyzer.ir.module import INSTRUCTION_BYTES
from analyzer.models.block_sequences import split_into_block_sequences
from analyzer.models.model_result import ModelResult

NAME = "instruction-cache"
ACTION = "unroll less (#pragma unroll N), or keep large functions out of the loop (__noinline__)"


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the first instructions of innermost loops that are larger than the cache, largest first."""
    model_input = result.model_input
    blocks, capacity = model_input.cfg.blocks, model_input.arch.memory.instruction_cache_bytes.value
    found: list[tuple[int, int]] = []
    for sequence in split_into_block_sequences(model_input.cfg, model_input.loop_forest):
        start = blocks[sequence.blocks[0]].start
        size = sum(len(blocks[number]) for number in sequence.blocks) * INSTRUCTION_BYTES
        if sequence.loop is not None and size > capacity and model_input.execution_counts[start] > 1:
            found.append((size, start))
    found.sort(key=lambda one: (-one[0], one[1]))
    return tuple(
        Site(
            row,
            f"stall no_instruction: the loop from here has {size:,} bytes of code, the instruction cache "
            f"{capacity:,.0f}",
        )
        for size, row in found
    )


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch on an SM whose instruction cache holds all code."""
    arch = result.model_input.arch
    cache = replace(arch.memory.instruction_cache_bytes, value=math.inf)
    memory = replace(arch.memory, instruction_cache_bytes=cache)
    edited = replace(arch, memory=memory, instruction_caches=None)
    return Edit(replace(result.model_input, arch=edited), note="an instruction cache for all code")
