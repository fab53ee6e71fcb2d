"""Options whose value is a JSON object, which users name by a file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NoReturn

from lgbench.errors import UsageError

MAX_BYTES = 2**20
"""Of a file. A longer one is not read."""
MAX_LETTERS = 1000
"""Of an object without spaces. The footer of a run has no longer text."""


def content(key: str, text: str) -> str:
    """The object in the file of that name, with sorted keys and no spaces. A text that begins with a brace is one itself.

    Raises UsageError, naming the option `key`.
    """
    if is_object(text):
        said, where = text, key
    else:
        said, where = _read(key, text), f"{key}={text!r}"
    try:
        found = json.loads(said, parse_constant=_refuse)
    except RecursionError:
        raise UsageError(f"{where} is nested too deeply: expected a JSON object") from None
    except ValueError as error:
        raise UsageError(f"{where} is no JSON: {error}; expected a JSON object") from None
    if not isinstance(found, dict):
        raise UsageError(f"{where} is {_kind(found)}: expected a JSON object")
    compact = json.dumps(found, sort_keys=True, separators=(",", ":"))
    if len(compact) > MAX_LETTERS:
        raise UsageError(
            f"{where} has {len(compact)} letters without spaces, and at most {MAX_LETTERS} fit into the footer of a run: "
            "leave out what is as by default"
        )
    return compact


def is_object(text: str) -> bool:
    """Whether the value of an option is an object itself, not the name of a file."""
    return text.startswith("{")


def label(value: object) -> str:
    """The value of a changed setting as the titles of boards have it: of an object, its SHA-256, shortened."""
    text = str(value)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}" if isinstance(value, str) and is_object(text) else text


def _read(key: str, text: str) -> str:
    try:
        with Path(text).expanduser().open("rb") as file:
            found = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{key}={text!r} cannot be read: {error.strerror}; name a file with a JSON object") from None
    except ValueError:  # a zero byte in the name
        raise UsageError(f"{key}={text!r} is no name of a file; name a file with a JSON object") from None
    if len(found) > MAX_BYTES:
        raise UsageError(f"{key}={text!r} is larger than {MAX_BYTES // 2**20} MB: expected a file with a JSON object")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{key}={text!r} is no text file: expected a file with a JSON object") from None


def _kind(found: Any) -> str:
    names = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number", type(None): "null"}
    return f"JSON, but {names[type(found)]}"


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
