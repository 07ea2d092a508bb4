# SPDX-License-Identifier: GPL-2.0-or-later
"""hmmbench's commands for gdb.  Runs in gdb's own Python; `help hmm` lists them.

What only the bench can know (registers, page tables, time) is asked over the socket that
HMMBENCH_DEBUG_SOCKET names: see server.py for what goes over it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from typing import Any

import gdb

#: Mirrors of a process, and processes, that are followed at most: a broken list may have no end.
LIMIT = 10000


class Bench:
    """The connection to the bench, made when it is first needed."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._number = 0

    def ask(self, method: str, **params: object) -> Any:
        """Raises gdb.GdbError with the bench's words."""
        try:
            if self._stream is None:
                peer = socket.socket(socket.AF_UNIX)
                peer.connect(os.environ["HMMBENCH_DEBUG_SOCKET"])
                self._stream = peer.makefile("rwb")
            self._number += 1
            request = {"id": self._number, "method": method, "params": params}
            self._stream.write(json.dumps(request).encode() + b"\n")
            self._stream.flush()
            answer = json.loads(self._stream.readline() or b"{}")
        except (OSError, KeyError, ValueError) as error:
            self._stream = None
            raise gdb.GdbError(f"the bench does not answer: {error}") from error
        if "result" not in answer:
            raise gdb.GdbError(answer.get("error", "the bench has ended"))
        return answer["result"]


bench = Bench()


def say(text: str = "") -> None:
    gdb.write(text + "\n")


def integer(text: str) -> int:
    """Of an expression of gdb's."""
    return int(gdb.parse_and_eval(text)) & (1 << 64) - 1


