"""Folders of the repository, for tests that read its files."""

from pathlib import Path

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent
PUBLISHED = ROOT / "leaderboards" / "runs"
