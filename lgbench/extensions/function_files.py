"""Architecture from a function in a file: `./my_model.py:build`, with `build(signature)` returning a model."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial, update_wrapper
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from lgbench.contracts import NAME, Answers, Architecture, Model, Parts, Signature, Tokens
from lgbench.errors import PluginError, Unsupported, UsageError, lacks_memory, located, unknown
from lgbench.extensions.loading import PluginSource, file_source, parted
from lgbench.hookspecs import hookimpl

if TYPE_CHECKING:
    from torch import Tensor, nn

CONTEXTS = 2
"""Number of contexts in the trial input of a new model."""
_NAMED = re.compile(r"(?P<place>.*\.py:\w+)(?P<parts>\+.*)?", re.DOTALL)

Function = Callable[..., Any]


def take_functions(archs: Iterable[str]) -> tuple[list[str], list[Path]]:
    """Values of --arch with functions in files replaced by names of architectures, and the plugin files of these functions.

    Raises UsageError for a missing file, for a file without the name of a function, and for anything except texts.
    """
    names: list[str] = []
    plugins: list[Path] = []
    for arch in archs:
        if not isinstance(arch, str):
            raise UsageError(
                f"arch has an object of {type(arch).__name__}, expected names: name a function in a file, such as "
                "./file.py:build, or test a trained model with lgbench.evaluate_model"
            )
        if arch.endswith(".py"):
            raise UsageError(f"{arch!r} is a file: name a function in it that builds a model, as in {arch}:build")
        if found := _NAMED.fullmatch(arch):
            path = Path(found["place"])
            plugins.append(path)
            arch = f"{name_of(path)}~{function_source(path).distribution.stamp}{found['parts'] or ''}"
        names.append(arch)
    return names, plugins


def function_source(path: Path) -> PluginSource:
    """Plugin with a single architecture, built by a function in a file. Raises UsageError for a missing file."""
    file, function = parted(path)

    def plugin(module: ModuleType) -> SimpleNamespace:
        architecture = BuiltByFunction(path, _function(module, function))
        return SimpleNamespace(lgbench_architectures=hookimpl(lambda: [architecture]))

    return file_source(file, path.name, plugin)


def name_of(path: Path) -> str:
    """Name of the architecture: the file's name, with the function's name unless the function is `build`.

    >>> name_of(Path("my_model.py:build")), name_of(Path("models.py:TinyNet"))
    ('my-model', 'models-tiny-net')
    """
    file, function = parted(path)
    name = as_name(file.stem if function == "build" else f"{file.stem} {function}")
    if not NAME.fullmatch(name):
        raise UsageError(f"{path.name} gives an architecture no name: give the file one with letters or digits, at most 100")
    return name


def as_name(text: str) -> str:
    """Valid name from a text: lower-case words joined by hyphens.

    >>> as_name("TinyNet"), as_name("my_model 2")
    ('tiny-net', 'my-model-2')
    """
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", text).lower()
    return re.sub(r"[^a-z0-9]+", "-", apart).strip("-")


class BuiltByFunction(Architecture):
    """Architecture from a function in a file. Keyword-only parameters of the function are options of the model."""

    def __init__(self, path: Path, function: Function) -> None:
        self.name = name_of(path)
        # Not inspect.getdoc, by which a class without a docstring has that of nn.Module.
        said = inspect.cleandoc(function.__doc__ or "") or f"A model that {path.name} builds."
        self.about = said.partition("\n\n")[0]
        self._where, self._function = path.name, function
        taken = [p for p in inspect.signature(self.build).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        options = [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        # Options are read from the parameters of `build`.
        build: Any = update_wrapper(partial(self.build), self.build)
        build.__signature__ = inspect.Signature([*taken, *options])
        vars(self)["build"] = build

    def build(self, signature: Signature, parts: Parts, *args: Any, **options: Any) -> Model:
        """Model from the function. Raises Unsupported for an error in it, for another result, and for wrong logits."""
        from torch import nn

        try:
            model = self._function(signature, **options)
        except Unsupported:  # its message is the reason
            raise
        except Exception as error:  # such as a function for tokens alone, given vectors by `lgbench check`
            raise Unsupported(f"building the model failed with {located(error)}") from error
        if not isinstance(model, nn.Module):
            raise Unsupported(f"{self._where} returned {type(model).__name__}, expected a torch.nn.Module")
        self._require_logits(model, signature, CONTEXTS, parts.train_positions)
        return model

    def require_length(self, model: nn.Module, signature: Signature, positions: int) -> None:
        """Run a built model on the longest tested input. Raises Unsupported for a failure, or for wrong logits.

        Otherwise too few learned positions would end a run after its training.
        """
        advice = "; build it for this length, the longest that is tested, or lower evaluate.max_length"
        self._require_logits(model, signature, 1, positions, advice)

    def _require_logits(self, model: nn.Module, signature: Signature, contexts: int, positions: int, advice: str = "") -> None:
        """Run the model once. Raises Unsupported for a failure, or for logits of the wrong type or shape.

        Not for a lack of memory: a GPU may have more, and training tells how much is free.
        """
        import torch

        from lgbench.experiment.experiment import evaluating

        given = _zeros(signature, contexts, positions)
        try:
            with evaluating(model), torch.no_grad():
                logits = model(given)
        except Exception as error:  # a stranger's model may raise anything
            if lacks_memory(error):
                return
            why = located(error)
            shape = tuple(given.shape)
            raise Unsupported(f"the model of {self._where} fails on inputs of the shape {shape}: {why}{advice}") from error
        require_logits(f"the model of {self._where}", logits, given.shape[:2], signature)


def _zeros(signature: Signature, contexts: int, positions: int) -> Tensor:
    """Inputs of a signature, all 0."""
    import torch

    inputs = signature.inputs
    if not isinstance(inputs, Tokens):
        return torch.zeros(contexts, positions, inputs.width)
    ids = () if inputs.positions is None else (2,)
    return torch.zeros(contexts, positions, *ids, dtype=torch.int64)


def require_logits(who: str, logits: Any, inputs: Sequence[int], signature: Signature) -> None:
    """Raise Unsupported unless `logits` are floats, (contexts, answers, classes). inputs: numbers of contexts and positions."""
    import torch

    contexts, positions = inputs
    answers = 1 if signature.answers is Answers.LAST else positions
    expected = (contexts, answers, signature.classes)
    if not isinstance(logits, torch.Tensor):
        advice = ": return its .logits" if hasattr(logits, "logits") else ""
        raise Unsupported(
            f"{who} returned {type(logits).__name__}, expected a tensor of logits of the shape {expected}{advice}"
        )
    found = f"the type {logits.dtype}" if tuple(logits.shape) == expected else f"the shape {tuple(logits.shape)}"
    if tuple(logits.shape) != expected or not logits.is_floating_point():
        meaning = "contexts, answers and classes"
        raise Unsupported(f"{who} returned logits of {found}, expected floats of the shape {expected}: {meaning}")


def _function(module: ModuleType, name: str) -> Function:
    """Function of a module by name. Raises PluginError with the known functions for an unknown name."""
    found: Function | None = getattr(module, name, None)
    if not callable(found):
        own = (
            named
            for named, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", None) == module.__name__
        )
        raise PluginError(str(unknown("function", name, own)))
    return found
