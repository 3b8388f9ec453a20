"""One table of what was to be reached: target, measured, reached or not.

Idea: nothing is timed here. The programs' own JSON is read, as `./dev bench` leaves it; where a
target is no benchmark's, the tool itself is asked (catalogue, device bytes, a real trace). A figure
that isn't there is "not measured", never a pass (I-143). What only a GPU can tell is read from what
`./dev gpu` left, or was kept of it; on other devices than the target's it's told, not judged.

usage: targets.py [--results=DIR] [--gpu=FILE] [--tool=FILE] [--trace=FILE] [--keep] [--quick]

  --results=DIR  JSON of the benchmarks: NAME.json of each; default: build/bench
  --gpu=FILE     JSON of gpu_bench; default: build/gpu/gpu.json, else bench/results/gpu.json
  --tool=FILE    the tool; default: build/release/bin/kvfence
  --trace=FILE   also plays this request trace at level full with the ground truth
  --keep         copies the JSON into bench/results, without what names the machine
  --quick        what the benchmarks left only: doesn't start the tool or the no-op proof

exit: 0 nothing that was measured missed its target, 1 something did, 2 usage
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMES_THE_MACHINE = ("host_name", "executable", "aslr_enabled")


class Bad(Exception):
    """A result that can't be read; the text names the file."""


def load(path):
    """The file's JSON, None where there is no file."""
    if not path.exists() or path.stat().st_size == 0:  # a filter may leave nothing to run
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise Bad(f"{path}:{error.lineno}: expected JSON: {error.msg}") from error


