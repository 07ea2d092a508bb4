# SPDX-License-Identifier: GPL-2.0-or-later
"""A recipe as a C program on libhmmgpu: for people who do not have the bench at hand."""

from __future__ import annotations

from collections import defaultdict

from hmmbench.campaign.replay import sound
from hmmbench.example.recipe import Recipe
from hmmbench.guest.program import F_CTX1, F_NOWAIT, Acc, Op, OpKind, Program
from hmmbench.model import ops
from hmmbench.model.ops.base import GLOBAL_REGION, STACK_REGION
from hmmbench.model.page import AnyValue
from hmmbench.model.space import Space, gp_of
from hmmbench.oracle.predict import LIMIT, Prediction, Predictor

#: Words of a process that are read once more at the end, at most.
LOOKS = 64

_HEAD = """\
/*
 * Written by hmmbench: a reproducer on libhmmgpu, the driver's user library.
 *
 * Found: {message}
 * Kernel: {kernel}
 *
 * In the folder guest-driver/ of hmmbench:
 *	make -C user OUT=/tmp/hmmgpu
 *	gcc -std=gnu11 -O2 -Iuser/lib -Iinclude/uapi -Iuser/kernels -Iuser/agent/base THIS.c \\
 *		/tmp/hmmgpu/libhmmgpu.a -lpthread -o repro
 * and on the machine with the GPU:
 *	./repro {times}
 * Exit status 1: violation, 0: none in {times} runs, 3: the environment failed.
{setup} */
"""


def export(recipe: Recipe) -> str:
    """The C source."""
    program = sound(recipe.program)
    expected = Predictor(program).run()
    space = Space(program.file_pages)
    bodies: dict[tuple[int, int], list[str]] = defaultdict(list)
    first: dict[tuple[int, int], int] = {}
    at: dict[tuple[int, int], int] = {}
    forked: set[int] = set()
    for i, o in enumerate(program.ops):
        who = (o.proc, o.actor)
        if at.get(who) != o.phase:
            first.setdefault(who, o.phase)
            at[who] = o.phase
            bodies[who].append(f"phase({o.phase});")
        alone = sum(1 for x in program.ops if x.phase == o.phase) == 1
        bodies[who] += _statement(i, o, space, expected, not alone)
        if o.op == OpKind.FORK:
            forked.add(o.arg)
        ops.apply(space, o)
    _look_at_the_end(program, expected, space, bodies, at)
    # A process with nothing to do still has to be there.
    for p in space.procs:
        if not any(proc == p for proc, _ in bodies):
            bodies[(p, 0)] = ["phase(0);"]
    lines = [_HEAD.format(
        message=_comment(recipe.message or "(nothing said)"), kernel=_comment(recipe.kernel),
        times=recipe.repeat, setup=_setup(recipe),
    )]  # fmt: skip
    pages = ", ".join(map(str, program.file_pages))
    lines.append(f"#define REPRO_FILE_PAGES {{ {pages} }}")
    lines.append(f"#define REPRO_STACK_REGION {STACK_REGION}")
    lines.append(f"#define REPRO_GLOBAL_REGION {GLOBAL_REGION}")
    lines.append('#include "hmmgpu_repro.h"\n')
    for (p, a), body in sorted(bodies.items()):
        lines.append(f"static void p{p}_a{a}(void)\n{{")
        lines += [f"\t{line}" for line in body]
        lines.append("}\n")
    lines.append("static const struct actor actors[] = {")
    for p, a in sorted(bodies):
        extra = ", .forked = 1" if p in forked else ""
        lines.append(f"\t{{ {p}, {a}, p{p}_a{a}, .first = {first.get((p, a), 0)}{extra} }},")
    lines.append("};\nREPRO_MAIN(actors)")
    return "\n".join(lines) + "\n"


