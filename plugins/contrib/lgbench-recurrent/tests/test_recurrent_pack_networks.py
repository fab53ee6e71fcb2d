from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import lgbench_recurrent
from lgbench import Answers, Parts, Signature, Tokens, Vectors
from lgbench.conformance.check import Check
from lgbench.testing import checks
from lgbench_norms import SCHEMES
from lgbench_recurrent import lgbench_architectures
from lgbench_recurrent.layers import GruLayer, LstmLayer, RecurrentLayer

LANGUAGE = Signature(Tokens(3), 4, Answers.EVERY_PREFIX)
SETS = Signature(Vectors(5), 4, Answers.LAST)
NORMS = {scheme.name: scheme for scheme in SCHEMES}
TORCH: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
LAYERS: dict[str, type[LstmLayer] | type[GruLayer]] = {"lstm": LstmLayer, "gru": GruLayer}
ARCHITECTURES = {architecture.name: architecture for architecture in lgbench_architectures()}
kinds = pytest.mark.parametrize("kind", ["lstm", "gru"])
norms = pytest.mark.parametrize("norm", ["no-norm", "post-norm", "peri-init-norm"])
signatures = pytest.mark.parametrize("signature", [LANGUAGE, SETS], ids=["language", "sets"])


def build(kind: str, signature: Signature, norm: str = "no-norm", seed: int = 0, **options: int) -> nn.Module:
    parts = Parts(norm=NORMS[norm], attention=None, position=None, train_positions=17, test_positions=65)  # type: ignore[arg-type]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return ARCHITECTURES[kind].build(signature, parts, **options)


@pytest.mark.parametrize(
    "check",
    [
        pytest.param(check, marks=pytest.mark.slow if "one graph" in check.name else ())
        for check in checks(lgbench_recurrent)
        if "one graph" not in check.name or "lstm" in check.thing  # ten seconds each, for a note
    ],
)
def test_it_keeps_the_contract(check: Check) -> None:
    check()


def layers(kind: str, width: int) -> tuple[RecurrentLayer, nn.RNNBase]:
    """One of ours and one of torch's, with the same large weights."""
    own, reference = LAYERS[kind](width).double(), TORCH[kind](width, width, batch_first=True).double()
    generator = torch.Generator().manual_seed(5)
    for parameter in own.parameters():
        nn.init.normal_(parameter, std=0.7, generator=generator)
    reference.load_state_dict(own.state_dict())
    return own, reference


def inputs_of(signature: Signature, n: int, length: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if signature is SETS:
        return torch.randn(n, length, 5, generator=generator)
    return torch.randint(3, (n, length), generator=generator)


@kinds
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("length", "width"), [(2, 3), (9, 6)])
def test_a_layer_is_the_one_of_torch_in_outputs_and_gradients(kind: str, training: bool, length: int, width: int) -> None:
    own, reference = layers(kind, width)
    own.train(training)
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(4, length, width, dtype=torch.float64, generator=generator, requires_grad=True)
    direction = torch.randn(4, length, width, dtype=torch.float64, generator=generator)
    ours, theirs = own(x), reference(x)[0]
    torch.testing.assert_close(ours, theirs)
    gradients = torch.autograd.grad((ours * direction).sum(), [x, *own.parameters()])
    expected = torch.autograd.grad((theirs * direction).sum(), [x, *reference.parameters()])
    for gradient, other in zip(gradients, expected, strict=True):
        assert (other != 0).any()
        torch.testing.assert_close(gradient, other)


@kinds
def test_a_layer_starts_as_the_one_of_torch(kind: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        own = LAYERS[kind](16)
        torch.manual_seed(3)
        reference = TORCH[kind](16, 16)
    assert own.state_dict().keys() == reference.state_dict().keys()
    for name, parameter in own.named_parameters():
        assert torch.equal(parameter, reference.get_parameter(name))
        assert 0.2 < parameter.abs().max() <= 0.25


@kinds
@signatures
@pytest.mark.parametrize("norm", ["no-norm", "pre-norm"])
def test_without_a_norm_on_outputs_the_model_is_the_classic_one(kind: str, signature: Signature, norm: str) -> None:
    model = build(kind, signature, norm, layers=3, width=8).double()
    weights = model.state_dict()
    stack = TORCH[kind](8, 8, num_layers=3, batch_first=True).double()
    names = [f"{name}_l0" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    stack.load_state_dict(
        {name.replace("l0", f"l{layer}"): weights.pop(f"layers.{layer}.0.{name}") for layer in range(3) for name in names}
    )
    inputs = inputs_of(signature, 5, 7)
    if signature is LANGUAGE:
        embedded = weights.pop("embed.0.weight")[inputs]
    else:
        embedded = inputs.double() @ weights.pop("embed.0.weight").T + weights.pop("embed.0.bias")
    logits = stack(embedded)[0] @ weights.pop("logits.weight").T + weights.pop("logits.bias")
    assert not weights
    got = model(inputs if signature is LANGUAGE else inputs.double())
    torch.testing.assert_close(got, logits if signature is LANGUAGE else logits[:, -1:])


def rms(x: Tensor, gain: Tensor) -> Tensor:
    return gain * x / ((x * x).mean(-1, keepdim=True) + 1e-6).sqrt()


def standard(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred * centred).mean(-1, keepdim=True) + 1e-5).sqrt()


@kinds
@pytest.mark.parametrize(
    ("norm", "on_embedding", "on_outputs"),
    [
        ("post-norm", False, "rms"),
        ("peri-norm", False, "rms"),
        ("peri-init-norm", True, "rms"),
        ("attention-standardize", False, "standard"),
    ],
)
def test_norms_act_on_the_embedding_and_on_each_layers_output(
    kind: str, norm: str, on_embedding: bool, on_outputs: str
) -> None:
    model = build(kind, LANGUAGE, norm, layers=2, width=6).double()
    generator = torch.Generator().manual_seed(4)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7, generator=generator)
    weights = model.state_dict()
    inputs = inputs_of(LANGUAGE, 3, 8)
    x = weights["embed.0.weight"][inputs]
    if on_embedding:
        x = rms(x, weights["embed.1.weight"])
    for layer in range(2):
        scope = f"layers.{layer}."
        reference = TORCH[kind](6, 6, batch_first=True).double()
        own = {name: tensor for name, tensor in weights.items() if name.startswith(f"{scope}0.")}
        reference.load_state_dict({name.removeprefix(f"{scope}0."): tensor for name, tensor in own.items()})
        x = reference(x)[0]
        gains = [tensor for name, tensor in weights.items() if name.startswith(f"{scope}1.")]
        x = rms(x, *gains) if on_outputs == "rms" else standard(x)
    torch.testing.assert_close(model(inputs), x @ weights["logits.weight"].T + weights["logits.bias"])
