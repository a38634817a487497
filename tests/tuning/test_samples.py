"""Profiles are read with the place of what is wrong, and written as they are read."""

from pathlib import Path

import numpy as np
import pytest

from analyzer.text.errors import InputError
from analyzer.tuning.samples import find_rows, format_samples, read_samples

HEAD = "kernel,gpu,wave,m,n,k,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,num_warps,num_stages,time_us\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "profile.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_kernels_and_gpus_are_read_apart(tmp_path: Path) -> None:
    rows = "gemm,h100,1,16,32,64,16,32,32,4,2,1.5\ngemm,a100,1,16,32,64,16,32,32,4,2,2.5\n"
    parts = read_samples(write(tmp_path, HEAD + rows + rows))
    assert [(p.gpu, p.time_us.tolist()) for p in parts] == [("h100", [1.5, 1.5]), ("a100", [2.5, 2.5])]
    assert parts[0].shapes.tolist() == [[16, 32, 64]] * 2
    assert parts[0].micros.tolist() == [[4, 2]] * 2


def test_an_empty_time_is_a_configuration_that_could_not_run(tmp_path: Path) -> None:
    (part,) = read_samples(write(tmp_path, HEAD + "gemm,h100,1,16,32,64,16,32,32,4,2,\n"))
    assert np.isnan(part.time_us).all()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    (part,) = read_samples(write(tmp_path, HEAD + "gemm,h100,1,16,32,64,16,32,32,4,2,1.5\n" * 3000))
    again = read_samples(write(tmp_path, "".join(format_samples([part], [("wave", [np.arange(3000)])]))))
    assert (again[0].shapes == part.shapes).all()
    assert (again[0].time_us == part.time_us).all()


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        (HEAD + "gemm,h100,1,16,32,0,16,32,32,4,2,1\n", "column k", 19),
        (HEAD + "gemm,h100,1,16,32,6x,16,32,32,4,2,1\n", "column k", 19),
        (HEAD + "gemm,h100,1,16,32,64,16,32,32,4,2,-1\n", "time_us", 35),
        (HEAD + "gemm,h100,1,16,32,64,16,32,32,4,2,nan\n", "time_us", 35),
        (HEAD + "gemm,h100,1,16,32,64,16,32,32,4,2,1e-300\n", "time_us", 35),
        (HEAD + "gemm,h100,1,16\n", "4 fields", 1),
    ],
)
def test_a_wrong_field_is_shown(tmp_path: Path, text: str, message: str, column: int) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_samples(write(tmp_path, text))
    location = caught.value.diagnostic.location
    assert location is not None
    assert (location.line, location.column) == (2, column)


@pytest.mark.parametrize(
    "text",
    ["", HEAD, "kernel,gpu\ngemm,h100\n", HEAD.replace("num_warps", "warps") + "gemm,h100" + ",1" * 10],
)
def test_a_table_that_is_none_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError):
        read_samples(write(tmp_path, text))


def test_rows_are_found_in_a_table() -> None:
    table = np.array([[1, 2], [3, 4], [1, 2]])
    assert find_rows(table, np.array([[3, 4], [1, 2], [9, 9]])).tolist() == [1, 2, -1]
