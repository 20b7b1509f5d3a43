"""Plant small faults in coordlock, one at a time, and see which of them the tests catch.

``draw`` picks faults with cosmic-ray's operators and writes them to ``tests/mutants/drawn.json``:
file, line, operator, the line before and after. ``run`` plants each in a copy of the tree, runs the
tests that need no servers and, with ``--whole``, the whole suite on what survives them. It prints a
table, and keeps each result in ``build/mutants/results.json``, so that a run goes on where it
stopped.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
DRAWN: Final = ROOT / "tests/mutants/drawn.json"
BUILD: Final = ROOT / "build/mutants"
ROOMS: Final = (
    "coordlock/model",
    "coordlock/kernel",
    "coordlock/locks",
    "coordlock/work",
    "coordlock/jobs",
    "backends",
)
#: Other operators change type hints, or make code that no test could miss.
OPERATORS: Final = re.compile(
    r"core/(ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt)"
    r"|ReplaceBinaryOperator_(Add_Sub|Sub_Add)|ReplaceUnaryOperator_Delete_Not"
    r"|AddNot|Replace(True|False)With\w+|Replace(And|Or)With\w+|Replace(Break|Continue)With\w+"
    r"|ZeroIterationForLoop)"
)
STAGE_TIMEOUT_S: Final = 1800

Fault = dict[str, Any]


def is_code(source: str) -> bool:
    """Whether Python can compile a changed file: some changes of a walrus make none."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def made(path: Path, name: str, occurrence: int) -> Fault | None:
    """The fault that an operator makes at one of its places; None if it changes no single line."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    source = path.read_text()
    changed = mutate_code(source, get_operator(name)(), occurrence) or source
    before, after = source.splitlines(), changed.splitlines()
    pairs = enumerate(zip(before, after, strict=False))
    different = [at for at, (old, new) in pairs if old != new]
    if len(before) != len(after) or len(different) != 1 or not is_code(changed):
        return None
    at = different[0]
    return {
        "file": str(path.relative_to(ROOT)),
        "line": at + 1,
        "operator": name.removeprefix("core/"),
        "before": before[at],
        "after": after[at],
    }


def draw(seed: int, count: int) -> None:
    """Write a list of faults, as many from each room, at most one a line."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    chance = random.Random(seed)
    names = filter(OPERATORS.fullmatch, sorted(operator_names()))
    operators = {name: get_operator(name)() for name in names}
    drawn: list[Fault] = []
    for room in ROOMS:
        places: list[tuple[Path, str, int]] = []
        for path in sorted(path for path in (ROOT / room).rglob("*.py") if "_pb2" not in path.name):
            nodes = list(ast_nodes(get_ast_from_path(path)))
            for name, operator in operators.items():
                found = sum(len(list(operator.mutation_positions(node))) for node in nodes)
                places += [(path, name, occurrence) for occurrence in range(found)]
        chance.shuffle(places)
        faults: dict[tuple[str, int], Fault] = {}
        while len(faults) < count // len(ROOMS):
            if fault := made(*places.pop()):
                faults.setdefault((fault["file"], fault["line"]), fault)
        drawn += [faults[place] for place in sorted(faults)]
    DRAWN.write_text(json.dumps({"seed": seed, "faults": drawn}, indent=1) + "\n")
    print(f"wrote {len(drawn)} faults to {DRAWN.relative_to(ROOT)}")


def plant(tree: Path, fault: Fault) -> bool:
    """Change the line of a fault in a copy of the tree; False if that line is no longer there."""
    path = tree / fault["file"]
    if not path.exists():
        return False
    lines = path.read_text().split("\n")
    at = [number for number, line in enumerate(lines, 1) if line == fault["before"]]
    if not at:
        return False
    lines[min(at, key=lambda number: abs(number - fault["line"])) - 1] = fault["after"]
    path.write_text("\n".join(lines))
    return True


def tests(tree: Path, workers: int, *arguments: str) -> tuple[str, str]:
    """Whether a run of pytest in a copy of the tree failed, and the first test that did."""
    folders = ("", "backends", "packages/coordlock-faults")
    paths = os.pathsep.join(str(tree / folder) for folder in folders)
    pytest = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
    command = [*pytest, "-n", str(workers), *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=STAGE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "caught", "the tests did not end"
    if done.returncode == 0:
        return "survived", ""
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return "caught", failed[1] if failed else (done.stdout + done.stderr).strip()[-200:]


def copy(tree: Path) -> None:
    """Copy what git knows of the project, as it is now."""
    shutil.rmtree(tree, ignore_errors=True)
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)


def try_out(fault: Fault, result: Fault, stages: dict[str, tuple[str, ...]], workers: int) -> Fault:
    """The outcome of a fault, after the stages that an earlier run of this script left."""
    survived = result.get("survived", [])
    for stage, arguments in stages.items():
        if result.get("outcome") == "caught" or stage in survived:
            continue
        copy(BUILD / "tree")
        if not plant(BUILD / "tree", fault):
            return {"outcome": "gone"}
        outcome, by = tests(BUILD / "tree", workers, *arguments)
        if outcome == "caught":
            return {"outcome": outcome, "stage": stage, "by": by}
        survived = [*survived, stage]
        result = {"outcome": outcome, "survived": survived}
    return result


def run(workers: int, whole: bool, only: list[int]) -> int:
    """Plant each fault and print what caught it; 1 if one survived that an earlier suite caught."""
    BUILD.mkdir(parents=True, exist_ok=True)
    kept = BUILD / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    fast = ("--without=etcd,postgres,redis,zookeeper", "-m", "not faults and not long")
    stages: dict[str, tuple[str, ...]] = {
        "unit": (*fast, "tests/unit"),
        "simulation": (*fast, "tests/simulation", "tests/contract"),
    }
    if whole:
        stages["whole"] = ("-m", "not long", "tests")
    missed = 0
    for number, fault in enumerate(json.loads(DRAWN.read_text())["faults"], 1):
        if only and number not in only:
            continue
        result = try_out(fault, results.get(str(number), {}), stages, workers)
        results[str(number)] = result
        kept.write_text(json.dumps(results, indent=1))
        missed += result["outcome"] == "survived" and bool(fault.get("caught"))
        place = f"{fault['file']}:{fault['line']} {fault['operator']}"
        why = fault.get("equivalent") or result.get("by", "")
        print(
            f"{number:3} {result['outcome']:8} {result.get('stage', ''):10} {place}  {why}",
            flush=True,
        )
    return min(missed, 1)


def main() -> int:
    """Run the command of the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="pick faults; needs `pip install cosmic-ray`")
    drawing.add_argument("--seed", type=int, required=True)
    drawing.add_argument("--count", type=int, default=60)
    running = commands.add_parser("run", help="plant each fault, and run the tests")
    running.add_argument("--workers", type=int, default=6)
    running.add_argument("--whole", action="store_true", help="run all tests on what survived")
    running.add_argument("--only", type=int, nargs="*", default=[], help="numbers of faults")
    options = parser.parse_args()
    if options.command == "draw":
        draw(options.seed, options.count)
        return 0
    return run(options.workers, options.whole, options.only)


if __name__ == "__main__":
    sys.exit(main())
