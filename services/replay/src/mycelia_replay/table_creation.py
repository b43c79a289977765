"""Tables made on request, while the server runs."""

import numpy as np

from mycelia_core.config import TableConfig
from mycelia_core.rpc.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from mycelia_core.specs import Signature
from mycelia_replay.table import Table


def create_table(config: TableConfig, signature: Signature) -> Table:
    """Makes a table; what it draws is left to chance.

    Raises:
      InvalidArgumentError: with these settings somebody would wait for ever.
      ResourceExhaustedError: there is not memory enough.
    """
    try:
        return Table(config, signature, np.random.SeedSequence(), made_on_request=True)
    except MemoryError as error:
        raise ResourceExhaustedError(
            f"table {config.name!r}: no memory for capacity_rows={config.capacity_rows}"
        ) from error
    except ValueError as error:
        raise InvalidArgumentError(f"settings: {error}") from error


def check_same(table: Table, config: TableConfig, signature: Signature) -> None:
    """Checks that a table that is there is the one asked for.

    Raises:
      AlreadyExistsError: it has other settings, or another signature.
    """
    difference = table.signature.difference(signature)
    if difference:
        raise AlreadyExistsError(f"table {table.name!r} is there with {difference}")
    for name in TableConfig.model_fields:
        mine, asked = getattr(table.config, name), getattr(config, name)
        if mine != asked:
            raise AlreadyExistsError(
                f"table {table.name!r} is there with {name}={mine}, got {name}={asked}"
            )
