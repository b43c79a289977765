"""Table settings as messages, and back."""

from typing import Any

from pydantic import ValidationError

from mycelia.replay.v1 import replay_pb2 as pb
from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.rpc.errors import InvalidArgumentError


def parse_settings(message: pb.TableSettings) -> TableConfig:
    """Reads settings; what is not set takes its default.

    Raises:
      InvalidArgumentError: they are not valid, or contradict one another.
    """
    settings = _set_fields(message) | {"window": _set_fields(message.window)}
    for required in ("name", "capacity_rows"):
        if required not in settings:
            raise InvalidArgumentError(f"settings.{required}: expected it to be set")
    try:
        return with_error_buffer(TableConfig.model_validate(settings))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(["settings", *map(str, problem["loc"])])
        raise InvalidArgumentError(f"{where}: {problem['msg']}") from error


def with_error_buffer(config: TableConfig) -> TableConfig:
    """Returns the settings with the error buffer filled in, if it is left open."""
    if not config.samples_per_insert or config.error_buffer:
        return config
    # Enough for batches of up to 1024.
    return config.model_copy(update={"error_buffer": max(1024.0, 2 * config.samples_per_insert)})


def settings_to_proto(config: TableConfig, window: WindowConfig) -> pb.TableSettings:
    """Encodes the settings of a table."""
    settings = config.model_dump(include=set(TableConfig.model_fields) - {"window"})
    return pb.TableSettings(**settings, window=pb.WindowSettings(**window.model_dump()))


def _set_fields(message: pb.TableSettings | pb.WindowSettings) -> dict[str, Any]:
    """Returns the scalars that are set: others than 0, or marked as set."""
    return {
        field.name: value for field, value in message.ListFields() if field.message_type is None
    }