class Hmm(gdb.Command):  # type: ignore[misc]
    """What hmmbench adds to gdb; `help` knows each:

    hmm-gpu       the GPU's state
    hmm-pt        both page tables of an address
    hmm-mirror    the mirrors of all processes

    At an exact machine also:

    hmm-violation           to where the violation is seen first
    hmm-goto N              to instruction N of the example, in a fresh machine
    hmm-back [COUNT]        to the last switch between CPUs, or the COUNTth last
    hmm-switches [COUNT]    the last ones
    hmm-last-write ADDRESS  to where a page-table entry of an address got its value
    """

    def __init__(self) -> None:
        super().__init__("hmm", gdb.COMMAND_STATUS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        del argument, from_tty
        say(str(self.__doc__).rstrip())


class HmmGpu(gdb.Command):  # type: ignore[misc]
    """The GPU's state: counters that are not 0, what its checks found, contexts, address spaces."""

    def __init__(self) -> None:
        super().__init__("hmm-gpu", gdb.COMMAND_STATUS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        del argument, from_tty
        state = bench.ask("gpu")
        say("counters:")
        for name, value in state["counters"].items():
            if value:
                say(f"  {name:<18} {value}")
        for c in state["contexts"]:
            flags = [n for n in ("privileged", "active", "halted") if c[n]]
            say(
                f"context {c['context']}: asid {c['asid']}, {', '.join(flags) or 'idle'}, "
                f"ring at {c['get']} of {c['put']}, error {c['error']} {c['error_address']}"
            )
        for a in state["address_spaces"]:
            where = "VRAM " if a["in_vram"] else ""
            say(f"asid {a['asid']}: root {where}{a['root']}, process's root {a['process']}")
        say(json.dumps(state["violations"], indent=1))


class HmmPt(gdb.Command):  # type: ignore[misc]
    """Both page tables of an address: hmm-pt ADDRESS [ASID].

    ADDRESS is an expression.  Without ASID all address spaces of the GPU are walked, each with
    the page table of its process.
    """

    def __init__(self) -> None:
        super().__init__("hmm-pt", gdb.COMMAND_DATA)

    def invoke(self, argument: str, from_tty: bool) -> None:
        del from_tty
        words = gdb.string_to_argv(argument)
        if not 1 <= len(words) <= 2:
            raise gdb.GdbError("hmm-pt ADDRESS [ASID]")
        params = {"address": integer(words[0]), "cr3": integer("$cr3"), "cr4": integer("$cr4")}
        if len(words) == 2:
            params["asid"] = integer(words[1])
        found = bench.ask("page_tables", **params)
        if not found:
            say("no address space of the GPU is enabled")
        for one in found:
            say(f"asid {one['asid']}" if one["asid"] is not None else "no address space of the GPU")
            self._show("GPU", one["gpu"])
            self._show(f"CPU (root from {one['cpu_from']})", one["cpu"])

    @staticmethod
    def _show(title: str, walk: dict[str, Any] | None) -> None:
        if walk is None:
            return
        say(f"  {title}: {walk['meaning']}")
        for step in walk["steps"]:
            say(f"    level {step['level']}  {step['entry']}  at {step['at']}")


class HmmMirror(gdb.Command):  # type: ignore[misc]
    """The mirrors of all processes: who asked to be told of changes of which addresses.

    Of this driver's (struct hg_svm) its own state, too.
    """

    def __init__(self) -> None:
        super().__init__("hmm-mirror", gdb.COMMAND_DATA)

    def invoke(self, argument: str, from_tty: bool) -> None:
        del argument, from_tty
        seen = False
        for task, subscriptions in self._subscribed():
            seen = True
            say(f"{task['comm'].string()} (pid {int(task['pid'])}), mm {int(task['mm']):#x}")
            active = int(subscriptions["active_invalidate_ranges"])
            say(
                f"  sequence {int(subscriptions['invalidate_seq'])}, "
                f"{active} invalidation{'' if active == 1 else 's'} under way"
            )
            for notifier in self._intervals(subscriptions):
                self._show(notifier)
        if not seen:
            say("no process is mirrored")

    @staticmethod
    def _subscribed() -> Iterator[tuple[gdb.Value, gdb.Value]]:
        """(task, its mm's subscriptions), one for each mm."""
        mms = set()
        kind = gdb.lookup_type("struct task_struct")
        for task in entries(gdb.parse_and_eval("&init_task.tasks"), kind, "tasks"):
            mm = task["mm"]
            if not int(mm) or int(mm) in mms:
                continue
            mms.add(int(mm))
            subscriptions = mm["notifier_subscriptions"]
            if int(subscriptions):
                # Defined in mm/mmu_notifier.c, and elsewhere only named.
                whole = gdb.lookup_type("struct mmu_notifier_subscriptions").pointer()
                yield task, subscriptions.cast(whole).dereference()

    @staticmethod
    def _intervals(subscriptions: gdb.Value) -> Iterator[gdb.Value]:
        kind = gdb.lookup_type("struct mmu_interval_notifier")
        todo = [subscriptions["itree"]["rb_root"]["rb_node"]]
        for _ in range(LIMIT):
            if not todo:
                return
            node = todo.pop()
            if int(node):
                todo += [node["rb_right"], node["rb_left"]]
                tree = container(node, gdb.lookup_type("struct interval_tree_node"), "rb")
                yield container(tree.address, kind, "interval_tree")

    @staticmethod
    def _show(notifier: gdb.Value) -> None:
        tree = notifier["interval_tree"]
        ops = symbol(int(notifier["ops"]))
        say(f"  {int(tree['start']):#x}..{int(tree['last']):#x} told to {ops}")
        sequence = int(notifier["invalidate_seq"])
        say(f"    notifier at {int(notifier.address):#x}, sequence {sequence}")
        if not ops.startswith("svm_notifier_ops"):
            return
        svm = container(notifier.address, gdb.lookup_type("struct hg_svm"), "notifier")
        vm = svm["vm"]
        say(
            f"    struct hg_svm at {int(svm.address):#x}: asid {int(vm['asid'])}, mapped:"
            f" {int(vm['gpu_sys'])} pages of system memory, {int(vm['gpu_vram'])} of VRAM"
        )
        flags = [name for name in ("dead", "exclusive", "audit_over") if vm[name]]
        places = svm["refused"]
        refused = sum(int(places[i]) != 0 for i in range(places.type.range()[1] + 1))
        say(
            f"    policy {int(svm['policy']):#x}, {', '.join(flags) or 'no flag set'}, "
            f"{int(svm['faults'])} pages faulted, {refused} of the last refused ones known"
        )
        # The owner's task_struct, with flags in its low bits.
        owner = int(vm["pt_lock"]["owner"]["counter"]) & ~7
        if owner:
            task = gdb.Value(owner).cast(gdb.lookup_type("struct task_struct").pointer())
            say(f"    pt_lock is held by {task['comm'].string()} (pid {int(task['pid'])})")
        else:
            say("    pt_lock is free")


def move(method: str, **params: object) -> dict[str, Any]:
    """Ask for another place, and connect gdb to the machine that stands there."""
    where = bench.ask("where")
    # Without this gdb lets the machine that it leaves run.
    gdb.execute("disconnect", to_string=True)
    try:
        where = answer = bench.ask(method, **params)
    except gdb.GdbError:
        where = bench.ask("where")
        raise
    finally:
        gdb.execute(f"target remote {where['socket']}", to_string=True)
    show(answer)
    return dict(answer)


def show(where: dict[str, Any]) -> None:
    """The place, at the CPU that came to it."""
    for thread in gdb.selected_inferior().threads():
        if where["cpu"] is not None and thread.num == where["cpu"] + 1:
            # The command of that name has words of its own.
            thread.switch()
    who = f"CPU {where['cpu']}" if where["cpu"] is not None else "no CPU"
    say(f"instruction {where['now']} of {where['begin']}..{where['end']}, {who} ran")
    gdb.execute("frame")


class HmmGoto(gdb.Command):  # type: ignore[misc]
    """Stand at an instruction of the example: hmm-goto N.

    Counted over all CPUs, as hmm-switches shows it.  Without N: where the machine stands.  The
    machine is another one afterwards, which has executed the same up to there.
    """

    def __init__(self) -> None:
        super().__init__("hmm-goto", gdb.COMMAND_RUNNING)

    def invoke(self, argument: str, from_tty: bool) -> None:
        del from_tty
        if argument:
            move("goto", instruction=integer(argument))
        else:
            show(bench.ask("where"))


class HmmViolation(gdb.Command):  # type: ignore[misc]
    """Stand where the violation is seen first: where the device's check or the kernel reports it,
    or where the operation has ended that read what cannot be."""

    def __init__(self) -> None:
        super().__init__("hmm-violation", gdb.COMMAND_RUNNING)

    def invoke(self, argument: str, from_tty: bool) -> None:
        del argument, from_tty
        moment = move("violation")["moment"]
        say(moment or "this violation has no moment of its own: the end of the example")


class HmmBack(gdb.Command):  # type: ignore[misc]
    """Stand at the last switch between CPUs before the present instruction: hmm-back [COUNT]."""

    def __init__(self) -> None:
        super().__init__("hmm-back", gdb.COMMAND_RUNNING)

    def invoke(self, argument: str, from_tty: bool) -> None:
        del from_tty
        count = integer(argument) if argument else 1
        found = bench.ask("switches", count=count)
        if not found or len(found) < count:
            raise gdb.GdbError("the example has not so many switches before this instruction")
        say(found[-1]["what"])
        move("goto", instruction=found[-1]["instruction"])


class HmmSwitches(gdb.Command):  # type: ignore[misc]
    """The last switches between CPUs before the present instruction: hmm-switches [COUNT]."""

    def __init__(self) -> None:
        super().__init__("hmm-switches", gdb.COMMAND_STATUS)

    def invoke(self, argument: str, from_tty: bool) -> None:
        del from_tty
        for s in bench.ask("switches", count=integer(argument) if argument else 10):
            say(f"{s['what']}  {symbol(s['pc'])}")


class HmmLastWrite(gdb.Command):  # type: ignore[misc]
    """Stand where a page-table entry got its value: hmm-last-write ADDRESS [ASID].

    Of the entries in which both walks of the address end (hmm-pt), the one that was written
    last.  Found by looking at ever closer instructions, which takes some seconds.
    """

    def __init__(self) -> None:
        super().__init__("hmm-last-write", gdb.COMMAND_RUNNING)

    def invoke(self, argument: str, from_tty: bool) -> None:
        del from_tty
        words = gdb.string_to_argv(argument)
        if not 1 <= len(words) <= 2:
            raise gdb.GdbError("hmm-last-write ADDRESS [ASID]")
        params = {"address": integer(words[0]), "cr3": integer("$cr3"), "cr4": integer("$cr4")}
        if len(words) == 2:
            params["asid"] = integer(words[1])
        for w in move("last_write", **params)["writes"]:
            title = f"asid {w['asid']}, {w['table'].upper()}, level {w['level']}, at {w['at']}"
            if w["instruction"] is None:
                say(f"{title}: {w['value']} since before the example")
            else:
                say(
                    f"{title}: {w['before']} -> {w['value']} at instruction {w['instruction']}"
                    f" by CPU {w['cpu']} ({w['meaning']})"
                )


def container(member: gdb.Value, kind: gdb.Type, name: str) -> gdb.Value:
    """container_of()"""
    field = next(f for f in kind.fields() if f.name == name)
    return gdb.Value(int(member) - field.bitpos // 8).cast(kind.pointer()).dereference()


def entries(head: gdb.Value, kind: gdb.Type, name: str) -> Iterator[gdb.Value]:
    """list_for_each_entry()"""
    node = head["next"]
    for _ in range(LIMIT):
        if int(node) == int(head):
            return
        yield container(node, kind, name)
        node = node["next"]


def symbol(address: int) -> str:
    """The symbol at an address, without gdb's brackets."""
    text = str(gdb.execute(f"info symbol {address:#x}", to_string=True))
    return text.split(" in section")[0].split(" of ")[0].strip()


for command in (
    Hmm, HmmGpu, HmmPt, HmmMirror, HmmViolation, HmmGoto, HmmBack, HmmSwitches, HmmLastWrite,
):  # fmt: skip
    command()
