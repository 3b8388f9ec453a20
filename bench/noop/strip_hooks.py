"""Copies the engine's sources twice: as they are, and without the lines that call the tracker.

Idea: Engine<NoopTracker> claims to be the engine that was never instrumented. That engine is made
here, by taking out of the source each statement behind KVF_IF_HEARD, calls of the tracker and
what only they need, and each member that holds a tracker. Lines keep their numbers, so that checks
that name their line compile to the same code. Invariant I-141: after stripping no code mentions the
tracker but parameters that nobody reads. A call that isn't behind the guard is an error (what it's
given would be made for a fence that is off, too: I-142), and so is a use that this script doesn't
know: neither is left in.

usage: strip_hooks.py ENGINE_DIR OUT_DIR     writes OUT_DIR/hooked/engine, OUT_DIR/stripped/engine
"""

import pathlib
import re
import sys

CALL = re.compile(r"(?:\b\w+\.)*\btracker_?(?:\.|->)[A-Z]\w*\(")
GUARD = re.compile(r"\bKVF_IF_HEARD \([*\w.]+\)\s*")
# What only holds or passes on a tracker, and what takes its place.
DECLARATIONS = [
    (re.compile(r"\[\[no_unique_address\]\] (?:TrackerT|TrackerLink<TrackerT>) tracker_?;"), ""),
    (re.compile(r"\btracker\(tracker_in\),"), ""),
    (re.compile(r"\btracker_\(tracker\),"), ""),
    (re.compile(r"&tracker\b"), "nullptr"),
]
# Uses of the word that are types or parameters.
INNOCENT = re.compile(
    r"\bTrackerT\* tracker\b|\bTrackerT tracker\b|\bstd::move\(tracker\)|\bTrackerT tracker_in\b"
    r"|\btrace, tracker, names\b")


class Unknown(Exception):
    """A use of the tracker that isn't understood; the text is FILE:LINE and what stands there."""


def end_of_statement(text, start):
    """Behind the statement that begins at text[start]: its semicolon, or its block."""
    depth = 0
    for i in range(start, len(text)):
        if text[i] in "({[":
            depth += 1
        elif text[i] in ")}]":
            depth -= 1
        if depth == 0 and (text[i] == ";" or text[start] == "{" and text[i] == "}"):
            return i + 1
    raise Unknown("a statement that doesn't end")


def blank(text, replacement=""):
    """The replacement, with as many line ends as the text had."""
    return replacement + "\n" * text.count("\n")


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def strip_guarded(text, where):
    while (match := GUARD.search(text)) is not None:
        end = end_of_statement(text, match.end())
        if re.match(r"\s*else\b", text[end:]):
            raise Unknown(f"{where}:{line_of(text, end)}: an else of the guard")
        text = text[:match.start()] + blank(text[match.start():end], "(void)0;") + text[end:]
    return text


def strip(text, where):
    """The source without its hooks; `where` names it in errors."""
    text = strip_guarded(text, where)
    for pattern, replacement in DECLARATIONS:
        text = pattern.sub(replacement, text)
    code = INNOCENT.sub("", without_comments(text))
    left = re.search(r"\btracker_?\b|\bKVF_IF_HEARD\b|\bkTracks\b|\bListens\b", code)
    if left is not None:
        raise Unknown(f"{where}:{line_of(code, left.start())}: "
                      f"{code.splitlines()[line_of(code, left.start()) - 1].strip()}")
    return text


# Seen in both objects: what the engine's parts take in memory.
SIZES = """
namespace kvfence {
extern const unsigned long kNoopProofSizes[5];
const unsigned long kNoopProofSizes[5] = {
    sizeof(EngineState<NoopTracker>), sizeof(Scheduler<NoopTracker>),
    sizeof(StepRunner<NoopTracker>), sizeof(Surface<NoopTracker>), sizeof(PageBooks<NoopTracker>)};
}  // namespace kvfence
"""


def write(path, text):
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    engine, out = map(pathlib.Path, arguments)
    calls = 0
    for source in sorted(engine.glob("*.h")) + [engine / "engine.cc"]:
        text = source.read_text(encoding="utf-8")
        if source.name == "engine.cc":
            text += SIZES
        calls += len(CALL.findall(without_comments(text)))
        try:
            stripped = strip(text, source.name)
        except Unknown as unknown:
            print(f"strip_hooks: not understood: {unknown}", file=sys.stderr)
            return 1
        if stripped.count("\n") != text.count("\n"):
            print(f"strip_hooks: {source.name}: lines have moved", file=sys.stderr)
            return 1
        write(out / "hooked" / "engine" / source.name, text)
        write(out / "stripped" / "engine" / source.name, stripped)
    print(f"{calls} calls of the tracker stripped")
    return 0 if calls > 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
