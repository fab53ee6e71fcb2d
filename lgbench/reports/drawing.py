"""Drawing library in a child process, because the library's JavaScript engine ends the whole process when memory runs out."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from lgbench.errors import DrawingFailed

WAYS_OUT = (
    "more memory helps, or a higher `ulimit -v`, and so do fewer entries or a single board; a figure named FILE.json is the "
    "specification itself"
)


def drawn(function: str, spec: Mapping[str, Any], **options: Any) -> bytes:
    """Result of a `vl_convert` function for a specification, as bytes; text is UTF-8. DrawingFailed if it fails or dies."""
    # -P: no imports from the current folder
    words = [sys.executable, "-P", "-c", "from lgbench.reports.drawing import serve; serve()"]
    request = json.dumps([function, spec, options]).encode()
    done = subprocess.run(words, input=request, capture_output=True, check=False)
    if done.returncode:
        said = [line.strip("# ") for line in done.stderr.decode(errors="replace").splitlines() if line.strip("# ")]
        died = done.returncode < 0
        reason = next((line for line in said if "memory" in line.lower()), said[-1] if said and not died else "")
        how = f"was ended by {signal.Signals(-done.returncode).name}" if died else "failed"
        raise DrawingFailed(f"the drawing library {how}{f' ({reason})' if reason else ''}, and nothing was written; {WAYS_OUT}")
    return done.stdout


def serve() -> None:
    """Draw the request on standard input and write the result to standard output."""
    out = os.dup(1)
    os.dup2(2, 1)  # prints of the library go to standard error
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core dump from a crashed engine
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it at once, without a traceback
    import vl_convert  # not at the top: the command itself never loads the engine

    function, spec, options = json.load(sys.stdin)
    found = getattr(vl_convert, function)(spec, **options)
    with open(out, "wb") as pipe:
        pipe.write(found.encode() if isinstance(found, str) else found)
