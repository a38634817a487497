"""Baselines on disk: read back as written, refused when damaged, never lost."""

import json
import os
from pathlib import Path

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.checking.baseline_store import (
    format_baseline,
    make_input_file_name,
    read_baseline,
    read_baselines,
    write_baseline,
)
from analyzer.render.json import make_json_schema
from analyzer.report.baseline_schema import (
    BASELINE_SCHEMA,
    Baseline,
    BaselineGpu,
    BaselineInput,
    BaselineKernel,
    BaselinePrediction,
)
from analyzer.text.errors import InputError, UsageError, format_diagnostic
from analyzer.text.escaping import escape_controls


def make_baseline(*names: str, **changes: object) -> Baseline:
    kernels = tuple(
        BaselineKernel(
            name=name,
            input="a.cubin",
            architecture="sm_90",
            launch="1024/256",
            launch_digest="0123456789abcdef",
            code="c0de",
            metrics={"registers": 40, "spill_bytes": 0},
            gpus={
                "h100": BaselinePrediction(
                    metrics={"cycles": 41_200, "time_us": 23.4}, cpi_stack={"wait": 0.3}
                )
            },
        )
        for name in names
    )
    facts: dict[str, object] = {
        "schema": BASELINE_SCHEMA,
        "tool_version": "0.1.0",
        "model": "sm",
        "model_fingerprint": "f00d",
        "assumed_launch": True,
        "gpus": (BaselineGpu(gpu="h100", figures="aa"),),
        "inputs": (BaselineInput(path="a.cubin", toolchain=("nvcc 13",)),),
        "kernels": kernels,
    }
    return Baseline(**(facts | changes))  # type: ignore[arg-type]


@given(st.lists(st.text(max_size=6), max_size=5, unique=True))
def test_any_names_survive_and_stand_in_lines_of_their_own(names: list[str]) -> None:
    text = format_baseline(make_baseline(*names))
    assert {k["name"] for k in json.loads(text)["kernels"]} == set(names)
    assert sum(line.startswith('{"name"') for line in text.split("\n")) == len(names)
    assert escape_controls(text, keep="\n") == text
    again = msgspec.json.decode(text, type=Baseline)
    assert format_baseline(again) == text


def test_order_does_not_matter_and_the_schema_holds() -> None:
    text = format_baseline(make_baseline("b", "a"))
    assert text == format_baseline(make_baseline("a", "b"))
    jsonschema.validate(json.loads(text), make_json_schema(BASELINE_SCHEMA))


def test_any_cut_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    text = format_baseline(make_baseline("a", "b")).rstrip()
    for end in (*range(0, len(text), 5), len(text) - 1):
        path.write_text(text[:end])
        with pytest.raises(InputError, match=r"b\.json|not JSON"):
            read_baseline(path)


CONFLICT = """{{
"schema": "warplens/baseline/1",
<<<<<<< HEAD
"tool_version": "1",
=======
"tool_version": "2",
>>>>>>> {0}
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CONFLICT.format("other"), (":3:1: error: an unresolved merge conflict", "<<<<<<<", "--update")),
        ("[]", ("no baseline of warplens: it has no schema",)),
        (
            '{"schema": "warplens/baseline/2", "tool_version": "9.1"}',
            ("'warplens/baseline/2'", "warplens 9.1"),
        ),
        ('{"schema": "warplens/check/1"}', ("its schema is 'warplens/check/1'",)),
        ('{"schema": "warplens/baseline/1"}', ("missing required field",)),
        ('{"schema": "warplens/baseline/1", "kernels": ' + "[" * 100_000, ("not JSON",)),
    ],
)
def test_damage_is_named(text: str, said: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_baselines(path)
    for piece in said:
        assert piece in format_diagnostic(caught.value.diagnostic)


def test_a_wrong_field_and_a_kernel_twice_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    text = format_baseline(make_baseline("a", "b"))
    path.write_text(text.replace('"registers":40', '"registers":"many"', 1))
    with pytest.raises(InputError) as caught:
        read_baseline(path)
    assert "b.json:14:" in format_diagnostic(caught.value.diagnostic)
    line = next(line for line in text.split("\n") if line.startswith('{"name":"a"'))
    path.write_text(text.replace(line, f"{line}\n{line}", 1))
    with pytest.raises(InputError) as caught:
        read_baseline(path)
    assert "kernel a of a.cubin is there twice" in str(caught.value)
    assert ":15:1" in str(caught.value.diagnostic.location)


def test_bytes_that_are_no_text_are_one_error(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.write_bytes(
        format_baseline(make_baseline("name")).encode().replace(b'"name":"name"', b'"name":"n\x99"')
    )
    with pytest.raises(InputError, match="not UTF-8"):
        read_baseline(path)


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "b.json"
    write_baseline(path, make_baseline("a"))
    before = path.read_bytes()

    def interrupt(source: object, target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_baseline(path, make_baseline("a", "b"))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["b.json"]


def test_what_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/proc/nowhere/b.json"), tmp_path / "a\0b"):
        with pytest.raises(UsageError, match="cannot write the baseline"):
            write_baseline(path, make_baseline("a"))


def test_a_folder_holds_a_file_for_each_input(tmp_path: Path) -> None:
    assert make_input_file_name("a.cubin") == "a.cubin.json"
    odd = [make_input_file_name(name) for name in ("b/a.cubin", "b_a.cubin", "../b/a", "x" * 300, "")]
    assert len(set(odd)) == len(odd)
    assert all("/" not in name and not name.startswith(".") and len(name) < 120 for name in odd)
    write_baseline(tmp_path / "one.json", make_baseline("a"))
    assert len(read_baselines(tmp_path)) == 1
    write_baseline(tmp_path / "two.json", make_baseline("b"))
    with pytest.raises(InputError, match=r"has kernels of a\.cubin, and so has one\.json"):
        read_baselines(tmp_path)
    assert read_baselines(tmp_path / "none") == ()
