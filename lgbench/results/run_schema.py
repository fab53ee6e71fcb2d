"""The columns of run files and submission files, and the key of their metadata."""

from __future__ import annotations

import pyarrow as pa

METADATA_KEY = b"lgbench"
"""The metadata of a Parquet file have what is said of a run, or of a submission, under this key."""

SCHEMA = pa.schema(
    [
        ("run_id", pa.string()),
        ("entry", pa.string()),  # architecture and parts, joined by plus signs
        ("task", pa.string()),
        ("family", pa.string()),
        ("task_version", pa.int32()),
        ("protocol", pa.string()),
        ("protocol_version", pa.int32()),
        ("changes", pa.map_(pa.string(), pa.string())),  # settings that --set changed, and their values
        ("plugins", pa.map_(pa.string(), pa.string())),  # packages that decide the number, with their versions and sources
        ("seed", pa.int64()),
        ("weights", pa.string()),  # raw, the name of an averager, or chance for the task's chance level
        ("metric", pa.string()),  # the name of a measurement; train_loss, gradient_norm
        ("metric_version", pa.int32()),  # null for the training curve
        ("step", pa.int32()),  # optimizer steps done
        ("length", pa.int32()),  # null for the training curve
        ("layer", pa.int32()),  # of a probe, counted from 1; null for a number of the whole model
        ("head", pa.int32()),  # of a probe, counted from 1; null for a number of the whole layer
        ("value", pa.float64()),  # null where the metric is not defined
        ("n", pa.int32()),  # answers, strings or steps that the value summarizes
        ("in_distribution", pa.bool_()),  # whether models are trained on this length; null for the training curve
        ("on_boards", pa.bool_()),  # whether boards show this length; null for the training curve
        ("diverged_step", pa.int32()),  # the step at which the training diverged, null if it did not
    ]
)
