"""The signatures that models are checked on, and inputs of each."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from lgbench.contracts import Answers, Model, Signature, Tokens, Vectors
from lgbench.errors import first_line
from lgbench.experiment.protocols import PROTOCOLS
from lgbench.extensions.conformance.check import NotChecked
from lgbench.extensions.conformance.probes import built, integers, numbers

TRAINED = 9
"""Positions of the longest input in training."""
TESTED = PROTOCOLS["standard"].longest_prefix + 1
"""Positions of the longest input in testing: of a context with a begin token under the protocol of the leaderboards."""

TOKENS, VECTORS = Tokens(5), Vectors(3)
SIGNATURES = (
    Signature(TOKENS, 4, Answers.EVERY_PREFIX),
    Signature(VECTORS, 4, Answers.EVERY_PREFIX),
    Signature(TOKENS, 4, Answers.LAST),
    Signature(VECTORS, 4, Answers.LAST),
    Signature(TOKENS, 4, Answers.MARKED),
)

Build = Callable[[Signature], Model]


def served(build: Build) -> list[tuple[Signature, nn.Module]]:
    """The signatures that it serves, with a model for each. Raises NotChecked if there is none."""
    found, reasons = [], []
    for signature in SIGNATURES:
        try:
            found.append((signature, built(lambda signature=signature: build(signature))))  # type: ignore[misc]
        except NotChecked as refusal:
            reasons.append(str(refusal))
    if not found:
        raise NotChecked(f"it is built for no signature: {reasons[0]}")
    return found


def inputs_of(signature: Signature, length: int, n: int = 2, seed: int = 0) -> Tensor:
    """n inputs that a task of that signature could give."""
    if isinstance(signature.inputs, Vectors):
        return numbers(n, length, signature.inputs.width, seed=seed)
    return integers(signature.inputs.size, n, length, seed=seed)


def named(signature: Signature) -> str:
    return f"{'tokens' if isinstance(signature.inputs, Tokens) else 'vectors'} answered {signature.answers.value}"


def shown(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"
