"""The options of `lgbench run`, for Python and for the command line: click's options are made from these fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from lgbench.contracts import DEFAULT_OPTIMIZER
from lgbench.experiment.protocols import DEFAULT_PROTOCOL
from lgbench.experiment.record import PRECISIONS


def about(help: str, kind: str, **more: Any) -> dict[str, Any]:
    """Metadata of a field for the command line: help text and kind, which decides how the option is read.

    `of`: kinds of names, or choices. `flag`: name of the option, by default the field's.
    """
    return {"help": help, "kind": kind, **more}


def option(default: Any, *told: Any, **more: Any) -> Any:
    """Field with a default; `dict` for an empty mapping. Other arguments are those of :func:`about`."""
    given = {"default_factory": dict} if default is dict else {"default": default}
    return field(**given, metadata=about(*told, **more))


@dataclass(frozen=True)
class RunOptions:
    """Everything that a user can ask of `lgbench run`. Names are resolved later, and not here."""

    task: str | Sequence[str] = field(metadata=about("Task, family of tasks, or all.", "names", of=("task",)))
    arch: str | Sequence[str] = field(
        metadata=about(
            "Architecture, parts of one (norm, attention, position code), or both joined by +, as in transformer+peri-norm; or "
            "a function in a file that builds a model, as in ./my_model.py:build.",
            "names",
            of=("architecture", "norm", "attention", "position"),
        )
    )
    _: KW_ONLY
    optimizer: str = option(DEFAULT_OPTIMIZER, "Optimizer that trains the models.", "name", of=("optimizer",))
    average: str | Sequence[str] | None = option(
        None,
        "Averages of the weights to test beside the raw weights, or none.  [default: those that come with lgbench]",
        "averagers",
        of=("averager",),
    )
    seeds: Sequence[int] = option(
        (0, 1, 2), "Seeds: a range such as 0:3, which is 0, 1 and 2, or numbers such as 0,5.", "seeds", shown="0:3"
    )
    protocol: str = option(
        DEFAULT_PROTOCOL, "Protocol: the settings that must be equal for entries to be compared.", "name", of=("protocol",)
    )
    set: Mapping[str, Any] = option(
        dict,
        "Change a setting of the protocol, or an option of the model, a part or the optimizer, as in train.steps=500, "
        "model.layers=4 or attention.window=64. Several values, as in train.lr=1e-3,3e-3, are all run.",
        "changes",
    )
    device: str = option("auto", "Device: cpu, cuda, mps, or auto for a CUDA GPU if there is one.", "text")
    precision: str = option(
        PRECISIONS[0], "Precision in which models compute. Boards keep the runs of each apart.", "choice", of=PRECISIONS
    )
    probe: str | Sequence[str] = option(
        (),
        "Probes to read, of what is inside the models: all, none, or names joined by commas. They change no other number.  "
        "[default: none]",
        "names",
        of=("probe",),
    )
    save_weights: bool = option(
        False,
        "Keep the raw and the averaged weights of each run, in a file beside its run file. They change no number.",
        "flag",
    )
    logger: str | Sequence[str] = option(
        (), "Loggers that follow the runs while they train. They change no number.  [default: none]", "names", of=("logger",)
    )
    compile: bool | None = option(None, "Compile the training step, or never do.  [default: from 300 steps on]", "switch")
    population: int | None = option(
        None, "Models to train together, at most.  [default: what is fastest and fits in memory]", "number"
    )
    workers: int | None = option(
        None, "Processes that train at the same time.  [default: one for each core, one on a GPU]", "number"
    )
    checkpoint: float = option(60.0, "Seconds of training between two checkpoints.", "seconds")
    executor: str = option(
        "local",
        "Where populations are trained: local, for worker processes on this machine, or an executor of a plugin.",
        "name",
        of=("executor",),
    )
    executor_options: Mapping[str, Any] = option(
        dict,
        "Option of the executor, as in --executor-option partition=gpu. Can be repeated; see lgbench show EXECUTOR.",
        "changes",
        flag="--executor-option",
    )
    plugins: Sequence[str | Path] = option(
        (),
        "Load a plugin that is a single Python file, as in --plugin ./my_norm.py. Can be repeated.",
        "files",
        flag="--plugin",
    )
    results: str | Path = option(Path("results"), "Folder of the run files, with its subfolders.", "folder")


def listed(values: Any) -> list[Any]:
    """List of one value or of several."""
    return list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]
