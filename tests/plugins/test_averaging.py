from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lgbench import Averager, Schedule
from lgbench_averaging import Bema, Ema

Trajectory = dict[int, dict[str, Tensor]]
AVERAGERS = [Ema(), Bema()]
SCHEDULE = Schedule(steps=100, every=1)
averagers = pytest.mark.parametrize("averager", AVERAGERS, ids=lambda averager: averager.name)


def trajectory(steps: int, shapes: Mapping[str, tuple[int, ...]], seed: int = 0) -> Trajectory:
    """A random walk of float64 weights: step 0 is the initial ones."""
    generator = torch.Generator().manual_seed(seed)
    walk = {name: torch.randn(steps + 1, *shape, generator=generator, dtype=torch.float64) for name, shape in shapes.items()}
    return {step: {name: values[: step + 1].sum(0) for name, values in walk.items()} for step in range(steps + 1)}


def averaged(averager: Averager, weights: Trajectory, every: int) -> Iterator[tuple[int, dict[str, Tensor]]]:
    state = averager.start(weights[0], Schedule(len(weights) - 1, every))
    for step in range(every, len(weights), every):
        state = averager.update(state, weights[step], at(step))
        yield step, averager.weights(state)


def published(
    thetas: list[float], every: int, kappa: float, eta: float, gamma: float, rho: float
) -> dict[int, tuple[float, float]]:
    """(EMA, BEMA) of one number after each update: absolute t, an update at each multiple of `every`, as TRL reads it."""
    origin = ema = thetas[0]
    found = {}
    for t, theta in enumerate(thetas):
        if t and t % every == 0:
            alpha, beta = 1 / (rho + gamma * t) ** eta, 1 / (rho + gamma * t) ** kappa
            ema = (1 - beta) * ema + beta * theta
            found[t] = ema, ema + alpha * (theta - origin)
    return found


def at(step: int) -> Tensor:
    """As the harness gives it."""
    return torch.tensor(step, dtype=torch.float64)


@pytest.mark.parametrize("every", [1, 10, 7])
@pytest.mark.parametrize(
    "options", [{}, {"kappa": 0.9, "gamma": 0.5, "rho": 3.0}, {"kappa": 0.0}], ids=["published", "other", "no memory"]
)
def test_every_average_is_the_formula_step_by_step(every: int, options: dict[str, float]) -> None:
    weights = trajectory(100, {"w": (2, 3), "b": ()})
    numbers = {"kappa": 0.5, "gamma": 1.0, "rho": 10.0} | options
    ema = dict(averaged(Ema(**options), weights, every))
    bema = dict(averaged(Bema(**options, eta=0.3), weights, every))
    for name, index in [("w", (0, 0)), ("w", (1, 2)), ("b", ())]:
        expected = published([weights[t][name][index].item() for t in range(101)], every, eta=0.3, **numbers)
        assert expected.keys() == ema.keys() == bema.keys()
        for t, (plain, corrected) in expected.items():
            assert ema[t][name][index].item() == pytest.approx(plain, rel=1e-12)
            assert bema[t][name][index].item() == pytest.approx(corrected, rel=1e-12)


def test_the_defaults_are_the_published_ones() -> None:
    weights = trajectory(2000, {"w": ()})
    expected = published([weights[t]["w"].item() for t in range(2001)], 400, kappa=0.5, eta=0.2, gamma=1, rho=10)
    assert list(expected) == [400, 800, 1200, 1600, 2000]
    bema = dict(averaged(Bema(), weights, 400))
    assert {t: average["w"].item() for t, average in bema.items()} == pytest.approx({t: b for t, (_, b) in expected.items()})


@averagers
def test_averages_of_bfloat16_weights_are_float32_and_keep_small_changes(averager: Averager) -> None:
    # One bfloat16 step above 1 is 2^-7; at t = 10^6 an EMA moves by a thousandth of it, which bfloat16 cannot hold.
    start, now = ({"w": torch.full((3,), value, dtype=torch.bfloat16)} for value in (1.0, 1.0 + 2**-7))
    state = averager.update(averager.start(start, SCHEDULE), now, at(10**6))
    average = averager.weights(state)["w"]
    assert average.dtype == torch.float32 and averager.weights(averager.start(start, SCHEDULE))["w"].dtype == torch.float32
    ((_, (plain, corrected)),) = published_once(1.0, 1.0 + 2**-7, 10**6)
    expected = np.float32(corrected if isinstance(averager, Bema) else plain)
    np.testing.assert_allclose(average.numpy(), expected, rtol=3e-7)
    assert 1 < expected < 1 + 2**-7


@averagers
def test_an_average_is_a_copy_of_the_weights_without_gradient(averager: Averager) -> None:
    weights = {"w": torch.nn.Parameter(torch.ones(3))}
    state = averager.start(weights, SCHEDULE)
    torch.nn.init.constant_(weights["w"], 1e9)
    average = averager.weights(state)["w"]
    assert torch.equal(average, torch.ones(3)) and not average.requires_grad


def published_once(start: float, now: float, step: int) -> Any:
    return published([start] + [now] * step, step, kappa=0.5, eta=0.2, gamma=1, rho=10).items()
