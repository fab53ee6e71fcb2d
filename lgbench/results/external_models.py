"""A footer's description of a model that lgbench did not train. Nobody can make the run of such a model again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from msgspec import Meta

KEY = "external"
"""The field of a footer that describes the model. A run that lgbench trained has no such field."""


@dataclass(frozen=True)
class ExternalModel:
    """A model that somebody gave to :func:`lgbench.evaluate_model`."""

    kind: Literal["module", "function"]
    made_of: str
    """The class of a module, or the function, with the Python module that it is in."""
    parameters: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None
    """How many numbers the module's parameters have; None for a function."""
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")] | None
    """Of the names, types, shapes and values of the module's parameters and buffers; None for a function."""

    @property
    def field(self) -> dict[str, Any]:
        """For the footer of the run file."""
        return {KEY: asdict(self)}
