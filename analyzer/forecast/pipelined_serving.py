"""Serving with pipeline parallelism: as many batches in flight as the pipeline has stages.

Frameworks keep a pipeline busy with one batch per stage (SGLang's `running_mbs`, vLLM's batch queue). A batch
comes back after a whole step; meanwhile each other one passes the stages behind it. If steps take equally
long, none waits for another, so each batch is an engine of its own, with its share of the requests, of the
running ones and of the KV cache, whose steps take the time of all stages.

Two idealizations: requests are dealt to the batches in turn, not by which has room, and a batch never waits
at a stage for a longer one before it. The first makes the queue a little longer, the second steps a little
shorter.

Example: two stages, 8 equal requests at once: two engines of 4, both ready after the time of a batch of 4.
"""

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from analyzer.forecast.batch_schedulers import make_scheduler
from analyzer.forecast.continuous_batching import EngineHistory, ServingRun, simulate_serving
from analyzer.forecast.deployment import Framework
from analyzer.forecast.engine_state import EngineLimits
from analyzer.forecast.serving_load import ServingLoad
from analyzer.forecast.step_clock import StepClock


def share_limits(limits: EngineLimits, stages: int) -> EngineLimits:
    """Return the limits of one of the batches in flight."""
    return replace(
        limits,
        max_running=max(1, limits.max_running // stages),
        kv_capacity_tokens=limits.kv_capacity_tokens // stages,
    )


def simulate_pipeline(
    load: ServingLoad, limits: EngineLimits, stages: int, framework: Framework, clock: StepClock
) -> ServingRun:
    """Return what becomes of a load; see `simulate_serving`.

    Every request must fit into the share of one batch. clock: of steps through all stages.
    """
    if stages == 1:
        return simulate_serving(load, limits, make_scheduler(framework), clock)
    own = share_limits(limits, stages)
    runs = [
        simulate_serving(_deal_load(load, stages, place), own, make_scheduler(framework), clock)
        for place in range(min(stages, load.n_requests))
    ]
    return _merge_runs(load, limits, stages, runs)


def _deal_load(load: ServingLoad, stages: int, place: int) -> ServingLoad:
    return ServingLoad(
        load.arrival_s[place::stages], load.prompt_tokens[place::stages], load.output_tokens[place::stages]
    )


def _merge_runs(
    load: ServingLoad, limits: EngineLimits, stages: int, runs: Sequence[ServingRun]
) -> ServingRun:
    """Return the runs of all batches as one of the engine."""
    columns = {}
    for name in ("scheduled_s", "first_token_s", "end_s", "preemptions"):
        merged = np.empty(load.n_requests, dtype=getattr(runs[0], name).dtype)
        for place, run in enumerate(runs):
            merged[place::stages] = getattr(run, name)
        columns[name] = merged
    history = _add_histories(runs)
    return ServingRun(
        load=load,
        limits=limits,
        history=history,
        most_held_tokens=min(
            int(sum(run.most_held_tokens for run in runs)), limits.n_blocks * limits.block_tokens
        ),
        gap_counts=np.sum([run.gap_counts for run in runs], axis=0),
        longest_gap_s=max(run.longest_gap_s for run in runs),
        steps=sum(run.steps for run in runs),
        busy_s=sum(run.busy_s for run in runs) / stages,
        request_seconds=sum(run.request_seconds for run in runs),
        prefilled_tokens=sum(run.prefilled_tokens for run in runs),
        recomputed_tokens=sum(run.recomputed_tokens for run in runs),
        **columns,
    )


def _add_histories(runs: Sequence[ServingRun]) -> EngineHistory:
    """Return the sums of what held in each batch; before its first request and after its last it is empty."""
    end_s = np.unique(np.concatenate([run.history.end_s for run in runs]))
    sums = np.zeros((3, len(end_s)), dtype=np.int64)
    for run in runs:
        history = run.history
        times = np.concatenate([run.load.arrival_s[:1], history.end_s])
        places = np.searchsorted(times, end_s, side="left")
        for row, column in zip(sums, (history.running, history.waiting, history.held_tokens), strict=True):
            row += np.concatenate([[0], column, [0]])[places]
    return EngineHistory(end_s, *sums)
