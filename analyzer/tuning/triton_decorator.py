"""A decorator that gives a Triton kernel its configuration, in place of `triton.autotune`.

    @wavetune(
        artifact="gemm-h100.npz", key=["m", "n", "k"],                      # arguments that hold the kernel
        space's inputs, in its order configs=[{"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 32,
        "num_warps": 4}],
    )
    @triton.jit
    def gemm(a_ptr, ..., m, n, k, ..., BLOCK_SIZE_M: tl.constexpr, ...): ...

The launch `gemm[grid](...)` stays as it was. A launch costs one look-up more: by the inputs, and where these
are new a choice of a few microseconds; nothing is measured.

Where there is no answer (no artifact, one of another kernel or GPU, an input that is not positive or beyond
the limits) the launch uses `configs`: the only one, or, of several, what `triton.autotune` finds among them.
The reason is told once as a RuntimeWarning. Triton is imported only then, and only for several
configurations, and torch only to ask for the name of the GPU.
"""

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analyzer.text.errors import WarplensError
from analyzer.tuning.chooser import Chooser
from analyzer.tuning.device_names import find_gpu_of_device

Key = Sequence[str] | Mapping[str, str]

_LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_MOST_KEPT_CHOICES = 4096


def wavetune(
    *,
    artifact: str | Path,
    key: Key,
    configs: Sequence[Any],
    names: Mapping[str, str] | None = None,
    limits: Mapping[str, tuple[int, int]] | None = None,
    gpu: str | Callable[[], str] | None = None,
) -> Callable[[Any], "WavetunedKernel"]:
    """Return a decorator for a `triton.jit` function.

    artifact: what `warplens tune fit` wrote. key: the arguments of the kernel that are the inputs of the
    artifact's kernel space, in its order, or by input. configs: what to fall back to, at least one: mappings
    or `triton.Config`s. names: of parameters that the kernel calls otherwise, by name in the artifact.
    limits: least and most of inputs that the artifact may answer for. gpu: the GPU's key, or a function that
    returns it; by default what torch says. Raises ValueError for no configuration.
    """
    fallback = list(configs)
    if not fallback:
        raise ValueError("wavetune needs at least one configuration to fall back to")
    return lambda kernel: WavetunedKernel(
        kernel, Path(artifact), key, fallback, names or {}, limits or {}, gpu or _ask_torch
    )


