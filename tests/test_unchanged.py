"""A plugin that changes what other plugins share is named and refused, and what it changed is put back."""

from __future__ import annotations

import math
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import install, python, scores, with_averager, with_model
from torch import nn

import lgbench
from lgbench.errors import PluginError, RunFailed
from lgbench.execution.device import Execution
from lgbench.execution.progress import SilentProgress
from lgbench.execution.runner import run_plan
from lgbench.experiment.plan import Request, plan
from lgbench.extensions.registry import Registry
from lgbench.process.fingerprint import CannotPutBack, Fingerprint, put_back
from lgbench.process.unchanged import unchanged
from lgbench.training.train import train

PLUGIN = """
import math, os, signal, sys, warnings
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from lgbench import NormScheme, hookimpl

{first}

class Nothing(NormScheme):
    name = "{name}"

    def embed(self, *given):
        return None

    residual = output = final = embed

@hookimpl
def lgbench_norms():
    {then}
    return [Nothing()]
"""

HARM = {
    "a function of torch": ("torch.nn.functional.softmax = lambda x, **given: x", "torch.nn.functional.softmax"),
    "a function of torch by its other name": ("torch.relu = torch.sigmoid", "torch.relu"),
    "a function that hides one of torch": ("torch._VF.lstm = lambda *given: None", "torch._VF.lstm"),
    "a function that hides one of Python": ("F.len = lambda x: 3", "torch.nn.functional.len"),
    "a method of tensors": ("torch.Tensor.softmax = lambda self, dim: self", "torch.Tensor.softmax"),
    "a method of a module": ("nn.Linear.forward = lambda self, x: x", "torch.nn.modules.linear.Linear.forward"),
    "a method that a module had inherited": (
        "nn.Linear.__call__ = lambda self, x: x",
        "torch.nn.modules.linear.Linear.__call__",
    ),
    "the code of a function": ("F.gelu_ = 0; F.glu.__code__ = F.silu.__code__", "torch.nn.functional.glu"),
    "defaults of a function": ("F.silu.__defaults__ = (True,)", "torch.nn.functional.silu"),
    "a class": ("nn.LayerNorm = nn.Identity", "torch.nn.LayerNorm"),
    "initial weights": ("nn.init.xavier_uniform_ = nn.init.zeros_", "torch.nn.init.xavier_uniform_"),
    "a hook of all modules": (
        "nn.modules.module.register_module_forward_hook(lambda *given: None)",
        "torch.nn.modules.module._global_forward_hooks",
    ),
    "an operator": (
        "warnings.simplefilter('ignore'); library = torch.library.Library('aten', 'IMPL'); "
        "library.impl('erfinv', lambda x: x, 'CPU')",
        "torch's operator erfinv/CPU",
    ),
    "the default dtype": (
        "torch.set_default_dtype(torch.float64)",
        "the default dtype (it was torch.float32, now torch.float64)",
    ),
    "the default device": ("torch.set_default_device('meta')", "the default device (it was None, now meta)"),
    "threads": ("torch.set_num_threads(torch.get_num_threads() + 1)", "the number of threads"),
    "gradients": ("torch.set_grad_enabled(False)", "whether torch records gradients"),
    "precision": ("torch.set_float32_matmul_precision('medium')", "precision"),
    "precision by the newer switch": ("torch.backends.cuda.matmul.fp32_precision = 'tf32'", "precision of cuda (matmul)"),
    "TF32 of convolutions": ("torch.backends.cudnn.allow_tf32 = False", "precision"),
    "cuDNN": ("torch.backends.cudnn.enabled = False", "torch.backends.cudnn.enabled"),
    "deterministic algorithms": ("torch.use_deterministic_algorithms(True)", "deterministic algorithms"),
    "denormal numbers": ("torch.set_flush_denormal(True)", "denormal numbers"),
    "attention": ("torch.backends.cuda.enable_flash_sdp(False)", "enable_flash_sdp"),
    "autocast": ("torch.autocast('cpu').__enter__()", "autocast on cpu"),
    "a mode": ("torch.overrides.TorchFunctionMode().__enter__()", "a mode of torch functions"),
    "a constant of lgbench": (
        "from lgbench.experiment import protocols; protocols.PROTOCOLS = {}",
        "lgbench.experiment.protocols.PROTOCOLS",
    ),
    "an entry of a constant of lgbench": (
        "from lgbench.experiment import protocols; protocols.PROTOCOLS['other'] = 1",
        "lgbench.experiment.protocols.PROTOCOLS.other",
    ),
    "a method of a contract": (
        "NormScheme.configured = lambda self: self",
        "lgbench.contracts.models.NormScheme.configured",
    ),
    "a class of another plugin": (
        "import lgbench_norms.placement as p; p.Placement.residual = lambda *given: None",
        "lgbench_norms.placement.Placement.residual",
    ),
    "numpy": ("np.mean = np.sum", "numpy.mean"),
    "mathematics": ("math.sqrt = abs", "math.sqrt"),
    "a builtin": ("import builtins; builtins.sum = max", "builtins.sum"),
    "the working directory": ("os.chdir('/')", "the working directory"),
    "the environment": ("os.environ['OMP_NUM_THREADS'] = '7'", "the environment variable OMP_NUM_THREADS"),
    "the environment of lgbench": ("os.environ['LGBENCH_PLUGINS'] = 'mine'", "the environment variable LGBENCH_PLUGINS"),
}
NO_HARM = {
    "the environment": ("os.environ['MY_CACHE'] = 'x'", "the environment variable MY_CACHE"),
    "the path": ("sys.path.insert(0, '/nowhere')", "sys.path"),
    "errors of numpy": ("np.seterr(all='raise')", "how numpy treats errors"),
    "the answer to Ctrl-C": ("signal.signal(signal.SIGINT, signal.SIG_IGN)", "what SIGINT does"),
}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed distributions that this interpreter sees; their modules are forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(path.stem, None)


