"""Tables made on request, in the manifest: what they are made from, since no config has them."""

from collections.abc import Mapping
from typing import Any

from mycelia.experience.v1 import signature_pb2
from mycelia_core.config import TableConfig
from mycelia_core.specs import Signature
from mycelia_replay.table import Table
from mycelia_replay.table_creation import create_table


def recipe(table: Table) -> dict[str, Any] | None:
    """Returns what such a table can be made from again; None for one of the config."""
    if not table.made_on_request:
        return None
    return {
        "config": table.config.model_dump(mode="json"),
        "signature": table.signature.to_proto().SerializeToString().hex(),
    }


def make_again(saved_tables: Mapping[str, Any]) -> list[Table]:
    """Makes the tables of a manifest that were made on request.

    Raises:
      KeyError, TypeError, ValueError: it is not what `recipe` returned.
    """
    recipes = [saved.get("made_from") for saved in saved_tables.values()]
    return [
        create_table(
            TableConfig.model_validate(recipe["config"]),
            Signature.from_proto(
                signature_pb2.Signature.FromString(bytes.fromhex(recipe["signature"]))
            ),
        )
        for recipe in recipes
        if recipe
    ]
