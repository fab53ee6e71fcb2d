"""Small breaches of the contracts: a thing with one thing changed, and what the conformance checks say of it."""

from __future__ import annotations

import pytest

from lgbench.conformance.check import Broken
from lgbench.conformance.collect import checks_of

DECLARED = "has what its contract declares"
DOCUMENTED = "says in a sentence what it is"


def but(thing, **changes):
    """The thing with other attributes and methods than its own."""
    return type("Changed", (type(thing),), {"__doc__": type(thing).__doc__, **changes})()


def check_of(thing, promise, registry):
    """The check of one promise."""
    (check,) = [check for check in checks_of(thing, registry) if check.promise == promise]
    return check


def complaint(thing, promise, registry):
    """The sentence with which the check of this promise fails."""
    with pytest.raises(Broken) as raised:
        check_of(thing, promise, registry)()
    return str(raised.value)


def complaints(things, registry, unasked=""):
    """Every sentence with which anything that these promise fails, but for one promise."""
    found = []
    for check in (check for thing in things for check in checks_of(thing, registry) if check.promise != unasked):
        try:
            check()
        except Broken as broken:
            found.append(str(broken))
    return found


def unproven(things, rows, registry):
    """What these promise, and no row (thing, promise, words) breaks."""
    return {check.promise for thing in things for check in checks_of(thing, registry)} - {promise for _, promise, _ in rows}


def table(rows):
    """Rows as parameters of a test, named by what they break and by the words."""
    return [pytest.param(*row, id=f"{row[1]}: {row[2]}") for row in rows]
