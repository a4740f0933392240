"""The command `monarq`: puts the groups together, and turns errors into messages and exit codes.

| exit code | means |
|---|---|
| 0 | done |
| 1 | refused or failed; stderr says why |
| 2 | no such command or option, or wrong settings |
| 130 | interrupted |
"""

from __future__ import annotations

import errno
import gc
import importlib
import inspect
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import typer

#: The module of each command, in the order in which help shows them. Only the one that is
#: called is imported: a shell user waits for every import.
COMMANDS = {
    "enqueue": "enqueue",
    "list": "jobs",
    "show": "jobs",
    "logs": "jobs",
    "cancel": "jobs",
    "retry": "jobs",
    "status": "jobs",
    "clear": "jobs",
    "worker": "workers",
    "dlq": "dead_letters",
    "queue": "queues",
    "push": "pushing",
    "pop": "popping",
    "ack": "popping",
    "tail": "tailing",
    "groups": "groups",
    "export": "transfer",
    "import": "transfer",
    "pipeline": "pipeline",
    "top": "top",
    "doctor": "doctor",
    "demo": "demo",
    "serve": "serve",
    "config": "config",
    "api-key": "api_keys",
    "buffer": "buffer",
    "rekey": "rekey",
    "bench": "bench",
    "reference": "reference",
}

#: What help shows together, beside what says its place itself.
_RUNNING = frozenset({"serve", "config", "api-key", "buffer", "bench"})

#: Their processes and threads end in their own time.
_LONG_RUNNING = frozenset({"serve", "worker", "bench", "demo", "pipeline"})

#: Options that every command has, and `monarq` itself has not.
_OF_COMMANDS = ("--store", "--url", "--token", "--json")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

#: What to do about a refusal, by its code.
_HINTS = {
    "unauthorized": "give a token or an API key with --token, or in MONARQ_TOKEN; "
    "`monarq api-key create` makes one",
    "forbidden": "use a token or an API key with a higher role (read, write, jobs, admin)",
    "commands_refused": "`monarq enqueue` is for shell commands, `monarq push` for anything else",
}


def make_app(command: str | None = None) -> typer.Typer:
    """The whole command line, or as much of it as a command needs."""
    import typer

    app = typer.Typer(
        name="monarq",
        help="One broker for messages and jobs, on SQLite or PostgreSQL.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    wanted = COMMANDS.get(command or "")
    modules = [wanted] if wanted else dict.fromkeys(COMMANDS.values())
    for module in modules:
        importlib.import_module(f"monarq.cli.{module}").add_to(app)
    shown: list[Any] = [*app.registered_commands, *app.registered_groups]
    for each in shown:
        if each.name in _RUNNING:
            each.rich_help_panel = "Running a broker"
    if wanted:
        # What a command shares its module with would cost time, too.
        app.registered_commands = [each for each in app.registered_commands if each.name == command]

    def options(
        show_version: bool = typer.Option(
            False, "--version", help="Print the version and exit.", is_eager=True
        ),
    ) -> None:
        if show_version:
            version()
            raise typer.Exit

    app.callback()(options)

    def print_version(
        as_json: bool = typer.Option(
            False, "--json", help="print JSON, and nothing else, on stdout"
        ),
    ) -> None:
        """Print the version."""
        version(as_json)

    app.command("version", rich_help_panel="Looking")(print_version)
    _unwrap_help(app)
    return app


def _unwrap_help(app: typer.Typer) -> None:
    """Take the source's line breaks out of help: the terminal has a width of its own."""
    for command in app.registered_commands:
        paragraphs = (inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _unwrap_help(group.typer_instance)


def version(as_json: bool = False) -> None:
    """Print the version."""
    from monarq import __version__

    print(f'{{"version": "{__version__}"}}' if as_json else __version__)


def main() -> None:
    """The script's entry point."""
    _open_closed_streams()
    if "MONARQ_ENVIRONMENT_FD" in os.environ:
        from monarq.jobs.environment import take_over

        take_over()
    if sys.argv[1:] == ["--version"]:
        version()
        return
    first = "".join(sys.argv[1:2]).partition("=")[0]
    if first in _OF_COMMANDS:
        from monarq.cli.messages import complain

        complain(f"{first} belongs behind the command: monarq list {first} …")
        sys.exit(2)
    named = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    if named not in _LONG_RUNNING:
        # Little of what is imported becomes garbage; to look for it takes a tenth of the start.
        gc.set_threshold(100_000)
    code: int | str | None = 0
    try:
        make_app(named)()
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 1
    except SystemExit as leaving:
        code = leaving.code
    except Exception as error:
        code = told(error)
        if code is None:
            raise
    if named in _LONG_RUNNING or not isinstance(code, int | None):
        sys.exit(code)
    _leave(code or 0)


def _open_closed_streams() -> None:
    """What the caller has closed leads nowhere; left so, the next file or socket would have its
    number, and everything that is written to it."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "w" if number else "r"))


def _leave(code: int) -> NoReturn:
    """End at once. Everything is closed by now, and to take the interpreter apart in order costs a
    shell user as much time as a command does."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            # Whoever read our answer has had enough of it, or there is no room for it.
            code = code or told(error) or 1
    os._exit(code)


def told(error: Exception) -> int | None:
    """Tell an error of ours, or of what was typed, on stderr; the exit code, or None if it is
    neither."""
    from monarq.cli.messages import complain
    from monarq.errors import MonarqError, SettingsError

    if isinstance(error, SettingsError):
        complain("the settings cannot be used:")
        for line in str(error).splitlines():
            complain(f"  {line}")
        return 2
    if isinstance(error, MonarqError):
        complain(str(error))
        for note in getattr(error, "__notes__", ()):
            complain(f"  {note}")
        if error.code in _HINTS:
            complain(f"  {_HINTS[error.code]}")
        return 1
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        complain(f"the answer could not be written: {error.strerror}")
        return 1
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        # Python keeps bytes of arguments and of stdin that are no text as halves of pairs.
        complain("names, commands and payloads must be UTF-8 text; what was given is not")
        return 1
    if isinstance(error, UnicodeEncodeError):
        complain(f"the answer cannot be written as {error.encoding}: use a locale with UTF-8")
        return 1
    return None
