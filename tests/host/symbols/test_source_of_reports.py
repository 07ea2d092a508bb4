# SPDX-License-Identifier: GPL-2.0-or-later
"""File and line in the kernel's reports, and that debug information is of the same code."""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from hmmbench.base.errors import EnvironmentFailure
from hmmbench.build.debuginfo import check, differences
from hmmbench.symbols.elf import Elf
from hmmbench.symbols.source import SourceLines, explainer

TEXT = 0xFFFFFFFF81000000

SOURCE = """\
void callee(int);
void other(int);

static inline __attribute__((always_inline)) void small(int n)
{
	callee(n);	/* inlined */
	callee(n + 1);
}

int large(int n)
{
	callee(1);	/* called */
	__asm__ volatile("ud2");	/* trap */
	small(n);
	callee(2);	/* last */
	return n;
}
"""

#: What an image needs beside that.
REST = "void callee(int n) { (void)n; }\nvoid other(int n) { (void)n; }\n"

FLAGS = ["-O1", "-fno-pic", "-mcmodel=kernel", "-fcf-protection=none",
         "-fno-asynchronous-unwind-tables", "-fno-optimize-sibling-calls"]  # fmt: skip


def compile_(folder: Path, *flags: str, source: str = SOURCE) -> Path:
    """An object file, as a module is one."""
    (folder / "mm").mkdir(parents=True, exist_ok=True)
    (folder / "mm/toy.c").write_text(source)
    subprocess.run(
        ["gcc", "-c", *FLAGS, *flags, str(folder / "mm/toy.c"), "-o", str(folder / "toy.ko")],
        check=True,
    )
    return folder / "toy.ko"


def link(folder: Path, *flags: str, source: str = SOURCE) -> Path:
    """A folder like a kernel's build: vmlinux and System.map."""
    compile_(folder, *flags, source=source)
    (folder / "rest.c").write_text(REST)
    subprocess.run(
        ["gcc", "-nostdlib", "-static", "-no-pie", *FLAGS, f"-Wl,-Ttext={TEXT:#x}", "-Wl,-e,large",
         "-Wl,--build-id", "toy.ko", "rest.c", "-o", "vmlinux"],
        cwd=folder, check=True,
    )  # fmt: skip
    listed = subprocess.run(["nm", "-n", "vmlinux"], cwd=folder, capture_output=True, text=True)
    (folder / "System.map").write_text(listed.stdout)
    return folder


def line_of(words: str) -> int:
    return next(n for n, line in enumerate(SOURCE.splitlines(), 1) if words in line)


def returns(module: Path) -> list[int]:
    """Where each call in large() returns to, from its beginning; by binutils."""
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", module], capture_output=True, text=True, check=True
    ).stdout
    rows = [(int(at, 16), words) for at, words in re.findall(r"^ +([0-9a-f]+):\t(.*)", text, re.M)]
    start = int(re.findall(r"^([0-9a-f]+) <large>", text, re.M)[0], 16)
    return [
        after - start
        for (at, words), (after, _) in itertools.pairwise(rows)
        if at > start and words.startswith("call")
    ]


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> SourceLines:
    root = tmp_path_factory.mktemp("source")
    built = link(root, "-g")
    return SourceLines(built / "vmlinux", built / "System.map", {"toy": root / "toy.ko"}, (root,))


def size_of_large(lines: SourceLines) -> int:
    at = sorted(int(line.split()[0], 16) for line in lines.system_map.read_text().splitlines())
    start = next(int(line.split()[0], 16) for line in lines.system_map.read_text().splitlines()
                 if line.endswith(" large"))  # fmt: skip
    return next(other for other in at if other > start) - start


def test_each_frame(lines: SourceLines) -> None:
    """Kernel and module: the line of the call, not the one it returns to."""
    called, inlined, _, last = returns(lines.modules["toy"])
    size = size_of_large(lines)
    inside = f"mm/toy.c:{line_of('inlined')}, inlined at mm/toy.c:{line_of('small(n);')}"
    for module in ("", " [toy]"):
        for offset, expected in (
            (called, f"mm/toy.c:{line_of('called')}"),
            (inlined, inside),
            (last, f"mm/toy.c:{line_of('last')}"),
        ):
            frame = f" ? large+{offset:#x}/{size:#x}{module}"
            assert lines.annotate(frame) == f"{frame}  {expected}"


