"""Waits in loops for loads of the same iteration, which could start iterations earlier."""

import numpy as np

from analyzer.advice.earlier_loads import (
    count_iterations_ahead,
    estimate_first_waits,
    find_startable_loads,
    start_loads_earlier,
)
from analyzer.advice.edited_rows import find_waiting_row
from analyzer.advice.interface import Edit, Site, list_rows
from analyzer.isa.register_operands import format_register_unit
from analyzer.models.bounds import LATENCY_BOUND
from analyzer.models.interface import Stall
from analyzer.models.model_result import ModelResult
from analyzer.models.stalls import STALL_INDEX

NAME = "exposed-latency"
ACTION = "start the loads of the next iterations before the work of this one (software pipelining, prefetch)"
_STALLS = (Stall.LONG_SCOREBOARD, Stall.SHORT_SCOREBOARD)
_MIN_STALL_SHARE = 0.03
_MAX_SITES = 3


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return what waits longest for loads of its loop; nothing unless latency bounds the kernel."""
    stalls, total = result.stalls, result.prediction.cycles
    if result.prediction.bound != LATENCY_BOUND or stalls is None or not total:
        return ()
    waits = stalls.cycles[:, [STALL_INDEX[stall] for stall in _STALLS]]
    found: dict[int, Site] = {}
    for row in np.argsort(-waits.sum(axis=1).round(3), kind="stable")[:_MAX_SITES].tolist():
        share = float(waits[row].sum()) / total
        waiting = find_waiting_row(result.model_input, row) if share >= _MIN_STALL_SHARE else None
        if waiting is None or waiting in found or not find_startable_loads(result.model_input, waiting):
            continue
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
    """Return the launch in which the loads that these instructions wait for start iterations earlier."""
    model_input = result.model_input
    loads = frozenset[int]().union(*(find_startable_loads(model_input, row) for row in list_rows(sites)))
    ahead = count_iterations_ahead(result, loads, _STALLS)
    sets = "a second set" if ahead == 1 else f"{ahead + 1} sets"
    when = "one iteration" if ahead == 1 else f"{ahead} iterations"
    return Edit(
        start_loads_earlier(model_input, loads, ahead),
        remaining_cycles=estimate_first_waits(model_input, loads),
        note=f"loads start {when} earlier, into {sets} of registers",
        action=f"start these loads {when} earlier (software pipelining with {sets} of registers)",
    )
