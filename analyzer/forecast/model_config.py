"""Configuration of a language model, from the `config.json` that Hugging Face keeps beside its weights.

Each architecture has a reader of the keys that decide its operators: sizes, heads, experts, low-rank
attention. Keys that change no operator's size (initializers, rope scaling, routed scaling) are not read.
A model of several modalities keeps its language model in `text_config`; that part is read, and a note says
so.
"""

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from analyzer.files import read_file
from analyzer.forecast.model_quantization import QUANTIZATION_HINT, find_quantized_type
from analyzer.operators.names import DataType
from analyzer.text.errors import InputError
from analyzer.text.json_spans import ByteSpan, JsonPath, JsonSpans, find_json_spans, split_decode_error
from analyzer.text.source import Location, locate

_MAX_FILE_BYTES = 4 << 20
_MAX_NESTING = 32
_UTF8_BOM = b"\xef\xbb\xbf"
_MAX_SIZE = 1 << 22  # of a width or a vocabulary; beyond is a typing error
_MAX_COUNT = 1 << 14  # of layers, heads, experts
_LARGEST_SHOWN = 10**30  # Python refuses to print numbers of thousands of digits
_TEXT_PART = "text_config"
_MXFP4_NOTE = "experts in MXFP4 are timed as weights of 4 bits that are multiplied in 16"
_FILE_HINT = "name the config.json that lies beside the model's weights"


class ModelConfig(Struct, frozen=True):
    """What decides the operators of a decoder-only language model."""

    architecture: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int  # of queries and keys
    intermediate: int  # of dense layers
    vocab: int
    dtype: DataType = DataType.BF16  # of the products, as the weights are stored
    expert_dtype: DataType | None = None  # of the routed experts, where it is another one
    tie_word_embeddings: bool = False
    has_qk_norm: bool = False  # RMSNorm of each head's queries and keys
    norms_per_layer: int = 2  # at full width
    sliding_window: int = 0  # keys that a query sees in some layers; 0: all
    sliding_layers: int = 0  # how many layers have the window
    experts: int = 0  # routed ones; 0: no mixture of experts
    topk: int = 0
    moe_intermediate: int = 0  # of one routed expert
    shared_intermediate: int = 0  # of all shared experts together
    has_shared_gate: bool = False  # a gate scales the shared experts' output
    first_dense_layers: int = 0  # layers of a mixture model that have no experts
    q_lora_rank: int = 0  # of MLA's queries; 0: by one product
    kv_lora_rank: int = 0  # of the latent keys and values (MLA); 0: each head has its own
    qk_nope_head_dim: int = 0
    qk_rope_head_dim: int = 0
    v_head_dim: int = 0
    max_positions: int = 0  # longest context; 0: not given
    notes: tuple[str, ...] = ()  # what was read otherwise than it is written

    @property
    def dense_layers(self) -> int:
        """Layers with one feed-forward network for all tokens."""
        return self.first_dense_layers if self.experts else self.layers

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers


class _Family(StrEnum):
    LLAMA = "llama"
    QWEN3 = "qwen3"
    MIXTRAL = "mixtral"
    QWEN2_MOE = "qwen2_moe"
    QWEN3_MOE = "qwen3_moe"
    DEEPSEEK = "deepseek"
    GEMMA = "gemma"
    GEMMA2 = "gemma2"
    GEMMA3 = "gemma3"
    GLM4_MOE = "glm4_moe"
    GPT_OSS = "gpt_oss"
    LLAMA4 = "llama4"


