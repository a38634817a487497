"""Turns nested text into operations with typed values.

Types are found in one pass over the operations in the order in which their values are defined: an operation
lists types in its text, and its rule says which of them its results have. Where blocks branch to each other,
a block comes after those that dominate it, which reverse post-order of the branches gives.

Names are made unique in each function: regions beside each other may use one name for different values.
"""

from collections import Counter
from collections.abc import Iterable

from analyzer.frontend.triton.aliases import AliasTable
from analyzer.frontend.triton.formatting import UNIT
from analyzer.frontend.triton.normal_form import (
    normalize_attributes,
    normalize_regions,
    split_branch_operands,
)
from analyzer.frontend.triton.operation_table import TOKEN_TYPE
from analyzer.frontend.triton.rules import Derivation
from analyzer.frontend.triton.shapes import (
    NO_SLOT,
    AttributeSource,
    HeaderArgument,
    OperationShape,
    ShapeTable,
    compile_label,
)
from analyzer.frontend.triton.splitter import RawBlock, RawOperation
from analyzer.frontend.triton.syntax_errors import TritonSyntaxError
from analyzer.ir.tile_operations import (
    Attribute,
    Block,
    DenseAttribute,
    DictionaryAttribute,
    IrType,
    OpaqueType,
    Operation,
    Region,
    ScalarType,
    StringAttribute,
    TensorType,
    Value,
    dereference,
)

_UNKNOWN_TYPE = OpaqueType("")
_BOOLEAN = ScalarType("i1")
_INDEX = ScalarType("index")
_MAX_RESULTS = 1 << 10  # of one operation
_MAX_VALUES = 1 << 18  # of a function
_DIGITS = "-0123456789"


