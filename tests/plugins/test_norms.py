from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.registries import parts_of
from torch import Tensor, nn

from lgbench import Answers, NormScheme, Role, Signature, SublayerSpec, Tokens
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


def rms(x: Tensor, gain: Tensor) -> Tensor:
    return gain * x / ((x * x).mean(-1, keepdim=True) + 1e-6).sqrt()


def standard(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred * centred).mean(-1, keepdim=True) + 1e-5).sqrt()


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


def theirs(model: nn.Module, layers: int, heads: int, **options: Any) -> nn.Module:
    """x-transformers' decoder with the weights of ours."""
    import x_transformers

    attention = x_transformers.Decoder(
        dim=DIM, depth=layers, heads=heads, attn_dim_head=DIM // heads, use_rmsnorm=True, ff_glu=False, **options
    )
    wrapper = x_transformers.TransformerWrapper(
        num_tokens=7, max_seq_len=64, use_abs_pos_emb=False, attn_layers=attention, emb_dropout=0.0
    ).eval()
    weights = model.state_dict()
    gain = {"before": "0.0", "after": "0.1", "total": "0.2"}
    copied = {"token_emb.emb.weight": weights["embedding.weight"], "to_logits.weight": weights["logits.1.weight"]}
    if "logits.0.weight" in weights:
        copied["attn_layers.final_norm.g"] = weights["logits.0.weight"] - 1
    names = {"query": "to_q", "key": "to_k", "value": "to_v", "out": "to_out", "0": "ff.0.0", "2": "ff.2"}
    for key, value in weights.items():
        scope, *rest = key.split(".")
        if scope == "blocks" and rest[1] == "sublayer":
            copied[f"attn_layers.layers.{rest[0]}.1.{names[rest[2]]}.{rest[3]}"] = value
        elif scope == "blocks":
            copied[f"attn_layers.layers.{rest[0]}.{gain[rest[1]]}.g"] = value - 1  # their gain is 1 + g
    if heads == 1:  # theirs has no projection after a single head
        for layer in range(0, 2 * layers, 2):
            scope = f"attn_layers.layers.{layer}.1"
            copied[f"{scope}.to_v.weight"] = copied.pop(f"{scope}.to_out.weight") @ copied[f"{scope}.to_v.weight"]
    wrapper.load_state_dict(copied)
    return wrapper


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is not supported:DeprecationWarning")
@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (2, 2)])
@pytest.mark.parametrize(
    ("norm", "options"),
    [("pre-norm", {}), ("peri-norm", {"sandwich_norm": True}), ("post-norm", {"pre_norm": False})],
    ids=["pre-norm", "peri-norm", "post-norm"],
)
def test_x_transformers_gives_the_same_logits_with_the_same_weights(
    registry: Registry, norm: str, options: dict[str, bool], layers: int, heads: int
) -> None:
    signature = Signature(Tokens(7), 7, Answers.EVERY_PREFIX)
    model = registry.architectures["transformer"].build(
        signature, parts_of(registry, norm), layers=layers, heads=heads, width=DIM
    )
    randomized(model)
    tokens = torch.randint(7, (3, 20), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        model.embedding.weight.mul_(4)  # theirs has no epsilon to speak of
        expected = theirs(model, layers, heads, **options).double()(tokens)
        assert expected.std() > 0.1
        torch.testing.assert_close(model.double()(tokens), expected, atol=1e-5, rtol=1e-5)
