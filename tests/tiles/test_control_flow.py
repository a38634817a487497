"""Control flow at tile level: small kernels in Triton IR, with what each of their programs does."""

import re
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paths import TRACES

from analyzer.frontend.triton.parser import parse_triton_ir
from analyzer.ir.launch import Argument, Buffer, Dim3
from analyzer.text.errors import WarplensError
from analyzer.tiles.decomposition import TaskDecomposition, decompose_launch
from analyzer.tiles.work import Quantity

HEAD = """module {
  tt.func public @kernel(%x: !tt.ptr<f32>, %n: i32, %flags: !tt.ptr<i32>) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %c8 = arith.constant 8 : i32
    %pid = tt.get_program_id x : i32
    %range = tt.make_range {end = 8 : i32, start = 0 : i32} : tensor<8xi32>
    %tile = tt.splat %x : !tt.ptr<f32> -> tensor<8x!tt.ptr<f32>>
    %places = tt.addptr %tile, %range : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
"""
LOAD = "%v{0} = tt.load %places : tensor<8x!tt.ptr<f32>>"
LOADED_BYTES = 32
TAIL = """
    tt.return
  }
}
"""


def decompose(body: str, grid: int, functions: str = "", **values: object) -> TaskDecomposition:
    text = HEAD + body + TAIL
    if functions:
        text = text.rstrip().removesuffix("}") + functions + "}\n"
    module, diagnostics = parse_triton_ir(text, "kernel.ttir")
    assert not diagnostics
    arguments = [
        Argument(name, Buffer(v.view(np.uint8), name) if isinstance(v, np.ndarray) else v)  # type: ignore[arg-type]
        for name, v in values.items()
    ]
    return decompose_launch(module, Dim3(grid), arguments)


