"""How the kernels of each package are called: small inputs through the packages' own functions.

Each recipe is `PACKAGE__NAME`. Nothing runs on a GPU (`triton_recorder.py`); shapes are small, partly odd, so
that the masks of ragged edges stay in the code.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

half, bf16, f32, i32, i64 = torch.float16, torch.bfloat16, torch.float32, torch.int32, torch.int64


def find_recipes(package: str) -> list[tuple[str, Callable[[], None]]]:
    """Return the recipes of a package by name."""
    prefix = f"{package}__"
    names = [name for name in vars(sys.modules[__name__]) if name.startswith(prefix)]
    return [(name.removeprefix(prefix), vars(sys.modules[__name__])[name]) for name in names]


def _load(module: str) -> Any:
    return importlib.import_module(module)


def _real(*shape: int, dtype: torch.dtype = bf16, grad: bool = True) -> torch.Tensor:
    return torch.randn(*shape).mul(0.1).to(dtype).requires_grad_(grad)


def _whole(*shape: int, high: int, dtype: torch.dtype = i64) -> torch.Tensor:
    return torch.randint(0, high, shape, dtype=dtype)


def _backward(result: Any) -> None:
    """Run the backward kernels of all results that have gradients."""
    results = result if isinstance(result, tuple | list) else (result,)
    pending = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    torch.autograd.backward(pending, [torch.zeros_like(r) for r in pending])


def _each(*calls: Callable[[], Any]) -> None:
    """Call each; one that fails says so and the next goes on."""
    for number, call in enumerate(calls):
        try:
            _backward_if_any(call())
        except Exception as error:
            print(f"FAILED call {number}: {type(error).__name__}: {str(error)[:300]!r}", flush=True)


def _backward_if_any(result: Any) -> None:
    results = result if isinstance(result, tuple | list) else (result,)
    if any(isinstance(r, torch.Tensor) and r.requires_grad for r in results):
        _backward(result)


# ---- liger-kernel


def _liger(module: str) -> Any:
    return _load(f"liger_kernel.ops.{module}")


def liger__norms() -> None:
    rms, layer = _liger("rms_norm").LigerRMSNormFunction, _liger("layer_norm").LigerLayerNormFunction
    group, dyt = _liger("group_norm").LigerGroupNormFunction, _liger("dyt").LigerDyTFunction
    poly = _liger("poly_norm").LigerPolyNormFunction
    fused = _liger("fused_add_rms_norm").LigerFusedAddRMSNormFunction
    modulated = _liger("modulated_rms_norm").LigerModulatedRMSNormFunction
    rows, weight, bias = _real(2, 64, 1000), _real(1000), _real(1000)
    _each(
        lambda: rms.apply(rows * 1, weight, 1e-6, 0.0, "llama", False),
        lambda: rms.apply(_real(4096, 256) * 1, _real(256), 1e-6, 1.0, "gemma", False, None),
        lambda: layer.apply(rows * 1, weight, bias, 1e-6),
        lambda: fused.apply(rows * 1, rows * 1, weight, 1e-6, 0.0, "llama", False),
        lambda: group.apply(
            _real(4, 24, 300, dtype=f32), _real(24, dtype=f32), _real(24, dtype=f32), 24, 6, 1e-5
        ),
        lambda: dyt.apply(rows * 1, _real(1), weight, bias),
        lambda: poly.apply(rows * 1, _real(3), _real(1), 1e-6, False),
        lambda: modulated.apply(rows * 1, weight, _real(2, 1000), _real(2, 1000), 1e-6, 0.0, "llama", False),
    )


def liger__activations() -> None:
    swiglu, geglu = _liger("swiglu"), _liger("geglu").LigerGELUMulFunction
    relu = _liger("relu_squared").LigerReLUSquaredFunction
    soft, sparse = _liger("softmax").LigerSoftmaxFunction, _liger("sparsemax").LigerSparsemaxFunction
    _each(
        lambda: swiglu.LigerSiLUMulFunction.apply(_real(4, 37, 1408) * 1, _real(4, 37, 1408) * 1),
        lambda: geglu.apply(_real(4, 37, 1408) * 1, _real(4, 37, 1408) * 1),
        lambda: relu.apply(_real(16, 1000) * 1),
        lambda: soft.apply(_real(16, 1000) * 1),
        lambda: soft.apply(_real(4, 40_000) * 1),
        lambda: sparse.apply(_real(16, 512, dtype=f32) * 1, -1),
    )


def liger__losses() -> None:
    cross, jsd = _liger("cross_entropy").LigerCrossEntropyFunction, _liger("jsd").LigerJSDFunction
    kl, tvd = _liger("kl_div").LigerKLDivLossFunction, _liger("tvd").LigerTVDLossFunction
    fused = _liger("fused_linear_cross_entropy").LigerFusedLinearCrossEntropyFunction
    logits, other = _real(64, 32_000, dtype=f32), _real(64, 32_000, dtype=f32, grad=False)
    target = _whole(64, high=32_000)
    _each(
        lambda: cross.apply(logits * 1, target, None, -100, 0.0, 0.0, "mean", None, False)[0],
        lambda: cross.apply(logits * 1, target, None, -100, 1e-4, 0.1, "mean", 30.0, True)[0],
        lambda: jsd.apply(logits * 1, other, None, 0.5, -100),
        lambda: kl.apply(logits * 1, other, "batchmean", False, 1e-10),
        lambda: tvd.apply(logits * 1, other),
        lambda: fused.apply(_real(64, 256) * 1, _real(32_000, 256), target)[0],
    )


def liger__positions() -> None:
    rope, llama4 = _liger("rope").LigerRopeFunction, _liger("llama4_rope").LigerLlama4RopeFunction
    qwen = _liger("qwen2vl_mrope").LigerQwen2VLMRopeFunction
    q, k = _real(2, 16, 128, 64), _real(2, 4, 128, 64)
    _each(
        lambda: rope.apply(q * 1, k * 1, _real(1, 128, 64, grad=False), _real(1, 128, 64, grad=False)),
        lambda: llama4.apply(
            _real(2, 128, 16, 64), _real(2, 128, 4, 64), torch.randn(128, 32, dtype=torch.complex64)
        ),
        lambda: qwen.apply(
            q * 1, k * 1, _real(3, 2, 128, 64, grad=False), _real(3, 2, 128, 64, grad=False), [8, 12, 12]
        ),
    )


def liger__attention() -> None:
    near = _liger("fused_neighborhood_attention").LigerFusedNeighborhoodAttentionFunction
    multi = _liger("multi_token_attention").LigerMultiTokenAttentionFunction
    residual = _liger("attn_res").LigerAttnResFunction
    q, k, v = (_real(2, 4, 128, 64, dtype=half) for _ in range(3))
    _each(
        lambda: near.apply(q * 1, k * 1, v * 1, 7, 1, 0.125),
        lambda: multi.apply(
            _real(2, 4, 64, 64, dtype=f32), _real(4, 4, 3, 3, dtype=f32), None, 1, 1, 1, 1, False
        ),
        lambda: residual.apply(_real(4, 2, 64, 256), _real(256), _real(256), 1e-6),
    )


def liger__moe() -> None:
    fused = _liger("fused_moe").LigerFusedMoEFunction
    tokens, experts, hidden, inner = 256, 8, 256, 512
    _each(
        lambda: fused.apply(
            _real(tokens, hidden),
            _real(experts, 2 * inner, hidden),
            _real(experts, hidden, inner),
            _whole(tokens, 2, high=experts, dtype=i32),
            _real(tokens, 2, dtype=f32),
        )
    )


def liger__grpo() -> None:
    loss = _liger("grpo_loss").GrpoLossFunction
    logits = _real(4, 65, 8000)
    old, reference = _real(4, 64, dtype=f32, grad=False), _real(4, 64, dtype=f32, grad=False)
    ids, mask = _whole(4, 64, high=8000), torch.ones(4, 64, dtype=i32)
    _each(
        lambda: loss.apply(logits, old, reference, ids, torch.randn(4), mask, 0.9, 0.04, 0.2, 0.4, False)[0]
    )


# ---- flash-linear-attention


def _fla(name: str) -> Any:
    module, function = name.rsplit(".", 1)
    return getattr(_load(f"fla.{module}"), function)


def _heads(n: int, length: int = 130, heads: int = 2, width: int = 64) -> list[torch.Tensor]:
    return [_real(2, length, heads, width) for _ in range(n)]


def _gate(*shape: int) -> torch.Tensor:
    return torch.nn.functional.logsigmoid(torch.randn(*shape)).requires_grad_()


def fla__gated_linear() -> None:
    q, k, v = _heads(3)
    g = _gate(2, 130, 2, 64)
    _each(
        lambda: _fla("ops.gla.chunk_gla")(q, k, v, g, output_final_state=True),
        lambda: _fla("ops.gla.fused_recurrent_gla")(q, k, v, g),
        lambda: _fla("ops.simple_gla.chunk_simple_gla")(q, k, v, g[..., 0]),
        lambda: _fla("ops.simple_gla.parallel_simple_gla")(q, k, v, g[..., 0]),
        lambda: _fla("ops.simple_gla.fused_recurrent_simple_gla")(q, k, v, g[..., 0]),
    )


def fla__retention() -> None:
    q, k, v = _heads(3)
    _each(
        lambda: _fla("ops.retention.chunk_retention")(q, k, v),
        lambda: _fla("ops.retention.parallel_retention")(q, k, v),
        lambda: _fla("ops.linear_attn.chunk_linear_attn")(q, k, v),
        lambda: _fla("ops.linear_attn.fused_chunk_linear_attn")(q, k, v),
        lambda: _fla("ops.lightning_attn.chunk_lightning_attn")(q, k, v, layer_idx=0, num_layers=4),
        lambda: _fla("ops.rebased.parallel_rebased")(*_heads(2, width=16), v),
        lambda: _fla("ops.based.parallel_based")(*_heads(2, width=16), v),
        lambda: _fla("ops.based.fused_chunk_based")(*_heads(2, width=16), v),
    )


def fla__delta() -> None:
    q, k, v = _heads(3)
    beta, g = torch.rand(2, 130, 2).to(bf16).requires_grad_(), _gate(2, 130, 2)
    _each(
        lambda: _fla("ops.delta_rule.chunk_delta_rule")(q, k, v, beta),
        lambda: _fla("ops.delta_rule.fused_recurrent_delta_rule")(q, k, v, beta),
        lambda: _fla("ops.gated_delta_rule.chunk_gated_delta_rule")(q, k, v, g, beta),
        lambda: _fla("ops.gated_delta_rule.fused_recurrent_gated_delta_rule")(q, k, v, g, beta),
        lambda: _fla("ops.kda.chunk_kda")(q, k, v, _gate(2, 130, 2, 64), beta),
        lambda: _fla("ops.kda.fused_recurrent_kda")(q, k, v, _gate(2, 130, 2, 64), beta),
        lambda: _fla("ops.comba.chunk_comba")(q, k, v, k * 1, g, beta),
    )


def fla__generalized_delta() -> None:
    q, k, v, a, b = _heads(5)
    _each(
        lambda: _fla("ops.generalized_delta_rule.chunk_dplr_delta_rule")(q, k, v, a, b, _gate(2, 130, 2, 64)),
        lambda: _fla("ops.generalized_delta_rule.chunk_iplr_delta_rule")(q, k, v, a, b),
        lambda: _fla("ops.rwkv7.fused_recurrent_rwkv7")(q, _gate(2, 130, 2, 64), k, v, a, b),
        lambda: _fla("ops.rwkv6.chunk_rwkv6")(q, k, v, _gate(2, 130, 2, 64), _real(2, 64)),
        lambda: _fla("ops.rwkv6.fused_recurrent_rwkv6")(q, k, v, _gate(2, 130, 2, 64), _real(2, 64)),
        lambda: _fla("ops.rwkv4.fused_recurrent_rwkv4")(
            _real(64, dtype=f32),
            _real(64, dtype=f32),
            _real(2, 130, 64, dtype=f32),
            _real(2, 130, 64, dtype=f32),
            _real(2, 3, 1, 64, dtype=f32),
        ),
    )


def fla__attention() -> None:
    q, k, v = _heads(3)
    g = _gate(2, 130, 2)
    _each(
        lambda: _fla("ops.attn.parallel_attn")(q, k, v),
        lambda: _fla("ops.attn.parallel_attn")(q, k, v, g=g),
        lambda: _fla("ops.forgetting_attn.parallel_forgetting_attn")(q, k, v, g),
        lambda: _fla("ops.stickbreaking_attn.parallel_stickbreaking_attn")(q, k, v, 0.125),
        lambda: _fla("ops.path_attn.parallel_path_attn")(
            q, k, v, _real(2, 130, 2, 64), torch.rand(2, 130, 2).to(bf16), g
        ),
        lambda: _fla("ops.deltaformer.deltaformer_attn")(q, k, v, torch.rand(2, 130, 2).to(bf16)),
    )


def fla__sparse_attention() -> None:
    q = _real(1, 256, 32, 64)
    k, v = _real(1, 256, 2, 64), _real(1, 256, 2, 64)
    gates = [torch.rand(1, 256, 32).to(bf16).requires_grad_() for _ in range(3)]
    blocks = _whole(1, 256, 2, 4, high=4)
    _each(
        lambda: _fla("ops.nsa.parallel_nsa")(
            q, k, v, gates[0], gates[1], gates[2], blocks, 4, block_size=64, window_size=0
        ),
        lambda: _fla("ops.nsa.parallel_nsa")(q, k, v, None, gates[1], None, blocks, 4, block_size=64),
        lambda: _fla("ops.moba.parallel_moba")(q[:, :, :2], k, v, 64, 2),
    )


def fla__slots() -> None:
    q, k, v = _heads(3)
    s, g = _real(2, 130, 2, 32), _gate(2, 130, 2, 32)
    _each(
        lambda: _fla("ops.gsa.chunk_gsa")(q, k, v, s, g),
        lambda: _fla("ops.gsa.fused_recurrent_gsa")(q, k, v, s, g),
        lambda: _fla("ops.abc.chunk_abc")(q, k, v, s),
        lambda: _fla("ops.hgrn.chunk_hgrn")(_real(2, 130, 256), _gate(2, 130, 256)),
        lambda: _fla("ops.hgrn.fused_recurrent_hgrn")(_real(2, 130, 256), _gate(2, 130, 256)),
        lambda: _fla("ops.lightnet.chunk_lightnet")(q, k, v, _gate(2, 130, 2, 64)),
    )


def fla__test_time_training() -> None:
    q, k, v = _heads(3)
    _each(
        lambda: _fla("ops.ttt.chunk_ttt_linear")(
            q, k, v, _real(2, 64), _real(2, 64), torch.rand(2, 130, 2, 1).to(bf16)
        ),
        lambda: _fla("ops.ttt.fused_chunk_ttt_linear")(
            q, k, v, _real(2, 64), _real(2, 64), torch.rand(2, 130, 2, 1).to(bf16)
        ),
        lambda: _fla("ops.mesa_net.chunk_mesa_net")(
            q, k, v, _gate(2, 130, 2), torch.rand(2, 130, 2).to(bf16), torch.rand(2, 64).add(0.5)
        ),
        lambda: _fla("ops.log_linear_attn.chunk_log_linear_attn")(
            q, k, v, _gate(2, 130, 2), torch.rand(2, 130, 2, 9)
        ),
    )


def fla__utilities() -> None:
    x = _real(2, 256, 2, 64, dtype=f32, grad=False)
    _each(
        lambda: _fla("ops.utils.chunk_local_cumsum")(x, 64),
        lambda: _fla("ops.utils.chunk_local_cumsum")(x[..., 0], 64),
        lambda: _fla("ops.utils.chunk_global_cumsum")(x),
        lambda: _fla("ops.utils.chunk_global_cumsum")(x[..., 0]),
        lambda: _fla("ops.utils.softmax_fwd")(x[0, 0]),
        lambda: _fla("ops.utils.logsumexp_fwd")(x),
        lambda: _fla("ops.utils.mean_pooling")(_real(2, 256, 2, 64), 64),
        lambda: _fla("ops.utils.solve_tril")(_real(2, 256, 2, 64, dtype=f32, grad=False)),
        lambda: _fla("ops.utils.matmul")(_real(100, 200), _real(200, 300)),
        lambda: _fla("ops.utils.pack_sequence")(
            _real(4, 64, 32), torch.tensor([0, 64, 100, 130, 200], dtype=i64), padding_side="left"
        ),
    )


def fla__modules() -> None:
    rows = _real(64, 1000)
    w, b = _real(1000), _real(1000)
    _each(
        lambda: _fla("modules.norm.l2norm.l2norm")(_real(2, 130, 2, 64)),
        lambda: _fla("modules.norm.layernorm.layer_norm")(rows, w, b),
        lambda: _fla("modules.norm.layernorm.rms_norm")(rows, w, None, residual=rows * 1),
        lambda: _fla("modules.norm.layernorm.group_norm")(
            _real(64, 512), _real(512), _real(512), num_groups=4
        ),
        lambda: _fla("modules.norm.fused_norm_gate.rms_norm_gated")(rows, rows * 1, w, None),
        lambda: _fla("modules.activations.swish")(rows * 1),
        lambda: _fla("modules.activations.swiglu")(rows * 1, rows * 1),
        lambda: _fla("modules.activations.swiglu_linear")(rows * 1, rows * 1, _real(256, 1000), None),
        lambda: _fla("modules.activations.logsigmoid")(rows * 1),
        lambda: _fla("modules.activations.sqrelu")(rows * 1),
        lambda: _fla("modules.activations.fast_gelu_impl")(rows * 1),
        lambda: _fla("modules.rotary.ops.rotary_embedding_fwdbwd")(
            _real(2, 130, 2, 64), torch.randn(130, 32), torch.randn(130, 32)
        ),
    )


def fla__convolution_and_losses() -> None:
    _each(
        lambda: _fla("modules.causal_conv1d.causal_conv1d")(
            _real(2, 130, 256), _real(256, 4), _real(256), activation="silu"
        )[0],
        lambda: _fla("modules.token_shift.token_shift")(_real(2, 130, 256)),
        lambda: _fla("modules.fused_cross_entropy.ops.cross_entropy_loss")(
            _real(64, 32_000) * 1, _whole(64, high=32_000)
        )[0],
        lambda: _fla("modules.fused_linear_cross_entropy.ops.fused_linear_cross_entropy_loss")(
            _real(64, 256) * 1, _whole(64, high=4000), _real(4000, 256)
        ),
        lambda: _fla("modules.fused_kl_div.ops.fused_kl_div_loss")(
            _real(64, 256) * 1, _real(64, 256), _real(4000, 256), _real(4000, 256)
        ),
        lambda: _fla("modules.grpo.ops.fused_grpo_loss")(
            _real(2, 33, 8000) * 1,
            _real(2, 32, dtype=f32, grad=False),
            _whole(2, 32, high=8000),
            torch.randn(2),
            0.1,
            0.9,
        ),
    )


# ---- packages of which single files are loaded, what they import beside being put aside


class _Nothing:
    """Stands for what a file imports and a kernel launch does not need: false, empty, callable."""

    def __init__(self, name: str = "nothing") -> None:
        self.__name__ = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__call__",):
            raise AttributeError(name)
        if name == "fp8_dtype":
            return lambda: torch.float8_e4m3fn
        if name == "is_fp8_fnuz":
            return lambda: False
        if name in ("is_cuda", "is_cuda_alike", "is_nvidia"):
            return lambda: True
        return _Nothing(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        is_decorator = (
            len(args) == 1 and not kwargs and callable(args[0]) and not isinstance(args[0], _Nothing)
        )
        return args[0] if is_decorator else _Nothing(self.__name__)

    def __enter__(self) -> "_Nothing":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __rmul__(self, other: Any) -> Any:
        return other

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Any:
        return iter(())

    def __eq__(self, other: object) -> bool:
        return False

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__
    __hash__ = object.__hash__

    def __mro_entries__(self, bases: Any) -> Any:
        return ()

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __getitem__(self, key: Any) -> Any:
        return _Nothing()


class _PartialPackage(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Find the named modules of a package as they are; all others of it are empty."""

    def __init__(self, package: str, real: tuple[str, ...], given: dict[str, Any]) -> None:
        self._package = package
        self._real = real
        self._given = given

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] != self._package or name.startswith(self._real):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        given = self._given.get(spec.name, {})

        class Partial(types.ModuleType):
            def __getattr__(self, name: str) -> Any:
                if name.startswith("__"):
                    raise AttributeError(name)
                return given[name] if name in given else _Nothing(name)

        module = Partial(spec.name)
        module.__path__ = [str(Path(os.environ["TRITON_CORPUS_SOURCES"], *spec.name.split(".")))]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


