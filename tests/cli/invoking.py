"""Runs the command line in this process, where no process of its own is needed: much quicker."""

import io
import json
from collections.abc import Mapping
from contextlib import redirect_stderr
from functools import cache
from typing import Any

import typer
import typer.testing
from typer.testing import CliRunner

from monarq.cli.main import make_app, told

# The runner makes the application's commands anew at each call, which takes longer than most calls.
typer.testing._get_command = cache(typer.main.get_command)


class Answer:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def __repr__(self) -> str:
        return f"exit code {self.code}\nstdout:\n{self.out}\nstderr:\n{self.err}"


class Invoke:
    """`cli("push", "orders", "1")`: what the command answered. With `.ok(…)` it must have done
    what it was told."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)

    def __call__(self, *arguments: str, stdin: str = "", **variables: str) -> Answer:
        result = CliRunner().invoke(
            _app(), list(arguments), input=stdin, env=self.environment | variables
        )
        err, code = result.stderr, result.exit_code
        if isinstance(result.exception, Exception):
            said = io.StringIO()
            with redirect_stderr(said):
                ours = told(result.exception)
            if ours is None:
                raise result.exception
            err, code = err + said.getvalue(), ours
        return Answer(code, result.stdout, err)

    def ok(self, *arguments: str, stdin: str = "", **variables: str) -> Answer:
        answer = self(*arguments, stdin=stdin, **variables)
        assert answer.code == 0, answer
        return answer

    def json(self, *arguments: str, stdin: str = "", **variables: str) -> Any:
        return self.ok(*arguments, "--json", stdin=stdin, **variables).json

    def refused(self, *arguments: str, stdin: str = "", **variables: str) -> str:
        """What is said on stderr by a command that must fail with code 1, and say nothing else."""
        answer = self(*arguments, stdin=stdin, **variables)
        assert (answer.code, answer.out) == (1, ""), answer
        assert "Traceback" not in answer.err
        return answer.err


@cache
def _app() -> typer.Typer:
    return make_app()
