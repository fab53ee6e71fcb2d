"""Any causal language model of the package transformers, from a file with its configuration."""

from __future__ import annotations

import json
from typing import Any, final

from lgbench import Architecture, JsonFile, Parts, Signature, Unsupported
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
    is no dropout, and no special token. Weights are initialised as the library does it.
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
        return network(kind, own, signature, parts)
