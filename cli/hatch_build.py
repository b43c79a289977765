"""Puts the presets into the wheel; an editable install reads those of the checkout."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PRESETS = Path(__file__).resolve().parents[1] / "configs"


class IncludePresets(BuildHookInterface[Any]):
    """Adds `configs/` as `mycelia_cli/configs`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a build.

        Raises:
          FileNotFoundError: the presets are not where a full checkout has them.
        """
        # A copy in an editable install would grow stale.
        if version == "editable":
            return
        if not PRESETS.is_dir():
            raise FileNotFoundError(f"no presets in {PRESETS}; build from a full checkout")
        build_data["force_include"][str(PRESETS)] = "mycelia_cli/configs"
