"""Drawing contexts with their p*, members, and strings to tell apart: lgbench's tensors against Python loops over strings.

Both sides draw from the same distributions: contexts at the task's training length with p* at every prefix; for languages also
members of that length, all equally likely, and what `task.strings` returns: half members, half non-members, of which half are
uniform and half spoilt members. The loops work as published benchmarks do, one string and one symbol at a time, on one core: an
automaton is walked with a random choice at each symbol, p* looked up by state (FLaRe); brackets open and close on a stack
(satwik77/Transformer-Formal-Languages); a member's next symbol weighs as much as the ways to end after it, counted once
beforehand; non-members come by rejection and by edits. They are written anew and on the generous side: their lists are not
turned into tensors, nothing is written to a file, and random numbers come from `random`, not from a slower call of NumPy.

A token is a position of what comes back, begin token or query included. Goal: 10 M tokens/s on two CPU cores, 1 G on a GPU.

    python benchmarks/samplers.py [--rounds 5] [--seconds 0.2] [--tokens 65536] [--tasks tomita-5 ...] [--device cuda]
"""

import argparse
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from random import Random as LoopRandom

import torch
from rich.console import Console
from sides import WIDTH, number, ratios, table, take_turns

from lgbench import Random
from lgbench.contracts import Task
from lgbench_tasks import lgbench_tasks
from lgbench_tasks.dictionary_lookup import KEY_WIDTH, VALUES
from lgbench_tasks.dyck import Dyck
from lgbench_tasks.language import EDIT_ROUNDS, SymbolLanguage
from lgbench_tasks.max_retrieval import CLASSES
from lgbench_tasks.set_complement import SetComplement
from lgbench_tasks.tomita import Tomita

GOALS = {"cpu": 10e6, "cuda": 1e9}
TOKENS = {"cpu": 2**16, "cuda": 2**24}
Distribution = list[float]
Context = tuple[list[int] | list[Distribution], list[Distribution]]
"""Inputs and p*, as lists."""


class LoopedLanguage(ABC):
    """Contexts and strings of a language, one symbol at a time."""

    symbols: int

    def __init__(self, random: LoopRandom, after: list[list[int]], accepting: list[bool]) -> None:
        self.random, self.after, self.accepting = random, after, accepting
        self.endings = [[int(accepts) for accepts in accepting]]
        """By symbols left and state: how many ways there are to end in acceptance."""

    @abstractmethod
    def context(self, length: int) -> Context:
        """A walk that has not ended, the begin token first, and p* at every prefix."""

    @abstractmethod
    def member(self, length: int) -> list[int]:
        """A member, uniform among those of that length."""

    @abstractmethod
    def accepts(self, string: list[int]) -> bool:
        """Membership."""

    def string(self, index: int, length: int) -> list[int]:
        """Of four in a row two members, a uniform non-member and a spoilt member."""
        draw = (self.member, self.member, self.other, self.spoilt)[index % 4]
        return [self.symbols, *draw(length)]

    def other(self, length: int) -> list[int]:
        """A non-member, by rejection."""
        while True:
            string = [self.random.randrange(self.symbols) for _ in range(length)]
            if not self.accepts(string):
                return string

    def spoilt(self, length: int) -> list[int]:
        """A member with 1 to 3 symbols replaced, drawn anew until it is none any more."""
        member = self.member(length)
        for _ in range(EDIT_ROUNDS):
            string = list(member)
            for place in self.random.sample(range(length), self.random.randint(1, 3)):
                string[place] = (string[place] + self.random.randrange(1, self.symbols)) % self.symbols
            if not self.accepts(string):
                return string
        return self.other(length)

    def path(self, length: int) -> list[int]:
        """A uniform accepted walk through the automaton: each symbol weighs as much as the ways to end after it."""
        while len(self.endings) < length:
            self.endings.append([sum(self.endings[-1][then] for then in row) for row in self.after])
        state, taken = 0, []
        for left in range(length - 1, -1, -1):
            weights = [self.endings[left][then] for then in self.after[state]]
            (symbol,) = self.random.choices(range(len(weights)), weights)
            taken.append(symbol)
            state = self.after[state][symbol]
        return taken


