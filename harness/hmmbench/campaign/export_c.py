# SPDX-License-Identifier: GPL-2.0-or-later
"""A recipe as a C program on the agent's engine: for people who do not have the bench at hand.

A table of operations, a line or two each, and what each of them has to see; what does them is the
same code as in the guest's agent (guest-driver/user/agent/repro/repro.h).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from hmmbench.campaign.replay import sound
from hmmbench.example.recipe import Recipe
from hmmbench.guest.program import F_CTX1, F_NOWAIT, F_THREAD, PAGE, Acc, Access, Op, Program
from hmmbench.model import ops
from hmmbench.model.ops import outside
from hmmbench.model.ops.jobs import CpuAccess, GpuAccess, GpuCopy, GpuFill
from hmmbench.model.ops.moving import Query
from hmmbench.model.page import AnyValue
from hmmbench.model.space import Space, gp_of
from hmmbench.oracle.predict import LIMIT, Prediction, Predictor
from hmmbench.report import words

#: Words of a process that are read once more at the end, at most.
LOOKS = 64

#: Columns of a line with several accesses.
WIDTH = 100

#: Members of the table's struct that say what an operation is about.
_MEMBERS = ("region", "off", "len", "arg", "a", "b", "c")

_HEAD = """\
/*
 * Written by hmmbench: a reproducer on the engine of its agent.
 *
 * Found: {message}
 * Kernel: {kernel}
 *
 * In the folder guest-driver/ of hmmbench:
 *	make -C user OUT=/tmp/hmmgpu
 *	gcc -O2 -Iuser/agent/repro -Iuser/agent/base -Iuser/kernels -Iuser/lib -Iinclude/uapi \\
 *		THIS.c{more} -L/tmp/hmmgpu -lhmmgpu_engine -lhmmgpu -lpthread -o repro
 * and on the machine with the GPU:
 *	./repro {times}
 * Exit status 1: violation, 0: none in {times} runs, 3: the environment failed.
{setup} */
#include "repro.h"