def loaded(site: Path, first: str = "", then: str = "") -> Registry:
    """The norms, and two plugins of which the first does something when it is imported or when its hook is called."""
    install(site, "a_culprit", PLUGIN.format(first=first, name="guilty", then=then or "pass"), "1.5")
    install(site, "b_healthy", PLUGIN.format(first="", name="healthy", then="pass"))
    return loaded_again()


def loaded_again() -> Registry:
    with unchanged({"the test": "1"}):  # everything is as it was when plugins are loaded
        return Registry.load({"LGBENCH_PLUGINS": "lgbench_norms,a_culprit,b_healthy"})


TAKES_SECONDS = {"deterministic algorithms"}  # torch imports its compiler for it


@pytest.mark.parametrize(
    ("act", "what"),
    [pytest.param(*pair, id=case, marks=[pytest.mark.slow] * (case in TAKES_SECONDS)) for case, pair in HARM.items()],
)
def test_a_plugin_that_changes_what_all_share_is_named_with_the_change_and_refused(site, act, what):
    registry = loaded(site, act)
    (problem,) = registry.problems()
    assert problem.startswith("plugin a_culprit (a_culprit 1.5): changes ") and what in problem
    assert "everybody's numbers depend on that; lgbench has put it back, and uses nothing of the plugin" in problem
    assert "guilty" not in registry.norms and "healthy" in registry.norms and "pre-norm" in registry.norms


@pytest.mark.parametrize("case", ["the default dtype", "a method of a module", "the working directory"])
def test_so_is_a_plugin_whose_hook_does_it(site, case):
    act, what = HARM[case]
    (problem,) = loaded(site, then=act).problems()
    assert "a_culprit" in problem and what in problem


def test_a_plugin_that_fails_as_well_is_named_for_both(site):
    (problem,) = loaded(site, "torch.set_default_dtype(torch.float64); 1 / 0").problems()
    assert "import failed: ZeroDivisionError" in problem and "It also changes the default dtype" in problem


def test_it_is_refused_again_by_the_next_command_of_the_process(site):
    assert loaded(site, "torch.relu = torch.sigmoid").problems() == loaded_again().problems() != []


STAYS = "torch.kept = torch.inference_mode(); torch.kept.__enter__()"


def test_a_change_that_stays_stops_the_command(site):
    with pytest.raises(CannotPutBack, match=r"plugin a_culprit \(.*\) changes torch's inference mode, .* put back: start"):
        install(site, "a_culprit", PLUGIN.format(first=STAYS, name="guilty", then="pass"), "1.5")
        Registry.load({"LGBENCH_PLUGINS": "a_culprit"})
    torch.kept.__exit__(None, None, None)
    del torch.kept


@pytest.fixture
def interruptible():
    """SIGINT as in a terminal: a shell that runs the tests in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(("act", "what"), NO_HARM.values(), ids=list(NO_HARM))
def test_what_moves_no_number_is_put_back_and_noted(site, act, what):
    path, environ, handler, errors = list(sys.path), dict(os.environ), signal.getsignal(signal.SIGINT), np.geterr()
    registry = loaded(site, act)
    assert not registry.problems() and "guilty" in registry.norms
    (note,) = registry.notes()
    assert note == f"plugin a_culprit (a_culprit 1.5) changes {what} when it is loaded, which lgbench has put back"
    assert (sys.path, dict(os.environ)) == (path, environ)
    assert (signal.getsignal(signal.SIGINT), np.geterr()) == (handler, errors)


@pytest.mark.parametrize(
    "act",
    [
        "torch.my_function = abs; torch.Tensor.my_method = abs; nn.Module.my_attribute = 1",
        "torch.manual_seed(0)",
        "library = torch.library.Library('mine_alone', 'FRAGMENT'); library.define('twice(Tensor x) -> Tensor')",
        "import torch.optim, torch.fx, torch.nn.attention.flex_attention, xml.dom.minidom",
        pytest.param(
            "import copy; copy.deepcopy(nn.GRU(2, 2)); x = torch.ones(2, 2); torch.vmap(torch.addr)(torch.ones(2, 2, 2), x, x)",
            marks=pytest.mark.slow,  # vmap imports the compiler
        ),
        "nn.TransformerEncoderLayer(4, 2).eval()(torch.ones(1, 3, 4))",
    ],
)
def test_what_imports_usually_do_is_no_change(site, act):
    registry = loaded(site, act)
    assert not registry.problems() and not [note for note in registry.notes() if "changes" in note]


@pytest.mark.slow
def test_large_libraries_and_the_compiler_change_nothing():
    code = """
