#!/usr/bin/env python3
"""Check what the compiler cannot: that the tree keeps the structure ARCHITECTURE.md describes.

    check_structure.py                 every check over this checkout; one line per fault, exit 1 if there is any
    check_structure.py --no-compile    the same without compiling each header alone (a second instead of a minute)
    check_structure.py --self-test     plants every kind of fault in a copy of the tree and asserts that it is found

Looks at the files that git tracks or would track; without git, at everything but build folders.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# Lowest first. A room may include the rooms before it; a frontend sees the public headers, itself, and how all read and write JSON.
ROOMS = ["base", "tensor", "kernels", "formats", "text", "state", "models", "engine", "decoding", "planner", "runtime"]
FRONTENDS = ["server", "cli", "python"]
SEEN_BY_FRONTENDS = {"base/json.h", "base/json_document.h"}
GENERATED = {"tests/fixtures_path.h"}  # headers that CMake writes
PARSES_HOSTILE_INPUT = ["formats", "text", "server"]

MAX_LINES = 600
MAX_LINES_UNLESS_GENERATED = 1000
LONG_FILE_REASON = "Longer than 600 lines because"
MAX_BYTES = 1_000_000

SOURCE_SUFFIXES = {".h", ".cc"}
CODE_SUFFIXES = SOURCE_SUFFIXES | {".py", ".sh", ".cmake"}

INCLUDES = re.compile(r"^\s*#\s*include\s*([\"<])([^\">]+)[\">]", re.MULTILINE)
X86_HEADERS = re.compile(r"#\s*include\s*[<\"]((?:[a-z0-9]*mm|x86|x86gpr|avx\w*|amx\w*|fma\w*|ia32)intrin\.h)[>\"]")
TEMPLATE_HEADERS = re.compile(r"#\s*include\s*<(algorithm|array|cmath|functional|memory|numeric|span|string|utility|vector)>")
X86_FILES = re.compile(r"src/kernels/cpu/[a-z0-9_]*_(?:vnni|bf16|avx)[a-z0-9_]*(?:-inl)?\.(?:cc|h)")

FORBIDDEN = [  # (pattern over code without comments and strings, why not)
    (r"\bstd\s*::\s*w?regex\w*|#\s*include\s*<regex>", "recurses on its input; use PCRE2 or a scanner"),
    (r"\bstrto(?:u?ll?|u?l|imax|umax)\s*\(", "accepts signs, blanks and overflow in silence; use std::from_chars"),
    (r"\bato(?:i|l|ll|f)\s*\(", "reports no error; use std::from_chars"),
    (r"\bsto(?:i|l|ll|ul|ull|f|d|ld)\s*\(", "throws and stops at the first stray byte; use std::from_chars"),
    (r"\bv?sprintf\s*\(", "does not know the size of its buffer; use std::string or snprintf"),
    (r"\bstr(?:cpy|cat)\s*\(", "does not know the size of its buffer; use std::string"),
    (r"\b(?:__builtin_)?alloca\s*\(", "overruns the stack on a large size"),
    (r"(?<!\.)(?<!->)\bsystem\s*\(", "runs a shell"),
    (r"\bpopen\s*\(", "runs a shell"),
    (r"#\s*(?:pragma\s+omp\b|include\s*<omp\.h>)", "the engine has its own thread pool"),
]
FORBIDDEN_WHERE_INPUT_IS_HOSTILE = [
    (r"(?<!static_)\bassert\s*\(", "an input may reach it; return an Error"),
    (r"\babort\s*\(", "an input may reach it; return an Error"),
]

# Split, so that this file does not find itself.
UNFINISHED = re.compile(r"\b(?:" + "TO" + r"DO|" + "FIX" + r"ME|" + "XX" + r"X)\b")
COMMENT_START = re.compile(r"#|//|/\*|^\s*\*", re.MULTILINE)
PRIVATE_PLACES = re.compile(
    r"(?<![\w.])/" + r"work/|\.\./" + r"shared\b|/opt/" + r"tm\b|/" + r"home/[a-z]|"
    r"\b(?:files\.python" + r"hosted\.org|py" + r"pi\.org|deb\." + r"debian\.org|(?:archive|ports)\." + r"ubuntu\.com|"
    r"[\w-]+\.pkg\." + r"dev)\b")
VAGUE_NAMES = {"utils", "util", "common", "misc", "helpers", "helper"}


@dataclass(frozen=True)
class Fault:
    check: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: [{self.check}] {self.what}"


class Tree:
    """The files of one checkout, read once."""

    def __init__(self, root: Path):
        self.root = root
        self.files = sorted(self._list())
        self.sizes = {f: (root / f).stat().st_size for f in self.files}
        self.texts: dict[str, str] = {}
        for f in self.files:
            data = (root / f).read_bytes()
            if b"\0" in data[:8192]:
                continue
            try:
                self.texts[f] = data.decode("utf-8")
            except UnicodeDecodeError:
                continue  # a fixture that is broken on purpose

    def _list(self) -> list[str]:
        if (self.root / ".git").exists():
            out = subprocess.run(["git", "-C", str(self.root), "-c", "safe.directory=*", "ls-files", "-z", "--cached",
                                  "--others", "--exclude-standard"], stdout=subprocess.PIPE, check=True).stdout
            return [f for f in out.decode().split("\0") if f and (self.root / f).is_file()]
        found = []
        for folder, folders, files in os.walk(self.root):
            folders[:] = [d for d in folders if d not in ("build", ".git", ".cache", "__pycache__")]
            found += [str((Path(folder) / f).relative_to(self.root)) for f in files]
        return found

    def sources(self) -> list[str]:
        return [f for f in self.texts if Path(f).suffix in SOURCE_SUFFIXES]

    def has_folder(self, folder: str) -> bool:
        return any(f.startswith(folder + "/") for f in self.files)


def room_of(path: str) -> str | None:
    parts = path.split("/")
    return parts[1] if parts[0] == "src" and len(parts) > 2 else None


def line_of(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


# These two are kept per text: the self-test looks at the same tree sixty times, with one file changed each time.
@cache
def found_in(text: str, pattern: str | re.Pattern) -> list[re.Match]:
    return list(re.finditer(pattern, text))


_COMMENT_OR_STRING = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
    r'(?<![\w\'])(?:u8|[uUL])?\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)


@cache
def code_only(text: str) -> str:
    """The text with comments and literals blanked out, line numbers kept; include lines stay whole."""
    def blank(match: re.Match) -> str:
        return re.sub(r"[^\n]", " ", match.group(0))
    lines = []
    blanked = _COMMENT_OR_STRING.sub(blank, text)
    for before, after in zip(text.split("\n"), blanked.split("\n"), strict=True):
        lines.append(before if re.match(r"\s*#\s*include\b", after) else after)
    return "\n".join(lines)


def check_includes(tree: Tree) -> list[Fault]:
    faults = []
    known = ROOMS + FRONTENDS
    for room in sorted({r for f in tree.files if (r := room_of(f))}):
        if room not in known:
            faults.append(Fault("rooms", f"src/{room}", f"is no known room; the rooms are {', '.join(known)}"))
    for f in tree.sources():
        room = room_of(f)
        is_test = f.endswith("_test.cc")
        text = tree.texts[f]
        for m in found_in(code_only(text), INCLUDES):
            where, target = f"{f}:{line_of(text, m.start(2))}", m.group(2)
            if m.group(1) == "<":
                if target.startswith("tidemill/") or target.split("/")[0] in known and f"src/{target}" in tree.texts:
                    faults.append(Fault("includes", where, f'our own header in <>: write "{target}"'))
                continue
            if ".." in target.split("/"):
                faults.append(Fault("includes", where, f'"{target}": write the path from src/'))
                continue
            if target.startswith("tidemill/"):
                if f"include/{target}" not in tree.texts:
                    faults.append(Fault("includes", where, f'"{target}" is no public header'))
                continue
            target_room = target.split("/")[0]
            if target_room in ("tests", "benchmarks"):
                if not is_test and not f.startswith(("tests/", "benchmarks/")):
                    faults.append(Fault("includes", where, f'"{target}": only a test may include it'))
                if target not in tree.texts and target not in GENERATED:
                    faults.append(Fault("includes", where, f'"{target}" does not exist'))
                continue
            if target_room not in known:
                # <gtest/...>, "hwy/foreach_target.h" and the like, which some libraries ask to be quoted
                if not re.match(r"(?:hwy|nlohmann|CLI|gtest|gmock|benchmark)/|pcre2\.h$", target):
                    faults.append(Fault("includes", where, f'"{target}": write the path from src/'))
                continue
            if f"src/{target}" not in tree.texts:
                faults.append(Fault("includes", where, f'"{target}" does not exist'))
            if f.startswith("include/"):
                faults.append(Fault("includes", where, f'a public header includes "{target}", which is not installed'))
            elif room in FRONTENDS and target_room != room and target not in SEEN_BY_FRONTENDS:
                faults.append(Fault("includes", where, f'{room} is a frontend: it sees "tidemill/..." and its own room, '
                                                       f'not "{target}"'))
            elif room in ROOMS and target_room in FRONTENDS:
                faults.append(Fault("includes", where, f'{room} includes "{target}": upwards'))
            elif room in ROOMS and ROOMS.index(target_room) > ROOMS.index(room):
                faults.append(Fault("includes", where, f'{room} includes "{target}": upwards'))
    return faults


def check_links(tree: Tree) -> list[Fault]:
    faults = []
    for f in tree.texts:
        if not (room := room_of(f)) or Path(f).name != "CMakeLists.txt" or room not in ROOMS:
            continue
        text = re.sub(r"#[^\n]*", "", tree.texts[f])
        for m in re.finditer(r"\btidemill_([a-z]+)\b", text):
            if m.group(1) in ROOMS + FRONTENDS and (m.group(1) in FRONTENDS or ROOMS.index(m.group(1)) > ROOMS.index(room)):
                faults.append(Fault("links", f"{f}:{line_of(text, m.start())}", f"{room} links {m.group(0)}: upwards"))
    return faults


def check_guards(tree: Tree) -> list[Fault]:
    faults = []
    for f in tree.sources():
        if not f.endswith(".h") or f.endswith("-inl.h"):  # Highway's per-target headers are included many times
            continue
        path = f.removeprefix("src/").removeprefix("include/")
        path = path if path.startswith("tidemill/") else "tidemill/" + path
        guard = re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"
        if not re.search(rf"^#ifndef {guard}\n#define {guard}$", tree.texts[f], re.MULTILINE):
            faults.append(Fault("guards", f, f"expected the include guard {guard}"))
    return faults


def check_lengths(tree: Tree) -> list[Fault]:
    faults = []
    for f, text in tree.texts.items():
        name = Path(f)
        is_code = name.suffix in CODE_SUFFIXES or name.name in ("CMakeLists.txt", "Makefile") or f.startswith(".ci/")
        lines = text.count("\n")
        if not is_code or lines <= MAX_LINES:
            continue
        reasons = [line for line in text.split("\n")[:20] if LONG_FILE_REASON in line]
        if not reasons:
            faults.append(Fault("lengths", f, f"{lines} lines: split it, or say at the top '{LONG_FILE_REASON} ...'"))
        elif lines > MAX_LINES_UNLESS_GENERATED and "generated" not in reasons[0]:
            faults.append(Fault("lengths", f, f"{lines} lines: only a generated file may pass "
                                              f"{MAX_LINES_UNLESS_GENERATED}"))
    return faults


def check_x86(tree: Tree) -> list[Fault]:
    faults = []
    for f in tree.sources():
        text = code_only(tree.texts[f])
        if X86_FILES.fullmatch(f):
            for m in found_in(text, TEMPLATE_HEADERS):
                faults.append(Fault("x86", f"{f}:{line_of(text, m.start())}",
                                    f"<{m.group(1)}>: its templates would be compiled for this level and may be linked for all; do without"))
            continue
        for m in found_in(text, X86_HEADERS):
            faults.append(Fault("x86", f"{f}:{line_of(text, m.start())}",
                                f"{m.group(1)}: only a per-level kernel (src/kernels/cpu/*_vnni*, *_bf16*, *_avx*) may "
                                "include it; use Highway"))
    return faults


def check_forbidden(tree: Tree) -> list[Fault]:
    faults = []
    for f in tree.sources():
        text = code_only(tree.texts[f])
        rules = list(FORBIDDEN)
        if room_of(f) in PARSES_HOSTILE_INPUT and not f.endswith("_test.cc"):
            rules += FORBIDDEN_WHERE_INPUT_IS_HOSTILE
        for pattern, why in rules:
            for m in found_in(text, pattern):
                faults.append(Fault("forbidden", f"{f}:{line_of(text, m.start())}", f"{m.group(0).strip()}: {why}"))
    return faults


def check_sizes(tree: Tree) -> list[Fault]:
    return [Fault("sizes", f, f"{size} bytes; at most {MAX_BYTES} may be tracked")
            for f, size in tree.sizes.items() if size > MAX_BYTES]


def is_corpus(f: str) -> bool:
    """Bytes for tests and fuzzers: their text is somebody's input, not our prose."""
    return ("/corpus/" in f or f.startswith("tests/fixtures/")) and Path(f).suffix not in (".md", ".py", ".sh")


