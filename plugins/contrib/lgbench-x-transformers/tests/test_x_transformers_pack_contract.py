"""Tests of every entry of this pack. The checks of `lgbench check` are slow tests: there are many models."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch import nn

import lgbench_x_transformers
from lgbench import Answers, Architecture, Parts, Signature, Tokens, Unsupported, Vectors
from lgbench.conformance.check import Check
from lgbench.extensions.registry import Registry
from lgbench.testing import checks
from lgbench_x_transformers import ARCHITECTURES

BY_NAME: dict[str, Architecture] = {architecture.name: architecture for architecture in ARCHITECTURES}
every = pytest.mark.parametrize("name", BY_NAME)
MIXING = {f"xt-{name}" for name in ("plain", "alibi", "cope", "forgetting", "talking-heads", "selective", "hyper-connections")}
"""Entries whose code could see later tokens, or keep what it computed for one length, more easily than others."""
every_slowly = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in MIXING else pytest.mark.slow) for n in BY_NAME]
)
TOKENS = Signature(Tokens(5), 4, Answers.EVERY_PREFIX)
PARTS = Parts(None, None, None, 9, 40)  # type: ignore[arg-type]  # these architectures take no part
SIZES = {"layers": 2, "heads": 2, "width": 16}


def built(name: str, signature: Signature = TOKENS, **sizes: int) -> nn.Module:
    """The model, with weights unlike its initial ones, so that each of them counts."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = BY_NAME[name].build(signature, PARTS, **(SIZES | sizes))
    assert isinstance(model, nn.Module)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return model.eval()


def tokens(length: int) -> torch.Tensor:
    return torch.randint(5, (2, length), generator=torch.Generator().manual_seed(length))


GRAPH = "its training step is one graph"
OF_MIXING = ("a seed does not depend", "inputs longer", "gradients reach", "options")
"""Checks of what these entries compute over positions and models; the others have the layers of the plain one."""


def is_worth_it(check: Check) -> bool:
    entry = check.thing.split()[-1]
    if GRAPH in check.name:  # it takes ten seconds, and says at most that a step is not compiled
        return entry in ("xt-plain", "xt-selective")
    return entry in MIXING or not any(name in check.name for name in OF_MIXING)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check for check in checks(lgbench_x_transformers) if is_worth_it(check)])
def test_it_keeps_the_contract(check: Check) -> None:
    check()


def test_the_readme_has_every_entry_with_its_paper() -> None:
    rows = re.findall(
        r"^\| `(xt-[a-z0-9-]+)` \|.*?(\d{4}\.\d{5}|\|$)", (Path(__file__).parents[1] / "README.md").read_text(), re.M
    )
    assert [name for name, _ in rows] == list(BY_NAME)
    for name, paper in rows:
        assert paper == "|" if name == "xt-plain" else paper in BY_NAME[name].about


def test_runs_have_the_version_of_the_library() -> None:
    (plugin,) = (each for each in Registry.load().plugins if each.name == "lgbench_x_transformers")
    assert plugin.distribution.libraries == {"x-transformers": version("x-transformers")}


@every_slowly
@torch.no_grad()
def test_answers_do_not_change_with_what_comes_after_them(name: str) -> None:
    model, inputs = built(name), tokens(40)
    whole = model(inputs)
    assert whole.shape == (2, 40, 4) and whole.isfinite().all()
    for length in (1, 7, 25):
        torch.testing.assert_close(model(inputs[:, :length]), whole[:, :length], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model(inputs), whole)  # nothing of the shorter inputs is kept


@every_slowly
@torch.no_grad()
def test_every_option_makes_another_model_than_the_plain_one(name: str) -> None:
    inputs, plain = tokens(20), built("xt-plain")
    model = built(name)
    shared = {
        key: value
        for key, value in plain.state_dict().items()
        if key in (own := model.state_dict()) and own[key].shape == value.shape
    }
    model.load_state_dict(shared, strict=False)
    same = torch.allclose(model(inputs), plain(inputs), atol=1e-4)
    assert same is (name == "xt-plain")


@torch.no_grad()
def test_a_set_of_vectors_has_one_answer() -> None:
    model = built("xt-plain", Signature(Vectors(3), 4, Answers.LAST))
    assert model(torch.randn(2, 7, 3)).shape == (2, 1, 4)


@every
def test_one_head_has_an_output_projection_too_and_there_is_no_dropout(name: str) -> None:
    model = built(name, heads=1)
    assert sum("to_out" in key for key, _ in model.named_parameters()) == 2
    assert all(module.p == 0 for module in model.modules() if isinstance(module, nn.Dropout))


@pytest.mark.parametrize(
    ("name", "sizes", "said"),
    [
        ("xt-plain", {"width": 15}, "width must be a multiple of heads, got 15 and 2"),
        ("xt-plain", {"layers": 0}, "layers, heads and width must be at least 1"),
        ("xt-rope", {"width": 6}, "rotary positions rotate pairs of features, and a head has 3"),
        ("xt-qk-norm", {"width": 4}, "x-transformers cannot have xt-qk-norm in this size: .* too small"),
    ],
)
def test_sizes_that_cannot_be_are_refused_with_the_reason(name: str, sizes: dict[str, int], said: str) -> None:
    with pytest.raises(Unsupported, match=said):
        built(name, **sizes)
