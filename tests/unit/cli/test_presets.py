"""Presets and where they are found."""

import pytest

from mycelia_cli.errors import InputError
from mycelia_cli.presets import load_preset, preset_names


def test_a_preset_is_loaded_by_name_with_its_one_line():
    preset = load_preset("apex-cartpole")

    assert preset.name in preset_names()
    assert preset.settings["env"]["id"] == "CartPole-v1"
    assert "CartPole" in preset.description


def test_every_number_in_a_preset_has_a_comment():
    lines = load_preset("apex-cartpole").path.read_text().splitlines()

    settings = [line for line in lines if "=" in line and not line.startswith("#")]
    numbers = [line for line in settings if line.split("=")[1].strip()[0] in "0123456789["]
    assert numbers
    assert [line for line in numbers if "#" not in line] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("apex-cartpol", 'unknown preset "apex-cartpol"; did you mean "apex-cartpole"?'),
        ("zzz", 'unknown preset "zzz"; there are: '),
        ("", 'unknown preset ""; there are: '),
        ("nowhere.toml", 'no preset file "nowhere.toml"'),
    ],
)
def test_an_unknown_preset_is_refused_with_the_nearest_name(name, text):
    with pytest.raises(InputError) as refusal:
        load_preset(name)

    assert str(refusal.value).startswith(text)


@pytest.mark.parametrize("content", [b"[learner", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_refused_by_its_path(tmp_path, content):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)

    with pytest.raises(InputError, match=r"cannot read preset .*broken\.toml"):
        load_preset(str(path))


def test_a_folder_of_presets_can_be_empty(tmp_path):
    with pytest.raises(InputError, match="there are: none"):
        load_preset("a", tmp_path)
