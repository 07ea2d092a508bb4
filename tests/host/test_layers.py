# SPDX-License-Identifier: GPL-2.0-or-later
"""Uses between the layers of a part (its file LAYERS, lowest first) go down only.

An import within a function counts as any other; what is imported for types alone does not. In C,
an #include counts, and each name of a function that another file defines for all: who takes its
address or writes a prototype of its own for it uses it as well. So a lower layer can be told of an
upper one at run time only (a pointer that is handed down, a table that is registered in).
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hmmbench.base import paths

#: So many files of one layer may use one another in a circle.
CIRCLE = 4

PYTHON = paths.project_root() / "harness/hmmbench"

#: A longer file is two things.
LINES = 500

#: Least number of layers of the parts in C.
C_LEAST = {"qemu-device/core": 9, "guest-driver/module": 7, "guest-driver/user": 3}
C_PARTS = tuple(C_LEAST)

#: Headers with pointers to functions, by which a layer calls what it does not know.
POINTERS = {
    # what the host does for the device; who watches it; the loops for an instruction set; what a
    # coroutine runs
    "qemu-device/core": {"hmm_gpu_core.h", "hooks.h", "simt/vec.h", "base/coro.h"},
    # who takes the entries of the ring: serving them is another layer's, and another driver's
    "guest-driver/module": {"hw/fault_unit.h"},
    # the way to the bench; the engine's users; children; operations; the library's user, and
    # its parts that end with it
    "guest-driver/user": {
        "agent/chan.h", "agent/engine/engine.h", "agent/agent.h", "agent/base/op.h",
        "lib/hmmgpu.h", "lib/internal.h",
    },
}  # fmt: skip

#: What DESIGN names, as a newcomer looks for it.
ROOMS = (
    "base", "build", "device", "vm", "guest", "model", "oracle", "report", "gpu", "campaign",
    "mutation", "suites", "commands",
)  # fmt: skip


@dataclass(frozen=True)
class Layers:
    """The layers of a folder: names, lowest first, and each file's number among them."""

    names: list[str]
    of: dict[Path, int]

    @classmethod
    def read(cls, folder: Path) -> Layers:
        names: list[str] = []
        of: dict[Path, int] = {}
        for line in (folder / "LAYERS").read_text().splitlines():
            name, _, globs = line.partition("#")[0].partition(":")
            if not globs:
                continue
            for file in (file for glob in globs.split() for file in folder.glob(glob)):
                assert file not in of, f"{file} is in two layers"
                of[file] = len(names)
            names.append(name.strip())
        return cls(names, of)

    def upward(self, uses: dict[Path, set[Path]]) -> list[tuple[Path, Path]]:
        """(file, what it uses) for each use that goes up."""
        return [
            (file, used)
            for file, all_used in uses.items()
            for used in sorted(all_used)
            if self.of[used] > self.of[file]
        ]


def circles(uses: dict[Path, set[Path]]) -> list[set[Path]]:
    """Files that use one another, directly or by way of others: sets of at least two."""

    def reach(start: Path) -> set[Path]:
        seen: set[Path] = set()
        todo = [start]
        while todo:
            for used in uses.get(todo.pop(), ()):
                if used not in seen:
                    seen.add(used)
                    todo.append(used)
        return seen

    reached = {file: reach(file) for file in uses}
    found = {
        frozenset(other for other in reached[file] if file in reached.get(other, ()))
        for file in uses
        if file in reached[file]
    }
    return [set(one) for one in found]


def imports(folder: Path) -> dict[Path, set[Path]]:
    """Each module of a package, and the modules of the same package that it imports."""
    modules = {
        ".".join((folder.name, *file.relative_to(folder).with_suffix("").parts)).removesuffix(
            ".__init__"
        ): file
        for file in folder.rglob("*.py")
    }
    return {
        file: {
            modules[name]
            for name in _imported(ast.parse(file.read_text()), modules)
            if modules[name] != file
        }
        for file in modules.values()
    }


def _imported(node: ast.AST, modules: dict[str, Path]) -> Iterator[str]:
    """Names of modules; `from package import module` is that module, not its package."""
    if isinstance(node, ast.ImportFrom):
        assert not node.level, "imports are absolute here"
        for alias in node.names:
            whole = f"{node.module}.{alias.name}"
            name = whole if whole in modules else node.module or ""
            if name in modules:
                yield name
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules)
    types_only = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    for inner in node.orelse if types_only else ast.iter_child_nodes(node):
        yield from _imported(inner, modules)


