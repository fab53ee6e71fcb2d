"""Options of objects from plugins, set by users."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from types import MappingProxyType
from typing import Self


class JsonFile(str):
    """Type of an option with a JSON object as its value: `config: JsonFile = JsonFile()`, empty by default.

    `--set KIND.OPTION=FILE.json` names a file. The built object and the records of runs get the file's content, as JSON with
    sorted keys and without spaces.
    """


class Configurable(ABC):
    """Object with a name and with options for `--set KIND.OPTION=VALUE`, such as `attention.window=16`."""

    name: str
    """Lower-case letters, digits and hyphens; see :data:`lgbench.contracts.names.NAME`."""
    about: str = ""
    """One sentence, if the class's docstring does not describe this object."""
    ranges: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """Least and greatest value by option; `math.inf` for no greatest value. A value out of range is refused before a model is
    built. An integer without a range is at most 16384 away from 0."""

    def configured(self) -> Self:
        """Copy with other options.

        A class with options overrides this method with keyword-only parameters. Their defaults have the type int, float, bool
        or str. The method returns a new object, with the defaults an object equal to this one. Raises
        :class:`lgbench.Unsupported`, with the reason, for an unusable value.
        """
        return self
