from __future__ import annotations

import numpy as np
import pytest
from helpers.uniform import are_uniform

from lgbench import Random
from lgbench_tasks.dictionary_lookup import DictionaryLookup

KEY = slice(0, 32)
VALUE = slice(32, 42)


def drawn(n: int, length: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    inputs, distribution, _ = DictionaryLookup().sample(length, Random(n, seed))
    return inputs.numpy(), distribution.numpy()


def asked_item(context: np.ndarray) -> int:
    """The one item whose key is the query's, bit by bit."""
    (found,) = [at for at, item in enumerate(context[:-1]) if (item[KEY] == context[-1, KEY]).all()]
    return found


@pytest.mark.parametrize("length", [1, 2, 16, 300])
def test_the_answer_is_the_value_under_the_key_that_is_asked_for(length: int) -> None:
    inputs, distribution = drawn(100, length)
    assert inputs.shape == (100, length + 1, 42) and distribution.shape == (100, 1, 10)
    for context, answer in zip(inputs, distribution[:, 0], strict=True):
        assert answer.tolist() == context[asked_item(context), VALUE].tolist()


def test_every_item_has_one_value_and_the_query_has_none() -> None:
    inputs, _ = drawn(100, 16)
    assert set(np.unique(inputs[..., VALUE])) == {0, 1}
    assert (inputs[:, :-1, VALUE].sum(-1) == 1).all()
    assert (inputs[:, -1, VALUE] == 0).all()


def test_keys_are_unit_vectors_in_random_directions() -> None:
    inputs, _ = drawn(2000, 8)
    keys = inputs[:, :-1, KEY].reshape(-1, 32).astype(np.float64)
    np.testing.assert_allclose(np.linalg.norm(keys, axis=-1), 1, atol=1e-6)
    # Uniform on the sphere: mean 0 and covariance I / 32 (entries deviate by about 1 / 32 / sqrt(16000)).
    np.testing.assert_allclose(keys.mean(0), 0, atol=6 * 32**-0.5 / 16_000**0.5)
    np.testing.assert_allclose(keys.T @ keys / len(keys), np.eye(32) / 32, atol=9 / 32 / 16_000**0.5)


def test_which_item_is_asked_for_and_what_it_holds_are_uniform() -> None:
    inputs, distribution = drawn(4000, 8)
    asked = np.bincount([asked_item(context) for context in inputs], minlength=8)
    assert are_uniform(asked) and are_uniform(distribution[:, 0].sum(0))