class LoopedTomita(LoopedLanguage):
    """An automaton, walked."""

    symbols = 2

    def __init__(self, task: Tomita, random: LoopRandom) -> None:
        super().__init__(random, task.automaton.transitions.tolist(), task.automaton.accepting.tolist())
        live = task.automaton.live.tolist()
        self.legal = [[symbol for symbol in (0, 1) if live[then[symbol]]] for then in self.after]
        self.p = []
        for legal, accepting in zip(self.legal, self.accepting, strict=True):
            ways = len(legal) + accepting
            self.p.append([*((symbol in legal) / max(1, ways) for symbol in (0, 1)), accepting / max(1, ways)])

    def context(self, length: int) -> Context:
        state, symbols, p = 0, [self.symbols], [list(self.p[0])]
        for _ in range(length):
            symbol = self.random.choice(self.legal[state])
            state = self.after[state][symbol]
            symbols.append(symbol)
            p.append(list(self.p[state]))
        return symbols, p

    def member(self, length: int) -> list[int]:
        return self.path(length)

    def accepts(self, string: list[int]) -> bool:
        state = 0
        for symbol in string:
            state = self.after[state][symbol]
        return self.accepting[state]


class LoopedDyck(LoopedLanguage):
    """Brackets, opened and closed on a stack."""

    def __init__(self, task: Dyck, random: LoopRandom) -> None:
        super().__init__(random, task.levels.transitions.tolist(), task.levels.accepting.tolist())
        self.kinds, self.depth, self.symbols = task.kinds, task.depth, 2 * task.kinds

    def context(self, length: int) -> Context:
        stack: list[int] = []
        symbols, p = [self.symbols], [self.next(stack)]
        for _ in range(length):
            opens = not stack or (len(stack) < self.depth and self.random.random() < 0.5)
            symbols.append(self.put(stack, opens))
            p.append(self.next(stack))
        return symbols, p

    def put(self, stack: list[int], opens: bool) -> int:
        """Open a bracket of any kind, or close the one that must be closed."""
        if not opens:
            return self.kinds + stack.pop()
        stack.append(self.random.randrange(self.kinds))
        return stack[-1]

    def next(self, stack: list[int]) -> Distribution:
        """p* where these brackets are open."""
        p = [0.0] * (self.symbols + 1)
        full = len(stack) == self.depth
        if not full:
            p[: self.kinds] = [0.5 / self.kinds] * self.kinds
        p[self.kinds + stack[-1] if stack else -1] = 1.0 if full else 0.5
        return p

    def member(self, length: int) -> list[int]:
        stack: list[int] = []
        return [self.put(stack, move == 0) for move in self.path(length)]

    def accepts(self, string: list[int]) -> bool:
        stack: list[int] = []
        for symbol in string:
            if symbol < self.kinds:
                stack.append(symbol)
                if len(stack) > self.depth:
                    return False
            elif not stack or stack.pop() != symbol - self.kinds:
                return False
        return not stack


def looped_set_complement(task: SetComplement, random: LoopRandom, length: int) -> Context:
    order, unseen, p = random.sample(range(task.size), length), [1.0] * task.size, []
    for seen, token in enumerate(order, start=1):
        unseen[token] = 0.0
        p.append([chance / (task.size - seen) for chance in unseen])
    return order, p


def looped_max_retrieval(random: LoopRandom, length: int) -> Context:
    items, best = [], (-1.0, 0)
    for _ in range(length):
        priority, kind = random.random(), random.randrange(CLASSES)
        items.append([priority, *one_hot(kind, CLASSES)])
        best = max(best, (priority, kind))
    return [*items, [random.random()] + [0.0] * CLASSES], [one_hot(best[1], CLASSES)]


def looped_dictionary_lookup(random: LoopRandom, length: int) -> Context:
    items, values = [], []
    for _ in range(length):
        direction = [random.gauss(0.0, 1.0) for _ in range(KEY_WIDTH)]
        norm = math.hypot(*direction)
        values.append(random.randrange(VALUES))
        items.append([x / norm for x in direction] + one_hot(values[-1], VALUES))
    asked = random.randrange(length)
    return [*items, items[asked][:KEY_WIDTH] + [0.0] * VALUES], [one_hot(values[asked], VALUES)]


def one_hot(index: int, size: int) -> Distribution:
    return [float(i == index) for i in range(size)]


