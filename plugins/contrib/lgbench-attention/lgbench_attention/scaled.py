"""Softmax attention whose logits are first multiplied by a factor that depends on the number of keys, or on the entropy of the
weights.

z are the logits with the position code's bias, n is the number of keys that a query sees. Our choice: the factor scales the
bias too.
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from lgbench import Attention, AttentionSpec
from lgbench.attending import logits, visible, visible_counts


class FactoredSoftmax(nn.Module):
    """softmax(factor z) v over the visible keys."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__()
        self.scale = spec.scale

    def mix(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, factor: Tensor) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D), a factor that broadcasts to (B, H, Q, 1) -> (B, H, Q, D)."""
        return multiplied(factor, logits(q, k, bias, self.scale), visible(q, k)).softmax(-1) @ v


def multiplied(factor: Tensor, scores: Tensor, seen: Tensor) -> Tensor:
    """factor times logits (B, H, Q, K), and minus infinity where `seen`, (Q, K), says that a query does not see the key.

    Masked after the factor: minus infinity times zero, or in the factor's gradient, would not be a number.
    """
    return (factor * scores).masked_fill(~seen, -torch.inf)


def log_of_training(spec: AttentionSpec) -> float:
    """ln n_train, and ln 2 where n_train is 1, so that it is not 0."""
    return math.log(max(spec.train_keys, 2))


class AdaptiveTemperatureAttention(nn.Module):
    """softmax(z) v in training, softmax(b z) v in evaluation, b a polynomial of the entropy of softmax(z)."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D) -> (B, H, Q, D)."""
        scores, seen = logits(q, k, bias, self.scale), visible(q, k)
        masked = scores.masked_fill(~seen, -torch.inf)
        if self.training:
            return masked.softmax(-1) @ v
        log_weights = masked.log_softmax(-1)
        terms = log_weights.exp() * log_weights.masked_fill(~seen, 0.0)
        return multiplied(self.factor(-terms.sum(-1, keepdim=True)), scores, seen).softmax(-1) @ v

    @staticmethod
    def factor(entropy: Tensor) -> Tensor:
        """b for an entropy in nats: max(1, -0.037 H^4 + 0.481 H^3 - 2.3 H^2 + 4.917 H - 1.791) where H > 0.5, else 1."""
        fitted = (((-0.037 * entropy + 0.481) * entropy - 2.3) * entropy + 4.917) * entropy - 1.791
        return torch.where(entropy > 0.5, fitted.clamp(min=1.0), 1.0)


@final
class AdaptiveTemperature(Attention):
    """softmax(b z) at inference, b >= 1 a fitted polynomial of the entropy of softmax(z) (arXiv 2410.01104).

    Training is that of plain softmax attention: the method changes the trained model alone. The polynomial was fitted to short
    inputs: for flat weights b rises to 2.4 at about 60 keys, falls again, and is 1 from 400 keys on.
    """

    name = "adaptive-temperature"

    def build(self, spec: AttentionSpec) -> AdaptiveTemperatureAttention:
        return AdaptiveTemperatureAttention(spec.scale)


class ScalableSoftmaxAttention(FactoredSoftmax):
    """softmax(s ln(n) z) v with s learned per head."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.s = nn.Parameter(torch.full((spec.heads,), 1 / log_of_training(spec)))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D) -> (B, H, Q, D)."""
        factor = self.s[:, None, None] * visible_counts(q, k).log()  # (H, Q, 1)
        return self.mix(q, k, v, bias, factor)


@final
class ScalableSoftmax(Attention):
    """SSMax: softmax(s ln(n) z), s learned per head (arXiv 2501.19399).

    s begins at 1 / ln(n_train), so that at the end of the longest training input it begins as softmax does: our choice.
    """

    name = "ssmax"

    def build(self, spec: AttentionSpec) -> ScalableSoftmaxAttention:
        return ScalableSoftmaxAttention(spec)


class LogLengthAttention(FactoredSoftmax):
    """softmax(z max(1, ln n / ln n_train)) v."""

    def __init__(self, spec: AttentionSpec) -> None:
        super().__init__(spec)
        self.log_train = log_of_training(spec)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D) -> (B, H, Q, D)."""
        return self.mix(q, k, v, bias, (visible_counts(q, k).log() / self.log_train).clamp(min=1.0))


@final
class LogLength(Attention):
    """softmax(z max(1, ln n / ln n_train)): log-length scaling (arXiv 2202.12172) above the training length.

    The paper multiplies by ln n at every length; dividing by ln n_train and stopping at 1 leaves training as that of softmax.
    """

    name = "log-length"

    def build(self, spec: AttentionSpec) -> LogLengthAttention:
        return LogLengthAttention(spec)
