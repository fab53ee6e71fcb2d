"""Exporting a model: a folder that stands alone, with its weights, a card with its numbers, and the code to load it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.compute as pc
import torch

from lgbench.errors import UsageError
from lgbench.extensions.loading import BUILT_IN, parted
from lgbench.extensions.registry import Registry
from lgbench.kept.card import card
from lgbench.kept.finding import FoundRun
from lgbench.kept.loading import restore
from lgbench.results import run_files, weights_files
from lgbench.submissions.footer import Footer

CODE = '''"""Load this model. `python load.py` loads it and prints its modules."""

from pathlib import Path

import lgbench

HERE = Path(__file__).parent


def load(weights: str = "raw", device: str = "cpu") -> lgbench.LoadedModel:
    """The model as a module from inputs to logits, with these weights: {variants}."""
    run = HERE / {run}
    return lgbench.load(run, weights=weights, plugins={plugins}, device=device)


if __name__ == "__main__":
    print(load())
'''


PLUGINS = "plugins"
"""The folder of plugin files, whose names may be any: those of other files of the export, or of modules that Python imports."""


def export(run: FoundRun, folder: Path, registry: Registry, plugins: Sequence[Path] = ()) -> list[str]:
    """Write a folder that stands alone, whole or not at all, and return the names of its files. It must not exist, or be empty.

    Raises UsageError where something is in it, and RunFileError where the model cannot be loaded here.
    """
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{str(folder)!r} is there already; name a folder that is not, or remove it")
    restore(run, registry, torch.device("cpu"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name[:100]}.", suffix=".partial", dir=folder.parent))
    try:
        files = _files(run, plugins)
        for name, content in files.items():
            (made / name).parent.mkdir(exist_ok=True)
            (made / name).write_bytes(content)
        made.chmod(0o755)
        os.rename(made, folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return sorted(files)


def _files(run: FoundRun, plugins: Sequence[Path]) -> Mapping[str, bytes]:
    """The contents of the files by their paths in the folder."""
    footer, record, kept = run.footer, run.footer.experiment, run.footer.kept_weights
    assert kept
    rows = run_files.read(run.path)
    rows = rows.filter(pc.equal(rows["run_id"], record.run_id))
    weights, name = weights_files.name_for(record, kept), run_files.name_for(record)
    taken = [path for path in plugins if path.name in _plugin_files(footer)]
    own = {f"{PLUGINS}/{file.name}": file.read_bytes() for file, _ in map(parted, taken)}
    listed = "[" + ", ".join(f"HERE / {ascii(f'{PLUGINS}/{path.name}')}" for path in taken) + "]"
    code = CODE.format(variants=", ".join(run.variants), run=ascii(name), plugins=listed)
    return {
        "README.md": card(footer, rows, weights, list(own)).encode(),
        "load.py": code.encode(),
        "requirements.txt": _requirements(footer).encode(),
        name: run_files.serialized(rows, footer.content),
        weights: run.content(),
        **own,
    }


def _plugin_files(footer: Footer) -> set[str]:
    """The names of the plugin files that decided the numbers."""
    return {plugin.name for plugin in footer.experiment.plugins if plugin.version.startswith("sha256:")}


def _requirements(footer: Footer) -> str:
    """The packages that pip installs for this model. A package that is not from an index is named with its place, if known."""
    files, decide = _plugin_files(footer), {plugin.name for plugin in footer.experiment.plugins}
    lines = [f"lgbench=={footer.environment.lgbench}", "safetensors>=0.4"]
    if footer.environment.git_commit:
        lines[0] += f"  # commit {footer.environment.git_commit}"
    for plugin in footer.plugins:
        if plugin.name in decide - files - {BUILT_IN}:
            how = "" if plugin.installed == "index" else f"  # was installed from: {plugin.origin or plugin.installed}"
            lines.append(f"{plugin.name}=={plugin.version}{how}")
            lines += [f"{library}=={version}" for library, version in plugin.libraries.items()]
    lines.append(f"torch>={footer.environment.torch.partition('+')[0].rpartition('.')[0]}")
    return "\n".join(lines) + "\n"
