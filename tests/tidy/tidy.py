"""What a reader may rely on in this tree, checked: widths, lengths, layers, words, numbers, links.

The idea: a rule that nobody checks isn't a rule. Each check is a function from a tree to a list of
complaints, one line each, beginning with file and line; no complaint is a pass. The checks have
tests of their own (tidy_test.py), which break each rule and expect the complaint.

usage: tidy.py CHECK [ROOT]     exit 0 clean, 1 complaints, 2 usage
"""

import pathlib
import re
import subprocess
import sys

COLUMNS = 100
LINES_STOP, LINES_WARN = 800, 400
FUNCTION_LINES = 70

# A folder may include headers of these folders and its own; all else is upward or sideways.
LAYERS = {
    "core": [],
    "allocator": ["core"],
    "kernels": ["core"],
    "metrics": ["core"],
    "tracker": ["core", "kernels"],
    "integration": ["core", "allocator", "kernels", "metrics", "tracker"],
    "engine": ["core", "allocator", "kernels", "metrics", "tracker", "integration"],
    "faultinject": [
        "core", "allocator", "kernels", "metrics", "tracker", "integration", "engine"
    ],
}
STANDARD_ONLY = ("core", "kernels")  # an engine can take these without any other library
THIRD_PARTY = re.compile(r"(absl|nlohmann|prometheus|gtest|gmock|rapidcheck|benchmark|xxhash)\b")

CPP = {".h", ".cc", ".cu", ".cuh"}
CODE = CPP | {".py", ".cmake", ".sh"}
BANNED = re.compile(
    r"\b(TODO|FIXME|XXX)\b|(?i:not implemented)|(?<![\w.])/(work|root|home|var/tmp)/")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)')
CITED = re.compile(r"\bI-(\d+)\b")
DRAW = re.compile(r"\b\w*[rR]ng_?(\.|->)\w+\(|[(,]\s*&?\w*[rR]ng_?\s*[,)]")


class Tree:
    """The files of a checkout: those git knows or would add; without git, all but build output."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        listed = subprocess.run(
            ["git", "-C", str(self.root), "ls-files", "-z", "-co", "--exclude-standard"],
            capture_output=True, text=True, check=False)
        if listed.returncode == 0 and listed.stdout:
            names = listed.stdout.split("\0")
        else:
            skip = (".git", "build", "kvfence-out", "__pycache__")
            found = (path.relative_to(self.root) for path in self.root.rglob("*"))
            names = [str(path) for path in found if not set(skip) & set(path.parts)]
        self.names = sorted({n for n in names if n and (self.root / n).is_file()})
        if not self.names:
            sys.exit(f"tidy: no files under {self.root}")

    def read(self, name):
        return (self.root / name).read_text(encoding="utf-8", errors="replace")

    def lines(self, name):
        return self.read(name).splitlines()

    def of(self, suffixes):
        return [n for n in self.names if pathlib.PurePath(n).suffix in suffixes or
                n.endswith("CMakeLists.txt") and ".cmake" in suffixes or
                n == "dev" and ".sh" in suffixes]


def top(name):
    return name.split("/", 1)[0]


def columns(tree):
    """No line of code is wider than 100 columns."""
    return [f"{name}:{i}: {len(line)} columns, at most {COLUMNS}"
            for name in tree.of(CODE) for i, line in enumerate(tree.lines(name), 1)
            if len(line) > COLUMNS]


def lengths(tree):
    """No file of code is longer than 800 lines; one over 400 gets a warning."""
    found = []
    for name in tree.of(CODE):
        count = len(tree.lines(name))
        if count > LINES_STOP:
            found.append(f"{name}:{count}: {count} lines, at most {LINES_STOP}")
        elif count > LINES_WARN:
            print(f"warning: {name}: {count} lines, hardly any file should have over {LINES_WARN}")
    return found


def functions(tree):
    """No function body is longer than 70 lines.

    In code that clang-format laid out, a function ends in a line that is its indent and `}` alone
    (a class ends in `};`, a namespace has a comment behind), and starts at the nearest line above
    with the same indent that begins a declaration.
    """
    found = []
    for name in tree.of(CPP):
        lines = tree.lines(name)
        for indent in ("", "  "):
            for end, line in enumerate(lines):
                if line != indent + "}":
                    continue
                start = end - 1
                while start > 0 and not re.match(indent + r"[A-Za-z_~\[\[]", lines[start]):
                    start -= 1
                if end - start + 1 > FUNCTION_LINES:
                    found.append(f"{name}:{start + 1}: a function of {end - start + 1} lines, "
                                 f"at most {FUNCTION_LINES}")
    return found


def layers(tree):
    """Includes point downward; other libraries stay out of public headers and of core, kernels."""
    home = {}
    found = []
    for name in tree.names:
        match = re.match(r"(\w+)/(?:\w+/)?include/kvfence/(.+\.h)$", name)
        if match:
            if match[2] in home:
                found.append(f"{name}:1: {home[match[2]]} has a header of this name too")
            home[match[2]] = match[1]
    for name in tree.of(CPP):
        for i, line in enumerate(tree.lines(name), 1):
            match = INCLUDE.match(line)
            if match:
                why = judge_include(name, match[2], home)
                if why:
                    found.append(f"{name}:{i}: {why}")
    return found


def judge_include(name, included, home):
    """Why the file `name` must not include `included`, or None. `home`: public header -> layer."""
    layer = top(name)
    if name.startswith("tests/model/") and included.endswith("_core.h"):
        return f"a model is an oracle and may not include {included}"
    if ".." in included.split("/"):
        return f"{included}: a path upward"
    if THIRD_PARTY.match(included):
        if layer in STANDARD_ONLY:
            return f"{included}: {layer} uses the standard library only"
        if "/include/kvfence/" in name:
            return f"{included}: no third-party type in a public header"
    if included.startswith("kvfence/"):
        owner = home.get(included.removeprefix("kvfence/"))
        if owner is None:
            return f"{included}: no layer has this header"
        if layer in LAYERS and owner != layer and owner not in LAYERS[layer]:
            return f"{included}: {layer} may not know {owner}"
    elif layer in LAYERS and top(included) in LAYERS and top(included) != layer:
        return f"{included}: a private header of another layer"
    return None


def words(tree):
    """No promises instead of work, and no paths of somebody's machine."""
    return [f"{name}:{i}: banned: {match[0]}"
            for name in tree.names
            if not name.startswith("tests/tidy/") and pathlib.PurePath(name).suffix != ".kvlog"
            for i, line in enumerate(tree.lines(name), 1) for match in [BANNED.search(line)]
            if match]


