# SPDX-License-Identifier: GPL-2.0-or-later
"""The leak oracle at the driver's end: unbound, it leaves nothing, and can be bound again."""

from __future__ import annotations

from hmmbench.oracle.violation import Violation
from hmmbench.vm.machine import Machine

#: Times what a program has to settle until what the driver claimed has to be given back.  A page
#: that somebody still uses may hold it up; after an example nobody does.
SETTLE = 2.5
#: Tenths of a second until a driver that left nothing has its device node again.
NODE = 50

_NAME = "hmm_gpu"

#: Prints what is left; if nothing is, it binds.  Every program has ended, so the device is idle.
_SCRIPT = f"""
cd /sys/bus/pci/drivers/{_NAME} || exit 9
gpu=$(echo 0000:*)
echo $gpu >unbind || {{ echo "left: the device cannot be unbound"; exit 0; }}
left() {{ grep -h {_NAME} /proc/iomem /proc/interrupts; }}
n=0
while left >/dev/null && [ $n -lt $settle ]; do sleep 0.1; n=$((n + 1)); done
{{ left; ls /dev/dri/renderD* 2>/dev/null; }} | sed 's/^ */left: /' | grep . && exit 0
echo $gpu >bind || echo "left: the device cannot be bound again"
n=0
until [ -e /dev/dri/renderD128 ]; do
    [ $n -lt {NODE} ] || {{ echo "left: no device node after bind"; exit 0; }}
    sleep 0.1; n=$((n + 1))
done
"""


def left(output: str) -> list[str]:
    """What the script says was not given back."""
    return [
        line.removeprefix("left: ")
        for line in output.splitlines()
        if line.startswith("left: ")
    ]


def check(vm: Machine, settle_s: float) -> Violation | None:
    """Unbind and bind again.  Raises VmError; on a violation the machine must be replaced.

    `settle_s`: how long a program's leak is given to go away (seconds).
    """
    found = left(vm.agent.check(f"settle={round(10 * SETTLE * settle_s)}{_SCRIPT}", 60))
    if not found:
        return None
    return Violation(
        "leak", f"the driver was unbound and left: {found[0]}", details="\n".join(found)
    )
