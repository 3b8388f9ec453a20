"""Tests of the proof that a fence that is off costs nothing (bench/noop): what it strips, what it
can't miss. I-141, I-142.

usage: noop_proof_test.py SOURCE_DIR COMPILER
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 2 else pathlib.Path(__file__).parents[2]
COMPILER = sys.argv[2] if len(sys.argv) > 2 else "c++"
sys.path[:0] = [str(ROOT / "bench" / "noop"), str(ROOT / "bench")]
import noop_proof
import objects
import strip_hooks


class Stripping(unittest.TestCase):

    def strip(self, text):
        return strip_hooks.strip(text, "x.h")

    def test_statements_go_and_lines_stay(self):
        self.assertEqual(self.strip("a();\nKVF_IF_HEARD (s_.tracker) s_.tracker.Free(F(1));\nb();"),
                         "a();\n(void)0;\nb();")
        self.assertEqual(self.strip("{\n  KVF_IF_HEARD (s_.tracker)\n    s_.tracker.Write(\n"
                                    "  {.pages = {&p, 1}});\n}"), "{\n  (void)0;\n\n\n}")
        self.assertEqual(self.strip("if (left) KVF_IF_HEARD (tracker) tracker_->Free(F(1));"),
                         "if (left) (void)0;")
        self.assertEqual(self.strip("void A() { KVF_IF_HEARD (*tracker_) tracker_->Audit({}); }"),
                         "void A() { (void)0; }")
        self.assertEqual(self.strip("KVF_IF_HEARD (s.tracker) id = s.tracker.Admit(F(1)); b();"),
                         "(void)0; b();")

    def test_members_and_blocks_go(self):
        block = "KVF_IF_HEARD (s_.tracker) {\n  if (x) { y(); }\n  s_.tracker.Free({});\n}"
        self.assertEqual(self.strip(f"a;\n{block}\nb;"), "a;\n(void)0;\n\n\n\nb;")
        member = "[[no_unique_address]] TrackerLink<TrackerT> tracker_;"
        self.assertEqual(self.strip(f"  {member}\n"), "  \n")

    def test_a_use_that_isnt_understood_is_an_error(self):
        for text in ("auto x = s_.tracker.Peek(1);", "tracker_->value = 3;", "Use(s_.tracker);",
                     "auto* t = tracker_;", "bool on = Listens(s_.tracker);",
                     "KVF_IF_HEARD (s_.tracker) a(); else b();"):
            with self.assertRaises(strip_hooks.Unknown, msg=text):
                self.strip("\n" + text)
        try:
            self.strip("\n\nUse(s_.tracker);")
        except strip_hooks.Unknown as unknown:
            self.assertTrue(str(unknown).startswith("x.h:3: "), unknown)

    def test_a_hook_without_its_guard_is_an_error(self):
        for text in ("s_.tracker.Free({.pages = {&p, 1}});", "if (left) tracker_->Free(F(1));",
                     "KVF_IF_HEARD (s_.tracker) a(); s_.tracker.Free({});"):
            with self.assertRaises(strip_hooks.Unknown, msg=text):
                self.strip(text)

    def test_the_engine_can_be_stripped(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(strip_hooks.main([str(ROOT / "engine"), folder]), 0)
            for source in pathlib.Path(folder).glob("stripped/engine/*"):
                code = strip_hooks.without_comments(source.read_text())
                self.assertNotRegex(code, r"\btracker_?(\.|->)", source)


class Comparing(unittest.TestCase):

    def compiled(self, text):
        source = pathlib.Path(self.folder.name) / "a.cc"
        source.write_text(text)
        out = source.with_name(f"{len(list(source.parent.iterdir()))}.o")
        subprocess.run([COMPILER, "-O1", "-ffunction-sections", "-c", str(source), "-o", str(out)],
                       check=True)
        return objects.Object(out)

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    CODE = """
    extern int g, h;
    int Add(int a) { return a + %d; }
    int Load() { return %s; }
    extern const unsigned long kNoopProofSizes[2];
    const unsigned long kNoopProofSizes[2] = {%d, 2};
    """

    def test_the_same_code_is_the_same(self):
        one, other = (self.compiled(self.CODE % (3, "g", 16)) for _ in range(2))
        self.assertEqual(objects.differences(one, other), [])
        self.assertEqual(objects.reordered(one, other), 0)
        self.assertEqual(one.sizes, (16, 2))
        self.assertGreater(one.text(), 0)

    def test_another_constant_another_reference_and_another_function_are_seen(self):
        one = self.compiled(self.CODE % (3, "g", 16))
        other = self.compiled(self.CODE % (4, "h", 8))
        self.assertEqual(len(objects.differences(one, other)), 2)
        more = self.compiled(self.CODE % (3, "g", 16) + "int More() { return 1; }")
        self.assertEqual([why for _, why in objects.differences(one, more)], ["only in the other"])

    def test_only_equalitys_operands_may_change_places(self):
        def same(a, b):
            return objects.instructions(a) == objects.instructions(b)
        self.assertTrue(same(" 4:\tcmp    %rax,0x28(%rdi)\n 8:\tje     4e\n",
                             " 4:\tcmp    0x28(%rdi),%rax\n 8:\tje     4e\n"))
        self.assertTrue(same(" 4:\tcmp    %rax,(%rdi,%rdx,8)\n 8:\tjne    4e\n",
                             " 4:\tcmp    (%rdi,%rdx,8),%rax\n 8:\tjne    4e\n"))
        self.assertFalse(same(" 4:\tcmp    %rax,%rbx\n 8:\tja     4e\n",
                              " 4:\tcmp    %rbx,%rax\n 8:\tja     4e\n"))
        self.assertFalse(same(" 4:\tsub    %rax,%rbx\n 8:\tje     4e\n",
                              " 4:\tsub    %rbx,%rax\n 8:\tje     4e\n"))


class Judging(unittest.TestCase):
    """What the counts must be, with valgrind's part acted."""

    def judge(self, off, hooked=(1_000_000, 100_000, 100), stripped=None, names=(), hooks=100):
        said = "steps 10\nrows 50\n"
        runs = {"noop_hooked": (hooked, ()), "noop_stripped": (stripped or hooked, ()),
                "noop_off": (off, names)}

        def counted(program, traffic, folder):
            events, ran = runs[program.name]
            return dict(zip(("Ir", "Bc", "Bcm"), events)), set(ran), said

        class Ran:
            stdout = said + f"hook.Free {hooks}\n"

        saved = noop_proof.counted, noop_proof.subprocess.run
        noop_proof.counted, noop_proof.subprocess.run = counted, lambda *a, **k: Ran
        try:
            return noop_proof.compare_counts(pathlib.Path("b"), "steady", lambda words: None)
        finally:
            noop_proof.counted, noop_proof.subprocess.run = saved

    def test_what_holds(self):
        self.assertTrue(self.judge((1_000_500, 100_110, 101)))
        self.assertTrue(self.judge((1_000_500, 100_050, 101), hooks=1))
        # Where functions lie decides what the predictor takes for one another.
        self.assertTrue(self.judge((1_000_500, 100_110, 101), stripped=(1_000_000, 100_000, 101)))

    def test_what_doesnt(self):
        self.assertFalse(self.judge((1_000_501, 100_110, 101)), "more than 0.05 %")
        self.assertFalse(self.judge((1_000_100, 100_200, 101)), "more than a branch per call")
        self.assertFalse(self.judge((1_000_100, 100_051, 101), hooks=1), "few calls, many branches")
        self.assertFalse(self.judge((1_000_100, 100_110, 1_000)), "branches that aren't predicted")
        self.assertFalse(self.judge((1_000_100, 100_110, 101), stripped=(999_999, 100_000, 100)))
        self.assertFalse(self.judge((1_000_100, 100_110, 101), stripped=(1_000_000, 99_999, 100)))
        self.assertFalse(self.judge((1_000_100, 100_110, 101), hooks=0))
        for name in ("kvfence::Gate::Apply(kvfence::JournalBatch const&)",
                     "kvfence::Ledger::Alloc(kvfence::AllocEvent const&)",
                     "kvfence::ValidateCpu(kvfence::GateView const&)"):
            self.assertFalse(self.judge((1_000_100, 100_110, 101), names=[name]), name)
        self.assertTrue(self.judge((1_000_100, 100_110, 101),
                                   names=["kvfence::StepRunner<kvfence::NoopTracker>::Validate()"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
