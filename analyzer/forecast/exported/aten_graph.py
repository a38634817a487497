"""Tensor graphs of exported programs: each ATen operator becomes a node of a kind that times are known of.

What an operator does is looked up by its name (`_OPERATORS`). One that is not there counts as a kernel that
reads its operands and writes its results, and a warning says how often that was so: NeuSight's rule for
operators that it does not know. Convolutions and recurrent layers are named apart, because their products
then do not count at all.

Invariant: every tensor of the program has one node; views and what has no tensor launch nothing.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from analyzer.forecast.exported.program import DATA_TYPES, ExportedCall, ExportedProgram, ExportedTensor
from analyzer.forecast.training.tensor_graph import AttentionShape, Node, NodeKind, TensorGraph
from analyzer.operators.names import DataType

_MOST_NAMED = 8


def make_tensor_graph(program: ExportedProgram, dtype: DataType | None = None) -> TensorGraph:
    """Return the graph of a program, in `dtype` if given; its warnings count operators that are not known."""
    build = _Build(program, dtype)
    for name in (*program.inputs, *sorted(program.parameters)):
        build.add_input(name)
    for call in program.calls:
        build.add_call(call)
    tokens = max((node.elements for node in build.nodes if node.kind is NodeKind.INPUT), default=0)
    return TensorGraph(program.name, tuple(build.nodes), 0, tokens, 1, build.list_warnings())


@dataclass
class _Build:
    """The graph so far."""

    program: ExportedProgram
    dtype: DataType | None
    nodes: list[Node] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)  # of tensors by name
    weights: dict[str, int] = field(default_factory=dict)  # elements of the parameter that a tensor shows
    used_weights: set[str] = field(default_factory=set)
    unknown: Counter[str] = field(default_factory=Counter)
    without_products: Counter[str] = field(default_factory=Counter)

    def add_input(self, name: str) -> None:
        """Add an input or a weight; weights belong to the nodes that use them."""
        tensor = self.find_tensor(name)
        is_parameter = name in self.program.parameters
        if is_parameter:
            self.weights[name] = tensor.elements
        kind = NodeKind.PARAMETER if is_parameter else NodeKind.INPUT
        self.add(name, kind, (), tensor, needs_gradient=False)

    def add_call(self, call: ExportedCall) -> None:
        """Add the node of one operator, none for what makes no tensor."""
        if not call.outputs or call.outputs[0] not in self.program.tensors:
            return
        rule = _OPERATORS.get(call.target)
        if rule is not None and len(self.list_places(call)) < _FEWEST_OPERANDS.get(rule, 0):
            rule = None  # a damaged file
        if rule is None:
            is_product = any(word in call.target for word in _PRODUCT_WORDS)
            (self.without_products if is_product else self.unknown)[call.target] += 1
            rule = _stream("unknown")
        rule(self, call)
        for name in call.outputs:  # further results lie beside the first one
            if name not in self.places and name in self.program.tensors:
                self.add(name, NodeKind.VIEW, self.list_places(call), self.find_tensor(name))

    def add(
        self,
        name: str,
        kind: NodeKind,
        inputs: tuple[int, ...],
        tensor: ExportedTensor,
        *,
        function: str = "",
        k: int = 0,
        parameters: int = 0,
        has_bias: bool = False,
        attention: AttentionShape | None = None,
        needs_gradient: bool | None = None,
        is_shared: bool = False,
    ) -> None:
        """Add a node for a tensor."""
        given = any(self.nodes[i].needs_gradient for i in inputs) or parameters > 0 or is_shared
        dtype, element_bytes = self.convert_type(tensor)
        self.places[name] = len(self.nodes)
        self.nodes.append(
            Node(
                name,
                kind,
                inputs,
                tensor.shape or (1,),
                dtype,
                function=function,
                element_bytes=element_bytes,
                k=k,
                parameters=0 if is_shared else parameters,
                has_bias=has_bias,
                attention=attention,
                needs_gradient=given if needs_gradient is None else needs_gradient,
                shares_weights=is_shared,
            )
        )

    def convert_type(self, tensor: ExportedTensor) -> tuple[DataType, float]:
        """Return the data type that kernels are timed in, and bytes per element where it is another one."""
        known = DATA_TYPES.get(tensor.dtype)
        if known is not None:
            return self.dtype or known, 0.0
        return self.dtype or DataType.FP32, tensor.element_bytes

    def find_tensor(self, name: str) -> ExportedTensor:
        """Return a tensor's description; of one without, a scalar."""
        return self.program.tensors.get(name, ExportedTensor((1,), "float32"))

    def list_places(self, call: ExportedCall) -> tuple[int, ...]:
        """Return the nodes of a call's operands."""
        return tuple(self.places[name] for name in call.operands if name in self.places)

    def list_activations(self, call: ExportedCall) -> tuple[int, ...]:
        """Return the nodes of operands that are no weights."""
        return tuple(
            self.places[name] for name in call.operands if name in self.places and name not in self.weights
        )

    def claim_weights(self, names: tuple[str, ...]) -> tuple[int, bool]:
        """Return the elements of the weights among operands, and whether another node has them already."""
        owned = [self.weights[name] for name in names if name in self.weights]
        shared = [
            name for name in names if name in self.weights and self.find_root(name) in self.used_weights
        ]
        self.used_weights.update(self.find_root(name) for name in names if name in self.weights)
        return sum(owned), bool(shared)

    def find_root(self, name: str) -> str:
        """Return the parameter that a view of one shows."""
        node = self.nodes[self.places[name]]
        while node.kind is NodeKind.VIEW and node.inputs:
            node = self.nodes[node.inputs[0]]
        return node.name

    def list_warnings(self) -> tuple[str, ...]:
        """Return what could not be told."""
        found = []
        if self.program.is_dynamic:
            found.append("sizes that vary are those of the example that the program was exported with")
        for counts, what in (
            (self.without_products, "not supported: their products do not count, only their bytes"),
            (self.unknown, "not known: counted by the bytes of their tensors"),
        ):
            if counts:
                named = ", ".join(f"{n} x {name}" for name, n in counts.most_common(_MOST_NAMED))
                more = f" and {len(counts) - _MOST_NAMED} more" if len(counts) > _MOST_NAMED else ""
                found.append(f"{sum(counts.values())} operators {what} ({named}{more})")
        return tuple(found)