def _look_at_the_end(
    program: Program,
    expected: Predictor,
    space: Space,
    bodies: dict[tuple[int, int], list[str]],
    at: dict[tuple[int, int], int],
) -> None:
    """Read what was touched once more: where threads met, only the outcome is known."""
    last = max((o.phase for o in program.ops), default=0) + 1
    for p in space.alive():
        places = dict.fromkeys(
            (a[1], a[3] & ~7) for o in program.ops if o.proc == p.number for a in o.acc
            if a[0] != Acc.DELAY
        )  # fmt: skip
        reads: list[str] = []
        for region, off in places:
            gp = gp_of(region, off)
            vma = expected.space.procs[p.number].find(gp)
            if vma is None or not vma.prot & 1:
                continue
            page = expected.space.procs[p.number].page(gp, vma)
            value = page.worlds[0].get(off // 8 % 512)
            if not page.plain or isinstance(value, AnyValue):
                continue
            allowed = frozenset({value}) if isinstance(value, int) else value
            if len(allowed) <= LIMIT and len(reads) < LOOKS:
                reads.append(_access((int(Acc.READ), region, 0, off, 0, 0), allowed, False))
        if reads:
            bodies[(p.number, 0)].append(f"phase({last});")
            bodies[(p.number, 0)].append(f"cpu({', '.join(reads)});")
            at[(p.number, 0)] = last


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
    if env.rebind:
        text += " *\n * Afterwards the driver was unbound and bound again.\n"
    return text


def _statement(i: int, o: Op, space: Space, expected: Predictor, racing: bool) -> list[str]:
    kind = OpKind(o.op)
    ctx = 1 if o.flags & F_CTX1 else 0
    wait = 0 if o.flags & F_NOWAIT else 1
    if kind == OpKind.CPU_ACCESS:
        return _cpu(i, o, expected)
    if kind == OpKind.GPU_ACCESS:
        listed = _list(i, o, expected, True)
        if not wait:
            return [f"gpu_start({ctx}, {o.arg}, {listed});"]
        fails = expected.fails[i]
        if fails < 0:
            return [f"gpu({ctx}, {o.arg}, {listed});"]
        return [f"gpu_error({ctx}, {o.arg}, {'-EFAULT' if fails else 1}, {listed});"]
    if kind == OpKind.QUERY:
        if racing:
            return [f"check_query({o.region}, {o.off:#x}, 0, 0);"]
        return _query(o, space)
    operation = ops.of(o)
    text = operation.call(o)
    if not text:
        return []
    if kind in (OpKind.GPU_COPY, OpKind.GPU_FILL):
        want = "-EFAULT" if expected.fails[i] > 0 else "0"
        return [f"WANT({want}, {text});"]
    legal = operation.statuses(space, o, racing) if operation.wanted else None
    if legal is not None and len(legal) == 1:
        return [f"WANT({next(iter(legal))}, {text});"]
    return [f"{text};"]


def _query(o: Op, space: Space) -> list[str]:
    """Only what holds whatever is mapped: no writable GPU entry where writing is forbidden."""
    out = []
    proc = space.procs[o.proc]
    start = (o.region << 14) + o.off // 4096
    for k in range(min(o.len // 4096, 64)):
        vma = proc.find(start + k)
        off = o.off + k * 4096
        if vma is None or not vma.prot:
            out.append(f"check_query({o.region}, {off:#x}, HMM_GPU_Q_GPU_VALID, 0);")
        elif not vma.prot & 2:
            out.append(f"check_query({o.region}, {off:#x}, HMM_GPU_Q_GPU_WRITE, 0);")
    return out


def _access(
    a: tuple[int, int, int, int, int, int], seen: Prediction, lane: bool
) -> str:
    kind, region, number, off, value, expect = a
    name = Acc(kind).name
    if kind == Acc.DELAY:
        text = f"DELAY({value})"
    else:
        args = [str(region), f"{off:#x}"]
        if kind not in (Acc.READ, Acc.READ32):
            args.append(f"{value:#x}ull")
        if kind == Acc.CAS:
            args.append(f"{expect:#x}ull")
        if kind not in (Acc.WRITE, Acc.WRITE32) and seen is not None:
            args += [f"{v:#x}ull" for v in sorted(seen)]
        text = f"{name}({', '.join(args)})"
    return f"{{ {text}, .lane = {number} }}" if lane and number else f"{{ {text} }}"


def _list(i: int, o: Op, expected: Predictor, lane: bool) -> str:
    return ", ".join(
        _access(a, expected.seen[i][k], lane) for k, a in enumerate(o.acc)
    )


def _cpu(i: int, o: Op, expected: Predictor) -> list[str]:
    """Runs of accesses that are allowed, and of such that are refused."""
    out: list[str] = []
    run: list[str] = []
    state: bool | None = None
    uncertain = expected.fails[i] == 0

    def flush() -> None:
        if run:
            head = "cpu_signal(-1, " if uncertain else "cpu_signal(SIGSEGV, " if state else "cpu("
            out.append(f"{head}{', '.join(run)});")
            run.clear()

    for k, a in enumerate(o.acc):
        refused = expected.refused[i][k]
        if refused != state and not uncertain:
            flush()
        state = refused
        run.append(_access(a, expected.seen[i][k], False))
    flush()
    return out
