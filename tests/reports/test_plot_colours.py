"""Colours, shapes and dashes of entries, as different eyes see them."""

from __future__ import annotations

import itertools

import numpy as np

from lgbench.reports import marks, plots


def test_entries_look_different_to_everyone_and_on_every_paper():
    seen = {kind: [seen_as(colour, kind) for colour in marks.COLOURS] for kind in SIMULATED}
    for first, second in itertools.combinations(range(len(marks.COLOURS)), 2):
        for kind, colours in seen.items():
            assert np.linalg.norm(colours[first] - colours[second]) > 15, (kind, first, second)  # CIE 1976
    for colour in marks.COLOURS:
        assert 1.05 / (luminance(colour) + 0.05) >= 3  # WCAG 2.1, 1.4.11


def test_entries_look_different_in_grey_too():
    """By shape, always; and neighbours of the legend by how dark they are, or by their dashes."""
    assert len(set(marks.SHAPES)) == len(marks.COLOURS) == plots.MAX_UNNAMED
    looks = [(marks.SHAPES[i % 8], marks.DASHES[i % 5]) for i in range(marks.MAX_ENTRIES)]
    assert len(set(looks)) == marks.MAX_ENTRIES
    for i in range(plots.MAX_UNNAMED):
        darker = abs(lightness(marks.COLOURS[i]) - lightness(marks.COLOURS[i - 1])) > 10
        assert darker or marks.DASHES[i % 5] != marks.DASHES[(i - 1) % 5]


# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
SIMULATED = {
    "all cones": np.eye(3),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]),
    "tritanopia": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]),
}
XYZ = np.array([[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]])


def linear(colour):
    values = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    return XYZ[1] @ linear(colour)


def lightness(colour):
    return seen_as(colour, "all cones")[0]


def seen_as(colour, kind):
    """CIELAB (L, a, b) under D65."""
    xyz = XYZ @ np.clip(SIMULATED[kind] @ linear(colour), 0, 1) / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])
