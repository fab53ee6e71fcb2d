"""Training and testing mix no devices: on a device of PyTorch's that has no values, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from helpers.folders import TESTS
from packaging.version import Version

FILE = TESTS / "helpers" / "fake_device.py"
SHARES = 16

pytestmark = pytest.mark.skipif(Version(torch.__version__) < Version("2.10"), reason="this PyTorch has no such device")


def on_device(*what: object) -> Any:
    command = [sys.executable, FILE, *map(str, what)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env=os.environ | {"PYTHONPATH": str(TESTS)}, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_model_that_mixes_devices_is_caught():
    found = on_device("faults")
    assert found.pop("none") is None
    assert [name for name, sentence in found.items() if sentence is None] == []
    words = {
        "a constant on the CPU": "cpu",
        "a number that is copied to the device": "_to_copy.default has tensors on cpu and gpu:0",
        "a value that is asked for": "",
    }
    assert found.keys() == words.keys()
    assert all(words[name] in sentence for name, sentence in found.items()), found


@pytest.mark.slow
def test_training_and_testing_mix_no_devices():
    assert on_device("few") == [None]


@pytest.mark.long
@pytest.mark.usefixtures("all_plugins")
@pytest.mark.parametrize("share", range(SHARES))
def test_no_part_pack_optimizer_or_averager_mixes_devices(share):
    found = on_device("share", share, SHARES)
    assert [sentence for sentence in found if sentence] == []
    assert found
