"""Sources of plugins that provide a norm, and do something when they are imported, asked, built or used."""

from __future__ import annotations

SOURCE = """
import atexit, os, signal, sys, threading, time
import torch
from torch import nn
from lgbench import NormScheme, hookimpl

DEFAULTS = {{"scale": 1.0}}
{first}

class Residual(nn.Module):
    def __init__(self, sublayer):
        super().__init__()
        self.sublayer = sublayer

    def forward(self, x):
        {forward}
        return x + DEFAULTS["scale"] * self.sublayer(x)

class Scheme(NormScheme):
    {about}
    name = "{name}"

    def embed(self, *given):
        return nn.Identity()

    output = final = embed

    def residual(self, spec, sublayer):
        {build}
        return Residual(sublayer)

@hookimpl
def lgbench_norms():
    {asked}
    return [Scheme()]
"""


def norm_source(
    name: str, first: str = "", asked: str = "pass", build: str = "pass", forward: str = "pass", about: str = "'Nothing.'"
) -> str:
    """Source with statements at its beginning, in its hook, and in the methods of its norm."""
    return SOURCE.format(name=name, first=first, asked=asked, build=build, forward=forward, about=about)
