"""Every key of a claim's file, and what it may hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from lgbench.claims.claim import EXPECTATIONS, LENGTH_SETS
from lgbench.contracts import METRIC_NAME, NAME
from lgbench.experiment.limits import MAX_SEEDS


@dataclass(frozen=True)
class Key:
    """A key of a claim's file, with the values that it may hold."""

    expected: str
    """For people, such as "a line of text"."""
    holds: Callable[[Any], bool]
    meaning: str
    required: bool = False


def _line(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != "" and value.isprintable()


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e6 and isfinite(value)


def _whole(value: Any, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most


def _list_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def every(value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(map(holds, value)) and len(set(value)) == len(value)

    return every


def _named(value: Any) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _measured(value: Any) -> bool:
    return isinstance(value, str) and METRIC_NAME.fullmatch(value) is not None


def _lengths(value: Any) -> bool:
    return value in LENGTH_SETS if isinstance(value, str) else _list_of(lambda length: _whole(length, 2**20))(value)


LINE, NAMES, NUMBER = "a line of text", 'a list of names such as ["dyck"], each once', "a number such as 0.02"

KEYS: Mapping[str, Mapping[str, Key]] = {
    "": {
        "claim": Key(LINE, _line, "The sentence, in plain words.", True),
        "note": Key(LINE, _line, "What a reader should know about the choice of tasks and tests."),
        "source": Key("a table that begins with [source]", lambda v: isinstance(v, dict), "Where it was said.", True),
        "runs": Key("a table that begins with [runs]", lambda v: isinstance(v, dict), "What has to be run.", True),
        "tests": Key(
            "tables that begin with [[tests]], each once",
            lambda v: isinstance(v, list) and bool(v) and all(isinstance(each, dict) for each in v),
            "The tests that decide it, one or more. Each has a verdict on each task.",
            True,
        ),
    },
    "source": {
        "paper": Key(LINE, _line, "The paper's identifier, such as `arXiv 2510.08341`.", True),
        "title": Key(LINE, _line, "The paper's title.", True),
        "place": Key(LINE, _line, "The section, figure or table. Leave it out where you do not know it."),
    },
    "runs": {
        "tasks": Key(NAMES, _list_of(_named), "Tasks, or families of tasks. Each has a verdict of its own.", True),
        "seeds": Key(
            f"a whole number from 1 to {MAX_SEEDS}",
            lambda v: _whole(v, MAX_SEEDS),
            "How many seeds every entry needs: they are 0, 1, 2 and so on.",
            True,
        ),
        "protocols": Key(
            NAMES,
            _list_of(_named),
            'Protocols that have to be run; `["standard"]` by default. `--run` takes the first of them. A claim is decided '
            "under every other protocol that was run, too.",
        ),
        "plugins": Key(
            'a list of packages such as ["lgbench-attention"]', _list_of(_line), "Packages that have to be installed."
        ),
        "average": Key(NAMES, _list_of(_named), "Averages of the weights to test, as of `lgbench run --average`."),
        "probes": Key(
            'a list of probes such as ["logit_gap"], each once',
            _list_of(_measured),
            "Probes that the runs need, as of `lgbench run --probe`: those that tests have as their metric.",
        ),
    },
    "tests": {
        "entry": Key(LINE, _line, "The entry that the claim is about, as boards name it, with `@bema` for an average.", True),
        "against": Key(LINE, _line, "The entry that it is compared with, paired by seed."),
        "exponent": Key(
            "a number such as -1.0",
            _number,
            "In place of `against`: a power of the length is fitted to the values of each seed, and this is the power claimed.",
        ),
        "metric": Key(
            "the name of a metric such as tvd",
            _measured,
            "The measurement; `tvd` by default.",
        ),
        "lengths": Key(
            '"ID", "OOD", "all", or a list of whole numbers such as [32, 64], each once',
            _lengths,
            'Over which lengths of the board: `"ID"`, `"OOD"` (the default), `"all"`, or a list such as `[32, 64]`.',
        ),
        "expect": Key(
            "better or alike",
            lambda v: v in EXPECTATIONS,
            "`better` (the default): than the other entry, by more than the margin. `alike`: within the margin either way.",
        ),
        "margin": Key(
            "a number such as 0.02, at least 0",
            lambda v: _number(v) and v >= 0,
            "In units of the metric, or of the exponent; 0 by default. `alike` and `exponent` need one above 0.",
        ),
    },
}
"""Every key, by table."""
