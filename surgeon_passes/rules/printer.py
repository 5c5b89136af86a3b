"""Patterns and rewrites as text that parses to equal dataclasses. Comments and layout are not kept."""

from __future__ import annotations

from surgeon_passes.rules.pattern import (
    Alternatives,
    AttrPattern,
    Attrs,
    Call,
    Capture,
    Definition,
    Emit,
    Flat,
    Literal,
    NameRef,
    OutputName,
    Pattern,
    Rewrite,
    RewriteLine,
    RewriteValue,
    SameOp,
    Template,
    TemplateUse,
    Value,
)

_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def unparse(pattern: Pattern) -> str:
    """The pattern as text, templates first."""
    lines = [_template(template) for template in pattern.templates.values()]
    lines += [_definition(definition) for definition in pattern.definitions]
    return "\n".join(lines)


def unparse_rewrite(rewrite: Rewrite) -> str:
    """The rewrite as text."""
    return "\n".join(_line(line) for line in rewrite.lines)


def _template(template: Template) -> str:
    options = " | ".join(unparse_value(option) for option in template.options)
    return f"{template.name}({', '.join(template.params)}) = {options}"


def _definition(definition: Definition) -> str:
    return f"{', '.join(_output(output) for output in definition.outputs)} = {unparse_value(definition.value)}"


def _output(output: OutputName) -> str:
    return f"{output.name or _string('')}{'?' if output.optional else ''}{'...' if output.variadic else ''}"


def unparse_value(value: Value | TemplateUse) -> str:
    """One value of a pattern as text."""
    match value:
        case NameRef():
            return _name(value)
        case Literal():
            return _literal(value.value)
        case Call():
            operators = "|".join(str(op) for op in value.ops)
            return f"{operators}({_list(value.args)}){_attr_patterns(value.attrs)}"
        case Alternatives():
            return " | ".join(unparse_value(option) for option in value.options)
        case Flat():
            return f"{value.kind}({_list(value.args)})"
        case TemplateUse():
            return f"{value.template}({', '.join(value.params)})..."


def _list(values: tuple[Value | TemplateUse, ...]) -> str:
    return ", ".join(unparse_value(value) for value in values)


def _name(name: NameRef) -> str:
    marker = "" if name.kind == "any" else f": {name.kind}"
    return f"{name.name}{'?' if name.optional else ''}{'...' if name.variadic else ''}{marker}"


def _literal(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_literal(item) for item in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return _string(value) if isinstance(value, str) else repr(value)


def _string(value: str) -> str:
    return f'"{value.translate(_ESCAPED)}"'


def _attr_patterns(attrs: tuple[AttrPattern, ...]) -> str:
    return f"<{', '.join(_attr(attr.name, attr.value) for attr in attrs)}>" if attrs else ""


def _attr(name: str, value: Literal | Capture) -> str:
    return f"{name}=@{value.name}" if isinstance(value, Capture) else f"{name}={_literal(value.value)}"


def _line(line: RewriteLine) -> str:
    return f"{', '.join(output or _string('') for output in line.outputs)} = {_rewrite_value(line.value)}"


def _rewrite_value(value: RewriteValue) -> str:
    match value:
        case NameRef():
            return _name(value)
        case Literal():
            return _literal(value.value)
        case Emit():
            operator = f"@{value.op.name}" if isinstance(value.op, SameOp) else str(value.op)
            return f"{operator}({', '.join(_rewrite_value(arg) for arg in value.args)}){_attrs(value.attrs)}"


def _attrs(attrs: Attrs) -> str:
    items = [f"@{attrs.base}"] if attrs.base else []
    items += [_attr(name, value) for name, value in attrs.items]
    return f"<{', '.join(items)}>" if items else ""
