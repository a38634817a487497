"""A transformer's sizes for training and whole-model inference, read from a Hugging Face configuration.

Architectures are told by `model_type`. Names differ between them (`n_embd`, `hidden_size`, `d_model`); each
has a table of its own.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from analyzer.files import read_file
from analyzer.text.errors import InputError, UsageError
from analyzer.text.json_spans import find_json_spans, split_decode_error
from analyzer.text.source import locate

_MAX_FILE_BYTES = 4 << 20
_FILE_HINT = "name the config.json that lies beside the model's weights"
_MOST = 1 << 22  # of any size: larger ones are typing errors, and would make numbers nobody can use
_MOST_LAYERS = 1 << 10


class Architecture(StrEnum):
    """An architecture whose graph is known; the value is Hugging Face's `model_type`."""

    BERT = "bert"
    GPT2 = "gpt2"
    OPT = "opt"
    SWITCH = "switch_transformers"
    LLAMA = "llama"


class ModelDescription(Struct, frozen=True):
    """Sizes of a transformer."""

    architecture: Architecture
    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocab: int
    positions: int
    head_dim: int
    kv_heads: int
    activation: str = "gelu"
    dropout: float = 0.0  # of embeddings and of what is added to the residual
    attention_dropout: float = 0.0
    is_tied: bool = True  # the output projection shares the embedding's weights
    has_qkv_bias: bool = False  # of Llama's relatives
    decoder_layers: int = 0  # of encoder-decoder models
    experts: int = 0
    expert_capacity: int = 0  # tokens per sequence and expert
    sparse_step: int = 0  # every so many layers have experts
    position_buckets: int = 0


_Names = Mapping[str, tuple[str, ...]]
_COMMON: _Names = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "num_heads"),
    "vocab": ("padded_vocab_size", "vocab_size"),
}
_RELATIVES_OF_LLAMA = {"llama": False, "mistral": False, "qwen2": True}
_KNOWN = sorted({each.value for each in Architecture} | set(_RELATIVES_OF_LLAMA))


