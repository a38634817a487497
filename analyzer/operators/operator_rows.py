"""Operators as users write them (fields by column name) into batches, and what is wrong with a row.

Rows of one operator, GPU, data type and kind become one batch; a row that cannot be read gets a reason and
keeps its place. `OPERATOR_COLUMNS` says which columns each operator takes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from analyzer.operators.batches import (
    AttentionBatch,
    CollectiveBatch,
    Column,
    ElementwiseBatch,
    MlaBatch,
    MoeBatch,
    OperatorBatch,
    ProductBatch,
    RaggedLengths,
    RowwiseBatch,
)
from analyzer.operators.names import DATA_TYPE_ALIASES, AttentionKind, Backend, DataType, MoeProduct, Operator

_LARGEST = 1e12  # of any size: a million million elements do not fit a GPU
_MOST_LENGTHS = 65536  # of one row's list


class SizeColumn(Struct, frozen=True):
    """A column with a whole number; the field of a batch that takes it, if that has another name."""

    name: str
    help: str
    default: float | None = None  # None: must be given
    field: str = ""


class OperatorColumns(Struct, frozen=True):
    """What a row of an operator consists of."""

    sizes: tuple[SizeColumn, ...]
    has_lengths: bool = False  # q_lengths and kv_lengths
    choices: tuple[str, ...] = ()  # columns with a name: `kind` of attention, `which` of moe, `backend`
    default_dtype: DataType = DataType.BF16

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that the operator takes."""
        lengths = LENGTH_COLUMNS if self.has_lengths else ()
        return (*(size.name for size in self.sizes), *lengths, *self.choices)


LENGTH_COLUMNS = ("q_lengths", "kv_lengths")
_PRODUCT = (
    SizeColumn("m", "rows of A and D"),
    SizeColumn("n", "columns of B and D"),
    SizeColumn("k", "reduction length"),
    SizeColumn("batch", "products of this size", 1.0),
)
_HEADS = SizeColumn("heads", "query heads")
_MATRIX = (SizeColumn("rows", "rows, such as tokens"), SizeColumn("columns", "elements of a row"))
_SILU = (SizeColumn("rows", "rows, such as tokens"), SizeColumn("columns", "width of the input, gate and up"))
_MESSAGE = (
    SizeColumn("bytes", "message of each GPU", field="message_bytes"),
    SizeColumn("gpus", "GPUs of one node that take part"),
)
OPERATOR_COLUMNS: Mapping[Operator, OperatorColumns] = {
    Operator.GEMM: OperatorColumns(_PRODUCT, choices=("backend",)),
    Operator.SCALED_MM: OperatorColumns(_PRODUCT, default_dtype=DataType.FP8_BLOCK),
    Operator.BMM: OperatorColumns(_PRODUCT),
    Operator.MOE: OperatorColumns(
        (
            SizeColumn("m", "tokens"),
            SizeColumn("experts", "experts"),
            SizeColumn("topk", "experts per token"),
            SizeColumn("hidden", "hidden size"),
            SizeColumn("intermediate", "intermediate size of an expert"),
        ),
        choices=("which", "backend"),
    ),
    Operator.ATTENTION: OperatorColumns(
        (
            _HEADS,
            SizeColumn("kv_heads", "key and value heads"),
            SizeColumn("head_dim", "elements of a head", 128.0),
            SizeColumn("window", "keys that a query sees, all where not given", 0.0),
        ),
        has_lengths=True,
        choices=("kind", "backend"),
    ),
    Operator.MLA: OperatorColumns(
        (
            _HEADS,
            SizeColumn("latent_dim", "elements of the latent KV", 512.0),
            SizeColumn("rope_dim", "elements with rotary positions", 64.0),
            SizeColumn("expanded_dim", "elements of a head's expanded keys and values", 128.0),
        ),
        has_lengths=True,
    ),
    Operator.RMSNORM: OperatorColumns(_MATRIX),
    Operator.FUSED_ADD_RMSNORM: OperatorColumns(_MATRIX),
    Operator.LAYERNORM: OperatorColumns(_MATRIX),
    Operator.SOFTMAX: OperatorColumns(_MATRIX),
    Operator.SILU_MUL: OperatorColumns(_SILU),
    Operator.ELEMENTWISE: OperatorColumns(
        (
            SizeColumn("elements", "elements of the output"),
            SizeColumn("inputs", "inputs of this size", 1.0),
        )
    ),
    Operator.ALL_REDUCE: OperatorColumns(_MESSAGE),
    Operator.SEND_RECV: OperatorColumns(
        (SizeColumn("bytes", "message", field="message_bytes"), SizeColumn("gpus", "GPUs", 2.0))
    ),
}
_BATCH_TYPES: Mapping[Operator, type[Any]] = {
    **dict.fromkeys((Operator.GEMM, Operator.SCALED_MM, Operator.BMM), ProductBatch),
    **dict.fromkeys((Operator.ALL_REDUCE, Operator.SEND_RECV), CollectiveBatch),
    Operator.MOE: MoeBatch,
    Operator.ATTENTION: AttentionBatch,
    Operator.MLA: MlaBatch,
    Operator.ELEMENTWISE: ElementwiseBatch,
}
# with what an empty field means; "": not known
_CHOICES: Mapping[str, tuple[type[AttentionKind | MoeProduct | Backend], str]] = {
    "kind": (AttentionKind, AttentionKind.GENERIC),
    "which": (MoeProduct, MoeProduct.BOTH),
    "backend": (Backend, ""),
}


