"""Names of entries as a person writes them, found among those that results have. Needs no plugin, so readers can use it."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench.contracts import BASELINE
from lgbench.errors import unknown

PREFIX = f"{BASELINE}+"


def find_entry(name: str, known: Iterable[str]) -> str:
    """The known entry of that name; a norm scheme alone means it in the baseline. UsageError where there is none.

    >>> find_entry("peri-norm@bema", ["transformer+peri-norm", "transformer+peri-norm@bema"])
    'transformer+peri-norm@bema'
    """
    names = set(known)
    for written in (name, PREFIX + name):
        if written in names:
            return written
    # Suggestions are as short as the name, or a misspelt short name would be near nothing.
    raise unknown("entry", name, names if "+" in name else {full.removeprefix(PREFIX) for full in names})


def short(names: Iterable[str]) -> list[str]:
    """Names as they are told apart: without the baseline's, where all have it.

    >>> short(["transformer+pre-norm", "transformer+peri-norm@ema"]), short(["transformer+pre-norm", "set-attention+pre-norm"])
    (['pre-norm', 'peri-norm@ema'], ['transformer+pre-norm', 'set-attention+pre-norm'])
    """
    names = list(names)
    common = PREFIX if all(name.startswith(PREFIX) for name in names) else ""
    return [name.removeprefix(common) for name in names]
