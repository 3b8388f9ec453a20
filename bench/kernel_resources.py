"""Registers, shared memory and spills of each CUDA kernel, by architecture, as ptxas reports them.

Idea: no GPU is needed to know what a kernel takes of a multiprocessor; the compiler says so. Each
kernels/*.cu is compiled for each architecture with the flags of a release build and thrown away. A
spill is a fault: a value that was to stay in a register goes through memory, in every thread.

usage: kernel_resources.py [--json] [--arch=80,89,90,100]

exit: 0 no kernel spills, 1 one does, 2 usage, 3 there's no nvcc
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
FLAGS = ["-std=c++20", "-O3", "-DNDEBUG", "-DKVFENCE_HAVE_CUDA=1", "-Xptxas=-v"]
INCLUDES = ["core/include", "kernels/include"]
ENTRY = re.compile(r"Compiling entry function '(\w+)'")
PROPERTIES = re.compile(r"Function properties for (\S+)")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


class Lacking(Exception):
    """The machine has no such thing."""


def compiled(source, arch):
    """What ptxas says of the source's functions."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["nvcc", *FLAGS, *(f"-I{ROOT / i}" for i in INCLUDES),
                   f"-gencode=arch=compute_{arch},code=sm_{arch}", "-c", str(source), "-o",
                   f"{folder}/object.o"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Lacking(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return done.stderr


def resources(text):
    """Mangled name of each kernel -> what it takes. What functions it calls spill is its own."""
    found, name, spilled = {}, None, [0, 0, 0]
    for line in text.splitlines():
        entry = ENTRY.search(line)
        if entry:
            name, spilled = entry[1], [0, 0, 0]
        frame = FRAME.search(line)
        if frame:
            spilled = [had + int(more) for had, more in zip(spilled, frame.groups())]
            if name in found:  # a function that the kernel calls, reported behind it
                found[name].update(zip(("stack", "spill_stores", "spill_loads"), spilled))
        used = USED.search(line)
        if used and name:
            found[name] = {"registers": int(used[1]), "shared": int(used[2] or 0),
                           "stack": spilled[0], "spill_stores": spilled[1],
                           "spill_loads": spilled[2]}
    return found


def readable(names):
    """Mangled names -> names without arguments and namespaces; a KvType is a number (0: e4m3)."""
    if not names or shutil.which("c++filt") is None:
        return {name: name for name in names}
    done = subprocess.run(["c++filt", *names], capture_output=True, text=True, check=True)
    short = {}
    for name, plain in zip(names, done.stdout.splitlines()):
        plain = re.sub(r"\b(\w+::)+|\((?:kvfence::)?\w+\)(?=\d)|\b(void )", "", plain)
        short[name] = re.sub(r"\b(\d+)u\b", r"\1", plain.split("(", 1)[0]).replace("> >", ">>")
    return short


def measure(arches):
    """One record per kernel and architecture."""
    records = []
    for source in sorted((ROOT / "kernels").glob("*.cu")):
        for arch in arches:
            found = resources(compiled(source, arch))
            names = readable(list(found))
            records += [{"kernel": names[name], "arch": f"sm_{arch}", **found[name]}
                        for name in found]
    return sorted(records, key=lambda r: (r["kernel"], len(r["arch"]), r["arch"]))


def main(arguments):
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--arch", default="80,89,90,100")
    options = parser.parse_args(arguments)
    if shutil.which("nvcc") is None:
        raise Lacking("there is no nvcc on the PATH")
    records = measure(options.arch.split(","))
    spilling = [r for r in records if r["spill_stores"] + r["spill_loads"] != 0]
    if options.json:
        lines = ",\n".join("  " + json.dumps(record) for record in records)
        print(f'{{"kernels": [\n{lines}\n], "spilling": {len(spilling)}}}')
    else:
        print(f"{'kernel':44} {'arch':7} registers shared stack spilled")
        for r in records:
            print(f"{r['kernel']:44} {r['arch']:7} {r['registers']:9} {r['shared']:6} "
                  f"{r['stack']:5} {r['spill_stores'] + r['spill_loads']:7}")
    if not records:
        raise Lacking("no kernel was found")
    return 1 if spilling else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Lacking as lacking:
        print(f"kernel_resources: {lacking}", file=sys.stderr)
        sys.exit(3)
