"""Algorithmic tasks: the Chomsky benchmark, and copying, sorting, counting, majority and addition."""

from __future__ import annotations

from collections.abc import Iterable

from lgbench import Task, hookimpl
from lgbench_algorithms.addition import (
    BinaryAdditionWritten,
    CoupledAddition,
    DecimalAddition,
    HintedAddition,
    HintedReversedAddition,
    ReversedAddition,
)
from lgbench_algorithms.binary import BinaryAddition, BinaryMultiplication, SquareRoot
from lgbench_algorithms.brackets import ModularArithmeticBrackets, SolveEquation
from lgbench_algorithms.copying import CopyRepeat, CopyUnique, Count, Sort
from lgbench_algorithms.majority import BinaryMajority, InterleavedMajority, Majority, Mode, ParityUniformOnes
from lgbench_algorithms.modular_arithmetic import ModularArithmetic
from lgbench_algorithms.regular import CycleNavigation, EvenPairs, ParityCheck
from lgbench_algorithms.stack_manipulation import StackManipulation
from lgbench_algorithms.strings import BucketSort, DuplicateString, MissingDuplicate, OddsFirst, ReverseString

LGBENCH_CONTRACT = "3.6"


@hookimpl
def lgbench_tasks() -> Iterable[Task]:
    yield from (EvenPairs(), ModularArithmetic(), ParityCheck(), CycleNavigation())
    yield from (StackManipulation(), ReverseString(), ModularArithmeticBrackets(), SolveEquation())
    yield from (DuplicateString(), MissingDuplicate(), OddsFirst(), BinaryAddition(), BinaryMultiplication(), SquareRoot())
    yield BucketSort()
    yield from (CopyUnique(), CopyRepeat(), Sort(), Count())
    yield from (BinaryMajority(), Majority(), InterleavedMajority(), Mode(), ParityUniformOnes())
    yield from (DecimalAddition(), ReversedAddition(), HintedAddition(), HintedReversedAddition(), CoupledAddition())
    yield BinaryAdditionWritten()