class RowError(ValueError):
    """A row cannot be answered; the text says why."""


class BatchOfRows(Struct, frozen=True):
    """A batch, and the place of each of its rows in what was given."""

    batch: OperatorBatch
    gpu: str  # as given
    places: NDArray[np.int64]


class OperatorRows(Struct, frozen=True):
    """What was given, as batches; `problems` are the reasons of rows that cannot be answered, by place."""

    batches: tuple[BatchOfRows, ...]
    problems: Mapping[int, str]
    n_rows: int


class _Key(Struct, frozen=True):
    operator: Operator
    gpu: str
    dtype: DataType
    choices: tuple[str, ...]


class _Group:
    """Rows of one batch, while they are read."""

    def __init__(self, n_sizes: int) -> None:
        self.places: list[int] = []
        self.sizes: list[list[float]] = [[] for _ in range(n_sizes)]
        self.lengths: tuple[list[list[float]], list[list[float]]] = ([], [])


def read_operator_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> OperatorRows:
    """Return rows of fields as batches.

    columns: names of the fields; those that no operator knows are ignored.
    """
    places = {name: i for i, name in enumerate(columns)}
    groups: dict[_Key, _Group] = {}
    problems: dict[int, str] = {}
    for place, fields in enumerate(rows):
        try:
            _read_row(place, _Fields(places, fields), groups)
        except RowError as error:
            problems[place] = str(error)
    batches = tuple(
        BatchOfRows(_make_batch(key, group), key.gpu, np.array(group.places)) for key, group in groups.items()
    )
    return OperatorRows(batches, problems, len(rows))


class _Fields:
    """Fields of a row by column; a column that is missing or a row that is short is empty."""

    __slots__ = ("_fields", "_places")

    def __init__(self, places: Mapping[str, int], fields: Sequence[str]) -> None:
        self._places, self._fields = places, fields

    def find(self, name: str) -> str:
        place = self._places.get(name, -1)
        return self._fields[place].strip() if 0 <= place < len(self._fields) else ""


def _read_row(place: int, fields: _Fields, groups: dict[_Key, _Group]) -> None:
    """Add a row to its group. Raises RowError, and adds nothing then."""
    operator = _read_operator(fields.find("operator"))
    columns = OPERATOR_COLUMNS[operator]
    gpu = fields.find("gpu")
    if not gpu:
        raise RowError("no gpu")
    dtype = _read_dtype(fields.find("dtype"), columns.default_dtype)
    if operator is Operator.SCALED_MM and dtype is DataType.FP8:
        dtype = DataType.FP8_BLOCK  # the operator is block-scaled
    key = _Key(operator, gpu, dtype, tuple(_read_choice(name, fields) for name in columns.choices))
    sizes = [_read_size(size, fields.find(size.name)) for size in columns.sizes]
    lengths = [_read_lengths(name, fields.find(name)) for name in LENGTH_COLUMNS if columns.has_lengths]
    if lengths:
        _check_lengths(lengths[0], lengths[1])
    group = groups.setdefault(key, _Group(len(sizes)))
    group.places.append(place)
    for column, size in zip(group.sizes, sizes, strict=True):
        column.append(size)
    for kept, found in zip(group.lengths, lengths, strict=False):
        kept.append(found)


