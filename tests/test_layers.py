# SPDX-License-Identifier: GPL-2.0-or-later
"""Uses between the layers of a part (its file LAYERS, lowest first) go down only.

An import within a function counts as any other; what is imported for types alone does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hmmbench.base import paths

#: So many files of one layer may use one another in a circle.
CIRCLE = 4

PYTHON = paths.project_root() / "harness/hmmbench"

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
