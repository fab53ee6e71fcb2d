"""The published retrieval model: one query attends to a set, with MLPs around and no residual."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from lgbench import Answers, Architecture, Parts, Place, Signature, Unsupported, Vectors


def two_layers(width: int, hidden: int, out: int) -> nn.Module:
    """A two-layer GELU MLP."""
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, out))


class QueryOverSet(nn.Module):
    """e_i = (Q h_q) . (K h_i), z = sum_i softmax(e)_i V h_i, logits = MLP(z); items and query have MLPs of their own."""

    def __init__(self, features: int, classes: int, parts: Parts, width: int) -> None:
        super().__init__()
        norm, items = parts.norm, parts.train_positions - 1
        place = Place(1, width, 1, items, crossing=True, plain=True)
        self.embed_item = nn.Sequential(two_layers(features, width, width), norm.embed(width))
        self.embed_query = nn.Sequential(two_layers(features, width, width), norm.embed(width))
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.attend = parts.attention.build(place)
        self.norm = norm.output(width, "attention")
        self.logits = two_layers(width, width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, items + 1, F), the query last, -> (B, 1, V)."""
        items, query = self.embed_item(inputs[:, :-1]), self.embed_query(inputs[:, -1:])
        q, k, v = (y.unsqueeze(1) for y in (self.query(query), self.key(items), self.value(items)))  # (B, 1, ., D)
        mixed = self.attend(q, k, v, query, None).squeeze(1)
        logits: Tensor = self.logits(self.norm(mixed))
        return logits


@final
class SetAttention(Architecture):
    """Single-head attention of one query over a set (arXiv 2410.01104, appendix A), width 128 as published.

    It has no residual connection: a norm scheme acts on the embeddings and on the attention output alone, so pre-norm
    is the published model as it is. A set has no order, and so no position code.
    """

    name = "set-attention"
    defaults = {"norm": "pre-norm", "attention": "softmax"}

    def build(self, signature: Signature, parts: Parts, *, width: int = 128) -> nn.Module:
        if signature.answers is not Answers.LAST:
            raise Unsupported("set-attention answers once, at the last position, and the task wants an answer at every prefix")
        if not isinstance(signature.inputs, Vectors):
            raise Unsupported("set-attention reads sets of vectors, and the task has tokens")
        if width < 1:
            raise Unsupported(f"width must be at least 1, got {width}")
        return QueryOverSet(signature.inputs.width, signature.classes, parts, width)