class _KeyProblem(Exception):
    """A key of a configuration that cannot be."""

    def __init__(self, key: str, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.key, self.reason, self.hint = key, reason, hint


def read_model_description(path: Path) -> ModelDescription:
    """Return the sizes in a config.json. Raises InputError with the place of the fault."""
    try:
        data = read_file(path, _MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: {reason}", hint=_FILE_HINT) from None
    try:
        config = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        reason, offset = split_decode_error(str(error))
        place = locate(str(path), data, min(offset or 0, max(len(data) - 1, 0)))
        raise InputError(f"not JSON: {reason}", location=place, hint=_FILE_HINT) from None
    if not isinstance(config, dict):
        raise InputError(f"{path}: a configuration is a JSON object", hint=_FILE_HINT)
    try:
        return _describe(config)
    except _KeyProblem as problem:
        span = find_json_spans(data).find_value((problem.key,) if problem.key in config else ())
        place = locate(str(path), data, span.offset, length=min(span.length, 60) if problem.key else 1)
        raise InputError(problem.reason, location=place, hint=problem.hint or _FILE_HINT) from None


def describe_model(config: Mapping[str, Any]) -> ModelDescription:
    """Return the sizes that a decoded configuration states. Raises UsageError as `read_model_description`."""
    try:
        return _describe(config)
    except _KeyProblem as problem:
        raise UsageError(problem.reason, hint=problem.hint or _FILE_HINT) from None


def _describe(config: Mapping[str, Any]) -> ModelDescription:
    """Return the sizes, or raise _KeyProblem for an unknown architecture and for sizes that cannot be."""
    kind = config.get("model_type")
    if isinstance(kind, str) and kind in _RELATIVES_OF_LLAMA:
        return _describe_llama(config, has_qkv_bias=_RELATIVES_OF_LLAMA[kind])
    readers = {
        Architecture.BERT: _describe_bert,
        Architecture.GPT2: _describe_gpt2,
        Architecture.OPT: _describe_opt,
        Architecture.SWITCH: _describe_switch,
    }
    if not isinstance(kind, str) or kind not in readers:
        raise _KeyProblem(
            "model_type",
            f"model_type {str(kind)[:60]!r}: no graph of this architecture is known for training",
            f"known: {', '.join(_KNOWN)}; or export the module and name it with --exported model.pt2",
        )
    return readers[Architecture(kind)](config)


def _describe_bert(config: Mapping[str, Any]) -> ModelDescription:
    sizes = _read_common(config)
    return _make(
        Architecture.BERT,
        sizes,
        intermediate=_read(config, ("intermediate_size",), 4 * sizes["hidden"]),
        positions=_read(config, ("max_position_embeddings",), 512),
        activation=_read_text(config, "hidden_act", "gelu"),
        dropout=_read_share(config, "hidden_dropout_prob", 0.1),
        attention_dropout=_read_share(config, "attention_probs_dropout_prob", 0.1),
    )


def _describe_gpt2(config: Mapping[str, Any]) -> ModelDescription:
    sizes = _read_common(config)
    return _make(
        Architecture.GPT2,
        sizes,
        intermediate=_read(config, ("n_inner",), 4 * sizes["hidden"]),
        positions=_read(config, ("n_positions",), 1024),
        activation=_read_text(config, "activation_function", "gelu_new"),
        dropout=_read_share(config, "resid_pdrop", 0.1),
        attention_dropout=_read_share(config, "attn_pdrop", 0.1),
    )


def _describe_opt(config: Mapping[str, Any]) -> ModelDescription:
    sizes = _read_common(config)
    return _make(
        Architecture.OPT,
        sizes,
        intermediate=_read(config, ("ffn_dim",), 4 * sizes["hidden"]),
        positions=_read(config, ("max_position_embeddings",), 2048),
        activation=_read_text(config, "activation_function", "relu"),
        dropout=_read_share(config, "dropout", 0.1),
        attention_dropout=_read_share(config, "attention_dropout", 0.0),
    )


def _describe_switch(config: Mapping[str, Any]) -> ModelDescription:
    sizes = _read_common(config)
    return _make(
        Architecture.SWITCH,
        sizes,
        intermediate=_read(config, ("d_ff",)),
        positions=_MOST,
        head_dim=_read(config, ("d_kv",)),
        activation=_read_text(config, "dense_act_fn", "relu"),
        dropout=_read_share(config, "dropout_rate", 0.1),
        attention_dropout=_read_share(config, "dropout_rate", 0.1),
        decoder_layers=_read(config, ("num_decoder_layers",), sizes["layers"], most=_MOST_LAYERS),
        experts=_read(config, ("num_experts",)),
        expert_capacity=_read(config, ("expert_capacity",)),
        sparse_step=_read(config, ("encoder_sparse_step",), 2),
        position_buckets=_read(config, ("relative_attention_num_buckets",), 32),
    )


def _describe_llama(config: Mapping[str, Any], *, has_qkv_bias: bool) -> ModelDescription:
    sizes = _read_common(config)
    heads = sizes["heads"]
    kv_heads = _read(config, ("num_key_value_heads",), heads)
    if heads % kv_heads:
        raise _KeyProblem(
            "num_key_value_heads",
            f"num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}",
        )
    return _make(
        Architecture.LLAMA,
        sizes,
        intermediate=_read(config, ("intermediate_size",)),
        positions=_read(config, ("max_position_embeddings",), 4096),
        head_dim=_read(config, ("head_dim",), max(sizes["hidden"] // heads, 1)),
        kv_heads=kv_heads,
        activation=_read_text(config, "hidden_act", "silu"),
        is_tied=config.get("tie_word_embeddings") is True,
        has_qkv_bias=has_qkv_bias,
    )


def _make(architecture: Architecture, sizes: Mapping[str, int], **fields: Any) -> ModelDescription:
    heads, hidden = sizes["heads"], sizes["hidden"]
    if "head_dim" not in fields:
        if hidden % heads:
            raise _KeyProblem("num_attention_heads", f"hidden size {hidden} is no multiple of {heads} heads")
        fields["head_dim"] = hidden // heads
    given: dict[str, Any] = {**sizes, "kv_heads": heads, **fields}
    return ModelDescription(architecture, **given)


def _read_common(config: Mapping[str, Any]) -> dict[str, int]:
    found = {key: _read(config, names) for key, names in _COMMON.items() if key != "layers"}
    found["layers"] = _read(config, _COMMON["layers"], most=_MOST_LAYERS)
    return found


def _read(
    config: Mapping[str, Any], names: tuple[str, ...], otherwise: int | None = None, most: int = _MOST
) -> int:
    """Return the first size given. Raises _KeyProblem where there is none or it is no count."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise _KeyProblem(name, f"{name}: a whole number from 1 to {most} is needed")
        return value
    if otherwise is None:
        raise _KeyProblem("", f"the configuration lacks {' or '.join(names)}")
    return otherwise


def _read_share(config: Mapping[str, Any], name: str, otherwise: float) -> float:
    value = config.get(name, otherwise)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
        raise _KeyProblem(name, f"{name}: a probability from 0 to 1 is needed")
    return float(value)


def _read_text(config: Mapping[str, Any], name: str, otherwise: str) -> str:
    value = config.get(name, otherwise)
    return value if isinstance(value, str) else otherwise
