"""The page about the settings says what the code does."""

import re
import tomllib
from pathlib import Path

import pytest

from monarq.cli.settings_reference import settings_tables
from monarq.config import FIELDS
from monarq.errors import SettingsError
from monarq.settings_loading import load

PAGE = (Path(__file__).parent.parent / "docs" / "configuration.md").read_text()


def test_the_tables_are_those_of_the_code() -> None:
    _, _, tables = PAGE.partition("<!-- from `monarq config reference` -->\n")
    assert tables.strip() == settings_tables().strip(), (
        "write them anew: monarq config reference, behind the marker in docs/configuration.md"
    )


def test_every_setting_stands_in_a_table_once() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert [row for row in rows if row in FIELDS] == list(FIELDS)


def test_the_example_file_is_a_good_one(tmp_path: Path) -> None:
    [example] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    assert tomllib.loads(example)
    file = tmp_path / "settings.toml"
    file.write_text(example)
    assert load(environ={}, file=str(file)).settings.workers == 4


def test_the_mistake_is_told_as_the_page_says() -> None:
    with pytest.raises(SettingsError) as raised:
        load({"workers": "2"}, environ={"MONARQ_PORT": "http"})
    assert f"monarq:   {raised.value}" in PAGE
