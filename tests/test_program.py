"""Compiled programs: what they compute, and what compiling says."""

from __future__ import annotations

import pytest
from conftest import python

SOLVE = """
import torch
from lgbench.training.program import program

def solved(a, b):
    return torch.linalg.solve_triangular(a, b, upper=False, unitriangular=True)

a, b = torch.randn(3, 8, 8).tril(), torch.randn(3, 8, 2)
found = program(solved, (a, b), lambda: print("compiled"))(a, b)
torch.testing.assert_close(found, solved(a, b))
"""


@pytest.mark.slow
def test_an_operator_that_the_compiler_only_calls_has_its_numbers_and_no_word_of_the_compiler(tmp_path):
    first, again = (python(SOLVE, XDG_CACHE_HOME=str(tmp_path), LGBENCH_CACHE=str(tmp_path)) for _ in range(2))
    assert (first.returncode, first.stdout, first.stderr) == (0, "compiled\n", "")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
