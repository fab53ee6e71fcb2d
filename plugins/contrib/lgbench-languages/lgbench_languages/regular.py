"""Regular languages from a regular expression or an automaton."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

import torch
from automata.base.exceptions import AutomatonException, RegexException
from automata.fa.dfa import DFA
from automata.fa.nfa import NFA
from automata.regex.parser import RESERVED_CHARACTERS
from networkx import DiGraph, attracting_components
from torch import Tensor

from lgbench import Batch, Budget, Random, Task, hookimpl
from lgbench_languages.members import WholeMembers
from lgbench_tasks.automaton import Automaton, Table
from lgbench_tasks.language import SymbolLanguage

Definition = str | Mapping[str, Any] | NFA | DFA
"""Regular expression of automata-lib, its automaton, or a table with the keys start, accepting and transitions."""
EXPECTED = (
    "expected symbols with | * + ? ( ) . [ ] & ^ or the form {2,3}, as in 'a(b|cc)*', and a backslash before these as symbols"
)
TABLE = ("accepting", "start", "transitions")
FORM = "{'start': 'x', 'accepting': ['x'], 'transitions': {'x': {'a': 'y'}, 'y': {'a': 'x'}}}, with one next state a symbol"


def regular(languages: Mapping[str, Definition]) -> Callable[[], Iterable[Task]]:
    """Hook `lgbench_tasks` with a task for each regular language, by name.

    >>> [task.name for task in regular({"even-length": "(aa)*", "ends-in-b": "(a|b)*b"})()]
    ['even-length', 'ends-in-b']

    Raises ValueError with a sentence for a definition that cannot be read, and for an empty or finite language.
    """
    if not isinstance(languages, Mapping):
        raise ValueError(f"{languages!r} is no table of names and languages: expected one, as in {{'ends-in-b': '(a|b)*b'}}")
    tasks = [language(name, definition) for name, definition in languages.items()]

    @hookimpl
    def lgbench_tasks() -> Iterable[Task]:
        return tasks

    return lgbench_tasks


def language(
    name: str, definition: Definition, about: str = "", symbols: str = "", kind: type[RegularLanguage] | None = None
) -> Task:
    """Task of a regular language. symbols: more symbols for the alphabet, which has those of the definition.

    kind: class of the task, which says what contexts are. By default contexts are prefixes of members; whole members where some
    member cannot go on, as in a*b, or where nearly all long prefixes have one answer, as in a*b*. Where no length below 64 has
    both members and non-members, as with a single symbol, the task is no `Language`. Raises the errors of :func:`regular`.
    """
    nfa = read(name, definition, symbols)
    dfa = DFA.from_nfa(nfa).to_partial()
    if dfa.isempty():
        raise ValueError(f"{name}: no string is a member: expected a language with infinitely many, such as 'a*'")
    if dfa.isfinite():
        longest = dfa.maximum_word_length()
        raise ValueError(f"{name}: no member is longer than {longest}: expected a language with infinitely many, such as 'a*'")
    alphabet = checked(name, {*symbols, *nfa.input_symbols})
    kind = kind or (Prefixes if all(dfa.transitions.values()) and not _settles(dfa) else Members)
    found = kind(name, nfa, dfa, sorted(alphabet))
    found.about = about or (f"Regular language {definition}" if isinstance(definition, str) else "")
    return found if _tells_apart(found.automaton) else WithoutStrings(found)


def _settles(dfa: DFA) -> bool:
    """Whether the answer depends on the prefix, but not in the states where a random walk stays in the end."""
    moves = DiGraph((state, to) for state, row in dfa.transitions.items() for to in row.values())
    stays = set().union(*attracting_components(moves))
    legal = {state: (frozenset(row), state in dfa.final_states) for state, row in dfa.transitions.items()}
    return len({legal[state] for state in stays}) == 1 < len(set(legal.values()))


def _tells_apart(automaton: Automaton) -> bool:
    """Whether some length below 64 has both members and non-members."""
    moves, accepting = automaton.transitions.tolist(), automaton.accepting.tolist()
    reached = {0}  # states after any string of one length
    for _ in range(64):
        if len({accepting[state] for state in reached}) == 2:
            return True
        reached = {to for state in reached for to in moves[state]}
    return False


def read(name: str, definition: Definition, symbols: str = "") -> NFA:
    """Nondeterministic automaton of a definition. Raises ValueError with a sentence for an unreadable one."""
    if isinstance(definition, NFA):
        return definition
    if isinstance(definition, DFA):
        return NFA.from_dfa(definition)
    if isinstance(definition, str):
        return _from_expression(name, definition, frozenset(symbols))
    return _from_table(name, definition)


def _from_expression(name: str, definition: str, symbols: frozenset[str]) -> NFA:
    expression = "".join(definition.split())
    outside = re.sub(r"\\.|\[[^]]*\]", "", expression)  # of escapes and classes
    literals = set(re.sub(r"\{[^}]*\}", "", outside)) - RESERVED_CHARACTERS
    if problem := _misread(definition, expression, outside):
        raise ValueError(f"{name}: {definition!r} has {problem}")
    try:
        # automata-lib adds the symbols of escapes and classes; its own guess has digits of counts and hyphens of ranges, too.
        nfa = NFA.from_regex(expression, input_symbols=symbols | literals)
    except (AutomatonException, RegexException) as error:
        # The library calls a star '<KleeneStarToken: *>', a bracket '<)>', and leaves a name in a sentence about {3,2}.
        reason = re.sub(r"<(?:\w+: )?(.+?)>", r"\1", str(error)).replace(" {upper_bound}", "")
        reason = re.sub(r"^state \d+ has invalid transition symbol (.+)", r"\1 stands alone", reason)
        reason = reason.rstrip(".").replace("parethesis", "parenthesis")
        raise ValueError(f"{name}: {definition!r} is no regular expression: {reason}; {EXPECTED}") from error
    if not nfa.input_symbols:
        raise ValueError(f"{name}: {definition!r} names no symbol: {EXPECTED}")
    return nfa


def _misread(definition: str, expression: str, outside: str) -> str | None:
    """What automata-lib would read as another language than is meant. outside: the expression without escapes and classes."""
    classes = re.findall(r"\\.|(\[[^]]*\])", expression)
    found = {
        "an anchor: leave ^ and $ out, an expression describes whole strings": expression[:1] == "^" or outside[-1:] == "$",
        "a count of 0 or of nothing: expected a number above 0, as in {2} or {2,}": re.search(r"\{0*(,0*)?\}", outside),
        "a backslash with no symbol after it": re.search(r"\\(\s|$)", definition.replace(r"\\", "")),
        r"a backslash in [ ], which would be a symbol there: write (a|\]) instead": any("\\" in each for each in classes),
        "a range that goes backwards: expected one such as [a-z]": any(
            first > last for each in classes for first, last in re.findall("(.)-(.)", each)
        ),
    }
    return next((problem for problem, is_there in found.items() if is_there), None)


def _from_table(name: str, table: Mapping[str, Any]) -> NFA:
    if not isinstance(table, Mapping) or set(table) != set(TABLE):
        keys = list(table) if isinstance(table, Mapping) else table
        raise ValueError(f"{name}: the automaton has {keys!r}, expected a table with the keys {', '.join(TABLE)}")
    try:
        rows = {state: dict(row.items()) for state, row in table["transitions"].items()}
        if isinstance(table["accepting"], str):  # its letters would be taken for states
            raise TypeError
        named = {table["start"], *table["accepting"], *(to for row in rows.values() for to in row.values())}
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{name}: the automaton has parts of another form: expected {FORM}") from error
    if missing := sorted(map(str, named - rows.keys())):
        states = f"the state {missing[0]!r}" if len(missing) == 1 else f"the states {', '.join(map(repr, missing))}"
        raise ValueError(
            f"{name}: the automaton names {states} without a row in transitions: add one, {{}} where nothing follows"
        )
    numbers = {state: number for number, state in enumerate(rows)}  # automata-lib takes no None for a state
    return NFA(
        states=set(numbers.values()),
        input_symbols=checked(name, {symbol for row in rows.values() for symbol in row}),
        transitions={numbers[state]: {symbol: {numbers[to]} for symbol, to in row.items()} for state, row in rows.items()},
        initial_state=numbers[table["start"]],
        final_states={numbers[state] for state in table["accepting"]},
    )


def checked(name: str, symbols: set[Any]) -> set[str]:
    """Symbols that a text can show. Raises ValueError for others."""
    for symbol in symbols:
        if not isinstance(symbol, str) or symbol in ("", "end", "(empty)") or not symbol.isprintable() or " " in symbol:
            raise ValueError(f"{name}: {symbol!r} is no symbol: expected printable characters without blanks, and not 'end'")
    return symbols


def tensors(dfa: DFA, symbols: Sequence[str]) -> Automaton:
    """Complete automaton with its states in the order in which they are met, so that equal languages give equal tensors."""
    order, rows = [dfa.initial_state], []
    numbers = {dfa.initial_state: 0, None: len(dfa.states)}  # None for the dead state
    for state in order:  # grows
        rows.append([dfa.transitions[state].get(symbol) for symbol in symbols])
        new = [to for to in dict.fromkeys(rows[-1]) if to not in numbers]
        numbers |= {to: len(order) + place for place, to in enumerate(new)}
        order += new
    dead = len(order)
    transitions = [[numbers[to] for to in row] for row in rows]
    return Automaton([*transitions, [dead] * len(symbols)], [*(state in dfa.final_states for state in order), False])


class RegularLanguage(SymbolLanguage):
    """A regular language; subclasses say what its contexts are."""

    version = 1
    train_lengths = (0, 50)

    def __init__(self, name: str, nfa: NFA, dfa: DFA, symbols: Iterable[str]) -> None:
        super().__init__(tuple(symbols))
        self.name = self.family = name
        self.automaton = tensors(dfa, self.symbols)
        self._nfa = nfa.eliminate_lambda()
        moves = self.automaton.live[self.automaton.transitions]
        self.legal = Table(torch.cat([moves, self.automaton.accepting[:, None]], -1))
        """Classes that may follow in each state, (S, V) bool."""

    def accepts(self, symbols: Tensor) -> Tensor:
        return self.automaton.accepts(symbols)

    def has(self, length: int, member: bool) -> bool:
        return self.automaton.has(length, member)

    def uniform(self, length: int, random: Random, member: bool) -> Tensor:
        return self.automaton.uniform(length, random, member)

    def reference(self, context: Tensor) -> Sequence[float]:
        """p* by the sets of states of the nondeterministic automaton, without its tensors."""
        before = {self._nfa.initial_state}
        for token in context[1:].tolist():
            before = self._after(before, self.symbols[token])
        legal = [any(map(self._is_live, self._after(before, symbol))) for symbol in self.symbols]
        legal.append(not before.isdisjoint(self._nfa.final_states))
        return [allowed / max(1, sum(legal)) for allowed in legal]

    def _after(self, states: set[Any], symbol: str) -> set[Any]:
        return {to for state in states for to in self._nfa.transitions.get(state, {}).get(symbol, ())}

    def _is_live(self, state: Any) -> bool:
        seen, new = set(), {state}
        while new:
            seen |= new
            new = {to for each in new for symbol in self.symbols for to in self._after({each}, symbol)} - seen
        return not seen.isdisjoint(self._nfa.final_states)


@final
class Prefixes(RegularLanguage):
    """A context is a prefix that can still become a member; the answer is uniform over what may follow.

    Next may come each symbol from which a member can still be reached, and the end where the prefix is a member:

    >>> task = language("even-a", "(b|ab*a)*")
    >>> inputs, distribution, _ = task.sample(3, Random(1))
    >>> task.text(inputs[0]), dict(zip(task.answers, distribution[0, -1].tolist()))
    ('baa', {'a': 0.3333333432674408, 'b': 0.3333333432674408, 'end': 0.3333333432674408})
    """

    def sample(self, length: int, random: Random) -> Batch:
        """Walks that have not ended, (n, length + 1) with the begin token, with p* (n, length + 1, V)."""
        legal = self.legal.on(random.device).float()
        moves = legal[:, :-1]
        # The dead state, which no walk meets, gets a row that is no NaN.
        symbols, states = self.automaton.walk(moves / moves.sum(-1, keepdim=True).clamp(min=1), length, random)
        p = (legal / legal.sum(-1, keepdim=True).clamp(min=1)).index_select(0, states.flatten())
        return Batch(self.begin(symbols), p.view(random.n, length + 1, -1))


class Members(RegularLanguage, WholeMembers):
    """A context is a member, where prefixes would not do; the answers are uniform over what may follow each prefix.

    They would not do where some member cannot go on, as in a*b, or where nearly all long prefixes have one answer, as in a*b*.
    After a of a*b the string may go on with either symbol, and after b it ends:

    >>> task = language("then-b", "a*b")
    >>> inputs, distribution, _ = task.sample(2, Random(1))
    >>> task.text(inputs[0]), distribution[0].tolist()
    ('ab', [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    """

    version = 2

    def __init__(self, name: str, nfa: NFA, dfa: DFA, symbols: Iterable[str]) -> None:
        super().__init__(name, nfa, dfa, symbols)
        shortest = max(1, dfa.minimum_word_length())
        self.train_lengths = shortest, max(50, 2 * shortest)
        if shortest > 50:  # protocols would test shorter contexts than there are
            self.budgets = {name: Budget(max_length=8 * shortest) for name in ("quick", "short", "standard", "long", "paper")}

    def following(self, symbols: Tensor) -> Tensor:
        states = self.automaton.states(symbols)
        return self.legal.on(symbols.device)[states]


@final
class WithoutStrings(Task):
    """A regular language without strings of one length to tell apart, such as one over a single symbol, or of all strings.

    >>> task = language("even", "(aa)*")
    >>> inputs, distribution, _ = task.sample(3, Random(1))
    >>> task.text(inputs[0]), dict(zip(task.answers, distribution[0, -1].tolist()))
    ('aaa', {'a': 1.0, 'end': 0.0})
    """

    def __init__(self, language: RegularLanguage) -> None:
        self.name = language.name
        for attribute in ("about", *Task.__annotations__):  # all that a task says of itself
            setattr(self, attribute, getattr(language, attribute))
        self.language, self.automaton = language, language.automaton

    @property
    def answers(self) -> tuple[str, ...]:
        return self.language.answers

    def sample(self, length: int, random: Random) -> Batch:
        return self.language.sample(length, random)

    def text(self, inputs: Tensor) -> str:
        return self.language.text(inputs)

    def context(self, text: str) -> Tensor:
        return self.language.context(text)

    def reference(self, context: Tensor) -> Sequence[float] | None:
        return self.language.reference(context)

    def sources(self, inputs: Tensor) -> Tensor | None:
        return self.language.sources(inputs)
