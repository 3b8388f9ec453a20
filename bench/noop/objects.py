"""The functions of two object files, compared to the byte.

Idea: compiled with a section for each function, an object says of every function its bytes and what
is to be put into them (relocations). Two objects are the same program if their functions have the
same names, bytes and relocations; addresses, and in which order functions stand, don't matter. One
freedom is left to the compiler: which operand of a comparison for equality stands first (GCC orders
them by internal numbers that code which vanishes has used up). Reads 64-bit little-endian ELF.
"""

import pathlib
import re
import struct
import subprocess

SHT_SYMTAB, SHT_RELA, SHT_NOBITS = 2, 4, 8
STT_OBJECT, STT_FUNC, STT_SECTION = 1, 2, 3


class Object:
    """`functions`: name -> (bytes, relocations); `sizes`: the numbers of one array."""

    def __init__(self, path, array="kNoopProofSizes"):
        self.path = path
        self.data = pathlib.Path(path).read_bytes()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path}: no 64-bit little-endian ELF object")
        self.sections = self._sections()
        symbols = next(s for s in self.sections if s["type"] == SHT_SYMTAB)
        self.symbols = self._symbols(symbols)
        relocations = self._relocations()
        self.functions, self.homes, self.sizes = {}, {}, ()
        for symbol in self.symbols:
            if symbol["section"] is None:
                continue
            where = symbol["section"]
            if symbol["kind"] == STT_FUNC and where["name"].startswith(".text"):
                begin, end = symbol["value"], symbol["value"] + symbol["size"]
                patched = tuple(sorted((at - begin, *rest) for at, *rest in
                                       relocations.get(where["index"], []) if begin <= at < end))
                self.functions[symbol["name"]] = (self._bytes(where)[begin:end], patched)
                self.homes[symbol["name"]] = where["name"]
            elif symbol["kind"] == STT_OBJECT and array in symbol["name"]:
                raw = self._bytes(where)[symbol["value"]:symbol["value"] + symbol["size"]]
                self.sizes = struct.unpack(f"<{len(raw) // 8}Q", raw)

    def text(self):
        """Bytes of all functions."""
        return sum(len(code) for code, _ in self.functions.values())

    def _bytes(self, section):
        if section["type"] == SHT_NOBITS:
            return bytes(section["size"])
        return self.data[section["offset"]:section["offset"] + section["size"]]

    def _sections(self):
        at, = struct.unpack_from("<Q", self.data, 0x28)
        size, count, names = struct.unpack_from("<HHH", self.data, 0x3A)
        if count == 0:  # many sections: the first one's size says how many
            count, = struct.unpack_from("<Q", self.data, at + 0x20)
        found = []
        for i in range(count):
            name, kind, _, _, offset, length, link, info, _, entry = struct.unpack_from(
                "<IIQQQQIIQQ", self.data, at + i * size)
            found.append({"index": i, "name": name, "type": kind, "offset": offset, "size": length,
                          "link": link, "info": info, "entry": entry})
        strings = found[names if names != 0xFFFF else found[0]["link"]]
        for section in found:
            section["name"] = self._string(strings, section["name"])
        return found

    def _string(self, table, at):
        begin = table["offset"] + at
        return self.data[begin:self.data.index(b"\0", begin)].decode()

    def _symbols(self, table):
        found = []
        extended = next((s for s in self.sections if s["name"] == ".symtab_shndx"), None)
        for i in range(table["size"] // 24):
            name, info, _, section, value, size = struct.unpack_from(
                "<IBBHQQ", self.data, table["offset"] + i * 24)
            if section == 0xFFFF and extended is not None:
                section, = struct.unpack_from("<I", self.data, extended["offset"] + 4 * i)
            home = self.sections[section] if 0 < section < len(self.sections) else None
            found.append({"name": self._string(self.sections[table["link"]], name),
                          "kind": info & 15, "section": home, "value": value, "size": size})
        return found

    def _relocations(self):
        """Section index -> (offset, type, what, addend)."""
        found = {}
        for table in self.sections:
            if table["type"] != SHT_RELA:
                continue
            for i in range(table["size"] // 24):
                at, info, addend = struct.unpack_from("<QQq", self.data, table["offset"] + i * 24)
                symbol = self.symbols[info >> 32]
                what = symbol["name"]
                if symbol["kind"] == STT_SECTION:
                    what = symbol["section"]["name"]
                found.setdefault(table["info"], []).append((at, info & 0xFFFFFFFF, what, addend))
        return found


EQUAL = re.compile(r"(j|set|cmov)n?e\b")


def instructions(text):
    """Disassembled text as a list of instructions and references, equality's operands in order."""
    lines = []
    for line in text.splitlines():
        match = re.match(r"\s*[0-9a-f]+:\s+(\S.*)", line)
        if match:
            lines.append(match[1].strip())
    for i, line in enumerate(lines[:-1]):
        match = re.fullmatch(r"(cmp\w?)\s+(.+)", line)
        if match and EQUAL.match(lines[i + 1]):
            operands = sorted(re.split(r",(?![^(]*\))", match[2]))
            lines[i] = f"{match[1]} {','.join(operands)}"
    return lines


def disassembled(of, name):
    """The section of one function, as instructions; what's put into them included."""
    done = subprocess.run(
        ["objdump", "-dr", "--no-show-raw-insn", "-j", of.homes[name], str(of.path)],
        capture_output=True, text=True, check=True)
    return instructions(done.stdout)


def differences(one, other):
    """Names of functions that only one object has, or that aren't the same; with why."""
    found = []
    for name in sorted(one.functions.keys() | other.functions.keys()):
        if name not in other.functions or name not in one.functions:
            where = "one" if name in one.functions else "other"
            found.append((name, f"only in the {where}"))
            continue
        (code, patched), (other_code, other_patched) = one.functions[name], other.functions[name]
        if len(code) != len(other_code):
            found.append((name, f"{len(code)} and {len(other_code)} bytes"))
        elif (code, patched) != (other_code, other_patched):
            if disassembled(one, name) != disassembled(other, name):
                found.append((name, "other bytes"))
    return found


def reordered(one, other):
    """How many functions are the same but for the order of an equality's operands."""
    return sum(1 for name, function in one.functions.items()
               if name in other.functions and function != other.functions[name])
