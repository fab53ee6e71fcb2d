from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.plain_decoder import rms, standard
from torch import Tensor, nn

from lgbench import NormScheme, Role, SublayerSpec
from lgbench.extensions.registry import Registry

DIM = 12
FACTORS = {
    # name: a norm on the input, on the output, after the sum, before the logits
    "no-norm": (0, 0, 0, 0),
    "final-norm": (0, 0, 0, 1),
    "post-norm": (0, 0, 1, 0),
    "input-norm": (1, 0, 0, 0),
    "pre-norm": (1, 0, 0, 1),
    "input-post-norm": (1, 0, 1, 0),
    "output-norm": (0, 1, 0, 0),
    "olmo2-norm": (0, 1, 0, 1),
    "output-post-norm": (0, 1, 1, 0),
    "input-output-norm": (1, 1, 0, 0),
    "peri-norm": (1, 1, 0, 1),
    "input-output-post-norm": (1, 1, 1, 0),
    "peri-init-norm": (1, 1, 0, 1),
}
BUILT_IN = [*FACTORS, "attention-layer-norm", "attention-standardize"]
SPECS: dict[Role, SublayerSpec] = {role: SublayerSpec(role, 1, 2, DIM, 2) for role in ("attention", "mlp")}
Params = dict[str, Tensor]


def factored(name: str) -> Callable[[Tensor, nn.Module, Params], Tensor]:
    """x + F(x) with a norm on the input, on the output and on the sum, where the scheme has one."""
    before, after, total, _ = FACTORS[name]

    def equation(x: Tensor, f: nn.Module, p: Params) -> Tensor:
        change = f(rms(x, p["before.weight"]) if before else x)
        y = x + (rms(change, p["after.weight"]) if after else change)
        return rms(y, p["total.weight"]) if total else y

    return equation


def layer_normed(x: Tensor, f: nn.Module, p: Params) -> Tensor:
    return x + p["after.weight"] * standard(f(rms(x, p["before.weight"]))) + p["after.bias"]


def standardized(x: Tensor, f: nn.Module, p: Params) -> Tensor:
    return x + standard(f(rms(x, p["before.weight"])))


RESIDUAL: dict[tuple[str, Role], Callable[[Tensor, nn.Module, Params], Tensor]] = {
    **{(name, role): factored(name) for name in FACTORS for role in SPECS},
    ("attention-layer-norm", "attention"): layer_normed,
    ("attention-layer-norm", "mlp"): factored("pre-norm"),
    ("attention-standardize", "attention"): standardized,
    ("attention-standardize", "mlp"): factored("pre-norm"),
}


def randomized(module: nn.Module, seed: int = 0) -> nn.Module:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.5 if parameter.dim() < 2 else 0.0, 0.5, generator=generator)
    return module


def stream(seed: int = 1) -> Tensor:
    return 3 * torch.randn(2, 5, DIM, generator=torch.Generator().manual_seed(seed)) + 1


def modules_of(scheme: NormScheme) -> dict[str, nn.Module]:
    return {
        "embed": scheme.embed(DIM),
        "output attention": scheme.output(SPECS["attention"]),
        "output mlp": scheme.output(SPECS["mlp"]),
        "final": scheme.final(DIM),
    }


@pytest.mark.parametrize(("name", "role"), RESIDUAL)
def test_a_residual_connection_is_the_schemes_equation(registry: Registry, name: str, role: Role) -> None:
    sublayer = nn.Linear(DIM, DIM)
    module = randomized(registry.norms[name].residual(SPECS[role], sublayer))
    parameters = {key: value for key, value in module.state_dict().items() if not key.startswith("sublayer.")}
    torch.testing.assert_close(module(stream()), RESIDUAL[name, role](stream(), sublayer, parameters))


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_scheme_has_no_other_parameters_than_its_equation(registry: Registry, name: str) -> None:
    on_attention = {"attention-layer-norm": 3, "attention-standardize": 1}  # a LayerNorm has a gain and a bias
    expected = (sum(FACTORS[name][:3]) if name in FACTORS else on_attention[name]) * DIM
    counted = registry.norms[name].residual(SPECS["attention"], nn.Identity()).parameters()
    assert sum(parameter.numel() for parameter in counted) == expected


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_other_places_are_the_schemes_equation(registry: Registry, name: str) -> None:
    x = stream()
    _, after, total, logits = FACTORS.get(name, (1, 1, 0, 1))
    changed = {"final"} if logits else set()
    if name in FACTORS and (after or total):
        changed |= {"output attention", "output mlp"}
    elif name not in FACTORS:
        changed.add("output attention")
    if name == "peri-init-norm":
        changed.add("embed")
    for where, module in modules_of(registry.norms[name]).items():
        parameters = list(randomized(module).parameters())
        if where not in changed:
            expected = x
        elif where == "output attention" and name == "attention-layer-norm":
            expected = parameters[0] * standard(x) + parameters[1]
        elif where == "output attention" and name == "attention-standardize":
            expected = standard(x)
        else:
            expected = x
            for gain in parameters:  # two on an output that is normalized itself and in the sum
                expected = rms(expected, gain)
        torch.testing.assert_close(module(x), expected, msg=where)


@pytest.mark.parametrize("name", BUILT_IN)
def test_gains_start_at_one_and_biases_at_zero(registry: Registry, name: str) -> None:
    modules = [*modules_of(registry.norms[name]).values(), registry.norms[name].residual(SPECS["attention"], nn.Identity())]
    for key, parameter in (pair for module in modules for pair in module.named_parameters()):
        assert (parameter == (0 if key.endswith("bias") else 1)).all()
