"""Plant small faults in coordlock, one at a time, and see which of them the tests catch.

``draw`` picks faults with cosmic-ray's operators and writes them to ``tests/mutants/drawn.json``:
file, line, operator, the line before and after, and the function around it, by which a fault is
found again after its file moved. It replaces listed faults whose lines have gone by others of the
same room. ``run`` plants each fault in a copy of the tree. First it runs the test that caught the
fault last time, then those that need no servers, of the fault's own room first, and with
``--whole`` the whole suite. It prints a table, and keeps each result in
``build/mutants/results.json``, so that a run goes on where it stopped. ``record`` adds what was
caught to the list: a later run fails if it misses one of these.
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
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
DRAWN: Final = ROOT / "tests/mutants/drawn.json"
BUILD: Final = ROOT / "build/mutants"
RESULTS: Final = BUILD / "results.json"
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
#: A fault may make any test hang.
TEST_TIMEOUT_S: Final = 120
STAGE_TIMEOUT_S: Final = 1800

Fault = dict[str, Any]


def is_code(source: str) -> bool:
    """Whether Python can compile a changed file: some changes of a walrus make none."""
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def scope(source: str, line: int) -> str:
    """The qualified name of the innermost function or class around a line."""
    names: list[str] = []
    inside: ast.AST = ast.parse(source)
    while True:
        for node in ast.iter_child_nodes(inside):
            if getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", 0) or 0):
                inside = node
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    names.append(node.name)
                break
        else:
            return ".".join(names)


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
        "scope": scope(source, at + 1),
        "operator": name.removeprefix("core/"),
        "before": before[at],
        "after": after[at],
    }


def places(room: str) -> list[tuple[Path, str, int]]:
    """Where each operator can change the code of a room."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    names = filter(OPERATORS.fullmatch, sorted(operator_names()))
    operators = {name: get_operator(name)() for name in names}
    found: list[tuple[Path, str, int]] = []
    for path in sorted(path for path in (ROOT / room).rglob("*.py") if "_pb2" not in path.name):
        nodes = list(ast_nodes(get_ast_from_path(path)))
        for name, operator in operators.items():
            count = sum(len(list(operator.mutation_positions(node))) for node in nodes)
            found += [(path, name, occurrence) for occurrence in range(count)]
    return found


def draw(seed: int, count: int) -> None:
    """Fill the list with faults, as many from each room, at most one a line."""
    listed: Fault = json.loads(DRAWN.read_text()) if DRAWN.exists() else {"faults": [None] * count}
    faults: list[Fault | None] = listed["faults"]
    lines = [fault and find(ROOT, fault) for fault in faults]
    chance = random.Random(seed)
    for number, room in enumerate(ROOMS):
        mine = range(number * len(faults) // len(ROOMS), (number + 1) * len(faults) // len(ROOMS))
        gone = [at for at in mine if not lines[at]]
        choice = places(room) if gone else []
        chance.shuffle(choice)
        for at in gone:
            while (fault := made(*choice.pop())) is None or find(ROOT, fault) in lines:
                pass
            lines[at] = find(ROOT, fault)
            if faults[at]:
                fault["redrawn"] = f"the line is gone; seed {seed}"
            faults[at] = fault
    DRAWN.write_text(json.dumps({"seed": seed, **listed}, indent=1) + "\n")


def find(tree: Path, fault: Fault) -> tuple[Path, int] | None:
    """Where the line of a fault is now: near its place, or in the file its function moved to."""
    found: list[tuple[bool, bool, int, Path, int]] = []
    for room in ("coordlock", "backends"):
        for path in (tree / room).rglob("*.py"):
            source = path.read_text()
            if fault["before"] not in source:
                continue
            is_elsewhere = path != tree / fault["file"]
            for line, text in enumerate(source.split("\n"), 1):
                if text == fault["before"]:
                    is_other = not fault["scope"] or scope(source, line) != fault["scope"]
                    if not (is_elsewhere and is_other):
                        away = abs(line - fault["line"])
                        found.append((is_other, is_elsewhere, away, path, line))
    return min(found)[3:] if found else None


def tests(tree: Path, workers: int, *arguments: str) -> tuple[str, str]:
    """Whether a run of pytest in a copy of the tree failed, and the first test that did."""
    folders = ("", "backends", "packages/coordlock-faults")
    paths = os.pathsep.join(str(tree / folder) for folder in folders)
    pytest = (sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider")
    spread = ("-n", str(workers)) if workers else ()
    command = [*pytest, *spread, f"--timeout={TEST_TIMEOUT_S}"]
    command += ["--timeout-method=thread", *arguments]
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
    if done.returncode == 0 or "no tests ran" in done.stdout:  # that test may have gone
        return "survived", ""
    if failed := re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE):
        return "caught", failed[1]
    output = done.stdout + done.stderr
    if hung := re.search(r'/(tests/\S+\.py)", line \d+, in (test_\w+)', output):
        return "caught", f"{hung[1]}::{hung[2]} did not end"
    if "+ Timeout +" in output:  # a fixture hung
        return "caught", f"{arguments[-1]} did not end"
    return "caught", output.strip()[-200:]


def copy(tree: Path) -> None:
    """Copy what git knows of the project, as it is now."""
    shutil.rmtree(tree, ignore_errors=True)
    command = ["git", "ls-files", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).exists():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)


