"""SynPerf as its paper has it, learned again here, beside the authors' figures and the simple baselines.

    python bench/operator_synperf.py fp8 rows attention moe gemm    # tables, minutes each
    python bench/operator_synperf.py tiles       # writes hwdb/tiles/cublas-fp32.json
    python bench/operator_synperf.py weights     # writes hwdb/weights/synperf-*.safetensors

Data: ../shared/data/pipeweave and aiconfigurator. "Authors" are what the authors' networks reach on their own
test rows (pipeweave/README.md), learned from all their rows; of norms, SiLU, attention and fused MoE only a
few hundredths of these are open, so the same network learns here from a hundredth of the rows.
"""

import argparse
import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from copied_times import copy_measured
from fit_linear import fit_lines
from fit_synperf import (
    SynperfOptions,
    collect_rows,
    learn_category,
    learn_network,
    read_figures,
    write_category,
)
from fit_tile_trees import ProfiledTiles, learn_tile_tree
from markdown import render_table
from numpy.typing import NDArray
from operator_data import (
    aiconfigurator_gemm,
    gpu_keys,
    neusight_profiles,
    pipeweave_attention,
    pipeweave_moe,
    pipeweave_rows,
    pipeweave_scaled_mm,
)
from operator_teaching import AICONFIGURATOR, NEUSIGHT, TEACHINGS
from operator_teaching import PIPEWEAVE as PIPEWEAVE_ROWS

from analyzer.baselines.linear import (
    LinearWeights,
    name_operator,
    predict_with_lines,
    save_lines,
)
from analyzer.baselines.roofline import compute_roofline_us
from analyzer.baselines.synperf.features import (
    KernelCategory,
)
from analyzer.baselines.synperf.model import measure_gap_with_ceiling
from analyzer.hardware.gpu_database import load_gpu
from analyzer.learning.splits import assign_folds
from analyzer.operators.batches import Column, MoeBatch, ProductBatch
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.measured import MeasuredBatch, Timing
from analyzer.operators.names import Backend, DataType, Operator
from analyzer.operators.pipe_figures import PipeFigures

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT.parent / "shared" / "data"
PIPEWEAVE = DATA / "pipeweave"
WEIGHTS = ROOT / "hwdb" / "weights"
TILES = ROOT / "hwdb" / "tiles" / "cublas-fp32.json"
MODELS = ("SynPerf", "linear", "roofline", "nearest")
SEED = 0
FEW = SynperfOptions(epochs=300, patience=100, batch_rows=64, weight_decay=1e-2)  # hundreds of rows
CEILING = msgspec.structs.replace(FEW, target="ceiling")
MANY = SynperfOptions(epochs=120, patience=40, batch_rows=512)  # tens of thousands
MANY_GPUS = SynperfOptions(epochs=40, patience=40, batch_rows=512)
GEMM_ROWS_PER_GPU = 4_000
FP32_ROWS_PER_BATCH = 2_000
ROWS_PER_LINE = 4_000
HARDWARE_TABLE_NAMES = {"h20": "NVIDIA H20", "h800-sxm": "NVIDIA H800"}

AUTHORS: Mapping[KernelCategory, Mapping[str, float]] = {
    KernelCategory.SCALED_MM: {"h20": 1.9, "h800-sxm": 4.2},
    KernelCategory.RMSNORM: {
        "a100-80gb-sxm": 4.3,
        "a40": 3.2,
        "l20": 4.2,
        "h20": 3.9,
        "h800-sxm": 2.3,
        "rtx-6000-ada": 3.7,
    },
    KernelCategory.SILU_MUL: {
        "a100-80gb-sxm": 4.5,
        "a40": 4.0,
        "l20": 5.7,
        "h20": 6.1,
        "h800-sxm": 4.4,
        "rtx-6000-ada": 4.7,
    },
    KernelCategory.ATTENTION: {
        "a100-80gb-sxm": 12.9,
        "a40": 11.8,
        "l20": 11.1,
        "h20": 10.2,
        "h800-sxm": 18.0,
        "rtx-6000-ada": 16.4,
    },
}

PROVENANCE = {KernelCategory.GEMM: AICONFIGURATOR, KernelCategory.GEMM_FP32: NEUSIGHT}

Errors = dict[str, Column]  # by model: |predicted / measured - 1|, NaN where a model has no prediction
Mask = NDArray[np.bool_]


