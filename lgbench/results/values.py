"""The values that boards are made from, by names: which metrics, tasks, protocols and entries there are, and what was measured.

SQL chooses the rows; :mod:`lgbench.results.leaderboard` makes boards of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pyarrow as pa

from lgbench.errors import UsageError, unknown
from lgbench.experiment.record import ProtocolUse
from lgbench.results.database import Database
from lgbench.results.entries import BASELINE_ENTRY, find_entry
from lgbench.results.tables import packaged
from lgbench.terminal import printable


class Inside(NamedTuple):
    """Where in models a probe is shown: the mean over all layers and heads, or over those of one layer or head."""

    layer: int | None = None
    head: int | None = None


EVERYWHERE = Inside()


class MeasuredValues(Database):
    """The values that the runs of a folder have measured."""

    def check(self, metric: str, name: str | None, protocol: str | None, *, also: Iterable[str] = ()) -> None:
        """Raise UsageError for the first name that these results do not know. `also` names metrics that no run describes."""
        if metric not in (known := [*self.metric_names, *also]):
            raise self._unknown("metric", metric, known)
        if name is not None and name not in self.task_names:
            raise self._unknown("task", name, self.task_names)
        if protocol is not None and not self._numbers(protocol):
            uses = self.protocols.values()
            names = {use.name for use in uses if not use.changes}
            raise self._unknown("protocol", protocol, names | {str(use) for use in uses})

    def require_ranks(self, metric: str) -> None:
        """Raise UsageError for a metric by which no value is better than another."""
        if metric not in self.ranking_names:
            raise UsageError(
                f"no value of {metric} is better than another, so no board ranks entries by it; "
                f"`lgbench plot --metric {metric}` draws it, and `lgbench sql` has its rows"
            )

    def layers(self, metric: str) -> list[int]:
        """The layers in which runs have read a probe; none of a number of whole models."""
        layers = "select distinct layer from kinds where metric = $metric and layer is not null order by layer"
        return [int(layer) for (layer,) in self._rows(layers, {"metric": metric})]

    def readings(self, metric: str, name: str | None, protocol: str | None, times: int) -> list[tuple[Any, ...]]:
        """The rows that predictors.sql finds for every model with probes."""
        unranked = [each.name for each in self.metrics if not each.ranks]
        asked = {"metric": metric, "name": name, "unranked": unranked, "protocols": self._numbers(protocol), "times": times}
        return self._rows(packaged("predictors"), asked)

    def baseline(self, name: str | None) -> str:
        """The entry of that name, as on boards or short. The usual one, if none is named, may have no runs here."""
        if name is None:
            return BASELINE_ENTRY
        self.protocols  # noqa: B018  # makes the tables that boards are made from
        return find_entry(name, (entry for (entry,) in self._rows("select distinct entry from scores where entry is not null")))

    def values(
        self,
        metric: str,
        name: str | None = None,
        protocol: str | None = None,
        apart: bool = False,
        inside: Inside | None = None,
    ) -> pa.Table:
        """The rows that boards are made from, as values.sql says. The protocol is a number of :attr:`protocols`."""
        parameters = self._parameters(metric, name, protocol, apart)
        whole = inside is None and metric in self.ranking_names
        return self._arrow(packaged("values"), parameters | {"whole": whole} | (inside or EVERYWHERE)._asdict())

    def trained(self, name: str | None = None) -> pa.Table:
        """Every model with the run that made it, as models.sql says."""
        asked = {"name": name, "apart": False, "protocols": self._numbers(None)}
        return self._arrow(packaged("models"), asked)

    def _unknown(self, kind: str, name: str, known: Iterable[str]) -> UsageError:
        return UsageError(f"in {printable(str(self.folder))} there is {unknown(kind, name, known)}")

    def _numbers(self, protocol: str | None) -> list[int]:
        """The numbers of the protocols that are meant. The name of that of external models means all of what was tested."""

        def meant(use: ProtocolUse) -> bool:
            return protocol in (None, str(use)) or (protocol == use.name and (use.is_external or not use.changes))

        return [number for number, use in self.protocols.items() if meant(use)]

    def _query(self, sql: str, metric: str, name: str | None, protocol: str | None, apart: bool) -> list[tuple[Any, ...]]:
        return self._rows(packaged(sql), self._parameters(metric, name, protocol, apart))

    def _table(self, sql: str, metric: str, name: str | None, protocol: str | None, apart: bool) -> pa.Table:
        return self._arrow(packaged(sql), self._parameters(metric, name, protocol, apart))

    def _parameters(self, metric: str, name: str | None, protocol: str | None, apart: bool) -> dict[str, Any]:
        return {"metric": metric, "name": name, "protocols": self._numbers(protocol), "apart": apart}
