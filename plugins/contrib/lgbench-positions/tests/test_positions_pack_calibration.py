"""Attention bias calibration: lines and biases by hand, and from a run to a run by the command."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import lgbench
from lgbench import AttentionSpec, Batch, JsonFile, Unsupported, UsageError, saved
from lgbench.cli.main import main
from lgbench.conformance.check import Check
from lgbench.extensions.registry import Registry
from lgbench.testing import checks
from lgbench_calibration.lines import attention, heads_of
from lgbench_positions.calibrated import OUTSIDE, BiasAlongLines, Calibrated

HEADS: list[dict[str, dict[str, float]]] = [
    {"diagonals": {"0": 0.5, "2": 0.25}, "columns": {"0": 0.375}},
    {},
    {"columns": {"3": 1.0}},
]
SPEC = AttentionSpec(layer=1, layers=1, width=9, heads=3, train_keys=6)
IDS = torch.tensor([[0, 3, 1, 3, 2, 9], [5, 0, 0, 1, 2, 3]])
SMALL = {"train.steps": 3, "train.batch": 4, "train.max_length": 6, "evaluate.contexts": 4, "evaluate.strings": 8}
QUICK: dict[str, Any] = {"protocol": "quick", "seeds": [0], "device": "cpu", "compile": False, "workers": 1, "average": []}


def calibrated(layers: list[Any]) -> Calibrated:
    return Calibrated().configured(calibration=JsonFile(json.dumps({"layers": layers})))


def expected(head: int, query: int, key: int) -> float:
    """Bias of a head by the places, or ids, of a query and a key."""
    lines = HEADS[head]
    if not lines:
        return 0.0
    found = (lines.get("diagonals", {}).get(str(query - key)), lines.get("columns", {}).get(str(key)))
    return max((bias for bias in found if bias is not None), default=OUTSIDE)


@pytest.mark.parametrize("ids", [None, IDS], ids=["places", "ids"])
@pytest.mark.parametrize("queries", [6, 2, 1])
def test_a_bias_is_the_one_of_its_line_or_far_below(ids: Tensor | None, queries: int) -> None:
    q, k = torch.zeros(2, 3, queries, 3), torch.zeros(2, 3, 6, 3)
    bias = calibrated([HEADS]).bias(SPEC)(q, k, **({} if ids is None else {"positions": ids}))
    bias = bias.expand(2, 3, queries, 6)
    at = torch.arange(6).expand(2, -1) if ids is None else ids
    for n, head, i, j in product(range(2), range(3), range(queries), range(6)):
        query, key = int(at[n, 6 - queries + i]), int(at[n, j])
        assert bias[n, head, i, j] == expected(head, query, key)


def test_lines_go_on_beyond_the_lengths_that_made_them() -> None:
    bias = BiasAlongLines(HEADS)(torch.zeros(1, 3, 50, 3), torch.zeros(1, 3, 50, 3))
    assert [j for j in range(50) if bias[0, 49, j] > OUTSIDE] == [0, 47, 49]
    assert not bias[1].any()


# Of two layers with one head, as in the transformer without options. That options are set is checked without a calibration.
CHECKS = [check for check in checks(calibrated([[HEADS[0]]] * 2)) if check.name != "its options can be set"]


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_it_keeps_the_contract_with_a_calibration(check: Check) -> None:
    check()


def plain_lines(weights: Tensor, counts: Tensor, at: Tensor, threshold: float) -> list[dict[str, dict[str, float]]]:
    """Lines that stand out, in plain loops."""
    n, heads, queries, keys = weights.shape
    found: list[dict[str, dict[str, float]]] = [{} for _ in range(heads)]
    for head in range(heads):
        on: dict[tuple[str, int], float] = {}
        for b, i, j in product(range(n), range(queries), range(keys)):
            place = keys - queries + i
            if counts[b, i] and j <= place:
                share = float(weights[b, head, i, j] / counts.count_nonzero())
                for line in (("columns", int(at[b, j])), ("diagonals", int(at[b, place] - at[b, j]))):
                    on[line] = on.get(line, 0) + share
        least = fmean(on.values()) + threshold * pstdev(on.values())
        for (kind, line), share in sorted(on.items()):
            if share >= least:
                found[head].setdefault(kind, {})[str(line)] = pytest.approx(share, rel=1e-3)
    return found


@pytest.mark.parametrize("queries", [5, 1])
@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("threshold", [0.0, 0.87, 9.0])
def test_lines_stand_out_by_their_share_of_the_attention_of_queries_that_answer(
    queries: int, ids: bool, marked: bool, threshold: float
) -> None:
    generator = torch.Generator().manual_seed(3)
    weights = torch.rand(3, 2, queries, 5, generator=generator)
    at = torch.randint(4, (3, 5), generator=generator) if ids else torch.arange(5).expand(3, -1)
    answering = torch.tensor([0.0, 0.0, 1.0, 0.5, 1.0]).expand(3, -1) if marked else None
    inputs = torch.stack((torch.zeros_like(at), at), -1) if ids else at
    batch = Batch(inputs, torch.ones(3, 5, 1), answering)
    counts = torch.ones(3, queries) if answering is None else answering[:, -queries:]
    assert heads_of(weights, batch, threshold) == plain_lines(weights, counts, at, threshold)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one saved run."""
    folder = tmp_path_factory.mktemp("trained")
    options = {"model.layers": 2, "model.heads": 2, "model.width": 8}
    lgbench.run("dyck-1-2", "no-norm", set=SMALL | options, **QUICK, save_weights=True, results=folder)
    return folder


