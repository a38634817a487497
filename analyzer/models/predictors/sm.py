"""Our own: one SM simulated event by event, with all CTAs that it holds.

Four schedulers and their pipes, the load/store path that they share, the SM's part of the L2's and the DRAM's
rate, atomics that queue at one unit of the L2, barriers, and CTAs that follow each other in their slots.
"""

import numpy as np

from analyzer.demand.costs import PIPES, FloatArray
from analyzer.ir.machine import SHARED_PIPES
from analyzer.models.base import Situation, Stall
from analyzer.models.bounds import DRAM, ISSUE, L2, LATENCY
from analyzer.models.causes import PORTS, STALL_OF
from analyzer.models.composition import LAUNCH
from analyzer.models.launching import dispatch_cycles, overhead_cycles
from analyzer.models.placement import assumed_placement
from analyzer.models.residuals import interval_of
from analyzer.models.sm.engine import NO_INSTRUCTIONS, NOT_SELECTED
from analyzer.models.sm.script import Script
from analyzer.models.sm.simulate import Simulation, WarpCycles, simulate
from analyzer.models.sm.traffic import OUTWARD, Act
from analyzer.models.stalls import StallLedger
from analyzer.models.verdict import Range, Verdict, clock_mhz, make_prediction
from analyzer.models.walking import walk_situation

NAME = "sm"
ATOMICS = "atomics"
LOAD_STORE = "load/store path"
REGISTER_PORTS = "register ports"
_BINDING_SHARE = 0.8


def predict(situation: Situation) -> Verdict:
    """Cycles, stack and time of one kernel on one GPU."""
    clock, placement = clock_mhz(situation), assumed_placement(situation)
    simulation = simulate(situation, placement, clock)
    ledger = StallLedger(len(situation.kernel))
    bounds = _bounds(simulation)
    dispatch = dispatch_cycles(situation, clock)
    cycles = max(simulation.cycles, dispatch, *bounds.values())
    is_dispatch = dispatch >= _BINDING_SHARE * cycles and dispatch > max(bounds.values(), default=0.0)
    spent = simulation.warp_cycles(ledger.n_rows)
    empty = cycles * _empty_share(simulation, spent) if is_dispatch else 0.0
    _add_waits(ledger, simulation, spent, cycles - empty)
    ledger.add_outside(Stall.LAUNCH, empty)
    around = overhead_cycles(situation, clock)
    interval = situation.gpu.file.launch.interval_us
    if interval is not None:
        around = max(around, interval.value * clock - cycles)
    ledger.add_outside(Stall.LAUNCH, around)
    stalls = ledger.close()
    name = max(bounds, key=lambda which: bounds[which], default=LATENCY)
    bound = name if bounds.get(name, 0.0) >= _BINDING_SHARE * cycles else LATENCY
    bound = LAUNCH if around > cycles or is_dispatch else bound
    low, high = interval_of(situation, bound, stalls.stack())
    return Verdict(
        situation=situation,
        prediction=make_prediction(
            situation,
            NAME,
            stalls,
            bound=bound,
            bounds_cycles=bounds,
            span=Range(stalls.total_cycles * low, stalls.total_cycles * high, is_whole=True),
            placement=placement,
            notes=simulation.notes,
        ),
        stalls=stalls,
        walk=walk_situation(situation, situation.weights, placement),
    )


def _empty_share(simulation: Simulation, spent: WarpCycles) -> float:
    """Part of the time of an SM's slots in which no CTA is there yet, for none has been handed out."""
    of_cta = spent.total / len(simulation.figures.crew)
    slots = min(simulation.figures.slots, simulation.n_ctas)
    return max(0.0, 1.0 - of_cta * simulation.n_ctas / slots / simulation.cycles)


def _add_waits(ledger: StallLedger, simulation: Simulation, spent: WarpCycles, cycles_of_sm: float) -> None:
    """The busiest SM's cycles, divided as its warps' own are."""
    total, waits = spent.total, spent.waits
    scale = cycles_of_sm / total if total else 0.0
    ledger.add_rows(Stall.SELECTED, spent.selected * scale)
    ledger.add_rows(Stall.WAIT, spent.added * scale)
    ledger.add_rows(Stall.NOT_SELECTED, waits[:, NOT_SELECTED] * scale)
    ledger.add_rows(Stall.NO_INSTRUCTIONS, waits[:, NO_INSTRUCTIONS] * scale)
    is_global = np.isin(simulation.traffic.act, (int(Act.LOAD), int(Act.STORE), int(Act.COPY_OUT)))
    for cause, stall in STALL_OF.items():
        cycles: FloatArray = waits[:, cause] * scale
        if stall is Stall.MIO_THROTTLE:
            ledger.add_rows(Stall.LG_THROTTLE, np.where(is_global, cycles, 0.0))
            cycles = np.where(is_global, 0.0, cycles)
        ledger.add_rows(stall, cycles)


def _bounds(simulation: Simulation) -> dict[str, float]:
    """Cycles that each resource of the busiest SM works."""
    subcores, factor = simulation.figures.subcores, simulation.figures.l2_store_factor
    found: dict[str, float] = {}

    def add(name: str, cycles: float) -> None:
        if cycles:
            found[name] = found.get(name, 0.0) + cycles * simulation.n_ctas

    for script, n_warps in simulation.parts():
        visits = _visits(script)
        add(ISSUE, n_warps * float(visits @ script.issued) / subcores)
        add(LOAD_STORE, n_warps * float(visits @ script.path_cycles))
        is_store = np.isin(script.act, OUTWARD)
        l2 = visits * script.l2_cycles
        loaded, stored = float(l2[~is_store].sum()), float(l2[is_store].sum())
        others = float(l2[np.not_equal(script.act, int(Act.COPY))].sum())  # see the engine
        both = others + stored * (factor - 1.0) if factor else 0.0
        add(L2, n_warps * max(loaded, stored, both))
        add(DRAM, n_warps * float(visits @ script.dram_cycles))
        add(ATOMICS, n_warps * float(visits @ script.atomic_cycles))
        for step, matrix in enumerate(script.matrix):
            if matrix:
                pipe = PIPES[script.matrix_pipe[step]]
                units = 1 if pipe in SHARED_PIPES else subcores
                add(pipe.value, n_warps * float(visits[step]) * matrix / units)
        for step, pipes in enumerate(script.pipes):
            for number, cycles, _ in pipes:
                name = REGISTER_PORTS if number == PORTS else PIPES[number].value
                add(name, n_warps * float(visits[step]) * cycles / subcores)
    return found


def _visits(script: Script) -> FloatArray:
    """How often each step is taken, [step]."""
    found = np.zeros(len(script))
    for run in script.runs:
        found[run.start : run.stop] = run.visits
    return found
