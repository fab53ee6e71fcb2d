"""Models for the tests of this pack."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lgbench import Answers, Architecture, Parts, Signature, Tokens
from lgbench.extensions.registry import Registry
from lgbench_huggingface.entries import ARCHITECTURES
from lgbench_huggingface.network import Network

BY_NAME: dict[str, Any] = {architecture.name: architecture for architecture in ARCHITECTURES}
TOKENS = Signature(Tokens(6), 6, Answers.EVERY_PREFIX)
TRAINED, TESTED = 41, 129
BY_AUTOGRAD = ("bloom", "recurrent-gemma")
"""They have gradients of their own, which neither vmap nor torch.func takes."""


def parts() -> Parts:
    """What an architecture without parts is given."""
    registry = Registry.load()
    return Parts(registry.norms["no-norm"], registry.attentions["softmax"], registry.positions["nope"], TRAINED, TESTED)


def built(architecture: Architecture, signature: Signature = TOKENS, seed: int = 0, **options: Any) -> Network:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = architecture.build(signature, parts(), **options)
    assert isinstance(model, Network)
    return model.eval()


def tokens(length: int, n: int = 2) -> Tensor:
    return torch.randint(6, (n, length), generator=torch.Generator().manual_seed(1))
