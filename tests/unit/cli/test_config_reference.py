"""The reference of the config keys."""

from pathlib import Path

from mycelia_cli.config_reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "config.md"


def test_the_page_is_what_the_schema_says():
    assert PAGE.read_text() == reference(), "run python -m mycelia_cli.config_reference"
