"""The effective length."""

from __future__ import annotations

from collections.abc import Sequence


def effective_length(lengths: Sequence[int], reached: Sequence[bool]) -> int:
    """The longest length up to which every mean is better than the threshold, 0 if the first is not.

    >>> effective_length([8, 16, 32, 64], [True, True, False, True])
    16
    """
    longest = 0
    for length, good in zip(lengths, reached, strict=True):
        if not good:
            break
        longest = length
    return longest