class FunctionBuilder:
    """State while the operations of one function are built."""

    def __init__(self, aliases: AliasTable, shapes: ShapeTable, unknown: Counter[str]) -> None:
        self.aliases = aliases
        self.shapes = shapes
        self.unknown = unknown
        self.values: dict[str, Value] = {}  # by the name in the text, of the regions that are open
        self._used: dict[str, int] = {}
        self._hidden: list[tuple[str, Value | None]] = []  # what names meant before, to undo

    def build_operation(self, raw: RawOperation) -> Operation:
        """Build an operation with its regions. Raises TritonSyntaxError."""
        skeleton, kinds, slots = raw.shape
        try:
            return self._build_shaped(raw, self.shapes.find(skeleton, kinds), slots)
        except TritonSyntaxError as error:
            if not error.line:
                error.line = raw.line
            raise

    def _build_shaped(self, raw: RawOperation, shape: OperationShape, slots: list[str]) -> Operation:
        if not shape.is_known:
            self.unknown[shape.name] += 1
        values = self.values
        try:
            operands = tuple([values[slots[slot]] for slot in shape.operands])
        except KeyError:
            operands = tuple(self._find_value(slots[slot]) for slot in shape.operands)
        names = _list_result_names(slots, shape)
        types = self._derive_types(shape, slots, len(names), operands) if names else ()
        attributes = self._read_attributes(shape, slots)
        successors: tuple[str, ...] = ()
        successor_operands: tuple[tuple[Value, ...], ...] = ()
        if shape.successors:
            successors = tuple(slots[each.label] for each in shape.successors)
            successor_operands = tuple(
                tuple(self._find_value(slots[slot]) for slot in each.operands) for each in shape.successors
            )
            if shape.is_generic:
                operands, successor_operands = split_branch_operands(
                    shape.name, operands, len(successors), attributes
                )
        regions = self._build_regions(raw, shape, slots, operands, types) if raw.regions else ()
        location = shape.location
        operation = Operation(
            name=shape.name,
            results=tuple([self.declare(name, type_) for name, type_ in zip(names, types, strict=True)]),
            operands=operands,
            attributes=normalize_attributes(shape.rule, attributes, shape.segment_sizes),
            regions=regions,
            line=raw.line,
            source_line=None if location == NO_SLOT else self.aliases.read_place(slots[location]).source_line,
            successors=successors,
            successor_operands=successor_operands,
        )
        return normalize_regions(operation, shape.rule.implicit_terminator) if regions else operation

    def _find_value(self, name: str) -> Value:
        found = self.values.get(name) or (self.values.get(name[:-2]) if name.endswith("#0") else None)
        if found is None:
            raise TritonSyntaxError(
                f"{name} is not defined before", piece=name, hint="the file seems cut or edited by hand"
            )
        return found

    def declare(self, name: str, type_: IrType) -> Value:
        """Return a new value for a name of the text, which the value has unless another has it already."""
        unique = name
        used = self._used
        while unique in used:
            used[name] += 1
            base, number, pack = name.partition("#")
            unique = f"{base}.{used[name]}{number}{pack}"
        used[unique] = 1
        if len(used) > _MAX_VALUES:
            raise TritonSyntaxError(f"more than {_MAX_VALUES} values in a function")
        value = Value(unique, type_)
        self._hidden.append((name, self.values.get(name)))
        self.values[name] = value
        return value

    def _derive_types(
        self, shape: OperationShape, slots: list[str], n_results: int, operands: tuple[Value, ...]
    ) -> tuple[IrType, ...]:
        """Return the types of the results."""
        rule = shape.rule
        if shape.result_types is not None and (rule.derivation is not Derivation.TOKEN or shape.is_generic):
            found = tuple([self._read_type(slots[slot], rule.elided_type) for slot in shape.result_types])
            if len(found) == n_results:
                return found
            if rule.derivation is Derivation.SECOND_TOKEN and len(found) == n_results - 1:
                return (*found[:1], OpaqueType(TOKEN_TYPE), *found[1:])
            if len(found) == 1:
                return found * n_results
            raise TritonSyntaxError(f"{n_results} results, but types of {len(found)}")
        listed = tuple([self._read_type(slots[slot], rule.elided_type) for slot in shape.listed_types])
        if not listed and shape.name == "arith.constant":  # true, false
            return (_BOOLEAN,) * n_results
        if rule.derivation is Derivation.POINTEE and operands and dereference(operands[0].type) is not None:
            listed = (operands[0].type, *listed)
        return _derive(rule.derivation, listed, n_results)

    def _read_type(self, text: str, elided: str = "") -> IrType:
        """Read a type; `elided` is the name of one that begins with its shape, `<128x64xf16>`."""
        if elided and text.startswith("<") and (text[1].isdigit() or text.startswith("<tensor<")):
            text = elided + text
        return self.aliases.read_type(text)

    def _read_attributes(self, shape: OperationShape, slots: list[str]) -> list[tuple[str, Attribute]]:
        if not shape.attributes and not shape.dictionaries:
            return []
        found = [(each.name, self._read_attribute(each, slots)) for each in shape.attributes]
        for slot in shape.dictionaries:
            dictionary = self.aliases.read_attribute(slots[slot])
            if isinstance(dictionary, DictionaryAttribute):
                found.extend(dictionary.entries)
        return found

    def _read_attribute(self, source: AttributeSource, slots: list[str]) -> Attribute:
        read = self.aliases.read_attribute
        suffix = f" : {source.type_name}" if source.type_name else ""
        if source.is_list:
            texts = [slots[slot] for slot in source.slots]
            return DenseAttribute(
                tuple([read(text + suffix if text[0] in _DIGITS else text) for text in texts])
            )
        if source.word == "unit":
            return UNIT
        if source.word in ("true", "false"):
            return read(source.word)
        if source.word or not source.slots:
            return StringAttribute(source.word)
        return read(" : ".join([slots[slot] for slot in source.slots]) + suffix)

    def _build_regions(
        self,
        raw: RawOperation,
        shape: OperationShape,
        slots: list[str],
        operands: tuple[Value, ...],
        result_types: tuple[IrType, ...],
    ) -> tuple[Region, ...]:
        regions = []
        for index, blocks in enumerate(raw.regions):
            mark = len(self._hidden)
            header = shape.region_arguments[index] if index < len(shape.region_arguments) else ()
            arguments = self._declare_header(header, shape, slots, operands, result_types)
            regions.append(self.build_body(blocks, arguments))
            self._leave(mark)
        return tuple(regions)

    def _leave(self, mark: int) -> None:
        """Forget the names that were declared since a mark."""
        hidden = self._hidden
        while len(hidden) > mark:
            name, before = hidden.pop()
            if before is None:
                del self.values[name]
            else:
                self.values[name] = before

    def _declare_header(
        self,
        header: tuple[HeaderArgument, ...],
        shape: OperationShape,
        slots: list[str],
        operands: tuple[Value, ...],
        result_types: tuple[IrType, ...],
    ) -> tuple[Value, ...]:
        """Declare the arguments that an operation's text gives to a region.

        A loop's counter has the type after the colon, and the others those of the results; an argument of
        `while` has the type of the operand it starts as.
        """
        types: list[IrType] = [each.type for each in operands]
        if shape.name == "scf.for":
            listed = [self.aliases.read_type(slots[slot]) for slot in shape.listed_types[-1:]]
            types = [*(listed or [_INDEX]), *result_types]
        declared = []
        for index, argument in enumerate(header):
            if argument.type != NO_SLOT:
                type_ = self.aliases.read_type(slots[argument.type])
            else:
                type_ = types[index] if index < len(types) else _UNKNOWN_TYPE
            declared.append(self.declare(slots[argument.value], type_))
        return tuple(declared)

    def build_body(self, blocks: list[RawBlock], arguments: tuple[Value, ...]) -> Region:
        """Build the blocks of a region; `arguments` are those of the first one if it has no label."""
        if len(blocks) == 1:
            return Region((self._build_block(blocks[0], "", arguments),))
        labels = [block.label[2][0] if block.label else "^bb0" for block in blocks]
        built: dict[int, Block] = {}
        for index in _order_blocks(blocks, labels):
            built[index] = self._build_block(blocks[index], labels[index], arguments if index == 0 else ())
        return Region(tuple(built[index] for index in range(len(blocks))))

    def _build_block(self, raw: RawBlock, label: str, arguments: tuple[Value, ...]) -> Block:
        if raw.label is not None:
            skeleton, kinds, slots = raw.label
            try:
                shape = compile_label(skeleton, kinds)
                found = [
                    self.declare(slots[each.value], self.aliases.read_type(slots[each.type]))
                    for each in shape.arguments
                ]
            except TritonSyntaxError as error:
                error.line = error.line or raw.line
                raise
            arguments = (*arguments, *found)
        return Block(label, arguments, tuple([self.build_operation(each) for each in raw.operations]))


