"""The regular languages of Bhattamishra et al. in the choice of Huang et al."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, final

import torch
from torch import Tensor

from lgbench import Facts, Random, Task
from lgbench_languages.regular import Members, RegularLanguage, language

SOURCES = ("arXiv 2009.11264", "arXiv 2410.02140, figure 3 and its repository")


class Rule(NamedTuple):
    """A regular expression, what is published about its language, and our choice of contexts and of lengths on boards.

    A language without a group is star-free.
    """

    expression: str
    group: str | None
    c_rasp: bool
    c_rasp_positions: bool
    about: str
    kind: type[RegularLanguage] | None = None
    lengths: tuple[int, ...] | None = None


@final
class RunsOfTwos(Members):
    """{0,1,2}*02*: a context is w x 2^k, with k uniform below its length and x one of 0 and 1. All of its prefixes answer.

    Whether the string may end depends on x, and so on a symbol that is far back:

    >>> task = next(task for task in suite() if task.name == "regular-012-0-2")
    >>> inputs, distribution, _ = task.sample(9, Random(2))
    >>> [(task.text(row), p.tolist()) for row, p in zip(inputs, distribution[:, -1, -1])]
    [('000222222', 0.25), ('211021222', 0.0)]
    """

    def drawn(self, length: int, random: Random) -> Tensor:
        last = length - 1 - random.integers(max(1, length), 1)  # place of x
        places = torch.arange(length, device=random.device)
        symbols = torch.where(places == last, random.integers(2, 1), random.integers(3, length))
        return torch.where(places > last, 2, symbols)


REACH = (8, 16, 32, 50, 64, 128, 256, 512)
PHASES = tuple(sorted({longest - back for longest in REACH for back in range(4)}))
"""Lengths on boards of languages that ask for a length modulo 2 or 4: four in a row have every remainder."""


def nested(depth: int) -> str:
    """D_depth, the brackets a and b at most so deep: D_0 is the empty string and D_n is (a D_(n-1) b)*.

    >>> nested(2)
    '(a(ab)*b)*'
    """
    return f"(a{nested(depth - 1)}b)*" if depth else ""


RULES = {
    "parity": Rule("0*(10*10*)*", "Z_2", False, False, "An even number of 1s"),
    "aa": Rule("(aa)*", "Z_2", False, True, "(aa)*: an even number of a", lengths=PHASES),
    "aaaa": Rule("(aaaa)*", "Z_4", False, True, "(aaaa)*: a number of a divisible by 4", lengths=PHASES),
    "abab": Rule("(abab)*", "Z_2", False, True, "(abab)*: an even number of ab", lengths=PHASES),
    "abcde": Rule("aa*bb*cc*dd*ee*", None, True, True, "aa*bb*cc*dd*ee*: five blocks in order"),
    "ab-d-bc": Rule("(a|b)*d(b|c)*", None, True, True, "{a,b}*d{b,c}*: one d, before it no c and after it no a"),
    "012-0-2": Rule("(0|1|2)*02*", None, False, False, "{0,1,2}*02*: the last symbol other than 2 is 0", kind=RunsOfTwos),
    **{f"d-{n}": Rule(nested(n), None, True, True, f"D_{n}: brackets a and b, at most {n} deep") for n in (2, 3, 4, 12)},
}


def suite() -> Iterable[Task]:
    """Tasks of the suite.

    >>> [task.name for task in suite()][:3]
    ['regular-parity', 'regular-aa', 'regular-aaaa']
    """
    for name, rule in RULES.items():
        task = language(f"regular-{name}", rule.expression, rule.about, kind=rule.kind)
        task.family, task.lengths = "regular", rule.lengths
        kind = "regular with groups" if rule.group else "star-free"
        programs = rule.c_rasp, rule.c_rasp_positions
        task.facts = Facts(kind, "regular", rule.group is None, *programs, rule.group, SOURCES)
        yield task
