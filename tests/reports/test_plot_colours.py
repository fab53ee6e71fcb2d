"""Colours, shapes and dashes of entries, as different eyes see them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lgbench.reports import marks, plots


def test_entries_look_different_to_everyone_and_on_every_paper():
    seen = {kind: [seen_as(colour, kind) for colour in marks.COLOURS] for kind in SIMULATED}
    for first, second in itertools.combinations(range(len(marks.COLOURS)), 2):
        for kind, colours in seen.items():
            assert difference(colours[first], colours[second]) > 11, (kind, first, second)
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


def difference(one, other):
    """CIEDE2000 (Sharma, Wu and Dalal 2005)."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    chroma = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    g = 0.5 * (1 - np.sqrt(chroma**7 / (chroma**7 + 25**7)))
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = np.degrees(np.arctan2(b1, a1)) % 360, np.degrees(np.arctan2(b2, a2)) % 360
    turn = 0 if c1 * c2 < 1e-9 else (h2 - h1 + 180) % 360 - 180
    hue = h1 + h2 if c1 * c2 < 1e-9 else (h1 + turn / 2) % 360
    d_hue = 2 * np.sqrt(c1 * c2) * np.sin(np.radians(turn) / 2)
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    cos = [np.cos(np.radians(k * hue - shift)) for k, shift in ((1, 30), (2, 0), (3, -6), (4, 63))]
    t = 1 - 0.17 * cos[0] + 0.24 * cos[1] + 0.32 * cos[2] - 0.2 * cos[3]
    s_l = 1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2)
    s_c, s_h = 1 + 0.045 * chroma, 1 + 0.015 * chroma * t
    around = 60 * np.exp(-(((hue - 275) / 25) ** 2))
    rotation = -2 * np.sqrt(chroma**7 / (chroma**7 + 25**7)) * np.sin(np.radians(around))
    steps = (l2 - l1) / s_l, (c2 - c1) / s_c, d_hue / s_h
    return np.sqrt(sum(step**2 for step in steps) + rotation * steps[1] * steps[2])


def test_the_difference_of_colours_is_that_of_its_paper():
    """Pairs 1, 7, 17 and 24 of the paper's table."""
    for one, other, expected in [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 0, 0), (50, -1, 2), 2.3669),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((50, 2.5, 0), (50, 3.2592, 0.335), 1.0),
    ]:
        assert difference(one, other) == pytest.approx(expected, abs=1e-4)