def test_a_register_is_exact(lines: SourceLines) -> None:
    """The instruction after a call is the trap here: taken one back it would be the call."""
    trap = returns(lines.modules["toy"])[0]
    size = size_of_large(lines)
    expected = f"mm/toy.c:{line_of('trap')}"
    for line in (
        f"RIP: 0010:large+{trap:#x}/{size:#x}",
        f"WARNING: CPU: 0 PID: 1 at mm/toy.c:13 large+{trap:#x}/{size:#x}",
        f"BUG: KASAN: slab-use-after-free in large+{trap:#x}/{size:#x} [toy]",
    ):
        assert lines.annotate(line).endswith(f"  {expected}")
    assert lines.annotate(f" large+{trap:#x}/{size:#x}").endswith(f":{line_of('called')}")


def test_what_is_not_known_stays(lines: SourceLines) -> None:
    text = (
        "WARNING: something\n <TASK>\n nowhere+0x12/0x34\n large+0x1/0x999\n"
        " large+0x1/0x20 [gone]\nCode: 0f 0b\n"
    )
    assert lines.annotate(text) == text


def made(lines: SourceLines) -> SimpleNamespace:
    """What the build would say of these files."""
    root = lines.modules["toy"].parent
    return SimpleNamespace(
        debug_vmlinux=lines.vmlinux, debug_module_dir=root, system_map=lines.system_map,
        kernel_source_dir=root, kernel_build_dir=root,
    )  # fmt: skip


def test_the_command_where_there_is_none(lines: SourceLines) -> None:
    without = made(lines)
    without.debug_vmlinux = without.debug_module_dir = None
    said = explainer(without, ["--kernel", "a b"])("WARNING: x")
    assert said.splitlines()[0] == "WARNING: x"
    assert "./hmmbench build --debug-info --kernel 'a b'" in said


def test_the_drivers_alone(lines: SourceLines) -> None:
    """Its places have lines, the kernel's stay as they are, and the rest is offered."""
    artifacts = made(lines)
    artifacts.debug_vmlinux = None
    place = f"large+{returns(lines.modules['toy'])[0]:#x}/{size_of_large(lines):#x}"
    first, second, hint = explainer(artifacts)(f" {place} [toy]\n {place}").splitlines()
    assert first == f" {place} [toy]  mm/toy.c:{line_of('called')}"
    assert second == f" {place}"
    assert "--debug-info" in hint


def test_a_lookup_that_fails_costs_nothing(
    lines: SourceLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = returns(lines.modules["toy"])[0]
    frame = f" large+{called:#x}/{size_of_large(lines):#x}"
    artifacts = made(lines)
    assert explainer(artifacts)(frame).endswith(f"mm/toy.c:{line_of('called')}")
    monkeypatch.setenv("PATH", "/nowhere")
    said = explainer(artifacts)(frame)
    assert said.startswith(f"{frame}\n(no file and line: ")


def test_debug_information_changes_no_code(tmp_path: Path) -> None:
    plain = link(tmp_path / "plain")
    debug = link(tmp_path / "debug", "-g")
    check(plain, debug)
    assert Elf(debug / "vmlinux").section(".debug_info")
    assert not Elf(plain / "vmlinux").section(".debug_info")
    assert differences(Elf(plain / "toy.ko"), Elf(debug / "toy.ko")) == []


@pytest.mark.parametrize(
    ("source", "flags"),
    [
        (SOURCE.replace("callee(2)", "callee(3)"), []),
        (SOURCE.replace("callee(2)", "other(2)"), []),
        (SOURCE + 'const char more[] = "more";\n', []),
        (SOURCE, ["-O0"]),
    ],
)
def test_other_code_is_seen(tmp_path: Path, source: str, flags: list[str]) -> None:
    """Also where only a relocation differs, and where only data does."""
    plain = link(tmp_path / "plain")
    other = link(tmp_path / "other", "-g", *flags, source=source)
    with pytest.raises(EnvironmentFailure, match="is another"):
        check(plain, other)
    assert differences(Elf(plain / "toy.ko"), Elf(other / "toy.ko"))


def test_a_moved_symbol_is_seen(tmp_path: Path) -> None:
    plain, other = link(tmp_path / "plain"), link(tmp_path / "other", "-g")
    (other / "System.map").write_text((other / "System.map").read_text().replace("large", "larger"))
    with pytest.raises(EnvironmentFailure, match=r"System\.map"):
        check(plain, other)
