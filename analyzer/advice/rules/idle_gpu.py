"""A launch with too few CTAs to fill the GPU, whose loops could be divided among more of them."""

from analyzer.advice.edited_input import edit_input
from analyzer.advice.interface import Edit, Site
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "idle-gpu"
ACTION = "launch a grid that fills the GPU, and divide the iterations of the loops among its CTAs"
_MAX_FILLED_SHARE = 0.5


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the launch if it fills less than half of the GPU and spends its time in loops."""
    model_input = result.model_input
    places, ctas = _count_places(model_input), model_input.grid_ctas
    if model_input.grid is None or ctas > _MAX_FILLED_SHARE * places:
        return ()
    kept = _measure_kept_share(model_input)
    sms, fitting = model_input.gpu.sm_count, model_input.occupancy.ctas_per_sm
    idle = (
        f"{ctas:,} CTAs on {sms:,} SMs: {1.0 - ctas / sms:.0%} of these have none"
        if ctas < sms
        else f"{ctas:,} CTAs: {fitting} fit on each of {sms:,} SMs, and {ctas / sms:.3g} are there"
    )
    return (Site(None, f"the launch leaves the GPU idle: {idle}", max_gain_share=1.0 - kept),)


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return a grid that fills the GPU once, each of whose CTAs does a part of the work."""
    model_input = result.model_input
    places = _count_places(model_input)
    return Edit(
        edit_input(model_input, grid_ctas=places),
        work_scale=_measure_kept_share(model_input),
        note=f"{places:,} CTAs share the iterations of the loops",
    )


def _count_places(model_input: ModelInput) -> int:
    return model_input.gpu.sm_count * max(1, model_input.occupancy.ctas_per_sm)


def _measure_kept_share(model_input: ModelInput) -> float:
    """Measure what a CTA's work is where loops are divided among all, over what it is now.

    Instructions outside of loops stay, and one iteration of each loop at least.
    """
    counts, cfg = model_input.execution_counts, model_input.cfg
    in_share = model_input.grid_ctas / _count_places(model_input)
    before = after = 0.0
    for block in cfg.blocks:
        work = float(counts[block.start : block.stop].sum())
        is_divided = model_input.loop_forest.loop_of[block.index] is not None
        length = block.stop - block.start
        before += work
        after += max(min(work, length), work * in_share) if is_divided else work
    return after / before if before else 1.0
