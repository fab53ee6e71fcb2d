from __future__ import annotations

import pytest
import torch

from lgbench.randomness import derive, key_of, seeded


def test_derive_is_the_same_on_every_machine_and_in_every_release():
    assert derive(0, "weights") == 7831180306208225803
    assert derive(7, "train", "tomita-1", 64) == 427213190682232795


def test_derive_depends_on_the_seed_and_on_every_word():
    asked = [
        (0, "a"),
        (1, "a"),
        (0, "b"),
        (0, "a", "b"),
        (0, "ab"),
        (0, "b", "a"),
        (0, "a", 1),
        (0, "a", 11),
        (0, "a", 1, 1),
        (0,),
    ]
    found = [derive(*words) for words in asked]
    assert len(set(found)) == len(asked)
    assert all(0 <= value < 2**63 for value in found)


def test_a_key_is_the_same_on_every_machine_and_depends_on_every_word():
    assert key_of(0, "weights") == (15662360612416451607, 14875898992532668009)
    words = [(0, "a"), (1, "a"), (0, "b"), (0, "a", "b"), (0, "ab"), (0, "a", 1), (0, "a", 11), (0,)]
    found = [word for asked in words for word in key_of(*asked)]
    assert len(set(found)) == 2 * len(words) and all(0 <= word < 2**64 for word in found)


def test_initial_decides_weights_whatever_the_global_state_was_and_restores_it():
    built = []
    for global_seed in (1, 2):
        torch.manual_seed(global_seed)
        before = torch.random.get_rng_state()
        with seeded(5, "weights"):
            built.append(torch.nn.Linear(3, 3).weight.detach())
        assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(*built)


def test_initial_restores_the_global_state_after_an_error():
    before = torch.random.get_rng_state()
    with pytest.raises(KeyError), seeded(5, "weights"):
        torch.rand(3)
        raise KeyError
    assert torch.equal(before, torch.random.get_rng_state())


def test_initial_leaves_the_generators_of_other_devices_alone(monkeypatch):
    """`torch.manual_seed` seeds those of CUDA, now or when CUDA starts."""
    asked = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", asked.append)
    monkeypatch.setattr(torch, "manual_seed", asked.append)
    with seeded(5, "weights"):
        torch.nn.Linear(3, 3)
    assert not asked
