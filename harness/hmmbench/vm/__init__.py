# SPDX-License-Identifier: GPL-2.0-or-later
"""Virtual machines: starting, watching, snapshotting and ending them.

    with Machine(spec) as vm:            # boots; or Snapshots().machine(spec) to restore
        vm.agent.execute("uname -a")
        print(vm.printed())

One process drives one VM at a time (and keeps at most one spare); everything of a VM lies
in one temporary folder that goes away with it, unless it is kept as evidence.
"""
