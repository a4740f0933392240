"""The page about the command line and its help say what the code does."""

from pathlib import Path

from monarq.cli import main
from monarq.cli.reference import commands, reference

PAGE = (Path(__file__).parent.parent.parent / "docs" / "cli.md").read_text()
MARK = "<!-- from `monarq reference` -->\n"


def test_the_reference_is_that_of_the_code() -> None:
    _, mark, tables = PAGE.partition(MARK)
    assert mark
    assert tables.strip() == reference().strip(), (
        "write it anew: monarq reference, behind the marker in docs/cli.md"
    )


def test_the_exit_codes_are_those_of_the_code() -> None:
    assert main.__doc__ is not None
    rows = [line for line in main.__doc__.splitlines() if line.startswith("|")]
    assert rows
    for row in rows:
        assert row in PAGE


def test_help_has_no_line_breaks_but_those_between_paragraphs() -> None:
    for name, command in commands(main.make_app()):
        assert command.help, name
        assert "\n" not in command.help.replace("\n\n", ""), name
