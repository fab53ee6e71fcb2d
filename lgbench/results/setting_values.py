"""The value that each run has of one setting: what `--set` made it, or else what the footer of the run says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

from lgbench.experiment.record import ProtocolUse
from lgbench.results.database import Database

SettingValue = int | float | str
"""A switch is "on" or "off"."""

PRECISION = "precision"
"""A change of a protocol that is no setting of `--set`: `--precision` makes it."""

MAX_TEXT = 100
"""Characters of a value in a footer, which anybody may have written."""


def setting_values(results: Database, setting: str, runs: Mapping[str, ProtocolUse]) -> dict[str, SettingValue]:
    """By run id, for the runs that have the setting. Footers are read only where changes do not say the value."""
    found: dict[str, SettingValue] = {}
    for run, use in runs.items():
        changes = {PRECISION: use.precision, **dict(use.changes)}
        if setting in changes:
            found[run] = of_text(changes[setting])
    missing = runs.keys() - found.keys()
    if not missing:
        return found
    for run, footer in results.footers():
        if run in missing and (value := settings_in(footer).get(setting)) is not None:
            found[run] = value
    return found


def known_settings(results: Database) -> set[str]:
    """The names of all settings that any run has."""
    names = {PRECISION, *(setting for use in results.protocols.values() for setting, _ in use.changes)}
    for _, footer in results.footers():
        names |= settings_in(footer).keys()
    return names


def settings_in(footer: Mapping[str, Any]) -> dict[str, SettingValue]:
    """Every setting that a footer says, under the name by which `--set` reaches it. All that is no setting is passed over."""
    experiment = footer.get("experiment")
    if not isinstance(experiment, dict):
        return {}
    said: list[tuple[Any, Any]] = []
    for section in ("train", "evaluate"):
        own = experiment.get(section)
        said += [(f"{section}.{name}", value) for name, value in own.items()] if isinstance(own, dict) else []
    options = experiment.get("options")
    pairs = options if isinstance(options, list) else []
    said += [(each[0], each[1]) for each in pairs if isinstance(each, list) and len(each) == 2]
    named = {name: _of_json(value) for name, value in said if isinstance(name, str) and _can_be_shown(name)}
    return {name: value for name, value in named.items() if value is not None}


def of_text(text: str) -> SettingValue:
    """A value from how it is written, as changes of a protocol have it.

    >>> of_text("64"), of_text("1e-05"), of_text("True"), of_text("exact")
    (64, 1e-05, 'on', 'exact')
    """
    if text in ("True", "False"):
        return "on" if text == "True" else "off"
    try:
        number = float(text)
    except ValueError:
        return text
    return _whole(number) if isfinite(number) else text


def ordered(values: Iterable[SettingValue]) -> list[SettingValue]:
    """Each value once: numbers by size, then texts in alphabetical order.

    >>> ordered([64, 16, "auto", 16.0])
    [16, 64, 'auto']
    """
    return sorted(set(values), key=lambda value: (isinstance(value, str), value if isinstance(value, str) else 0, value))


def _of_json(value: Any) -> SettingValue | None:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str):
        return of_text(value) if _can_be_shown(value) else None
    if isinstance(value, int | float) and abs(value) < 1e300:
        return _whole(float(value))
    return None


def _whole(number: float) -> int | float:
    """1 for 1.0, so that a number has one way to be written."""
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _can_be_shown(text: str) -> bool:
    return 0 < len(text) <= MAX_TEXT and text.isprintable()