def figure(results, name, benchmark, counter):
    """A counter of the benchmark whose name matches: the median of repetitions, else of runs."""
    data = load(results / f"{name}.json")
    if data is None:
        return None
    runs = [run for run in data["benchmarks"]
            if re.fullmatch(benchmark, run.get("run_name", run["name"])) and counter in run]
    medians = [run[counter] for run in runs if run.get("aggregate_name") == "median"]
    values = sorted(medians or [run[counter] for run in runs if "aggregate_name" not in run])
    return values[len(values) // 2] if values else None


class Row:
    """A line of the table. `reached` is None where nothing was measured, `kept` a figure that was
    measured another day: a miss is told, but isn't this run's."""

    def __init__(self, what, target, measured=None, reached=None):
        self.what, self.target, self.kept = what, target, False
        self.measured = "not measured" if measured is None else measured
        self.reached = None if measured is None else bool(reached)

    def verdict(self):
        return {True: "yes", False: "NO", None: "-"}[self.reached]


def at_most(what, value, most, unit="", scale=1.0):
    said = None if value is None else f"{value * scale:.2f}{unit}"
    return Row(what, f"<= {most:g}{unit}", said, value is not None and value * scale <= most)


def at_least(what, value, least, unit="", scale=1.0):
    said = None if value is None else f"{value * scale:.2f}{unit}"
    return Row(what, f">= {least:g}{unit}", said, value is not None and value * scale >= least)


def benchmarks(results):
    """Rows that the benchmark programs answer."""
    rows = []
    for pages, most in ((262144, 1.25), (1048576, 1.6)):
        ratio = figure(results, "validator", rf"BM_Validate/{pages}/.*", "ratio")
        what = f"validate beside a gather loop, {pages // 1024}K pages"
        rows.append(at_most(what, ratio, most, "x"))
    for order in ("lifo", "fifo"):
        cost = figure(results, "allocator", f"ChurnPool/{order}/pages:1048576", "per_call")
        rows.append(at_most(f"allocator call, 1M pages, {order.upper()}", cost, 50, " ns", 1e9))
    for benchmark, counter, least, what in (
            ("Ownership/truth:0", "ownership", 2, "player, ownership changes a second"),
            ("Decode/truth:0", "entries", 20, "player, checked entries a second")):
        rate = figure(results, "player", benchmark, counter)
        rows.append(at_least(what, rate, least, " M", 1e-6))
    return rows


def step_overhead(results):
    """Rows of the step beside a real attention, pages of 16, level full.

    A loss counts as small when its whole 95 % interval is: a wide one shows nothing.
    """
    data = load(results / "step_overhead.json")
    found = [row for row in (data or {}).get("rows", [])
             if row["page_size"] == 16 and row["level"] == "full"]
    row = found[0] if found else {}
    rows = []
    for name, key in (("throughput lost", "throughput_loss_percent"),
                      ("95th step later", "p95_loss_percent")):
        loss = row.get(key)
        said = None if loss is None else f"{loss[0]:+.3f} % ({loss[1]:+.3f} to {loss[2]:+.3f})"
        rows.append(Row(f"full beside off, pages of 16: {name}", "<= 0.1 %", said,
                        loss is not None and loss[2] <= 0.1))
    rows.append(at_least("  attention's share of the read bandwidth meanwhile",
                         row.get("of_read"), 0.5))
    rows.append(at_most("  the fence's host time a step, its books in the caches",
                        row.get("warm_host_us"), 10, " us"))
    return rows


def capacity(results):
    """How many more requests at once FP8 holds than BF16, in one pool, before it preempts."""
    data = load(results / "capacity.json")
    fits = {kv: max((row["at_once"] for row in (data or {}).get("rows", [])
                     if row[kv]["preemptions"] == 0), default=None) for kv in ("bf16", "fp8")}
    more = fits["fp8"] / fits["bf16"] if None not in fits.values() else None
    return at_least("requests at once in one pool, FP8 beside BF16", more, 1.9, "x")


GPU = "H200"  # whose targets these are
GPU_FILES = (ROOT / "build" / "gpu" / "gpu.json", ROOT / "bench" / "results" / "gpu.json")


def gpu(path):
    """Rows that gpu_bench answers, with pages of 64 where nothing else is said."""
    found = [file for file in ([path] if path else GPU_FILES) if file.exists()]
    data = (load(found[0]) if found else None) or {}

    def row(part, key, **shape):
        rows = [r for r in data.get(part, []) if all(r.get(k) == v for k, v in shape.items())]
        return rows[0][key] if rows else None

    name = data.get("device", {}).get("name", "")
    alone = row("validator", "validate_us", page_size=1, sharing=3)
    together = row("validator", "all_us", page_size=64, sharing=1)
    step = row("step", "launched", page_size=64, layers=61) or {}
    host = row("step", "host_us", page_size=64, layers=61)
    rows = [at_most("GPU: all launches, 1.37M tokens", together, 10, " us"),
            at_most("GPU: validate, 1.37M pages of 1, three rows to a page", alone, 40, " us"),
            at_most("GPU: added to a step of 64 x 8,192, FP8 MLA", step.get("added_us"), 11, " us"),
            at_most("GPU:   the host's time for its launches", host, 10, " us")]
    for line in rows:
        line.kept = bool(found) and found[0] == GPU_FILES[1]
        if line.reached is None:
            line.measured = "by ./dev gpu"
        elif GPU not in name:
            line.measured, line.reached = f"{line.measured} on {name}, not {GPU}", None
    return rows


def ask(command, wanted=(0,)):
    """What a program prints, as JSON."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False)
    if done.returncode not in wanted:
        raise Bad(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def catalogue(tool):
    bugs = ask([tool, "bugs", "--json"], (0, 1))
    before = bugs["answered_before_publication"]
    return Row(f"catalogued bugs ({bugs['total']}) answered before publication", ">= 110",
               str(before), before >= 110 and bugs["ok"])


def device_bytes(tool):
    with tempfile.TemporaryDirectory() as folder:
        run = ask([tool, "run", "--requests=60", f"--out={folder}/run", "--json"], (0, 1))
    page, entry = run["device_bytes_per_page"], run["device_bytes_per_entry"]
    return Row("device bytes a page and a live entry", "16 + 16", f"{page} + {entry}",
               page == 16 and entry == 16)


def noop():
    done = subprocess.run([sys.executable, ROOT / "bench" / "noop_proof.py"], capture_output=True,
                          text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    what, target = "no-op engine beside one without hooks", "same code"
    if done.returncode in (0, 1):
        return Row(what, target, lines[-1], done.returncode == 0)
    return Row(f"{what} ({lines[-1] if lines else 'no answer'})", target)


def trace(tool, path):
    with tempfile.TemporaryDirectory() as folder:
        run = ask([tool, "run", f"--trace={path}", "--faults=none", "--level=full",
                   "--page_size=64", f"--out={folder}/run", "--json"])
    seconds = run["seconds"]
    return Row("the trace, full, ground truth, pages of 64", "<= 60 s", f"{seconds:.1f} s",
               seconds <= 60 and run["green"])


# What this machine cannot tell, and who can.
ELSEWHERE = (("0 false alarms in 10^10 entries", "kvfence run, see docs/STATUS.md"),)


def table(rows):
    cells = [("target", "wanted", "measured", "reached")]
    cells += [(row.what, row.target, row.measured, row.verdict()) for row in rows]
    cells += [(what, "", f"by {who}", "-") for what, who in ELSEWHERE]
    widths = [max(len(line[i]) for line in cells) for i in range(4)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
                     for line in cells)


def keep(results, into):
    """Copies the results, without what names the machine."""
    for path in sorted(results.glob("*.json")):
        data = load(path) or {}
        if isinstance(data.get("context"), dict):  # Google Benchmark's
            for key in NAMES_THE_MACHINE:
                data["context"].pop(key, None)
        (into / path.name).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build" / "bench")
    parser.add_argument("--gpu", type=pathlib.Path)
    parser.add_argument("--tool", type=pathlib.Path,
                        default=ROOT / "build" / "release" / "bin" / "kvfence")
    parser.add_argument("--trace", type=pathlib.Path)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    try:
        rows = benchmarks(options.results) + step_overhead(options.results)
        rows.append(capacity(options.results))
        rows += gpu(options.gpu)
        if not options.quick:
            rows += [device_bytes(options.tool), catalogue(options.tool), noop()]
        if options.trace:
            rows.append(trace(options.tool, options.trace))
        if options.keep:
            keep(options.results, ROOT / "bench" / "results")
    except Bad as bad:
        print(f"targets: {bad}", file=sys.stderr)
        return 2
    print(table(rows))
    return 1 if any(row.reached is False and not row.kept for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
