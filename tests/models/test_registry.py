"""Models by name: files of ours, the papers' by entry points, and those of other distributions."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from paths import TRACES

import analyzer
from analyzer.cli.app import run
from analyzer.evaluation.case_table import read_cases
from analyzer.evaluation.result_keys import make_cache_keys
from analyzer.hardware.gpu_database import load_gpu
from analyzer.ir.scheduling import Basis
from analyzer.models import registry
from analyzer.models.interface import ModelInput, Prediction
from analyzer.models.model_result import ModelResult
from analyzer.models.registry import KERNEL_MODELS, OPERATOR_MODELS, ModelGroup, list_own_models
from analyzer.operators.batches import ProductBatch
from analyzer.operators.names import DataType, Operator
from analyzer.pipeline import Options
from analyzer.text.errors import UsageError

MODULE = "warplens_flat_model"
DUMP = str(TRACES / "cuda" / "sm_80" / "report16.sass")
KERNEL = ("-k", "matmul_tiled", "--grid=40,30", "--block=16,16", "--arg=3=256", "--gpu", "a100")


def predict(model_input: ModelInput) -> ModelResult:
    """A model that knows neither instructions nor stalls: a cycle for each CTA."""
    prediction = Prediction(
        gpu=model_input.gpu.key,
        gpu_name=model_input.gpu.name,
        model="flat",
        cycles=float(model_input.grid_ctas),
        time_us=1.0,
        time_us_low=0.5,
        time_us_high=2.0,
        bound="CTAs",
        occupancy=model_input.occupancy.theoretical_occupancy,
        occupancy_limiter=model_input.occupancy.limiter.value,
        ctas_per_sm=model_input.occupancy.ctas_per_sm,
        waves=model_input.waves,
        clock_mhz=1000.0,
        cpi_stack={},
        bounds_cycles={"CTAs": float(model_input.grid_ctas)},
        basis=Basis.ASSUMED,
        assumptions=(),
    )
    return ModelResult(model_input=model_input, prediction=prediction)


Publish = Callable[..., None]


@pytest.fixture
def publish(monkeypatch: pytest.MonkeyPatch) -> Iterator[Publish]:
    """Publish entry points beside those that are installed."""
    module = ModuleType(MODULE)
    module.NAME, module.predict = "flat", predict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, MODULE, module)

    def install(*entries: tuple[str, str], to: ModelGroup = KERNEL_MODELS) -> None:
        def read(*, group: str) -> list[EntryPoint]:
            added = [EntryPoint(name, value, group) for name, value in entries if group == to.entry_points]
            return [*entry_points(group=group), *added]

        monkeypatch.setattr("importlib.metadata.entry_points", read)
        registry.read_entry_points.cache_clear()

    yield install
    registry.read_entry_points.cache_clear()


def test_our_own_models_say_their_names() -> None:
    for group in (KERNEL_MODELS, OPERATOR_MODELS):
        folder = Path(registry.__file__).parent / group.folder
        paths = [path for path in folder.glob("[a-z]*.py") if path.stem not in group.helpers]
        assert tuple(sorted(path.stem for path in paths)) == list_own_models(group)
        assert all(f'NAME = "{path.stem}"' in path.read_text() for path in paths)


def test_the_papers_models_join_by_entry_points() -> None:
    assert registry.list_models() == (
        "sm", "amali", "gcom", "hybrid", "mdm", "roofline", "steady", "warp"
    )  # fmt: skip
    assert registry.list_models(OPERATOR_MODELS) == (
        "ours", "linear", "nearest", "neusight", "roofline", "synperf"
    )  # fmt: skip
    assert {"amali", "gcom", "mdm"}.isdisjoint(list_own_models())
    assert list_own_models(OPERATOR_MODELS) == ("ours",)


def test_a_stale_installation_is_told_to_install_again(publish: Publish, monkeypatch) -> None:
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [])
    registry.read_entry_points.cache_clear()
    with pytest.raises(UsageError) as error:
        registry.find_model("amali")
    assert "install warplens again" in error.value.diagnostic.hint


def test_listing_imports_no_model_and_our_own_models_need_no_entry_points() -> None:
    code = (
        "import sys; from analyzer.models import registry; registry.find_model('roofline')\n"
        "registry.find_operator_model('ours')\n"
        "assert 'importlib.metadata' not in sys.modules\n"
        "names = registry.list_models() + registry.list_models(registry.OPERATOR_MODELS)\n"
        "print([n for n in names if f'analyzer.models.predictors.{n}' in sys.modules])\n"
        "print([n for n in sys.modules if n.startswith('analyzer.baselines')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['roofline', 'roofline']", "[]"]


def test_the_default_models_are_found_without_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading them takes longer than the rest of a small run's start."""
    monkeypatch.setattr("importlib.metadata.entry_points", None)
    registry.read_entry_points.cache_clear()
    assert run(["analyze", DUMP, *KERNEL]) == 0
    assert run(["predict", "gemm", "--m=64", "--n=64", "--k=64", "--gpu=h100", "--dtype=bf16"]) == 0


