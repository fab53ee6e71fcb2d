"""Published facts of the built-in tasks, against the transition monoids of their automata."""

from __future__ import annotations

from itertools import product

import pytest

from lgbench_tasks.dyck import Dyck
from lgbench_tasks.tomita import Tomita

Map = tuple[int, ...]


def transitions(task) -> list[Map]:
    """Map from state to state by symbol."""
    automaton = task.automaton if isinstance(task, Tomita) else task.levels
    return [tuple(column) for column in automaton.transitions.T.tolist()]


def monoid(generators: list[Map]) -> set[Map]:
    found = {tuple(range(len(generators[0])))}
    new = set(found)
    while new:
        new = {tuple(step[state] for state in each) for each, step in product(new, generators)} - found
        found |= new
    return found


def period(element: Map) -> int:
    """Number of different powers that return: 1 for an element of no group."""
    seen: dict[Map, int] = {}
    power, count = element, 0
    while power not in seen:
        seen[power] = count
        power, count = tuple(element[state] for state in power), count + 1
    return count - seen[power]


@pytest.mark.parametrize("task", [*map(Tomita, range(1, 8)), Dyck(1, 8), Dyck(2, 5)], ids=lambda task: task.name)
def test_a_language_is_star_free_where_its_monoid_is_aperiodic(task):
    """Schützenberger's theorem. The automaton of Dyck counts the depth; types of brackets add no period."""
    periods = {period(element) for element in monoid(transitions(task))}
    assert task.facts.star_free == (periods == {1})
    orders = {None: {1}, "Z_2": {1, 2}, "Z_2 x Z_2": {1, 2}, "Z_3": {1, 3}}
    assert periods == orders[task.facts.group]
    assert task.facts.chomsky == "regular"
    assert task.facts.kind == ("star-free" if task.facts.star_free else "regular with groups")
