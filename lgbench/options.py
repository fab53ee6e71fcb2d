"""The options of `lgbench run`, for Python and for the command line: click's options are made from these fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal

from lgbench.contracts import DEFAULT_OPTIMIZER
from lgbench.experiment.protocols import DEFAULT_PROTOCOL
from lgbench.experiment.record import PRECISIONS

Kind = Literal["name", "names", "seeds", "changes", "choice", "number", "seconds", "text", "flag", "switch", "files", "folder"]
"""How the command line reads an option. `names`, `changes` and `files` can be repeated."""


def about(help: str, kind: Kind, **more: Any) -> dict[str, Any]:
    """Metadata of a field: its help and kind; `of`, the kinds of names or the choices; `flag`, where it is not the field's."""
    return {"help": help, "kind": kind, **more}


@dataclass(frozen=True)
class RunOptions:
    """Everything that a user can ask of `lgbench run`. Names are resolved later, and not here."""

    task: str | Sequence[str] = field(metadata=about("Task, family of tasks, or all.", "names", of=("tasks",)))
    arch: str | Sequence[str] = field(
        metadata=about(
            "Architecture, parts of one (norm, attention, position code), or both joined by +, as in transformer+peri-norm; or "
            "a function in a file that builds a model, as in ./my_model.py:build.",
            "names",
            of=("archs", "norms", "attentions", "positions"),
        )
    )
    _: KW_ONLY
    optimizer: str = field(
        default=DEFAULT_OPTIMIZER, metadata=about("Optimizer that trains the models.", "name", of=("optimizers",))
    )
    average: str | Sequence[str] | None = field(
        default=None,
        metadata=about(
            "Averages of the weights to test beside the raw weights, or none.  [default: those that come with lgbench]",
            "names",
            of=("averagers",),
        ),
    )
    seeds: Sequence[int] = field(
        default=(0, 1, 2), metadata=about("Seeds: a range such as 0:3, or numbers such as 0,5.", "seeds", shown="0:3")
    )
    protocol: str = field(
        default=DEFAULT_PROTOCOL,
        metadata=about(
            "Protocol: the settings that must be equal for entries to be compared.",
            "name",
            of=("protocols",),
        ),
    )
    set: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=about(
            "Change a setting of the protocol, or an option of the model, a part or the optimizer, as in train.steps=500, "
            "model.layers=4 or attention.window=64. Several values, as in train.lr=1e-3,3e-3, are all run.",
            "changes",
        ),
    )
    device: str = field(
        default="auto", metadata=about("Device: cpu, cuda, mps, or auto for a CUDA GPU if there is one.", "text")
    )
    precision: str = field(
        default=PRECISIONS[0],
        metadata=about(
            "Precision in which models compute. Boards keep the runs of each apart.",
            "choice",
            of=PRECISIONS,
        ),
    )
    probe: str | Sequence[str] = field(
        default=(),
        metadata=about(
            "Probes to read, of what is inside the models: all, none, or names joined by commas. They change no other number.  "
            "[default: none]",
            "names",
            of=("probes",),
        ),
    )
    keep_weights: bool = field(
        default=False,
        metadata=about(
            "Keep the raw and the averaged weights of each run, in a file beside its run file. They change no number.", "flag"
        ),
    )
    track: str | Sequence[str] = field(
        default=(),
        metadata=about(
            "Trackers that follow the runs while they train. They change no number.  [default: none]",
            "names",
            of=("trackers",),
        ),
    )
    compile: bool | None = field(
        default=None, metadata=about("Compile the training step, or never do.  [default: from 300 steps on]", "switch")
    )
    population: int | None = field(
        default=None,
        metadata=about("Models to train together, at most.  [default: what is fastest and fits in memory]", "number"),
    )
    workers: int | None = field(
        default=None,
        metadata=about("Processes that train at the same time.  [default: one for each core, one on a GPU]", "number"),
    )
    checkpoint: float = field(default=60.0, metadata=about("Seconds of training between two checkpoints.", "seconds"))
    executor: str = field(
        default="local",
        metadata=about(
            "Where populations are trained: local, for worker processes on this machine, or an executor of a plugin.",
            "name",
            of=("executors",),
        ),
    )
    executor_options: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=about(
            "Option of the executor, as in --executor-option partition=gpu. Can be repeated; see lgbench show EXECUTOR.",
            "changes",
            flag="--executor-option",
        ),
    )
    plugins: Sequence[str | Path] = field(
        default=(),
        metadata=about(
            "Load a plugin that is a single Python file, as in --plugin ./my_norm.py. Can be repeated.",
            "files",
            flag="--plugin",
        ),
    )
    results: str | Path = field(default=Path("results"), metadata=about("Folder of the run files.", "folder"))


def listed(values: Any) -> list[Any]:
    """List of one value or of several."""
    return list(values) if isinstance(values, Sequence) and not isinstance(values, str) else [values]