/* OP(phase, process, actor, name): what has the same phase runs at the same time. */
static const struct repro_op ops[] = {{
"""


def export(recipe: Recipe) -> str:
    """The C source."""
    program = sound(recipe.program)
    expected = Predictor(program).run()
    space = Space(program.file_pages)
    lines: list[str] = []
    for i, o in enumerate(program.ops):
        if i and o.phase != program.ops[i - 1].phase:
            lines.append("")
        racing = sum(1 for x in program.ops if x.phase == o.phase) > 1
        # Accesses say themselves what they are.
        told = f"{len(o.acc)} accesses" if o.acc else _comment(words.sentence(o))
        lines += _operation(o, told, _checks(i, o, space, expected, racing))
        ops.apply(space, o)
    lines += _look_at_the_end(program, expected, space)
    head = _HEAD.format(
        message=_comment(recipe.message or "(nothing said)"), kernel=_comment(recipe.kernel),
        times=recipe.repeat, setup=_setup(recipe), more="".join(_files(program)),
    )  # fmt: skip
    pages = ", ".join(map(str, program.file_pages))
    return head + "\n".join([*lines, "};", f"REPRO_MAIN(ops, .file_pages = {{ {pages} }})"]) + "\n"


def _files(program: Program) -> list[str]:
    """Of operations from outside: the C files of their families, as words of a command."""
    used = sorted({type(ops.of(o)).__module__ for o in program.ops if o.op >= outside.FIRST})
    return [f" {module.removeprefix(outside.MODULE)}.c" for module in used]


def _operation(o: Op, sentence: str, checks: list[str]) -> list[str]:
    """Its lines of the table."""
    said = [f'OP({o.phase}, {o.proc}, {o.actor}, "{ops.of(o).name}")']
    said += [
        f".{name} = {value if name in ('region', 'arg') else hex(value)}"
        for name in _MEMBERS
        if (value := getattr(o, name))
    ]
    known = {"HB_F_CTX1": F_CTX1, "HB_F_NOWAIT": F_NOWAIT, "HB_F_THREAD": F_THREAD}
    flags = [name for name, bit in known.items() if o.flags & bit]
    said += [f".flags = {' | '.join(flags)}"] if flags else []
    thread = f", thread {o.actor}" if o.actor else ""
    return [f"\t/* process {o.proc}{thread}: {sentence} */", f"\t{{ {', '.join(said + checks)} }},"]


def _listed(macro: str, items: list[str]) -> str:
    """On one line if they fit."""
    text = f"{macro}({', '.join(items)})"
    return text if len(text) < WIDTH else f"{macro}(\n\t\t" + ",\n\t\t".join(items) + ")"


def _look_at_the_end(program: Program, expected: Predictor, space: Space) -> list[str]:
    """Read what was touched once more: where threads met, only the outcome is known."""
    last = max((o.phase for o in program.ops), default=0) + 1
    lines: list[str] = []
    for p in space.alive():
        places = dict.fromkeys(
            (a[1], a[3] & ~7) for o in program.ops if o.proc == p.number for a in o.acc
            if a[0] != Acc.DELAY
        )  # fmt: skip
        reads: list[str] = []
        for region, off in places:
            gp = gp_of(region, off)
            vma = expected.space.procs[p.number].find(gp)
            if vma is None or not vma.allows(gp, 1):
                continue
            page = expected.space.procs[p.number].page(gp, vma)
            value = page.worlds[0].get(off // 8 % 512)
            if not page.plain or isinstance(value, AnyValue):
                continue
            allowed = frozenset({value}) if isinstance(value, int) else value
            if len(allowed) <= LIMIT and len(reads) < LOOKS:
                reads.append(_access((int(Acc.READ), region, 0, off, 0, 0), allowed))
        if reads:
            look = Op(CpuAccess.number, proc=p.number, phase=last)
            lines += _operation(look, "what is there in the end", [_listed("ACCESSES", reads)])
    return ["", *lines] if lines else []


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")


def _setup(recipe: Recipe) -> str:
    env = recipe.environment
    text = ""
    if recipe.exact:
        text += (
            " *\n * Found on an exact machine, where each run failed.  Its schedule is lost here:\n"
            " * a race shows by chance, perhaps after very many runs.\n"
        )
    if env.delays:
        lines = "".join(f" *	echo {d} >/sys/kernel/debug/dri/0/delays\n" for d in env.delays)
        text += f" *\n * The race is wide enough only with, before:\n{lines}"
    if env.inject:
        rules = "; ".join(env.inject)
        text += f" *\n * The device misbehaved: its QEMU property inject was\n *	{rules}\n"
    if env.vram is not None:
        path = "/sys/kernel/debug/dri/0/vram_limit"
        text += f" *\n * VRAM is short, by, before:\n *	echo {env.vram} >{path}\n"
    if env.again:
        text += f" *\n * It ran {env.again} times more, with a look at what the kernel has.\n"
    if env.rebind:
        text += " *\n * Afterwards the driver was unbound and bound again.\n"
    return text


def _checks(i: int, o: Op, space: Space, expected: Predictor, racing: bool) -> list[str]:
    """What it has to see and to end with, as members of the table's struct."""
    out: list[str] = []
    if o.acc:
        out.append(_listed("ACCESSES", list(_accesses(i, o, expected))))
    if o.op == Query.number and not racing:
        known = _query(o, space)
        out += [_listed("PAGES", known)] if known else []
    status = _status(i, o, space, expected, racing)
    return [*out, f"WANT({status})"] if status else out


def _status(i: int, o: Op, space: Space, expected: Predictor, racing: bool) -> str:
    """The one it has to end with; "" if there are several."""
    if o.op in (GpuAccess.number, GpuCopy.number, GpuFill.number):
        fails = expected.fails[i]
        # Nobody may have waited for it; a copy that may fail is predicted to be done.
        if o.flags & F_NOWAIT or (fails == 0 and o.op == GpuAccess.number):
            return ""
        return "-EFAULT" if fails > 0 else "0"
    operation = ops.of(o)
    legal = operation.statuses(space, o, racing) if operation.wanted else None
    if legal is None or len(legal) > 1:
        return ""
    (status,) = legal
    return f"-{errno.errorcode[-status]}" if status else "0"


def _query(o: Op, space: Space) -> list[str]:
    """Only what holds whatever is mapped: no writable GPU entry where writing is forbidden."""
    runs: list[tuple[int, int, str]] = []
    start = gp_of(o.region, o.off)
    for k in range(o.len // PAGE):
        vma = space.procs[o.proc].find(start + k)
        if vma is None or not vma.prot:
            bits = "HMM_GPU_Q_GPU_VALID"
        elif not vma.prot & 2:
            bits = "HMM_GPU_Q_GPU_WRITE"
        else:
            continue
        if runs and runs[-1][2] == bits and sum(runs[-1][:2]) == k:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, bits)
        else:
            runs.append((k, 1, bits))
    return [f"{{ {page}, {count}, {bits}, 0 }}" for page, count, bits in runs]


def _accesses(i: int, o: Op, expected: Predictor) -> Iterator[str]:
    gpu = o.op == GpuAccess.number
    # Whether it is refused is not known of any of them, or of each.
    uncertain = not gpu and expected.fails[i] == 0
    for k, a in enumerate(o.acc):
        more = f", .lane = {a[2]}" if gpu and a[2] else ""
        if uncertain:
            more = ", .signal = -1"
        elif not gpu and (signal := expected.refused[i][k]):
            more = f", .signal = {signal.name}"
        yield _access(a, expected.seen[i][k], more)


def _access(a: Access, seen: Prediction, more: str = "") -> str:
    kind, region, _, off, value, expect = a
    if kind == Acc.DELAY:
        return f"{{ DELAY({value}){more} }}"
    args = [str(region), f"{off:#x}"]
    if kind not in (Acc.READ, Acc.READ32):
        args.append(f"{value:#x}ull")
    if kind == Acc.CAS:
        args.append(f"{expect:#x}ull")
    if kind not in (Acc.WRITE, Acc.WRITE32) and seen is not None:
        args += [f"{v:#x}ull" for v in sorted(seen)]
    return f"{{ {Acc(kind).name}({', '.join(args)}){more} }}"
