# SPDX-License-Identifier: GPL-2.0-or-later
"""Letting an exact machine go, and having it stand."""

from __future__ import annotations

from hmmbench.vm.errors import AgentTimeout
from hmmbench.vm.exact import Exact
from hmmbench.vm.mailbox import Mailbox
from hmmbench.vm.running import STOPPED, Running

#: Seconds of the host after which an exact machine is given up: far more than any request takes,
#: since hangs are seen in virtual time.
HOST_S = 600.0

#: Virtual nanoseconds in which an agent with nothing to do says so once more.
AGENT_NS = 1_000_000_000


class Standing(Running):
    """The part of Machine that only exact ones have."""

    exact: Exact
    mailbox: Mailbox

    @property
    def standing(self) -> bool:
        """It stands, so its mailbox and memory are ours."""
        with self._changed:
            return self._stops > self._stops_before

    def post(self, kind: int, payload: bytes = b"") -> int:
        """Hand a request to the agent, which finds it when the machine goes on; its id."""
        self._must_stand()
        return self.mailbox.post(kind, payload)

    def take(self) -> tuple[int, int, bytes]:
        """The answer for which the machine stands: (type, id, payload)."""
        self._must_stand()
        return self.mailbox.take()

    def go(self, timeout: float = 60.0, limit_s: float | None = None) -> int:
        """Let the machine go on until it stands again: why, HM_STAND_*.

        Raises AgentTimeout after so many seconds of the host; it runs then, and go() waits again.
        Raises AgentTimeout after `limit_s` seconds of virtual time, too; it stands then, and
        that repeats.  Raises VmDied if the guest or QEMU is gone.
        """
        self.check()
        with self._changed:
            stood, paused = self._stops > self._stops_before, self._pausing
        if stood:
            if not paused:
                self._must_have_stood()
            with self._changed:
                self._stops_before = self._stops
                self._stands_before = self.mailbox.stands
                self._pausing = False
            if limit_s is not None:
                self.exact.stand_after(int(limit_s * 1e9))
            self.qmp("cont")
        self._wait_stop(timeout)
        if limit_s is not None:
            if self.mailbox.stands == self._stands_before and self.exact.state()["stands"]:
                self._stands_by_us()
                raise AgentTimeout(f"the guest did not answer within {limit_s:g} s of its own time")
            self.exact.stand_after(-1)
        self._must_have_stood()
        return self.mailbox.why

    def _go_for_answer(self, timeout: float) -> int:
        """go() for a request of the agent's: its limit is the guest's own time, so that a busy
        host makes no hang."""
        return self.go(HOST_S, timeout)

    def go_for(self, ns: int, timeout: float = 60.0) -> None:
        """Let an exact machine that stands go on for so many nanoseconds of virtual time, in the
        middle of a request: without one the agent stands at once, see idle_for()."""
        self._must_stand()
        self.exact.stand_after(ns)
        self._let_go(timeout)
        # The guest may have stood before: then this limit is none of the next request's.
        self.exact.stand_after(-1)
        self._stands_by_us()

    def idle_for(self, ns: int, timeout: float = 60.0) -> None:
        """Let an exact machine whose agent has nothing to do go on for so many nanoseconds.

        It stands again by the agent's own word soon after that: the agent says so again and
        again.  One that is gone is waited for a second more.
        """
        self._must_stand()
        self.exact.deaf_for(ns)
        self.exact.stand_after(ns + AGENT_NS)
        self._let_go(timeout)
        # It is none of the next request's.
        self.exact.stand_after(-1)
        if self.mailbox.stands == self._stands_before:
            self._stands_by_us()

    def go_to(self, instruction: int, timeout: float = 60.0) -> bool:
        """Let an exact machine that stands go on until this instruction.

        False: it stands before that, by the guest's own word (mailbox.why).
        """
        self._must_stand()
        self.exact.stand_at(instruction)
        if self.go_until(timeout):
            return True
        self.exact.stand_at(-1)
        return False

    def go_until(self, timeout: float = 60.0, limit_s: float | None = None) -> bool:
        """Let an exact machine that stands go on to where it was told to stand (`exact`, or
        stand_at_violation()); False as go_to().

        Raises AgentTimeout as go(); `limit_s` takes the place of a time at which it is to stand.
        """
        self._must_stand()
        end = None
        if limit_s is not None:
            self.exact.stand_after(int(limit_s * 1e9))
            end = self.exact.state()["ns"] + int(limit_s * 1e9)
        self._let_go(timeout)
        by_us = self.mailbox.stands == self._stands_before
        if by_us:
            state = self.exact.state()
            if not state["stands"]:
                self._must_have_stood()
            self._stands_by_us()
            if end is not None and state["ns"] >= end:
                raise AgentTimeout(f"it came to no such place within {limit_s:g} s of its own time")
        if end is not None:
            self.exact.stand_after(-1)
        return by_us

    def _let_go(self, timeout: float) -> None:
        with self._changed:
            self._stops_before = self._stops
            self._stands_before = self.mailbox.stands
            self._pausing = False
        self.qmp("cont")
        self._wait_stop(timeout)

    def _stands_by_us(self) -> None:
        """It stands because we said so: go() expects no word of the guest's for that."""
        with self._changed:
            self._pausing = True

    def _must_have_stood(self) -> None:
        """Raise VmDied if the guest was stopped by somebody else."""
        if self.mailbox.stands == self._stands_before:
            with self._changed:
                self._gone = self._gone or STOPPED
            raise self._death()

    def _must_stand(self) -> None:
        if not self.standing:
            raise RuntimeError("the machine runs: its mailbox is the guest's")
