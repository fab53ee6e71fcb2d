"""The contracts as they are pinned here. A change here changes the version, by the rule that the docs state."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import get_args

import lgbench
from lgbench import attending, chain, contracts, hookspecs, noise, testing

VERSION = (3, 4)

HOOKS = {
    *("architectures", "attentions", "averagers", "commands", "executors", "measurements"),
    *("norms", "optimizers", "positions", "tasks", "trackers"),
}

NAMES = {
    *("Answers", "Architecture", "Attention", "AttentionModule", "AttentionSpec", "Averager", "Batch", "BiasModule", "Budget"),
    *("Demand", "Executor", "Pool", "Submitted"),
    *("OpenRun", "RunEnd", "TrackedRun", "Tracker"),
    *("AttentionInside", "Insides", "JsonFile", "Reading", "SublayerInside"),
    *("EmbeddingModule", "Language", "Matrix", "Measurement", "Model", "Need", "NormScheme", "Optimizer", "Parts", "Position"),
    *("Predictions", "Random", "Role", "RotationModule", "Schedule", "Signature", "Source", "State", "StringScores", "Strings"),
    *("SublayerSpec", "Task", "TensorModule", "Tokens", "Vectors", "Weights"),
    *("LgbenchError", "Unsupported", "UsageError", "hookimpl", "read_results", "run", "plan", "run_population"),
    *("PlannedPopulation", "RunOptions", "LoadedModel", "load", "probe", "evaluate_model"),
}

METHODS = {
    "Architecture": {"build": "(self, signature, parts, *args, **options)"},
    "Attention": {"build": "(self, spec)"},
    "AttentionModule": {"__call__": "(self, q, k, v, bias, **needed)", "forward": "(self, q, k, v, bias, *args, **needed)"},
    "Averager": {
        "reference": "(self, start, path, schedule)",
        "start": "(self, weights, schedule)",
        "update": "(self, state, weights, step)",
        "weights": "(self, state)",
    },
    "BiasModule": {"__call__": "(self, q, k, **tokens)", "forward": "(self, q, k, *args, **tokens)"},
    "Configurable": {"configured": "(self)"},
    "EmbeddingModule": {"__call__": "(self, x, **tokens)", "forward": "(self, x, *args, **tokens)"},
    "Language": {"context": "(self, text)", "strings": "(self, length, random)", "testable_length": "(self, length)"},
    "Measurement": {
        "chance": "(self, distribution, test)",
        "of_contexts": "(self, predictions)",
        "of_insides": "(self, insides)",
        "of_strings": "(self, scores)",
        "source": "(self, task)",
    },
    "Model": {"__call__": "(self, inputs)", "forward": "(self, inputs)"},
    "NormScheme": {
        "embed": "(self, width)",
        "final": "(self, width)",
        "gain": "(self, spec, matrix)",
        "head": "(self, spec)",
        "key": "(self, spec)",
        "output": "(self, spec)",
        "query": "(self, spec)",
        "residual": "(self, spec, sublayer)",
    },
    "OpenRun": {"end": "(self, end)", "log": "(self, step, values)"},
    "Optimizer": {
        "start": "(self, weights)",
        "update": "(self, state, weights, gradients, lr, decay, step)",
    },
    "Position": {"bias": "(self, spec)", "embed": "(self, width, positions)", "rotate": "(self, spec)"},
    "RotationModule": {"__call__": "(self, q, k, **tokens)", "forward": "(self, q, k, *args, **tokens)"},
    "Task": {
        "context": "(self, text)",
        "reference": "(self, context)",
        "sample": "(self, length, random)",
        "sibling": "(self, name)",
        "sources": "(self, inputs)",
        "text": "(self, inputs)",
    },
    "TensorModule": {"__call__": "(self, x)", "forward": "(self, x)"},
    "Executor": {"open": "(self, demand)"},
    "Submitted": {"cancel": "(self)", "done": "(self)", "result": "(self)"},
    "Tracker": {"missing": "(self)", "resume": "(self, run, handle)", "start": "(self, run)"},
}

PROPERTIES = {
    "AttentionSpec": {"head_dim", "scale"},
    "Predictions": {"probability"},
    "SublayerInside": {"update"},
    "SublayerSpec": {"head_dim"},
    "Task": {"answers"},
}

ATTRIBUTES = {
    "Architecture": {"about", "defaults", "name", "ranges"},
    "Attention": {"needs"},
    "AttentionModule": set(),
    "Averager": {"about", "name"},
    "BiasModule": set(),
    "Configurable": {"about", "name", "ranges"},
    "EmbeddingModule": set(),
    "Language": set(),
    "Measurement": {
        *("about", "label", "landmark", "lower_is_better", "name", "partial"),
        *("range", "threshold", "title", "version", "worst"),
    },
    "Model": set(),
    "NormScheme": set(),
    "OpenRun": {"handle"},
    "Optimizer": {"elementwise"},
    "Position": {"reads_tokens"},
    "RotationModule": set(),
    "Task": {
        *("about", "budgets", "family", "lengths", "max_length", "model", "name", "signature", "train_lengths", "version"),
    },
    "TensorModule": set(),
    "Tracker": {"about", "name"},
    "Executor": {"about", "name"},
    "Submitted": set(),
}

CONFIGURABLE = {"Attention", "NormScheme", "Optimizer", "Position"}

RECORDS = {
    "AttentionInside": ["layer", "output", "weights"],
    "AttentionSpec": ["layer", "layers", "width", "heads", "train_keys", "has_bias", "cross_attention", "unscaled"],
    "Batch": ["inputs", "distribution", "weights"],
    "Budget": ["steps", "batch", "lr", "max_length"],
    "Demand": ["workers", "gpu", "environ", "folder"],
    "Pool": ["submit", "workers"],
    "Insides": ["length", "inputs", "logits", "distribution", "sources", "attentions", "sublayers", "final"],
    "Parts": ["norm", "attention", "position", "train_positions", "test_positions"],
    "Predictions": ["logits", "distribution"],
    "Reading": ["value", "layer", "head"],
    "RunEnd": ["status", "reason", "diverged_step"],
    "Schedule": ["steps", "every"],
    "Signature": ["inputs", "classes", "answers"],
    "StringScores": ["log_probability", "is_member"],
    "Strings": ["inputs", "is_member"],
    "SublayerInside": ["role", "layer", "before", "after", "norm_input"],
    "SublayerSpec": ["role", "layer", "layers", "width", "heads"],
    "Tokens": ["size"],
    "TrackedRun": ["name", "tags", "config"],
    "Vectors": ["width"],
}

CHOICES = {
    "Answers": {"EVERY_PREFIX", "LAST", "MARKED"},
    "Matrix": {"down", "key", "out", "query", "up", "value"},
    "Need": {"ALL_QUERIES", "KEY_INPUT", "QUERY_INPUT"},
    "Role": {"attention", "mlp"},
    "Source": {"contexts", "insides", "strings"},
}

HELPERS = {
    attending.logits: "(q, k, bias, scale)",
    attending.masked_logits: "(q, k, bias, scale)",
    attending.needed_inputs: "(needs, query_input, key_input)",
    attending.visible: "(q, k)",
    attending.visible_counts: "(q, k)",
    chain.Chain: "(*args)",
    noise.Noise: "(*shape)",
    testing.checks: "(*things)",
}


def parameters(function) -> str:
    return "(" + ", ".join(str(p).partition(":")[0] for p in inspect.signature(function).parameters.values()) + ")"


def is_property(value: object) -> bool:
    return isinstance(value, property) or type(value).__name__ == "cached_property"


def test_this_is_the_contract_of_that_version():
    assert contracts.CONTRACT == VERSION


def test_hooks_are_those_of_the_version():
    named = {
        name.removeprefix("lgbench_") for name, _ in inspect.getmembers(hookspecs, inspect.isfunction) if "lgbench_" in name
    }
    assert named == HOOKS


def test_names_that_plugins_import_are_those_of_the_version():
    assert set(lgbench.__all__) == NAMES


def test_methods_and_attributes_are_those_of_the_version():
    for name, methods in METHODS.items():
        own = vars(getattr(contracts, name))
        named = [key for key, value in own.items() if inspect.isfunction(value) and (key == "__call__" or key[0] != "_")]
        assert {key: parameters(own[key]) for key in named} == methods, name
        assert set(inspect.get_annotations(getattr(contracts, name))) == ATTRIBUTES[name], name


def test_properties_are_those_of_the_version():
    for name in {*METHODS, *RECORDS}:
        own = vars(getattr(contracts, name))
        assert {key for key, value in own.items() if is_property(value)} == PROPERTIES.get(name, set()), name


def test_things_with_options_are_those_of_the_version():
    found = {name for name in METHODS if issubclass(getattr(contracts, name), contracts.Configurable)}
    assert found == CONFIGURABLE | {"Configurable"}


def test_records_have_the_fields_of_the_version():
    for name, expected in RECORDS.items():
        record = getattr(contracts, name)
        found = [field.name for field in fields(record)] if is_dataclass(record) else list(record._fields)
        assert found == expected, name


def test_choices_are_those_of_the_version():
    for name, expected in CHOICES.items():
        choice = getattr(contracts, name)
        enumerated = isinstance(choice, type) and issubclass(choice, Enum)
        assert set(choice.__members__ if enumerated else get_args(choice)) == expected, name


def test_a_json_file_is_a_text_and_empty_by_default():
    assert issubclass(contracts.JsonFile, str) and contracts.JsonFile() == ""


def test_every_contract_is_pinned_here():
    pinned = {*METHODS, *RECORDS, *CHOICES, "JsonFile", "State", "Weights"}
    assert {name for name in contracts.__all__ if not name.isupper()} == pinned


def test_functions_for_plugins_are_those_of_the_version():
    for function, expected in HELPERS.items():
        assert parameters(function).replace("=None", "").replace(" = None", "") == expected, function
