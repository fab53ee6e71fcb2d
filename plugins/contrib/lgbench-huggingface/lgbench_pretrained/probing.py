"""Probing a pretrained model: what probes read at each length, and a sentence for everything that they cannot read.

Shapes: n contexts, T positions.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from lgbench.contracts import Internals, Measurement
from lgbench.errors import LgbenchError, UsageError, first_line, lacks_memory
from lgbench.internals.sight import Seen, joined
from lgbench.measurement.probing import scores_of
from lgbench_pretrained.decoder import DecoderSight
from lgbench_pretrained.loading import Pretrained, quiet
from lgbench_pretrained.readings import ProbeRow
from lgbench_pretrained.tokens import Contexts

POSITIONS = {"cpu": 2**12, "cuda": 2**14}
"""Positions that a model reads at once, at most, by device; at least one context is read."""


class ProbeFailed(LgbenchError):
    """A probe whose code raised an error."""


class Probing:
    """Probes of one model, length by length."""

    def __init__(
        self, pretrained: Pretrained, contexts: Contexts, n: int, seed: int, probes: Sequence[Measurement], device: torch.device
    ) -> None:
        """`n` contexts of each length."""
        self.pretrained, self.contexts, self.n, self.seed, self.device = pretrained, contexts, n, seed, device
        self._sight = pretrained.sight
        self.probes = list(probes)
        """Those that apply. The others are left out once the first length has been read."""
        self.sentences: list[str] = []
        """A sentence for each thing that could not be read, with the reason; complete once the first length has been read."""

    def lengths(self, lengths: Sequence[int]) -> Iterator[list[ProbeRow]]:
        """The rows of each length, as they are read. Raises UsageError where no probe applies."""
        drawn = [(length, self.contexts.draw(length, self.n, self.seed)) for length in lengths]
        for place, (length, inputs) in enumerate(drawn):
            seen = self._read(length, inputs)
            if place == 0:
                self._choose(seen)
            yield [row for probe in self.probes for row in _rows(probe, seen)]

    def _read(self, length: int, inputs: Tensor) -> Internals:
        """The internals of the model while it reads these contexts, (n, T). p* and the sources are not known."""
        size = max(1, POSITIONS.get(self.device.type, POSITIONS["cpu"]) // length)
        try:
            with quiet(self.pretrained.source), self._sight.watching():
                parts = [read(self.pretrained.model, part.to(self.device), self._sight) for part in torch.split(inputs, size)]
        except Exception as error:  # the code of a model may raise anything
            if lacks_memory(error):
                raise LgbenchError(f"memory does not suffice for length {length}: use shorter --lengths") from error
            name, why = self.pretrained.kind, f"{type(error).__name__}: {first_line(error)}"
            raise UsageError(f"{name} cannot read {length} tokens of {self.contexts.name}: {why}") from error
        logits, seen = joined(parts, torch.arange(len(inputs)))
        return Internals(length, inputs.to(self._sight.where), logits, None, None, *seen)

    def _choose(self, seen: Internals) -> None:
        """Leave out the probes that read nothing of this model, and say so."""
        kept: list[Measurement] = []
        unknown: list[Measurement] = []
        lacking: list[Measurement] = []
        for probe in self.probes:
            try:
                kind = kept if _rows(probe, seen) else unknown if _rows(probe, _of_task(seen)) else lacking
            except ProbeFailed as error:
                self.sentences.append(f"{error}, so it is left out")
                continue
            kind.append(probe)
        if unknown:
            why = f"nobody knows the right answers to {self.contexts.name}"
            self.sentences.append(f"{_names(unknown)} {_do(unknown)} not apply: {why}")
        if lacking:
            self.sentences.append(f"{_names(lacking)} {_do(lacking)} not apply to {self.pretrained.kind}: {self._lack(seen)}")
        if self._sight.not_linear:
            layers = ", ".join(map(str, sorted(self._sight.not_linear)))
            why = "the output of attention is not linear in the values"
            self.sentences.append(f"no weights are read in layers {layers}: {why}")
        if self.pretrained.missing:
            names = ", ".join(self.pretrained.missing[:3]) + (", ..." if len(self.pretrained.missing) > 3 else "")
            self.sentences.append(f"weights of {self.pretrained.kind} were not found, so they are random: {names}")
        if not kept:
            raise UsageError("; ".join(self.sentences))
        self.probes = kept

    def _lack(self, seen: Internals) -> str:
        """The reason why probes do not apply to the model."""
        if not seen.attentions and not self._sight.not_linear:
            return "lgbench sees no attention in it"
        if not seen.attentions or any(each.weights is None for each in seen.attentions):
            return "its attention has no weights"
        return "it has no such part"


@torch.no_grad()
def read(model: nn.Module, inputs: Tensor, sight: DecoderSight) -> tuple[Tensor, Seen]:
    """The logits and the internals of a model at the last position of contexts, (n, T) token numbers."""
    wanted = {"use_cache": False, "logits_to_keep": 1, "return_dict": True}
    known = inspect.signature(model.forward).parameters
    any_name = any(each.kind is each.VAR_KEYWORD for each in known.values())
    sight.begin()
    answer = model(input_ids=inputs, **{name: value for name, value in wanted.items() if name in known or any_name})
    return answer.logits[:, -1].to(sight.where).double(), sight.at(0)


def _rows(probe: Measurement, seen: Internals) -> list[ProbeRow]:
    """The rows of a probe. Raises ProbeFailed where it fails."""
    try:
        scores = list(scores_of("raw", probe, seen))
    except Exception as error:  # the code of a measurement may raise anything
        raise ProbeFailed(f"{probe.name} failed with {type(error).__name__}: {first_line(error)}") from error
    return [ProbeRow(score.metric, score.length, score.layer, score.head, score.value, score.n) for score in scores]


def _of_task(seen: Internals) -> Internals:
    """The same, as if a task had said what is right: the first token, and that every position matters."""
    distribution = torch.zeros_like(seen.logits)
    distribution[:, 0] = 1
    return replace(seen, distribution=distribution, sources=torch.ones_like(seen.inputs, dtype=torch.bool))


def _names(probes: Sequence[Measurement]) -> str:
    return ", ".join(probe.name for probe in probes)


def _do(probes: Sequence[Measurement]) -> str:
    return "does" if len(probes) == 1 else "do"
