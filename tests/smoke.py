"""Starts the tool twice as a user does, and asks for a green campaign and for the same bytes.

The idea: what unit tests can't see is that the program as built (optimised, with the backends this
machine has) does its main job. Invariant I-20: same seed and flags, same bytes but for `seconds`.

usage: smoke.py TOOL SCRATCH_FOLDER
"""

import json
import pathlib
import shutil
import subprocess
import sys

ZEROES = ("late", "missed", "collateral", "crashed")


def run(tool, out):
    """One run into the folder `out`; answers its JSON object and the names it left there."""
    shutil.rmtree(out, ignore_errors=True)
    flags = ["--seed=7", "--requests=60", "--json", f"--out={out}"]
    done = subprocess.run([tool, "run", *flags], capture_output=True, text=True, timeout=280)
    if done.returncode != 0:
        sys.exit(f"kvfence run {' '.join(flags)} exited {done.returncode}:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout), {path.name for path in pathlib.Path(out).iterdir()}


def main(tool, scratch):
    first, names = run(tool, f"{scratch}/first")
    second, _ = run(tool, f"{scratch}/second")
    wrong = []
    if not first["green"]:
        wrong.append(f"not green; missing to completeness: {first['missing']}")
    if len(first["faults"]) < 12:
        wrong.append(f"{len(first['faults'])} fault kinds, expected at least 12")
    for fault in first["faults"]:
        wrong += [f"{fault['kind']}: {fault[name]} {name}" for name in ZEROES if fault[name]]
    if first["off_arm"]["wrong_tokens_published"] == 0:
        wrong.append("without the fence no wrong token was published: the run can't see")
    if not {"report.html", "report.json"} <= names:
        wrong.append(f"no report among {sorted(names)}")
    for report in (first, second):
        report.pop("seconds")
    if json.dumps(first) != json.dumps(second):
        wrong.append("I-20: the second run with the same seed differs")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
