# SPDX-License-Identifier: GPL-2.0-or-later
"""What may end jobs that did nothing wrong: rules of the device, and operations that take it away.

A rule ends so many jobs as it comes true (device/injection.py), in a way of its own: a copy or an
access that the bus refuses ends its job with POISON; a context that halts loses its jobs.  An
operation that takes the device away (model/ops/device.py) ends whatever runs in its phase.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable

from hmmbench.device import injection
from hmmbench.guest.program import ERR_BUS, ERR_FAULT, REASON_POISON, Op, OpResult

#: Phases in which jobs end because one context halts: it may have several, not all waited for at
#: once.
HALTED = 3

#: What anything that needs the device may answer while it is taken away: it is gone, its jobs are
#: lost, or nobody finds its files, or the mirror (MIGRATE with MAP).
AWAY = frozenset({-errno.ENODEV, -errno.EIO, -errno.ENOENT, -errno.ESRCH})


class Mishaps:
    """Of one execution of a program."""

    def __init__(self, rules: Iterable[str] = ()) -> None:
        rules = tuple(rules)
        self._copies = injection.ends(rules, injection.COPIES)
        self._phases = HALTED * injection.ends(rules, injection.JOBS)
        self._phase = -1
        #: whether what a driver promises is judged
        self.promises = injection.keeps_promises(rules)
        #: whether a trial's jobs (model/ops/trials.py) may end by them
        self.trials = not injection.ends_jobs(rules)
        #: whether anybody may be told that a page cannot be had
        self.hurts = injection.hurts(rules)
        #: whether an operation of this phase takes the device away
        self.away = False
        #: jobs that were excused in this phase
        self.excused: list[Op] = []

    def begin(self, away: bool) -> None:
        """The next phase."""
        self.away = away
        self.excused = []

    def excuse(self, o: Op, r: OpResult, copy: bool) -> bool:
        """Whether a job that failed may have done so; once it is asked, that is used up."""
        if not self._may(o, r, copy):
            return False
        self.excused.append(o)
        return True

    def _may(self, o: Op, r: OpResult, copy: bool) -> bool:
        halted = r.status == -errno.EIO and r.gpu_status == ERR_BUS
        if self.away and r.status in AWAY and r.gpu_status in (0, ERR_BUS):
            return True
        poison = (r.status, r.gpu_status, r.reason) == (-errno.EFAULT, ERR_FAULT, REASON_POISON)
        if poison and copy and self._copies:
            self._copies -= 1
            return True
        if not (poison or halted):
            return False
        if o.phase != self._phase:
            if not self._phases:
                return False
            self._phases -= 1
            self._phase = o.phase
        return True
