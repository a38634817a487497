"""Waits for results that too few warps hide: loads and conversions whose consumers come too soon."""

import numpy as np

from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.advice.removed_rows import find_waiting_row, without_result_scoreboards, without_waits
from analyzer.flow.def_use import find_def_use_chains
from analyzer.isa.register_operands import format_register_unit
from analyzer.models.bounds import LATENCY_BOUND
from analyzer.models.interface import Stall
from analyzer.models.model_result import ModelResult
from analyzer.models.stalls import STALL_INDEX

NAME = "exposed-latency"
ACTION = (
    "start the load earlier (software pipelining, prefetch, more independent work in a warp), or give the SM "
    "more warps"
)
_STALLS = (Stall.LONG_SCOREBOARD, Stall.SHORT_SCOREBOARD)
_MIN_STALL_SHARE = 0.03
_MAX_SITES = 3


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the instructions that wait longest; none unless latency bounds the kernel."""
    stalls, total = result.stalls, result.prediction.cycles
    if result.prediction.bound != LATENCY_BOUND or stalls is None or not total:
        return ()
    waits = stalls.cycles[:, [STALL_INDEX[stall] for stall in _STALLS]]
    found: dict[int, Site] = {}
    for row in np.argsort(-waits.sum(axis=1).round(3), kind="stable")[:_MAX_SITES].tolist():
        share = float(waits[row].sum()) / total
        waiting = find_waiting_row(result.model_input, row) if share >= _MIN_STALL_SHARE else None
        if waiting is not None and waiting not in found:
            stall = _STALLS[int(waits[row].argmax())]
            found[waiting] = Site(waiting, _describe_wait(result, waiting, stall, share))
    return tuple(found.values())


def _describe_wait(result: ModelResult, row: int, stall: Stall, share: float) -> str:
    kernel = result.model_input.kernel
    producer = -1 if result.timeline is None else int(result.timeline.producers[row])
    waiting = f"stall {stall.value} {share:.0%}: {kernel.find_opcode(row).mnemonic} waits"
    if producer < 0:
        return waiting
    form = kernel.decode_form(producer)
    register = format_register_unit(form.defs[0]) if form.defs else "its result"
    return f"{waiting} for {form.opcode.mnemonic} at {int(kernel.addresses[producer]):#06x} ({register})"


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the launch in which these instructions find their operands ready."""
    rows = list_rows(sites)
    chains = find_def_use_chains(result.model_input.cfg)
    # Otherwise a later wait for the same scoreboard, meant for another load, would wait in their place.
    awaited = frozenset[int]().union(
        *(raising for row in rows for raising in chains.sources(row).scoreboards.values())
    )
    edited = without_waits(without_result_scoreboards(result.model_input, awaited), rows)
    return Edit(edited, note="these instructions wait for nothing")
