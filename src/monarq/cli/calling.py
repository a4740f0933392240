"""What commands that talk to a broker share: where it is, how they answer, how they fail.

A command takes a `Caller` first; `calling` gives its function the options that all of them have.
Answers go to stdout (with `--json`, only JSON), everything else to stderr.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from monarq.errors import InvalidRequestError, NotFoundError, StoreUnavailableError

if TYPE_CHECKING:
    from monarq.cli.looking import Looker
    from monarq.client.async_client import AsyncClient
    from monarq.client.client import Client
    from monarq.config import Settings

T = TypeVar("T")

INTERRUPTED = 130
_PANEL = "Where the broker is"

StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        help="store address; the broker then runs in this process (variable: MONARQ_STORE; "
        "default: the SQLite file in the data directory)",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
UrlOption = Annotated[
    list[str] | None,
    typer.Option(
        "--url",
        help="URL of a broker, instead of a store; may be given several times "
        "(variable: MONARQ_URL)",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
TokenOption = Annotated[
    str | None,
    typer.Option(
        "--token",
        help="token or API key for --url (variable: MONARQ_TOKEN)",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON, and nothing else, on stdout")]

RawOption = Annotated[
    bool,
    typer.Option("--raw", help="print control characters as they are, also at a terminal"),
]

COMMON_OPTIONS: dict[str, Any] = {
    "store": StoreOption,
    "url": UrlOption,
    "token": TokenOption,
    "as_json": JsonOption,
}


class Caller:
    """Where a command's broker is, and how it answers."""

    def __init__(
        self, store: str | None, url: Sequence[str] | None, token: str | None, as_json: bool
    ) -> None:
        if store and url:
            raise InvalidRequestError("give --store or --url, not both")
        # What was typed wins over what a variable says.
        variable = "" if store else os.environ.get("MONARQ_URL", "")
        self.urls = list(url or variable.replace(",", " ").split())
        self.token = token or os.environ.get("MONARQ_TOKEN") or None
        self.as_json = as_json
        self._store = store

    @property
    def address(self) -> str | list[str]:
        """For a client."""
        return self.urls or self.store_address

    @property
    def store_address(self) -> str:
        from monarq.places import store_address

        return self._store or store_address(self._settings)

    @property
    def is_told_where(self) -> bool:
        """Whether an option, a variable or the settings file says where the broker is."""
        return bool(self.urls or self._store or self._settings.store)

    @property
    def variables(self) -> dict[str, str]:
        """What was typed, as variables for the commands that this one starts."""
        typed = {"MONARQ_URL": " ".join(self.urls), "MONARQ_TOKEN": self.token or ""}
        return typed if self._store is None else typed | {"MONARQ_STORE": self._store}

    @property
    def options(self) -> dict[str, Any]:
        """How a client reaches the broker, beside its address."""
        if self.urls:
            return {"token": self.token}
        return self._store_options

    @property
    def sealing(self) -> tuple[Sequence[str], str]:
        """The keys and the schema of a store; a broker has its own."""
        return self._settings.encryption_keys, self._settings.schema

    @property
    def _store_options(self) -> dict[str, Any]:
        return {"keys": self.encryption_keys, "schema": self._settings.schema}

    @property
    def encryption_keys(self) -> list[bytes]:
        texts = self._settings.encryption_keys
        if not texts:
            return []
        from monarq.crypto import parse_key

        return [parse_key(text) for text in texts]

    @cached_property
    def _settings(self) -> Settings:
        from monarq.settings_loading import load

        return load(check=False).settings

    @contextmanager
    def client(self, *, only_looks: bool = False) -> Iterator[Client]:
        """With `only_looks`, a store that was named must be there: it is not made by looking."""
        from monarq.client.client import Client

        if only_looks:
            self.check_store_is_there()
        self._check_reachable()
        with Client(self.address, **self.options) as client:
            yield client

    @contextmanager
    def looking(self) -> Iterator[Looker]:
        """For commands that only read: quicker than a client, on a store of one's own."""
        if self.urls:
            with self.client() as client:
                yield client
            return
        from monarq.cli.looking import look_into

        self.check_store_is_there()
        with look_into(self.store_address, **self._store_options) as look:
            yield look

    def ask(self, question: Callable[[AsyncClient], Awaitable[T]]) -> T:
        """What the question answers, given an open client: for calls that only an asynchronous
        client has."""
        import asyncio

        from monarq.client.async_client import AsyncClient

        self._check_reachable()

        async def run() -> T:
            async with AsyncClient(self.address, **self.options) as client:
                return await question(client)

        return asyncio.run(run())

    def check_store_is_there(self) -> None:
        """Refuse a SQLite file that was named and does not exist: more likely a slip of the pen
        than a wish. The user's own file needs no naming, and is empty until something is in it."""
        named = None if self.urls else self._store or self._settings.store
        if named and named.startswith("sqlite:///"):
            path = Path(named.removeprefix("sqlite:///"))
            if not path.exists():
                raise NotFoundError(
                    f"there is no store {path}; correct --store or MONARQ_STORE "
                    "(the first push or job makes one)"
                )

    def _check_reachable(self) -> None:
        """Say at once that nobody is there: a client would first try again for a while."""
        if self.urls:
            from monarq.cli.reaching import check_reachable

            check_reachable(self.urls)

    # --- answers -----------------------------------------------------------------------------

    def answer(self, value: Any, text: str | Callable[[], None]) -> None:
        """One answer: `value` as JSON, or else the text."""
        if self.as_json:
            print_json(value)
        elif callable(text):
            text()
        else:
            from monarq.cli.terminal import shown

            print(shown(text))

    def rows(self, rows: Iterable[dict[str, Any]], columns: Sequence[str], *, empty: str) -> None:
        """A list: a JSON array of objects, or a table of these columns."""
        found = list(rows)
        if self.as_json:
            print_json(found)
        elif not found:
            say(empty)
        else:
            print_rows(found, columns)