def check_texts(tree: Tree) -> list[Fault]:
    faults = []
    for f, text in tree.texts.items():
        if is_corpus(f):
            continue
        for m in found_in(text, UNFINISHED):
            line_start = text.rfind("\n", 0, m.start()) + 1
            if not f.endswith(".md") and not COMMENT_START.search(text[line_start:m.start()]):
                continue  # somebody's data in a literal
            faults.append(Fault("unfinished", f"{f}:{line_of(text, m.start())}", f"{m.group(0)}: finish it or drop it"))
        for m in found_in(text, PRIVATE_PLACES):
            faults.append(Fault("places", f"{f}:{line_of(text, m.start())}",
                                f"{m.group(0)}: a place that exists on one machine only, or a registry by name"))
    return faults


def check_names(tree: Tree) -> list[Fault]:
    faults = []
    for f in tree.files:
        parts = [Path(p).stem for p in f.split("/")]
        if vague := VAGUE_NAMES.intersection(parts):
            faults.append(Fault("names", f, f"'{vague.pop()}' says nothing: name it for its content"))
    return faults


def check_documents(tree: Tree) -> list[Fault]:
    faults = []
    architecture = tree.texts.get("ARCHITECTURE.md", "")
    for room in sorted({r for f in tree.files if (r := room_of(f))}):
        m = re.search(rf"^#+ `{room}`[^\n]*\n+((?:[^\n#][^\n]*\n?)*)", architecture, re.MULTILINE)
        if not m or len(m.group(1).split()) < 20:
            faults.append(Fault("documents", "ARCHITECTURE.md", f"src/{room} has no paragraph under a heading `{room}`"))
    top = {f.split("/")[0] for f in tree.files if "/" in f} - {"build"}
    for f, text in tree.texts.items():
        if not f.endswith(".md") or is_corpus(f):
            continue
        folder = str(Path(f).parent)
        named = [(m.start(), m.group(1), "") for m in re.finditer(r"`([\w.-]+(?:/[\w.-]+)+/?)`", text)]
        named += [(m.start(), m.group(1), folder) for m in re.finditer(r"\]\(([^)#\s:]+)(?:#[^)]*)?\)", text)]
        for offset, target, base in named:
            path = os.path.normpath(os.path.join(base, target))
            if not base and path.split("/")[0] not in top:
                continue  # a path of somebody else's: `config.json`, `usr/share/...`
            if path not in tree.files and not tree.has_folder(path):
                faults.append(Fault("documents", f"{f}:{line_of(text, offset)}", f"names {target}, which is not there"))
    return faults


