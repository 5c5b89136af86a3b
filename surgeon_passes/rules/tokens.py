"""A rule's text cut into tokens that know where they stand, and errors that point at them.

Brackets are balanced here, before anything is parsed: an open one would otherwise swallow the lines that follow, and
the error would point at the wrong one.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from surgeon_passes.errors import RuleError
from surgeon_passes.rules.pattern import NOWHERE, Scalar, Span

MAX_DEPTH = 64
"""Brackets within brackets. Far beyond any rule, and well below Python's recursion limit."""

_CLOSERS = {"(": ")", "[": "]", "<": ">", "{": "}"}
_CONSTANTS: dict[str, Scalar] = {"true": True, "false": False, "inf": math.inf, "nan": math.nan}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}

_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\r]+ | \#.*)
    | (?P<string>"(?:[^"\\]|\\.)*")
    | (?P<number>[+-]?\.?\d(?:[eE][+-]\d|[\w.])* | [+-]inf\b)
    | (?P<ident>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    | (?P<punct>\.\.\. | [()\[\]<>{},=|?:@])
    """,
    re.VERBOSE | re.ASCII,
)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Source:
    """One text of a rule, as its author counts its lines."""

    rule: str
    part: str
    """ "pattern", "rewrite" or "rewrite 'drop'"."""
    text: str

    @classmethod
    def of(cls, rule: str, part: str, raw: str) -> Source:
        """Dedent ``raw`` and drop its leading blank lines; spans refer to what is left."""
        lines = textwrap.dedent(raw.replace("\r\n", "\n")).rstrip().split("\n")
        while len(lines) > 1 and not lines[0].strip():
            del lines[0]
        return cls(rule, part, "\n".join(lines))

    def line(self, number: int) -> str:
        """The line with that 1-based number, or "" where there is none (a pattern built without text)."""
        lines = self.text.split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def error(self, message: str, span: Span) -> RuleError:
        """The error that says ``message`` and shows the span with carets under it."""
        if span == NOWHERE or (not self.text and span.line != 1):
            return RuleError(f"{self.rule}, {self.part}: {message}")
        # One column each, so that the carets stand right under tabs and control characters, too.
        shown = "".join(c if c.isprintable() else " " for c in self.line(span.line))
        carets = " " * span.start + "^" * max(1, span.end - span.start)
        return RuleError(f"{self.rule}, {self.part} line {span.line}: {message}", f"    {shown}\n    {carets}")

    def find(self, word: str, near: Span) -> Span:
        """Where ``word`` stands on the line of ``near``, from its start on; ``near`` itself where it does not."""
        found = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)").search(self.line(near.line), near.start)
        return Span(near.line, found.start(), found.end()) if found else near


@dataclass(frozen=True, slots=True)
class Token:
    """``kind`` is "ident", "number", "string", "newline", "end", or the punctuation itself."""

    kind: str
    text: str
    span: Span
    value: Scalar = ""
    """What a number or string stands for."""

    def __str__(self) -> str:
        return "the end of the line" if self.kind in ("newline", "end") else f"'{self.text}'"


def tokenize(source: Source) -> list[Token]:
    """All tokens of a text; a "newline" ends each logical line, an "end" the text.

    Raises:
        RuleError: a character, number or string that is none, or brackets that do not match.
    """
    tokens: list[Token] = []
    opened: list[Token] = []
    for number, line in enumerate(source.text.split("\n"), start=1):
        fresh = list(_line_tokens(source, number, line))
        for token in fresh:
            _balance(source, token, opened)
        if fresh and fresh[0].kind == "|" and tokens and tokens[-1].kind == "newline":
            tokens.pop()
        tokens += fresh
        if fresh and not opened:
            end = fresh[-1].span.end
            tokens.append(Token("newline", "", Span(number, end, end + 1)))
    if opened:
        raise source.error(f"'{opened[-1].text}' is never closed", opened[-1].span)
    tokens.append(Token("end", "", tokens[-1].span if tokens else Span(1, 0, 1)))
    return tokens


def _balance(source: Source, token: Token, opened: list[Token]) -> None:
    if token.kind in _CLOSERS:
        opened.append(token)
        if len(opened) > MAX_DEPTH:
            raise source.error(f"brackets are nested more than {MAX_DEPTH} deep", token.span)
    elif token.kind in _CLOSERS.values():
        if not opened:
            raise source.error(f"'{token.text}' closes nothing", token.span)
        opener = opened.pop()
        if _CLOSERS[opener.kind] != token.kind:
            raise source.error(f"'{token.text}' does not close '{opener.text}'", token.span)


def _line_tokens(source: Source, number: int, line: str) -> Iterator[Token]:
    at = 0
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:
            what = "this string is not closed" if line[at] == '"' else f"unexpected character {line[at]!r}"
            raise source.error(what, Span(number, at, at + 1))
        at = match.end()
        if match.lastgroup != "blank":
            yield _token(source, str(match.lastgroup), match.group(), Span(number, match.start(), at))


def _token(source: Source, group: str, text: str, span: Span) -> Token:
    if group == "string":
        unescaped = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m.group(1), m.group(1)), text[1:-1])
        return Token("string", text, span, unescaped)
    if group == "number":
        return Token("number", text, span, _number(source, text, span))
    if text in _CONSTANTS:
        return Token("number", text, span, _CONSTANTS[text])
    return Token("ident" if group == "ident" else text, text, span)


def _number(source: Source, text: str, span: Span) -> int | float:
    if _INTEGER.fullmatch(text) and len(text) <= 20:
        integer = int(text)
        if -(2**63) <= integer < 2**64:
            return integer
    if _INTEGER.fullmatch(text):
        raise source.error("this number does not fit 64 bits", span)
    if text[1:] == "inf":
        return math.inf if text[0] == "+" else -math.inf
    if not _FLOAT.fullmatch(text):
        raise source.error(f"bad number '{text}'", span)
    number = float(text)
    if math.isinf(number):
        raise source.error("this number is too large for a float (write inf)", span)
    return number
