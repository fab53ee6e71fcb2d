"""Predictions of a trained model after a context: p from its weights, p* from the task; contexts are read as written."""

from __future__ import annotations

import io
import json
import re
from functools import partial

import pytest
import torch
from helpers import published
from helpers.commands import invoked
from helpers.saved_runs import run_id
from rich.console import Console

import lgbench
from lgbench.extensions.registry import Registry
from lgbench.reports.curves import MAX_ROWS, bars
from lgbench.saved import predicted

asked = partial(invoked, "predict")


TASKS = ["set-complement", "max-retrieval", "dictionary-lookup", "dyck-2-3", "dyck-6-2", "tomita-3"]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("length", [1, 2, 7])
def test_a_task_reads_what_it_writes_and_says_the_same_p_star_of_it(registry, name, length):
    task = registry.tasks.get(name) or registry.tasks["dyck-2-3"].sibling(name)
    inputs, distribution, _ = task.sample(length, lgbench.Random(4, seed=5))
    for context, right in zip(inputs, distribution[:, -1], strict=True):
        again = task.context(task.text(context))
        assert task.text(again) == task.text(context) and again.dtype == context.dtype and again.shape == context.shape
        if isinstance(task.signature.inputs, lgbench.Tokens):
            assert torch.equal(again, context)
        if name != "max-retrieval":  # two priorities may be the same with two digits
            assert task.reference(again) == pytest.approx(right.tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("name", "text", "same"),
    [
        ("dyck-2-3", "( [ ] ", "([]"),
        ("dyck-2-3", "", "(empty)"),
        ("dyck-2-3", " ( [", "(["),
        ("set-complement", "3, 17 5", "[3, 17, 5]"),
        ("set-complement", "[3,17]", "[3, 17]"),
        ("max-retrieval", ".5:3  1:9 ?", "0.50:3 1.00:9 ?"),
        ("dictionary-lookup", "x:4 y:8 y?", "a:4 b:8 b?"),
    ],
)
def test_a_context_may_be_written_in_several_ways(registry, name, text, same):
    task = registry.tasks[name]
    assert task.text(task.context(text)) == same


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("dyck-2-3", "( x )", "'x' begins with none of its symbols, which are ( [ ) ]"),
        ("tomita-1", "1 2", "'2' begins with none of its symbols, which are 0 1"),
        ("set-complement", "3 64", "'64' is none of its tokens, which are the numbers from 0 to 63"),
        ("set-complement", "", "it reads at least one token"),
        ("set-complement", "3 3", "no token may come twice, and at most 63 of the 64 may come"),
        ("set-complement", " ".join(map(str, range(64))), "at most 63 of the 64"),
        ("max-retrieval", "", "as in '0.39:4 0.66:6 ?'"),
        ("max-retrieval", "0.3:4", "it reads items as priority:class"),
        ("max-retrieval", "0.3:12 ?", "it reads items as priority:class"),
        ("max-retrieval", "7:1 ?", "priorities are from 0 to 1"),
        ("dictionary-lookup", "a:4 b:8", "one of its keys and a question mark"),
        ("dictionary-lookup", "a:4 a:8 a?", "each key once"),
        ("dictionary-lookup", "a:4 b:x a?", "values from 0 to 9"),
    ],
)
def test_what_is_no_context_is_told_with_what_the_task_reads(registry, name, text, said):
    with pytest.raises(ValueError) as refused:
        registry.tasks[name].context(text)
    assert said in str(refused.value)


def test_p_is_that_of_the_loaded_model_and_p_star_that_of_the_task(saved_runs):
    for weights in ("raw", "ema"):
        model = lgbench.load(saved_runs.language, weights=weights)
        found = predicted(model, "(()")
        logits = model(torch.tensor([[2, 0, 0, 1]]))[0, -1]
        assert found.p == pytest.approx(torch.softmax(logits.double(), -1).tolist(), abs=1e-12)
        assert (found.context, found.answers, found.right) == ("(()", ("(", ")", "end"), [0.5, 0.5, 0.0])
        assert found.tvd == pytest.approx(0.5 * sum(abs(a - b) for a, b in zip(found.p, [0.5, 0.5, 0.0], strict=True)))


