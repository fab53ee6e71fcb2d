"""TensorBoard: one folder of event files for each run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from lgbench import LoggedRun, Logger, OpenRun, RunEnd
from lgbench_loggers.installed import lacking

VARIABLE = "LGBENCH_TENSORBOARD_DIR"
"""The environment variable that names the folder."""
FOLDER = "tensorboard"


@final
class TensorBoard(Logger):
    """Event files of TensorBoard in the folder `tensorboard`, or the one that LGBENCH_TENSORBOARD_DIR names."""

    name = "tensorboard"

    def missing(self) -> str | None:
        return lacking("tensorboard", "tensorboard")

    def start(self, run: LoggedRun) -> OpenRun:
        parent = Path(os.environ.get(VARIABLE, FOLDER)).resolve()
        folder, number = parent / run.name, 1
        while folder.exists():  # of the same run, in another results folder
            number += 1
            folder = parent / f"{run.name}-{number}"
        opened = EventFiles(folder)
        opened.describe(run)
        return opened

    def resume(self, run: LoggedRun, handle: str) -> OpenRun | None:
        return EventFiles(Path(handle)) if Path(handle).is_dir() else None


class EventFiles(OpenRun):
    """The folder of one run. A run that goes on gets another event file there, which TensorBoard joins to the first."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.handle = str(folder)
        self._writer = EventFileWriter(str(folder))

    def describe(self, run: LoggedRun) -> None:
        """Write tags and configuration as a table, which the tab Text shows."""
        lines = [f"| {name} | {value} |" for name, value in {**run.tags, **run.config}.items()]
        self._add(0, "run", "\n".join(["| setting | value |", "| :-- | :-- |", *lines]))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._add(step, name, value)
        self._writer.flush()

    def end(self, end: RunEnd) -> None:
        said = [end.status, end.reason, f"diverged at step {end.diverged_step}" if end.diverged_step else ""]
        self._add(0, "end", ": ".join(filter(None, said)))
        self._writer.close()

    def _add(self, step: int, name: str, value: float | str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata

        about: dict[str, Any] = {"tag": name}
        if isinstance(value, str):
            from tensorboard.util.tensor_util import make_tensor_proto

            about["tensor"] = make_tensor_proto(value)
            about["metadata"] = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        else:
            about["simple_value"] = value
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[Summary.Value(**about)])))
