"""Our model of operators: an analytic reference, times a learned correction; see `learned.correction`."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import msgspec
import numpy as np

from analyzer.hardware.gpu import Gpu
from analyzer.hardware.gpu_database import load_gpu
from analyzer.models.learned.correction import LearnedWeights, Rows, Situation, TaughtGpu
from analyzer.models.learned.weights import find_learned_weights
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.operators.batches import (
    AttentionBatch,
    Column,
    MoeBatch,
    OperatorBatch,
    ProductBatch,
    describe_kind,
)
from analyzer.operators.family import OperatorFamily, ReferenceTerms, find_family
from analyzer.operators.hardware_figures import (
    OperatorHardware,
    compute_hardware_features,
    read_operator_hardware,
)
from analyzer.operators.names import Backend
from analyzer.operators.places import locate_rows
from analyzer.text.errors import UsageError

NAME = "ours"
_BackedBatch = ProductBatch | AttentionBatch | MoeBatch  # frameworks have kernels of their own
_UNTAUGHT_INTERVAL = (-0.7, 0.7)  # assumed: half to twice the time, where no row of an operator taught


def predict(batch: OperatorBatch, gpu: Gpu, folder: Path | None = None) -> OperatorPrediction:
    """Return times of a batch on a GPU, by the weights in a folder, else by those shipped.

    Raises UsageError for an operator that no family serves.
    """
    family = find_family(batch)
    hardware = read_operator_hardware(gpu)
    batch = family.resolve(batch, hardware)
    weights = find_weights(family, batch, folder, hardware)
    found = predict_with_weights(batch, gpu, family, weights)
    usual = family.find_backend(batch)
    if usual is None or weights is None or not isinstance(batch, _BackedBatch):
        return found
    if batch.backend is not None and weights.name == family.choose_weights(batch):
        return found
    others = _ask_others(batch, weights.name, gpu, folder)
    found = msgspec.structs.replace(found, is_of_others=batch.backend is not None)
    if others:
        return _span(found, usual, others)
    return _widen(found, weights) if found.is_of_others else found


def _ask_others(
    batch: _BackedBatch, asked_weights: str, gpu: Gpu, folder: Path | None
) -> dict[Backend, OperatorPrediction]:
    """Return predictions by the weights of backends that have their own, but for those that were asked."""
    hardware, others = read_operator_hardware(gpu), {}
    for backend in Backend:
        asked: OperatorBatch = msgspec.structs.replace(batch, backend=backend)
        other = find_family(asked)
        asked = other.resolve(asked, hardware)
        own_weights = _find_own_weights(other, asked, folder, hardware)
        if own_weights is not None and own_weights.name != asked_weights:
            others[backend] = predict_with_weights(asked, gpu, other, own_weights)
    return others


def _widen(found: OperatorPrediction, weights: LearnedWeights) -> OperatorPrediction:
    """Return a prediction by other kernels as uncertain as on a GPU of which nothing taught."""
    low, high = weights.intervals[Situation.UNSEEN].find(found.time_us)
    return msgspec.structs.replace(
        found,
        low_us=np.minimum(found.low_us, found.time_us * np.exp(low)),
        high_us=np.maximum(found.high_us, found.time_us * np.exp(high)),
    )


def _span(
    found: OperatorPrediction, usual: Backend, others: Mapping[Backend, OperatorPrediction]
) -> OperatorPrediction:
    """Return a prediction whose interval holds those of other backends' kernels too."""
    every = [found, *others.values()]
    unknown = "" if found.is_of_others else "the backend is not known: "
    return msgspec.structs.replace(
        found,
        low_us=np.min([each.low_us for each in every], axis=0),
        high_us=np.max([each.high_us for each in every], axis=0),
        basis=f"{found.basis}; {unknown}time of {usual}'s kernels, "
        f"the interval spans those of {' and '.join(others)}",
    )


def find_weights(
    family: OperatorFamily,
    batch: OperatorBatch,
    folder: Path | None = None,
    hardware: OperatorHardware | None = None,
) -> LearnedWeights | None:
    """Return the weights of a batch, None if there are none; of a backend without any, the usual one's.

    hardware: that its kernels must be able to run on, if the usual ones have weights.
    Raises UsageError for a file that is none.
    """
    found = _find_own_weights(family, batch, folder, hardware)
    if found is None and isinstance(batch, _BackedBatch) and batch.backend is not None:
        usual = msgspec.structs.replace(batch, backend=None)
        found = find_weights(family, usual, folder) if family.serves(usual) else None
    return found or _find_named(family.choose_weights(batch), folder)


def _find_own_weights(
    family: OperatorFamily, batch: OperatorBatch, folder: Path | None, hardware: OperatorHardware | None
) -> LearnedWeights | None:
    """Return the weights of a batch's own kernels; None of products that cannot run on the hardware.

    SGLang's block-scaled products are DeepGEMM's, of warpgroups and tcgen05; before Hopper it has others.
    """
    found = _find_named(family.choose_weights(batch), folder)
    if found is None or hardware is None or not isinstance(batch, ProductBatch):
        return found
    can_run = hardware.has_asynchronous_mma or not all(
        read_operator_hardware(load_gpu(taught.gpu)).has_asynchronous_mma for taught in found.taught
    )
    return found if can_run else None


def _find_named(name: str, folder: Path | None) -> LearnedWeights | None:
    return find_learned_weights(f"{NAME}-{name}", folder)


def compute_batch_terms(
    batch: OperatorBatch, hardware: OperatorHardware, family: OperatorFamily, weights: LearnedWeights | None
) -> ReferenceTerms:
    """Return the analytic terms, with the fitted parameters where there are weights."""
    parameters = family.initial_parameters
    return family.compute_terms(batch, hardware, parameters | dict(weights.parameters if weights else {}))


