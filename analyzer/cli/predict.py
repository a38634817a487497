"""`warplens predict`: times of operators named by their shapes."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from analyzer.cli.examples import make_examples
from analyzer.cli.exit_codes import ExitCode
from analyzer.cli.options import load_levels, split_names
from analyzer.cli.output import output_option, write_report, write_text
from analyzer.cli.path_types import ARGUMENT_TEXT, GPU_TEXT, INPUT_PATH, KERNEL_PATH
from analyzer.cli.progress import show_progress
from analyzer.operators.names import AttentionKind, Backend, DataType, MoeProduct, Operator
from analyzer.operators.operator_rows import OPERATOR_COLUMNS
from analyzer.text.errors import UsageError

if TYPE_CHECKING:
    from analyzer.pipeline.operator_prediction import OperatorAnswers, OperatorOptions
    from analyzer.text.csv_table import CsvTable

_Command = TypeVar("_Command", bound=Callable[..., object])
_REQUIRED_COLUMNS = ("operator", "gpu")
_TABLE_HINT = "predict takes columns operator, gpu, dtype and the operator's own; see docs/predict.md"


def _describe_sizes() -> dict[str, str]:
    """Return what each size means, by its name, with the operators that take it."""
    meanings: dict[str, dict[str, list[str]]] = {}
    for operator, columns in OPERATOR_COLUMNS.items():
        for size in columns.sizes:
            default = "" if size.default is None else f", {size.default:g} if not given"
            meanings.setdefault(size.name, {}).setdefault(f"{size.help}{default}", []).append(operator)
    return {
        name: "; ".join(f"{text} ({', '.join(operators)})" for text, operators in texts.items()) + "."
        for name, texts in meanings.items()
    }


def _size_options(command: _Command) -> _Command:
    """Add one option per size to a command."""
    for name, help_text in reversed(_describe_sizes().items()):
        command = click.option(f"--{name.replace('_', '-')}", name, metavar="N", help=help_text)(command)
    return command


@click.command(
    epilog=make_examples(
        "warplens predict gemm --m 4096 --n 4096 --k 4096 --dtype bf16 --gpu h100,b200",
        "warplens predict --table docs/operators.csv -o -",
    )
)
@click.argument("operator", required=False, metavar="OPERATOR")
@_size_options
@click.option("--q-lengths", metavar="LIST", help="Query lengths of the requests: 128 or [128, 1].")
@click.option("--kv-lengths", metavar="LIST", help="Their KV lengths, as many.")
@click.option(
    "--kind", type=click.Choice([kind.value for kind in AttentionKind]), help="Implementation of attention."
)
@click.option(
    "--which", type=click.Choice([product.value for product in MoeProduct]), help="Products of moe."
)
@click.option(
    "--backend",
    type=click.Choice([backend.value for backend in Backend]),
    help="Framework whose kernels compute gemm; the interval spans all if not given.",
)
@click.option("--dtype", metavar="TYPE", default="", help=f"Data type: {', '.join(DataType)}.")
@click.option(
    "--gpu",
    "-g",
    multiple=True,
    type=GPU_TEXT,
    help="GPUs, by comma or repeated; all.",
)
@click.option("--model", "-m", "models", default="ours", show_default=True, help="Models, by comma; all.")
@click.option("--table", type=INPUT_PATH, help="Answer each row of a CSV table instead.")
@click.option(
    "--kernel",
    type=KERNEL_PATH,
    metavar="FILE",
    help="A kernel in Triton IR instead of an operator: its tasks on the roofs of each GPU.",
)
@click.option("--grid", help="Programs of --kernel's launch: 132,1,1 or 132x1x1 or 132.")
@click.option(
    "--arg",
    multiple=True,
    type=ARGUMENT_TEXT,
    metavar="WHICH=VALUE",
    help="Argument of --kernel, as of `tasks`; repeatable.",
)
@click.option("--launch", type=INPUT_PATH, help="JSON file with the launch of --kernel, by its name.")
@click.option("--calibration", type=INPUT_PATH, help="Levels that `calibrate` wrote.")
@click.option("--weights", type=INPUT_PATH, help="Folder of weights that `learn` wrote.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Edit a figure of the GPU: dram=x2."
)
@click.option(
    "--served",
    is_flag=True,
    help="As in the steps of a served model: weights not in the L2, lasting load, CUDA graphs.",
)
@click.option("--explain", is_flag=True, help="The terms that each time was made of.")
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json", "csv"]),
    help="Output; text, of tables csv.",
)
@output_option
def predict(
    operator: str | None,
    *,
    gpu: tuple[str, ...],
    models: str,
    table: Path | None,
    kernel: Path | None,
    grid: str | None,
    arg: tuple[str, ...],
    launch: Path | None,
    calibration: Path | None,
    weights: Path | None,
    settings: tuple[str, ...],
    served: bool,
    explain: bool,
    output_format: str | None,
    output: Path | None,
    dtype: str,
    **fields: str | None,
) -> ExitCode:
    """Predict the time of an OPERATOR from its shape, on GPUs that need not be at hand.

    Operators: gemm, scaled_mm, bmm, moe, attention, mla, rmsnorm, fused_add_rmsnorm, layernorm, softmax,
    silu_mul, elementwise, all_reduce, send_recv.
    """
    options = _make_options(calibration, weights, settings, served=served, explain=explain)
    given = {name: value for name, value in fields.items() if value is not None}
    if kernel is not None:
        if operator or given or table or dtype:
            raise UsageError(
                "--kernel excludes an operator, its options and --table", hint="the kernel's code says it"
            )
        return _answer_kernel(kernel, (grid, arg, launch), gpu, options, output_format or "text", output)
    if grid or arg or launch:
        raise UsageError("--grid, --arg and --launch go with --kernel", hint="name a .ttgir file with it")
    if table is not None:
        if operator or given or gpu or dtype:
            raise UsageError(
                "--table excludes an operator and its options", hint="the table's columns say it"
            )
        return _answer_table(table, _find_models(models), options, output_format or "csv", output)
    if operator is None:
        raise UsageError("no operator", hint=f"one of: {', '.join(Operator)}; or --table FILE.csv")
    if not gpu:
        raise UsageError("no --gpu", hint="name one or more, such as --gpu h100,b200")
    what = (operator, dtype, given)
    return _answer_operator(what, gpu, _find_models(models), options, output_format or "text", output)


def _make_options(
    calibration: Path | None, weights: Path | None, settings: tuple[str, ...], *, served: bool, explain: bool
) -> "OperatorOptions":
    from analyzer.hardware.parameter_edits import parse_setting
    from analyzer.pipeline.operator_prediction import OperatorOptions

    return OperatorOptions(
        calibration=load_levels(calibration),
        weights=weights,
        edits=tuple(map(parse_setting, settings)),
        served=served,
        explain=explain,
    )


def _find_models(text: str) -> list[str]:
    from analyzer.models.registry import OPERATOR_MODELS, list_models

    return list(list_models(OPERATOR_MODELS)) if text == "all" else split_names([text])


def _answer_operator(
    what: tuple[str, str, dict[str, str]],
    gpus: tuple[str, ...],
    models: list[str],
    options: "OperatorOptions",
    output_format: str,
    output: Path | None,
) -> ExitCode:
    """Print the times of one operator. Raises UsageError where it cannot be answered."""
    from analyzer.hardware.gpu_database import find_gpu_paths, load_gpu
    from analyzer.operators.operator_rows import read_operator_rows
    from analyzer.pipeline.operator_prediction import make_predict_report, predict_batches

    operator, dtype, given = what
    _check_takes(operator, given)
    names = split_names(gpus)
    names = sorted(find_gpu_paths()) if names == ["all"] else names
    for name in names:
        load_gpu(name)
    columns = ("operator", "gpu", "dtype", *given)
    rows = [(operator, name, dtype, *given.values()) for name in names]
    found = read_operator_rows(columns, rows)
    answers = [predict_batches(found, model=model, options=options) for model in models]
    if all(reason for each in answers for reason in each.reasons):
        raise UsageError(
            f"{operator}: {answers[0].reasons[0]}", hint="warplens predict --help lists the sizes"
        )
    write_report(make_predict_report(columns, rows, answers), output_format, output)
    return ExitCode.CLEAN


def _check_takes(operator: str, given: Iterable[str]) -> None:
    """Raise UsageError for an option of another operator, which would change nothing."""
    if operator.lower() not in tuple(Operator):
        return  # said where rows are read
    taken = OPERATOR_COLUMNS[Operator(operator.lower())].names
    for name in given:
        if name not in taken:
            options = ", ".join(f"--{each}".replace("_", "-") for each in taken)
            raise UsageError(f"{operator} takes no --{name.replace('_', '-')}", hint=f"it takes {options}")


def _answer_kernel(
    path: Path,
    launch: tuple[str | None, tuple[str, ...], Path | None],
    gpus: tuple[str, ...],
    options: "OperatorOptions",
    output_format: str,
    output: Path | None,
) -> ExitCode:
    """Print the times of a kernel in Triton IR."""
    from analyzer.cli.launch_options import load_launch_table, parse_launch
    from analyzer.hardware.gpu_database import find_gpu_paths
    from analyzer.pipeline.kernel_prediction import predict_triton_kernel
    from analyzer.pipeline.options import Options

    if not gpus:
        raise UsageError("no --gpu", hint="name one or more, such as --gpu h100,b200")
    names = split_names(gpus)
    names = sorted(find_gpu_paths()) if names == ["all"] else names
    grid, arguments, table = launch
    pipeline_options = Options(
        launch=parse_launch(grid=grid, block=None, cluster=None, dynamic_shared=None, arguments=arguments),
        launch_table=load_launch_table(table),
    )
    report = predict_triton_kernel(str(path), pipeline_options, names, options)
    write_report(report, output_format, output)
    return ExitCode.CLEAN


def _answer_table(
    path: Path, models: list[str], options: "OperatorOptions", output_format: str, output: Path | None
) -> ExitCode:
    """Write the table with the answers of each row. Raises InputError for a table that cannot be read."""
    from analyzer.pipeline.operator_prediction import make_predict_report, predict_rows
    from analyzer.text.csv_table import read_csv_table

    if len(models) != 1:
        raise UsageError("--table takes one --model", hint="run it once for each")
    table = read_csv_table(path)
    table.check_columns(_REQUIRED_COLUMNS, _TABLE_HINT)
    rows = [fields for _, fields in table.rows]
    with show_progress("reading") as progress:
        answers = predict_rows(table.columns, rows, model=models[0], options=options, progress=progress)
    if output_format == "csv":
        write_text(_format_table(table, answers), output)
    else:
        write_report(make_predict_report(table.columns, rows, [answers]), output_format, output)
    return ExitCode.CLEAN


def _format_table(table: "CsvTable", answers: "OperatorAnswers") -> str:
    from analyzer.render.predict import format_answer, format_csv

    times = [
        [None if value != value else value for value in column.tolist()]
        for column in (answers.time_us, answers.low_us, answers.high_us)
    ]
    rows = zip(*times, answers.basis, answers.in_range.tolist(), answers.reasons, strict=True)
    return format_csv(
        table.columns, [fields for _, fields in table.rows], [format_answer(*row) for row in rows]
    )
