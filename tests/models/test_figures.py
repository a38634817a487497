"""The bench that sets figures to neutral, and the kept launches that it predicts from."""

from pathlib import Path

import msgspec
import pytest
from counted_launches import keep_launch, load_launch
from figure_edits import Edit, answer_on
from figures import BASE, GROUPS, NEUTRAL, list_edits
from paths import ROOT
from variant_predictions import Variant, count_case, predict_counted

from analyzer.evaluation.case_table import Case
from analyzer.hardware.gpu_database import load_gpu
from analyzer.hardware.parameter_paths import collect_parameters
from analyzer.hardware.schema import InstructionCaches, IssueTiming, MemorySubsystem, WarpgroupContention
from analyzer.ir.launch import Dim3
from analyzer.pipeline.loaded_program import load

TABLES: dict[str, type[msgspec.Struct]] = {
    "memory": MemorySubsystem,
    "instruction_caches": InstructionCaches,
    "issue": IssueTiming,
    "warpgroup_contention": WarpgroupContention,
}
_ARGUMENTS = (2, "ptr", "ptr", "ptr", 1024, 1024, 2, 2, 0.5, 3.2, 2.2, 30.0, 0.0001, 0.0)
CASE = Case(
    table=Path("table.csv"),
    line=2,
    name="hotspot",
    suite="volta/Rodinia",
    dump=ROOT / "traces" / "volta" / "sm_70" / "kernels.sass",
    dump_text="kernels.sass",
    kernel="hotspot",
    gpu="v100-pcie",
    grid=Dim3(86, 86, 1),
    block=Dim3(16, 16, 1),
    cluster=None,
    dynamic_shared_bytes=3072,
    arguments=tuple((str(place), value) for place, value in enumerate(_ARGUMENTS)),
    time_us=10.0,
    split="judge",
    l2="warm",
    clock_mhz=1417.0,
    timing="",
    group="",
    counted=True,
    config="",
    note="",
)


def test_every_figure_is_a_base_or_has_a_neutral() -> None:
    fields = {f"{table}.{name}" for table, kind in TABLES.items() for name in kind.__struct_fields__}
    assert {key for key in NEUTRAL if not key.startswith("l2.")} | BASE == fields
    assert not BASE & NEUTRAL.keys()


def test_what_is_optional_can_be_left_out() -> None:
    for table, kind in TABLES.items():
        for field in msgspec.structs.fields(kind):
            if not field.required:
                assert None in NEUTRAL[f"{table}.{field.name}"]


def test_an_edit_changes_its_figures_and_nothing_else() -> None:
    gpu = load_gpu("h100-sxm")
    before = collect_parameters(gpu)
    for edit in list_edits():
        after = collect_parameters(edit.apply(gpu))
        keys = {key for key in before if key not in after or after[key].value != before[key].value}
        of_product = {"memory.turnaround_factor", "memory.streaming_gbps", "memory.read_gbps"}
        assert {
            key for key in keys - of_product if not any(key.startswith(k) for k, _ in edit.values)
        } == set()
    assert all(GROUPS.values())


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("counted") / "launch.pickle"
    keep_launch(path, count_case(load(str(CASE.dump)), CASE))
    return path


def test_a_kept_launch_is_predicted_as_one_that_was_just_counted(kept: Path) -> None:
    variant = Variant(load_gpu(CASE.gpu), CASE.clock_mhz)
    counted = count_case(load(str(CASE.dump)), CASE)
    assert predict_counted(load_launch(kept), CASE, variant) == predict_counted(counted, CASE, variant)


def test_a_figure_that_is_not_read_changes_nothing(kept: Path) -> None:
    read = Edit("path", (("memory.line_fill_cycles", 9.0),))
    unread = Edit("fence", (("memory.system_fence_cycles", 0.0),))
    found = answer_on(load_launch(kept), CASE, load_gpu(CASE.gpu), (read, unread))
    assert found.edited_us["fence"] == found.as_is_us
    assert found.edited_us["path"] > found.as_is_us
