"""A causal language model of transformers as a model of lgbench."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from lgbench import Answers, Parts, Signature, Tokens
from lgbench_huggingface.library import model_of, quiet


class Network(nn.Module):
    """The library's own model, from embedding to logits. Of its vocabulary the first V are the classes of the task.

    Vectors are embedded by a linear layer in the place of the library's embedding, and go on as `inputs_embeds`.
    """

    def __init__(self, language_model: Any, signature: Signature) -> None:
        super().__init__()
        self.language_model = language_model
        self.classes = signature.classes
        self.only_last = signature.answers is Answers.LAST
        self.embed: nn.Linear | None = None
        if not isinstance(signature.inputs, Tokens):
            width = language_model.get_input_embeddings().weight.shape[-1]
            self.embed = nn.Linear(signature.inputs.width, width)
            language_model.set_input_embeddings(nn.Identity())  # or its weights would never be used

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T) or (B, T, F) -> (B, T, V), or (B, 1, V) where only the last position answers."""
        given = {"input_ids": inputs} if self.embed is None else {"inputs_embeds": self.embed(inputs)}
        with quiet():
            logits: Tensor = self.language_model(**given).logits
        return logits[:, -1:, : self.classes] if self.only_last else logits[..., : self.classes]


def network(kind: str, settings: Mapping[str, Any], signature: Signature, parts: Parts) -> Network:
    """The model of a `model_type` for a task. Raises Unsupported, with the reason, where the library has none."""
    size = signature.inputs.size if isinstance(signature.inputs, Tokens) else 0
    model = model_of(kind, settings, max(size, signature.classes), parts.test_positions)
    return Network(model, signature)
