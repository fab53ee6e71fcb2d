"""Position codes that are added to the embedding. m is the position, d the width, i counts pairs of features."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from lgbench import Position
from lgbench.noise import Noise

BASE = 10_000
"""The base of the wavelengths, as in arXiv 1706.03762 and in the methods that build on it."""
TABLE_STD = 0.02
"""The standard deviation of a new table of positions."""


def angles(positions: Tensor, features: int) -> Tensor:
    """m * 10000^(-2i / features) for every pair i of features: positions (..., T) of float64 -> (..., T, ceil(features / 2)).

    In float64, because float32 has only three decimals left at an angle of 16384.
    """
    pairs = torch.arange(0, features, 2, device=positions.device, dtype=positions.dtype)
    return positions[..., None] * BASE ** (-pairs / features)


def cos_and_sin(angle: Tensor, scale: Tensor | float = 1.0) -> tuple[Tensor, Tensor]:
    """scale * cos(angle) and scale * sin(angle), both of the shape of the angles.

    As parts of a complex number: the compiler would compute real ones anew for each context, and double the time of RoPE.
    """
    cos, sin = torch.view_as_real(torch.polar(torch.ones_like(angle) * scale, angle)).unbind(-1)
    return cos, sin


class Sinusoids(nn.Module):
    """x + sin or cos of the angles of each position."""

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """(B, T, d), position ids (B, T) -> (B, T, d)."""
        length, width = x.shape[-2:]
        at = torch.arange(length, device=x.device, dtype=torch.float64) if positions is None else positions.double()
        cos, sin = cos_and_sin(angles(at, width))
        code = torch.stack((sin, cos), dim=-1).flatten(-2)[..., :width]
        return x + code.to(x.dtype)


@final
class Sinusoidal(Position):
    """Sines and cosines of the position, added to the embedding (arXiv 1706.03762, section 3.5).

    PE(m, 2i) = sin(m / 10000^(2i / d)), PE(m, 2i + 1) = cos(m / 10000^(2i / d)). Of an odd width the last feature is a
    sine. Our choice: the embedding is not multiplied by sqrt(d) first. The paper multiplies it.
    """

    name = "sinusoidal"
    reads_positions = True

    def embed(self, width: int, positions: int) -> Sinusoids:
        return Sinusoids()


class RandomRows(nn.Module):
    """x + T rows of a table: in training a random subset in order, in evaluation the first T."""

    def __init__(self, width: int, positions: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(positions, width))
        nn.init.normal_(self.table, std=TABLE_STD)
        self.noise = Noise(positions)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """(B, T, d), position ids (B, T) -> (B, T, d); the contexts of a batch share their rows."""
        length, rows = x.shape[-2], self.table.shape[0]
        if positions is not None:
            length = min(length, rows)  # ids of a context are below its length, unless the task says otherwise
            codes = self.table[self.subset(length)] if self.training else self.table
            return x + codes[positions.clamp(max=len(codes) - 1)]
        if length > rows:
            raise ValueError(f"the table of positions has {rows} rows, and the input is {length} long")
        return x + (self.table[self.subset(length)] if self.training else self.table[:length])

    def subset(self, length: int) -> Tensor:
        """The rows that this step takes, (length,): those with the smallest noise, in the table's order."""
        noise: Tensor = self.noise()
        return noise.topk(length, largest=False).indices.sort().values


@final
class RandomisedLearned(Position):
    """A learned table whose rows are, in training, a random ordered subset (arXiv 2305.16843, section 3, learned variant).

    x_m + E[I_m], where I_0 < I_1 < ... are T of the table's N rows, uniform among all such subsets. They are drawn anew at
    every step and shared by the batch, so short inputs train all rows. Our choices: N is the length of the longest input that
    the model will get (2048 in the paper). In evaluation the rows are the first T; the paper draws a subset there too. So a
    prefix has the same code alone and within a longer input, and an input of N positions uses all rows in order either way.
    E starts normal with standard deviation 0.02. With position ids m is the id, and N the number of ids. The subset still has
    as many rows as the context has tokens, so where ids are fewer than tokens the last rows stay untrained; `coupled` is
    for such tasks. In training an id of T or more takes the last of the T rows.
    """

    name = "randomised-learned"
    reads_positions = True

    def embed(self, width: int, positions: int) -> RandomRows:
        return RandomRows(width, positions)


class ShiftedRows(nn.Module):
    """x + the row of each position in a table: in training from a random row on, in evaluation from the first row on."""

    def __init__(self, width: int, positions: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(positions, width))
        nn.init.normal_(self.table, std=TABLE_STD)
        self.noise = Noise(1)

    def forward(self, x: Tensor, positions: Tensor | None = None) -> Tensor:
        """(B, T, d), position ids (B, T) -> (B, T, d); the contexts of a batch share their start."""
        at = torch.arange(x.shape[-2], device=x.device) if positions is None else positions
        if self.training:
            free = len(self.table) - at.amax()  # starts from which the largest position is still in the table
            at = at + (self.noise() * free).long()
        return x + self.table[at]


@final
class Coupled(Position):
    """A learned table with a random start in training: position coupling (arXiv 2405.20671), Abacus (arXiv 2405.17399).

    x_m + E[s + m], where m is the position id of a token. Tokens with one id, such as digits of equal significance, have one
    code. In training the start s is uniform among those that leave all ids in the table, drawn anew at every step and shared by
    the batch (by context in the papers); in evaluation s = 0 (1 in the paper). Without ids m is the place. E starts normal with
    standard deviation 0.02.
    """

    name = "coupled"
    reads_positions = True

    def embed(self, width: int, positions: int) -> ShiftedRows:
        return ShiftedRows(width, positions)
