"""Presets: TOML files that hold the settings of a run, and where they are found."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mycelia_cli.errors import InputError, did_you_mean

_HERE = Path(__file__).resolve().parent
_IN_CHECKOUT = (_HERE / "../../../configs").resolve()
_IN_WHEEL = _HERE / "configs"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """One preset as its file has it, before anything is laid over it."""

    name: str
    path: Path
    description: str
    settings: dict[str, Any]


def preset_dir() -> Path:
    """Returns the folder of the presets that come with Mycelia.

    An editable install reads the checkout's `configs/`; a wheel carries a copy.
    """
    return _IN_CHECKOUT if _IN_CHECKOUT.is_dir() else _IN_WHEEL


def preset_names(folder: Path | None = None) -> list[str]:
    """Returns the names of the presets in a folder, sorted."""
    return sorted(path.stem for path in (folder or preset_dir()).glob("*.toml"))


def load_preset(name: str, folder: Path | None = None) -> Preset:
    """Reads a preset by its name, or by the path of any TOML file.

    Raises:
      InputError: there is no such preset or file, or it is not TOML.
    """
    folder = folder or preset_dir()
    path = Path(name) if name.endswith(".toml") else folder / f"{name}.toml"
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise _unknown(name, folder) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"cannot read preset {path}: {error}") from error
    description = settings.get("description", "")
    if not isinstance(description, str):
        raise InputError(f"preset {path}: description must be a string, got {description!r}")
    return Preset(name=path.stem, path=path, description=description, settings=settings)


def _unknown(name: str, folder: Path) -> InputError:
    if name.endswith(".toml"):
        return InputError(f'no preset file "{name}"')
    names = preset_names(folder)
    hint = did_you_mean(name, names) or f"; there are: {', '.join(names) or 'none'}"
    return InputError(f'unknown preset "{name}"{hint}')
