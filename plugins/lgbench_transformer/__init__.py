"""Two architectures: the baseline transformer and the published retrieval model, as a plugin."""

from collections.abc import Iterable

from lgbench import Architecture, hookimpl
from lgbench_transformer.set_attention import SetAttention
from lgbench_transformer.transformer import Transformer


@hookimpl
def lgbench_architectures() -> Iterable[Architecture]:
    return Transformer(), SetAttention()
