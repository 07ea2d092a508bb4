# SPDX-License-Identifier: GPL-2.0-or-later
"""The server's methods for a machine that can go back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hmmbench.debug.back import Back, entry_at
from hmmbench.vm.gdb.server import DebugServer, physical
from hmmbench.vm.machine import Machine


class Travel:
    """Moves a server, and the port that gdb is connected to, from machine to machine.

    open_port -- opens a machine's port for gdb; the socket's path
    """

    def __init__(
        self, server: DebugServer, back: Back, open_port: Callable[[Machine], Path]
    ) -> None:
        self._server = server
        self._back = back
        self._open_port = open_port
        self._port = ""
        server.methods |= {
            "where": self._where, "goto": self._goto, "switches": self._switches,
            "last_write": self._last_write, "violation": self._violation,
        }  # fmt: skip

    def start(self) -> str:
        """Serve the machine as it stands; gdb's socket."""
        self._arrived()
        return self._port

    def _arrived(self) -> None:
        self._server.machine = self._back.machine
        self._port = str(self._open_port(self._back.machine))

    def _where(self, _: Mapping[str, Any]) -> Any:
        return {
            "begin": self._back.begin, "now": self._back.now, "end": self._back.end,
            "cpu": self._back.runs(self._back.now), "socket": self._port,
        }  # fmt: skip

    def _goto(self, params: Mapping[str, Any]) -> Any:
        self._back.goto(int(params["instruction"]))
        self._arrived()
        return self._where({})

    def _violation(self, _: Mapping[str, Any]) -> Any:
        moment = self._back.at_violation()
        self._arrived()
        return {"moment": str(moment) if moment else None, **self._where({})}

    def _switches(self, params: Mapping[str, Any]) -> Any:
        return [
            {"instruction": d.icount, "ns": d.ns, "cpu": d.who, "pc": d.pc, "what": str(d)}
            for d in self._back.switches(self._back.now, int(params.get("count", 1)))
        ]

    def _last_write(self, params: Mapping[str, Any]) -> Any:
        """Of the entries that the walks end at now."""
        start = self._back.now
        found = []
        for space in self._server.page_tables(params):
            for table in ("gpu", "cpu"):
                steps = (space[table] or {}).get("steps")
                if not steps or steps[-1]["at"].startswith("VRAM"):
                    continue
                at = int(steps[-1]["at"], 16)
                if self._back.now != start:
                    self._back.goto(start)
                write = self._back.last_write(entry_at(at, physical))
                found.append({
                    "asid": space["asid"], "table": table, "level": steps[-1]["level"],
                    "at": f"{at:#x}", "meaning": space[table]["meaning"],
                    "instruction": write.after if write else None,
                    "before": f"{write.before:#018x}" if write else None,
                    "value": f"{write.value:#018x}" if write else steps[-1]["entry"],
                    "cpu": self._back.runs(write.after) if write else None,
                })  # fmt: skip
        # Even where nothing was found the machine that gdb had is gone.
        latest = max((f["instruction"] for f in found if f["instruction"]), default=start)
        self._back.goto(latest)
        self._arrived()
        return {"writes": found, **self._where({})}
