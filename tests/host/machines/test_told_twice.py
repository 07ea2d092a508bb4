# SPDX-License-Identifier: GPL-2.0-or-later
"""What the guest's files and the bench both say, where neither can read the other."""

from __future__ import annotations

import re

from c_layout import DEVICE, USER, Layout, numbers

from hmmbench.base import paths
from hmmbench.example import delays
from hmmbench.vm import mailbox
from hmmbench.vm.machine import MARK
from hmmbench.vm.spec import _CMDLINE, AGENT_PORT

PROTOCOL_TEXT = (USER / "agent/protocol.h").read_text()
INIT = (paths.project_root() / "harness/hmmbench/build/guest/init").read_text()


def test_the_mailboxs_head() -> None:
    header = DEVICE / "include/hmm_mailbox_hw.h"
    head = Layout("hm_head", header)
    value = {name: n + 1 for n, name in enumerate(head.names)}
    read = mailbox._HEAD.unpack(head.pack(**value))
    assert mailbox._HEAD.size == head.form.size
    for at, name in (
        (mailbox._MAGIC, "magic"), (mailbox._VERSION, "version"), (mailbox._REQUEST, "request"),
        (mailbox._REQUEST_LEN, "request_len"), (mailbox._ANSWER, "answer"),
        (mailbox._ANSWER_LEN, "answer_len"), (mailbox._STANDS, "stands"), (mailbox._WHY, "why"),
        (mailbox._UNDER_WAY, "under_way0"), (mailbox._PHASE, "phase"), (mailbox._TIME, "time"),
    ):  # fmt: skip
        assert read[at] == value[name], name
    assert numbers(header)["HM_PROCESSES"] == mailbox._PHASE - mailbox._UNDER_WAY


def test_what_init_looks_for() -> None:
    hm = numbers(DEVICE / "include/hmm_mailbox_hw.h")
    assert f'"$name" = {AGENT_PORT} ]' in INIT
    assert f"= {hm['HM_PCI_VENDOR_ID']:#06x}:{hm['HM_PCI_DEVICE_ID']:#06x} ]" in INIT


def test_marks_of_the_console() -> None:
    assert re.findall(r'#define HB_MARK\s+"(.*)"', PROTOCOL_TEXT) == [MARK]


def test_level_of_the_console() -> None:
    """The agent leaves out what the console shows: levels below that of the command line."""
    shown = numbers(USER / "agent/protocol.h")["HB_CONSOLE_LEVEL"]
    assert f"loglevel={shown + 1}" in _CMDLINE


def test_delay_points_are_the_drivers() -> None:
    text = (paths.driver_sources() / "module/base/delay.h").read_text()
    points = set(re.findall(r"^\tX\((\w+)\)", text, re.MULTILINE))
    aimed = {name for aim in delays.AIMED.values() for name in aim.points}
    named = {*delays.FAVOURITES, *delays.EXCLUSIVE, *delays.IDLE, *delays.RARE, *aimed}
    assert len(points) > 20
    assert named <= points