_Rule = Callable[[_Build, ExportedCall], None]


def _view(build: _Build, call: ExportedCall) -> None:
    """Add a view for each output; one of a weight is the weight."""
    source = build.list_places(call)[:1]
    for name in call.outputs:
        build.add(name, NodeKind.VIEW, source, build.find_tensor(name))
        if call.operands and call.operands[0] in build.weights:
            build.weights[name] = build.weights[call.operands[0]]


def _reshape(build: _Build, call: ExportedCall) -> None:
    """Add a view of a contiguous tensor, else a copy."""
    is_contiguous = bool(call.operands) and build.find_tensor(call.operands[0]).is_contiguous
    (_view if is_contiguous else _copy)(build, call)


def _copy(build: _Build, call: ExportedCall) -> None:
    name = call.outputs[0]
    build.add(name, NodeKind.COPY, build.list_places(call), build.find_tensor(name))


def _stream(function: str) -> _Rule:
    """Return the rule of an element-wise operator."""

    def rule(build: _Build, call: ExportedCall) -> None:
        name = call.outputs[0]
        tensor = build.find_tensor(name)
        parameters, is_shared = build.claim_weights(call.operands)
        chosen = function
        if function in ("mul", "div") and len(call.operands) < 2:
            chosen = "scale"
        build.add(
            name,
            NodeKind.POINTWISE,
            build.list_places(call),
            tensor,
            function=chosen,
            parameters=parameters,
            is_shared=is_shared,
        )

    return rule


def _dropout(build: _Build, call: ExportedCall) -> None:
    """Add dropout where the program was exported in training mode."""
    (_stream("dropout") if call.flags.get("train") else _view)(build, call)


def _reduction(build: _Build, call: ExportedCall) -> None:
    name = call.outputs[0]
    build.add(name, NodeKind.REDUCTION, build.list_places(call), build.find_tensor(name), function="reduce")


def _fill(build: _Build, call: ExportedCall) -> None:
    name = call.outputs[0]
    build.add(name, NodeKind.POINTWISE, (), build.find_tensor(name), function="fill", needs_gradient=False)


