"""Proves that a fence that is off costs nothing; prints the figures, fails where they don't hold.

Idea: nothing is timed. The engine without hooks (Engine<NoopTracker>) is compared with the same
sources after noop/strip_hooks.py took the hooks out: the same functions to the byte, the same
sizeof, the same number of instructions (I-141). The run-time switch (SwitchedTracker without a
fence) is counted beside it: at most 0.05 % more instructions in each traffic, about one conditional
branch per hook, which the processor predicts, and no function of gate, ledger or kernels runs, so
nothing is launched and no device memory taken (I-142). The traffics: 64 rows of 8,192 tokens and
light chat, over a model that computes next to nothing, so that hooks weigh as much as they can; and
a small transformer with real attention, most like an engine that serves.

usage: noop_proof.py [--build=DIR] [--only=text]
  --build=DIR   a configured release build with benchmarks; default: build/release
  --only=text   bytes and sizes only: needs no valgrind

exit: 0 it holds, 1 it doesn't, 2 usage, 3 the machine lacks something
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "noop"))
import objects

TRAFFICS = ("steady", "chat", "numeric")
MOST_EXTRA = 0.0005  # the share of the instructions that the run-time switch may add
# Conditional branches per call of a hook; one per step and row asks whether there's a fence at all.
# Where calls are few among much work, MOST_EXTRA of the branches: malloc takes as many more or less
# when an object is larger by a pointer.
MOST_BRANCHES, MOST_MISPREDICTED = 1.5, 0.005
PARTS = ("EngineState", "Scheduler", "StepRunner", "Surface", "PageBooks")
# What a fence that is there would run: nothing of this may run when it's absent.
FENCE = re.compile(r"\bkvfence::(Fence|Gate|Ledger|Journal\w*)::|"
                   r"\bkvfence::(Launch|Validate|Confirm|Apply)\w*\(")


class Lacking(Exception):
    """The machine has no such thing."""


def built(build, targets):
    """Builds the targets; the compiler's words are shown where it fails."""
    command = ["cmake", "--build", str(build), "--target", *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Lacking(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")


def object_of(build, variant):
    """The object file that the build made of the variant's engine."""
    found = list((build / "bench").glob(f"CMakeFiles/kvfence_noop_{variant}.dir/**/engine.cc.o"))
    if len(found) != 1:
        raise Lacking(f"{build}: expected one object of kvfence_noop_{variant}, found {len(found)}")
    return found[0]


def compare_text(build, say):
    """Bytes of all functions, and sizeof of the engine's parts."""
    built(build, ["kvfence_noop_hooked", "kvfence_noop_stripped"])
    hooked = objects.Object(object_of(build, "hooked"))
    stripped = objects.Object(object_of(build, "stripped"))
    if len(hooked.functions) < 50 or len(hooked.sizes) != len(PARTS):
        raise Lacking("the objects don't hold the engine")
    differing = objects.differences(hooked, stripped)
    order = objects.reordered(hooked, stripped) - len(differing)
    say(f"text: {len(hooked.functions)} functions, {hooked.text()} bytes with the hooks, "
        f"{stripped.text()} bytes with the lines stripped; {len(differing)} functions differ"
        + (f", {order} in the order of an equality's operands only" if order > 0 else ""))
    for name, why in differing[:10]:
        say(f"  {name}: {why}")
    say("sizeof: " + ", ".join(f"{part} {a}" + ("" if a == b else f" but {b}") for part, a, b in
                               zip(PARTS, hooked.sizes, stripped.sizes)))
    return not differing and hooked.sizes == stripped.sizes


def counted(program, traffic, folder):
    """Events within main, names of the functions that ran, and what the program printed."""
    out = pathlib.Path(folder) / (program.name + ".callgrind")
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--branch-sim=yes", "--toggle-collect=main",
         f"--callgrind-out-file={out}", str(program), traffic],
        capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"})
    if done.returncode != 0:
        raise Lacking(f"{program.name} in valgrind: exit {done.returncode}\n{done.stderr[-2000:]}")
    text = out.read_text()
    names = re.search(r"^events: (.+)$", text, re.M)[1].split()
    totals = re.search(r"^(?:totals|summary): (.+)$", text, re.M)[1].split()
    events = dict(zip(names, map(int, totals)))
    return events, set(re.findall(r"^c?fn=\(\d+\) (.+)$", text, re.M)), done.stdout


def executed(events):
    """Instructions and branches. How many are mispredicted depends on where functions lie."""
    return [events[event] for event in events if event in ("Ir", "Bc", "Bi")]


def percent(part, whole):
    return f"{100 * part / whole:+.4f} %"


def compare_counts(build, traffic, say):
    """Instructions of the same run: hooked and stripped, then the run-time switch."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {name: counted(build / "bin" / f"noop_{name}", traffic, folder)
                for name in ("hooked", "stripped", "off")}
        calls = subprocess.run([str(build / "bin" / "noop_count"), traffic], capture_output=True,
                               text=True, check=True).stdout
    hooked, stripped, off = (runs[name][0] for name in ("hooked", "stripped", "off"))
    did = runs["off"][2]
    hooks = sum(int(count) for count in re.findall(r"^hook\.\w+ (\d+)$", calls, re.M))
    asked = hooks + sum(int(n) for n in re.findall(r"^steps (\d+)$", did, re.M))
    say(f"{traffic}: {did.strip().replace(chr(10), ', ')}; {hooks} calls of hooks")
    say(f"  instructions: {hooked['Ir']} with the hooks, {stripped['Ir']} with the lines stripped")
    extra, branches, missed = (off[event] - hooked[event] for event in ("Ir", "Bc", "Bcm"))
    say(f"  off at run time: {extra:+d} instructions ({percent(extra, hooked['Ir'])}, at most "
        f"{100 * MOST_EXTRA:.2f} %), {branches:+d} conditional branches "
        f"({branches / asked:.2f} for each call and step), {missed:+d} mispredicted "
        f"({percent(missed, hooked['Bc'])} of branches)")
    ran = sorted(name for name in runs["off"][1] if FENCE.search(name))
    say(f"  functions of gate, ledger and launches that ran: {', '.join(ran) or 'none'}")
    if not did == runs["hooked"][2] == runs["stripped"][2] or not calls.startswith(did):
        say("  the runs didn't do the same work")
        return False
    most_branches = max(MOST_BRANCHES * asked, MOST_EXTRA * hooked["Bc"])
    return (hooks > 0 and executed(hooked) == executed(stripped) and not ran and
            extra <= MOST_EXTRA * hooked["Ir"] and
            branches <= most_branches and missed <= MOST_MISPREDICTED * hooked["Bc"])


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--build", type=pathlib.Path, default=root / "build" / "release")
    parser.add_argument("--only", choices=["text"])
    options = parser.parse_args(arguments)
    if not (options.build / "CMakeCache.txt").exists():
        print(f"noop_proof: {options.build}: no configured build (./dev build)", file=sys.stderr)
        return 2
    try:
        holds = compare_text(options.build, print)
        if options.only is None:
            if shutil.which("valgrind") is None:
                raise Lacking("counting instructions needs Debian's package valgrind")
            built(options.build, ["kvfence_noop_proof"])
            for traffic in TRAFFICS:
                holds &= compare_counts(options.build, traffic, print)
    except Lacking as lacking:
        print(f"noop_proof: {lacking}", file=sys.stderr)
        return 3
    print("holds" if holds else "DOESN'T HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
