"""The device that a policy's network is evaluated on."""

from mycelia_actor.policies.action_values import UnplayableError


def find_device(wanted: str, key: str) -> str:
    """Returns torch's name of the device to use; `cpu` also where there is no torch.

    Args:
      wanted: `cpu`, `cuda`, or `auto` for a GPU where torch sees one.
      key: of the config, for the error.

    Raises:
      UnplayableError: `cuda` is asked for, and torch sees no GPU or is missing.
    """
    if wanted == "cpu":
        return wanted
    try:
        import torch
    except ImportError:
        found = False
    else:
        found = torch.cuda.is_available()
    if wanted == "cuda" and not found:
        raise UnplayableError(f"{key}=cuda: torch sees no GPU here, or is missing")
    return "cuda" if found else "cpu"