def _list_result_names(slots: list[str], shape: OperationShape) -> list[str]:
    """Return the names of the results: `%a:2` gives `%a#0` and `%a#1`."""
    if len(shape.results) == 1 and ":" not in slots[shape.results[0]]:
        return [slots[shape.results[0]]]
    names = []
    for slot in shape.results:
        name, colon, number = slots[slot].partition(":")
        if not colon or number == "1":
            names.append(name)
            continue
        if len(number) > 4 or int(number) > _MAX_RESULTS:
            raise TritonSyntaxError(f"more than {_MAX_RESULTS} results", piece=slots[slot])
        names.extend(f"{name}#{index}" for index in range(int(number)))
    return names


def _derive(derivation: Derivation, listed: tuple[IrType, ...], n_results: int) -> tuple[IrType, ...]:
    """Return the types of results that the text does not list behind an arrow."""
    if derivation is Derivation.TOKEN:
        return (OpaqueType(TOKEN_TYPE),) * n_results
    if not listed:
        return (_UNKNOWN_TYPE,) * n_results
    match derivation:
        case Derivation.FIRST:
            return (listed[0],) * n_results
        case Derivation.LAST:
            return (listed[-1],) * n_results
        case Derivation.BOOLEAN:
            return (_reshape(listed[0], _BOOLEAN),) * n_results
        case Derivation.CARRY:
            return (listed[0], _reshape(listed[0], _BOOLEAN))[:n_results]
        case Derivation.POINTEE:  # Triton 2 lists the type of the value itself
            return (dereference(listed[0]) or listed[-1],) * n_results
        case _:
            if len(listed) == n_results:
                return listed
            return (listed[0] if len(listed) == 1 else _UNKNOWN_TYPE,) * n_results


def _reshape(like: IrType, element: ScalarType) -> IrType:
    """Return the type of another element in the shape of a tensor, the element's own for a scalar."""
    return TensorType(like.shape, element, like.layout) if isinstance(like, TensorType) else element


def _order_blocks(blocks: list[RawBlock], labels: list[str]) -> Iterable[int]:
    """Return the indices of the blocks in reverse post-order of the branches; unreachable ones at the end."""
    by_label = {label: index for index, label in enumerate(labels)}
    following = [
        [by_label[slot] for slot in block.operations[-1].shape[2] if slot in by_label]
        if block.operations
        else []
        for block in blocks
    ]
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(following[0]))]
    while stack:
        index, rest = stack[-1]
        step = next(rest, None)
        if step is None:
            order.append(index)
            stack.pop()
        elif step not in seen:
            seen.add(step)
            stack.append((step, iter(following[step])))
    return [*reversed(order), *(index for index in range(len(blocks)) if index not in seen)]