def test_a_published_model_is_listed_and_found(publish: Publish) -> None:
    publish(("flat", MODULE))
    assert "flat" in registry.list_models()
    assert registry.list_models()[0] == "sm"
    assert registry.find_model("flat") is predict
    assert "flat" not in list_own_models()


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ((("sm", MODULE),), "two models are called sm: analyzer.models.predictors.sm and"),
        ((("flat", MODULE), ("flat", "elsewhere")), f"two models are called flat: {MODULE} and elsewhere"),
    ],
)
def test_two_models_of_one_name_are_refused(
    entries: tuple[tuple[str, str], ...], said: str, publish: Publish
) -> None:
    publish(*entries)
    with pytest.raises(UsageError, match=said):
        registry.list_models()
    with pytest.raises(UsageError, match=said):
        registry.find_model("flat")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("flat", "no_such_module", "no_such_module cannot be loaded: No module named 'no_such_module'"),
        ("flat", f"{MODULE}:nothing", "cannot be loaded"),
        ("flatter", MODULE, "is no model of that name"),
        ("other", MODULE, "--model flat: no such model"),
    ],
)
def test_what_is_no_model_is_one_clear_error(name: str, value: str, said: str, publish: Publish) -> None:
    publish((name, value))
    with pytest.raises(UsageError, match=said):
        registry.find_model("flat" if name == "other" else name)


def test_a_file_of_ours_without_predict_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("analyzer.models.predictors.roofline.predict")
    with pytest.raises(UsageError, match=r"predictors\.roofline is no model of that name"):
        registry.find_model("roofline")


@pytest.mark.parametrize("models", ["flat", "flat,sm", "sm,flat"])
def test_a_model_that_knows_no_instructions_gets_every_report(
    models: str, publish: Publish, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(("flat", MODULE))
    arguments = (DUMP, *KERNEL, "--model", models)
    assert run(["analyze", *arguments, "--explain", "--listing", "--loops"]) == 0
    text = capsys.readouterr().out
    assert "1,200" in text
    assert run(["analyze", *arguments, "--format", "json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    entries = {entry["model"]: entry for entry in kernel["predictions"]}
    assert entries["flat"]["cycles"] == 1200
    assert entries["flat"]["cpi_stack"] == {}
    assert kernel["loops"][0]["bounds"]
    assert run(["whatif", *arguments[:-1], "flat", "--set", "dram=x2"]) == 0


def test_sections_that_need_stalls_are_left_out(publish: Publish) -> None:
    publish(("flat", MODULE))
    options = Options(kernels=("matmul_tiled",), models=("flat", "roofline"), listing=True)
    (kernel,) = analyzer.analyze(DUMP, "a100", options=options).kernels
    assert all(not entry.cpi_stack and entry.producer is None for entry in kernel.listing)
    assert all(not loop.launch_stack for loop in kernel.loops)
    assert not kernel.differences


def test_answers_of_other_models_are_not_cached(publish: Publish, tmp_path: Path) -> None:
    """Their code is not a part of the key."""
    publish(("flat", MODULE))
    table = tmp_path / "cases.csv"
    table.write_text(f"dump,kernel,gpu,grid,block,time_us\n{DUMP},matmul_tiled,a100,64x64,16x16,100\n")
    (case,) = read_cases(table)
    assert set(make_cache_keys(case, ("sm", "flat"), inputs="", gpu=load_gpu("a100"))) == {"sm"}


def test_the_papers_answers_are_cached() -> None:
    """Their code is a part of the key, as that of all of this package."""
    assert registry.is_shipped("sm")
    assert registry.is_shipped("amali")
    assert not registry.is_shipped("unknown")


@pytest.mark.parametrize("name", registry.list_models(OPERATOR_MODELS))
def test_every_listed_operator_model_answers(name: str) -> None:
    ones = np.ones(1)
    batch = ProductBatch(Operator.GEMM, DataType.BF16, 64 * ones, 4096 * ones, 4096 * ones, ones)
    assert registry.find_operator_model(name)(batch, load_gpu("h100")).time_us[0] > 0


def test_a_published_operator_model_is_found(publish: Publish) -> None:
    publish(("flat", MODULE), to=OPERATOR_MODELS)
    assert "flat" in registry.list_models(OPERATOR_MODELS)
    assert registry.find_operator_model("flat") is predict
    with pytest.raises(UsageError, match="flat takes operators by their shapes"):
        registry.find_model("flat")