def looped_context(task: Task, random: LoopRandom) -> Callable[[int], Context]:
    """The Python loop that draws what `task.sample` does."""
    if isinstance(task, (Tomita, Dyck)):
        return looped_language(task, random).context
    if isinstance(task, SetComplement):
        return partial(looped_set_complement, task, random)
    return partial({"max-retrieval": looped_max_retrieval, "dictionary-lookup": looped_dictionary_lookup}[task.name], random)


def looped_language(task: Task, random: LoopRandom) -> LoopedLanguage:
    if isinstance(task, Tomita):
        return LoopedTomita(task, random)
    assert isinstance(task, Dyck), f"no Python loop draws strings of {task.name}"
    return LoopedDyck(task, random)


def rate(draw: Callable[[], int], seconds: float) -> float:
    """Tokens a second of `draw`, which returns how many it drew."""
    started, tokens = time.perf_counter(), 0
    while True:
        tokens += draw()
        elapsed = time.perf_counter() - started
        if elapsed >= seconds:
            return tokens / elapsed


def contexts(task: Task, tokens: int, device: torch.device) -> tuple[Callable[[], int], Callable[[], int]]:
    """Draw contexts at the training length: one by a Python loop, many by lgbench."""
    length = task.train_lengths[1]
    positions = task.sample(length, Random(1)).inputs.shape[1]
    n = max(1, tokens // positions)
    looped = looped_context(task, LoopRandom(0))

    def loop() -> int:
        return len(looped(length)[0])

    def lgbench() -> int:
        return count(task.sample(length, Random(n, device=device)).inputs)

    return loop, lgbench


def members(task: SymbolLanguage, tokens: int, device: torch.device) -> tuple[Callable[[], int], Callable[[], int]]:
    """Draw members of the training length: one by a Python loop, many by lgbench."""
    length = task.testable_length(task.train_lengths[1])
    looped = looped_language(task, LoopRandom(0))

    def loop() -> int:
        return len(looped.member(length))

    def lgbench() -> int:
        return count(task.uniform(length, Random(max(1, tokens // length), device=device), True))

    return loop, lgbench


def strings(task: SymbolLanguage, tokens: int, device: torch.device) -> tuple[Callable[[], int], Callable[[], int]]:
    """Draw members and others of the training length: four by a Python loop, many by lgbench."""
    length = task.testable_length(task.train_lengths[1])
    looped = looped_language(task, LoopRandom(0))

    def loop() -> int:
        return sum(len(looped.string(index, length)) for index in range(4))

    def lgbench() -> int:
        return count(task.strings(length, Random(max(4, tokens // (length + 1)), device=device)).inputs)

    return loop, lgbench


def count(inputs: torch.Tensor) -> int:
    """Positions in contexts, once they are there."""
    if inputs.is_cuda:
        torch.cuda.synchronize()
    return inputs.shape[0] * inputs.shape[1]


def main() -> None:
    tasks = {task.name: task for task in lgbench_tasks()}
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=0.2, help="how long a side draws in a round, at least")
    options.add_argument("--tokens", type=int, help=f"tokens that one call of lgbench draws {TOKENS}")
    options.add_argument("--tasks", nargs="+", choices=tasks, default=list(tasks), metavar="TASK")
    options.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    chosen = options.parse_args()
    device = chosen.device
    goal, tokens = GOALS[device.type], chosen.tokens or TOKENS[device.type]
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    headings = ("loops, M tokens/s", "lgbench, M tokens/s", "ratio", "min", "max", f"of the goal of {goal / 1e6:.0f}")
    rows = table(chosen.rounds, *headings, device=where)
    for task in (tasks[name] for name in chosen.tasks):
        drawn = {task.name: contexts(task, tokens, device)}
        if isinstance(task, SymbolLanguage):
            drawn[f"{task.name}, members"] = members(task, tokens, device)
            drawn[f"{task.name}, strings"] = strings(task, tokens, device)
        for name, (loop, lgbench) in drawn.items():
            sides = {"loop": partial(rate, loop, chosen.seconds), "lgbench": partial(rate, lgbench, chosen.seconds)}
            looped, ours = take_turns(sides, chosen.rounds).values()
            rows.add_row(name, number(looped.rate / 1e6), number(ours.rate / 1e6), *ratios(ours), f"{ours.rate / goal:.0%}")
    Console(width=WIDTH).print(rows)


if __name__ == "__main__":
    main()
