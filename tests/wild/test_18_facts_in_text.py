"""Registers and static shared memory that nvdisasm's text states are read, and not asked for."""

from pathlib import Path

import pytest

import analyzer

FOLDER = Path(__file__).parent / "18-facts-in-text"


@pytest.mark.parametrize(
    ("name", "registers", "shared_bytes"),
    [
        ("arrays_80.txt", (9, 8), (40960, 0)),
        ("arrays_90.txt", (14, 10), (40960, 0)),  # without the kilobyte that the system has there
        ("arrays_80_code.txt", (9, 8), (None, None)),  # code alone does not list it
    ],
)
def test_resources_are_those_of_res_usage(
    name: str, registers: tuple[int, int], shared_bytes: tuple[int | None, int | None]
) -> None:
    module = analyzer.load(str(FOLDER / name)).module
    resources = {kernel.name: kernel.resources for kernel in module.kernels}
    found = [resources["with_array"], resources["without"]]
    assert tuple(one.registers for one in found) == registers
    assert all(one.has_exact_registers for one in found)
    assert tuple(one.shared_bytes for one in found) == shared_bytes
