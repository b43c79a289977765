"""Run folders."""

import re

import pytest

from mycelia_cli.errors import InputError
from mycelia_cli.run_folder import create_run_folder, find_run_folder


@pytest.fixture
def run(tmp_path):
    folder = create_run_folder(tmp_path, "apex")
    folder.config.write_text("{}")
    return folder


def test_a_run_folder_is_named_by_run_and_time_and_has_a_place_for_logs(tmp_path):
    folder = create_run_folder(tmp_path / "runs", "apex")

    assert re.fullmatch(r"apex-\d{8}-\d{6}", folder.path.name)
    assert folder.logs.is_dir()


def test_two_runs_never_share_a_folder(tmp_path):
    paths = {create_run_folder(tmp_path, "apex").path for _ in range(5)}

    assert len(paths) == 5


def test_a_place_that_cannot_hold_runs_is_named(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(InputError, match=r"cannot make a run folder in .*file"):
        create_run_folder(tmp_path / "file", "apex")


def test_a_run_is_found_by_its_path_and_by_its_name(tmp_path, run):
    by_path = find_run_folder(str(run.path), tmp_path / "elsewhere")
    by_name = find_run_folder(run.path.name, tmp_path)

    assert by_path.path == by_name.path == run.path


def test_a_run_that_is_not_there_is_refused_with_the_nearest_name(tmp_path, run):
    with pytest.raises(InputError, match=f'did you mean "{run.path.name}"'):
        find_run_folder(run.path.name[:-1], tmp_path)


def test_a_folder_without_a_config_is_not_a_run(tmp_path):
    (tmp_path / "other").mkdir()

    with pytest.raises(InputError, match=r"not a run folder: it has no config\.json"):
        find_run_folder(str(tmp_path / "other"), tmp_path)