def count_loads(tasks: TaskDecomposition) -> list[int]:
    """Return how many tiles each program loads, in launch order."""
    loads = [each.amounts[Quantity.BYTES_LOADED] // LOADED_BYTES for each in tasks.classes]
    return [loads[index] for index in tasks.class_of_program]


@given(st.integers(0, 12), st.integers(1, 4), st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_loop_runs_as_often_as_pythons_range(upper: int, step: int, grid: int) -> None:
    body = f"""
    %step = arith.constant {step} : i32
    scf.for %i = %pid to %n step %step : i32 {{
      {LOAD.format(0)}
    }}"""
    tasks = decompose(body, grid, n=upper)
    assert count_loads(tasks) == [len(range(program, upper, step)) for program in range(grid)]


def test_carried_values_decide_what_follows() -> None:
    # Programs run different numbers of trips; each carries the sum of its induction variable out of the loop.
    body = f"""
    %sum = scf.for %i = %c0 to %pid step %c1 iter_args(%s = %c0) -> (i32) : i32 {{
      %t = arith.addi %s, %i : i32
      scf.yield %t : i32
    }}
    scf.for %j = %c0 to %sum step %c1 : i32 {{
      {LOAD.format(0)}
    }}"""
    assert count_loads(decompose(body, 6)) == [sum(range(program)) for program in range(6)]


def test_branches_split_programs() -> None:
    body = f"""
    %rest = arith.remsi %pid, %c2 : i32
    %is_odd = arith.cmpi eq, %rest, %c1 : i32
    %times = scf.if %is_odd -> (i32) {{
      {LOAD.format(0)}
      scf.yield %c8 : i32
    }} else {{
      scf.yield %c2 : i32
    }}
    scf.for %j = %c0 to %times step %c1 : i32 {{
      {LOAD.format(1)}
    }}"""
    assert count_loads(decompose(body, 5)) == [2, 9, 2, 9, 2]


def test_while_loop_stops_per_program() -> None:
    body = f"""
    %r = scf.while (%i = %pid) : (i32) -> i32 {{
      %more = arith.cmpi slt, %i, %n : i32
      scf.condition(%more) %i : i32
    }} do {{
    ^bb0(%k: i32):
      {LOAD.format(0)}
      %next = arith.addi %k, %c2 : i32
      scf.yield %next : i32
    }}"""
    assert count_loads(decompose(body, 6, n=7)) == [len(range(program, 7, 2)) for program in range(6)]


def test_early_return_and_jumps() -> None:
    body = f"""
    %late = arith.cmpi sge, %pid, %n : i32
    cf.cond_br %late, ^bb2, ^bb1(%pid : i32)
  ^bb1(%i: i32):
    {LOAD.format(0)}
    %next = arith.addi %i, %c1 : i32
    %more = arith.cmpi slt, %next, %n : i32
    cf.cond_br %more, ^bb1(%next : i32), ^bb2
  ^bb2:"""
    assert count_loads(decompose(body, 6, n=4)) == [4, 3, 2, 1, 0, 0]


def test_values_of_blocks_keep_what_each_program_computed() -> None:
    # Programs reach the last block by two ways, which give it different numbers.
    body = f"""
    %first = arith.cmpi slt, %pid, %c2 : i32
    cf.cond_br %first, ^bb1, ^bb2
  ^bb1:
    %a = arith.addi %pid, %c1 : i32
    cf.br ^bb3(%a : i32)
  ^bb2:
    %b = arith.muli %pid, %c2 : i32
    cf.br ^bb3(%b : i32)
  ^bb3(%times: i32):
    scf.for %j = %c0 to %times step %c1 : i32 {{
      {LOAD.format(0)}
    }}"""
    assert count_loads(decompose(body, 5)) == [1, 2, 4, 6, 8]


def test_calls_are_inlined() -> None:
    body = """
    %times = tt.call @double(%pid) : (i32) -> i32
    scf.for %j = %c0 to %times step %c1 : i32 {
      %v = tt.load %places : tensor<8x!tt.ptr<f32>>
    }"""
    function = """
  tt.func private @double(%a: i32) -> i32 {
    %two = arith.constant 2 : i32
    %r = arith.muli %a, %two : i32
    tt.return %r : i32
  }
"""
    assert count_loads(decompose(body, 4, function)) == [0, 2, 4, 6]


def test_recursion_is_refused() -> None:
    body = "    %times = tt.call @again(%pid) : (i32) -> i32"
    function = """
  tt.func private @again(%a: i32) -> i32 {
    %r = tt.call @again(%a) : (i32) -> i32
    tt.return %r : i32
  }
"""
    with pytest.raises(Exception, match="nested more than"):
        decompose(body, 1, function)


def test_data_decide_where_they_are_given() -> None:
    body = f"""
    %place = tt.addptr %flags, %pid : !tt.ptr<i32>, i32
    %times = tt.load %place : !tt.ptr<i32>
    scf.for %j = %c0 to %times step %c1 : i32 {{
      {LOAD.format(0)}
    }}"""
    flags = np.array([3, 0, 5], dtype=np.int32)
    tasks = decompose(body, 3, flags=flags)
    own = tasks.operations[-1]
    assert tasks.assumptions == ()
    assert own.executions == 8
    assert sorted(each.trips for each in tasks.classes) == [0, 3, 5]


def test_masks_count_elements_exactly() -> None:
    body = """
    %base = arith.muli %pid, %c8 : i32
    %start = tt.splat %base : i32 -> tensor<8xi32>
    %offsets = arith.addi %start, %range : tensor<8xi32>
    %end = tt.splat %n : i32 -> tensor<8xi32>
    %inside = arith.cmpi slt, %offsets, %end : tensor<8xi32>
    %there = tt.addptr %tile, %offsets : tensor<8x!tt.ptr<f32>>, tensor<8xi32>
    %v = tt.load %there, %inside : tensor<8x!tt.ptr<f32>>
    tt.store %there, %v, %inside : tensor<8x!tt.ptr<f32>>"""
    tasks = decompose(body, 5, n=27)
    assert tasks.total[Quantity.BYTES_LOADED] == tasks.total[Quantity.BYTES_STORED] == 27 * 4
    assert [(each.count, each.amounts[Quantity.BYTES_LOADED]) for each in tasks.classes] == [
        (3, 32),
        (1, 12),
        (1, 0),
    ]


def test_endless_loops_end() -> None:
    body = f"""
    %r = scf.while (%i = %c0) : (i32) -> i32 {{
      %more = arith.cmpi sge, %i, %c0 : i32
      scf.condition(%more) %i : i32
    }} do {{
    ^bb0(%k: i32):
      {LOAD.format(0)}
      scf.yield %k : i32
    }}"""
    tasks = decompose(body, 2)
    assert any("cut off" in each for each in tasks.assumptions)


def test_long_loop_whose_trips_are_alike_takes_one_run() -> None:
    body = f"""
    scf.for %i = %c0 to %n step %c1 : i32 {{
      {LOAD.format(0)}
    }}"""
    tasks = decompose(body, 100_000, n=2_000_000_000)
    assert tasks.total[Quantity.BYTES_LOADED] == 100_000 * 2_000_000_000 * LOADED_BYTES


@given(st.integers(0, 400), st.sampled_from(("0", "3", "-1", "64", "4294967296", "1099511627776")))
@settings(max_examples=25, deadline=None)
def test_changed_numbers_are_evaluated_or_refused(place: int, number: str) -> None:
    text = (TRACES / "levels" / "sm_90" / "softmax.ttgir").read_text()
    numbers = list(re.finditer(r"\d+", text))
    chosen = numbers[place % len(numbers)]
    changed = text[: chosen.start()] + number + text[chosen.end() :]
    with suppress(WarplensError):
        module, _ = parse_triton_ir(changed, "softmax.ttgir")
        tasks = decompose_launch(module, Dim3(3), [Argument("columns", 7)])
        assert sum(each.count for each in tasks.classes) == 3