_FAMILIES = {
    "LlamaForCausalLM": _Family.LLAMA,
    "MistralForCausalLM": _Family.LLAMA,
    "Phi3ForCausalLM": _Family.LLAMA,
    "Qwen2ForCausalLM": _Family.LLAMA,
    "Qwen3ForCausalLM": _Family.QWEN3,
    "MixtralForCausalLM": _Family.MIXTRAL,
    "Qwen2MoeForCausalLM": _Family.QWEN2_MOE,
    "Qwen3MoeForCausalLM": _Family.QWEN3_MOE,
    "DeepseekV2ForCausalLM": _Family.DEEPSEEK,
    "DeepseekV3ForCausalLM": _Family.DEEPSEEK,
    "GemmaForCausalLM": _Family.GEMMA,
    "Gemma2ForCausalLM": _Family.GEMMA2,
    "Gemma3ForCausalLM": _Family.GEMMA3,
    "Glm4MoeForCausalLM": _Family.GLM4_MOE,
    "GptOssForCausalLM": _Family.GPT_OSS,
    "Llama4ForCausalLM": _Family.LLAMA4,
}
KNOWN_ARCHITECTURES = tuple(_FAMILIES)
# `model_type`, where `architectures` is missing, as in a `text_config`.
_MODEL_TYPES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_5_vl_text": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_vl_text": "Qwen3ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_vl_moe_text": "Qwen3MoeForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
}
_DTYPES = {
    "bfloat16": DataType.BF16,
    "float16": DataType.FP16,
    "half": DataType.FP16,
    "float32": DataType.FP16,
    "float": DataType.FP16,
    "float8_e4m3fn": DataType.FP8,
}
_DEFAULT_EXPERTS_STEP = 1
# What transformers takes where a `text_config` of Gemma 3 says nothing.
_GEMMA3_DEFAULTS = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "vocab_size": 262_208,
}
_FULL_LAYERS_STEP = 4  # of Llama 4: so many layers have one that sees all keys


