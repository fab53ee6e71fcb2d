"""Stack and tape against lists of Python, alone and averaged over all of their histories; the networks against plain loops."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor, nn

import lgbench_memory
from lgbench import Answers, Architecture, NormScheme, Parts, Signature, Tokens, Vectors
from lgbench.conformance.check import Check
from lgbench.testing import checks
from lgbench_memory import stack, tape
from lgbench_memory.network import Controller
from lgbench_memory.simple import Simple
from lgbench_memory.stack import Stack
from lgbench_memory.tape import Tape
from lgbench_norms import SCHEMES

NORMS = {scheme.name: scheme for scheme in SCHEMES}
ARCHITECTURES = {each.name: each for each in lgbench_memory.lgbench_architectures()}
LANGUAGE = Signature(Tokens(3), 4, Answers.EVERY_PREFIX)
CELL, MEMORY = 2, 7
Cells = list[list[float]]
"""Cells of a memory, the one to read first."""
every = pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=lambda each: each.name)


@pytest.mark.parametrize(
    "check",
    [pytest.param(check, marks=pytest.mark.slow if "one graph" in check.name else ()) for check in checks(lgbench_memory)],
)
def test_it_keeps_the_contract(check: Check) -> None:
    check()


def build(architecture: Architecture, signature: Signature = LANGUAGE, norm: str = "no-norm", **options: int) -> nn.Module:
    scheme: NormScheme = NORMS[norm]
    parts = Parts(norm=scheme, attention=None, position=None, train_positions=17, test_positions=65)  # type: ignore[arg-type]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return architecture.build(signature, parts, **options)  # type: ignore[return-value]


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def stacked(cells: Cells, action: int, value: list[float], place: int) -> Cells:
    """A stack of Python after push (0), pop (1) or no operation (2), as long as before."""
    own = [value, *cells] if action == 0 else [*cells[1:], [0.0] * CELL] if action == 1 else cells
    return own[: len(cells)]


def taped(cells: Cells, move: int, value: list[float], place: int) -> Cells:
    """A circular tape of Python after a move of its head: 0, one right, one left, `place` right or left without writing."""
    head = (0, 1, -1, place, -place)[move]
    written = [value, *cells[1:]] if move < 3 else cells
    return [written[(head + cell) % len(cells)] for cell in range(len(cells))]


MEMORIES = {
    "stack": (stacked, lambda cells, chances, value, place: stack.moved(cells, chances, value), stack.ACTIONS),
    "tape": (taped, tape.moved, tape.MOVES),
}
memories = pytest.mark.parametrize("memory", MEMORIES)


@memories
@pytest.mark.parametrize("length", range(1, 5))
def test_certain_actions_are_those_of_a_list(memory: str, length: int) -> None:
    plain, moved, actions = MEMORIES[memory]
    histories = torch.tensor(list(product(range(actions), repeat=length)))
    values = random(length, CELL)
    cells = torch.zeros(len(histories), MEMORY, CELL, dtype=torch.float64)
    for place in range(length):
        chances = nn.functional.one_hot(histories[:, place], actions).double()
        cells = moved(cells, chances, values[place].expand(len(histories), -1), place)
    for history, found in zip(histories.tolist(), cells, strict=True):
        expected: Cells = [[0.0] * CELL] * MEMORY
        for place, action in enumerate(history):
            expected = plain(expected, action, values[place].tolist(), place)
        assert found.tolist() == expected


@memories
def test_uncertain_actions_give_the_mean_over_all_histories(memory: str) -> None:
    plain, moved, actions = MEMORIES[memory]
    length = 4
    chances, values = random(length, actions).softmax(-1), random(length, CELL, seed=1)
    cells = torch.zeros(1, MEMORY, CELL, dtype=torch.float64)
    for place in range(length):
        cells = moved(cells, chances[None, place], values[None, place], place)
    mean = torch.zeros(MEMORY, CELL, dtype=torch.float64)
    for history in product(range(actions), repeat=length):
        own: Cells = [[0.0] * CELL] * MEMORY
        for place, action in enumerate(history):
            own = plain(own, action, values[place].tolist(), place)
        mean += torch.tensor(own, dtype=torch.float64) * chances[torch.arange(length), list(history)].prod()
    torch.testing.assert_close(cells[0], mean)


def test_a_tape_has_two_cells_for_each_position_of_the_longest_input() -> None:
    model = build(ARCHITECTURES["tape-rnn"])
    (own,) = (module for module in model.modules() if isinstance(module, Tape))
    assert (own.train_cells, own.test_cells) == (2 * 17, 2 * 65)


def test_a_stack_on_which_every_position_pushes_has_room() -> None:
    module = Stack(3, CELL).double()
    nn.init.zeros_(module.actions.weight)
    with torch.no_grad():
        module.actions.bias.copy_(torch.tensor([100.0, 0.0, 0.0]))  # push always
    x = random(2, 6, 3)
    torch.testing.assert_close(module(x[:, :4]), module(x)[:, :4])


def weights_of(module: nn.Module) -> dict[str, list]:
    return {name: parameter.tolist() for name, parameter in module.named_parameters()}


def linear(matrix: Cells, x: list[float], bias: list[float] | None = None) -> list[float]:
    return [sum(a * b for a, b in zip(row, x, strict=True)) + (0 if bias is None else bias[i]) for i, row in enumerate(matrix)]


def softmax(x: list[float]) -> list[float]:
    powers = [2.718281828459045**value for value in x]
    return [power / sum(powers) for power in powers]


def mixed(options: list[Cells], chances: list[float]) -> Cells:
    return [
        [sum(c * option[i][j] for c, option in zip(chances, options, strict=True)) for j in range(CELL)]
        for i in range(len(options[0]))
    ]


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_layer_is_a_plain_loop_over_positions(memory: str) -> None:
    plain, _, actions = MEMORIES[memory]
    width, length = 3, 6
    module = (Stack(width, CELL) if memory == "stack" else Tape(width, CELL, 12, 12)).double().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5, generator=torch.Generator().manual_seed(len(parameter)))
    own = weights_of(module)
    chooser = "actions" if memory == "stack" else "moves"
    x = random(1, length, width)
    state, cells, states = [0.0] * width, [[0.0] * CELL] * 12, []
    for place, seen in enumerate(x[0].tolist()):
        fed = linear(own["controller.input.weight"], seen, own["controller.input.bias"])
        back = linear(own["controller.recurrent.weight"], [*state, *cells[0]])
        state = torch.tensor([a + b for a, b in zip(fed, back, strict=True)], dtype=torch.float64).tanh().tolist()
        chances = softmax(linear(own[f"{chooser}.weight"], state, own[f"{chooser}.bias"]))
        if memory == "stack":
            value = linear(own["value.weight"], state, own["value.bias"])
        else:
            hidden = state
            for layer in (0, 2):
                hidden = [max(0.0, a) for a in linear(own[f"value.{layer}.weight"], hidden, own[f"value.{layer}.bias"])]
            value = linear(own["value.4.weight"], hidden, own["value.4.bias"])
        cells = mixed([plain(cells, action, value, place) for action in range(actions)], chances)
        states.append(state)
    torch.testing.assert_close(module(x)[0], torch.tensor(states, dtype=torch.float64))


def test_a_simple_layer_is_the_one_of_torch_in_outputs_and_gradients() -> None:
    own, reference = Simple(4, 4).double(), nn.RNN(4, 4, batch_first=True).double()
    for parameter in own.parameters():
        nn.init.normal_(parameter, std=0.7, generator=torch.Generator().manual_seed(5))
    theirs = {"weight_ih_l0": own.input.weight, "weight_hh_l0": own.recurrent.weight, "bias_ih_l0": own.input.bias}
    reference.load_state_dict({**theirs, "bias_hh_l0": torch.zeros(4)})
    x, direction = random(3, 9, 4).requires_grad_(), random(3, 9, 4, seed=1)
    found, expected = own(x), reference(x)[0]
    torch.testing.assert_close(found, expected)
    ours = torch.autograd.grad((found * direction).sum(), [x, own.input.weight, own.recurrent.weight, own.input.bias])
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")
    others = torch.autograd.grad((expected * direction).sum(), [x, *(reference.get_parameter(name) for name in names)])
    for gradient, other in zip(ours, others, strict=True):
        torch.testing.assert_close(gradient, other)


def test_a_controller_without_a_memory_reads_nothing() -> None:
    assert Controller(3, 5).recurrent.weight.shape == (5, 5)
    assert Controller(3, 5, 2).recurrent.weight.shape == (5, 7)


@every
def test_training_and_evaluation_compute_the_same(architecture: Architecture) -> None:
    model = build(architecture)
    inputs = torch.randint(3, (4, 17), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        # Of the tape only where no chance comes around: jumps go on to the other end of 34 cells, and of 130.
        atol = 1e-2 if architecture.name == "tape-rnn" else 1e-6
        torch.testing.assert_close(model.train()(inputs), model.eval()(inputs), atol=atol, rtol=0)


@every
@pytest.mark.parametrize("norm", ["no-norm", "peri-init-norm"])
def test_the_last_answer_is_the_last_of_the_answers_at_every_position(architecture: Architecture, norm: str) -> None:
    last, every = (build(architecture, Signature(Vectors(5), 4, answers), norm) for answers in (Answers.LAST, Answers.MARKED))
    every.load_state_dict(last.state_dict())
    inputs = random(5, 9, 5).float()
    assert last(inputs).shape == (5, 1, 4)
    torch.testing.assert_close(last(inputs), every(inputs)[:, -1:])
