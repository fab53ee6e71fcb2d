"""The conformance checks on small breaches of the contracts, and on methods of the literature."""

from __future__ import annotations

import pytest
from torch import nn

from helpers.toy_registries import but
from lgbench import Unsupported
from lgbench.conformance.check import CheckFailed
from lgbench.conformance.collect import checks_of
from lgbench.testing import checks

DECLARED = "it has what its contract declares"
DOCUMENTED = "a docstring describes it"
OPTIONS = "its options can be set"
GRAPH = "its training step is one graph"


class Doing(nn.Module):
    """A function as a module, with a parameter that it is given last."""

    def __init__(self, do, parameter=None):
        super().__init__()
        self.do, self.parameter = do, None if parameter is None else nn.Parameter(parameter)

    def forward(self, *given, **named):
        return self.do(*given, *named.values(), *([] if self.parameter is None else [self.parameter]))


class InMode(nn.Module):
    """Does something in training alone, or in evaluation alone."""

    def __init__(self, training, do):
        super().__init__()
        self.mode, self.do = training, do

    def forward(self, x):
        return self.do(x) if self.training == self.mode else x


def refusing(thing, reason):
    def build(self, *given):
        raise Unsupported(reason)

    return but(thing, build=build)


def check_of(thing, rule, registry):
    """The check of one rule."""
    (check,) = [check for check in checks_of(thing, registry) if check.name == rule]
    return check


def complaint(thing, rule, registry):
    """The sentence with which the check of this rule fails."""
    with pytest.raises(CheckFailed) as raised:
        check_of(thing, rule, registry)()
    return str(raised.value)


def complaints(things, registry, unasked=lambda rule: False):
    """Every sentence with which any check of these things fails, but for the rules that are not asked for."""
    found = []
    for check in (check for thing in things for check in checks_of(thing, registry) if not unasked(check.name)):
        try:
            check()
        except CheckFailed as failed:
            found.append(str(failed))
    return found


def unproven(things, rows, registry):
    """Rules of these things that no row (thing, rule, words) breaks. Tasks and parts show the rules of several kinds."""
    own = {check.name for thing in things for check in checks_of(thing, registry)}
    return own - {rule for _, rule, _ in rows} - {DECLARED, DOCUMENTED}


def table(rows):
    """Rows as parameters of a test, named by the rule that they break and by the words."""
    return [pytest.param(*row, id=f"{row[1]}: {row[2]}") for row in rows]


def assert_sound(thing: object) -> None:
    """Every check of `lgbench check` passes, except the one that compiles: what fits the contracts is no fault."""
    own = [check for check in checks(thing) if GRAPH not in check.__name__]
    assert len(own) > 3
    for check in own:
        check()
