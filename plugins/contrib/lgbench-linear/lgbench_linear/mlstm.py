"""The mLSTM of xLSTM: a matrix memory with exponential input gates."""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec
from lgbench_linear.decayed_sum import decayed_sum
from lgbench_linear.layers import split
from lgbench_linear.recurrence import NEEDS, Recurrence, require_self_attention

CAP = 15.0
"""Gates g become CAP tanh(g / CAP) before their nonlinearity, as in xLSTM 7B."""


@final
class MlstmModule(Recurrence):
    """sigmoid(o) * LayerNorm(S^T q / max(|n . q|, 1)), S <- f S + i k v^T, n <- f n + i k."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.heads, self.scale = spec.heads, spec.scale
        self.input_gate = nn.Linear(spec.width, spec.heads)
        self.forget_gate = nn.Linear(spec.width, spec.heads)
        self.output_gate = nn.Linear(spec.width, spec.width, bias=False)
        self.gain = nn.Parameter(torch.ones(spec.width))
        with torch.no_grad():
            for gate in (self.input_gate, self.forget_gate):
                gate.weight.zero_()
            self.input_gate.bias.fill_(-10.0)
            self.forget_gate.bias.copy_(torch.linspace(3.0, 6.0, spec.heads))

    def run(self, q: Tensor, k: Tensor, v: Tensor, x: Tensor) -> Tensor:
        log_i, f = ((CAP * (gate(x) / CAP).tanh()).transpose(1, 2) for gate in (self.input_gate, self.forget_gate))
        with_one = F.pad(v, (0, 1), value=1.0)  # so that its last feature is n . q
        mixed, m = decayed_sum(self.scale * q, k, with_one, F.logsigmoid(f), log_i)
        total = torch.maximum(mixed[..., -1:].abs(), (-m).exp().unsqueeze(-1))
        mixed = F.layer_norm(mixed[..., :-1] / (total + 1e-6), (v.shape[-1],), eps=1e-6)
        return self.gain.view(self.heads, 1, -1) * mixed * split(self.output_gate(x), self.heads).sigmoid()


@final
class Mlstm(Attention):
    """The mLSTM of xLSTM (arXiv 2405.04517): S <- f S + i k v^T, n <- f n + i k, o * LayerNorm(S^T q / max(|n . q|, 1)).

    i = exp(w . x + b), f = sigmoid(w' . x + b') and o = sigmoid(W x), as in xLSTM 7B (arXiv 2503.13427), which also caps the
    arguments of i and f softly at 15. i and f are numbers for each head, o for each feature; q . k is divided by sqrt(D).

    Our choices: it stands in the transformer, with an MLP after it, as in xLSTM 7B; q and k have as many features as v. The
    short convolution of the first paper is left out, as there.
    """

    name = "mlstm"
    needs = NEEDS

    def build(self, spec: AttentionSpec) -> MlstmModule:
        require_self_attention(self.name, spec)
        return MlstmModule(spec)