class WavetunedKernel:
    """A kernel that is launched with a chosen configuration; all else is the wrapped kernel's."""

    def __init__(
        self,
        kernel: Any,
        artifact: Path,
        key: Key,
        configs: list[Any],
        names: Mapping[str, str],
        limits: Mapping[str, tuple[int, int]],
        gpu: str | Callable[[], str],
    ) -> None:
        self.fn = kernel
        self._artifact, self._key, self._configs = artifact, key, configs
        self._names, self._limits, self._gpu = names, limits, gpu
        self._arguments = _list_arguments(kernel)
        self._choices: dict[tuple[int, ...], Mapping[str, Any] | None] = {}
        self._autotuner: Any = None
        self._has_warned = False
        self.__name__ = str(getattr(kernel, "__name__", "kernel"))
        self.__doc__ = getattr(kernel, "__doc__", None)

    def __getattr__(self, name: str) -> Any:
        if name == "fn":  # not there yet, as in a copy
            raise AttributeError(name)
        return getattr(self.fn, name)

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return functools.partial(self.run, grid=grid, warmup=False)

    def run(self, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        """Launch, or with `warmup` compile, the kernel with the configuration for these arguments."""
        config = self._find_config(args, kwargs)
        if config is None:
            return self._make_autotuner().run(*args, grid=grid, warmup=warmup, **kwargs)
        given = next((name for name in config if name in kwargs), None)
        if given is not None:
            raise ValueError(f"{given} is given in the launch, and chosen by wavetune: leave it out of one")
        return self.fn.run(*args, grid=grid, warmup=warmup, **kwargs, **config)

    @functools.cached_property
    def _chooser(self) -> Chooser | None:
        """The tables; None where they are not to be used, of which the user is told."""
        try:
            chooser = Chooser(self._artifact)
        except WarplensError as error:
            self._warn(str(error))
            return None
        found = chooser.artifact.description
        gpu = self._gpu if isinstance(self._gpu, str) else self._gpu()
        if found.gpu != gpu:
            self._warn(f"{self._artifact} is of {found.gpu}, and this GPU is {gpu or 'not known'}")
            return None
        if len(self._key) != len(chooser.space.inputs):
            self._warn(f"{self._artifact} takes {', '.join(chooser.space.inputs)}, not {self._key}")
            return None
        return chooser

    @functools.cached_property
    def _inputs(self) -> tuple[tuple[str, int | None], ...]:
        """The arguments that are inputs, in the artifact's order, each with its place among all."""
        space = None if self._chooser is None else self._chooser.space
        if isinstance(self._key, Mapping):
            ordered = space.inputs if space is not None else tuple(self._key)
            named = [self._key.get(name, name) for name in ordered]
        else:
            named = list(self._key)
        places = {name: place for place, name in enumerate(self._arguments)}
        return tuple((name, places.get(name)) for name in named)

    def _find_config(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the configuration of a launch: chosen, or the only fallback; None for the autotuner."""
        shape = tuple(
            int(args[place]) if place is not None and place < len(args) else int(kwargs.get(name, 0))
            for name, place in self._inputs
        )
        if shape not in self._choices:
            if len(self._choices) >= _MOST_KEPT_CHOICES:
                self._choices.clear()
            self._choices[shape] = self._choose(shape)
        return self._choices[shape]

    def _choose(self, shape: tuple[int, ...]) -> Mapping[str, Any] | None:
        chooser = self._chooser
        if chooser is not None and self._is_within(chooser, shape):
            try:
                chosen = chooser.choose(*shape)
            except WarplensError as error:
                self._warn(str(error))
            else:
                return {self._names.get(name, name): value for name, value in chosen.items()}
        return _flatten_config(self._configs[0]) if len(self._configs) == 1 else None

    def _is_within(self, chooser: Chooser, shape: tuple[int, ...]) -> bool:
        for name, size in zip(chooser.space.inputs, shape, strict=True):
            least, most = self._limits.get(name, (1, size))
            if not least <= size <= most:
                self._warn(f"{name} is {size}, beyond {least} to {most}")
                return False
        return True

    def _make_autotuner(self) -> Any:
        """Return Triton's autotuner over the fallback configurations."""
        if self._autotuner is None:
            import triton

            configs = [_make_triton_config(triton, config) for config in self._configs]
            key = [name for name, place in self._inputs if place is not None]
            self._autotuner = triton.autotune(configs=configs, key=key)(self.fn)
        return self._autotuner

    def _warn(self, reason: str) -> None:
        """Tell once why the fallback is used."""
        if not self._has_warned:
            self._has_warned = True
            what = "the given configuration" if len(self._configs) == 1 else "autotuning"
            text = f"{self.__name__}: {what} instead of wavetune: {reason}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def _list_arguments(kernel: Any) -> tuple[str, ...]:
    """Return the names of a kernel's arguments: as Triton lists them, else those of the function."""
    listed = getattr(kernel, "arg_names", None)
    if listed is None:
        listed = inspect.signature(kernel.fn if hasattr(kernel, "fn") else kernel).parameters
    return tuple(str(name) for name in listed)


def _flatten_config(config: Any) -> dict[str, Any]:
    """Return the keyword arguments of a launch for a mapping or a `triton.Config`."""
    if isinstance(config, Mapping):
        return dict(config)
    options = {name: getattr(config, name, None) for name in _LAUNCH_OPTIONS}
    return {**config.kwargs, **{name: value for name, value in options.items() if value is not None}}


def _make_triton_config(triton: Any, config: Any) -> Any:
    if not isinstance(config, Mapping):
        return config
    options = {name: config[name] for name in _LAUNCH_OPTIONS if name in config}
    parameters = {name: value for name, value in config.items() if name not in options}
    return triton.Config(parameters, **options)


def _ask_torch() -> str:
    """Return the key of the current GPU, else its own name; "" where torch finds none."""
    try:
        import torch

        name = str(torch.cuda.get_device_name())
    except (ImportError, RuntimeError, AssertionError):
        return ""
    return find_gpu_of_device(name) or name
