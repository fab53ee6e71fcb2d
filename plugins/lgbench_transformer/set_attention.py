"""The published retrieval model: one query attends to a set, with MLPs around and no residual."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from lgbench import Answers, Architecture, AttentionSpec, Parts, Signature, SublayerSpec, Unsupported, Vectors
from lgbench.attending import needed_inputs
from lgbench.chain import Chain
from lgbench_transformer.projections import linear


def two_layers(width: int, hidden: int, out: int) -> Chain:
    """A two-layer GELU MLP."""
    return Chain(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, out))


class QueryOverSet(nn.Module):
    """e_i = (Q h_q) . (K h_i), z = sum_i softmax(e)_i V h_i, logits = MLP(z); items and query have MLPs of their own."""

    def __init__(self, features: int, classes: int, parts: Parts, width: int) -> None:
        super().__init__()
        norm, items = parts.norm, parts.train_positions - 1
        spec = SublayerSpec("attention", 1, 1, width)
        self.embed_item = Chain(two_layers(features, width, width), norm.embed(width))
        self.embed_query = Chain(two_layers(features, width, width), norm.embed(width))
        self.query = linear(norm, spec, "query", width, width)
        self.key = linear(norm, spec, "key", width, width)
        self.value = linear(norm, spec, "value", width, width)
        self.norm_query, self.norm_key, self.norm_head = norm.query(spec), norm.key(spec), norm.head(spec)
        self.needs = parts.attention.needs
        self.attend = parts.attention.build(AttentionSpec(1, 1, width, 1, items, cross_attention=True, unscaled=True))
        self.norm = norm.output(spec)
        self.logits = two_layers(width, width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, items + 1, F), the query last, -> (B, 1, V)."""
        items, query = self.embed_item(inputs[:, :-1]), self.embed_query(inputs[:, -1:])
        q, k, v = (y.unsqueeze(1) for y in (self.query(query), self.key(items), self.value(items)))  # (B, 1, ., D)
        q = q if self.norm_query is None else self.norm_query(q)
        k = k if self.norm_key is None else self.norm_key(k)
        mixed = self.attend(q, k, v, None, **needed_inputs(self.needs, query, items))  # (B, 1, 1, D)
        mixed = mixed if self.norm_head is None else self.norm_head(mixed)
        return self.logits(self.norm(mixed.squeeze(1)))


@final
class SetAttention(Architecture):
    """Single-head attention of one query over a set (arXiv 2410.01104, appendix A), width 128 as published.

    e_i = (Q h_q) . (K h_i), z = sum_i softmax(e)_i V h_i, logits = MLP(z); h_q and h_i are MLPs of the query and of item i.

    The published model has no norm. It has no residual connection either: a norm scheme acts on the embeddings and on the
    attention output alone. A set has no order, and so no position code.
    """

    name = "set-attention"
    defaults = {"norm": "no-norm", "attention": "softmax"}
    ranges = {"width": (1, 16384)}

    def build(self, signature: Signature, parts: Parts, *, width: int = 128) -> QueryOverSet:
        if signature.answers is not Answers.LAST:
            asked = signature.answers.value
            raise Unsupported(f"set-attention answers once, at the last position, and the task wants an answer {asked}")
        if not isinstance(signature.inputs, Vectors):
            raise Unsupported("set-attention reads sets of vectors, and the task has tokens")
        if width < 1:
            raise Unsupported(f"width must be at least 1, got {width}")
        return QueryOverSet(signature.inputs.width, signature.classes, parts, width)
