"""Predictive position coupling: a decoder that predicts the position ids of the tokens that it writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lgbench import Answers, Architecture, Parts, Position, Signature, Tokens, Unsupported
from lgbench.noise import Noise
from lgbench_positions.absolute import TABLE_STD
from lgbench_transformer.transformer import Transformer


class WithLoss(torch.autograd.Function):
    """Logits unchanged, and a further loss () that the training minimizes too: its gradient is added in the backward pass."""

    generate_vmap_rule = True

    @staticmethod
    def forward(logits: Tensor, loss: Tensor) -> Tensor:
        return logits.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, torch.ones_like(ctx.saved_tensors[0])


class RowOfEach(Position):
    """Position code x + E[row], with the rows (B, T) of the forward pass that runs and a learned table E of N rows."""

    name = "row-of-each"

    def __init__(self, count: int) -> None:
        self.count = count
        self.current: Tensor | None = None

    def embed(self, width: int, positions: int) -> Rows:
        return Rows(width, self)


class Rows(nn.Module):
    """x + the row of each token."""

    def __init__(self, width: int, code: RowOfEach) -> None:
        super().__init__()
        self.code = code
        self.table = nn.Parameter(torch.empty(code.count, width))
        nn.init.normal_(self.table, std=TABLE_STD)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table[self.code.current]


class Predicting(nn.Module):
    """Decoder with answers of V + N classes: the token, and the row in the table of the next token's position."""

    def __init__(self, decoder: nn.Module, code: RowOfEach, classes: int, separator: int) -> None:
        super().__init__()
        self.decoder, self.code, self.classes, self.separator = decoder, code, classes, separator
        self.noise = Noise(1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Tokens with ids (B, T, 2), or tokens (B, T) with places as ids -> (B, T, V)."""
        places = torch.arange(inputs.shape[1], device=inputs.device)
        tokens, ids = inputs.unbind(-1) if inputs.ndim == 3 else (inputs, places.expand_as(inputs))
        written = F.pad((tokens == self.separator).cumsum(1)[:, :-1] > 0, (1, 0))
        return self.taught(tokens, ids, written) if self.training else self.decoded(tokens, ids, written)

    def taught(self, tokens: Tensor, ids: Tensor, written: Tensor) -> Tensor:
        """Logits with the given ids, from a random row on, and with the loss of the ids of written tokens."""
        free = self.code.count - ids.amax()  # starts from which the largest id is still in the table
        rows = ids + (self.noise() * free).long()
        logits, following = self.answers(tokens, rows)
        by_token = F.cross_entropy(following[:, :-1].flatten(0, 1), rows[:, 1:].flatten(), reduction="none")
        counts = written[:, 1:].flatten()
        found: Tensor = WithLoss.apply(logits, (by_token * counts).sum() / counts.sum().clamp(min=1))  # type: ignore[no-untyped-call]
        return found

    def decoded(self, tokens: Tensor, ids: Tensor, written: Tensor) -> Tensor:
        """Logits with the ids that the model predicts for written tokens, each from the tokens and ids before it."""
        while True:  # every pass settles one more id, so there are T passes at most, and one where all guesses are right
            logits, following = self.answers(tokens, ids)
            predicted = torch.where(written, F.pad(following.argmax(-1)[:, :-1], (1, 0)), ids)
            if torch.equal(predicted, ids):
                return logits
            ids = predicted

    def answers(self, tokens: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of the tokens (B, T, V), and of the rows of the next tokens (B, T, N)."""
        self.code.current = rows
        found: Tensor = self.decoder(tokens)
        self.code.current = None
        return found[..., : self.classes], found[..., self.classes :]


@final
class PredictedCoupling(Architecture):
    """Predictive position coupling (PPC): position coupling whose ids the model predicts as it writes (arXiv 2502.16792).

    A transformer with the code `coupled`, whose last layer also gives logits over the rows of the table of positions, for the
    next token. In training the ids are given, and the cross-entropy of the ids of written tokens is added to the loss. In
    evaluation the ids of the question are given, and each further one is the most probable.

    Written are the tokens after the first `separator`, by default the last token of the vocabulary, such as = of
    `decimal-addition-coupled`. Our choices: those of `coupled`, where the random start is a part of the predicted row; equal
    weights of both losses; and the other things that the abstract of the paper leaves open. Without ids of a task, ids are
    places.
    """

    name = "ppc"
    reads_positions = True
    defaults = {"norm": "pre-norm", "attention": "softmax"}
    ranges = {**Transformer.ranges, "separator": (-1, 16384)}

    def build(
        self,
        signature: Signature,
        parts: Parts,
        *,
        layers: int = 2,
        heads: int = 1,
        width: int = 32,
        mlp: bool = True,
        separator: int = -1,
    ) -> Predicting:
        inputs = signature.inputs
        if not isinstance(inputs, Tokens) or signature.answers is Answers.LAST:
            raise Unsupported(
                "ppc predicts position ids of tokens: choose a task that reads tokens and answers at many positions"
            )
        if separator >= inputs.size:
            raise Unsupported(f"the separator {separator} is none of the {inputs.size} tokens")
        count = inputs.positions or parts.test_positions
        code = RowOfEach(count)
        own = replace(signature, inputs=Tokens(inputs.size), classes=signature.classes + count)
        decoder = Transformer().build(own, replace(parts, position=code), layers=layers, heads=heads, width=width, mlp=mlp)
        return Predicting(decoder, code, signature.classes, separator % inputs.size)
