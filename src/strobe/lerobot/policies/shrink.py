"""The tiny version of a policy's config."""

from __future__ import annotations

from lerobot.configs import PreTrainedConfig

from strobe.core.errors import UserError
from strobe.core.families.family import Family
from strobe.core.families.registry import registered, types_with


def shrink(config: PreTrainedConfig) -> None:
    """Change ``config`` in place to its tiny version. Chunk and observation lengths stay as they are.

    Raises UserError for a policy type that has no tiny version.
    """
    family = _shrinking(config)
    if family is None or family.tiny is None:
        known = types_with(lambda family: family.tiny)
        raise UserError(
            f"policy.size=tiny is not available for '{config.type}', only for {', '.join(known)}; "
            "leave it out to build the full size"
        )
    for name, value in family.tiny.fields.items():
        setattr(config, name, value)
    for name, value in family.tiny.defaults.items():
        if getattr(config, name, None) is None:
            setattr(config, name, value)


def _shrinking(config: PreTrainedConfig) -> Family | None:
    """Return the record of the config's type; for a type without one, of the type whose config it extends."""
    family = registered(config.type)
    if family is not None:
        return family
    known = {kind: name for name, kind in PreTrainedConfig.get_known_choices().items()}
    return next(
        (
            family_of_base
            for base in type(config).__mro__
            if (family_of_base := registered(known.get(base, ""))) is not None
        ),
        None,
    )
