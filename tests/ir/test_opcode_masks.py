"""Masks of opcodes are made once for a module, however many kernels ask for them."""

from pathlib import Path

import numpy as np
import pytest
from paths import TRACES

import analyzer
from analyzer.ir.launch import Dim3, Launch
from analyzer.ir.module import FormTable
from analyzer.ir.opcode import Opcode, OpKind
from analyzer.pipeline import Options

DUMP = TRACES / "triton" / "sm_90" / "matmul.sass"
MODELS = ("sm", "steady", "warp", "amali", "roofline")
LAUNCHES = (Launch(), Launch(grid=Dim3(264), block=Dim3(128)))


def is_load(opcode: Opcode) -> bool:
    return opcode.kind is OpKind.LOAD


def analyze_all_ways(path: Path) -> None:
    for launch in LAUNCHES:
        analyzer.analyze(str(path), "h100", options=Options(launch=launch, models=MODELS, listing=True))


def test_repeated_analyses_make_no_further_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    tests: set[object] = set()
    make = FormTable.make_opcode_mask

    def record(self: FormTable, test: object) -> object:
        tests.add(test)
        return make(self, test)

    monkeypatch.setattr(FormTable, "make_opcode_mask", record)
    analyze_all_ways(DUMP)
    once = len(tests)
    assert once > len(MODELS)
    for _ in range(2):
        analyze_all_ways(DUMP)
    assert len(tests) == once, "a test made for each call is a mask kept for each call"


def test_mask_is_computed_once_and_read_only() -> None:
    form_table = analyzer.load(str(DUMP)).module.form_table
    mask = form_table.make_opcode_mask(is_load)
    assert mask is form_table.make_opcode_mask(is_load)
    assert mask.tolist() == [is_load(opcode) for opcode in form_table.opcodes]
    assert np.any(mask)
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = True