def compare_models(
    measured: Sequence[MeasuredBatch],
    category: KernelCategory,
    masks: Sequence[Mask],
    options: SynperfOptions,
) -> list[Errors]:
    """Return per batch the errors of all models on the rows of its mask, learned from all other rows."""
    rows = collect_rows(measured, category)
    left_out = np.concatenate(masks)
    network = learn_network(rows.select(~left_out), options)
    predicted = rows.theoretical_us / network.predict(rows.features)
    taught = [part.select(np.flatnonzero(~mask)) for part, mask in zip(measured, masks, strict=True)]
    taught = [part for part in taught if len(part)]
    lines = fit_lines(taught)
    result = []
    start = 0
    for part, mask in zip(measured, masks, strict=True):
        own = predicted[start : start + len(part)][mask]
        start += len(part)
        if not mask.any():
            continue
        asked = part.select(np.flatnonzero(mask))
        hardware = read_operator_hardware(load_gpu(part.gpu))
        nothing = np.full(len(own), np.nan)
        name = name_operator(asked.batch)
        has_neighbour = any(o.gpu != part.gpu and name_operator(o.batch) == name for o in taught)
        times = {
            "SynPerf": own,
            "linear": predict_with_lines(asked.batch, part.gpu, hardware, lines).time_us
            if name in lines
            else nothing,
            "roofline": compute_roofline_us(asked.batch, hardware),
            "nearest": copy_measured(asked.batch, hardware, taught).time_us if has_neighbour else nothing,
        }
        result.append({model: np.abs(time / asked.time_us - 1.0) for model, time in times.items()})
    return result


def leave_out_shapes(
    measured: Sequence[MeasuredBatch], category: KernelCategory, options: SynperfOptions, n_folds: int
) -> dict[str, Errors]:
    """Return errors by GPU, each shape key left out once; with n_folds = 0 one fold of five alone."""
    found: dict[str, list[Errors]] = {}
    for fold in range(n_folds or 1):
        masks = [assign_folds(part.shape_keys, n_folds or 5, SEED) == fold for part in measured]
        asked = [part.gpu for part, mask in zip(measured, masks, strict=True) if mask.any()]
        for gpu, errors in zip(asked, compare_models(measured, category, masks, options), strict=True):
            found.setdefault(gpu, []).append(errors)
    return {gpu: join(parts) for gpu, parts in found.items()}


def leave_out_gpus(
    measured: Sequence[MeasuredBatch], category: KernelCategory, options: SynperfOptions
) -> dict[str, Errors]:
    """Return errors by GPU, each left out as a whole."""
    result = {}
    for gpu in sorted({part.gpu for part in measured}):
        masks = [np.full(len(part), part.gpu == gpu) for part in measured]
        result[gpu] = join(compare_models(measured, category, masks, options))
    return result


def join(parts: Sequence[Errors]) -> Errors:
    """Return the errors of several parts, one after the other."""
    return {model: np.concatenate([part[model] for part in parts]) for model in parts[0]}


def print_errors(title: str, errors: Mapping[str, Errors], authors: Mapping[str, float]) -> None:
    """Print mean (median) error in percent by GPU and model; roofline and nearest learn nothing here."""
    rows = []
    for gpu, by_model in errors.items():
        cells = [format_error(by_model[model]) for model in MODELS]
        rows.append(
            [gpu, str(len(by_model["SynPerf"])), *cells, f"{authors[gpu]:.1f}" if gpu in authors else "-"]
        )
    means = [
        f"{100 * np.mean([np.nanmean(by_model[model]) for by_model in errors.values()]):.1f}"
        for model in MODELS
    ]
    author_mean = f"{np.mean(list(authors.values())):.1f}" if authors else "-"
    rows.append(["mean of GPUs", "", *means, author_mean])
    print(f"\n{title}\n")
    print(render_table(("GPU", "rows", *MODELS, "authors"), rows), flush=True)


def format_mean(by_gpu: Sequence[Column]) -> str:
    """Return the mean over GPUs of their mean errors in percent."""
    means = [float(np.nanmean(errors)) for errors in by_gpu if not np.isnan(errors).all()]
    return f"{100 * np.mean(means):.1f}" if means else "-"


def format_error(errors: Column) -> str:
    """Return mean and median in percent."""
    if np.isnan(errors).all():
        return "-"
    return f"{100 * np.nanmean(errors):.1f} ({100 * np.nanmedian(errors):.1f})"