def invariants(tree):
    """Each numbered invariant is cited in code and in a test; each citation has its line."""
    listed = re.findall(r"(?m)^- \*\*I-(\d+)\*\*", tree.read("docs/INVARIANTS.md"))
    known = {int(n) for n in listed}
    excused = {int(n) for n in CITED.findall(tree.read("tests/tidy/uncited.txt"))}
    code, tests, found = set(), set(), []
    for name in tree.of(CPP | {".py"}):
        if name.startswith("tests/tidy/"):
            continue
        for i, line in enumerate(tree.lines(name), 1):
            numbers = {int(n) for n in CITED.findall(line)}
            (tests if top(name) == "tests" else code).update(numbers)
            found += [f"{name}:{i}: I-{n} is not in docs/INVARIANTS.md"
                      for n in sorted(numbers - known)]
    if not known:
        found.append("docs/INVARIANTS.md:1: no invariant of the form `- **I-1** ...`")
    for n in sorted(known):
        lacks = [what for what, have in (("code", code), ("tests", tests)) if n not in have]
        if lacks and n not in excused:
            where = " nor in ".join(lacks)
            found.append(f"docs/INVARIANTS.md:1: I-{n} is cited nowhere in {where}")
        if not lacks and n in excused:
            found.append(f"tests/tidy/uncited.txt:1: I-{n} is cited now: take it off this list")
    found += [f"tests/tidy/uncited.txt:1: I-{n} is no invariant" for n in sorted(excused - known)]
    return found


def draws(tree):
    """No argument list draws twice from a generator: the compiler chooses which comes first."""
    found = []
    for name in tree.of(CPP):
        text = re.sub(r"//.*", lambda comment: " " * len(comment[0]), tree.read(name))
        open_at = []  # of each bracket not closed yet: where it stands, and the commas in it
        for at, letter in enumerate(text):
            if letter in "([{":
                open_at.append((at, [at]))
            elif letter == "," and open_at:
                open_at[-1][1].append(at)
            elif letter in ")]}" and open_at:
                start, commas = open_at.pop()
                if letter != ")" or not re.search(r"[\w>]$", text[:start][-1:]):
                    continue
                ends = commas[1:] + [at]
                drawing = [1 for begin, end in zip(commas, ends)
                           if DRAW.search(text[begin:end]) and "{" not in text[begin:end]]
                if len(drawing) > 1:
                    line = text.count("\n", 0, start) + 1
                    found.append(f"{name}:{line}: two draws in one argument list")
    return found


def readmes(tree):
    """Each folder that holds something says on one page what it is."""
    folders = {top(n) for n in tree.names
               if "/" in n and not n.startswith(".") and not n.endswith("CMakeLists.txt")}
    folders |= {"docs/adr"} if any(n.startswith("docs/adr/") for n in tree.names) else set()
    inner = {"/".join(n.split("/")[:2]) for n in tree.names
             if n.startswith("tests/") and n.count("/") >= 2}
    folders |= {f for f in inner if f.split("/")[1] not in LAYERS and f != "tests/tools"}
    return [f"{folder}/README.md:1: this folder has no README.md"
            for folder in sorted(folders) if f"{folder}/README.md" not in tree.names]


def links(tree):
    """Each relative link in a Markdown file leads to a file or folder of this tree."""
    found = []
    for name in tree.of({".md"}):
        for i, line in enumerate(tree.lines(name), 1):
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
                here = (tree.root / name).parent / target
                if not re.match(r"\w+:", target) and not here.exists():
                    found.append(f"{name}:{i}: {target} does not exist")
    return found


def examples(tree):
    """Code shown in Markdown after `<!-- example: FILE -->` stands in FILE, word for word."""
    shown = re.compile(r"<!-- example: (\S+) -->\s*```\w*\n(.*?)```", re.S)
    found = []
    for name in tree.of({".md"}):
        text = tree.read(name)
        for match in shown.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            if match[1] not in tree.names:
                found.append(f"{name}:{line}: {match[1]} does not exist")
            elif squeeze(match[2]) not in squeeze(tree.read(match[1])):
                found.append(f"{name}:{line}: the example differs from {match[1]}")
    return found


def squeeze(text):
    """The text without indents and blank lines: an example may stand deeper in its test."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


CHECKS = {check.__name__: check
          for check in (columns, lengths, functions, layers, words, invariants, draws, readmes,
                        links, examples)}


def main(arguments):
    if len(arguments) not in (1, 2) or arguments[0] not in CHECKS:
        print(__doc__, "\nchecks:", " ".join(CHECKS), file=sys.stderr)
        return 2
    default = pathlib.Path(__file__).resolve().parents[2]
    found = CHECKS[arguments[0]](Tree(arguments[1] if len(arguments) == 2 else default))
    print("\n".join(found) if found else f"{arguments[0]}: clean")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
