"""The code of a source, without its words: what the identity of a run is taken of."""

from __future__ import annotations

import io
import tokenize

import pytest

from lgbench.checkout import ROOT, code

LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def tokens(source: bytes) -> list[str]:
    """The tokens of a source without layout and comments, and without strings that are a whole statement."""
    found = [t for t in tokenize.tokenize(io.BytesIO(source).readline) if t.type not in (tokenize.COMMENT, tokenize.NL)]
    kept = []
    for before, token, after in zip([None, *found], found, [*found[1:], None], strict=False):
        alone = before is None or before.type in LAYOUT
        if token.type == tokenize.STRING and alone and (after is None or after.type in LAYOUT):
            continue
        if token.type not in LAYOUT:
            kept.append(token.string)
    return kept


def test_nothing_but_words_goes_from_the_sources_of_the_repository() -> None:
    """From every tenth, for reading tokens takes seconds."""
    sources = sorted(path for folder in ("lgbench", "plugins") for path in (ROOT / folder).rglob("*.py"))[::10]
    assert len(sources) > 10
    for path in sources:
        source = path.read_bytes()
        try:
            assert tokens(code(source)) == tokens(source), path
        except SyntaxError:
            assert b"{{" in source, path  # a template


@pytest.mark.parametrize(
    ("words", "plain"),
    [
        (b'"""About."""\nx = 1\n', b"x = 1\n"),
        (b"x = 1 # why\n\n\n# more\ny = 2\n", b"x = 1\ny = 2\n"),
        (b'def f():\n    """About\n\n    more."""\n    return "# no comment"\n', b'def f():\n    return "# no comment"\n'),
        ('x = "é" # é\n'.encode(), 'x = "é"\n'.encode()),
        (b'class A:\n    x: int = 1\n    """A field."""  # and a comment\n', b"class A:\n    x: int = 1\n"),
    ],
)
def test_words_do_not_count(words: bytes, plain: bytes) -> None:
    assert code(words) == plain == code(plain)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"x = 1\n", b"x = 2\n"),
        (b'x = """a\n\nb"""\n', b'x = """a\nb"""\n'),  # a blank line of a text that computes
        (b'x = """a  \nb"""\n', b'x = """a\nb"""\n'),
        (b"if x:\n    y = 1\nz = 2\n", b"if x:\n    y = 1\n    z = 2\n"),
        (b'f("""text""")\n', b"f()\n"),
    ],
)
def test_code_counts(one: bytes, other: bytes) -> None:
    assert code(one) != code(other)


def test_a_source_that_python_cannot_read_counts_as_it_is() -> None:
    assert code(b"def (:  # why\n") == b"def (:  # why\n"
