"""Operators that a serving framework launches in one step, on one GPU of a tensor-parallel group.

A step of a decoder is, for each layer: norm, products of queries, keys and values, rotary embedding, write of
the KV cache, attention, output product, all-reduce, norm, gate and up product, activation, down product,
all-reduce; before all layers the embedding, after them a norm, the product with the vocabulary on one row per
request, a gather of its parts and sampling. Products are counted per step: 80 layers are one call of count
80. Residual additions are fused into the norms.

All stages of a pipeline are in one step: for one batch they run one after the other, with a transfer of
hidden states and residual between two stages.

Lists that frameworks' users collect (`is_listed`, see `operator_listing`) leave out what is small or belongs
to no layer; those calls are here too, because they run.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from analyzer.forecast.deployment import Deployment
from analyzer.forecast.model_config import ModelConfig
from analyzer.forecast.operator_calls import (
    ActivationCall,
    AttentionCall,
    CollectiveCall,
    CollectiveKind,
    ElementwiseCall,
    LatentAttentionCall,
    MoeCall,
    NormCall,
    OperatorCall,
    Phase,
    ProductCall,
    Step,
    is_decode,
)
from analyzer.forecast.parallel_layout import check_layout
from analyzer.forecast.request_trace import Request
from analyzer.operators.families.attention import choose_kernel, includes_cache_write
from analyzer.operators.hardware_figures import read_operator_hardware
from analyzer.operators.names import AttentionKind, Backend, DataType

_HIDDEN_BYTES = 2  # activations between the operators are bf16 or fp16, whatever the products take
_LOGIT_BYTES = 4  # sampling works in single precision
_MAX_KEPT_PARTS = 4096
_RAGGED_KINDS = {
    AttentionKind.FA2_PAGED: AttentionKind.FA2_RAGGED,
    AttentionKind.FA3_PAGED: AttentionKind.FA3_RAGGED,
}


class _Rows(Struct, frozen=True):
    """Row counts of a step's operators, which decide all calls but attention."""

    tokens: int
    batch: int
    absorbed: int  # of `tokens`, those whose MLA multiplies by the latent itself
    expanded_kv: int  # KV rows that MLA expands to heads


class StepMaker:
    """Maker of the steps of one deployment; keeps the calls of row counts that it has met.

    The same row counts give the same call values, so that timers may remember what a call takes.
    """

    __slots__ = ("_config", "_deployment", "_kernel", "_parts")

    def __init__(self, config: ModelConfig, deployment: Deployment) -> None:
        """Check the layout. Raises UsageError for one that no framework can make."""
        check_layout(config, deployment)
        self._config, self._deployment = config, deployment
        self._kernel = choose_kernel(read_operator_hardware(deployment.gpu))  # over a paged cache
        self._parts: dict[_Rows, tuple[OperatorCall, ...]] = {}

    def make(self, phase: Phase, query_lengths: Sequence[int], kv_lengths: Sequence[int]) -> Step:
        """Return the step of requests with these new tokens (query) and, with them, keys (KV)."""
        queries, keys = tuple(query_lengths), tuple(kv_lengths)
        attention = _make_attention(self._config, self._deployment, self._kernel, phase, queries, keys)
        tokens, kv_tokens = sum(queries), sum(keys)
        absorbed = expanded = 0
        if self._config.kv_lora_rank:
            absorbed = sum(query for query in queries if is_decode(query))
            expanded = sum(kv for query, kv in zip(queries, keys, strict=True) if not is_decode(query))
        rows = _Rows(tokens, len(queries), absorbed, expanded)
        calls = self._parts.get(rows)
        if calls is None:
            if len(self._parts) >= _MAX_KEPT_PARTS:
                self._parts.clear()
            calls = self._parts[rows] = _make_row_calls(self._config, self._deployment, self._kernel, rows)
        return Step(
            phase=phase, batch=len(queries), tokens=tokens, kv_tokens=kv_tokens, calls=(*attention, *calls)
        )


def make_step(
    config: ModelConfig,
    deployment: Deployment,
    phase: Phase,
    query_lengths: Sequence[int],
    kv_lengths: Sequence[int],
) -> Step:
    """Return one step; of many steps, keep a `StepMaker`. Raises UsageError for an impossible layout."""
    return StepMaker(config, deployment).make(phase, query_lengths, kv_lengths)