def print_fp8() -> None:
    """Print FP8 products: rows left out at random, new (n, k), the other GPU; and with the authors' table."""
    category, measured = KernelCategory.SCALED_MM, load_category(KernelCategory.SCALED_MM)
    authors = AUTHORS[category]
    random = np.random.default_rng(SEED)
    masks = [random.random(len(part)) < 0.2 for part in measured]
    gpus = [part.gpu for part in measured]
    at_random = compare_models(measured, category, masks, MANY)
    print_errors(
        "FP8 scaled product, rows left out at random", dict(zip(gpus, at_random, strict=True)), authors
    )
    print_errors("FP8 scaled product, new (n, k)", leave_out_shapes(measured, category, MANY, 0), authors)
    print_errors("FP8 scaled product, GPU left out", leave_out_gpus(measured, category, MANY), {})
    rows = collect_rows(measured, category, read_authors_figures)
    left_out = np.concatenate(masks)
    predicted = learn_network(rows.select(~left_out), MANY).predict(rows.features)
    for i, gpu in enumerate(sorted(gpus)):
        asked = left_out & (rows.gpu == i)
        error = np.abs(rows.efficiency[asked] / predicted[asked] - 1.0)
        print(f"with the authors' hardware table: {gpu} {format_error(error)}")


def read_authors_figures(measured: MeasuredBatch) -> PipeFigures:
    """Return the figures of the authors' own hardware table (pipeweave/hardware.csv), for FP8 products."""
    with (PIPEWEAVE / "hardware.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    row = rows[HARDWARE_TABLE_NAMES[measured.gpu]]
    return msgspec.structs.replace(
        read_figures(measured),
        clock_mhz=float(row["smFreq"]),
        tensor_ops_per_cycle=float(row["tcFp8"]),
        fma_ops_per_cycle=float(row["FmaFp32"]),
        dram_gbps=float(row["memBandwidth"]),
        l2_gbps=float(row["l2CacheBandwidth"]),
    )


def print_rows() -> None:
    """Print RMSNorm and SiLU-and-multiply: 40 rows per GPU, where the authors had 7,400 and 12,000."""
    for category in (KernelCategory.RMSNORM, KernelCategory.SILU_MUL):
        measured = load_category(category)
        known = leave_out_shapes(measured, category, FEW, 5)
        print_errors(f"{category.value}, new shapes (few rows)", known, AUTHORS[category])
        print_errors(
            f"{category.value}, GPU left out (few rows)", leave_out_gpus(measured, category, FEW), {}
        )


def print_attention() -> None:
    """Print attention: 60 rows of all kinds, where the authors had 72,000."""
    category, measured = KernelCategory.ATTENTION, load_category(KernelCategory.ATTENTION)
    print_errors(
        "attention, GPU left out (60 rows)", leave_out_gpus(measured, category, FEW), AUTHORS[category]
    )


def print_gemm() -> None:
    """Print bf16 products of aiconfigurator; tiles are chosen by a rule, since no kernel names are open."""
    category, measured = KernelCategory.GEMM, load_category(KernelCategory.GEMM)
    print_errors("bf16 gemm, new (n, k)", leave_out_shapes(measured, category, MANY_GPUS, 0), {})
    print_errors("bf16 gemm, GPU left out", leave_out_gpus(measured, category, MANY_GPUS), {})


def load_category(category: KernelCategory) -> list[MeasuredBatch]:
    """Return the measured batches that teach a category."""
    loaders: dict[KernelCategory, Callable[[], list[MeasuredBatch]]] = {
        KernelCategory.SCALED_MM: lambda: pipeweave_scaled_mm.load_scaled_products(PIPEWEAVE),
        KernelCategory.RMSNORM: lambda: keep(Operator.FUSED_ADD_RMSNORM),
        KernelCategory.SILU_MUL: lambda: keep(Operator.SILU_MUL),
        KernelCategory.ATTENTION: lambda: pipeweave_attention.load(PIPEWEAVE),
        KernelCategory.MOE: lambda: pipeweave_moe.load_teaching(DATA),
        KernelCategory.GEMM: load_bf16_products,
        KernelCategory.GEMM_FP32: load_fp32_products,
    }
    return loaders[category]()


def keep(operator: Operator) -> list[MeasuredBatch]:
    """Return the row-wise batches of one operator."""
    return [part for part in pipeweave_rows.load_rows() if part.batch.operator is operator]


def load_bf16_products() -> list[MeasuredBatch]:
    """Return a random part of aiconfigurator's bf16 products of each GPU, by TensorRT-LLM."""
    random = np.random.default_rng(SEED)
    parts = aiconfigurator_gemm.load_products(DATA / "aiconfigurator", [Backend.TRTLLM])
    return [
        part.select(np.sort(random.choice(len(part), min(GEMM_ROWS_PER_GPU, len(part)), replace=False)))
        for part in parts
        if part.batch.dtype is DataType.BF16
    ]


def load_fp32_products() -> list[MeasuredBatch]:
    """Return a random part of NeuSight's FP32 products (linear and batched) of each GPU."""
    random = np.random.default_rng(SEED)
    batches = []
    for operator in (Operator.GEMM, Operator.BMM):
        for profile in neusight_profiles.read_profiles(neusight_profiles.LEARNING, operator):
            product = profile.batch
            assert isinstance(product, ProductBatch)
            keys = (product.n * 1_000_003 + product.k).astype(np.int64)
            part = MeasuredBatch("neusight", profile.gpu, product, profile.time_us, keys, Timing.INTERVAL)
            picked = random.choice(len(part), min(FP32_ROWS_PER_BATCH, len(part)), replace=False)
            batches.append(part.select(np.sort(picked)))
    return batches


def print_fp32() -> None:
    """Print FP32 products of NeuSight's data, by the tile trees."""
    category, measured = KernelCategory.GEMM_FP32, load_category(KernelCategory.GEMM_FP32)
    print_errors("FP32 products, new (n, k)", leave_out_shapes(measured, category, MANY_GPUS, 0), {})
    print_errors("FP32 products, GPU left out", leave_out_gpus(measured, category, MANY_GPUS), {})


def write_tile_trees() -> None:
    """Learn the tiles of FP32 products from the profiles and write hwdb/tiles/cublas-fp32.json."""
    trees = []
    for operator in (Operator.GEMM, Operator.BMM):
        for profile in neusight_profiles.read_profiles(neusight_profiles.LEARNING, operator):
            assert isinstance(profile.batch, ProductBatch)
            tile_n, tile_m = profile.tiles.T
            trees.append(learn_tile_tree(ProfiledTiles(profile.gpu, profile.batch, tile_m, tile_n)))
            print(
                operator.value,
                profile.gpu,
                trees[-1].n_rows,
                f"agreement {trees[-1].agreement:.3f}",
                flush=True,
            )
    TILES.parent.mkdir(parents=True, exist_ok=True)
    TILES.write_bytes(msgspec.json.encode(trees) + b"\n")


def print_moe() -> None:
    """Print the fused MoE: errors on default rows, and the P80 ceiling against the authors' list."""
    measured = load_category(KernelCategory.MOE)
    print_errors("fused MoE, new models", leave_out_shapes(measured, KernelCategory.MOE, FEW, 5), {})
    print_errors("fused MoE, GPU left out", leave_out_gpus(measured, KernelCategory.MOE, FEW), {})
    ceiling = learn_category(load_ceiling_rows(), KernelCategory.MOE, CEILING)
    table = []
    for path in sorted((PIPEWEAVE / "moe_tuning").glob("underperforming_*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            listed = list(csv.DictReader(file))
        name = listed[0]["gpu"]
        batch, time_us, theirs, tuned = read_underperforming(listed)
        gap = measure_gap_with_ceiling(ceiling, batch, load_gpu(gpu_keys.PIPEWEAVE[name]), time_us)
        cells = (gap.efficiency, theirs, gap.ceiling, tuned)
        flagged = f"{int(gap.underperforms.sum())} of {len(batch)}"
        table.append([name, *(f"{cell.mean():.3f}" for cell in cells), flagged])
    head = ("GPU", "efficiency", "authors' P80", "P80 here", "after their sweep", "underperforming here")
    print("\nFused MoE, the authors' underperforming points (means)\n")
    print(render_table(head, table))


def load_ceiling_rows() -> list[MeasuredBatch]:
    """Return default rows and the best configurations of the sweeps, both by the features of the default.

    The ceiling is what the efficiency of such a shape can be. Efficiencies are those of the default's padded
    products in both, so that a better configuration shows as a higher efficiency of the same work.
    """
    return load_category(KernelCategory.MOE) + [
        MeasuredBatch(
            pipeweave_moe.DATASET,
            tuned.gpu,
            tuned.batch,
            tuned.time_us,
            pipeweave_moe.make_shape_keys(tuned.batch),
            Timing.KERNEL,
        )
        for tuned in pipeweave_moe.load_tuned(DATA)
    ]


def read_underperforming(listed: Sequence[Mapping[str, str]]) -> tuple[MoeBatch, Column, Column, Column]:
    """Return the points, their times, the authors' ceiling, and the efficiency after the sweep."""
    template = pipeweave_moe.load_sample(DATA)[0].batch
    assert isinstance(template, MoeBatch)
    shape = {
        field: np.array([float(row[name]) for row in listed])
        for field, name in zip(
            ("m", "experts", "topk", "hidden", "intermediate"), ("M", "E", "topk", "H", "N"), strict=True
        )
    }
    time_us, theirs, tuned = (
        np.array([float(row[name]) for row in listed])
        for name in ("avg_duration", "pred_perf", "optimal_perf")
    )
    return msgspec.structs.replace(template, **shape), time_us, theirs, tuned


def write_weights(names: Sequence[str]) -> None:
    """Learn each category from all rows and write it to hwdb/weights, with its card."""
    options = {
        KernelCategory.SCALED_MM: MANY,
        KernelCategory.GEMM: MANY_GPUS,
        KernelCategory.GEMM_FP32: MANY_GPUS,
    }
    if not names or "linear" in names:
        write_lines()
    if not names or "moe-ceiling" in names:
        ceiling = learn_category(load_ceiling_rows(), KernelCategory.MOE, CEILING)
        write_category(ceiling, WEIGHTS, CEILING, PIPEWEAVE_ROWS)
    for category in KernelCategory:
        if names and category.value not in names:
            continue
        weights = learn_category(load_category(category), category, options.get(category, FEW))
        write_category(weights, WEIGHTS, options.get(category, FEW), PROVENANCE.get(category, PIPEWEAVE_ROWS))
        print(
            category.value,
            weights.card.n_rows,
            weights.card.known_interval,
            weights.card.unseen_interval,
            flush=True,
        )


def write_lines() -> None:
    """Fit the lines of `--model linear` to all rows that teach, and write them to hwdb/weights."""
    measured: list[MeasuredBatch] = []
    random = np.random.default_rng(SEED)
    for teaching in TEACHINGS:
        for part in teaching.load():
            picked = random.choice(len(part), min(ROWS_PER_LINE, len(part)), replace=False)
            measured.append(part.select(np.sort(picked)))
        print(teaching.name, len(measured), flush=True)
    lines = fit_lines(measured)
    save_lines(lines, WEIGHTS / "linear.safetensors")
    (WEIGHTS / "linear.toml").write_text(format_lines_card(lines), encoding="utf-8")
    for name, of_operator in sorted(lines.items()):
        print(name, [line.gpu for line in of_operator.lines], of_operator.unseen_log_interval, flush=True)


def format_lines_card(lines: LinearWeights) -> str:
    """Return the card of the lines: sources, GPUs, 80 % intervals of GPUs predicted from others."""
    text = [
        "# Card of linear.safetensors, written by `python bench/operator_synperf.py weights linear`.",
        'name = "linear"',
        f"rows_per_batch = {ROWS_PER_LINE}  # at most, drawn at random",
        f"seed = {SEED}",
        'split = "none on known GPUs (three coefficients); each gpu predicted from the others"',
    ]
    for source in (PIPEWEAVE_ROWS, AICONFIGURATOR, NEUSIGHT):
        text += ["", "[[data]]", f'source = "{source.data}"', f'licence = "{source.licence}"']
    for name, of_operator in sorted(lines.items()):
        gpus = ", ".join(f'"{line.gpu}"' for line in of_operator.lines)
        low, high = of_operator.unseen_log_interval
        text += [
            "",
            f"[operators.{name}]",
            f"gpus = [{gpus}]",
            f"unseen_log_interval = [{low:.3f}, {high:.3f}]",
        ]
    return "\n".join(text) + "\n"


def main() -> None:
    """Print the tables that are asked for."""
    import torch

    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "parts", nargs="+", help="fp8, rows, attention, moe, gemm, fp32; tiles; or weights [categories]"
    )
    parts = parser.parse_args().parts
    if parts[0] == "weights":
        write_weights(parts[1:])
        return
    tables = {
        "fp8": print_fp8,
        "rows": print_rows,
        "attention": print_attention,
        "moe": print_moe,
        "gemm": print_gemm,
        "fp32": print_fp32,
        "tiles": write_tile_trees,
    }
    for part in parts:
        tables[part]()


if __name__ == "__main__":
    main()
