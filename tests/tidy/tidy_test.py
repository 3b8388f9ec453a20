"""Tests of the rules: each one is broken in a small tree, and must say so at the right line."""

import pathlib
import tempfile
import unittest

import tidy


class Rules(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.put("README.md", "a tree\n")

    def put(self, name, text):
        path = pathlib.Path(self.folder.name) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def complaints(self, check):
        return tidy.CHECKS[check](tidy.Tree(self.folder.name))

    def expect(self, check, *beginnings):
        found = self.complaints(check)
        self.assertEqual(len(found), len(beginnings), found)
        for line, beginning in zip(found, beginnings):
            self.assertTrue(line.startswith(beginning), f"{line!r} should begin {beginning!r}")

    def test_columns(self):
        self.put("core/a.cc", "\n" + "x" * 100 + "\n" + "x" * 101 + "\n")
        self.put("core/b.h", "é" * 100 + "\n")
        self.expect("columns", "core/a.cc:3: 101 columns")

    def test_lengths(self):
        self.put("core/a.cc", "x\n" * 800)
        self.put("core/b.cc", "x\n" * 801)
        self.expect("lengths", "core/b.cc:801")

    def test_functions(self):
        body = "  x();\n"
        self.put("core/a.cc", "namespace n {\nint F(int a,\n      int b) {\n" + body * 68 + "}\n")
        self.expect("functions", "core/a.cc:2: a function of 71 lines")
        self.put("core/a.cc", "namespace n {\nint F(int a,\n      int b) {\n" + body * 67 + "}\n")
        self.expect("functions")
        self.put("core/a.cc", "struct A {\n  A() {\n" + ("  " + body) * 69 + "  }\n};\n")
        self.expect("functions", "core/a.cc:2: a function of 71 lines")
        self.put("core/a.cc", "struct A {\n" + "  int x;\n" * 100 + "};\n")
        self.expect("functions")

    def test_layers(self):
        self.put("core/include/kvfence/a.h", '#include <cstdint>\n#include "kvfence/t.h"\n')
        self.put("tracker/include/kvfence/t.h", '#include "kvfence/a.h"\n#include "absl/a.h"\n')
        self.put("metrics/part/include/kvfence/p.h", "\n")
        self.put("metrics/p.cc", '#include "kvfence/p.h"\n')
        self.put("tracker/t.cc", '#include "absl/a.h"\n#include "kvfence/none.h"\n')
        self.put("allocator/p.cc", '#include "kvfence/t.h"\n#include "tracker/own.h"\n')
        self.put("kernels/k.cc", '#include <absl/a.h>\n#include "../core/x.h"\n')
        self.put("tests/model/m.h", '#include "kvfence/validate_core.h"\n')
        self.put("tests/core/a_test.cc", '#include "kvfence/t.h"\n#include <gtest/gtest.h>\n')
        self.expect(
            "layers",
            "allocator/p.cc:1: kvfence/t.h: allocator may not know tracker",
            "allocator/p.cc:2: tracker/own.h: a private header of another layer",
            "core/include/kvfence/a.h:2: kvfence/t.h: core may not know tracker",
            "kernels/k.cc:1: absl/a.h: kernels uses the standard library only",
            "kernels/k.cc:2: ../core/x.h: a path upward",
            "tests/model/m.h:1: a model is an oracle",
            "tracker/include/kvfence/t.h:2: absl/a.h: no third-party type in a public header",
            "tracker/t.cc:2: kvfence/none.h: no layer has this header")

    def test_two_headers_of_one_name(self):
        self.put("core/include/kvfence/a.h", "\n")
        self.put("engine/include/kvfence/a.h", "\n")
        self.expect("layers", "engine/include/kvfence/a.h:1: core has a header of this name too")

    def test_words(self):
        self.put("core/a.cc", "fine\n// TO" "DO later\nmkstemp XXXXXX\n")
        self.put("docs/a.md", "Not Imple" "mented\nsee framework/root/x\nsee /ro" "ot/x\n")
        self.expect("words", "core/a.cc:2", "docs/a.md:1", "docs/a.md:3")

    def test_invariants(self):
        self.put("docs/INVARIANTS.md", "- **I-1** one\n- **I-2** two\n- **I-3** three\n")
        self.put("tests/tidy/uncited.txt", "# comment\nI-2\nI-1\nI-9\n")
        self.put("core/a.cc", "// I-1, I-3\n// I-77\n")
        self.put("tests/core/a_test.cc", "// I-1\n")
        self.expect(
            "invariants",
            "core/a.cc:2: I-77 is not in",
            "tests/tidy/uncited.txt:1: I-1 is cited now",
            "docs/INVARIANTS.md:1: I-3 is cited nowhere in tests",
            "tests/tidy/uncited.txt:1: I-9 is no invariant")

    def test_invariants_of_an_unreadable_list(self):
        self.put("docs/INVARIANTS.md", "I-1 in another form\n")
        self.put("tests/tidy/uncited.txt", "\n")
        self.expect("invariants", "docs/INVARIANTS.md:1: no invariant of the form")

    def test_draws(self):
        self.put("core/a.cc", "F(rng.Below(2), rng->Next());  // (rng.Next(), rng.Next())\n"
                 "G(1,\n  P(&rng),\n  rng_.Next());\nA a = {rng.Next(), rng.Next()};\n"
                 "for (a = rng.Below(3); b; c) H(rng.Next(), 2);\n")
        self.expect("draws", "core/a.cc:1: two draws", "core/a.cc:2: two draws")

    def test_readmes(self):
        self.put("core/a.cc", "\n")
        self.put("engine/CMakeLists.txt", "\n")
        self.put("tests/README.md", "\n")
        self.put("tests/core/a_test.cc", "\n")
        self.put("tests/model/m.h", "\n")
        self.expect("readmes", "core/README.md:1", "tests/model/README.md:1")

    def test_links(self):
        self.put("docs/a.md", "[a](../README.md) [b](https://x.org/y)\n[c](gone.md#part)\n")
        self.expect("links", "docs/a.md:2: gone.md does not exist")

    def test_examples(self):
        self.put("tests/a_test.cc", "void F() {\n    int a = 1;\n\n    Use(a);\n}\n")
        shown = "<!-- example: tests/a_test.cc -->\n```cpp\nint a = {};\nUse(a);\n```\n"
        self.put("docs/a.md", shown.format(1))
        self.expect("examples")
        self.put("docs/a.md", "\n" + shown.format(2) + shown.replace("a_test", "none"))
        self.expect("examples", "docs/a.md:2: the example differs", "docs/a.md:7: tests/none.cc")


if __name__ == "__main__":
    unittest.main()
