"""Facts about operators that onnx does not know: what they take and give, how they behave, what stands for them.

With them a custom operator can be matched with its attributes' defaults, its results have types and shapes, equal ones can
become one, and ONNX Runtime can check what is done around it.
"""

from __future__ import annotations

import operator as operator_module
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import onnx
from onnx import defs, helper

from surgeon_passes.errors import OperatorError
from surgeon_passes.ops.schema import STANDARD, Custom, add_custom, custom_schema
from surgeon_passes.watch import within

if TYPE_CHECKING:
    from surgeon_passes.ops.view import NodeView
    from surgeon_passes.region import TensorType

Parameter = defs.OpSchema.FormalParameter
Option = defs.OpSchema.FormalParameterOption
_PARAMETER = re.compile(r"\s*(\w+)(\?|\.\.\.)?\s*(?::\s*(\w+))?\s*")
FLOATS = ("float", "double", "float16", "bfloat16")
TENSORS = (*FLOATS, *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "bool", "string")


@dataclass(frozen=True, eq=False)
class Operator:
    """``Operator("my.domain.Swish", inputs="x", outputs="y", attributes={"alpha": 1.0})``.

    ``inputs`` and ``outputs`` are names, separated by commas: ``x, w, b?`` (may be missing), ``parts...`` (any number, the
    last), ``n: int64`` (an element type; else all share one type). ``attributes`` have defaults, or ``int``, ``float``,
    ``str``, where one is required. ``commutative``: operands may change places; ``deterministic``: equal nodes give the same.

    ``shape`` gives one shape an output from the operands (``n.shape(0)``, as handlers of ``surgeon_passes.values`` do),
    ``macs`` the multiply-accumulates of a node whose sizes are all known. ``reference`` is an ONNX function in text form:
    where ONNX Runtime does not know the operator, it runs that in its place. Raises OperatorError for what does not fit
    together.
    """

    name: str
    inputs: str
    outputs: str = "y"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    commutative: bool = False
    deterministic: bool = False
    shape: Callable[[Any], Sequence[Any]] | None = None
    macs: Callable[[NodeView, Callable[[Any], TensorType]], int] | None = None
    reference: str | None = None
    schema: defs.OpSchema = field(init=False, repr=False)
    function: onnx.FunctionProto | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.domain or self.domain in STANDARD:
            raise OperatorError(f"operator '{self.name}': write domain and name, as in my.domain.{self.op or 'Swish'}")
        for field_name in ("inputs", "outputs", "reference"):
            value = getattr(self, field_name)
            if not isinstance(value, str) and not (field_name == "reference" and value is None):
                raise OperatorError(f"operator {self.name}: {field_name} is {value!r}, not text")
        object.__setattr__(self, "schema", self._schema())
        object.__setattr__(self, "function", self._function())

    @property
    def domain(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def op(self) -> str:
        return self.name.rpartition(".")[2]

    def sizes(self, n: Any) -> list[Any]:
        """What ``shape`` gives, held against what it may give. Raises OperatorError."""
        from surgeon_passes.values.symbols import Poly

        assert self.shape is not None
        with within(f"the shape function of operator {self.name}"):
            found = self.shape(n)
        try:
            shapes = [None if s is None else tuple(d if isinstance(d, Poly) else _size(d) for d in s) for s in found]
        except (TypeError, ValueError):
            shapes = None
        if shapes is None or isinstance(found, str):
            raise OperatorError(
                f"operator {self.name}: shape gave {found!r}, not one list of sizes (or None) an output"
            )
        return shapes

    def _schema(self) -> defs.OpSchema:
        attributes = [self._attribute(name, value) for name, value in self.attributes.items()]
        constraint = ("T", [f"tensor({t})" for t in TENSORS], "")
        return defs.OpSchema(
            self.op,
            self.domain,
            1,
            inputs=self._parameters(self.inputs),
            outputs=self._parameters(self.outputs),
            type_constraints=[constraint],
            attributes=attributes,
        )

    def _parameters(self, text: str) -> list[Any]:
        found: list[Any] = []
        for part in filter(str.strip, text.split(",")):
            matched = _PARAMETER.fullmatch(part)
            if matched is None or (matched[3] and matched[3] not in ("T", *TENSORS)):
                raise OperatorError(
                    f"operator {self.name}: '{part.strip()}' is no operand; write x, b?, parts... or n: int64"
                )
            if found and found[-1].option == Option.Variadic:
                raise OperatorError(
                    f"operator {self.name}: '{found[-1].name}...' takes all that is left: it must be the last"
                )
            option = {"?": Option.Optional, "...": Option.Variadic}.get(matched[2] or "", Option.Single)
            kind = "T" if matched[3] in (None, "T") else f"tensor({matched[3]})"
            found.append(Parameter(matched[1], kind, param_option=option))
        return found

    def _attribute(self, name: str, value: Any) -> Any:
        kinds = {int: "INT", float: "FLOAT", str: "STRING"}
        if isinstance(value, type):
            if value not in kinds:
                raise OperatorError(
                    f"operator {self.name}: attribute {name} is {value}, not int, float, str or a default"
                )
            return defs.OpSchema.Attribute(name, getattr(defs.OpSchema.AttrType, kinds[value]), required=True)
        try:
            return defs.OpSchema.Attribute(name, helper.make_attribute(name, value))
        except (TypeError, ValueError) as error:
            raise OperatorError(f"operator {self.name}: attribute {name}: {' '.join(str(error).split())}") from None

    def _function(self) -> onnx.FunctionProto | None:
        if self.reference is None:
            return None
        try:
            found = function_of(self.reference)
        except ValueError as error:
            raise OperatorError(f"operator {self.name}: {error}") from None
        if (found.domain, found.name) != (self.domain, self.op):
            raise OperatorError(f"operator {self.name}: its reference defines {found.domain}.{found.name}")
        return found


def _size(dim: Any) -> int | None:
    """Raises ValueError for what is no size."""
    if dim is None:
        return None
    size = operator_module.index(dim)
    if isinstance(dim, bool) or not 0 <= size < 1 << 62:
        raise ValueError(dim)
    return size


def function_of(reference: str) -> onnx.FunctionProto:
    """A function from ONNX text. Raises ValueError with the parser's reason."""
    import onnx.parser

    try:
        return onnx.parser.parse_function(reference)
    except onnx.parser.ParseError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"reference is no ONNX function in text form: {reason}") from None


def register(operator: Operator, source: str = "this script") -> None:
    """Make an operator known. What the same source says again takes the place of what it said; raises OperatorError where
    another source tells of an operator of its name, naming both."""
    held = custom_schema(operator.domain, operator.op)
    if held is not None and held.source != source:
        raise OperatorError(f"two operators are called '{operator.name}': one from {held.source}, one from {source}")
    if held is None or held.facts is not operator:
        from surgeon_passes.values.registry import replace_shape

        add_custom(operator.domain, operator.op, Custom(operator.schema, source, operator))
        replace_shape(operator.name, None if operator.shape is None else operator.sizes)


def find(domain: str | None, op: str) -> Operator | None:
    """What is known of a custom operator."""
    held = custom_schema(domain or "", op) if domain else None
    return held.facts if held is not None else None
