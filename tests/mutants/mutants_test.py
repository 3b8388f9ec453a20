"""The runner itself: what isn't a kill must never be counted as one."""

import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import mutants

GOOD = {"name": "m", "file": "a.h", "find": "x + 1", "replace": "x",
        "program": "p", "filter": "F.*"}
RED = "[==========] Running 2 tests from 1 suite.\n[ RUN      ] F.A\n[  FAILED  ] F.A (0 ms)\n"
GREEN = "[==========] Running 2 tests from 1 suite.\n[  PASSED  ] 2 tests.\n"
NONE = "[==========] Running 0 tests from 0 test suites.\n[  PASSED  ] 0 tests.\n"


class Judge(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        (self.tree / "a.h").write_text("f(x + 1); g(y); g(y);\n", encoding="utf-8")
        self.enterContext(mock.patch.object(mutants, "TREE", self.tree))

    def judge(self, tests=(1, RED), build=(True, ""), clean="green", **changes):
        with mock.patch.object(mutants, "build", return_value=build), \
             mock.patch.object(mutants, "call", return_value=tests):
            verdict = mutants.judge(GOOD | changes, {("p", "F.*"): clean})
        self.assertEqual((self.tree / "a.h").read_text(encoding="utf-8"), "f(x + 1); g(y); g(y);\n")
        return verdict

    def test_a_red_test_is_a_kill_and_is_named(self):
        self.assertEqual(self.judge(), (True, "by F.A"))

    def test_a_crash_and_an_endless_loop_are_kills(self):
        crash = "[==========] Running 2 tests from 1 suite.\n[ RUN      ] F.B\n"
        self.assertEqual(self.judge(tests=(-6, crash)), (True, "by F.B (exit -6)"))
        self.assertTrue(self.judge(tests=(None, ""))[0])

    def test_green_tests_are_a_survivor(self):
        self.assertEqual(self.judge(tests=(0, GREEN)), (False, "survived, green"))

    def test_no_kill_without_a_test_that_ran(self):
        self.assertFalse(self.judge(tests=(0, NONE))[0])
        self.assertFalse(self.judge(tests=(127, "no such program"))[0])

    def test_no_kill_if_the_text_is_absent_or_stands_twice(self):
        self.assertIn("stands 0 times", self.judge(find="z")[1])
        self.assertIn("stands 2 times", self.judge(find="g(y)")[1])
        self.assertIn("does not exist", self.judge(file="b.h")[1])
        self.assertIn("same text", self.judge(replace="x + 1")[1])

    def test_no_kill_if_it_does_not_build_or_was_red_before(self):
        self.assertIn("does not build", self.judge(build=(False, "a.h:1: error: x"))[1])
        self.assertIn("without the mutant: red", self.judge(clean="red")[1])


class Lists(unittest.TestCase):

    def load(self, text):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "a.toml").write_text(text, encoding="utf-8")
            return mutants.load(pathlib.Path(folder))

    def refuse(self, text):
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as stop:
            self.load(text)
        self.assertEqual(stop.exception.code, 2)

    def record(self, **changes):
        return "[[mutant]]\n" + "".join(f"{k} = '{v}'\n" for k, v in (GOOD | changes).items())

    def test_records_are_read(self):
        found, required = self.load("required_reasons = ['row_tail']\n" + self.record(reason="r"))
        self.assertEqual((found[0]["reason"], required), ("r", ["row_tail"]))

    def test_what_is_no_list_is_refused(self):
        self.refuse("")
        self.refuse("[[mutant]\n")
        self.refuse("[[mutant]]\nname = 'm'\n")
        self.refuse(self.record(colour="red"))
        self.refuse(self.record() + self.record())

    def test_a_required_reason_without_a_mutant_fails(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            self.assertEqual(mutants.report([("m", "", True, "by F.A")], ["row_tail"]), 1)
            self.assertEqual(mutants.report([("m", "", True, "by F.A")], []), 0)
            self.assertEqual(mutants.report([("m", "", False, "survived")], []), 1)
        self.assertIn("no mutant removes the check of row_tail", out.getvalue())

    def test_each_text_of_our_own_lists_stands_once(self):
        done = subprocess.run([sys.executable, mutants.__file__, "--check"], check=False,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