def predict_with_weights(
    batch: OperatorBatch, gpu: Gpu, family: OperatorFamily, weights: LearnedWeights | None
) -> OperatorPrediction:
    """Return times of a batch by one set of weights; by the reference alone if there is none."""
    hardware = read_operator_hardware(gpu)
    terms = compute_batch_terms(batch, hardware, family, weights)
    if weights is None:
        return _predict_untaught(terms)
    if weights.feature_names != family.feature_names:
        raise UsageError(
            f"the weights {weights.name} were learned with other features than this version computes",
            hint="learn them again with `warplens learn`",
        )
    features = family.compute_features(batch, hardware, terms)
    found = apply_correction(weights, hardware, terms.total_us, features)
    if isinstance(batch, ProductBatch | MoeBatch) and not knows_gpu(weights, gpu):
        found = _keep_below_peak(found, terms.flops / (hardware.find_peak_tflops(batch.dtype) * 1e6))
    found = msgspec.structs.replace(
        found,
        gpu_us=None if terms.gpu_us is None else terms.gpu_us * found.time_us / terms.total_us,
        sm_share=terms.sm_share,
        terms_us=_list_terms(terms, found.time_us),
        locate=partial(locate_rows, batch, terms),
    )
    if isinstance(batch, _BackedBatch) and weights.name != family.choose_weights(batch):
        basis = f"no row of {batch.backend}'s kernels: {found.basis}"
        found = msgspec.structs.replace(found, basis=basis)
    return found if _has_taught(weights, batch) else _mark_derived(found, weights, batch)


def knows_gpu(weights: LearnedWeights, gpu: Gpu) -> bool:
    """Return whether rows of a GPU taught."""
    return weights.find_situation(gpu.measured_key, gpu.correction_arch) is Situation.KNOWN


def _keep_below_peak(found: OperatorPrediction, least_us: Column) -> OperatorPrediction:
    """Return a prediction in which no row exceeds the peak, which other GPUs' corrections do not know."""
    return msgspec.structs.replace(
        found,
        time_us=np.maximum(found.time_us, least_us),
        high_us=np.maximum(found.high_us, least_us),
    )


def _has_taught(weights: LearnedWeights, batch: OperatorBatch) -> bool:
    return not weights.taught_kinds or describe_kind(batch) in weights.taught_kinds


def _mark_derived(
    found: OperatorPrediction, weights: LearnedWeights, batch: OperatorBatch
) -> OperatorPrediction:
    """Return a prediction of an operator or data type of which no row taught: out of range, saying so."""
    origin = f"no row of {describe_kind(batch)}, derived from {', '.join(weights.taught_kinds)}"
    return msgspec.structs.replace(
        found,
        in_range=np.zeros(len(found.time_us), dtype=np.bool_),
        basis=f"{origin}: {found.basis}",
    )


def apply_correction(
    weights: LearnedWeights, hardware: OperatorHardware, reference_us: Column, features: Rows
) -> OperatorPrediction:
    """Return corrected times of rows with these reference times and features."""
    figures = compute_hardware_features(hardware)
    gpu, family = hardware.key, hardware.correction_arch
    situation = weights.find_situation(gpu, family)
    nearest = weights.find_nearest(gpu, family, figures)
    known_share = weights.find_known_share(gpu, family, figures)
    logs = np.zeros(len(features))
    for correction, share in ((weights.known, known_share), (weights.unseen, 1.0 - known_share)):
        if share:
            rows = features
            if correction.sees_hardware:
                rows = np.hstack([features, np.tile(nearest.hardware, (len(features), 1))])
            logs += share * correction.predict(rows)
    in_range = weights.is_in_range(features)
    time_us = reference_us * np.exp(logs)
    # a mean of corrections is no sibling whose kind was left out
    interval = Situation.UNSEEN if 0.0 < known_share < 1.0 else situation
    low, high = weights.intervals[interval].find(time_us)
    return OperatorPrediction(
        time_us=time_us,
        low_us=time_us * np.exp(low),
        high_us=time_us * np.exp(high),
        in_range=in_range,
        basis=_describe_basis(weights, situation, nearest),
        timing=weights.timing,
        level_name=f"{NAME}-{weights.name}",
        leveled=weights.leveled,
    )


def _describe_basis(weights: LearnedWeights, situation: Situation, nearest: TaughtGpu) -> str:
    if situation is Situation.KNOWN:
        return f"learned on {nearest.n_rows:,} rows of this GPU ({weights.dataset}, {weights.timing} times)"
    taught = ", ".join(sorted(t.gpu for t in weights.taught))
    if situation is Situation.SIBLING:
        return (
            f"no row of this GPU; learned on {taught} ({weights.dataset}, {weights.timing} times), nearest "
            f"{nearest.gpu}"
        )
    return (
        f"no row of this architecture; transferred from {taught} ({weights.dataset}, {weights.timing} times)"
    )


def _list_terms(terms: ReferenceTerms, time_us: Column) -> dict[str, Column]:
    parts = {name: terms.terms_us[:, i] for i, name in enumerate(terms.names)}
    return {**parts, "reference": terms.total_us, "correction": time_us - terms.total_us}


def _predict_untaught(terms: ReferenceTerms) -> OperatorPrediction:
    low, high = np.exp(_UNTAUGHT_INTERVAL)
    return OperatorPrediction(
        time_us=terms.total_us,
        low_us=terms.total_us * low,
        high_us=terms.total_us * high,
        in_range=np.zeros(len(terms.total_us), dtype=np.bool_),
        gpu_us=terms.gpu_us,
        basis="analytic reference alone: no row of this operator and data type taught; interval assumed",
        terms_us=_list_terms(terms, terms.total_us),
    )