def command(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["calibrate-bias", *map(str, words)], prog_name="lgbench")
    return result.exit_code, " ".join(result.output.split())


def test_weights_of_attention_are_those_of_the_equation(trained: Path) -> None:
    run = saved.find(trained, trained)
    registry = Registry.load(only=run.metadata.took_part)
    experiment, models = saved.restore(run, registry, torch.device("cpu"))
    inputs = torch.randint(3, (4, 6), generator=torch.Generator().manual_seed(0))
    first, _ = attention(experiment, models, "raw", inputs)
    model = saved.loaded(run, registry, "cpu", "raw").model
    (table,) = (module for module in model.modules() if isinstance(module, nn.Embedding))
    query, key = (
        next(parameter for name, parameter in model.named_parameters() if name.endswith(f"{matrix}.weight"))
        for matrix in ("query", "key")
    )
    x = table(inputs)
    q, k = (torch.stack((x @ matrix.T).split(4, -1), 1) for matrix in (query, key))
    logits = torch.einsum("nhid,nhjd->nhij", q, k) / 2
    expected = logits.masked_fill(torch.ones(6, 6).triu(1).bool(), -torch.inf).softmax(-1)
    torch.testing.assert_close(first.float(), expected)


def test_a_run_is_calibrated_and_another_one_trained_with_its_biases(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "lines.json"
    code, said = command(trained, "--out", out)
    assert code == 0 and "layer 2, head 2: " in said and str(out).split("/")[-1] in said
    layers = json.loads(out.read_text())["layers"]
    assert [len(heads) for heads in layers] == [2, 2]
    options = {"model.layers": 2, "model.heads": 2, "model.width": 8, "position.calibration": str(out)}
    rows = lgbench.run("dyck-1-2", "no-norm+abc", set=SMALL | options, **QUICK, save_weights=True, results=tmp_path / "new")
    assert {"looks_ahead", "tvd"} <= set(rows["metric"].to_pylist())
    out.unlink()  # the run has the biases
    model = lgbench.load(tmp_path / "new")
    (first, _) = [module for module in model.modules() if isinstance(module, BiasAlongLines)]
    line, bias = next(iter(layers[0][0]["diagonals"].items()))
    assert first.diagonals[0, int(line) + first.diagonals.shape[1] // 2].item() == pytest.approx(bias)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--out", "lines.txt"), "'lines.txt' is no name of a file of biases: end it with .json"),
        (("--out", "lines.json", "--threshold", "-9", "--contexts", "4"), None),
        (("--out", "lines.json", "--weights", "ema"), "ema"),
    ],
)
def test_what_cannot_be_calibrated_is_said(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], sentence: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = command(trained, *words)
    assert (code == 0) == (sentence is None) and (sentence or "diagonals 0, 1, 2") in said


def test_a_model_without_attention_has_no_lines(tmp_path: Path) -> None:
    rnn = tmp_path / "rnn.py"
    rnn.write_text(
        "import torch\n\ndef build(signature):\n    width = signature.inputs.size\n"
        "    return torch.nn.Sequential(torch.nn.Embedding(width, 4), torch.nn.Linear(4, signature.classes))\n"
    )
    lgbench.run("dyck-1-2", f"{rnn}:build", set=SMALL, **QUICK, save_weights=True, results=tmp_path / "runs")
    code, said = command(tmp_path / "runs", "--out", tmp_path / "a.json", "--plugin", f"{rnn}:build")
    assert code == 2 and "has no attention: calibrate with a run of a transformer" in said


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "abc needs biases: --set position.calibration=FILE.json, with a file that `lgbench calibrate-bias` wrote"),
        ("{}", "the calibration of abc has another form than"),
        ('{"layers": [[{"diagonals": {"x": 1}}]]}', "the calibration of abc has another form than"),
        ('{"layers": [[{"diagonal": {"1": 1}}]]}', "the calibration of abc has another form than"),
        ('{"layers": [[{"diagonals": [1]}]]}', "the calibration of abc has another form than"),
        ('{"layers": []}', "has [] heads by layer, and the model [3]: calibrate with such a model"),
        ('{"layers": [[{}], [{}]]}', "has [1, 1] heads by layer, and the model [3]"),
    ],
)
def test_a_calibration_that_does_not_fit_is_refused(content: str, sentence: str) -> None:
    with pytest.raises(Unsupported, match=re.escape(sentence)):
        Calibrated(JsonFile(content)).bias(SPEC)


def test_cross_attention_is_refused() -> None:
    with pytest.raises(UsageError, match="abc needs the distance of a query from a key"):
        calibrated([HEADS]).bias(AttentionSpec(1, 1, 9, 3, 6, cross_attention=True))
