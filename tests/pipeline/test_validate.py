"""Models against measured times: metrics by closed forms, rows that fail, cache, filters, outputs."""

import csv
import json
import math
import shutil
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from paths import TRACES

import analyzer
from analyzer import validate
from analyzer.evaluation.validation_report import CaseFilters
from analyzer.ir.launch import Argument, Dim3, Launch, Pointer
from analyzer.models.registry import Predictor
from analyzer.pipeline import Options
from analyzer.render.json import make_json_schema, render_json
from analyzer.report.validation_schema import ValidationReport
from analyzer.text.errors import HardwareError, InputError, UsageError

REPORT16 = TRACES / "cuda" / "sm_80" / "report16.sass"
HOPPER = TRACES / "triton" / "sm_90" / "matmul_large_tile.sass"
MODELS = ("roofline",)
ADD = {"dump": str(REPORT16), "kernel": "vector_add", "gpu": "a100", "block": "256", "time_us": "10"}

Row = dict[str, str]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(path: Path, rows: Sequence[Row]) -> Path:
    """A table of these rows."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, columns, restval="")
        out.writeheader()
        out.writerows(rows)
    return path


def adds(sizes: Iterable[int], **more: str) -> list[Row]:
    """One vector addition for each number of CTAs."""
    return [
        ADD
        | {"grid": str(size), "arguments": f'["ptr", "ptr", "ptr", {256 * size}]', "case": f"add{size}"}
        | more
        for size in sizes
    ]


def run(table: Path, **more: object) -> ValidationReport:
    return validate(table, **({"models": MODELS, "jobs": 1} | more))  # type: ignore[arg-type]


def measured_as(table: Path, rows: Sequence[Row], ratios: Sequence[float], **more: str) -> Path:
    """The same rows with times that make predicted over measured these ratios."""
    predicted = [case.predictions[0].time_us for case in run(write(table, rows)).cases]
    times = [str(time / ratio) for time, ratio in zip(predicted, ratios, strict=True)]
    return write(table, [row | {"time_us": time} | more for row, time in zip(rows, times, strict=True)])


SIZES = (1000, 2000, 4000, 8000, 16000)
RATIOS = (1.1, 0.8, 2.0, 0.5, 1.25)


def test_errors_are_those_of_the_closed_forms(tmp_path: Path) -> None:
    report = run(measured_as(tmp_path / "t.csv", adds(SIZES), RATIOS))
    score = report.find_overall_score()
    assert score is not None
    errors = [abs(ratio - 1) for ratio in RATIOS]  # .1 .2 1. .5 .25
    assert score.rows == 5
    assert score.mape == pytest.approx(statistics.fmean(errors))
    assert score.median_ape == pytest.approx(0.25)
    assert score.p90_ape == pytest.approx(0.5 + 0.6 * (1.0 - 0.5))  # place .9 * 4 = 3.6 of the sorted ones
    assert score.bias == pytest.approx(math.prod(RATIOS) ** (1 / 5))
    answers = [case.predictions[0] for case in report.cases]
    assert [answer.ratio for answer in answers] == pytest.approx(RATIOS)
    inside = [
        a.time_us_low <= c.time_us <= a.time_us_high for a, c in zip(answers, report.cases, strict=True)
    ]
    assert score.interval_coverage == pytest.approx(sum(inside) / 5)


def test_spearman_without_ties_and_with_them(tmp_path: Path) -> None:
    rows = adds(SIZES)
    times = (3.0, 1.0, 2.0, 5.0, 4.0)  # d = 2, -1, -1, 1, -1
    report = run(
        write(tmp_path / "a.csv", [r | {"time_us": str(t)} for r, t in zip(rows, times, strict=True)])
    )
    assert report.scores[-1].spearman == pytest.approx(1 - 6 * 8 / (5 * 24))
    tied = (1.0, 1.0, 2.0, 3.0)  # ranks 1.5 1.5 3 4 against 1 2 3 4
    rows = [r | {"time_us": str(t)} for r, t in zip(rows[:4], tied, strict=True)]
    assert run(write(tmp_path / "b.csv", rows)).scores[-1].spearman == pytest.approx(4.5 / math.sqrt(5 * 4.5))
    assert run(write(tmp_path / "c.csv", rows[:2])).scores[-1].spearman is None


def test_a_group_costs_what_its_predicted_best_takes_beyond_the_best(tmp_path: Path) -> None:
    rows = adds(SIZES[:3], group="tuned")
    times = ("12.5", "10", "30")
    rows = [row | {"time_us": time} for row, time in zip(rows, times, strict=True)]
    single = adds(SIZES[3:4], group="alone")
    report = run(write(tmp_path / "t.csv", [*rows, *single]))
    (group,) = report.groups
    assert (group.group, group.rows) == ("tuned", 3)
    assert (group.best_case, group.chosen_case) == ("add2000", "add1000")
    assert group.loss == pytest.approx(0.25)
    assert report.scores[-1].choice_loss == pytest.approx(0.25)


def test_equal_predictions_choose_the_mean_of_their_times(tmp_path: Path) -> None:
    rows = [row | {"case": name} for name in "ab" for row in adds([1000], group="tied")]
    rows = [row | {"time_us": time} for row, time in zip(rows, ("10", "16"), strict=True)]
    (group,) = run(write(tmp_path / "t.csv", rows)).groups
    assert group.loss == pytest.approx(0.3)
    assert group.chosen_case == "a"


def test_scores_stand_for_each_suite_gpu_and_model_and_for_all(tmp_path: Path) -> None:
    rows = [*adds([1000], suite="x"), *adds([1000], suite="x", gpu="L40S"), *adds([2000], suite="y")]
    report = run(write(tmp_path / "t.csv", rows), models=("roofline", "warp"))
    places = [(score.suite, score.gpu, score.model) for score in report.scores]
    keys = [("x", "a100-80gb-sxm"), ("x", "l40s"), ("x", None), ("y", "a100-80gb-sxm"), (None, None)]
    assert places == [(*key, model) for key in keys for model in ("roofline", "warp")]
    assert report.transferred == 1


def test_rows_that_do_not_count_are_in_no_figure(tmp_path: Path) -> None:
    rows = [*adds([1000]), *adds([2000], counted="no", time_us="1e9")]
    report = run(write(tmp_path / "t.csv", rows))
    assert (report.rows, report.counted) == (2, 1)
    assert report.scores[-1].rows == 1
    assert [entry.case for entry in report.worst] == ["add1000"]
    assert len(report.cases[1].predictions) == 1


def test_a_prediction_is_what_analyze_says(tmp_path: Path) -> None:
    row = adds([1000])[0] | {"kernel": "saxpy", "grid": "64x2x1", "block": "16;8;1"}
    row |= {"arguments": '{"0": 2.0, "1": "ptr", "2": "ptr", "3": "ptr", "4": 100000}'}
    report = run(write(tmp_path / "t.csv", [row]), models=("steady", "amali"))
    launch = Launch(
        grid=Dim3(64, 2),
        block=Dim3(16, 8),
        arguments=(
            Argument(0, 2.0),
            *(Argument(place, Pointer()) for place in (1, 2, 3)),
            Argument(4, 100_000),
        ),
    )
    options = Options(kernels=("saxpy",), launch=launch, models=("steady", "amali"))
    wanted = analyzer.analyze(str(REPORT16), "a100", options=options).kernels[0].predictions
    found = report.cases[0].predictions
    assert [(p.model, p.cycles, p.time_us, p.bound) for p in found] == [
        (p.model, p.cycles, p.time_us, p.bound) for p in wanted
    ]
    for answer in found:
        assert sum(answer.cpi_shares.values()) == pytest.approx(1.0)


def test_an_answer_does_not_depend_on_the_other_rows(tmp_path: Path) -> None:
    rows = [
        ADD | {"kernel": "matmul_naive", "grid": "40,40", "block": "16,16", "gpu": gpu}
        | {"arguments": '["ptr", "ptr", "ptr", 640]'}
        for gpu in ("rtx-4070", "a100")
    ]  # fmt: skip
    together = run(write(tmp_path / "t.csv", rows), models=("steady",), cache=False)
    alone = run(write(tmp_path / "u.csv", rows[1:]), models=("steady",), cache=False)
    assert together.cases[1].predictions == alone.cases[0].predictions


def test_several_processes_say_the_same(tmp_path: Path) -> None:
    rows = [*adds([1000]), *(row | {"kernel": "saxpy", "arguments": ""} for row in adds([2000]))]
    table = write(tmp_path / "t.csv", rows)
    assert run(table, jobs=2, cache=False) == run(table, jobs=1, cache=False)


def test_rows_that_cannot_be_analyzed_are_listed_and_do_not_stop_the_run(tmp_path: Path) -> None:
    (row,) = adds([1000])
    np.save(tmp_path / "x.npy", np.zeros(4))
    rows = [
        row,
        row | {"dump": "gone.sass"},
        row | {"kernel": "nothing_like_it"},
        row | {"kernel": "transpose"},
        row | {"dump": str(HOPPER), "kernel": ""},
        row | {"arguments": '["@x.npy", "@gone.npy"]'},
        row | {"arguments": '{"17": 1}'},
    ]
    report = run(write(tmp_path / "t.csv", rows))
    assert report.refused == 6
    assert report.scores[-1].rows == 1
    assert report.scores[-1].refused == 6
    said = [case.refused.get("roofline", "") for case in report.cases]
    pieces = ("", "no dump gone.sass", "no kernel fits 'nothing_like_it'", "'transpose' fits 2 kernels")
    pieces = (*pieces, "which the kernel needs", "gone.npy", "argument 17")
    for text, piece in zip(said, pieces, strict=True):
        assert piece in text
    assert not any("internal error" in text for text in said)


def test_a_table_of_which_nothing_can_be_analyzed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of 1 rows can be analyzed; line 2: no dump gone\.sass"):
        run(write(tmp_path / "t.csv", [row | {"dump": "gone.sass"} for row in adds([1000])]))


def test_filters(tmp_path: Path) -> None:
    rows = [
        *adds([1000], split="learn", suite="gemm_a"),
        *adds([2000], split="judge", suite="gemm_b"),
        *adds([4000], split="judge", suite="conv", gpu="l40s"),
        *adds([8000], suite="conv"),
    ]
    table = write(tmp_path / "t.csv", rows)

    def cases(filters: CaseFilters) -> list[str]:
        return [case.case for case in run(table, filters=filters).cases]

    assert cases(CaseFilters()) == ["add1000", "add2000", "add4000", "add8000"]
    assert cases(CaseFilters(split="judge")) == ["add2000", "add4000"]
    assert cases(CaseFilters(suites=("gemm_*",))) == ["add1000", "add2000"]
    assert cases(CaseFilters(gpus=("NVIDIA L40S",))) == ["add4000"]
    assert cases(CaseFilters(split="judge", suites=("conv", "gemm_a"))) == ["add4000"]
    with pytest.raises(UsageError, match="no row fits"):
        cases(CaseFilters(split="learn", suites=("conv",)))
    with pytest.raises(HardwareError, match="no GPU"):
        cases(CaseFilters(gpus=("voodoo 2",)))


def test_what_was_answered_once_is_read_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write(tmp_path / "t.csv", adds([1000, 2000]))
    first = run(table)
    worked = _count_work(monkeypatch)
    assert run(table) == first
    assert worked == []
    write(table, [row | {"time_us": "77"} for row in adds([1000, 2000])])  # times are no part of an answer
    assert run(table).cases[0].predictions[0].time_us == first.cases[0].predictions[0].time_us
    assert worked == []
    run(table, models=("roofline", "warp"))
    assert worked == [("warp",), ("warp",)]
    run(table, cache=False)
    assert len(worked) == 4


@pytest.mark.parametrize("changed", ["dump", "usage", "data", "grid", "gpu", "l2", "clock_mhz"])
def test_a_changed_fact_is_never_answered_from_the_cache(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump, usage, data = tmp_path / "k.sass", tmp_path / "k.res", tmp_path / "x.npy"
    shutil.copy(REPORT16, dump)
    shutil.copy(REPORT16.with_suffix(".res"), usage)
    np.save(data, np.zeros(1024, np.float32))
    gpu = tmp_path / "mine.toml"
    gpu.write_text('schema = "warplens/gpu/1"\nname = "mine"\ninherits = "a100-80gb-sxm"\n')
    row = ADD | {
        "dump": "k.sass",
        "grid": "4",
        "arguments": '["@x.npy", "ptr", "ptr", 1024]',
        "gpu": "mine.toml",
    }
    table = write(tmp_path / "t.csv", [row])
    run(table)
    worked = _count_work(monkeypatch)
    run(table)
    assert worked == []
    match changed:
        case "dump" | "usage":
            path = dump if changed == "dump" else usage
            path.write_text(path.read_text() + "\n")
        case "data":
            np.save(data, np.ones(1024, np.float32))
        case "gpu":
            other = gpu.with_name("other.toml")
            other.write_text(
                gpu.read_text() + '[sm]\ncount = { value = 7, basis = "assumed", source = "-" }\n'
            )
            write(table, [row | {"gpu": "other.toml"}])
        case _:
            write(table, [row | {changed: {"grid": "5", "l2": "cold", "clock_mhz": "1000"}[changed]}])
    run(table)
    assert worked == [MODELS]


def test_a_spoiled_entry_of_the_cache_is_worked_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write(tmp_path / "t.csv", adds([1000]))
    folder = tmp_path / "answers"
    first = run(table, cache=folder)
    (entry,) = (path for path in folder.rglob("*") if path.is_file())
    entry.write_bytes(entry.read_bytes()[:-5])
    worked = _count_work(monkeypatch)
    assert run(table, cache=folder) == first
    assert worked == [MODELS]


def test_sources_edited_since_they_were_loaded_turn_the_cache_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, folder = write(tmp_path / "t.csv", adds([1000])), tmp_path / "answers"
    first = run(table, cache=folder)
    monkeypatch.setattr("analyzer.version.IMPORT_TIME_NS", 0)
    worked = _count_work(monkeypatch)
    assert run(table, cache=folder) == first
    assert worked == [MODELS]
    assert sum(path.is_file() for path in folder.rglob("*")) == 1


def test_a_fault_of_a_model_is_listed_and_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from analyzer.evaluation import tasks as home

    table, models = write(tmp_path / "t.csv", adds([1000])), ("roofline", "warp")
    find_model = home.find_model

    def faulty(name: str) -> Predictor:
        return find_model(name) if name == "roofline" else lambda situation: 1 / 0  # type: ignore[return-value]

    with monkeypatch.context() as patched:
        patched.setattr(home, "find_model", faulty)
        (case,) = run(table, models=models).cases
    assert [answer.model for answer in case.predictions] == ["roofline"]
    assert "ZeroDivisionError" in case.refused["warp"]
    (case,) = run(table, models=models).cases
    assert not case.refused


def _count_work(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Models of every row that is worked out from now on."""
    from analyzer.evaluation import validation as home

    worked: list[tuple[str, ...]] = []
    answer_task = home.evaluate_task

    def counting(task: home.EvaluationTask) -> home.CaseResults:
        worked.extend(row.models for row in task.pending_cases)
        return answer_task(task)

    monkeypatch.setattr(home, "evaluate_task", counting)
    return worked


