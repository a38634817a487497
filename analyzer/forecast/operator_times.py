"""Times of calls by the operator model, asked in blocks of rows and kept.

Calls of a served model differ in their rows alone, and steps come in all sizes. One answer costs half a
millisecond, sixteen at once one, so the model is asked for a block of consecutive rows. What is kept
does not depend on the sustained rate: its level is applied where a time is read.

Attention differs in all lengths of its requests. Whoever has many steps prepares their attention at once: one
takes a millisecond, sixty-four two.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.forecast.operator_calls import (
    ActivationCall,
    AttentionCall,
    ElementwiseCall,
    LatentAttentionCall,
    MoeCall,
    NormCall,
    ProductCall,
)
from analyzer.hardware.gpu import Gpu
from analyzer.models.operators.interface import OperatorPrediction
from analyzer.models.operators.served import compute_level, predict_served, predict_unleveled
from analyzer.operators.batches import (
    AttentionBatch,
    Column,
    ElementwiseBatch,
    MlaBatch,
    MoeBatch,
    OperatorBatch,
    ProductBatch,
    RowwiseBatch,
)
from analyzer.operators.names import AttentionKind, Backend, DataType, MoeProduct, Operator
from analyzer.operators.operator_rows import make_ragged
from analyzer.operators.sustained_rates import SustainedRates

AnyAttentionCall = AttentionCall | LatentAttentionCall
RowCall = ProductCall | NormCall | ActivationCall | MoeCall | ElementwiseCall
ModeledCall = RowCall | AnyAttentionCall
_BLOCK_ROWS = 16
_KEPT_BLOCKS = 1 << 14
_ROW_TYPE = DataType.BF16  # of activations between products
_MakeBatch = Callable[[Column, Column], OperatorBatch]  # of rows, and as many ones
_Kind = tuple[Operator, DataType, tuple[float, ...]]  # the last: all sizes but the rows


class _Workload(Struct, frozen=True):
    """A call as the operator model sees it."""

    kind: _Kind
    rows: int
    make: _MakeBatch

    def make_rows(self, first: int, count: int) -> OperatorBatch:
        """Return the batch of consecutive rows from a first one on."""
        return self.make(np.arange(first, first + count, dtype=np.float64), np.ones(count))


class _Answer(NamedTuple):
    """What is kept of a call's prediction."""

    us: float
    sm_share: float  # of it, that the SMs decide
    doubt: float  # see `OperatorTimer.find_doubt`


class OperatorTimer:
    """Timer of calls on one GPU, as a framework computes them; equal to itself alone."""

    def __init__(self, gpu: Gpu, backend: Backend) -> None:
        self._gpu, self._backend = gpu, backend
        self._blocks: dict[tuple[_Kind, int], NDArray[np.float64]] = {}
        self._attention: dict[AnyAttentionCall, _Answer] = {}
        self._levels: dict[tuple[Operator, DataType, float], float] = {}

    def time_attention(self, call: AnyAttentionCall, sustained: SustainedRates) -> float:
        """Return us of a call."""
        us, sm_share, _ = self._find_attention(call)
        level = self._find_level(
            Operator.MLA if isinstance(call, LatentAttentionCall) else Operator.ATTENTION,
            call.kv_dtype,
            sustained,
            lambda: _describe_attention(call, (call,), self._backend),
        )
        return float(us * level**sm_share)

    def _find_attention(self, call: AnyAttentionCall) -> _Answer:
        found = self._attention.get(call)  # a call has many lengths: one look costs more than the rest
        if found is None:
            self.prepare_attention((call,))
            found = self._attention[call]
        return found

    def prepare_attention(self, calls: Iterable[AnyAttentionCall]) -> None:
        """Ask for all calls that were not asked for, those that differ in their lengths at once."""
        if len(self._attention) >= _KEPT_BLOCKS:
            self._attention.clear()
        kinds: dict[AnyAttentionCall, list[AnyAttentionCall]] = {}
        for call in calls:
            if call not in self._attention:
                kinds.setdefault(_forget_lengths(call), []).append(call)
        for kind, alike in kinds.items():
            found = predict_unleveled(_describe_attention(kind, alike, self._backend), self._gpu)
            self._attention.update(zip(alike, map(_Answer._make, _tabulate(found).tolist()), strict=True))

    def time(self, call: RowCall, sustained: SustainedRates) -> tuple[float, float]:
        """Return us of a call, and the share of it that the tensor cores of all SMs decide."""
        work = _describe(call, self._backend)
        us, sm_share, _ = self._find_row(work)
        if not sm_share:
            return us, sm_share
        operator, dtype, _ = work.kind
        level = self._find_level(operator, dtype, sustained, lambda: work.make_rows(1, 1))
        return us * level**sm_share, sm_share

    def find_doubt(self, call: ModeledCall) -> float:
        """Return the half width of the interval's logarithm where other frameworks' kernels taught, else 0.

        All such calls err alike.
        """
        if isinstance(call, AttentionCall | LatentAttentionCall):
            return self._find_attention(call).doubt
        return self._find_row(_describe(call, self._backend)).doubt

    def _find_row(self, work: _Workload) -> _Answer:
        number, place = divmod(work.rows - 1, _BLOCK_ROWS)
        block = self._blocks.get((work.kind, number))
        if block is None:
            if len(self._blocks) >= _KEPT_BLOCKS:
                self._blocks.clear()
            batch = work.make_rows(number * _BLOCK_ROWS + 1, _BLOCK_ROWS)
            block = self._blocks[work.kind, number] = _tabulate(predict_unleveled(batch, self._gpu))
        return _Answer._make(block[place].tolist())

    def predict(self, call: ModeledCall, sustained: SustainedRates) -> OperatorPrediction:
        """Return the operator model's answer for one call, with its interval and what it rests on."""
        if isinstance(call, AttentionCall | LatentAttentionCall):
            batch = _describe_attention(call, (call,), self._backend)
            return predict_served(batch, self._gpu, sustained=sustained)
        work = _describe(call, self._backend)
        return predict_served(work.make_rows(work.rows, 1), self._gpu, sustained=sustained)

    def _find_level(
        self,
        operator: Operator,
        dtype: DataType,
        sustained: SustainedRates,
        make_batch: Callable[[], OperatorBatch],
    ) -> float:
        key = (operator, dtype, sustained.find(dtype))
        if key not in self._levels:
            self._levels[key] = compute_level(make_batch(), self._gpu, sustained)
        return self._levels[key]