def list_steps(config: ModelConfig, deployment: Deployment, requests: Sequence[Request]) -> Iterator[Step]:
    """Yield the steps of one batch: a prefill of all prompts, then decode steps until all are finished.

    The prefill makes the first token of each request. A request that has all its tokens leaves the batch.
    Raises UsageError for an impossible layout.
    """
    maker = StepMaker(config, deployment)
    prompts = [request.prefill_tokens for request in requests]
    yield maker.make(Phase.PREFILL, prompts, prompts)
    running = [(request.prefill_tokens, request.output_tokens) for request in requests]
    made = 1
    while running := [(prompt, wanted) for prompt, wanted in running if wanted > made]:
        until = min(wanted for _, wanted in running)
        ones = (1,) * len(running)
        for step in range(made, until):
            yield maker.make(Phase.DECODE, ones, [prompt + step for prompt, _ in running])
        made = until


def find_local_kv_heads(config: ModelConfig, tensor_parallel: int) -> int:
    """Return the KV heads of one GPU: a share of them, or one that other GPUs keep too."""
    return max(1, config.kv_heads // tensor_parallel)


def _make_attention(
    config: ModelConfig,
    deployment: Deployment,
    kernel: AttentionKind,
    phase: Phase,
    queries: tuple[int, ...],
    keys: tuple[int, ...],
) -> list[OperatorCall]:
    """Return attention of one step: of layers that see all keys, of those with a window, of latent keys.

    MLA expands the keys of requests that prefill to heads; those that decode read the latent itself.
    """
    heads = config.heads // deployment.tensor_parallel
    if config.kv_lora_rank:
        return [
            LatentAttentionCall(
                query_lengths=part_queries,
                kv_lengths=part_keys,
                heads=heads,
                latent_dim=config.kv_lora_rank,
                rope_dim=config.qk_rope_head_dim,
                nope_dim=config.qk_nope_head_dim,
                value_dim=config.v_head_dim,
                count=config.layers,
                kv_dtype=deployment.kv_dtype,
            )
            for part_queries, part_keys in _part_requests(queries, keys)
        ]
    kv_heads = find_local_kv_heads(config, deployment.tensor_parallel)
    is_ragged = phase is Phase.PREFILL and queries == keys  # over keys that were just computed
    layers = ((config.layers - config.sliding_layers, 0), (config.sliding_layers, config.sliding_window))
    return [
        AttentionCall(
            kind=_RAGGED_KINDS.get(kernel, kernel) if is_ragged else kernel,
            query_lengths=part_queries,
            kv_lengths=part_keys,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=config.head_dim,
            count=count,
            window=window,
            kv_dtype=deployment.kv_dtype,
        )
        for count, window in layers
        if count
        for part_queries, part_keys in _part_requests(queries, keys)
    ]


def _part_requests(
    queries: tuple[int, ...], keys: tuple[int, ...]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return lengths of the requests that prefill, and of those that decode, each where there are any."""
    if all(map(is_decode, queries)):
        return [(queries, keys)]
    pairs = list(zip(queries, keys, strict=True))
    parts = ([pair for pair in pairs if is_decode(pair[0]) is decodes] for decodes in (False, True))
    return [(tuple(query for query, _ in part), tuple(kv for _, kv in part)) for part in parts if part]


def _make_row_calls(
    config: ModelConfig, deployment: Deployment, kernel: AttentionKind, rows: _Rows
) -> tuple[OperatorCall, ...]:
    """Return all calls but attention, in the order in which a layer first makes them."""
    builder = _RowCalls(config, deployment, kernel, rows)
    if config.kv_lora_rank:
        builder.add_latent_projections()
    else:
        builder.add_projections()
    builder.add_dense_layers()
    builder.add_experts()
    builder.add_norms()
    builder.add_ends()
    builder.add_transfers()
    return tuple(builder.calls)


class _RowCalls:
    """Calls whose sizes follow from row counts."""

    __slots__ = ("_batch", "_config", "_deployment", "_kernel", "_rows", "_tensor", "_tokens", "calls")

    def __init__(
        self, config: ModelConfig, deployment: Deployment, kernel: AttentionKind, rows: _Rows
    ) -> None:
        self._config, self._deployment, self._kernel, self._rows = config, deployment, kernel, rows
        self._tensor, self._tokens, self._batch = deployment.tensor_parallel, rows.tokens, rows.batch
        self.calls: list[OperatorCall] = []

    def add_projections(self) -> None:
        """Add the products around attention, norms of heads, rotary embedding and KV write."""
        config, layers = self._config, self._config.layers
        heads = config.heads // self._tensor
        kv_heads = find_local_kv_heads(config, self._tensor)
        width = (heads + 2 * kv_heads) * config.head_dim
        self._add_product("qkv_proj", "ColumnParallelLinear", width, config.hidden, layers)
        if config.has_qk_norm:
            self._add_norm("q_norm", self._tokens * heads, config.head_dim, layers)
            self._add_norm("k_norm", self._tokens * kv_heads, config.head_dim, layers)
        rotated = (heads + kv_heads) * config.head_dim
        self._add_elementwise("rotary_embedding", self._tokens, rotated * 2 * _HIDDEN_BYTES, layers)
        stored = 2 * kv_heads * config.head_dim
        if not includes_cache_write(self._kernel, Backend(self._deployment.framework.value)):
            self._add_kv_write(stored)
        self._add_product("o_proj", "RowParallelLinear", config.hidden, heads * config.head_dim, layers)

    def add_latent_projections(self) -> None:
        """Add MLA's products: down to the latents, up from them, or by the absorbed weights in decode."""
        config, layers = self._config, self._config.layers
        heads = config.heads // self._tensor
        latent = config.kv_lora_rank + config.qk_rope_head_dim
        if config.q_lora_rank:
            self._add_product(
                "fused_qkv_a_proj", "ReplicatedLinear", config.q_lora_rank + latent, config.hidden, layers
            )
            self._add_norm("q_a_norm", self._tokens, config.q_lora_rank, layers)
            self._add_product(
                "q_b_proj", "ColumnParallelLinear", heads * config.head_dim, config.q_lora_rank, layers
            )
        else:
            self._add_product(
                "q_proj", "ColumnParallelLinear", heads * config.head_dim, config.hidden, layers
            )
            self._add_product("kv_a_proj", "ReplicatedLinear", latent, config.hidden, layers)
        self._add_norm("kv_a_norm", self._tokens, config.kv_lora_rank, layers)
        rotated = (heads + 1) * config.qk_rope_head_dim
        self._add_elementwise("rotary_embedding", self._tokens, rotated * 2 * _HIDDEN_BYTES, layers)
        self._add_kv_write(latent)
        self._add_latent_expansion(heads)
        self._add_product("o_proj", "RowParallelLinear", config.hidden, heads * config.v_head_dim, layers)

    def _add_latent_expansion(self, heads: int) -> None:
        """Add keys and values from the latent (prefill), or queries and outputs to and from it (decode).

        The latter are one small product per head; as one call they have the same FLOPs and weights.
        """
        config, layers = self._config, self._config.layers
        if self._rows.expanded_kv:
            width = heads * (config.qk_nope_head_dim + config.v_head_dim)
            self._add_product(
                "kv_b_proj",
                "ColumnParallelLinear",
                width,
                config.kv_lora_rank,
                layers,
                rows=self._rows.expanded_kv,
            )
        if self._rows.absorbed:
            rank, absorbed = config.kv_lora_rank, self._rows.absorbed
            for name, width, depth in (
                ("q_absorb", heads * rank, config.qk_nope_head_dim),
                ("v_absorb", heads * config.v_head_dim, rank),
            ):
                self._add_product(
                    name, "BatchedMatmul", width, depth, layers, rows=absorbed, dtype=DataType.BF16
                )

    def _add_kv_write(self, elements: int) -> None:
        """Add the write of a token's keys and values: read in 16 bits, written as the cache keeps them."""
        kv_bytes = self._deployment.kv_dtype.activation_bytes
        token_bytes = elements * (_HIDDEN_BYTES + kv_bytes)
        self._add_elementwise("kv_write", self._tokens, token_bytes, self._config.layers)

    def add_dense_layers(self) -> None:
        """Add the feed-forward network of layers without experts."""
        if self._config.dense_layers:
            self._add_gated("", self._config.intermediate, self._config.dense_layers)

    def _add_gated(self, prefix: str, intermediate: int, count: int) -> None:
        columns = intermediate // self._tensor
        hidden = self._config.hidden
        self._add_product(f"{prefix}gate_up_proj", "MergedColumnParallelLinear", 2 * columns, hidden, count)
        self.calls.append(ActivationCall(rows=self._tokens, dim=2 * columns, count=count))
        self._add_product(f"{prefix}down_proj", "RowParallelLinear", hidden, columns, count)

    def add_experts(self) -> None:
        """Add router, routed experts and shared experts of layers that have them.

        Every GPU of the group has all tokens, so experts that are divided by expert need no exchange of
        tokens: each GPU adds what its experts give, and the layer's all-reduce adds up. Routing is taken as
        balanced.
        """
        config, count = self._config, self._config.moe_layers
        if not count:
            return
        ways = self._deployment.expert_parallel
        columns = config.moe_intermediate // (self._tensor // ways)
        routed_rows = max(1, self._tokens * config.topk // ways)
        self._add_product(
            "router", "ReplicatedLinear", config.experts, config.hidden, count, dtype=DataType.BF16
        )
        self.calls.append(
            MoeCall(
                tokens=self._tokens,
                experts=config.experts // ways,
                topk=config.topk,
                hidden=config.hidden,
                intermediate=columns,
                dtype=self._deployment.routed_dtype,
                count=count,
                share_of_routed=1.0 / ways,
            )
        )
        self.calls.append(ActivationCall(rows=routed_rows, dim=2 * columns, count=count))
        self._add_elementwise("moe_sum", routed_rows + self._tokens, config.hidden * _HIDDEN_BYTES, count)
        if config.shared_intermediate:
            self._add_gated("shared_", config.shared_intermediate, count)
        if config.has_shared_gate:
            self._add_product("shared_expert_gate", "Linear", 1, config.hidden, count, dtype=DataType.BF16)

    def add_norms(self) -> None:
        """Add the norms at full width: those of the layers and the last one; the first adds no residual."""
        config = self._config
        self._add_norm("rmsnorm", self._tokens, config.hidden, 1)
        count = config.norms_per_layer * config.layers
        self._add_norm("rmsnorm", self._tokens, config.hidden, count, adds_residual=True)

    def add_ends(self) -> None:
        """Add embedding, product with the vocabulary (one row per request), gather of logits, sampling."""
        config, batch = self._config, self._batch
        hidden_bytes = self._tokens * config.hidden * _HIDDEN_BYTES
        self._add_elementwise("embedding", self._tokens, 2 * config.hidden * _HIDDEN_BYTES, 1)
        self._add_product(
            "lm_head",
            "Linear",
            config.vocab,
            config.hidden,
            1,
            rows=batch,
            dtype=DataType.BF16,
            n_shards=self._tensor,
        )
        logits = batch * config.vocab
        if self._tensor > 1:
            self._add_collective(CollectiveKind.ALL_REDUCE, hidden_bytes, self._tensor, 1, is_listed=False)
            self._add_collective(
                CollectiveKind.ALL_GATHER, logits * _HIDDEN_BYTES, self._tensor, 1, is_listed=False
            )
        self._add_elementwise("sampling", batch, config.vocab * (_HIDDEN_BYTES + 2 * _LOGIT_BYTES), 1)

    def add_transfers(self) -> None:
        """Add the two all-reduces of a layer, and hidden states and residual between two stages."""
        config, stages = self._config, self._deployment.pipeline_parallel
        hidden_bytes = self._tokens * config.hidden * _HIDDEN_BYTES
        if self._tensor > 1:
            self._add_collective(CollectiveKind.ALL_REDUCE, hidden_bytes, self._tensor, 2 * config.layers)
        if stages > 1:
            self._add_collective(CollectiveKind.SEND_RECV, 2 * hidden_bytes, 2, stages - 1)

    def _add_product(
        self,
        name: str,
        layer_type: str,
        columns: int,
        depth: int,
        count: int,
        *,
        rows: int | None = None,
        dtype: DataType | None = None,
        n_shards: int = 1,
    ) -> None:
        """Add a product; of INT8 the kernel before it, too, which quantizes its input.

        Times of FP8 and FP4 products that taught the operator model have it in them.
        """
        m = self._tokens if rows is None else rows
        dtype = dtype or self._deployment.dtype
        if dtype is DataType.INT8:
            self._add_elementwise("quantize", m, depth * (_HIDDEN_BYTES + dtype.activation_bytes), count)
        self.calls.append(
            ProductCall(
                name=name,
                layer_type=layer_type,
                m=m,
                n=columns,
                k=depth,
                dtype=dtype,
                count=count,
                n_shards=n_shards,
            )
        )

    def _add_norm(self, name: str, rows: int, dim: int, count: int, *, adds_residual: bool = False) -> None:
        self.calls.append(NormCall(name=name, rows=rows, dim=dim, count=count, adds_residual=adds_residual))

    def _add_elementwise(self, name: str, rows: int, row_bytes: float, count: int) -> None:
        self.calls.append(ElementwiseCall(name=name, rows=rows, row_bytes=float(row_bytes), count=count))

    def _add_collective(
        self, kind: CollectiveKind, message_bytes: int, gpus: int, count: int, *, is_listed: bool = True
    ) -> None:
        self.calls.append(
            CollectiveCall(
                kind=kind, message_bytes=message_bytes, gpus=gpus, count=count, is_listed=is_listed
            )
        )
