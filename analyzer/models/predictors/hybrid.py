"""`sm` with a learned correction: its time, times the factor that measured launches like this one needed.

The features are what `sm` itself found (stalls, resources, waves, footprint), all dimensionless. Stalls keep
their proportions. Where too few launches like this one taught, the answer is that of `sm`, and says so.
"""

import math
from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from analyzer.hardware.gpu import Gpu
from analyzer.models.hybrid.features import Row, compute_features
from analyzer.models.hybrid.weights import HybridWeights, load_hybrid_weights
from analyzer.models.interface import ModelInput
from analyzer.models.learned.correction import Situation
from analyzer.models.model_result import ModelResult, SmScaling
from analyzer.models.predictors import sm
from analyzer.models.residuals import measure_guessed_share
from analyzer.models.stalls import StallProfile
from analyzer.operators.hardware_figures import compute_hardware_features, read_operator_hardware

NAME = "hybrid"
_UNCORRECTED_NOTE = f"too few measured launches are like this one: the time is that of {sm.NAME}, uncorrected"
_NOTES: Mapping[Situation, str] = {
    Situation.KNOWN: "measured launches of this kind on this GPU taught the correction",
    Situation.UNSEEN: "measured launches of this kind taught the correction, none of them on this GPU",
}


def predict(model_input: ModelInput) -> ModelResult:
    """Predict cycles, stall stack and time of one kernel on one GPU."""
    return correct_result(sm.predict(model_input), load_hybrid_weights())


def correct_result(result: ModelResult, weights: HybridWeights) -> ModelResult:
    """Return a result of `sm` with the correction, or with its own time where too little taught nearby.

    A launch whose counts or addresses are guesses is not corrected: the error of a guess is no model's.
    """
    features = compute_features(result)
    gpu = result.model_input.gpu.measured_key
    situation = weights.taught.find_situation(features, gpu)
    if situation is None or measure_guessed_share(result.model_input) > 0:
        return _rename(result, _UNCORRECTED_NOTE)
    factor = math.exp(predict_log_factor(weights, situation, features, result.model_input.gpu))
    scaled = _scale(_rename(result, f"{_NOTES[situation]}: {sm.NAME}'s time x {factor:.2f}"), factor)
    time_us = scaled.prediction.time_us
    low, high = weights.intervals[situation].find(np.array([time_us]))
    prediction = replace(
        scaled.prediction,
        time_us_low=time_us * math.exp(min(0.0, float(low[0]))),
        time_us_high=time_us * math.exp(max(0.0, float(high[0]))),
    )
    return replace(scaled, prediction=prediction)


def predict_log_factor(weights: HybridWeights, situation: Situation, features: Row, gpu: Gpu) -> float:
    """Return the logarithm of the corrected time over that of `sm`."""
    if situation is Situation.UNSEEN:
        return float(weights.unseen.predict(features[None])[0])
    return float(weights.known.predict(append_hardware(features, gpu)[None])[0])


def append_hardware(features: Row, gpu: Gpu) -> Row:
    """Return a row with the figures of a GPU, or of an edit of it, that measured launches taught."""
    hardware = compute_hardware_features(read_operator_hardware(gpu))
    return np.concatenate([features, np.array(hardware)])


def _rename(result: ModelResult, note: str) -> ModelResult:
    prediction = result.prediction
    return replace(
        result,
        prediction=replace(prediction, model=NAME, assumptions=(*prediction.assumptions, note)),
    )


def _scale(result: ModelResult, factor: float) -> ModelResult:
    """Return a result all of whose cycles take `factor` times as long; what resources need stays."""
    prediction, stalls, scaling = result.prediction, result.stalls, result.sm_scaling
    return replace(
        result,
        prediction=replace(
            prediction,
            cycles=prediction.cycles * factor,
            time_us=prediction.time_us * factor,
            cpi_stack={stall: cycles * factor for stall, cycles in prediction.cpi_stack.items()},
        ),
        stalls=None if stalls is None else _scale_stalls(stalls, factor),
        sm_scaling=None if scaling is None else _scale_scaling(scaling, factor),
    )


def _scale_stalls(stalls: StallProfile, factor: float) -> StallProfile:
    unattributed = {stall: cycles * factor for stall, cycles in stalls.unattributed_cycles.items()}
    return StallProfile(stalls.cycles * factor, unattributed)


def _scale_scaling(scaling: SmScaling, factor: float) -> SmScaling:
    return SmScaling(
        scaling.ctas_per_sm,
        scaling.busy_cycles * factor,
        lambda ctas_per_sm: scaling.predict_balanced_cycles(ctas_per_sm) * factor,
    )