def included_first(tree: Tree) -> set[str]:
    """The headers with which some source file begins: the build itself compiles those alone."""
    first = set()
    for f in tree.sources():
        if f.endswith(".cc") and (m := re.search(r'^#include [<"]([^>"]+)[>"]', tree.texts[f], re.MULTILINE)):
            first.add(f"src/{m.group(1)}")
    return first


def check_headers_compile(tree: Tree, only: list[str] | None = None) -> list[Fault]:
    built_alone = included_first(tree)
    headers = only or [f for f in tree.sources()
                       if f.endswith(".h") and f.startswith(("include/", "src/")) and not f.endswith("-inl.h")
                       and f not in built_alone]
    compiler = os.environ.get("CXX", "g++")
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", "c++", "-"]
    if platform.machine() in ("x86_64", "AMD64"):
        command[1:1] = ["-march=x86-64-v2", "-maes", "-mpclmul"]

    def compile_alone(header: str) -> Fault | None:
        includes = [f"-I{tree.root}/include"]
        if not header.startswith("include/"):  # a public header sees no room and no definition of our build's
            includes += [f"-I{tree.root}/src", '-DTIDEMILL_VERSION="0"']
        name = header.removeprefix("include/").removeprefix("src/")
        done = subprocess.run(command[:1] + includes + command[1:], input=f'#include "{name}"\n', text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode == 0:
            return None
        errors = [line for line in done.stdout.split("\n") if "error:" in line] or [done.stdout.strip()[:200]]
        return Fault("headers", header, f"does not compile alone: {errors[0].replace(str(tree.root) + '/', '')}")

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return [fault for fault in pool.map(compile_alone, headers) if fault]


CHECKS = [check_includes, check_links, check_guards, check_lengths, check_x86, check_forbidden, check_sizes, check_texts,
          check_names, check_documents]


def check(root: Path) -> list[Fault]:
    tree = Tree(root)
    return [fault for one in CHECKS for fault in one(tree)]


# Each fault: the check that must find it, the file that is changed or made, and what is put at its end.
PLANTED = [
    ("includes", "src/base/check.h", '#include "tensor/dtype.h"\n'),
    ("includes", "src/tensor/planted.h", '#include "cli/planted.h"\n'),
    ("includes", "src/cli/planted.cc", '#include "base/check.h"\n'),
    ("includes", "src/server/planted.cc", '#include "cli/planted.h"\n'),
    ("includes", "include/tidemill/result.h", '#include "base/check.h"\n'),
    ("includes", "src/base/check.cc", '#include "../tensor/dtype.h"\n'),
    ("includes", "src/base/check.cc", '#include "check.h"\n'),
    ("includes", "src/base/check.cc", '#include "tests/planted.h"\n'),
    ("includes", "src/base/check.cc", '#include "tidemill/no_such_header.h"\n'),
    ("includes", "src/base/check.cc", '#include <base/check.h>\n'),
    ("rooms", "src/attic/planted.cc", "int x;\n"),
    ("links", "src/base/CMakeLists.txt", "target_link_libraries(tidemill_base PUBLIC tidemill_tensor)\n"),
    ("guards", "src/base/planted.h", "#ifndef WRONG_H_\n#define WRONG_H_\n#endif\n"),
    ("guards", "src/base/planted.h", "int no_guard();\n"),
    ("lengths", "src/base/planted.cc", "int x();\n" * 601),
    ("lengths", "tools/planted.py", "x = 1\n" * 601),
    ("lengths", "src/base/planted.cc", f"// {LONG_FILE_REASON} it is a table.\n" + "int x();\n" * 1001),
    ("x86", "src/base/planted.cc", "#include <immintrin.h>\n"),
    ("x86", "src/kernels/cpu/planted.cc", "#include <emmintrin.h>\n"),
    ("x86", "src/kernels/cpu/matmul_q8_avx512_vnni.cc", "#include <algorithm>\n"),
    ("forbidden", "src/base/planted.cc", "#include <regex>\n"),
    ("forbidden", "src/base/planted.cc", "std::regex r;\n"),
    ("forbidden", "src/base/planted.cc", "auto x = strtoul(s, &e, 10);\n"),
    ("forbidden", "src/base/planted.cc", "int x = atoi(s);\n"),
    ("forbidden", "src/base/planted.cc", "int x = std::stoi(s);\n"),
    ("forbidden", "src/base/planted.cc", "sprintf(b, s);\n"),
    ("forbidden", "src/base/planted.cc", "strcpy(b, s);\n"),
    ("forbidden", "src/base/planted.cc", "char* b = static_cast<char*>(alloca(n));\n"),
    ("forbidden", "src/base/planted.cc", "std::system(s);\n"),
    ("forbidden", "src/base/planted.cc", "FILE* f = popen(s, m);\n"),
    ("forbidden", "src/base/planted.cc", "#pragma omp parallel for\n"),
    ("forbidden", "src/formats/planted.cc", "void F(int n) { assert(n > 0); }\n"),
    ("forbidden", "src/text/planted.cc", "void F() { std::abort(); }\n"),
    ("forbidden", "src/server/planted.cc", "void F() { abort(); }\n"),
    ("sizes", "tests/fixtures/planted.bin", "x" * (MAX_BYTES + 1)),
    ("unfinished", "src/base/check.cc", "// " + "TO" + "DO: later\n"),
    ("unfinished", "tools/planted.py", "x = 1  # " + "TO" + "DO\n"),
    ("unfinished", "README.md", "FIX" + "ME\n"),
    ("places", "README.md", "See /" + "work/x.\n"),
    ("places", "tools/planted.py", "# ../" + "shared/y\n"),
    ("places", "tests/fixtures/README.md", "made in /opt/" + "tm\n"),
    ("places", "CONTRIBUTING.md", "from https://py" + "pi.org/simple\n"),
    ("names", "src/base/utils.h", ""),
    ("documents", "src/attic/planted.cc", "int x;\n"),
    ("documents", "README.md", "See `tools/no_such_tool.py`.\n"),
    ("documents", "docs/planted.md", "See [this](no_such_page.md).\n"),
    ("headers", "src/base/planted.h", "inline std::string Planted() { return {}; }\n"),
    ("headers", "include/tidemill/planted.h", '#include "base/check.h"\n'),
]

# What looks like a fault and is none.
INNOCENT = [
    ("src/tensor/planted.cc", '#include "base/check.h"\n#include "tidemill/result.h"\n#include "tensor/dtype.h"\n'),
    ("src/base/planted.cc", "// std::regex, atoi( and #include <immintrin.h> are not used here\n"
                            'const char* x = "strcpy(a, b)";\nint n = snprintf(b, 4, s);\nx.system();\n'),
    ("src/base/planted.cc", "size_t n = 1'000'000;\nchar32_t c = U'\"';  // atoi(\nchar d = '\\'';  // \" stoi(\n"),
    ("src/formats/planted.cc", "static_assert(sizeof(int) == 4);\n"),
    ("src/formats/planted_test.cc", "void F() { abort(); }\n"),
    ("src/kernels/cpu/matmul_q8_avx512_vnni.cc", "#include <immintrin.h>\n"),
    ("src/base/planted.cc", f"// {LONG_FILE_REASON} it is a table.\n" + "int x();\n" * 700),
    ("src/base/planted.cc", f"// {LONG_FILE_REASON} it is generated by tools/x.py.\n" + "int x();\n" * 1700),
    ("tests/fixtures/planted.txt", "TO" + "DO: /" + "work/\n"),
    ("tools/planted.py", 'sample = "' + "FIX" + 'ME"\n'),
    ("src/base/planted_test.cc", "#include <gtest/gtest.h>\n"),
]


def self_test(root: Path) -> int:
    tree = Tree(root)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="tidemill-structure-") as folder:
        copy = Path(folder) / "tree"
        for f in tree.files:
            (copy / f).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / f, copy / f)
        before = set(check(copy))

        def new_faults(file: str, addition: str, compile_it: bool) -> set[Fault]:
            path = copy / file
            missing = [p for p in path.parents if not p.exists()]
            original = path.read_bytes() if path.exists() else None
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((original or b"") + addition.encode())
            try:
                if compile_it:
                    return set(check_headers_compile(Tree(copy), only=[file]))
                return set(check(copy)) - before
            finally:
                if original is None:
                    path.unlink()
                else:
                    path.write_bytes(original)
                for p in missing:
                    p.rmdir()

        for expected, file, addition in PLANTED:
            found = new_faults(file, addition, compile_it=expected == "headers")
            if expected not in {fault.check for fault in found}:
                wrong += 1
                print(f"self-test: planted in {file}: {addition[:60]!r}: expected a fault of [{expected}], found "
                      f"{[str(fault) for fault in found]}")
        for file, addition in INNOCENT:
            # A room that the tree does not have yet has no paragraph either; that is not what is asked here.
            found = {f for f in new_faults(file, addition, compile_it=False) if f.check != "documents"}
            if found:
                wrong += 1
                print(f"self-test: {file}: {addition[:60]!r} is no fault, found {[str(fault) for fault in found]}")
        if set(check(copy)) != before:
            wrong += 1
            print("self-test: the copy was not restored")
    print(f"self-test: {len(PLANTED)} planted faults and {len(INNOCENT)} innocent changes, {wrong} judged wrongly")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--no-compile", action="store_true", help="skip compiling each header alone")
    parser.add_argument("--self-test", action="store_true", help="plant faults and assert that they are found")
    args = parser.parse_args()
    if args.self_test:
        return self_test(args.root)
    faults = check(args.root)
    if not args.no_compile:
        faults += check_headers_compile(Tree(args.root))
    for fault in faults:
        print(fault)
    print(f"check_structure: {len(faults)} fault(s)")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
