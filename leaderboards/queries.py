"""Queries of the sentences of the pages: each returns a number as text, from the published runs.

A page is a Jinja template. `{{ better("post-norm", "no-norm", "set-complement") }}` is the difference with its interval, and
fails if the first entry is not significantly better: no sentence outlives the runs behind it. Unless a query names a protocol,
it reads the one of `factors.PROTOCOL`, raw weights, and OOD TVD, the mean over the lengths beyond the training range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import Literal

import numpy as np
from factors import PROTOCOL, SCHEMES, Contrast, by_rate, cells, tested, with_interval
from internals import share_left

from lgbench.contracts import PRIMARY_METRIC
from lgbench.results.boards import Board, Row
from lgbench.results.compare import Difference, compare
from lgbench.results.entries import find_entry
from lgbench.results.leaderboard import EVERYWHERE, Inside, Results
from lgbench.results.predictors import ProbeReadings
from lgbench.results.statistics import CONFIDENCE, Floats, holm, mean_exponent, paired_t
from lgbench.results.sweeps import SweepRequest, sweeps

Judgement = Literal["better", "worse", "undecided"]

NORM_SCHEMES = tuple(scheme for row in SCHEMES.values() for scheme in row)

RIGHT = 0.01
"""A model is right at a length where its TVD is below this."""


class Stale(Exception):
    """A sentence that the runs do not bear out."""


class Queries:
    """Queries over the published runs."""

    def __init__(self, results: Results, swept: Results) -> None:
        self.results = results
        self.swept_results = swept
        self._compared = cache(self._compare)
        self._read = cache(lambda name, protocol, metric, inside: results.boards(metric, name, protocol, inside=inside)[0])
        self._sweeps = cache(lambda setting, metric: sweeps(swept, SweepRequest(setting, metric)))

    @property
    def functions(self) -> dict[str, Callable[..., str]]:
        """Functions for templates, by name: the public methods."""
        return {name: getattr(self, name) for name, value in vars(Queries).items() if callable(value) and name[0] != "_"}

    def ood(self, entry: str, name: str, protocol: str = PROTOCOL, metric: str = "tvd", digits: int = 3) -> str:
        """Mean beyond the training range."""
        cell = self._row(entry, name, protocol, metric).cell("OOD")
        if cell is None:
            raise Stale(f"{entry} has no OOD {metric} on {name}")
        return f"{cell.mean:.{digits}f}"

    def at(
        self,
        entry: str,
        name: str,
        *lengths: int,
        metric: str = "tvd",
        protocol: str = PROTOCOL,
        layer: int | None = None,
        digits: int = 3,
    ) -> str:
        """Means at lengths, separated by commas. A probe is the mean over heads, and over layers or of one layer."""
        inside = None if layer is None and self._ranks(metric) else Inside(layer)
        row = self._row(entry, name, protocol, metric, inside)
        cells = [row.cell("length", length) for length in lengths]
        if None in cells:
            raise Stale(f"{entry} has no {metric} on {name} at some of {lengths}")
        return ", ".join(f"{cell.mean:.{digits}f}" for cell in cells if cell)

    def judged(
        self, expected: Judgement, first: str, second: str, name: str, protocol: str = PROTOCOL, metric: str = PRIMARY_METRIC
    ) -> str:
        """Difference of two entries on a family with its interval; the judgement must be the expected one.

        The metric is one of which less is better, unless no difference is expected.
        """
        found = self._compared(first, second, protocol, metric)[name]
        what = f"{first} against {second} on {name}"
        return _as_expected(expected, found.significant, found.difference, found.low, found.high, what)

    def better(self, first: str, second: str, name: str, protocol: str = PROTOCOL) -> str:
        """Difference of two entries with its interval; the first must be significantly better."""
        return self.judged("better", first, second, name, protocol)

    def worse(self, first: str, second: str, name: str, protocol: str = PROTOCOL) -> str:
        """Difference of two entries with its interval; the first must be significantly worse."""
        return self.judged("worse", first, second, name, protocol)

    def undecided(self, first: str, second: str, name: str, protocol: str = PROTOCOL, metric: str = PRIMARY_METRIC) -> str:
        """Difference of two entries with its interval; neither must be significantly better."""
        return self.judged("undecided", first, second, name, protocol, metric)

    def corrected(self, pairs: Sequence[tuple[str, str]], name: str, protocol: str) -> str:
        """Pairs of entries that differ with p corrected for all pairs (Holm 1979), as in "a, b against c; d against e"."""
        p = holm(np.array([self._compared(*pair, protocol, PRIMARY_METRIC)[name].p for pair in pairs]))
        left = [pair for pair, corrected in zip(pairs, p, strict=True) if corrected < 1 - CONFIDENCE]
        firsts: dict[str, list[str]] = {}
        for one, other in left:
            firsts.setdefault(other, []).append(one.replace("pre-norm+", ""))
        return "; ".join(f"{', '.join(own)} against {other}" for other, own in firsts.items())

    def without(self, expected: Judgement, first: str, second: str, family: str, task: str) -> str:
        """Difference of two entries over the tasks of a family except one."""
        ((_, models),) = self.results.models(PRIMARY_METRIC, family, PROTOCOL)
        entries = [models.entries.index(find_entry(entry, models.entries)) for entry in (first, second)]
        kept = [name != task for name in models.tasks]
        one, other = models.values[entries][:, :, kept][..., ~models.in_distribution.all(0)].mean((2, 3))
        return _paired(expected, one - other, f"{first} against {second} on {family} without {task}")

    def since(
        self, expected: Judgement, entry: str, name: str, earlier: str, protocol: str = PROTOCOL, length: int | None = None
    ) -> str:
        """Difference of an entry from itself under another protocol, `earlier`, OOD or at a length, paired by seed."""
        gaps = self._gaps((entry, entry), name, length, (protocol, earlier))
        return _paired(expected, gaps, f"{entry} on {name} under {protocol} since {earlier}")

    def judged_at(self, expected: Judgement, first: str, second: str, name: str, length: int, protocol: str = PROTOCOL) -> str:
        """Difference of two entries at a length, paired by the seeds of both; the judgement must be the expected one."""
        gaps = self._gaps((first, second), name, length, (protocol, protocol))
        return _paired(expected, gaps, f"{first} against {second} on {name} at {length}")

    def _gaps(self, entries: tuple[str, str], name: str, length: int | None, protocols: tuple[str, str]) -> Floats:
        """Differences by seed of two entries, each under its protocol, OOD or at a length."""
        one, other = (
            dict(zip(self._row(entry, name, use).seeds, self._seeds(entry, name, length, use), strict=True))
            for entry, use in zip(entries, protocols, strict=True)
        )
        return np.array([one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())])

    def effect(self, expected: Judgement, place: str, name: str) -> str:
        """Effect of a norm at a place, over all twelve schemes, or on the retrieval model, as in "LayerNorm at 0.001".

        The judgement must be the expected one.
        """
        (found,) = (each for each in self._effects if (each.family, each.title) == (name, place))
        what = f"a norm, {place}, on {name}"
        return _as_expected(expected, found.p < 1 - CONFIDENCE, found.mean, found.low, found.high, what)

    @cached_property
    def _effects(self) -> list[Contrast]:
        return [*tested(cells(self.results)), *by_rate(self.swept_results)]

    def share(self, first: str, second: str, name: str, protocol: str = PROTOCOL) -> str:
        """OOD TVD of one entry as a percentage of that of another."""
        own, other = (float(self.ood(entry, name, protocol, digits=6)) for entry in (first, second))
        return f"{100 * own / other:.0f} %"

    def rate(self, entry: str, name: str, protocol: str = PROTOCOL) -> str:
        """Learning rate that tuning chose for an entry on a task."""
        board = self._board(name, protocol)
        (rate,) = board.learning_rates[find_entry(entry, board.learning_rates)][name]
        return f"{rate.chosen:g}"

    def seeds(self, entry: str, name: str, length: int, metric: str = "tvd", digits: int = 3, protocol: str = PROTOCOL) -> str:
        """Value of each seed at a length, separated by commas."""
        return ", ".join(f"{value:.{digits}f}" for value in self._seeds(entry, name, length, protocol, metric))

    def right(self, entry: str, name: str, *lengths: int, protocol: str = PROTOCOL) -> str:
        """Seeds of an entry that are right at all of these lengths, by default all OOD lengths, as in "4 of 5"."""
        board = self._board(name, protocol)
        asked = lengths or tuple(length for length in board.all_lengths if length > board.train_length)
        values = np.array([self._seeds(entry, name, length, protocol) for length in asked])
        return f"{int((values < RIGHT).all(0).sum())} of {values.shape[1]}"

    def fits(self, entry: str, name: str, protocol: str = PROTOCOL) -> str:
        """Seeds of an entry that fit every task of a family at the training lengths, as in "4 of 5"."""
        row = self._row(entry, name, protocol)
        return f"{len(row.seeds) - len(row.not_fitted)} of {len(row.seeds)}"

    def all_fit(self, entries: Iterable[str], name: str, protocol: str = PROTOCOL) -> str:
        """Seeds of these entries, as in "39 of 39". Raises Stale unless all of them fit every task of a family."""
        rows = [self._row(entry, name, protocol) for entry in entries]
        if failing := [row.entry for row in rows if row.not_fitted]:
            raise Stale(f"{', '.join(failing)} do not fit {name} with every seed; mend the sentence")
        seeds = sum(len(row.seeds) for row in rows)
        return f"{seeds} of {seeds}"

    def exponent(
        self, entry: str, name: str, metric: str, first: int = 1, last: int | None = None, protocol: str = PROTOCOL
    ) -> str:
        """Power of the length with which a probe falls, fitted from the length `first` to `last`, with its interval."""
        return _exponent(self._row(entry, name, protocol, metric, EVERYWHERE), first, last)

    def correlation(self, probe: str, name: str, length: int, layer: int | None = None, since: int | None = None) -> str:
        """Rank correlation over entries between a probe at a length and TVD there, its interval, and the number of entries.

        Means are over the seeds with both. since: the probe is divided by its value at this length.
        """
        (header, scores), *_ = self.results.models(PRIMARY_METRIC, name, PROTOCOL)
        (_, probes), *_ = self.results.models(probe, name, PROTOCOL, inside=Inside(layer))
        # Not the cells of boards, whose rounding may give two good entries one rank.
        values = {
            (entry, seed): value
            for entry, own in zip(scores.entries, scores.columns["length", length], strict=True)
            for seed, value in zip(scores.seeds, own, strict=True)
        }
        pairs: dict[str, Floats] = {}
        readings = probes.columns["length", length]
        if since is not None:
            readings = readings / probes.columns["length", since]
        for entry, own in zip(probes.entries, readings, strict=True):
            both = np.array([own, [values.get((entry, seed), np.nan) for seed in probes.seeds]])
            if "@" not in entry and (whole := np.isfinite(both).all(0)).any():
                mean = both[:, whole].mean(1, keepdims=True)
                # In one layer without MLP several norm schemes are one model, which counts once: they have the same TVD.
                if all(mean[1, 0] != other[1, 0] for other in pairs.values()):
                    pairs[entry] = mean
        (found,) = ProbeReadings(header.protocol, {(name, probe): {name: pairs}}).predictors()
        return f"{found.correlation:.2f} [{found.low:.2f}, {found.high:.2f}] (n = {found.entries})"

    def swept(self, entry: str, name: str, setting: str, value: float, metric: str = "tvd", digits: int = 3) -> str:
        """Mean of an entry at one value of a setting, from the runs in inside/runs."""
        for sweep in self._sweeps(setting, metric):
            named = sweep.cells.get(entry) or sweep.cells.get(f"transformer+{entry}", {})
            if sweep.board.name == name and (cell := named.get(value)):
                return f"{cell.mean:.{digits}f}"
        raise Stale(f"{entry} was not run on {name} with {setting} {value}")

    def untrained(self, name: str, first: int = 1, last: int | None = None) -> str:
        """Power of the length with which `output_std` falls in models that are not trained, fitted from `first` to `last`."""
        boards = self.swept_results.boards("output_std", name, inside=EVERYWHERE)
        (row,) = next(board for board in boards if ("train.steps", "1") in board.protocol.changes).rows
        return _exponent(row, first, last)

    def baseline(self, name: str, kind: str = "OOD") -> str:
        """Context-free baseline of a family."""
        level = self._board(name).context_free_level(kind)
        return f"{level:.3f}"

    def worse_than_baseline(self, entry: str, name: str, protocol: str = PROTOCOL) -> str:
        """Mean beyond the training range. Raises Stale unless ignoring the context is better."""
        mean = self.ood(entry, name, protocol)
        if float(mean) <= float(self.baseline(name)):
            raise Stale(f"{entry} is no longer worse than the context-free baseline on {name}: {mean}; mend the sentence")
        return mean

    def place(self, entry: str, name: str, protocol: str = PROTOCOL) -> str:
        """Place of an entry by its mean, among the entries with raw weights of a board, as in "1 of 37"."""
        raw = [row.entry for row in self._board(name, protocol).rows if "@" not in row.entry]
        return f"{raw.index(find_entry(entry, raw)) + 1} of {len(raw)}"

    def fitting(self, name: str) -> str:
        """Number of the twelve norm schemes of which any seed fits a family."""
        return str(sum(self.fits(scheme, name)[0] != "0" for scheme in NORM_SCHEMES))

    def best_scheme(self, name: str) -> str:
        """The norm scheme with the lowest mean of the twelve."""
        return min(NORM_SCHEMES, key=lambda scheme: self.ood(scheme, name, digits=6))

    def ahead_of_schemes(self, entry: str, name: str) -> str:
        """Difference of an entry from the best norm scheme. It must be significantly better than each of the twelve."""
        for scheme in NORM_SCHEMES:
            self.better(entry, scheme, name)
        return self.better(entry, self.best_scheme(name), name)

    def variance_left(self, entry: str, name: str) -> str:
        """Share of the variance of attention outputs at the longest length, relative to the training length."""
        metric = "output_var_global"
        board = self._board(name, PROTOCOL, metric, EVERYWHERE)
        return share_left(board, self._row(entry, name, PROTOCOL, metric, EVERYWHERE))

    def _ranks(self, metric: str) -> bool:
        return metric in self.results.ranking_names

    def _board(self, name: str, protocol: str = PROTOCOL, metric: str = "tvd", inside: Inside | None = None) -> Board:
        return self._read(name, protocol, metric, inside)

    def _row(self, entry: str, name: str, protocol: str = PROTOCOL, metric: str = "tvd", inside: Inside | None = None) -> Row:
        rows = {row.entry: row for row in self._board(name, protocol, metric, inside).rows}
        return rows[find_entry(entry, rows)]

    def _seeds(self, entry: str, name: str, length: int | None, protocol: str = PROTOCOL, metric: str = "tvd") -> list[float]:
        row = self._row(entry, name, protocol, metric)
        cell = row.cell("OOD") if length is None else row.cell("length", length)
        if cell is None or None in cell.values:
            raise Stale(f"some seeds of {entry} have no {metric} on {name} at {length or 'lengths OOD'}")
        return [value for value in cell.values if value is not None]

    def _compare(self, first: str, second: str, protocol: str, metric: str) -> Mapping[str, Difference]:
        # All families at once, for p is corrected for the families of a comparison.
        every = compare(self.results, first, second, metric, protocol=protocol)
        return {each.name: each.mean for each in every}


def _paired(expected: Judgement, differences: Floats, what: str) -> str:
    """Mean difference with its interval by an ordinary paired t-test; the judgement must be the expected one."""
    found = paired_t(differences)
    return _as_expected(expected, bool(found.p < 1 - CONFIDENCE), float(found.mean), float(found.low), float(found.high), what)


def _as_expected(expected: Judgement, significant: bool, mean: float, low: float | None, high: float | None, what: str) -> str:
    """Mean difference with its interval; lower is better."""
    now: Judgement = "undecided" if not significant else "better" if mean < 0 else "worse"
    text = with_interval(mean, low, high)
    if now != expected:
        raise Stale(f"{what} is {now}, not {expected}: {text}; mend the sentence")
    return text


def _exponent(row: Row, first: int, last: int | None) -> str:
    cells = [c for c in row.cells if c.kind == "length" and c.length and first <= c.length <= (last or c.length)]
    values = np.array([[np.nan if v is None else v for v in cell.values] for cell in cells])
    found = mean_exponent(np.array([float(cell.length or 0) for cell in cells]), values)
    if found is None:
        raise Stale(f"{row.entry} has no exponent")
    return str(found)