def calling(command: Callable[..., None]) -> Callable[..., None]:
    """`command(caller, …)` as a function with the common options at the end."""

    def run(
        *, store: str | None, url: list[str] | None, token: str | None, as_json: bool, **own: Any
    ) -> None:
        caller = Caller(store, url, token, as_json)
        try:
            command(caller, **own)
        except StoreUnavailableError as error:
            if not caller.urls:
                error.add_note(
                    "start it, or correct --store or MONARQ_STORE; `monarq doctor` looks closer"
                )
            raise
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None

    signature = inspect.signature(command, eval_str=True)
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in list(signature.parameters.values())[1:]
    ]
    common = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if name == "as_json" else None,
            annotation=annotation,
        )
        for name, annotation in COMMON_OPTIONS.items()
    ]
    parameters = [*own, *common]
    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def say(text: str) -> None:
    """A line on stderr, for people."""
    from monarq.cli.terminal import shown

    print(shown(text, sys.stderr), file=sys.stderr)


def print_json(value: Any) -> None:
    import msgspec

    from monarq.cli.terminal import shown_json

    print(
        shown_json(
            json.dumps(msgspec.to_builtins(value, enc_hook=int), ensure_ascii=False, indent=2)
        )
    )


def print_rows(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """A table of these columns; points in time (`…_at`) as how long ago that was."""
    from monarq.cli.tables import print_table

    print_table(
        [column.removesuffix("_at").replace("_", " ") for column in columns],
        [[_shown(column, row.get(column)) for column in columns] for row in rows],
    )


def _shown(column: str, value: Any) -> Any:
    if column.endswith("_at") and isinstance(value, str):
        from monarq.cli.formats import since

        return since(value)
    if isinstance(value, list):
        return ",".join(map(str, value)) or None
    return value


def confirm(question: str, yes: bool) -> None:
    """Ask, unless `--yes` was given; where nobody can be asked, that is needed."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InvalidRequestError(f"{question} Say --yes to go on.")
    from monarq.cli.terminal import shown

    if not typer.confirm(shown(question, sys.stderr), err=True):
        raise typer.Exit(1)
