"""Tests of the table that ends `./dev bench` (bench/targets.py). I-143: nothing unmeasured passes.

usage: targets_test.py SOURCE_DIR
"""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import targets


def run(name, **counters):
    return {"name": name, "run_type": "iteration", **counters}


def median(name, **counters):
    return {"name": f"{name}_median", "run_name": name, "aggregate_name": "median", **counters}


class Table(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results = pathlib.Path(folder.name)

    def put(self, name, *runs):
        text = json.dumps({"context": {"host_name": "h", "num_cpus": 2}, "benchmarks": runs})
        (self.results / f"{name}.json").write_text(text)

    def run_table(self):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = targets.main([f"--results={self.results}", f"--gpu={self.results / 'gpu.json'}",
                                 "--quick"])
        return code, out.getvalue(), err.getvalue()

    def verdicts(self):
        code, out, _ = self.run_table()
        return code, [line.split()[-1] for line in out.splitlines()[1:]]

    def put_all(self, **changed):
        value = {"ratio": 1.1, "call": 4e-8, "owned": 3e6, "entries": 3e7, "lost": 0.05,
                 "read": 0.6, "host": 8.0, "more": 16, **changed}
        self.put("validator", run("BM_Validate/262144/manual_time", ratio=value["ratio"]),
                 run("BM_Validate/1048576/manual_time", ratio=value["ratio"]))
        self.put("allocator", run("ChurnPool/lifo/pages:1048576", per_call=value["call"]),
                 run("ChurnPool/fifo/pages:1048576", per_call=value["call"]))
        self.put("player", run("Ownership/truth:0", ownership=value["owned"]),
                 run("Decode/truth:0", entries=value["entries"]))
        loss = [0.0, -1.0, value["lost"]]
        row = {"page_size": 16, "level": "full", "throughput_loss_percent": loss,
               "p95_loss_percent": loss, "of_read": value["read"], "warm_host_us": value["host"]}
        (self.results / "step_overhead.json").write_text(json.dumps({"rows": [row]}))
        served = [{"at_once": n, **{kv: {"preemptions": 0 if n <= most else 5}
                                    for kv, most in (("bf16", 8), ("fp8", value["more"]))}}
                  for n in (4, 8, 12, 16, 20)]
        (self.results / "capacity.json").write_text(json.dumps({"rows": served}))

    def put_gpu(self, name="NVIDIA H200", **changed):
        value = {"all": 9.0, "alone": 39.0, "added": 10.0, "host": 9.0, **changed}
        rows = [{"page_size": p, "sharing": s, "all_us": value["all"] if (p, s) == (64, 1) else 99,
                 "validate_us": value["alone"] if (p, s) == (1, 3) else 99}
                for p in (64, 1) for s in (1, 3)]
        steps = [{"page_size": p, "layers": 61,
                  "launched": {"added_us": value["added"] if p == 64 else 99},
                  "host_us": value["host"] if p == 64 else 99} for p in (1, 64)]
        (self.results / "gpu.json").write_text(json.dumps(
            {"device": {"name": name}, "validator": rows, "step": steps}))

    def test_a_gpus_figures_are_read(self):
        self.put_gpu()
        code, verdicts = self.verdicts()
        self.assertEqual((code, verdicts.count("yes")), (0, 4))
        for name, value in (("all", 10.1), ("alone", 40.1), ("added", 11.1), ("host", 10.1)):
            self.put_gpu(**{name: value})
            code, verdicts = self.verdicts()
            self.assertEqual((code, verdicts.count("yes"), verdicts.count("NO")), (1, 3, 1), name)

    def test_another_gpu_is_told_and_not_judged(self):
        self.put_gpu(name="NVIDIA L40S", added=99.0)
        code, verdicts = self.verdicts()
        self.assertEqual((code, set(verdicts)), (0, {"-"}))
        self.assertIn("99.00 us on NVIDIA L40S, not H200", self.run_table()[1])

    def test_a_kept_miss_is_told_but_not_this_runs(self):
        self.put_gpu(added=99.0)
        before, targets.GPU_FILES = targets.GPU_FILES, (self.results / "none.json",
                                                        self.results / "gpu.json")
        self.addCleanup(setattr, targets, "GPU_FILES", before)
        code, verdicts = self.verdicts()
        self.assertEqual((code, verdicts.count("NO")), (0, 1))

    def test_a_gpu_part_that_wasnt_run_is_not_measured(self):
        (self.results / "gpu.json").write_text('{"device": {"name": "NVIDIA H200"}}')
        code, verdicts = self.verdicts()
        self.assertEqual((code, set(verdicts)), (0, {"-"}))
        self.assertEqual(self.run_table()[1].count("by ./dev gpu"), 4)

    def test_nothing_measured_is_no_pass(self):
        code, verdicts = self.verdicts()
        self.assertEqual(code, 0)
        self.assertEqual(set(verdicts), {"-"})

    def test_all_reached(self):
        self.put_all()
        code, verdicts = self.verdicts()
        self.assertEqual(code, 0)
        self.assertEqual(verdicts[:11], ["yes"] * 11)

    def test_each_miss_is_told(self):
        for name, value, misses in (("ratio", 1.5, 1), ("ratio", 1.7, 2), ("call", 5.1e-8, 2),
                                    ("owned", 1.9e6, 1), ("entries", 1.9e7, 1), ("lost", 0.11, 2),
                                    ("read", 0.49, 1), ("host", 10.1, 1), ("more", 12, 1)):
            self.put_all(**{name: value})
            code, verdicts = self.verdicts()
            self.assertEqual(code, 1, name)
            self.assertEqual(verdicts.count("NO"), misses, name)

    def test_the_median_of_repetitions_counts(self):
        self.put_all()
        name = "Ownership/truth:0"
        self.put("player", run(name, ownership=9e6), median(name, ownership=1e6),
                 {**median(name, ownership=1), "aggregate_name": "cv"})
        self.assertEqual(targets.figure(self.results, "player", name, "ownership"), 1e6)
        self.put("player", *(run(name, ownership=v) for v in (9e6, 1e6, 2e6)))
        self.assertEqual(targets.figure(self.results, "player", name, "ownership"), 2e6)

    def test_an_empty_file_is_not_measured_and_a_broken_one_an_error(self):
        (self.results / "player.json").write_text("")
        self.assertEqual(self.run_table()[0], 0)
        (self.results / "player.json").write_text('{"benchmarks": [')
        code, _, err = self.run_table()
        self.assertEqual(code, 2)
        self.assertIn("player.json:1: expected JSON", err)

    def test_what_is_kept_doesnt_name_the_machine(self):
        self.put_all()
        with tempfile.TemporaryDirectory() as into:
            (self.results / "step_overhead.json").write_text('{"context": 8192, "rows": []}')
            targets.keep(self.results, pathlib.Path(into))
            kept = json.loads((pathlib.Path(into) / "player.json").read_text())
            self.assertEqual(kept["context"], {"num_cpus": 2})
            self.assertEqual(len(list(pathlib.Path(into).iterdir())), 5)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