@dataclass(frozen=True)
class CSource:
    """What a C file says, as far as uses go."""

    includes: list[str]
    #: functions that others can call
    functions: set[str]
    #: names in code; in a header only those in bodies and macros, as prototypes are no use
    names: set[str]

    @classmethod
    def read(cls, file: Path) -> CSource:
        text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", file.read_text(), flags=re.S)
        includes = re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', text, re.M)
        text = re.sub(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', " ", text)
        directive = r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*"
        macros = [m for m in re.findall(directive, text, re.M) if re.match(r"\s*#\s*define", m)]
        text = re.sub(directive, "", text, flags=re.M)
        functions: set[str] = set()
        bodies = []
        for head, body in _top_level(text):
            bodies.append(body)
            plain = re.sub(r"__attribute__\s*\(\(.*?\)\)", " ", head, flags=re.S)
            found = re.search(r"([A-Za-z_]\w*)\s*\(", plain)
            if body and found and "=" not in plain and "static" not in plain.split():
                functions.add(found[1])
        code = [*macros, *bodies] if file.suffix == ".h" else [*macros, text]
        names = set(re.findall(r"[A-Za-z_]\w*", " ".join(code)))
        return cls(includes, functions if file.suffix == ".c" else set(), names)


def _top_level(text: str) -> Iterator[tuple[str, str]]:
    """(what stands before it, what is in it) of each pair of outer braces."""
    depth = start = 0
    head = ""
    for mark in re.finditer(r"[{};]", text):
        if mark[0] == "{":
            if not depth:
                head, start = text[start : mark.start()], mark.end()
            depth += 1
        elif mark[0] == "}":
            depth -= 1
            if not depth:
                yield head, text[start : mark.start()]
                start = mark.end()
        elif not depth:
            start = mark.end()


def c_uses(folder: Path) -> dict[Path, set[Path]]:
    """Each C file of a part, and the files of the part that it uses."""
    files = {
        file: CSource.read(file)
        for file in sorted(folder.rglob("*.[ch]"))
        if "tests" not in file.relative_to(folder).parts
    }
    by_name: dict[str, list[Path]] = {}
    for file, source in files.items():
        for name in source.functions:
            by_name.setdefault(name, []).append(file)
    # A name that several programs of a part have, such as main, says nothing.
    owner = {name: where[0] for name, where in by_name.items() if len(where) == 1}
    uses: dict[Path, set[Path]] = {}
    for file, source in files.items():
        used = {owner[name] for name in source.names & owner.keys()}
        for name in source.includes:
            parts = tuple(part for part in Path(name).parts if part not in (".", ".."))
            used |= {other for other in files if other.parts[-len(parts) :] == parts}
        uses[file] = used - {file}
    return uses


def test_imports_go_down() -> None:
    layers = Layers.read(PYTHON)
    uses = imports(PYTHON)
    assert set(uses) == set(layers.of), "each file belongs to one layer"
    assert layers.upward(uses) == []
    assert [one for one in circles(uses) if len(one) > CIRCLE] == []


def test_the_rooms_of_the_design_are_there() -> None:
    layers = Layers.read(PYTHON)
    assert set(ROOMS) <= set(layers.names)
    for file, number in layers.of.items():
        room = file.relative_to(PYTHON).parts[0]
        assert room in (layers.names[number], "__init__.py", "__main__.py", "cli.py")


def long_files(folder: Path) -> list[str]:
    return [
        file.name for file in sorted(folder.rglob("*.py"))
        if len(file.read_text().splitlines()) > LINES
    ]  # fmt: skip


def test_no_file_is_long(tmp_path: Path) -> None:
    assert long_files(PYTHON) == []
    (tmp_path / "just.py").write_text("#\n" * LINES)
    (tmp_path / "long.py").write_text("#\n" * (LINES + 1))
    assert long_files(tmp_path) == ["long.py"]


@pytest.mark.parametrize("part", C_PARTS)
def test_c_goes_down(part: str) -> None:
    folder = paths.project_root() / part
    layers = Layers.read(folder)
    uses = c_uses(folder)
    assert set(uses) == {file for file in layers.of if file.suffix in (".c", ".h")}
    assert len(layers.names) >= C_LEAST[part]
    assert layers.upward(uses) == []
    # What stands in a header's bodies is code of those who include it.
    direct = {
        file: {other for other in used if file.suffix == ".c" or other.suffix == ".h"}
        for file, used in uses.items()
    }
    assert [one for one in circles(direct) if len(one) > CIRCLE] == []


def with_pointers(folder: Path) -> set[str]:
    """Headers that declare a pointer to a function."""
    return {
        str(file.relative_to(folder))
        for file in folder.rglob("*.h")
        if re.search(r"\(\s*\*\s*\w+\s*\)\s*\(", file.read_text())
        and "tests" not in file.relative_to(folder).parts
    }


@pytest.mark.parametrize("part", C_PARTS)
def test_pointers_to_functions_are_where_they_are_known(tmp_path: Path, part: str) -> None:
    folder = tmp_path / "part"
    shutil.copytree(paths.project_root() / part, folder)
    assert with_pointers(folder) == POINTERS[part]
    other = min(
        file for file in folder.rglob("*.h")
        if str(file.relative_to(folder)) not in POINTERS[part]
    )  # fmt: skip
    with other.open("a") as stream:
        stream.write("struct up { void (*up)(void); };\n")
    assert with_pointers(folder) == POINTERS[part] | {str(other.relative_to(folder))}


def lowest_and_highest(folder: Path) -> tuple[Path, str, Path]:
    """A .c file of the lowest layer that has one; a function of the highest, and its file."""
    layers = Layers.read(folder)
    ordered = sorted((file for file in layers.of if file.suffix == ".c"), key=layers.of.__getitem__)
    high = next(file for file in reversed(ordered) if CSource.read(file).functions)
    return ordered[0], min(CSource.read(high).functions), high


@pytest.mark.parametrize("part", C_PARTS)
@pytest.mark.parametrize(
    ("text", "upward"),
    [
        ("void backwards(void)\n{{\n    {name}();\n}}\n", True),
        ("static void *backwards = {name};\n", True),
        ("#define BACKWARDS() {name}()\n", True),
        ("/* {name}() */\nstatic const char *backwards = \"{name}\";\n", False),
    ],
)
def test_one_call_backwards_is_seen(
    tmp_path: Path, part: str, text: str, upward: bool
) -> None:
    folder = tmp_path / "part"
    shutil.copytree(paths.project_root() / part, folder)
    low, name, high = lowest_and_highest(folder)
    with low.open("a") as stream:
        stream.write(text.format(name=name))
    found = Layers.read(folder).upward(c_uses(folder))
    assert found == ([(low, high)] if upward else [])


@pytest.mark.parametrize("part", C_PARTS)
def test_one_include_backwards_is_seen(tmp_path: Path, part: str) -> None:
    folder = tmp_path / "part"
    shutil.copytree(paths.project_root() / part, folder)
    layers = Layers.read(folder)
    low, _, _ = lowest_and_highest(folder)
    highest = max(
        (file for file in layers.of if file.suffix == ".h"), key=layers.of.__getitem__
    )
    low.write_text(f'#include "{highest.relative_to(folder)}"\n{low.read_text()}')
    assert layers.upward(c_uses(folder)) == [(low, highest)]


def test_what_counts_in_a_header(tmp_path: Path) -> None:
    """Bodies and macros do, prototypes do not; nor do functions of one file alone."""
    (tmp_path / "low.h").write_text("int up(int);\nint alone(void);\n")
    (tmp_path / "body.h").write_text("static inline int f(void)\n{\n    return up(1);\n}\n")
    (tmp_path / "up.c").write_text(
        "static int alone(void)\n{\n    return 0;\n}\n\n"
        "int __attribute__((noinline)) up(int n)\n{\n    return n + alone();\n}\n"
    )
    (tmp_path / "other.c").write_text("static int alone;\n")
    uses = c_uses(tmp_path)
    assert uses[tmp_path / "body.h"] == {tmp_path / "up.c"}
    assert not uses[tmp_path / "low.h"]
    assert not uses[tmp_path / "other.c"]


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A small package of two layers, in which all is well."""
    folder = tmp_path / "small"
    for name, text in {
        "LAYERS": "# lowest first\nlow: __init__.py low/*.py\nhigh: high/*.py\n",
        "__init__.py": "",
        "low/__init__.py": "",
        "low/a.py": "import os\n",
        "high/__init__.py": "",
        "high/b.py": "from small.low import a\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "upward"),
    [
        ("from small.high import b\n", 1),
        ("from small.high.b import thing\n", 1),
        ("import small.high.b\n", 1),
        ("def f():\n    from small.high import b\n", 1),
        ("if TYPE_CHECKING:\n    from small.high import b\n", 0),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    from small.high import b\n", 1),
        ("from small.low import a\n", 0),
    ],
)
def test_one_import_backwards_is_seen(house: Path, text: str, upward: int) -> None:
    (house / "low/c.py").write_text(text)
    layers = Layers.read(house)
    assert len(layers.upward(imports(house))) == upward


def test_circles_are_seen(house: Path) -> None:
    names = "cdefg"
    for name, used in zip(names, names[1:] + names[0], strict=True):
        (house / f"low/{name}.py").write_text(f"def f():\n    from small.low import {used}\n")
    (one,) = circles(imports(house))
    assert {file.stem for file in one} == set(names)


def test_a_file_in_two_layers(house: Path) -> None:
    with (house / "LAYERS").open("a") as stream:
        stream.write("both: */*.py\n")
    with pytest.raises(AssertionError, match="in two layers"):
        Layers.read(house)
