"""Numbers of an execution, and memory of its process: the kernel counts how often freed memory has to be fetched anew."""

import platform
import re
import shutil
import subprocess
import sys

import pytest
import torch
from helpers.processes import python

from lgbench import RunOptions, UsageError
from lgbench.execution.device import Execution, as_in_runs, device_name

resource = pytest.importorskip("resource")

PROGRAM = """
import resource, sys, torch
if sys.argv[1] == "kept":
    from lgbench.execution.device import keep_freed_memory
    keep_freed_memory()
def use():
    several = [torch.ones(2**19) for _ in range(64)]  # 2 MiB each
for _ in range(3):
    use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how):
    # With this threshold every block goes back to the system; without it, that depends on what was freed before.
    return int(python(PROGRAM, how, MALLOC_MMAP_THRESHOLD_=str(2**17)).stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have another allocator")
def test_results_of_many_megabytes_are_not_fetched_from_the_system_again_and_again():
    assert faults("kept") < faults("given back") / 10


def tiny():
    """2^-130, by products of normal numbers and of subnormal ones, as an element and in a matrix product."""
    small, subnormal = torch.full((64, 64), 2.0**-65), torch.tensor([2.0**-128])
    return [
        (small * small)[0, 0].item() * 2.0**130,
        (small @ small)[0, 0].item() * 2.0**124,
        (subnormal * 0.25).item() * 2.0**130,
    ]


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor always computes with subnormal numbers")
def test_a_run_takes_subnormal_numbers_for_zero_and_the_process_goes_on_as_before():
    for before, outside in ((False, [1, 1, 1]), (True, [0, 0, 0])):
        torch.set_flush_denormal(before)
        try:
            with as_in_runs(torch.device("cpu")):
                assert tiny() == [0, 0, 0]
            assert tiny() == outside
        finally:
            torch.set_flush_denormal(False)


@pytest.mark.parametrize(
    ("option", "value"), [("checkpoint", -0.1), ("checkpoint", float("nan")), ("population", 0), ("workers", 0)]
)
def test_a_number_out_of_range_is_told(option, value):
    with pytest.raises(UsageError, match=f"--{option} is {value}, expected "):
        Execution.of(RunOptions("tomita", "pre-norm", **{option: value}))


@pytest.mark.skipif(platform.machine() != "x86_64" or not shutil.which("lscpu"), reason="no model is named")
def test_the_device_of_a_run_names_the_cpu_as_lscpu_does():
    shown = subprocess.run(["lscpu"], capture_output=True, text=True, check=True, env={"LC_ALL": "C"}).stdout
    [model] = re.findall(r"^Model name: +(.+)$", shown, re.MULTILINE)
    assert device_name(torch.device("cpu")).startswith(f"cpu ({model.strip()}, ")