def _tabulate(found: OperatorPrediction) -> NDArray[np.float64]:
    """Return rows x columns of `_Answer`."""
    none = np.zeros(len(found.time_us))
    share = none if found.sm_share is None else found.sm_share
    doubt = 0.5 * np.log(found.high_us / found.low_us) if found.is_of_others else none
    return np.stack([found.time_us, share, doubt], axis=1)


def _forget_lengths(call: AnyAttentionCall) -> AnyAttentionCall:
    """Return what calls have in common that are asked for at once."""
    return msgspec.structs.replace(call, query_lengths=(), kv_lengths=(), count=1)


def _describe_attention(
    kind: AnyAttentionCall, calls: Sequence[AnyAttentionCall], backend: Backend
) -> AttentionBatch | MlaBatch:
    """Return the batch of calls of a kind."""
    ones = np.ones(len(calls))
    queries, keys = (
        make_ragged([call.query_lengths for call in calls]),
        make_ragged([call.kv_lengths for call in calls]),
    )
    if isinstance(kind, LatentAttentionCall):
        return MlaBatch(
            Operator.MLA,
            kind.kv_dtype,
            queries,
            keys,
            heads=kind.heads * ones,
            latent_dim=kind.latent_dim * ones,
            rope_dim=kind.rope_dim * ones,
            expanded_dim=kind.expanded_dim * ones,
        )
    return AttentionBatch(
        Operator.ATTENTION,
        kind.kv_dtype,
        AttentionKind.GENERIC,
        queries,
        keys,
        heads=kind.heads * ones,
        kv_heads=kind.kv_heads * ones,
        head_dim=kind.head_dim * ones,
        backend=backend,
        window=kind.window * ones if kind.window else None,
    )


def _describe(call: RowCall, backend: Backend) -> _Workload:
    match call:
        case ProductCall():
            return _describe_product(call, backend)
        case NormCall() if call.is_of_heads:
            moved = 2.0 * _ROW_TYPE.activation_bytes * call.dim
            return _describe_stream(ElementwiseCall(call.name, call.rows, moved, call.count))
        case ElementwiseCall():
            return _describe_stream(call)
        case NormCall():
            return _describe_rows(
                Operator.FUSED_ADD_RMSNORM if call.adds_residual else Operator.RMSNORM, call.rows, call.dim
            )
        case ActivationCall():
            return _describe_rows(Operator.SILU_MUL, call.rows, call.dim)
        case MoeCall():
            return _describe_experts(call, backend)


def _describe_product(call: ProductCall, backend: Backend) -> _Workload:
    n, k = call.local_n, call.k

    def make(rows: Column, ones: Column) -> ProductBatch:
        return ProductBatch(Operator.GEMM, call.dtype, rows, n * ones, k * ones, ones, backend)

    return _Workload((Operator.GEMM, call.dtype, (n, k)), call.m, make)


def _describe_rows(operator: Operator, rows: int, columns: int) -> _Workload:
    return _Workload(
        (operator, _ROW_TYPE, (columns,)),
        rows,
        lambda rows, ones: RowwiseBatch(operator, _ROW_TYPE, rows, columns * ones),
    )


def _describe_stream(call: ElementwiseCall) -> _Workload:
    """Return a kernel that streams bytes: element-wise, of one input."""
    row_elements = call.elements / call.rows

    def make(rows: Column, ones: Column) -> ElementwiseBatch:
        return ElementwiseBatch(Operator.ELEMENTWISE, _ROW_TYPE, row_elements * rows, ones)

    return _Workload((Operator.ELEMENTWISE, _ROW_TYPE, (row_elements,)), call.rows, make)


def _describe_experts(call: MoeCall, backend: Backend) -> _Workload:
    """Return a mixture of experts; of its pairs of token and expert, this GPU has a share."""
    sizes = (call.experts, call.topk * call.share_of_routed, call.hidden, call.intermediate)

    def make(rows: Column, ones: Column) -> MoeBatch:
        experts, topk, hidden, intermediate = (size * ones for size in sizes)
        return MoeBatch(
            Operator.MOE, call.dtype, MoeProduct.BOTH, rows, experts, topk, hidden, intermediate, backend
        )

    return _Workload((Operator.MOE, call.dtype, sizes), call.tokens, make)
