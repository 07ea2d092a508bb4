# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers out of C headers: the headers stay the one source of every constant.

Reads the lines ``#define NAME number-expression`` of hmm_gpu_hw.h, protocol.h and
hmm_gpu_drm.h.  An expression is made of numbers, character constants, names defined
above it, parentheses and the integer operators of C.  Every other definition (strings,
casts, macros with arguments) is left out, so that using it is an AttributeError that
names it, never a wrong number.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

from hmmbench.base import paths

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+(\S.*)$")
_COMMENT = re.compile(r"/\*.*?(\*/|$)|//.*$")
_NUMBER = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)[uUlL]*\b")
_CHAR = re.compile(r"'([^'\\])'")

_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_,
    ast.BitXor: operator.xor,
}
_UNARY: dict[type[ast.unaryop], Callable[[int], int]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


class Header(Mapping[str, int]):
    """The constants of one header, as attributes (``hw.HG_REG_ID``) and as a mapping."""

    def __init__(self, values: Mapping[str, int], source: str) -> None:
        self._values = dict(values)
        self._source = source

    def __getattr__(self, name: str) -> int:
        # Only called for what is no real attribute; "_" names are lookups by copy/pickle.
        if not name.startswith("_") and name in self._values:
            return self._values[name]
        raise AttributeError(f"{self._source} defines no number {name}")

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def names(self, prefix: str) -> dict[int, str]:
        """Value to name (without the prefix) for one enumeration, for messages and reports."""
        return {v: n[len(prefix) :] for n, v in self._values.items() if n.startswith(prefix)}


def _python_number(match: re.Match[str]) -> str:
    digits = match.group(1)
    if len(digits) > 1 and digits[0] == "0" and digits.isdigit():
        return str(int(digits, 8))
    return digits


def _evaluate(node: ast.expr, known: Mapping[str, int]) -> int | None:
    """The value of an expression, None if it holds anything that is no integer arithmetic."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        operand = _evaluate(node.operand, known)
        return None if operand is None else _UNARY[type(node.op)](operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _evaluate(node.left, known), _evaluate(node.right, known)
        if left is None or right is None:
            return None
        try:
            return _BINARY[type(node.op)](left, right)
        except (ZeroDivisionError, ValueError):
            return None
    return None


def parse(text: str, source: str = "header") -> Header:
    """Parse the text of a header; a later definition of a name replaces an earlier one."""
    values: dict[str, int] = {}
    in_comment = False
    for line in text.splitlines():
        # A "#define" inside a comment of several lines is prose.
        if in_comment:
            _, end, line = line.partition("*/")
            if not end:
                continue
            in_comment = False
        stripped = _COMMENT.sub(" ", line)
        in_comment = any(
            m.group(0).startswith("/*") and not m.group(1) for m in _COMMENT.finditer(line)
        )
        match = _DEFINE.match(stripped)
        if not match:
            continue
        expression = _CHAR.sub(lambda m: str(ord(m.group(1))), match.group(2)).strip()
        expression = _NUMBER.sub(_python_number, expression).replace("/", "//")
        try:
            tree = ast.parse(expression, mode="eval")
        except (SyntaxError, ValueError):
            continue
        value = _evaluate(tree.body, values)
        if value is not None:
            values[match.group(1)] = value
    return Header(values, source)


def load(path: Path) -> Header:
    """Parse a header file.  Raises OSError if it cannot be read."""
    return parse(path.read_text(encoding="utf-8"), path.name)


@cache
def hardware() -> Header:
    """The constants of hmm_gpu_hw.h.  Raises OSError if it cannot be read."""
    return load(paths.device_sources() / "include" / "hmm_gpu_hw.h")
