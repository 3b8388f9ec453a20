"""Breaks the code on purpose, one text at a time; every break must turn a test red.

The idea: a check that can be removed without any test noticing is not tested. Mutants are data
(*.toml beside this file). Each is applied to a scratch copy of the tree, only the test program it
names is built (ccache makes that cheap), and only the tests it names are run. Fail closed: a mutant
whose text isn't found exactly once, that doesn't build, whose filter selects no test, or whose
tests are red already without it, counts against us like one that survives.

usage: mutants.py [--list] [--check] [--only TEXT] [--from FOLDER]
exit: 0 all killed; 1 a survivor or an unusable mutant; 2 usage or an unreadable list
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRATCH = ROOT / "build" / "mutants"
TREE = SCRATCH / "tree"
BUILD = SCRATCH / "build"
KEYS = {"name", "file", "find", "replace", "program", "filter"}
TEST_SECONDS = 120  # a mutant may loop for ever: that is a kill


def load(folder):
    """The mutants of all lists in `folder`, and the reasons that, by the lists, must have one."""
    mutants, required = [], []
    for path in sorted(folder.glob("*.toml")):
        with path.open("rb") as file:
            try:
                data = tomllib.load(file)
            except tomllib.TOMLDecodeError as error:
                sys.exit(usage(f"{path.name}: {error}"))
        required += data.get("required_reasons", [])
        for mutant in data.get("mutant", []):
            wrong = KEYS ^ (set(mutant) - {"reason"})
            if wrong:
                sys.exit(usage(f"{path.name}: {mutant.get('name')}: missing or unknown {wrong}"))
            mutants.append(mutant)
    names = [mutant["name"] for mutant in mutants]
    twice = {name for name in names if names.count(name) > 1}
    if twice or not mutants:
        sys.exit(usage(f"no mutants, or names used twice: {sorted(twice)}"))
    return mutants, required


def usage(text):
    print(f"mutants: {text}", file=sys.stderr)
    return 2


def copy_tree():
    """Brings TREE up to date with the checkout; what didn't change keeps its time, so that a second
    run builds little."""
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard"],
                            capture_output=True, text=True, check=True).stdout
    names = {name for name in listed.split("\0") if name and (ROOT / name).is_file()}
    for path in list(TREE.rglob("*")):
        if path.is_file() and str(path.relative_to(TREE)) not in names:
            path.unlink()
    for name in names:
        source, target = ROOT / name, TREE / name
        if not target.exists() or source.read_bytes() != target.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            shutil.copymode(source, target)


def call(command, timeout=None):
    """(exit code, output); code None when it ran into the timeout."""
    environment = dict(os.environ, CCACHE_BASEDIR=str(SCRATCH), CCACHE_NOHASHDIR="1",
                       GTEST_COLOR="no", NO_COLOR="1", RC_PARAMS="noshrink=1",
                       CCACHE_SLOPPINESS="pch_defines,time_macros")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout,
                              errors="replace", cwd=SCRATCH, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return None, ""
    return done.returncode, done.stdout + done.stderr


def configure():
    code, output = call(["cmake", "-S", str(TREE), "-B", str(BUILD), "-G", "Ninja",
                         "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=-O1 -g0",
                         "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", "-DKVFENCE_CUDA=OFF",
                         "-DKVFENCE_WERROR=OFF", "-DKVFENCE_PCH=ON"])
    if code != 0:
        sys.exit(f"mutants: the scratch copy does not configure:\n{output}")


def build(program):
    code, output = call(["cmake", "--build", str(BUILD), "--target", program])
    return code == 0, output


def run_tests(mutant):
    """('green' | 'red' | 'nothing ran', which test was red first)."""
    code, output = call([str(BUILD / "bin" / mutant["program"]),
                         f"--gtest_filter={mutant['filter']}", "--gtest_fail_fast"],
                        TEST_SECONDS)
    if code is None:
        return "red", f"no end within {TEST_SECONDS} s"
    ran = re.search(r"Running (\d+) tests?", output)
    if ran is None or int(ran[1]) == 0:
        return "nothing ran", ""
    if code == 0:
        return "green", ""
    first = re.search(r"\[  FAILED  \] (\S+)", output)
    last = re.findall(r"\[ RUN      \] (\S+)", output)
    return "red", first[1] if first else f"{last[-1] if last else '?'} (exit {code})"


def unusable(mutant, tree):
    """Why this mutant cannot be applied to `tree`, or None."""
    path = tree / mutant["file"]
    if not path.is_file():
        return f"{mutant['file']} does not exist"
    found = path.read_text(encoding="utf-8").count(mutant["find"])
    if found != 1:
        return f"the text to find stands {found} times in {mutant['file']}"
    if mutant["find"] == mutant["replace"]:
        return "the replacement is the same text"
    return None


def judge(mutant, clean):
    """(killed?, one phrase why). `clean`: outcome of the unbroken (program, filter) pairs."""
    why = unusable(mutant, TREE)
    if why:
        return False, why
    state = clean[mutant["program"], mutant["filter"]]
    if state != "green":
        return False, f"without the mutant: {state}"
    path = TREE / mutant["file"]
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(mutant["find"], mutant["replace"]), encoding="utf-8")
    try:
        built, output = build(mutant["program"])
        if not built:
            errors = [line for line in output.splitlines() if "error" in line]
            return False, f"does not build: {errors[0] if errors else output[-200:]}"
        outcome, first = run_tests(mutant)
    finally:
        path.write_text(text, encoding="utf-8")  # a new time: the next build takes it back
    return (True, f"by {first}") if outcome == "red" else (False, f"survived, {outcome}")


def baseline(mutants):
    """What the unbroken tree's tests say, for each (program, filter) that a mutant names."""
    clean = {}
    for program in sorted({mutant["program"] for mutant in mutants}):
        print(f"building {program} unbroken", flush=True)
        built, output = build(program)
        for mutant in mutants:
            if mutant["program"] == program and (program, mutant["filter"]) not in clean:
                clean[program, mutant["filter"]] = (
                    run_tests(mutant)[0] if built else f"does not build: {output[-1000:]}")
    return clean