def read_model_config(source: str | Path | Mapping[str, Any]) -> ModelConfig:
    """Return the configuration in a file, or of its decoded contents.

    Raises InputError with the place of the fault: not JSON, not an object, a missing key, a wrong type, a
    size out of range, an unknown architecture or data type.
    """
    if isinstance(source, Mapping):
        return _ConfigReader(dict(source), "", b"").read()
    try:
        data = read_file(source, _MAX_FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{source}: {reason}", hint=_FILE_HINT) from None
    path = str(source)
    content = _decode(path, data)
    if not isinstance(content, dict):
        raise InputError(
            f"a configuration is an object, this is {_name_type(content)}",
            location=_locate_span(path, data, find_json_spans(data).find_value(()), 1),
            hint=_FILE_HINT,
        )
    return _ConfigReader(content, path, data).read()


def _decode(path: str, data: bytes) -> object:
    """Return the JSON value in a file. Raises InputError where it is none or is nested too deeply."""
    mark = len(_UTF8_BOM) if data.startswith(_UTF8_BOM) else 0
    try:
        content = msgspec.json.decode(data[mark:].decode("utf-8"))
    except UnicodeDecodeError as error:
        location = locate(path, data, error.start + mark)
        raise InputError("this is not UTF-8 text", location=location, hint=_FILE_HINT) from None
    except (msgspec.MsgspecError, RecursionError) as error:
        reason, offset = split_decode_error(str(error))
        last = max(0, len(data.rstrip()) - 1)
        place = last if offset is None else min(offset + mark, last)
        raise InputError(f"not JSON: {reason}", location=locate(path, data, place), hint=_FILE_HINT) from None
    level = [content]
    for _ in range(_MAX_NESTING):
        level = [item for value in level for item in _list_items(value)]
        if not level:
            return content
    raise InputError(f"{path}: nested more than {_MAX_NESTING} levels deep", hint=_FILE_HINT)


def _list_items(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _name_type(value: object) -> str:
    """Return a JSON type with its article."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    names = {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a number"}
    return names.get(type(value), "something else")


def _locate_span(path: str, data: bytes, span: ByteSpan, max_length: int) -> Location:
    return locate(path, data, span.offset, length=min(span.length, max_length))


class _ConfigReader:
    """Reader of one configuration, which knows the place of each key for errors."""

    __slots__ = ("_content", "_data", "_part", "_path")

    def __init__(self, content: dict[str, Any], path: str, data: bytes) -> None:
        self._content, self._path, self._data = content, path, data
        self._part: JsonPath = ()

    def read(self) -> ModelConfig:
        if self._data:
            self._check_keys(find_json_spans(self._data))
        part = self._content.get(_TEXT_PART)
        notes: tuple[str, ...] = ()
        if "hidden_size" not in self._content and isinstance(part, dict):
            outer = self._content
            self._content, self._part = {"torch_dtype": outer.get("torch_dtype"), **part}, (_TEXT_PART,)
            for key in ("quantization_config", "tie_word_embeddings"):
                if key in outer:
                    self._content.setdefault(key, outer[key])
            notes = (f"the language model in {_TEXT_PART} alone: other encoders are not forecast",)
        architecture = self._find_architecture()
        dtype, expert_dtype, dtype_notes = self._read_types()
        config = _READERS[_FAMILIES[architecture]](self, architecture)
        notes = (*notes, *config.notes, *dtype_notes)
        return replace(config, dtype=dtype, expert_dtype=expert_dtype, notes=notes)

    def _check_keys(self, spans: JsonSpans) -> None:
        if (repeated := spans.repeated_key) is not None:
            span = spans.find_key(repeated)
            raise InputError(
                f"key {repeated[-1]!r} is there twice",
                location=_locate_span(self._path, self._data, span, span.length),
                hint="leave one of them out",
            )

    def make_error(self, key: str, message: str, hint: str) -> InputError:
        """Return an error that shows a key's value, or the object that lacks it."""
        if not self._data:
            return InputError(message, hint=hint)
        spans = find_json_spans(self._data)
        for json_path in ((*self._part, key), (key,)):
            if json_path in spans.values:
                span = spans.values[json_path]
                return InputError(
                    message, location=_locate_span(self._path, self._data, span, span.length), hint=hint
                )
        span = spans.find_value(self._part)
        return InputError(message, location=_locate_span(self._path, self._data, span, 1), hint=hint)

    def _find_architecture(self) -> str:
        """Return the name of a known architecture. Raises InputError."""
        known = f"known are {', '.join(KNOWN_ARCHITECTURES)}"
        names = self._content.get("architectures")
        if names is None:
            model_type = self._content.get("model_type")
            if isinstance(model_type, str) and model_type in _MODEL_TYPES:
                return _MODEL_TYPES[model_type]
            if model_type is None:
                raise self.make_error("architectures", "no architectures and no model_type", known)
            known = f"{_name_nearest(model_type, _MODEL_TYPES)}known are {', '.join(_MODEL_TYPES)}"
            raise self.make_error("model_type", f"unknown model_type {_shorten(model_type)}", known)
        first = names[0] if isinstance(names, list) and names else names
        if not isinstance(first, str):
            raise self.make_error("architectures", "architectures is no list of names", known)
        if first not in _FAMILIES:
            known = _name_nearest(first, _FAMILIES) + known
            raise self.make_error("architectures", f"unknown architecture {_shorten(first)}", known)
        return first

    def _read_types(self) -> tuple[DataType, DataType | None, tuple[str, ...]]:
        """Return the data types of the products and of other experts, and notes.

        Raises InputError for a data type that is not known.
        """
        quantization = self._content.get("quantization_config")
        if isinstance(quantization, dict) and quantization.get("quant_method") == "mxfp4":
            return DataType.BF16, DataType.INT4_WEIGHTS, (_MXFP4_NOTE,)
        if quantization is not None:
            return self._read_quantization(quantization), None, ()
        dtype, notes = self._read_dtype()
        return dtype, None, notes

    def _read_dtype(self) -> tuple[DataType, tuple[str, ...]]:
        """Return the data type of weights that are not quantized, and notes. Raises InputError."""
        key = "torch_dtype" if self._content.get("torch_dtype") is not None else "dtype"
        name = self._content.get(key)
        if name is None:
            return DataType.BF16, ()
        known = f"known are {', '.join(_DTYPES)}"
        if not isinstance(name, str):
            raise self.make_error(key, f"{key} is {_name_type(name)}, no name of a data type", known)
        dtype = _DTYPES.get(name.removeprefix("torch."))
        if dtype is None:
            raise self.make_error(key, f"unknown data type {_shorten(name)} in {key}", known)
        is_single = name.removeprefix("torch.") in ("float32", "float")
        notes = ("weights of float32 run as float16, which serving frameworks make of them",)
        return dtype, notes if is_single else ()

    def _read_quantization(self, quantization: object) -> DataType:
        """Return the data type of quantized weights. Raises InputError."""
        key = "quantization_config"
        if not isinstance(quantization, dict) or not isinstance(quantization.get("quant_method"), str):
            raise self.make_error(key, f"{key} has no quant_method", QUANTIZATION_HINT)
        dtype = find_quantized_type(quantization)
        if dtype is None:
            method = _shorten(quantization["quant_method"])
            raise self.make_error(key, f"unknown quantization {method} in {key}", QUANTIZATION_HINT)
        return dtype

    def read_size(
        self, key: str, *, default: int | None = None, most: int = _MAX_SIZE, least: int = 1
    ) -> int:
        """Return a whole number; of a missing or null key the default. Raises InputError."""
        value = self._content.get(key)
        if value is None:
            if default is not None:
                return default
            architecture = self._find_architecture()
            raise self.make_error(key, f"no {key}", f"{architecture} needs it; {_FILE_HINT}")
        hint = f"give a whole number from {least} to {most:,}"
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.make_error(key, f"{key} is {_name_type(value)}", hint)
        if not least <= value <= most:
            raise self.make_error(key, f"{key} {_shorten(value)} is out of range", hint)
        return value

    def fill(self, defaults: Mapping[str, Any]) -> None:
        """Take values for keys that the configuration leaves out."""
        self._content = {**defaults, **self._content}

    def read_count(self, key: str, *, default: int | None = None, least: int = 1) -> int:
        """Return a number of layers, heads or experts. Raises InputError."""
        return self.read_size(key, default=default, most=_MAX_COUNT, least=least)

    def read_flag(self, key: str, *, default: bool = False) -> bool:
        """Return a truth value; of a missing or null key the default. Raises InputError."""
        value = self._content.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.make_error(key, f"{key} is {_name_type(value)}", "give true or false")
        return value

    def read_layer_list(self, key: str, layers: int) -> int:
        """Return how many layers a list of layer numbers names. Raises InputError."""
        value = self._content.get(key)
        if value is None:
            return 0
        numbers = value if isinstance(value, list) else [None]
        if not all(isinstance(number, int) and 0 <= number < layers for number in numbers):
            raise self.make_error(key, f"{key} is no list of layers", f"layers are numbers below {layers}")
        return len(set(numbers))

    def count_layer_types(self, name: str, layers: int) -> int | None:
        """Return how many `layer_types` have a name, None where the list is missing. Raises InputError."""
        value = self._content.get("layer_types")
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != layers:
            message = f"layer_types is no list of {layers} names"
            raise self.make_error("layer_types", message, "give one name for each layer, or leave it out")
        return value.count(name)


def _name_nearest(name: object, known: Iterable[str]) -> str:
    near = get_close_matches(name, known, n=1) if isinstance(name, str) else ()
    return f"the nearest is {near[0]}; " if near else ""


def _shorten(value: object) -> str:
    if isinstance(value, int) and abs(value) > _LARGEST_SHOWN:
        return "of so many digits"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _read_llama(reader: _ConfigReader, architecture: str) -> ModelConfig:
    """Return what all architectures of grouped-query attention and gated layers have in common."""
    hidden, layers = reader.read_size("hidden_size"), reader.read_count("num_hidden_layers")
    heads = reader.read_count("num_attention_heads")
    kv_heads = reader.read_count("num_key_value_heads", default=heads)
    if heads % kv_heads:
        raise reader.make_error(
            "num_key_value_heads",
            f"{heads} query heads do not divide among {kv_heads} KV heads",
            f"num_attention_heads is a multiple of num_key_value_heads; {_FILE_HINT}",
        )
    head_dim = reader.read_size("head_dim", default=hidden // heads if hidden % heads == 0 else 0)
    if head_dim == 0:
        raise reader.make_error(
            "num_attention_heads",
            f"hidden_size {hidden} does not divide among {heads} heads",
            "such a model says its head_dim",
        )
    window = reader.read_size("sliding_window", default=0, least=0)
    return ModelConfig(
        architecture=architecture,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=reader.read_size("intermediate_size"),
        vocab=reader.read_size("vocab_size"),
        tie_word_embeddings=reader.read_flag("tie_word_embeddings"),
        sliding_window=window,
        sliding_layers=_count_sliding_layers(reader, window, layers),
        max_positions=reader.read_size("max_position_embeddings", default=0, most=1 << 40),
    )


def _count_sliding_layers(reader: _ConfigReader, window: int, layers: int) -> int:
    """Return how many layers see a window of keys: Mistral's all, Qwen's above `max_window_layers`."""
    if not window or not reader.read_flag("use_sliding_window", default=True):
        return 0
    listed = reader.count_layer_types("sliding_attention", layers)
    if listed is not None:
        return listed
    return layers - min(layers, reader.read_count("max_window_layers", default=0, least=0))


def _read_qwen3(reader: _ConfigReader, architecture: str) -> ModelConfig:
    return replace(_read_llama(reader, architecture), has_qk_norm=True)


def _read_mixtral(reader: _ConfigReader, architecture: str) -> ModelConfig:
    config = _read_llama(reader, architecture)
    return _with_experts(
        reader, config, ("num_local_experts", "num_experts_per_tok"), moe_intermediate=config.intermediate
    )


def _with_experts(
    reader: _ConfigReader, config: ModelConfig, keys: tuple[str, str], **changes: Any
) -> ModelConfig:
    """Return a configuration with experts, whose keys are (number, chosen per token). Raises InputError."""
    experts, topk = reader.read_count(keys[0]), reader.read_count(keys[1])
    if topk > experts:
        raise reader.make_error(keys[1], f"{topk} of {experts} experts", f"{keys[1]} is at most {keys[0]}")
    return replace(config, experts=experts, topk=topk, **changes)


def _read_qwen_moe(reader: _ConfigReader, architecture: str) -> ModelConfig:
    """Return Qwen2-MoE (shared experts with a gate) or Qwen3-MoE (q/k norms, none shared)."""
    config = _read_llama(reader, architecture)
    step = reader.read_count("decoder_sparse_step", default=_DEFAULT_EXPERTS_STEP)
    skipped = reader.read_layer_list("mlp_only_layers", config.layers)
    with_experts = max(0, config.layers // step - skipped)
    is_qwen3 = _FAMILIES[architecture] is _Family.QWEN3_MOE
    shared = 0 if is_qwen3 else reader.read_size("shared_expert_intermediate_size", default=0, least=0)
    return _with_experts(
        reader,
        config,
        ("num_experts", "num_experts_per_tok"),
        moe_intermediate=reader.read_size("moe_intermediate_size"),
        shared_intermediate=shared,
        has_shared_gate=shared > 0,
        first_dense_layers=config.layers - with_experts,
        has_qk_norm=is_qwen3,
    )


def _read_deepseek(reader: _ConfigReader, architecture: str) -> ModelConfig:
    """Return DeepSeek V2 or V3: multi-head latent attention, shared experts, leading dense layers."""
    hidden, layers = reader.read_size("hidden_size"), reader.read_count("num_hidden_layers")
    heads = reader.read_count("num_attention_heads")
    nope, rope = reader.read_size("qk_nope_head_dim"), reader.read_size("qk_rope_head_dim")
    moe_intermediate = reader.read_size("moe_intermediate_size")
    frequency = reader.read_count("moe_layer_freq", default=1)
    dense = min(layers, reader.read_count("first_k_dense_replace", default=0, least=0))
    with_experts = sum(layer % frequency == 0 for layer in range(dense, layers))
    config = ModelConfig(
        architecture=architecture,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=heads,
        head_dim=nope + rope,
        intermediate=reader.read_size("intermediate_size"),
        vocab=reader.read_size("vocab_size"),
        tie_word_embeddings=reader.read_flag("tie_word_embeddings"),
        moe_intermediate=moe_intermediate,
        shared_intermediate=moe_intermediate * reader.read_count("n_shared_experts", default=0, least=0),
        first_dense_layers=layers - with_experts,
        q_lora_rank=reader.read_size("q_lora_rank", default=0, least=0),
        kv_lora_rank=reader.read_size("kv_lora_rank"),
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=reader.read_size("v_head_dim"),
        max_positions=reader.read_size("max_position_embeddings", default=0, most=1 << 40),
    )
    return _with_experts(reader, config, ("n_routed_experts", "num_experts_per_tok"))


def _read_gemma(reader: _ConfigReader, architecture: str) -> ModelConfig:
    """Return Gemma 1 to 3: tied embeddings; from 2 on four norms a layer and windows in some layers."""
    family = _FAMILIES[architecture]
    if family is _Family.GEMMA3:
        reader.fill(_GEMMA3_DEFAULTS)
    config = _read_llama(reader, architecture)
    tied = reader.read_flag("tie_word_embeddings", default=True)
    if family is _Family.GEMMA:
        return replace(config, tie_word_embeddings=tied, sliding_window=0, sliding_layers=0)
    is_third = family is _Family.GEMMA3
    # Every second layer of Gemma 2 sees all keys; of Gemma 3 every sixth, or as its pattern says.
    pattern = reader.read_count("sliding_window_pattern", default=6 if is_third else 2)
    listed = reader.count_layer_types("sliding_attention", config.layers)
    windows = config.layers - config.layers // pattern if listed is None else listed
    return replace(
        config,
        tie_word_embeddings=tied,
        norms_per_layer=4,
        has_qk_norm=is_third,
        sliding_layers=windows if config.sliding_window else 0,
    )


def _read_glm4_moe(reader: _ConfigReader, architecture: str) -> ModelConfig:
    """Return GLM 4.5: grouped-query attention, shared experts, leading dense layers."""
    config = _read_llama(reader, architecture)
    intermediate = reader.read_size("moe_intermediate_size")
    return _with_experts(
        reader,
        config,
        ("n_routed_experts", "num_experts_per_tok"),
        moe_intermediate=intermediate,
        shared_intermediate=intermediate * reader.read_count("n_shared_experts", default=0, least=0),
        first_dense_layers=min(config.layers, reader.read_count("first_k_dense_replace", default=0, least=0)),
        has_qk_norm=reader.read_flag("use_qk_norm"),
    )


def _read_llama4(reader: _ConfigReader, architecture: str) -> ModelConfig:
    """Return Llama 4: one routed and one shared expert in each layer or every second, attention in chunks."""
    config = _read_llama(reader, architecture)
    chunk = reader.read_size("attention_chunk_size", default=0, least=0)
    step = reader.read_count("interleave_moe_layer_step", default=_DEFAULT_EXPERTS_STEP)
    return _with_experts(
        reader,
        config,
        ("num_local_experts", "num_experts_per_tok"),
        intermediate=reader.read_size("intermediate_size_mlp"),
        moe_intermediate=config.intermediate,
        shared_intermediate=config.intermediate,
        first_dense_layers=config.layers - config.layers // step,
        has_qk_norm=reader.read_flag("use_qk_norm", default=True),
        sliding_window=chunk,
        sliding_layers=config.layers - config.layers // _FULL_LAYERS_STEP if chunk else 0,
        notes=(f"attention in chunks of {chunk:,} keys is timed as a window of as many",) if chunk else (),
    )


_READERS: Mapping[_Family, Callable[[_ConfigReader, str], ModelConfig]] = {
    _Family.LLAMA: _read_llama,
    _Family.QWEN3: _read_qwen3,
    _Family.MIXTRAL: _read_mixtral,
    _Family.QWEN2_MOE: _read_qwen_moe,
    _Family.QWEN3_MOE: _read_qwen_moe,
    _Family.DEEPSEEK: _read_deepseek,
    _Family.GEMMA: _read_gemma,
    _Family.GEMMA2: _read_gemma,
    _Family.GEMMA3: _read_gemma,
    _Family.GLM4_MOE: _read_glm4_moe,
    _Family.GPT_OSS: _read_mixtral,
    _Family.LLAMA4: _read_llama4,
}