import torch
from lgbench.extensions.registry import Registry
from lgbench.process.fingerprint import Fingerprint
Registry.load()
before = Fingerprint()
import einops, entmax, pandas, scipy.stats, sklearn.linear_model, x_transformers
model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GELU())
torch.compile(model)(torch.ones(2, 3)).sum().backward()
torch.fx.symbolic_trace(model)
torch.export.export(model, (torch.ones(2, 3),))
print([change.what for change in before.changes() if change.harmful])
"""
    done = python(code)
    assert done.stdout == "[]\n", done.stderr


class Patching(nn.Module):
    """A model that changes what all share when it is made, or when it is used."""

    def __init__(self, made: str, used: str) -> None:
        super().__init__()
        self.weight, self.used = nn.Parameter(torch.zeros(3, 3)), used
        exec(made)

    def forward(self, inputs):
        exec(self.used)
        return self.weight[inputs]


ACT = "torch.nn.functional.hardtanh = torch.nn.functional.silu"


def test_a_model_that_patches_torch_when_it_is_built_stops_the_plan():
    before = F.hardtanh
    registry = with_model(lambda: Patching(ACT, ""))
    with pytest.raises(PluginError, match="own 1 .*changed torch.nn.functional.hardtanh, and everybody's"):
        plan(Request(["toy-walk"], ["toy-own"], [], [0], "quick"), registry)
    assert F.hardtanh is before


def ran(registry: Registry, folder: Path):
    request = Request(["toy-walk"], ["toy-own"], [], [0, 1], "quick", {"train.steps": "2", "evaluate.max_length": "8"})
    return run_plan(plan(request, registry), Execution(torch.device("cpu"), False), folder, SilentProgress())


def test_a_model_that_patches_torch_when_it_is_used_is_not_ranked(tmp_path):
    before = F.hardtanh
    outcome = ran(with_model(lambda: Patching("", ACT)), tmp_path)
    (failed,) = outcome.failed
    assert isinstance(failed, RunFailed) and "own 1" in str(failed) and "changed torch.nn.functional.hardtanh" in str(failed)
    assert not outcome.written and not list(tmp_path.glob("*.parquet")) and F.hardtanh is before
    assert len(ran(with_model(lambda: Patching("", "")), tmp_path / "other").written) == 2


def test_an_error_after_a_change_is_told_with_the_change():
    with pytest.raises(PluginError, match="mine 1 changed the default dtype") as told, unchanged({"mine": "1"}):
        torch.set_default_dtype(torch.float64)
        raise ValueError("after all")
    assert isinstance(told.value.__cause__, ValueError) and torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_stays_an_interrupt_and_the_change_is_put_back(end):
    with pytest.raises(end), unchanged({"mine": "1"}):
        torch.set_default_dtype(torch.float64)
        raise end
    assert torch.get_default_dtype() is torch.float32


def test_a_fingerprint_of_nothing_new_has_no_change():
    before = Fingerprint()
    assert before.changes() == []
    math.tau, kept = 6, math.tau
    (change,) = before.changes()
    put_back(before, [change])
    assert math.tau == kept and before.changes() == []


class Vandal(lgbench.Averager):
    """It writes into everything that it is given."""

    name = "toy-vandal"

    def start(self, weights, schedule):
        copied = {"average": {name: tensor.clone() for name, tensor in weights.items()}}
        for tensor in weights.values():
            tensor.fill_(7.0)
        return copied

    def update(self, state, weights, step):
        for tensor in (*weights.values(), *state["average"].values(), step):
            tensor.mul_(3).add_(1)
        return {"average": weights}

    def weights(self, state):
        for tensor in state["average"].values():
            tensor.zero_()
        return state["average"]


def test_an_averager_that_writes_into_what_it_is_given_moves_no_raw_score(planned, tmp_path):
    found = []
    for averagers in ([], ["toy-vandal"]):
        registry = with_averager(Vandal())
        (experiment,) = planned(registry, "toy-walk", "toy-table", averagers=averagers, train_steps=6, train_average_every=1)
        every = scores(experiment, train([experiment], torch.device("cpu")), 0)
        found.append({key: value for key, value in every.items() if key[0] == "raw"})
    assert found[0] == found[1] and found[0]