def _row(kind: NodeKind) -> _Rule:
    """Return the rule of a norm or softmax."""

    def rule(build: _Build, call: ExportedCall) -> None:
        name = call.outputs[0]
        parameters, is_shared = build.claim_weights(call.operands)
        build.add(
            name,
            kind,
            build.list_activations(call),
            build.find_tensor(name),
            parameters=parameters,
            is_shared=is_shared,
        )

    return rule


def _linear(build: _Build, call: ExportedCall) -> None:
    """linear(x, weight, bias): weight [n, k]."""
    _add_product(build, call, call.operands[:1], call.operands[1:], has_bias=len(call.operands) > 2)


def _addmm(build: _Build, call: ExportedCall) -> None:
    """addmm(bias, x, weight): weight [k, n]."""
    _add_product(build, call, call.operands[1:2], (*call.operands[2:], call.operands[0]), has_bias=True)


def _matmul(build: _Build, call: ExportedCall) -> None:
    """mm, bmm, matmul: a product with a matrix is a linear layer, any other a batched product."""
    if len(build.find_tensor(call.operands[-1]).shape) <= 2 or call.operands[-1] in build.weights:
        _add_product(build, call, call.operands[:1], call.operands[1:], has_bias=False)
    else:
        _bmm(build, call)


def _add_product(
    build: _Build, call: ExportedCall, left: tuple[str, ...], right: tuple[str, ...], *, has_bias: bool
) -> None:
    name = call.outputs[0]
    parameters, is_shared = build.claim_weights(right)
    activations = (*left, *(each for each in right if each not in build.weights))
    build.add(
        name,
        NodeKind.LINEAR,
        tuple(build.places[each] for each in activations if each in build.places),
        build.find_tensor(name),
        k=(build.find_tensor(left[0]).shape or (1,))[-1],
        parameters=parameters,
        has_bias=has_bias,
        is_shared=is_shared or not parameters,
    )


def _bmm(build: _Build, call: ExportedCall) -> None:
    name, first = call.outputs[0], call.operands[-2]
    if len(build.find_tensor(name).shape) < 2:
        _stream("unknown")(build, call)
        return
    build.add(
        name,
        NodeKind.BATCHED_PRODUCT,
        build.list_places(call),
        build.find_tensor(name),
        k=(build.find_tensor(first).shape or (1,))[-1],
    )


def _attention(build: _Build, call: ExportedCall) -> None:
    """scaled_dot_product_attention(query, key, value, mask): [batch, heads, length, head_dim]."""
    query, key = (build.find_tensor(name).shape for name in call.operands[:2])
    if len(query) < 3 or len(key) < 3:
        _stream("unknown")(build, call)
        return
    batch = 1
    for size in query[:-3]:
        batch *= size
    is_causal = bool(call.flags.get("is_causal", False))
    sizes = AttentionShape(batch, query[-3], key[-3], query[-2], key[-2], query[-1], is_causal)
    name = call.outputs[0]
    build.add(name, NodeKind.ATTENTION, build.list_places(call)[:3], build.find_tensor(name), attention=sizes)


def _embedding(build: _Build, call: ExportedCall) -> None:
    name = call.outputs[0]
    parameters, is_shared = build.claim_weights(call.operands[:1])
    rows = (build.find_tensor(call.operands[0]).shape or (1,))[0]
    build.add(
        name,
        NodeKind.EMBEDDING,
        build.list_activations(call),
        build.find_tensor(name),
        k=rows,
        parameters=parameters,
        is_shared=is_shared,
    )


def _cross_entropy(build: _Build, call: ExportedCall) -> None:
    name = call.outputs[0]
    build.add(name, NodeKind.CROSS_ENTROPY, build.list_places(call)[:1], build.find_tensor(name))


_FEWEST_OPERANDS: dict[_Rule, int] = {
    _view: 1,
    _linear: 2,
    _addmm: 3,
    _matmul: 2,
    _bmm: 2,
    _attention: 3,
    _embedding: 2,
    _cross_entropy: 1,
}
_PRODUCT_WORDS = ("einsum", "conv", "lstm", "gru", "rnn", "grouped_mm", "fft", "linalg")