def _read_operator(text: str) -> Operator:
    try:
        return Operator(text.lower())
    except ValueError:
        names = ", ".join(Operator)
        raise RowError(f"no operator {text!r}: one of {names}" if text else "no operator") from None


def _read_dtype(text: str, default: DataType) -> DataType:
    if not text:
        return default
    name = text.lower()
    try:
        return DATA_TYPE_ALIASES.get(name) or DataType(name)
    except ValueError:
        raise RowError(f"no data type {text!r}: one of {', '.join(DataType)}") from None


def _read_choice(column: str, fields: _Fields) -> str:
    names, default = _CHOICES[column]
    text = fields.find(column).lower() or default
    try:
        return names(text).value if text else ""
    except ValueError:
        raise RowError(f"{column} {text!r}: one of {', '.join(names)}") from None


def _read_size(size: SizeColumn, text: str) -> float:
    if not text:
        if size.default is None:
            raise RowError(f"no {size.name}")
        return size.default
    try:
        value = float(text)
    except ValueError:
        raise RowError(f"{size.name} {text!r} is no number") from None
    if not (math.isfinite(value) and value == math.floor(value) and 1.0 <= value <= _LARGEST):
        raise RowError(f"{size.name} {text!r} is no whole number from 1 to {_LARGEST:.0e}")
    return value


def _read_lengths(name: str, text: str) -> list[float]:
    """Return a list written as JSON, or one number."""
    if not text:
        raise RowError(f"no {name}")
    try:
        found = msgspec.json.decode(text if text.startswith("[") else f"[{text}]", type=list[float])
    except msgspec.DecodeError:
        raise RowError(f"{name} {text[:40]!r} is no list such as [128, 1024]") from None
    if not 1 <= len(found) <= _MOST_LENGTHS:
        raise RowError(f"{name} has {len(found):,} lengths: 1 to {_MOST_LENGTHS:,} can be answered")
    if not all(1.0 <= value <= _LARGEST and value == math.floor(value) for value in found):
        raise RowError(f"{name}: each length is a whole number of at least 1")
    return found


def _check_lengths(q_lengths: list[float], kv_lengths: list[float]) -> None:
    if len(q_lengths) != len(kv_lengths):
        raise RowError(f"{len(q_lengths)} q_lengths, but {len(kv_lengths)} kv_lengths")


def _make_batch(key: _Key, group: _Group) -> OperatorBatch:
    columns = OPERATOR_COLUMNS[key.operator]
    fields: dict[str, Column | RaggedLengths | AttentionKind | MoeProduct | Backend] = {
        size.field or size.name: np.array(values, dtype=np.float64)
        for size, values in zip(columns.sizes, group.sizes, strict=True)
    }
    if columns.has_lengths:
        fields |= {
            name: make_ragged(values) for name, values in zip(LENGTH_COLUMNS, group.lengths, strict=True)
        }
    for column, name in zip(columns.choices, key.choices, strict=True):
        if name:
            fields[column] = _CHOICES[column][0](name)
    make = _BATCH_TYPES.get(key.operator, RowwiseBatch)
    batch: OperatorBatch = make(operator=key.operator, dtype=key.dtype, **fields)
    return batch


def make_ragged(lists: Sequence[Sequence[float]]) -> RaggedLengths:
    """Return lists of lengths as one array with offsets."""
    offsets = np.zeros(len(lists) + 1, dtype=np.int64)
    offsets[1:] = np.cumsum([len(each) for each in lists])
    values = np.fromiter(
        (value for each in lists for value in each), dtype=np.float64, count=int(offsets[-1])
    )
    return RaggedLengths(values, offsets)
