"""Models of the package transformers from settings: causal, randomly initialised, without dropout and caches."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from lgbench import Unsupported
from lgbench_huggingface import experts

TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id")
"""Special tokens, of which tasks have none. The embedding of a padding token would stay zero."""

POSITIONS = "max_position_embeddings"
"""How many positions a model may read: the size of a table, or nothing. Other names of it are mapped to this one."""

RANDOM = re.compile("dropout|layerdrop|jitter|_pdrop$")
"""Names of settings that make training random, by the library's generator and not by a run's seed."""

MAX_REASON = 200
"""Letters of the library's reason that are shown. Some name every model that it knows."""


def model_of(kind: str, settings: Mapping[str, Any], vocabulary: int, positions: int) -> nn.Module:
    """The causal language model of a `model_type` such as "llama", initialised as the library does it.

    Raises Unsupported, with the library's reason, where there is none. Attention is computed by matrix products, with the
    library's own masks, and experts as :mod:`lgbench_huggingface.experts` does it: vmap can batch both.
    """
    with quiet():
        from transformers import AutoConfig, AutoModelForCausalLM, __version__

        here = f"transformers {__version__}"
        own = {**settings, **dict.fromkeys(TOKENS), "vocab_size": vocabulary, "use_cache": False}
        with refused(f"{here} has no {kind!r} with these settings"):
            config = AutoConfig.for_model(kind, **own)
            _adapt(config, positions)
        if type(config) not in AutoModelForCausalLM._model_mapping:
            raise Unsupported(f"{kind!r} is no causal language model in {here}")
        with refused(f"{here} cannot build a {kind!r} with these settings"):
            model: nn.Module = AutoModelForCausalLM.from_config(
                config, attn_implementation="eager", experts_implementation=experts.registered(), dtype=torch.float32
            )
    return model


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Errors of the library inside are raised as Unsupported, with the reason on one line. It checks in many places."""
    try:
        yield
    except Unsupported:
        raise
    except Exception as error:  # the library may raise anything for a configuration
        reason = " ".join(str(error).split())
        raise Unsupported(f"{what}: {reason if len(reason) <= MAX_REASON else f'{reason[:MAX_REASON]} ...'}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Inside, the library logs nothing, such as that a faster kernel is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its import
        from transformers.utils import logging
    before = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _adapt(config: Any, positions: int) -> None:
    """Nothing random, no look at later positions in those models that are made for both, and enough positions."""
    for name, value in list(vars(config).items()):
        if RANDOM.search(name) and isinstance(value, int | float) and not isinstance(value, bool):
            setattr(config, name, 0.0)
    if hasattr(config, "rescale_every"):
        config.rescale_every = 0  # else RWKV divides its weights in place by powers of 2, in evaluation alone, to spare float16
    if getattr(config, "is_decoder", True) is False:
        config.is_decoder = True
    if hasattr(config, POSITIONS):
        setattr(config, POSITIONS, positions)