def main():
    parser = argparse.ArgumentParser(prog="mutants.py", description=__doc__.split("\n")[0])
    parser.add_argument("--list", action="store_true", help="names of the mutants, nothing else")
    parser.add_argument("--check", action="store_true",
                        help="only ask whether each text still stands exactly once")
    parser.add_argument("--only", default="", help="only mutants whose name or reason holds this")
    parser.add_argument("--from", dest="folder", default=str(pathlib.Path(__file__).parent),
                        help="folder of the lists (default: beside this file)")
    options = parser.parse_args()
    mutants, required = load(pathlib.Path(options.folder))
    uncovered = sorted(set(required) - {mutant.get("reason") for mutant in mutants})
    mutants = [m for m in mutants if options.only in m["name"] or options.only == m.get("reason")]
    if not mutants:
        return usage(f"no mutant holds {options.only!r}")
    if options.list:
        print("\n".join(f"{m['name']:40} {m['file']}" for m in mutants))
        return 0
    if options.check:
        bad = [f"{m['name']}: {why}" for m in mutants if (why := unusable(m, ROOT))]
        bad += [f"no mutant removes the check of {reason}" for reason in uncovered]
        print("\n".join(bad) if bad else f"{len(mutants)} mutants can be applied")
        return 1 if bad else 0
    TREE.mkdir(parents=True, exist_ok=True)
    copy_tree()
    configure()
    clean = baseline(mutants)
    rows = []
    for i, mutant in enumerate(mutants, 1):
        start = time.monotonic()
        killed, why = judge(mutant, clean)
        rows.append((mutant["name"], mutant.get("reason", ""), killed, why))
        print(f"[{i}/{len(mutants)}] {mutant['name']}: {'killed' if killed else 'NOT KILLED'}, "
              f"{why} ({time.monotonic() - start:.1f} s)", flush=True)
    return report(rows, uncovered)


def report(rows, uncovered):
    wide = max(len(row[0]) for row in rows)
    print(f"\n{'mutant':{wide}}  {'reason':20}  killed")
    for name, reason, killed, why in rows:
        print(f"{name:{wide}}  {reason:20}  {'yes' if killed else 'NO'} ({why})")
    for reason in uncovered:
        print(f"no mutant removes the check of {reason}")
    killed = sum(row[2] for row in rows)
    print(f"\n{killed} killed, {len(rows) - killed} survived, {len(rows)} total")
    return 0 if killed == len(rows) and not uncovered else 1


if __name__ == "__main__":
    sys.exit(main())
