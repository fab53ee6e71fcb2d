"""The contracts as version 1.0 has them. What changes here changes the version, by the rule that CONTRIBUTING.md states."""

from __future__ import annotations

import inspect
from dataclasses import fields

from lgbench import contracts, hookspecs

VERSION = (1, 0)

HOOKS = {"architectures", "attentions", "averagers", "norms", "positions", "tasks"}

METHODS = {
    "Architecture": {"build": "(self, signature, parts, *args, **options)"},
    "Attention": {"build": "(self, place)"},
    "Averager": {
        "definition": "(self, start, path)",
        "start": "(self, weights)",
        "update": "(self, state, weights, step)",
        "weights": "(self, state)",
    },
    "Language": {"strings": "(self, n, length, generator)", "testable_length": "(self, length)"},
    "NormScheme": {
        "embed": "(self, dim)",
        "final": "(self, dim)",
        "output": "(self, dim, role)",
        "residual": "(self, dim, sublayer, role)",
    },
    "Position": {"bias": "(self, place)", "embed": "(self, width, positions)", "turn": "(self, place)"},
    "Task": {
        "brute_force": "(self, context)",
        "sample": "(self, n, length, generator)",
        "sibling": "(self, name)",
        "text": "(self, inputs)",
    },
}

ATTRIBUTES = {
    "Architecture": {"about", "defaults", "name"},
    "Attention": {"about", "every_query", "name"},
    "Averager": {"about", "name"},
    "Language": set(),
    "NormScheme": {"about", "name"},
    "Position": {"about", "name"},
    "Task": {"about", "budgets", "family", "max_length", "model", "name", "signature", "train_lengths", "version"},
}

RECORDS = {
    "Budget": ["steps", "batch", "lr", "max_length"],
    "Parts": ["norm", "attention", "position", "train_positions", "test_positions"],
    "Place": ["layer", "width", "heads", "train_keys", "biased", "crossing", "plain"],
    "Signature": ["inputs", "classes", "answers"],
    "Tokens": ["size"],
    "Vectors": ["width"],
}


def test_this_is_the_contract_of_that_version():
    assert contracts.CONTRACT == VERSION


def test_hooks_are_those_of_the_version():
    named = {
        name.removeprefix("lgbench_") for name, _ in inspect.getmembers(hookspecs, inspect.isfunction) if "lgbench_" in name
    }
    assert named == HOOKS


def test_methods_and_attributes_are_those_of_the_version():
    for name, methods in METHODS.items():
        own = vars(getattr(contracts, name))
        found = {
            method: "(" + ", ".join(str(p).partition(":")[0] for p in inspect.signature(function).parameters.values()) + ")"
            for method, function in own.items()
            if inspect.isfunction(function)
        }
        assert found == methods, name
        assert set(own.get("__annotations__", {})) == ATTRIBUTES[name], name


def test_records_have_the_fields_of_the_version():
    for name, expected in RECORDS.items():
        assert [field.name for field in fields(getattr(contracts, name))] == expected, name
