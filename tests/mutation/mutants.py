# SPDX-FileCopyrightText: 2026 The Residency authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the places of headers where a plausible mistake fits, on the syntax that libclang sees, and writes the mistakes.

A mutant replaces one range of a header's bytes. Its text has two forms: plain, as a programmer would have written the mistake, and
switched, where the header is right until `::mutation::is_on(number)` says otherwise, so that one program holds many mutants."""

import bisect
import collections
import dataclasses
import pathlib
import re
import subprocess
import sys

# A Python module without compiled parts: any interpreter can load the one that the distribution installs for its own.
sys.path.append("/usr/lib/python3/dist-packages")
try:
    import clang.cindex as cindex
except ImportError:
    sys.exit("tests/mutation: no libclang for Python: install python3-clang-19")
from clang.cindex import CursorKind as Kind, TypeKind

# Operator: the mistake.
OPERATORS = {
    "relational": "< is <=, <= is <, > is >=, >= is >",
    "equality": "== is !=, != is ==",
    "logical": "&& is ||, || is &&",
    "left-only": "the right operand of && or || is left out",
    "right-only": "the left operand of && or || is left out",
    "never": "a condition is false; an early return is never taken",
    "always": "a condition is true (not that of an early return)",
    "checked-call": "`if (auto x = f(); !x) { return x.error(); }` is left out",
    "statement": "a call, an assignment, an increment or a decrement is left out",
    "order": "a checked call comes after the statement that follows it",
    "term": "the right operand of + or - is left out",
    "min-max": "std::min is std::max, std::max is std::min",
    "exchange": "std::exchange(x, y) is x",
    "literal": "an argument or a returned value: 0 is 1, 1 is 0, false is true, true is false",
    "loop-begin": "a loop that counts up starts one later",
    "loop-end": "a loop that counts up ends one sooner",
    "range-begin": "a range-based loop leaves out the first element",
}

SWAPS = {b"<": ("relational", b"<="), b"<=": ("relational", b"<"), b">": ("relational", b">="), b">=": ("relational", b">"),
         b"==": ("equality", b"!="), b"!=": ("equality", b"=="), b"&&": ("logical", b"||"), b"||": ("logical", b"&&")}
LITERALS = {b"0": b"1", b"1": b"0", b"false": b"true", b"true": b"false"}
FUNCTIONS = {Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.CONVERSION_FUNCTION,
             Kind.FUNCTION_TEMPLATE}
CLASSES = {Kind.CLASS_DECL, Kind.STRUCT_DECL, Kind.UNION_DECL, Kind.CLASS_TEMPLATE, Kind.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION}
TRANSPARENT = {Kind.UNEXPOSED_EXPR, Kind.PAREN_EXPR}
# Evaluated by the compiler alone.
UNEVALUATED = {Kind.STATIC_ASSERT, Kind.CXX_UNARY_EXPR, Kind.PARM_DECL, Kind.TYPE_REF, Kind.TEMPLATE_REF, Kind.CXX_TYPEID_EXPR}
JUMPS = {Kind.RETURN_STMT, Kind.CONTINUE_STMT, Kind.BREAK_STMT, Kind.CXX_THROW_EXPR}


@dataclasses.dataclass
class Mutant:
    header: str      # below include/residency
    function: str    # with its classes, without namespaces
    operator: str
    begin: int       # the bytes that are replaced
    end: int
    plain: bytes     # what replaces them
    wide: tuple      # the bytes that are replaced where the mutant is switched
    switched: bytes  # what replaces those, with IS_ON in it; empty: it cannot be switched
    line: int = 0
    name: str = ""   # header, function, operator and ordinal in the function
    number: int = 0


IS_ON = b"@IS_ON@"  # stands for the call in `switched`


class Places:
    """Walks one header, and notes every place where an operator fits."""

    def __init__(self, header, text):
        self.header = header
        self.text = text
        self.found = {}
        self.functions = []

    def declarations(self, cursor, scope):
        if cursor.kind in FUNCTIONS:
            if cursor.is_definition():
                self.function(cursor, scope)
        elif cursor.kind in CLASSES or cursor.kind == Kind.NAMESPACE:
            inner = scope if cursor.kind == Kind.NAMESPACE else f"{scope}{cursor.spelling}::"
            for child in cursor.get_children():
                self.declarations(child, inner)

    def function(self, cursor, scope):
        if not scope:  # defined outside of its class
            parent = cursor.semantic_parent
            while parent is not None and parent.kind in CLASSES:
                scope = f"{parent.spelling}::{scope}"
                parent = parent.semantic_parent
        name = cursor.spelling.split("<")[0] if "operator" not in cursor.spelling else cursor.spelling.replace(" ", "")
        self.functions.append(scope + name)
        initialising = False
        for child in cursor.get_children():
            initialising = initialising or child.kind == Kind.MEMBER_REF
            if child.kind == Kind.COMPOUND_STMT or (cursor.kind == Kind.CONSTRUCTOR and initialising):
                self.visit(child, cursor)

    def slice(self, cursor):
        begin, end = cursor.extent.start.offset, cursor.extent.end.offset
        return begin, end, self.text[begin:end]

    def note(self, operator, begin, end, plain, switched, wide=None):
        wide = wide or (begin, end)
        if re.search(rb"^\s*#", self.text[wide[0]:wide[1]], re.MULTILINE):
            switched = b""
        switched = re.sub(rb"//[^\n]*", b"", switched)
        self.found.setdefault((begin, end, plain), Mutant(
            self.header, self.functions[-1], operator, begin, end, plain, wide, switched))

    def choose(self, operator, begin, end, mistake, cast=b""):
        """A mutant of an expression."""
        self.note(operator, begin, end, mistake,
                  b"(" + IS_ON + b" ? " + cast + b"(" + mistake + b") : " + cast + b"(" + self.text[begin:end] + b"))")

    def visit(self, cursor, parent):
        """parent: the nearest ancestor that is neither in parentheses nor an implicit conversion."""
        kind = cursor.kind
        if kind in UNEVALUATED:
            return
        begin, end, text = self.slice(cursor)
        if text.startswith((b"RESIDENCY_", b"constexpr ", b"static constexpr ")):
            return
        children = list(cursor.get_children())
        if kind == Kind.IF_STMT:
            children = self.if_statement(cursor, children)
        elif kind == Kind.FOR_STMT:
            self.for_statement(begin, children)
        elif kind == Kind.CXX_FOR_RANGE_STMT:
            self.range_statement(begin, children)
        elif kind == Kind.CONDITIONAL_OPERATOR and len(children) == 3:
            self.condition(children[0])
        elif kind == Kind.CASE_STMT:
            children = children[1:]
        elif kind == Kind.COMPOUND_STMT:
            self.statements(children)
        elif kind in (Kind.INTEGER_LITERAL, Kind.CXX_BOOL_LITERAL_EXPR):
            if parent.kind in (Kind.CALL_EXPR, Kind.RETURN_STMT) and text in LITERALS:
                self.choose("literal", begin, end, LITERALS[text])
        elif kind == Kind.LAMBDA_EXPR:
            children = [child for child in children if child.kind == Kind.COMPOUND_STMT]
        elif kind.is_expression():
            self.expression(cursor, begin, end, text, children)
        for child in children:
            self.visit(child, parent if kind in TRANSPARENT else cursor)

    def expression(self, cursor, begin, end, text, children):
        if cursor.kind == Kind.CALL_EXPR:
            if called := re.match(rb"\(?std::(min|max)\)?(?=\()", text):
                other = b"min" if called[1] == b"max" else b"max"
                self.choose("min-max", begin, end, b"(std::" + other + b")" + text[called.end():])
            elif (called := re.match(rb"std::exchange\(", text)) and len(arguments := list(cursor.get_arguments())) == 2:
                _, _, object_text = self.slice(arguments[0])
                self.choose("exchange", begin, end, object_text)
        if len(children) < 2:
            return
        left, right = self.slice(children[0]), self.slice(children[-1])
        if left[0] != begin or right[1] != end or left[1] > right[0] or not left[2] or not right[2]:
            return
        sign = self.text[left[1]:right[0]].strip()
        if sign in SWAPS:
            operator, other = SWAPS[sign]
            at = self.text.index(sign, left[1])
            mistake = self.text[begin:at] + other + self.text[at + len(sign):end]
            self.note(operator, at, at + len(sign), other, b"(" + IS_ON + b" ? (" + mistake + b") : (" + text + b"))", (begin, end))
            if sign in (b"&&", b"||"):
                self.choose("left-only", begin, end, left[2], b"static_cast<bool>")
                self.choose("right-only", begin, end, right[2], b"static_cast<bool>")
        elif sign in (b"+", b"-"):
            kinds = [each.type.get_canonical().kind for each in (cursor, children[0])]
            difference = kinds[0] != kinds[1] and kinds[1] in (TypeKind.POINTER, TypeKind.RECORD)
            is_text = b'"' in text or b"to_string" in text  # what a message says is not for the programs
            if kinds[0] != TypeKind.RECORD and not difference and not is_text:
                self.choose("term", begin, end, left[2])

    def condition(self, cursor, never=True, always=True):
        begin, end, text = self.slice(cursor)
        if not text or text in (b"true", b"false"):
            return
        if never:
            self.note("never", begin, end, b"false", b"(!" + IS_ON + b" && (" + text + b"))")
        if always:
            self.note("always", begin, end, b"true", b"(" + IS_ON + b" || (" + text + b"))")

    def if_statement(self, cursor, children):
        """The children to visit."""
        begin, _, text = self.slice(cursor)
        if re.match(rb"if\s+constexpr", text):
            return [child for child in children if child.kind in (Kind.COMPOUND_STMT, Kind.IF_STMT)]
        then = next((i for i, child in enumerate(children) if child.kind == Kind.COMPOUND_STMT), None)
        if then is None:
            return children
        condition = children[then - 1]
        declares = any(child.kind == Kind.VAR_DECL for child in children[:then])  # if (auto x = f())
        if condition.kind.is_expression() and not declares:
            inside = list(children[then].get_children())
            alone = then == len(children) - 1
            early = alone and bool(inside) and inside[-1].kind in JUMPS
            covered = alone and len(inside) == 1 and inside[0].kind.is_expression()  # left out by another operator
            self.condition(condition, never=not covered, always=not early)
        return children

    def is_checked_call(self, cursor):
        if cursor.kind != Kind.IF_STMT:
            return False
        children = list(cursor.get_children())
        if len(children) != 3 or children[0].kind != Kind.DECL_STMT or children[2].kind != Kind.COMPOUND_STMT:
            return False
        inside = list(children[2].get_children())
        return len(inside) == 1 and inside[0].kind == Kind.RETURN_STMT and self.slice(children[1])[2].startswith(b"!")

    def with_semicolon(self, cursor):
        """The range of a statement, with its `;` where it is an expression."""
        begin, end, _ = self.slice(cursor)
        if cursor.kind.is_expression():
            rest = re.match(rb"\s*;", self.text[end:end + 80])
            return (begin, end + rest.end()) if rest else None
        return begin, end

    def statements(self, children):
        for i, child in enumerate(children):
            begin, end, text = self.slice(child)
            if self.is_checked_call(child):
                self.note("checked-call", begin, end, b"{}", b"if (" + IS_ON + b") {} else " + text)
                if i + 1 < len(children) and not text.startswith(b"RESIDENCY_"):
                    self.order(child, children[i + 1])
            elif child.kind.is_expression() and text and not text.startswith(b"RESIDENCY_") and self.with_semicolon(child):
                stripped = self.unwrapped(child)
                assigns = stripped.kind in (Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR, Kind.UNARY_OPERATOR)
                if assigns or stripped.kind == Kind.CALL_EXPR or (stripped.kind in TRANSPARENT and b"(" in text):
                    self.note("statement", begin, end, b"", b"if (" + IS_ON + b") {} else " + text)

    def unwrapped(self, cursor):
        while cursor.kind in TRANSPARENT and len(children := list(cursor.get_children())) == 1:
            cursor = children[0]
        return cursor

    def order(self, first, second):
        a, b = self.with_semicolon(first), self.with_semicolon(second)
        if b is None or second.kind not in (Kind.DECL_STMT, Kind.IF_STMT) and not second.kind.is_expression():
            return
        if second.kind == Kind.IF_STMT and not self.is_checked_call(second):
            return
        texts = [self.text[x[0]:x[1]] for x in (a, b)]
        if b"(" not in texts[1] or texts[1].startswith(b"RESIDENCY_") or second.kind == Kind.DECL_STMT and b"{" in texts[1]:
            return
        between = self.text[a[1]:b[0]]
        mistake = texts[1] + between + texts[0]
        switched = b"if (" + IS_ON + b") { " + mistake + b" } else { " + self.text[a[0]:b[1]] + b" }"
        self.note("order", a[0], b[1], mistake, b"" if second.kind == Kind.DECL_STMT else switched)

    def for_statement(self, begin, children):
        if len(children) != 4 or children[0].kind != Kind.DECL_STMT or b"++" not in self.slice(children[2])[2]:
            return
        variable = next((child for child in children[0].get_children() if child.kind == Kind.VAR_DECL), None)
        inits = list(variable.get_children()) if variable else []
        if inits and inits[-1].kind.is_expression() and self.slice(inits[-1])[2]:
            first, last, value = self.slice(inits[-1])
            if b"=" in self.text[variable.extent.start.offset:first]:
                later = b"1" if value == b"0" else value + b" + 1"
                self.choose("loop-begin", first, last, later)
        first, last, condition = self.slice(children[1])
        parts = list(children[1].get_children())
        if len(parts) >= 2:
            left, right = self.slice(parts[0]), self.slice(parts[-1])
            if left[0] == first and right[1] == last and self.text[left[1]:right[0]].strip() == b"<":
                self.choose("loop-end", first, last, left[2] + b" + 1" + self.text[left[1]:last])

    def range_statement(self, begin, children):
        body = children[-1]
        inner, _, _ = self.slice(body)
        opening = self.text.find(b"(", begin)
        if body.kind != Kind.COMPOUND_STMT or opening < 0 or opening > inner:
            return
        if re.match(rb"[^:]*;", self.text[opening:inner]):
            return  # the loop has a variable of its own
        between = self.text[opening + 1:inner + 1]

        def text(skip):
            return b"bool mutant_skips = " + skip + b"; " + between + b" if (mutant_skips) { mutant_skips = false; continue; }"
        self.note("range-begin", opening + 1, inner + 1, text(b"true"), text(IS_ON))


def resource_folder():
    """Where the compiler's own headers are, if libclang came without them."""
    for compiler in ("clang++-19", "clang++"):
        try:
            return subprocess.run([compiler, "-print-resource-dir"], capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            continue
    return None


def parse(include, headers, extra=None):
    """The places of headers (below include/residency) by libclang: a list of mutants in the order of the text, named and numbered.
    Exits where a header does not compile."""
    source = "".join(f'#include "residency/{header}"\n' for header in headers)
    arguments = ["-x", "c++", "-std=c++20", f"-I{include}"]
    if folder := resource_folder():
        arguments += ["-resource-dir", folder]
    name = str(include / "mutants.cpp")
    unsaved = [(name, source)] + [(str(include / "residency" / header), text) for header, text in (extra or {}).items()]
    unit = cindex.Index.create().parse(name, args=arguments, unsaved_files=unsaved)
    errors = [str(each) for each in unit.diagnostics if each.severity >= cindex.Diagnostic.Error]
    if errors:
        sys.exit("the headers do not compile:\n" + "\n".join(errors[:20]))
    texts = {header: (extra or {}).get(header, "").encode() or (include / "residency" / header).read_bytes() for header in headers}
    walkers = {str(include / "residency" / header): Places(header, texts[header]) for header in headers}
    for cursor in unit.cursor.get_children():
        file = cursor.location.file
        if file is not None and (places := walkers.get(file.name)):
            places.declarations(cursor, "")
    mutants = []
    for places in walkers.values():
        mutants += finish(places)
    for number, mutant in enumerate(mutants):
        mutant.number = number
    return mutants, texts


def finish(places):
    """Names and lines."""
    breaks = [i for i, byte in enumerate(places.text) if byte == 10]
    counted = collections.Counter()
    ordered = sorted(places.found.values(), key=lambda each: (each.begin, each.end, each.operator))
    for mutant in ordered:
        kind = (mutant.function, mutant.operator)
        counted[kind] += 1
        mutant.line = bisect.bisect_left(breaks, mutant.begin) + 1
        mutant.name = f"{mutant.header}/{mutant.function}/{mutant.operator}/{counted[kind]}"
    return ordered
