"""A process that is measured from inside: ``python -m bench.worker MODULE:CLASS ARGUMENT...``.

It obeys lines of JSON, ``{"do": method, "with": {...}}``, one after the other, and answers each
with one: ``{"answer": ...}`` or ``{"error": ...}``. Needs nothing but what the class imports.
"""

from __future__ import annotations

import importlib
import json
import sys

__all__ = ["main"]


def main(subject: str, *arguments: str) -> None:
    answers, sys.stdout = sys.stdout, sys.stderr

    def say(**answer: object) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    try:
        module, _, name = subject.partition(":")
        worker = getattr(importlib.import_module(module), name)(*arguments)
    except Exception as error:
        say(error=f"{type(error).__name__}: {error}")
        return
    say(answer="ready")
    for line in sys.stdin:
        order = json.loads(line)
        try:
            answer = getattr(worker, order["do"])(**order["with"])
        except Exception as error:
            say(error=f"{type(error).__name__}: {error}")
        else:
            say(answer=answer)
    worker.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
