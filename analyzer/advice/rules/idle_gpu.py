"""A launch with too few CTAs to fill the GPU, whose loops could be divided among more of them."""

from analyzer.advice.edited_input import edit_input, measure_divided_share
from analyzer.advice.interface import Edit, Site
from analyzer.models.model_result import ModelResult

NAME = "idle-gpu"
ACTION = "launch a grid that fills the GPU, and divide the iterations of the loops among its CTAs"
_MAX_FILLED_SHARE = 0.5


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the launch if it fills less than half of the GPU and spends its time in loops."""
    model_input = result.model_input
    places, ctas = model_input.occupancy.count_wave_ctas(model_input.gpu.sm_count), model_input.grid_ctas
    if model_input.grid is None or ctas > _MAX_FILLED_SHARE * places:
        return ()
    kept = measure_divided_share(model_input, model_input.grid_ctas / places)
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
    places = model_input.occupancy.count_wave_ctas(model_input.gpu.sm_count)
    return Edit(
        edit_input(model_input, grid_ctas=places),
        work_scale=measure_divided_share(model_input, model_input.grid_ctas / places),
        note=f"{places:,} CTAs share the iterations of the loops",
    )