def test_a_terminal_shows_both_as_bars(saved_runs):
    done = asked(run_id(saved_runs.language), "--results", saved_runs.folder, "--context", "( ( )", "--context", "")
    assert done.exit_code == 0
    first, second = done.stdout.split("TVD")[:2]
    assert "transformer+peri-norm on dyck-1-2 seed 0, raw weights, after (()" in first and "after (empty)" in second
    lines = {line.split()[0]: line for line in first.splitlines() if "0." in line}
    assert lines.keys() == {"(", ")", "end"} and "0.5000   ████████████ " in lines["("] and "0.0000" in lines["end"]


def test_a_program_reads_json(saved_runs):
    done = asked(saved_runs.vectors, "--context", "0.3:4 0.9:7 ?", "--weights", "ema", "--json")
    (found,) = json.loads(done.stdout)
    assert found.keys() == {"context", "answers", "p", "p_star", "tvd"}
    assert found["p_star"] == [0.0] * 7 + [1.0, 0.0, 0.0] and sum(found["p"]) == pytest.approx(1)
    assert found["tvd"] == pytest.approx(1 - found["p"][7])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--context", "( x"], "dyck-1-2 has no context '( x': 'x' begins with none of its symbols, which are ( ); `lgbench"),
        (["--context", "())"], "no member of the language begins with that; `lgbench show dyck-1-2` has examples"),
        (["--context", "()" * 40], "the context has 81 positions, and the model was built for 49 at most"),
        (["--context", "(", "--weights", "bema"], "no weights 'bema'; did you mean 'ema'? known: ema, raw"),
        (["--context", "(", "--device", "tpu"], "device 'tpu' cannot be used here"),
        ([], "Missing option '--context'"),
    ],
)
def test_wrong_questions_are_told_in_a_sentence(saved_runs, words, said):
    done = asked(saved_runs.language, *words)
    assert done.exit_code == 2 and said in done.stderr and done.stdout == ""


@pytest.mark.slow
def test_a_task_that_says_no_p_star_of_a_context_has_p_alone(tmp_path, monkeypatch):
    (path,) = published.make(tmp_path, seeds=[0], task="small-walk", save_weights=True)
    monkeypatch.setattr(Registry, "load", classmethod(lambda cls, files=(), only=None: published.registry()))
    done = asked(path, "--context", "0 2 1")
    assert done.exit_code == 0 and "p*" not in done.stdout.split("the task")[0]
    assert "the task says no p* after this context" in done.stdout
    (path,) = published.make(tmp_path, seeds=[0], task="alone", save_weights=True)
    done = asked(path, "--context", "0 2 1")
    assert done.exit_code == 2 and "alone cannot be asked: it reads vectors, and does not say how to write them" in done.stderr
    assert "has examples" not in done.stderr


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("letters", [1, 6, 7, 19, 70])
def test_every_digit_and_every_letter_is_shown_beside_answers_of_any_length(width, letters):
    out, answers = io.StringIO(), [letters * "a", (letters - 1) * "a" + "b"]
    bars(answers, [0.1234, 0.8766], [0.0625, 0.9375], Console(file=out, width=width))
    said = out.getvalue()
    assert all(number in said for number in ("0.1234", "0.8766", "0.0625", "0.9375")) and "\u2026" not in said
    shown = re.sub(r"[^ab]", "", said.replace("answer", ""))
    assert shown == "".join(answers) and max(map(len, said.splitlines())) <= width


def test_of_many_answers_the_most_probable_are_shown_in_order_and_the_rest_is_summed():
    out = io.StringIO()
    p = [i / sum(range(40)) for i in range(40)]
    bars([f"t{i}" for i in range(40)], p, [1.0, *[0.0] * 39], Console(file=out, width=80))
    said = out.getvalue()
    names = [line.split()[0] for line in said.splitlines() if line.startswith(" t")]
    assert names == ["t0", *(f"t{i}" for i in range(25, 40))] and len(names) == MAX_ROWS
    assert f"and 24 more answers, together p {sum(p[1:25]):.4f}, p* 0.0000" in said