_ABSENT = ("pandas", "unsloth_zoo", "pynvml", "bitsandbytes", "peft", "trl", "pydantic", "zmq")


def _put_aside_absent() -> None:
    """Let imports of packages that are not installed succeed."""
    for package in _ABSENT:
        if importlib.util.find_spec(package) is None:
            sys.meta_path.append(_PartialPackage(package, ("-",), {}))


def _load_alone(module: str, *more: str) -> Any:
    """Import one module of a large package, and `more` that it needs; the rest is `_Nothing`."""
    import triton
    import triton.language as tl

    package = module.split(".")[0]
    real_triton = {
        "triton": triton,
        "tl": tl,
        "HAS_TRITON": True,
        "LOG2E": 1.4426950408889634,
        "LOGE2": 0.6931471805599453,
        "tldevice": importlib.import_module("triton.language.extra.libdevice"),
    }
    given = {f"{package}.triton_utils": real_triton}
    finder = _PartialPackage(package, (module, *more), given)
    sys.meta_path.insert(0, finder)
    _put_aside_absent()
    return importlib.import_module(module)


def _launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    kernel[grid](*arguments, **options)


# ---- unsloth


def unsloth__grouped_gemm() -> None:
    module = "unsloth.kernels.moe.grouped_gemm"
    interface = _load_alone(f"{module}.interface", module)
    tuning = _load(f"{module}.kernels.tuning")
    experts, hidden, inner, tokens = 8, 256, 512, 256
    x, w = _real(tokens, hidden), _real(experts, inner, hidden)
    sizes = torch.full((experts,), tokens // experts, dtype=i32)
    order = torch.randperm(tokens).to(i32)

    def run(**tma: bool) -> Any:
        forward = {k: v for k, v in tma.items() if "dO" not in k}
        return interface.grouped_gemm(
            x,
            w,
            sizes,
            1,
            order,
            permute_x=not tma,
            kernel_config_fwd=tuning.KernelConfigForward(
                BLOCK_SIZE_M=64, BLOCK_SIZE_N=64, BLOCK_SIZE_K=32, **forward
            ),
            kernel_config_bwd_dX=tuning.KernelConfigBackward_dX(
                BLOCK_SIZE_M=64, BLOCK_SIZE_N=64, BLOCK_SIZE_K=32
            ),
            kernel_config_bwd_dW=tuning.KernelConfigBackward_dW(
                BLOCK_SIZE_M=64, BLOCK_SIZE_N=64, BLOCK_SIZE_K=32
            ),
        )

    _each(run, lambda: run(use_tma_load_w=True, use_tma_load_x=True, use_tma_store=True))


def _unsloth(module: str) -> Any:
    return _load_alone(f"unsloth.kernels.{module}", "unsloth.kernels.utils", "unsloth.kernels.triton_launch")


def unsloth__fp8() -> None:
    fp8 = _unsloth("fp8")
    x = _real(64, 512, grad=False)
    quantized = torch.zeros(512, 512, dtype=torch.float8_e4m3fn)
    _each(
        lambda: fp8.weight_dequant_block(quantized, torch.ones(4, 4)),
        lambda: fp8.act_quant(x),
        lambda: fp8.w8a8_block_fp8_matmul_triton(
            torch.zeros(64, 512, dtype=torch.float8_e4m3fn),
            quantized,
            torch.ones(64, 4),
            torch.ones(4, 4),
            [128, 128],
        ),
    )


# ---- vLLM, with the copy of triton_kernels that it brings


def vllm__attention() -> None:
    ops = "vllm.v1.attention.ops"
    helpers = (f"{ops}.triton_attention_helpers", "vllm.v1.kv_cache_interface")
    prefill = _load_alone(f"{ops}.triton_prefill_attention", *helpers)
    decode = _load_alone(f"{ops}.triton_decode_attention", *helpers)
    merge = _load_alone(f"{ops}.triton_merge_attn_states", *helpers)
    tokens, heads, kv_heads, width = 300, 8, 2, 64
    q, k, v = _real(tokens, heads, width), _real(tokens, kv_heads, width), _real(tokens, kv_heads, width)
    starts, lengths = torch.tensor([0, 100], dtype=i32), torch.tensor([100, 200], dtype=i32)
    pages = _whole(4, 8, high=16, dtype=i32)
    cache_k, cache_v = _real(16, 16, kv_heads, width), _real(16, 16, kv_heads, width)
    partial = torch.zeros(4, heads, 4, width + 1)
    lse = torch.zeros(4, heads)

    def run_decode(n_kv_heads: int) -> None:
        caches = (_real(16, 16, n_kv_heads, width, grad=False) for _ in range(2))
        decode.decode_attention_fwd(
            _real(4, heads, width, grad=False),
            *caches,
            torch.zeros(4, heads, width, dtype=bf16),
            lse,
            pages,
            torch.full((4,), 100, dtype=i32),
            partial,
            4,
            0.125,
            16,
        )

    _each(
        lambda: prefill.context_attention_fwd(
            q.detach(), k.detach(), v.detach(), torch.zeros_like(q), starts, lengths, 200
        ),
        lambda: run_decode(kv_heads),
        lambda: run_decode(heads),
        lambda: merge.merge_attn_states(
            torch.zeros(tokens, heads, width, dtype=bf16),
            q.detach(),
            torch.zeros(heads, tokens),
            q.detach(),
            torch.zeros(heads, tokens),
        ),
    )
    del cache_k, cache_v


def vllm__unified_attention() -> None:
    ops = "vllm.v1.attention.ops"
    unified = _load_alone(
        f"{ops}.triton_unified_attention", f"{ops}.triton_attention_helpers", "vllm.v1.kv_cache_interface"
    )
    heads, kv_heads, width = 8, 2, 64
    cache_k, cache_v = (_real(16, 16, kv_heads, width, grad=False) for _ in range(2))
    pages = _whole(2, 8, high=16, dtype=i32)

    def run(length: int, **more: Any) -> None:
        n = 2 * length
        unified.unified_attention(
            _real(n, heads, width, grad=False),
            cache_k,
            cache_v,
            torch.zeros(n, heads, width, dtype=bf16),
            torch.tensor([0, length, n], dtype=i32),
            length,
            torch.full((2,), 120, dtype=i32),
            120,
            0.125,
            True,
            (-1, -1),
            pages,
            0.0,
            None,
            None,
            None,
            **more,
        )

    segments = {
        "seq_threshold_3D": 8,
        "num_par_softmax_segments": 16,
        "softmax_segm_output": torch.zeros(2, heads, 16, width),
        "softmax_segm_max": torch.zeros(2, heads, 16),
        "softmax_segm_expsum": torch.zeros(2, heads, 16),
    }
    _each(lambda: run(60), lambda: run(1, **segments))


def vllm__moe() -> None:
    import triton.language as tl

    moe = _load_alone("vllm.model_executor.layers.fused_moe.fused_moe")
    tokens, experts, hidden, inner, top = 128, 8, 256, 512, 2
    config = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8}

    def run(fp8: bool) -> None:
        dtype = torch.float8_e4m3fn if fp8 else bf16
        scales = (torch.ones(tokens, hidden // 128), torch.ones(experts, inner // 128, hidden // 128))
        moe.invoke_fused_moe_triton_kernel(
            torch.zeros(tokens, hidden, dtype=dtype),
            torch.zeros(experts, inner, hidden, dtype=dtype),
            torch.zeros(tokens, top, inner, dtype=bf16),
            *(scales if fp8 else (None, None)),
            torch.ones(tokens, top),
            _whole(512, high=tokens * top, dtype=i32),
            _whole(8, high=experts, dtype=i32),
            torch.tensor([512], dtype=i32),
            True,
            top,
            config,
            tl.bfloat16,
            fp8,
            False,
            False,
            False,
            False,
            [128, 128] if fp8 else None,
        )

    _each(lambda: run(False), lambda: run(True))


def vllm__quantization() -> None:
    layers = "vllm.model_executor.layers.quantization"
    int8 = _load_alone(f"{layers}.utils.int8_utils")
    awq = _load_alone(f"{layers}.awq_triton")
    x = _real(64, 1024, grad=False)
    packed = _whole(1024, 64, high=2**31 - 1, dtype=i32)
    scales, zeros = _real(8, 512, dtype=half, grad=False), _whole(8, 64, high=2**31 - 1, dtype=i32)
    _each(
        lambda: int8.per_token_quant_int8(x),
        lambda: int8.per_token_group_quant_int8(x, 128),
        lambda: awq.awq_dequantize_triton(packed, scales, zeros),
        lambda: awq.awq_gemm_triton(x.half(), packed, scales, zeros, 4),
    )


def vllm__block_fp8() -> None:
    fp8 = _load_alone("vllm.model_executor.layers.quantization.utils.fp8_utils")
    a = torch.zeros(64, 512, dtype=torch.float8_e4m3fn)
    b = torch.zeros(512, 512, dtype=torch.float8_e4m3fn)
    grid = (8, 1)
    _launch(
        fp8._w8a8_triton_block_scaled_mm,
        (grid[0],),
        a,
        b,
        torch.zeros(64, 512, dtype=bf16),
        torch.ones(64, 4),
        torch.ones(4, 4),
        64,
        512,
        512,
        128,
        128,
        512,
        1,
        1,
        512,
        512,
        1,
        4,
        1,
        1,
        4,
        BLOCK_SIZE_M=64,
        BLOCK_SIZE_N=128,
        BLOCK_SIZE_K=128,
        GROUP_SIZE_M=8,
    )


def vllm__state_space() -> None:
    ops = "vllm.model_executor.layers.mamba.ops"
    combined = _load_alone(f"{ops}.ssd_combined", ops)
    update = _load(f"{ops}.mamba_ssm")
    conv = _load_alone(f"{ops}.causal_conv1d", ops)
    length, heads, width, groups, state = 256, 4, 64, 1, 64
    x = _real(length, heads, width, grad=False)
    b, c = _real(length, groups, state, grad=False), _real(length, groups, state, grad=False)
    chunks = torch.tensor([0, 64, 128, 192, 256], dtype=i32)
    _each(
        lambda: combined.mamba_chunk_scan_combined_varlen(
            x,
            _real(length, heads, grad=False),
            -torch.rand(heads),
            b,
            c,
            64,
            torch.tensor([0, 256], dtype=i32),
            chunks,
            torch.tensor([3], dtype=i32),
            torch.zeros(4, dtype=i32),
            torch.zeros_like(x),
            D=torch.ones(heads),
            dt_softplus=True,
            state_dtype=f32,
        ),
        lambda: update.selective_state_update(
            torch.zeros(4, heads, width, state),
            _real(4, heads, width, grad=False),
            _real(4, heads, width, grad=False),
            -torch.rand(heads, width, state),
            _real(4, groups, state, grad=False),
            _real(4, groups, state, grad=False),
            torch.ones(heads, width),
            torch.ones(heads, width),
            out=torch.zeros(4, heads, width, dtype=bf16),
        ),
        lambda: conv.causal_conv1d_update(
            _real(4, 256, grad=False),
            torch.zeros(4, 256, 3, dtype=bf16),
            _real(256, 4, grad=False),
            None,
            "silu",
        ),
    )


def _triton_kernels() -> None:
    """Make vLLM's copy importable under its own name."""
    place = Path(os.environ["TRITON_CORPUS_SOURCES"], "vllm", "third_party", "triton_kernels")
    package = types.ModuleType("triton_kernels")
    package.__path__ = [str(place)]
    sys.modules["triton_kernels"] = package


def triton_kernels__matmul() -> None:
    _triton_kernels()
    matmul, routing = _load("triton_kernels.matmul_ogs"), _load("triton_kernels.routing")
    x, w = _real(512, 512, grad=False), _real(512, 1024, grad=False)
    logits = torch.randn(512, 8).half()
    flags = _load("triton_kernels.matmul_ogs_details.opt_flags")

    def grouped() -> None:
        data, gather, scatter = routing.routing(logits, 2)
        matmul.matmul_ogs(x, _real(8, 512, 512, grad=False), torch.zeros(8, 512), data, gather_indx=gather)
        matmul.matmul_ogs(
            _real(1024, 512, grad=False), _real(8, 512, 512, grad=False), None, data, scatter_indx=scatter
        )

    def persistent() -> None:
        flags.update_opt_flags_constraints({"is_persistent": True})
        matmul.matmul_ogs(x, w, None)

    def split() -> None:
        flags.update_opt_flags_constraints({"is_persistent": False, "split_k": 4})
        matmul.matmul_ogs(x, w, None)

    _each(lambda: matmul.matmul_ogs(x, w, torch.zeros(1024)), grouped, persistent, split)


def triton_kernels__more() -> None:
    _triton_kernels()
    topk, swiglu, mxfp = (_load(f"triton_kernels.{m}") for m in ("topk", "swiglu", "numerics_details.mxfp"))
    _each(
        lambda: topk.topk(torch.randn(512, 64).half(), 4),
        lambda: swiglu.swiglu(_real(128, 512, grad=False), 1.0, swiglu.PrecisionConfig(limit=7.0)),
        lambda: mxfp.downcast_to_mxfp(_real(256, 512, grad=False), torch.float8_e4m3fn, axis=1),
        lambda: mxfp.downcast_to_mxfp(_real(256, 512, grad=False), torch.uint8, axis=1),
        lambda: mxfp.upcast_from_mxfp(
            torch.zeros(256, 256, dtype=torch.uint8), torch.zeros(256, 16, dtype=torch.uint8), bf16, axis=1
        ),
    )


# ---- mamba-ssm


def mamba__state_space() -> None:
    ops = "mamba_ssm.ops.triton"
    combined, update = (
        _load_alone(f"{ops}.ssd_combined", ops, "mamba_ssm.utils"),
        _load(f"{ops}.selective_state_update"),
    )
    norm, gated, activations = (
        _load(f"{ops}.{m}") for m in ("layer_norm", "layernorm_gated", "k_activations")
    )
    x, dt = _real(2, 256, 4, 64), _real(2, 256, 4)
    b, c = _real(2, 256, 1, 64), _real(2, 256, 1, 64)
    rows, w = _real(2, 128, 512), _real(512, dtype=f32)
    _each(
        lambda: combined.mamba_chunk_scan_combined(
            x,
            dt,
            -torch.rand(4).requires_grad_(),
            b,
            c,
            64,
            D=torch.ones(4).requires_grad_(),
            z=_real(2, 256, 4, 64),
            dt_bias=torch.zeros(4).requires_grad_(),
            dt_softplus=True,
        ),
        lambda: update.selective_state_update(
            torch.zeros(4, 4, 64, 64),
            _real(4, 4, 64),
            _real(4, 4, 64),
            -torch.rand(4, 64, 64),
            _real(4, 1, 64),
            _real(4, 1, 64),
            torch.ones(4, 64),
        ),
        lambda: norm.layer_norm_fn(
            rows, w, _real(512, dtype=f32), residual=rows * 1, prenorm=True, dropout_p=0.1
        ),
        lambda: norm.rms_norm_fn(rows, w, None),
        lambda: gated.rmsnorm_fn(rows, w, None, z=rows * 1, group_size=256),
        lambda: activations.SwiGLU.apply(_real(2, 128, 1024)),
    )


# ---- cut-cross-entropy, grouped_mm, conch, jvp


def cut_cross_entropy__loss() -> None:
    loss = _load("cut_cross_entropy").linear_cross_entropy
    _each(lambda: loss(_real(256, 256), _real(4000, 256), _whole(256, high=4000), impl="cce"))


def grouped_mm__products() -> None:
    grouped = _load("grouped_mm_bf16").grouped_mm
    ends = torch.tensor([64, 100, 200, 256], dtype=i32)
    _each(
        lambda: grouped(_real(256, 128), _real(4, 128, 192), ends),
        lambda: grouped(_real(4, 64, 128), _real(4, 128, 192)),
        lambda: grouped(_real(64, 256), _real(256, 192), ends),
        lambda: grouped(_real(4, 64, 128), _real(128, 256), ends),
    )


def jvp__attention() -> None:
    attention = _load("jvp_flash_attention.jvp_attention").JVPAttn
    q, k, v = (_real(1, 2, 256, 64, dtype=half) for _ in range(3))
    _each(
        lambda: attention.fwd(q, k, v, q * 1, k * 1, v * 1, None, 0.0, True, 0.125, False, False),
        lambda: attention.apply(q, k, v, None, None, None, None, 0.0, True, 0.125, True, True),
        lambda: attention.apply(q, k, v, None, None, None, None, 0.1, False, 0.125, False, False),
    )


def conch__all() -> None:
    x, width = _real(64, 1024, grad=False), 64
    cache_k, cache_v = (_real(16, 2, 16, width, dtype=half, grad=False) for _ in range(2))
    pages, lengths = _whole(4, 8, high=16, dtype=i32), torch.full((4,), 100, dtype=i32)

    def op(name: str) -> Any:
        module, function = name.rsplit(".", 1)
        return getattr(_load(f"conch.ops.{module}"), function)

    _each(
        lambda: op("activation.silu_and_mul.silu_and_mul")(x),
        lambda: op("activation.gelu_tanh_and_mul.gelu_tanh_and_mul")(x),
        lambda: op("normalization.rms_norm.rms_norm")(x, _real(1024, grad=False), 1e-6),
        lambda: op("normalization.rms_norm.fused_add_rms_norm")(x, x * 1, _real(1024, grad=False), 1e-6),
        lambda: op("attention.paged_attention.paged_attention")(
            _real(4, 8, width, dtype=half, grad=False), cache_k, cache_v, pages, lengths
        ),
        lambda: op("attention.varlen_attention.varlen_attention")(
            _real(200, 8, width, dtype=half, grad=False),
            cache_k,
            cache_v,
            torch.tensor([0, 50, 100, 150, 200], dtype=i32),
            50,
            lengths,
            100,
            pages,
            causal=True,
        ),
        lambda: op("quantization.int8.scaled_int8_quant")(x, torch.ones(1)),
        lambda: op("quantization.fp8.scaled_fp8_quant")(x, torch.ones(1)),
        lambda: op("quantization.gemm.scaled_gemm")(
            torch.zeros(64, 256, dtype=torch.int8),
            torch.zeros(256, 128, dtype=torch.int8),
            torch.ones(1),
            torch.ones(1),
            half,
        ),
        lambda: op("vision.nms.nms")(torch.rand(200, 4), torch.rand(200), 0.5),
        lambda: op("vision.bev_pool.bev_pool")(
            torch.rand(1000, 64),
            torch.zeros(1000, 4, dtype=i32),
            torch.arange(0, 1000, 10, dtype=i32),
            torch.full((100,), 10, dtype=i32),
            1,
            1,
            32,
            32,
        ),
    )


# ---- torchao, bitsandbytes, xformers


def torchao__blockwise() -> None:
    kernels = _load("torchao.kernel.blockwise_quantization")
    training = _load("torchao.prototype.blockwise_fp8_training.kernels")
    integers = _load("torchao.kernel.intmm_triton")
    x = _real(256, 512, grad=False)
    q = torch.zeros(256, 512, dtype=torch.float8_e4m3fn)
    configuration = (
        integers.int8_mm_kernel_configs[0] if hasattr(integers, "int8_mm_kernel_configs") else None
    )
    _each(
        lambda: kernels.fp8_blockwise_act_quant(x, 128),
        lambda: kernels.fp8_blockwise_weight_quant(x, 128),
        lambda: kernels.fp8_blockwise_weight_dequant(q, torch.ones(2, 4), 128),
        lambda: kernels.blockwise_fp8_gemm(
            q, torch.ones(256, 4), torch.zeros(512, 512, dtype=torch.float8_e4m3fn), torch.ones(4, 4), 128
        ),
        lambda: training.triton_fp8_blockwise_act_quant_lhs(x),
        lambda: training.triton_fp8_blockwise_act_quant_rhs(x),
        lambda: training.triton_fp8_blockwise_act_quant_transposed_lhs(x),
        lambda: training.triton_fp8_blockwise_weight_quant_rhs(x),
        lambda: training.triton_fp8_blockwise_weight_quant_transposed_rhs(x),
        lambda: integers.int_matmul_kernel(
            torch.zeros(256, 256, dtype=torch.int8),
            torch.zeros(256, 256, dtype=torch.int8),
            torch.zeros(256, 256, dtype=i32),
            configuration,
        ),
    )


def bitsandbytes__quantization() -> None:
    four, eight = (
        _load_alone(f"bitsandbytes.backends.triton.kernels_{m}", "bitsandbytes.backends.triton.kernels")
        for m in ("4bit", "8bit_quant")
    )
    optim = _load_alone("bitsandbytes.backends.triton.kernels_optim", "bitsandbytes.backends.triton.kernels")
    x = _real(64 * 1024, dtype=half, grad=False)
    packed, absmax = torch.zeros(32 * 1024, 1, dtype=torch.uint8), torch.ones(1024)
    parameters = [torch.zeros(4096) for _ in range(4)]

    _each(
        *(
            lambda kind=kind: four.quantize_4bit_blockwise_triton(
                x, 64, kind, 1024, absmax, 64 * 1024, packed
            )
            for kind in ("nf4", "fp4")
        ),
        *(
            lambda kind=kind: four.dequantize_4bit_impl(packed, 64, absmax, kind, half, x)
            for kind in ("nf4", "fp4")
        ),
        lambda: eight.dequant_8bit_blockwise(
            torch.zeros(4096, dtype=torch.uint8), torch.ones(16), torch.linspace(-1, 1, 256), 256, dtype=half
        ),
        lambda: eight.quantize_blockwise_triton(x[:4096], torch.linspace(-1, 1, 256), 256),
        lambda: optim.optimizer_update_32bit_impl(
            "adam",
            parameters[0],
            parameters[1],
            parameters[2],
            parameters[3],
            None,
            0.0,
            0.0,
            0.9,
            0.999,
            0.0,
            0.0,
            1e-8,
            0.01,
            1,
            1e-3,
            1.0,
            False,
        ),
    )


def xformers__all() -> None:
    triton_ops = "xformers.ops._triton"
    norms = _load_alone(f"{triton_ops}.rmsnorm_kernels", "xformers.ops")
    add, select = _load(f"{triton_ops}.k_scaled_index_add"), _load(f"{triton_ops}.k_index_select_cat")
    tiled = _load(f"{triton_ops}.tiled_matmul_kernels")
    x = _real(64, 10, 256, dtype=half, grad=False)
    index = torch.randperm(64)[:32]
    blocks = [[_real(128, 128, dtype=half, grad=False)]]
    _each(
        lambda: norms._rms_norm_forward(_real(64, 1024, grad=False), _real(1024, grad=False), 1e-6),
        lambda: norms._rms_norm_add_forward(
            _real(64, 1024, grad=False), _real(64, 1024, grad=False), _real(1024, grad=False), 1e-6
        ),
        lambda: add.scaled_index_add_fwd(x, index, _real(32, 10, 256, dtype=half, grad=False), None, 1.0),
        lambda: select.index_select_cat_fwd(
            torch.zeros(32, 256, dtype=half), _real(64, 256, dtype=half, grad=False), index
        ),
        lambda: tiled._launch_triton_matmul(blocks, blocks, blocks, [128], [128], [128]),
    )