def stages(tree: Path, fault: Fault, whole: bool) -> dict[str, tuple[str, ...]]:
    """The suites that a fault meets, the likeliest to catch it first, and pytest's arguments."""
    fast = ("--without=etcd,postgres,redis,zookeeper", "-m", "not faults and not long and not slow")
    room = Path(fault["file"]).parts[1].removeprefix("coordlock_")
    own = f"tests/unit/{room}"
    suites: dict[str, tuple[str, ...]] = {}
    if "caught" in fault:
        suites["again"] = (fault["caught"].partition("[")[0].partition(" ")[0],)
    if (tree / own).is_dir():
        suites["own"] = (*fast, own)
    rest = ("--ignore", own, "--ignore=tests/unit/bench")
    suites["unit"] = (*fast, "tests/unit", *rest)
    suites["simulation"] = (*fast, "tests/simulation")
    suites["contract"] = (*fast, "tests/contract")
    if whole:
        suites["whole"] = ("-m", "not long", "tests")
    return suites


def try_out(tree: Path, fault: Fault, result: Fault, whole: bool, workers: int) -> Fault:
    """The outcome of a fault, after the stages that an earlier run of this script left."""
    if "equivalent" in fault:
        return {"outcome": "equivalent"}
    if (place := find(tree, fault)) is None:
        return {"outcome": "gone"}
    path, line = place
    source = path.read_text()
    lines = source.split("\n")
    lines[line - 1] = fault["after"]
    path.write_text("\n".join(lines))
    began = time.monotonic()
    survived = result.get("survived", [])
    try:
        for stage, arguments in stages(tree, fault, whole).items():
            if result.get("outcome") == "caught" or stage in survived:
                continue
            spread = 0 if stage == "again" else workers  # to start workers takes longer than a test
            outcome, by = tests(tree, spread, *arguments)
            result = {"outcome": outcome, "seconds": round(time.monotonic() - began)}
            if outcome == "caught":
                return {**result, "stage": stage, "by": by}
            survived = [*survived, stage]
            result["survived"] = survived
    finally:
        path.write_text(source)
    return result


def run(workers: int, whole: bool, only: list[int]) -> int:
    """Plant each fault and print what caught it; 1 if one survived that an earlier suite caught."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    copy(BUILD / "tree")
    missed = 0
    for number, fault in enumerate(json.loads(DRAWN.read_text())["faults"], 1):
        if only and number not in only:
            continue
        result = try_out(BUILD / "tree", fault, results.get(str(number), {}), whole, workers)
        results[str(number)] = result
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        missed += result["outcome"] == "survived" and "caught" in fault
        place = f"{fault['file']}:{fault['line']} {fault['operator']}"
        why = fault.get("equivalent") or result.get("by", "")
        print(
            f"{number:3} {result['outcome']:10} {result.get('stage', ''):10} "
            f"{result.get('seconds', 0):5} s  {place}  {why}",
            flush=True,
        )
    outcomes = Counter(result["outcome"] for result in results.values())
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
    return min(missed, 1)


def record() -> None:
    """Write to the list what caught each fault, so that it must be caught, and where it is now."""
    listed = json.loads(DRAWN.read_text())
    results = json.loads(RESULTS.read_text())
    for number, fault in enumerate(listed["faults"], 1):
        if results.get(str(number), {}).get("outcome") == "caught":
            fault["caught"] = results[str(number)]["by"]
        if place := find(ROOT, fault):
            fault["file"], fault["line"] = str(place[0].relative_to(ROOT)), place[1]
    DRAWN.write_text(json.dumps(listed, indent=1) + "\n")


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
    commands.add_parser("record", help="add what a run caught to the list")
    options = parser.parse_args()
    match options.command:
        case "draw":
            draw(options.seed, options.count)
        case "record":
            record()
        case _:
            return run(options.workers, options.whole, options.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
