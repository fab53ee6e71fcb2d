"""Any causal language model of the package transformers, from a file with its configuration."""

from __future__ import annotations

import json
from typing import Any, final

import torch

from lgbench import Architecture, JsonFile, Parts, Signature, Tokens, Unsupported
from lgbench_huggingface.library import refused
from lgbench_huggingface.network import Network, network

IGNORED = ("architectures", "attn_implementation", "dtype", "torch_dtype", "transformers_version")
"""What configurations on the hub say besides a model's form. Models here are float32, and attend by matrix products."""
REFUSED = {
    "auto_map": "code from the hub is not run",
    "quantization_config": "weights are trained in float32",
}


@final
class Configured(Architecture):
    """A causal language model of transformers from its configuration, with the norms of that model.

    The file has what save_pretrained of transformers writes to config.json, or less: `model_type`, such as "opt", and what
    differs from the library's defaults, above all the sizes. The task decides the vocabulary and the number of positions. There
    is no dropout, dropped layer or noise in routers, and no special token. Weights are initialised as the library does it.
    """

    name = "hf"
    about = "A causal language model of transformers from a file with its configuration: --set model.config=FILE.json"

    def build(self, signature: Signature, parts: Parts, *, config: JsonFile = JsonFile()) -> Network:  # noqa: B008
        if not config:
            raise Unsupported("hf needs the configuration of a model: --set model.config=FILE.json")
        settings: dict[str, Any] = json.loads(config)
        kind = settings.pop("model_type", None)
        if not isinstance(kind, str):
            raise Unsupported('the configuration of hf names no model_type: expected one of transformers, such as "opt"')
        for name, why in REFUSED.items():
            if settings.get(name):
                raise Unsupported(f"the configuration of hf has {name}, and {why}: leave it out")
        own = {name: value for name, value in settings.items() if name not in IGNORED and not name.startswith("_")}
        model = network(kind, own, signature, parts)
        _require_answer(model, kind, signature)
        return model


@torch.no_grad()
def _require_answer(model: Network, kind: str, signature: Signature) -> None:
    """Raises Unsupported where a model can be built, and cannot read two positions. The library checks few sizes before."""
    inputs = signature.inputs
    given = torch.zeros(1, 2, dtype=torch.int64) if isinstance(inputs, Tokens) else torch.zeros(1, 2, inputs.width)
    with refused(f"the model {kind!r} of this configuration cannot be computed"):
        model.eval()(given)
    model.train()
