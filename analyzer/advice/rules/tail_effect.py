"""A last wave of CTAs that leaves SMs idle."""

from analyzer.advice.edited_input import edit_input
from analyzer.advice.interface import Edit, Site
from analyzer.models.interface import ModelInput
from analyzer.models.model_result import ModelResult

NAME = "tail-effect"
ACTION = (
    "choose a grid that fills whole waves: other tiles, a split of the work, or CTAs that loop over tiles "
    "(persistent)"
)
_MAX_FILLED_SHARE = 0.95


def find_sites(result: ModelResult) -> tuple[Site, ...]:
    """Return the launch if its last wave fills less than 95 % of its places."""
    model_input = result.model_input
    places, ctas = _count_places(model_input), model_input.grid_ctas
    left = ctas % places
    if model_input.grid is None or ctas <= places or not left or left > _MAX_FILLED_SHARE * places:
        return ()
    waves = ctas // places + 1
    is_wave = places == model_input.occupancy.count_wave_ctas(model_input.gpu.sm_count)
    what = "waves" if is_wave else "rounds of SMs"
    message = (
        f"tail effect: the last of {waves:,} {what} fills {left / places:.0%} of its places "
        f"({left:,} of {places:,} CTAs)"
    )
    return (Site(None, message, max_gain_share=1.0 - ctas / (waves * places)),)


def remove_cause(result: ModelResult, sites: tuple[Site, ...]) -> Edit | None:
    """Return the full waves of the launch, for the work of all: as if its last wave took its part of one."""
    model_input = result.model_input
    places = _count_places(model_input)
    full_ctas = model_input.grid_ctas // places * places
    edited = edit_input(model_input, grid_ctas=full_ctas)
    return Edit(edited, model_input.grid_ctas / full_ctas, note="the last wave takes its share of a full one")


def _count_places(model_input: ModelInput) -> int:
    """Return the CTAs that the GPU holds at a time; for a launch that holds fewer, one for each SM."""
    sms = model_input.gpu.sm_count
    places = sms * max(1, model_input.occupancy.ctas_per_sm)
    return places if model_input.grid_ctas >= places else sms
