"""The decorator on a kernel that only records its launches."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tuned_profiles import write_artifact

from analyzer.tuning.chooser import Chooser
from analyzer.tuning.triton_decorator import wavetune

SHAPE = {"m": 256, "n": 4096, "k": 1024}
DEFAULT = {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "num_warps": 4}


class Kernel:
    """As `triton.jit` makes it, as far as the decorator looks."""

    __name__ = "product"
    arg_names = ("a", "b", "m", "n", "k", "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
    cache_key = "abc"

    def __init__(self) -> None:
        self.launches: list[tuple[Any, dict[str, Any]]] = []

    def run(self, *args: Any, grid: Any, warmup: bool, **options: Any) -> str:
        self.launches.append((grid, options))
        return "compiled" if warmup else "launched"


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    return write_artifact(tmp_path / "gemm.npz")


def decorate(artifact: Path, **options: Any) -> tuple[Kernel, Any]:
    kernel = Kernel()
    settings = {"key": ["m", "n", "k"], "configs": [DEFAULT], "gpu": "h100-sxm", **options}
    return kernel, wavetune(artifact=artifact, **settings)(kernel)


def test_a_launch_has_the_chosen_configuration(artifact: Path) -> None:
    kernel, tuned = decorate(artifact)
    assert tuned[(7,)]("a", "b", *SHAPE.values()) == "launched"
    assert kernel.launches == [((7,), dict(Chooser(artifact).choose(*SHAPE.values())))]
    tuned[(7,)]("a", "b", 16, 4096, k=1024)  # by place and by name
    assert kernel.launches[1][1]["k"] == 1024
    assert kernel.launches[1][1]["BLOCK_SIZE_M"] == Chooser(artifact).choose(16, 4096, 1024)["BLOCK_SIZE_M"]


def test_compiling_without_a_launch(artifact: Path) -> None:
    _, tuned = decorate(artifact)
    assert tuned.run("a", "b", *SHAPE.values(), grid=(1,), warmup=True) == "compiled"


def test_what_else_a_kernel_has_is_still_there(artifact: Path) -> None:
    _, tuned = decorate(artifact)
    assert (tuned.cache_key, tuned.__name__) == ("abc", "product")
    with pytest.raises(AttributeError):
        tuned.nothing  # noqa: B018


def test_inputs_by_name_and_renamed_parameters(artifact: Path) -> None:
    kernel, tuned = decorate(artifact, key={"k": "k", "m": "m", "n": "n"}, names={"BLOCK_SIZE_M": "BM"})
    tuned[(1,)]("a", "b", *SHAPE.values())
    assert kernel.launches[0][1]["BM"] == Chooser(artifact).choose(*SHAPE.values())["BLOCK_SIZE_M"]


def test_a_parameter_given_twice_is_an_error(artifact: Path) -> None:
    _, tuned = decorate(artifact)
    with pytest.raises(ValueError, match="num_warps is given in the launch"):
        tuned[(1,)]("a", "b", *SHAPE.values(), num_warps=8)


def test_without_a_fallback_nothing_is_decorated(artifact: Path) -> None:
    with pytest.raises(ValueError, match="at least one configuration"):
        decorate(artifact, configs=[])


@pytest.mark.parametrize(
    ("options", "shape", "reason"),
    [
        ({"gpu": "a40"}, (256, 4096, 1024), "is of h100-sxm, and this GPU is a40"),
        ({"gpu": lambda: ""}, (256, 4096, 1024), "this GPU is not known"),
        ({"limits": {"m": (1, 128)}}, (256, 4096, 1024), "m is 256, beyond 1 to 128"),
        ({}, (0, 4096, 1024), "m is 0"),
        ({"key": ["m", "n"]}, (256, 4096, 1024), "takes m, n, k"),
    ],
)
def test_the_fallback_and_its_reason_once(
    artifact: Path, options: dict[str, Any], shape: tuple[int, ...], reason: str
) -> None:
    kernel, tuned = decorate(artifact, **options)
    with pytest.warns(RuntimeWarning, match=reason):
        tuned[(1,)]("a", "b", *shape)
    tuned[(1,)]("a", "b", *shape)  # a second warning would be an error here
    assert [launch for _, launch in kernel.launches] == [DEFAULT, DEFAULT]


@pytest.mark.parametrize("content", [None, b"", b"no archive"])
def test_an_artifact_that_is_missing_or_damaged(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "x.npz"
    if content is not None:
        path.write_bytes(content)
    kernel, tuned = decorate(path)
    with pytest.warns(RuntimeWarning, match="the given configuration instead of wavetune"):
        tuned[(1,)]("a", "b", *SHAPE.values())
    assert kernel.launches == [((1,), DEFAULT)]


def test_several_configurations_go_to_tritons_autotuner(
    artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    class Config:
        def __init__(self, kwargs: dict[str, int], **options: int) -> None:
            self.kwargs, self.options = kwargs, options

    def autotune(configs: list[Config], key: list[str]) -> Any:
        made.append(([(each.kwargs, each.options) for each in configs], key))
        return lambda kernel: kernel

    triton = ModuleType("triton")
    triton.Config, triton.autotune = Config, autotune  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton", triton)
    _, tuned = decorate(artifact, configs=[DEFAULT, Config({"BLOCK_SIZE_M": 64})], gpu="a40")
    with pytest.warns(RuntimeWarning, match="autotuning instead"):
        tuned[(1,)]("a", "b", *SHAPE.values())
    tuned[(1,)]("a", "b", *SHAPE.values())
    blocks = {name: value for name, value in DEFAULT.items() if name != "num_warps"}
    assert made == [([(blocks, {"num_warps": 4}), ({"BLOCK_SIZE_M": 64}, {})], ["m", "n", "k"])]


def test_a_choice_imports_neither_torch_nor_triton(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "triton", None)
    kernel, tuned = decorate(artifact)
    tuned[(1,)]("a", "b", *SHAPE.values())
    assert kernel.launches
    _, tuned = decorate(artifact, gpu=None)
    with pytest.warns(RuntimeWarning, match="not known"):
        tuned[(1,)]("a", "b", *SHAPE.values())
