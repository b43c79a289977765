"""The replay service on its own, without a run: tables from the command line."""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np
from pydantic import ValidationError

from mycelia_core.config import TableConfig, WindowConfig
from mycelia_core.lifecycle import StopSignal
from mycelia_core.seeds import seed_sequence
from mycelia_core.specs import REQUIRED_COLUMNS, Codec, ColumnSpec, Signature
from mycelia_replay.checkpoint.storage import Storage
from mycelia_replay.opening import open_tables
from mycelia_replay.saving import saved_until
from mycelia_replay.server import ReplayServer
from mycelia_replay.table import Table
from mycelia_replay.table_settings import with_error_buffer

COLUMNS = "columns"


def parse_table(text: str) -> tuple[TableConfig, Signature]:
    """Reads a table's settings and columns.

    For example `name=train,capacity_rows=1000000,columns=observation:uint8:84x84+action:int64`:
    the settings of `TableConfig` and `WindowConfig` by name, and columns as
    `name:dtype[:shape][@codec]`, joined by `+`; reward and flags are there anyway.

    Raises:
      ValueError: something is not known, not valid or missing.
    """
    settings: dict[str, object] = {}
    for word in text.split(","):
        key, found, value = word.partition("=")
        if not found or key in settings:
            raise ValueError(f"--table: expected key=value, each key once, got {word!r}")
        settings[key] = value
    columns = settings.pop(COLUMNS, "")
    if not columns:
        raise ValueError(f"--table: {COLUMNS}= is missing, such as observation:float32:4")
    window = {key: settings.pop(key) for key in WindowConfig.model_fields if key in settings}
    try:
        config = TableConfig.model_validate(settings | {"window": window})
    except ValidationError as error:
        raise ValueError(f"--table: {_first_problem(error)}") from error
    return with_error_buffer(config), _parse_columns(str(columns))


async def serve_alone(
    server: ReplayServer,
    tables: Sequence[tuple[TableConfig, Signature]],
    *,
    seed: int,
    storage: Storage | None,
    checkpoint_period_seconds: float,
    stop: StopSignal,
) -> None:
    """Serves tables without a run until `stop`, then saves a last checkpoint.

    Raises:
      ValueError: the settings contradict one another, or those of the checkpoint.
    """

    def make() -> Sequence[Table]:
        return [
            Table(config, signature, seed_sequence(seed, "replay", index))
            for index, (config, signature) in enumerate(tables)
        ]

    opened = await open_tables(server, "", make, storage)
    async with saved_until(server, opened.checkpointer, checkpoint_period_seconds):
        while not stop.stopping.is_set():
            await asyncio.sleep(0.05)


def _parse_columns(text: str) -> Signature:
    names = {column.name for column in REQUIRED_COLUMNS}
    columns = [_parse_column(word) for word in text.split("+")]
    return Signature.of([column for column in columns if column.name not in names])


def _parse_column(text: str) -> ColumnSpec:
    described, _, codec = text.partition("@")
    name, _, kind = described.partition(":")
    dtype, _, shape = kind.partition(":")
    try:
        return ColumnSpec(
            name,
            np.dtype(dtype or None),
            tuple(int(size) for size in shape.split("x")) if shape else (),
            codec=Codec[codec.upper()] if codec else Codec.RAW,
        )
    except (TypeError, ValueError, KeyError) as error:
        raise ValueError(
            f"--table: column {text!r}: expected name:dtype[:shape][@codec], "
            f"such as observation:uint8:84x84@lz4"
        ) from error


def _first_problem(error: ValidationError) -> str:
    problem: Mapping[str, object] = error.errors()[0]
    location = problem["loc"]
    where = ".".join(map(str, location)) if isinstance(location, tuple) else ""
    return f"{where}: {problem['msg']}"