def _name_all(namespace: str, names: str, rule: _Rule) -> dict[str, _Rule]:
    return {f"{namespace}.{name}": rule for name in names.split()}


_OPERATORS: dict[str, _Rule] = {
    **_name_all(
        "aten",
        "view _unsafe_view unsqueeze squeeze permute transpose t expand expand_as slice select split "
        "chunk unbind detach detach_ alias narrow split_with_sizes unflatten movedim swapaxes view_as "
        "diagonal lift_fresh_copy tensor_split unsafe_split unsafe_chunk unfold as_strided mT numpy_T "
        "adjoint real positive",
        _view,
    ),
    **_name_all("aten", "reshape flatten contiguous view_as_complex view_as_real", _reshape),
    **_name_all(
        "aten",
        "clone cat stack concat repeat repeat_interleave index_select gather index roll flip "
        "constant_pad_nd pad copy copy_ index_put index_put_ scatter scatter_add masked_select hstack "
        "vstack tile",
        _copy,
    ),
    **_name_all("aten", "_to_copy to type_as float half bfloat16", _stream("cast")),
    **_name_all("aten", "add add_ sub sub_ rsub", _stream("add")),
    **_name_all("aten", "mul mul_ multiply", _stream("mul")),
    **_name_all("aten", "div div_ divide true_divide", _stream("div")),
    **_name_all("aten", "where masked_fill masked_fill_", _stream("where")),
    **_name_all("aten", "neg", _stream("negate")),
    **_name_all("aten", "pow square", _stream("pow")),
    **_name_all("aten", "maximum minimum", _stream("maximum")),
    **_name_all(
        "aten",
        "relu relu_ gelu silu silu_ sigmoid tanh sqrt rsqrt exp log log1p expm1 erf abs sin cos clamp "
        "clamp_min clamp_max leaky_relu elu celu selu hardswish hardsigmoid hardtanh relu6 mish "
        "softplus logsigmoid reciprocal sign floor ceil round tan atan atan2 addcmul addcdiv lerp glu "
        "swiglu",
        _stream("activation"),
    ),
    **_name_all(
        "aten",
        "eq ne lt le gt ge logical_and logical_or logical_not logical_xor bitwise_and bitwise_or "
        "bitwise_not bitwise_xor isnan isinf remainder fmod floor_divide one_hot tril triu bucketize "
        "isin",
        _stream("where"),
    ),
    **_name_all("aten", "dropout native_dropout feature_dropout alpha_dropout", _dropout),
    **_name_all(
        "aten",
        "mean sum amax amin max min argmax argmin var var_mean std prod any all norm logsumexp "
        "count_nonzero linalg_vector_norm adaptive_avg_pool2d avg_pool2d max_pool2d cumsum cumprod "
        "topk sort argsort",
        _reduction,
    ),
    **_name_all(
        "aten",
        "full zeros ones arange scalar_tensor full_like zeros_like ones_like empty empty_like "
        "new_zeros new_ones new_full tril_indices triu_indices linspace eye rand randn rand_like "
        "randn_like fill",
        _fill,
    ),
    **_name_all("aten", "softmax _softmax _safe_softmax log_softmax _log_softmax", _row(NodeKind.SOFTMAX)),
    **_name_all("aten", "layer_norm native_layer_norm", _row(NodeKind.LAYERNORM)),
    **_name_all("aten", "rms_norm _fused_rms_norm", _row(NodeKind.RMSNORM)),
    **_name_all(
        "aten",
        "batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training group_norm "
        "native_group_norm instance_norm",
        _stream("activation"),
    ),
    **_name_all("aten", "linear", _linear),
    **_name_all("aten", "addmm", _addmm),
    **_name_all("aten", "mm matmul mv dot", _matmul),
    **_name_all("aten", "bmm baddbmm", _bmm),
    **_name_all(
        "aten",
        "scaled_dot_product_attention _scaled_dot_product_flash_attention "
        "_scaled_dot_product_efficient_attention _scaled_dot_product_flash_attention_for_cpu "
        "_scaled_dot_product_cudnn_attention",
        _attention,
    ),
    **_name_all("aten", "embedding", _embedding),
    **_name_all("aten", "cross_entropy_loss", _cross_entropy),
}
