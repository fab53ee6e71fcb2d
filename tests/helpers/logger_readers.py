"""Print the runs that loggers kept, read by their own readers, as JSON: python logger_readers.py LOGGER FOLDER.

In a process of its own. Of each run by name: [its values as [name, step, value], its settings, how it ended].
"""

import json
import sys
from pathlib import Path


def mlflow(folder):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db", "")
    (experiment,) = client.search_experiments(filter_string="name = 'lgbench'")
    for run in client.search_runs([experiment.experiment_id]):
        values = [
            [name, metric.step, metric.value]
            for name in run.data.metrics
            for metric in client.get_metric_history(run.info.run_id, name)
        ]
        yield run.info.run_name, values, {**run.data.params, **run.data.tags}, run.info.status


def tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for place in sorted((folder / "tensorboard").iterdir()):
        events = EventAccumulator(str(place), size_guidance={"scalars": 0, "tensors": 0}).Reload()
        texts = [
            (name, event.tensor_proto.string_val[0].decode())
            for name in events.Tags()["tensors"]
            for event in events.Tensors(name)
        ]
        table = dict(texts)["run"].splitlines()[2:]
        settings = dict(line.strip("| ").split(" | ", 1) for line in table if line.strip("| ").count(" | "))
        values = [[name, event.step, event.value] for name in events.Tags()["scalars"] for event in events.Scalars(name)]
        yield place.name, values, settings, [text for name, text in texts if name == "end"][-1]


def trackio(folder):
    import os

    os.environ["TRACKIO_DIR"] = str(folder)
    from trackio.sqlite_storage import SQLiteStorage

    for name in SQLiteStorage.get_runs("lgbench"):
        logs = SQLiteStorage.get_logs("lgbench", name)
        values = [[key, log["step"], value] for log in logs for key, value in log.items() if key not in ("step", "timestamp")]
        yield name, values, SQLiteStorage.get_run_config("lgbench", name), "finished"


def stored(content):
    """The records of a log in LevelDB's format, which begins with seven bytes of Weights & Biases.

    In blocks of 32 KiB each part has a header: a checksum of four bytes, its length in two, and its kind, where 1 is a whole
    record, and 2, 3 and 4 are the first, a middle and the last part of one.
    """
    assert content.startswith(b":W&B")
    place, record = 7, b""
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        if not kind:
            return
        record = (record if kind in (3, 4) else b"") + content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield record


def wandb(folder):
    from wandb.proto import wandb_internal_pb2 as records

    found = {}
    for place in sorted((folder / "wandb").glob("offline-run-*")):
        (file,) = place.glob("run-*.wandb")
        name, end = None, None
        for content in stored(file.read_bytes()):
            record = records.Record()
            record.ParseFromString(content)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                name = record.run.display_name
                own = found.setdefault(record.run.run_id, [name, [], {}, ""])
                own[2].update({item.key: json.loads(item.value_json) for item in record.run.config.update})
            elif kind == "history":
                line = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                own[1] += [[key, line["_step"], value] for key, value in line.items() if not key.startswith("_")]
            elif kind == "exit":
                end = record.exit.exit_code
        own[3] = "finished" if end == 0 else "failed"
    yield from found.values()


if __name__ == "__main__":
    read = globals()[sys.argv[1]](Path(sys.argv[2]))
    print("\n" + json.dumps({name: rest for name, *rest in read}))