def test_json_is_described_by_the_published_schema(tmp_path: Path) -> None:
    rows = [*adds([1000, 2000], group="g"), *adds([4000], dump="gone.sass")]
    report = run(write(tmp_path / "t.csv", rows))
    jsonschema.validate(json.loads(render_json(report)), make_json_schema(report.schema))


def test_forms_of_dimensions_and_a_table_with_a_byte_order_mark(tmp_path: Path) -> None:
    forms = ("4;2;1", '"4,2,1"', "4x2", "4X2x1", "8")
    lines = [f"{REPORT16},vector_add,a100,{form},256,10,kept" for form in forms]
    table = tmp_path / "t.csv"
    table.write_text(
        "\ufeffdump,kernel,gpu,grid,block,time_us,unknown\r\n" + "\r\n".join(lines), encoding="utf-8"
    )
    cases = run(table).cases
    assert [case.grid for case in cases] == [(4, 2, 1)] * 4 + [(8, 1, 1)]
    assert [case.case for case in cases] == ["1", "2", "3", "4", "5"]
    assert {case.suite for case in cases} == {"report16"}


def test_truth_values_are_one_and_zero(tmp_path: Path) -> None:
    """JSON writers give them for arguments of type bool."""
    rows = [ADD | {"grid": "4", "arguments": f'["ptr", "ptr", "ptr", {word}]'} for word in ("true", "1")]
    first, second = run(write(tmp_path / "cases.csv", rows)).cases
    assert first.predictions[0].time_us == second.predictions[0].time_us
