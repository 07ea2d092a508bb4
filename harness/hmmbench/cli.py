# SPDX-License-Identifier: GPL-2.0-or-later
"""The command line: one module of hmmbench.commands a command.

A command module offers `main`, a function typer can read; its docstring is the help text.
Only the module of the command in hand is imported, because the bench's libraries take
longer to load than `doctor` takes to run.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from hmmbench import __version__
from hmmbench.base import outside
from hmmbench.base.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_OK, HmmbenchError
from hmmbench.base.interrupt import interruptible
from hmmbench.base.output import outlasting

COMMANDS = (
    "run", "test", "build", "boot", "replay", "mutants", "selftests", "conformance", "workload",
    "bench", "exact", "sum", "doctor",
)  # fmt: skip

#: An option of all commands.
OPERATIONS = "--operations"

HELP = """Property-test HMM mirroring and migration on an emulated GPU, in real VMs.

Start with:  ./hmmbench run      then:  ./hmmbench test

Exit codes: 0 sound, 1 a violation was found, 2 wrong use, 3 the environment failed,
4 hmmbench itself failed, 5 less was looked at than a pass needs.
"""


def _version(value: bool) -> None:
    if value:
        typer.echo(f"hmmbench {__version__}")
        raise typer.Exit


def make_app(names: Sequence[str] = COMMANDS) -> typer.Typer:
    """An application with the named commands only."""
    app = typer.Typer(
        help=HELP, no_args_is_help=True, add_completion=False, rich_markup_mode="markdown"
    )

    @app.callback()
    def top(
        version: bool = typer.Option(
            False, "--version", callback=_version, is_eager=True, help="Print the version and end."
        ),
        operations: Annotated[
            list[Path] | None,
            typer.Option(
                OPERATIONS, metavar="DIR",
                help="Programs use the operations of this folder, too: NAME.py and NAME.c of each "
                "family (docs/writing-tests.md; may be repeated).",
            ),
        ] = None,
    ) -> None:  # fmt: skip
        del version, operations  # `main` has looked at it, before anything was imported

    for name in names:
        app.command(name)(importlib.import_module(f"hmmbench.commands.{name}").main)
    return app


def _before_command(args: Sequence[str]) -> tuple[list[str], str | None]:
    """The folders of --operations, which stands before the command, and the command."""
    folders: list[str] = []
    words = iter(args)
    for word in words:
        if word == OPERATIONS:
            folders.append(next(words, "") or "(none)")
        elif word.startswith(OPERATIONS + "="):
            folders.append(word.partition("=")[2])
        elif not word.startswith("-"):
            return folders, word
    return folders, None


def main(argv: Sequence[str] | None = None) -> int:
    with outlasting():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    before, wanted = _before_command(args)
    if before:
        os.environ[outside.VARIABLE] = os.pathsep.join(str(Path(f).absolute()) for f in before)
    try:
        app = make_app((wanted,) if wanted in COMMANDS else COMMANDS)
        # Not standalone: exit codes are ours, and an error must not become a traceback.
        with interruptible():
            result = app(args=args, prog_name="hmmbench", standalone_mode=False)
    except HmmbenchError as error:
        print(f"hmmbench: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"  {error.hint}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        print("hmmbench: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except typer.Exit as leave:
        return leave.exit_code
    except Exception as error:
        # typer's own usage errors, whose base class moved between its releases.
        show = getattr(error, "show", None)
        code = getattr(error, "exit_code", None)
        if show is None or not isinstance(code, int):
            # Python would end with 1, which is the code of a violation.
            traceback.print_exc()
            print(
                "hmmbench: internal error: a defect of the bench, not of what it tests.\n"
                "  Please report the lines above, with the command.",
                file=sys.stderr,
            )
            return EXIT_INTERNAL
        show()
        return code
    # typer turns Ctrl-C into this code of its own.
    if result == EXIT_INTERRUPTED:
        print("hmmbench: interrupted", file=sys.stderr)
    return result if isinstance(result, int) else EXIT_OK
