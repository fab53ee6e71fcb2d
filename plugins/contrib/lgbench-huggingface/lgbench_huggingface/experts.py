"""Mixtures of experts in which every expert computes every token: operators of fixed shapes, which vmap can batch.

The library sorts tokens by their experts, or copies an expert's weights to each token. The first depends on values. The second
takes far more memory than computing the experts that nobody asked, of which small models have few.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

NAME = "lgbench_every_expert"


def registered() -> str:
    """The name by which the library finds :func:`every_expert`."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    if NAME not in ALL_EXPERTS_FUNCTIONS:
        ALL_EXPERTS_FUNCTIONS.register(NAME, every_expert)
    return NAME


def every_expert(module: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """The outputs of the chosen experts, weighted, and summed: N tokens (N, W), with K experts each (N, K) -> (N, W)."""
    experts = torch.arange(module.num_experts, device=top_k_index.device)
    chosen = top_k_index.unsqueeze(-1) == experts  # (N, K, E)
    shares = (chosen * top_k_weights.unsqueeze(-1)).sum(1)  # (N, E), 0 for those that were not chosen
    within = _linear(module, hidden_states, "gate_up_proj" if module.has_gate else "up_proj")  # (E, N, I), or twice that
    within = module._apply_gate(within) if module.has_gate else module.act_fn(within)
    found = _linear(module, within, "down_proj")  # (E, N, W)
    if module.has_post_expert_norm:
        found = module.post_expert_norm(found)
    mixed: Tensor = (found * shares.T.unsqueeze(-1)).sum(0)
    return mixed.to(hidden_states.dtype)


def _linear(module: Any, x: Tensor, name: str) -> Tensor:
    """One linear function for each expert: (..., N, I) -> (E, N, O)."""
    weight: Tensor = getattr(module, name)
    found: Tensor = x @ (weight if module.is_transposed else weight.mT)
    return found + getattr(module, f"{name}_bias").unsqueeze(1) if module.has_bias else found
