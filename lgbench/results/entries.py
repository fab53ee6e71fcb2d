"""Names of entries as a person writes them, found among those that results have. Needs no plugin, so readers can use it."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench.contracts import BASELINE
from lgbench.errors import UsageError, unknown

PREFIX = f"{BASELINE}+"

BASELINE_ENTRY = f"{PREFIX}pre-norm"
"""The entry that boards compare the others with, unless another one is named."""


def find_entry(name: str, known: Iterable[str]) -> str:
    """The known entry of that name, or the only one with all the parts that it names; one in the baseline comes first.

    Raises UsageError where there is none, or several.

    >>> find_entry("peri-norm@bema", ["transformer+peri-norm", "transformer+peri-norm@bema"])
    'transformer+peri-norm@bema'
    >>> find_entry("rope", ["transformer+pre-norm", "transformer+pre-norm+rope"])
    'transformer+pre-norm+rope'
    """
    names = sorted(set(known))
    for written in (name, PREFIX + name):
        if written in names:
            return written
    parts, weights = _parts(name)
    found = [full for full in names if _parts(full)[1] == weights and parts <= _parts(full)[0]]
    found = [full for full in found if full.startswith(PREFIX)] or found
    if len(found) > 1:
        raise UsageError(f"{name!r} may be any of {', '.join(found)}: name more of its parts")
    if found:
        return found[0]
    # Suggestions are as short as the name, or a misspelt short name would be near nothing.
    raise unknown("entry", name, names if "+" in name else {full.removeprefix(PREFIX) for full in names})


def _parts(entry: str) -> tuple[set[str], str]:
    """The parts of an entry, and its weights. A part that came from a plugin file is also there without its content's hash.

    Versions of packages in brackets are one more part, whatever signs are in them.
    """
    name, _, versions = entry.partition(" (")
    model, _, weights = name.partition("@")
    versions, _, later = versions.partition(")@")
    parts = set(model.split("+"))
    own = {versions.removesuffix(")")} if versions else set()
    return own | parts | {part.partition("~")[0] for part in parts}, weights or later


def short(names: Iterable[str]) -> list[str]:
    """Names without that of the baseline, where all have it.

    >>> short(["transformer+pre-norm", "transformer+peri-norm@ema"]), short(["transformer+pre-norm", "set-attention"])
    (['pre-norm', 'peri-norm@ema'], ['transformer+pre-norm', 'set-attention'])
    """
    names = list(names)
    common = PREFIX if all(name.startswith(PREFIX) for name in names) else ""
    return [name.removeprefix(common) for name in names]
