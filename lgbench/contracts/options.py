"""Options that users set for the things that plugins provide."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from types import MappingProxyType
from typing import Self


class JsonFile(str):
    """The type of the default of an option whose value is a JSON object: `config: JsonFile = JsonFile()`, empty by default.

    `--set KIND.OPTION=FILE.json` names a file. What is built gets the file's content, as JSON with sorted keys and no spaces,
    and so do the records of runs.
    """


class Configurable(ABC):
    """Something with a name, and with options that `--set KIND.OPTION=VALUE` reaches, such as `attention.window=16`."""

    name: str
    """Lower-case letters, digits and hyphens; see :data:`lgbench.contracts.names.NAME`."""
    about: str = ""
    """One sentence, where the class's docstring does not describe this object."""
    ranges: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """The least and the greatest value of its options, by their names; `math.inf` for no greatest. A user's value beyond is
    refused before a model is built. A whole number without a range may be up to 16384 from 0."""

    def configured(self) -> Self:
        """The same thing with other options.

        A thing with options overrides this with keyword-only parameters whose defaults are of type int, float, bool or str,
        and returns a new object. With the defaults it returns a thing that equals this one. Raises
        :class:`lgbench.Unsupported`, with the reason, for a value that cannot be used.
        """
        return self
