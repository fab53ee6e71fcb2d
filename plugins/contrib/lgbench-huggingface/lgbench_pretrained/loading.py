"""Causal language models and their tokenizers, from a folder or from the Hugging Face hub."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from lgbench.errors import UsageError, first_line
from lgbench.internals.sight import TOLERANCES
from lgbench.randomness import device_of_data
from lgbench_pretrained.decoder import DecoderSight

_HUB_NAME = re.compile(r"[\w][\w.-]*(/[\w][\w.-]*)?")


@dataclass(frozen=True)
class Source:
    """Where a model is: a folder on this machine, or a name on the hub."""

    name: str
    """As the user wrote it."""
    folder: Path | None
    """None for a name on the hub."""

    @classmethod
    def of(cls, name: str) -> Source:
        """A folder that is there, or else a name on the hub.

        Text that looks like a path is no name on the hub. Raises UsageError for text that is neither.
        """
        folder = Path(name).expanduser()
        if folder.is_dir():
            if not (folder / "config.json").is_file():
                raise UsageError(f"{name!r} has no config.json: expected a folder that save_pretrained of transformers wrote")
            return cls(name, folder)
        if folder.exists():
            raise UsageError(f"{name!r} is a file: expected the folder that it is in, which save_pretrained wrote")
        if not _HUB_NAME.fullmatch(name):
            raise UsageError(f"there is no folder {name!r}: expected one that save_pretrained wrote, or a name such as gpt2")
        return cls(name, None)

    @property
    def place(self) -> str:
        """The name or the path that transformers loads from."""
        return self.name if self.folder is None else str(self.folder)


@dataclass(frozen=True)
class Pretrained:
    """A model that was loaded, in evaluation mode."""

    source: Source
    sight: DecoderSight
    dtype: str
    """Of its numbers: float32 or bfloat16."""
    vocabulary: int
    """How many token numbers there are."""
    limit: int | None
    """The greatest length that its configuration allows; None where it has no limit."""
    missing: tuple[str, ...]
    """The weights that were not found, and are random therefore."""

    @property
    def model(self) -> nn.Module:
        return self.sight.model

    @property
    def kind(self) -> str:
        """The name of its class."""
        return type(self.model).__name__


def load(source: Source, dtype: str, device: torch.device) -> Pretrained:
    """Load a model. A folder is loaded without the network. Raises UsageError where transformers cannot load it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    local = source.folder is not None
    with quiet(source):
        try:
            config = AutoConfig.from_pretrained(source.place, local_files_only=local, trust_remote_code=False)
            if type(config) not in AutoModelForCausalLM._model_mapping:
                raise UsageError(f"{source.name!r} is a {config.model_type} model, which is no causal language model")
            model, found = AutoModelForCausalLM.from_pretrained(
                source.place,
                config=config,
                dtype=getattr(torch, dtype),
                attn_implementation="eager",
                local_files_only=local,
                trust_remote_code=False,
                output_loading_info=True,
            )
            sight = DecoderSight(model, device_of_data(device), TOLERANCES[dtype])
        except UsageError:
            raise
        except Exception as error:  # from a stranger's folder, or the network: anything
            raise UsageError(_why(source, "the model", error)) from error
    try:
        model.to(device).eval()
    except RuntimeError as error:  # it does not fit
        raise UsageError(f"{source.name!r} cannot be moved to {device}: {first_line(error)}") from error
    text = config.get_text_config()
    return Pretrained(
        source=source,
        sight=sight,
        dtype=dtype,
        vocabulary=model.get_input_embeddings().weight.shape[0],
        limit=getattr(text, "max_position_embeddings", None),
        missing=tuple(sorted(found["missing_keys"])),
    )


def tokens_of(text: str, pretrained: Pretrained) -> Tensor:
    """The numbers of the tokens of a text, (N,) int64, by the tokenizer beside the model, which adds none of its own."""
    from transformers import AutoTokenizer

    source = pretrained.source
    local = source.folder is not None
    with quiet(source):
        try:
            tokenizer = AutoTokenizer.from_pretrained(source.place, local_files_only=local, trust_remote_code=False)
            numbers = torch.tensor(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], dtype=torch.int64)
        except Exception as error:  # as above
            way_out = "; --tokens takes a file of token numbers"
            raise UsageError(_why(source, "the tokenizer", error) + way_out) from error
    if text.strip() and not len(numbers):  # what some kinds of tokenizers do where their files are missing
        why = f"the tokenizer of {source.name!r} knows no token of this text"
        raise UsageError(f"{why}; --tokens takes a file of token numbers")
    if len(numbers) and int(numbers.max()) >= pretrained.vocabulary:
        largest = int(numbers.max())
        why = f"the tokenizer of {source.name!r} has the token {largest}, and the model knows {pretrained.vocabulary}"
        raise UsageError(f"{why}: the two do not belong together; --tokens takes a file of token numbers")
    return numbers


def _why(source: Source, what: str, error: Exception) -> str:
    """One sentence."""
    if source.folder is None:
        where = f"there is no folder {source.name!r}, and {what} of this name could not be had from the hub"
        return f"{where}: {first_line(error).rstrip(' .:')}"
    return f"transformers cannot load {what} in {source.name!r}: {first_line(error).rstrip(' .:')}"


@contextmanager
def quiet(source: Source) -> Iterator[None]:
    """Inside, transformers and the hub's library print nothing, and do not use the network for what is in a folder."""
    import huggingface_hub
    from huggingface_hub.utils import logging as hub_logging
    from transformers.utils import logging

    with ExitStack() as after:
        for library in (logging, hub_logging):
            after.callback(library.set_verbosity, library.get_verbosity())
            library.set_verbosity(logging.CRITICAL)
        if logging.is_progress_bar_enabled():
            after.callback(logging.enable_progress_bar)
            logging.disable_progress_bar()
        after.callback(setattr, huggingface_hub.constants, "HF_HUB_OFFLINE", huggingface_hub.constants.HF_HUB_OFFLINE)
        huggingface_hub.constants.HF_HUB_OFFLINE |= source.folder is not None
        after.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield
