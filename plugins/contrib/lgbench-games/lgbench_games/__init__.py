"""Board games, played at random: which moves are legal?"""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Task, hookimpl
from lgbench_games.connect_four import ConnectFour
from lgbench_games.othello import Othello

LGBENCH_CONTRACT = "3.6"


@hookimpl
def lgbench_tasks() -> Iterable[Task]:
    return ConnectFour(), Othello()
