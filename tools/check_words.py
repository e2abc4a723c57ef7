#!/usr/bin/env python3
"""Check that documents, comments, strings and identifiers use the field's words, in sentences that can be read once.

    check_words.py                every check over this checkout; one line per fault, exit 1 if there is any
    check_words.py --self-test    plants each refused word and a long sentence and asserts that each is found

Looks at tracked text but for data: fixtures, journals, plots and licences.
"""

import argparse
import re
import subprocess
import sys
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path

MAX_SENTENCE_WORDS = 40
SUFFIXES = {".md", ".h", ".cc", ".in", ".inc", ".py", ".sh", ".cmake", ".txt", ".json"}
NAMES = {"Makefile", "run", "full"}
DATA = re.compile(r"^(?:LICENSE$|tests/fixtures/.*\.(?!md$)|tests/fuzz/corpus/|benchmarks/journals/|benchmarks/plots/.*\.svg$|"
                  r"benchmarks/bmc/speculation_\w+\.jsonl$|src/text/jinja_unicode_data\.inc$|src/text/nfc_table\.cc$|"
                  r"tools/check_words\.py$)")

# (what is refused, what is said instead, an example). Names are taken apart first: kMostGuesses is read as "k most guesses".
REFUSED = [
    (r"guess(?:es|ed|ing)?", "draft token, drafted, drafting", "size_t GuessSeconds();"),
    (r"right share|share of right|right ones|rights? by position", "acceptance rate, accepted", "the share of right draft tokens"),
    (r"(?:are|was|were|is) right (?:\d+|one|six|eight) (?:times|of)|pays? where \d+ (?:are )?right", "break-even acceptance rate",
     "pays where 30 % are right"),
    (r"draft widths?|widths? of (?:a|the) drafts?", "number of draft tokens, num_draft_tokens", "DraftWidth"),
    (r"k (?:most|least)", "kMax, kMin", "kMostTokens"),
    (r"behind (?:n|[0-9][0-9,]*) (?:positions|tokens|others)|context of \d+ positions", "at depth N, context size", "decode behind 2048 positions"),
    (r"pending tokens?", "last sampled token", "the pending token"),
    (r"draft reading|reading (?:ms|s|seconds)", "draft prefill", "reading_ms"),
    (r"(?:in|any|by|without|other|of) company|company rows", "batch mates, batched", "RunInCompany"),
    (r"(?:runs?|ran|decoded) alone|alone or (?:in|with)", "unbatched", "a request that runs alone"),
    (r"puts? (?:\w+ ){0,2}aside|putting (?:\w+ )?aside", "preempted", "requests_put_aside"),
    (r"keys across|(?:stand(?:s|ing)?|turn(?:s|ed)?|score) across|turned keys|keys (?:are|is) turned", "transposed key tiles", "TurnAcross"),
    (r"strips? of (?:a )?weights?|(?:weight|num|matmul|mat mul) strips?|strip (?:type|layout|packing)", "packed panel", "kStripLayout"),
    (r"spare (?:rows?|capacity|ones)", "unused rows, unused capacity", "SpareRows()"),
    (r"growth periods?|kv period|a period of (?:rows|\d+)", "growth increment", "--kv-period"),
    (r"[mkg] ?i ?b held|held bytes of", "allocated", "22.5 MiB held"),
    (r"\d+ growths", "grown N times", "30 growths"),
    (r"for 1 of 100|99 of 100|half of the tokens", "p50, p99", "23 ms for 1 of 100"),
    (r"first token (?:ms|s|seconds)", "time to first token (TTFT)", "first_token_ms"),
    (r"next token at the (?:median|p\d+)", "inter-token latency", "to the next token at the median"),
    (r"beg[iau]ns? anew", "starts over", "begins anew"),
    (r"read from a file page faults", "major page faults", "12 read from a file (page faults)"),
    (r"steps without guesses", "drafting was disabled for some steps", "there were steps without guesses"),
    (r"doors?", "frontend", "the doors"),
    (r"busy neighbours?", "noisy neighbour", "busy_neighbour"),
]

# (files, text of the line, why it may stand).
ALLOWED: list[tuple[str, str, str]] = [
    (r"src/cli/flag_groups\.cc|tests/cli/bad_input_test\.cc|docs/cli\.md", r"--kv-period", "an old flag, whose error names the new one"),
]

_NAME_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+(?:,[0-9]{3})*")


@dataclass(frozen=True)
class Fault:
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def words_of(text: str, is_prose: bool) -> tuple[str, list[int], list[int]]:
    """All words and parts of names in lower case with a space between (and "|" where more than one stands there), where each begins, its line."""
    words, starts, lines, at = [], [], [], 0
    for number, line in enumerate(text.split("\n"), 1):
        continues = is_prose or line.lstrip().startswith(("//", "#", "*"))  # the line before it
        end = len(line) - len(line.lstrip(" /#*-")) if continues else -1
        for match in _NAME_PART.finditer(line):
            if end < 0 or line[end:match.start()].strip(" _-`\"%("):
                words.append("|")
                starts.append(at)
                lines.append(number)
                at += 2
            end = match.end()
            words.append(match.group(0).lower())
            starts.append(at)
            lines.append(number)
            at += len(words[-1]) + 1
    return " ".join(words), starts, lines


def word_faults(path: str, text: str) -> list[Fault]:
    words, starts, line_numbers = words_of(text, path.endswith(".md"))
    lines, faults = text.split("\n"), []
    for pattern, instead, _ in REFUSED:
        for match in re.finditer(rf"\b(?:{pattern})\b", words):
            number = line_numbers[bisect_right(starts, match.start()) - 1]
            if not any(re.fullmatch(files, path) and re.search(allowed, lines[number - 1]) for files, allowed, _ in ALLOWED):
                faults.append(Fault(f"{path}:{number}", f"'{match.group(0)}': say {instead}"))
    return faults


def document_paragraphs(text: str):
    """(line, paragraph) of a Markdown document: code is left out; list items and cells of tables stand alone."""
    fenced, start, lines = False, 0, []
    for number, line in enumerate(text.split("\n") + [""], 1):
        fence = re.match(r"\s*(```|~~~)", line)
        breaks = fence or fenced or not line.strip() or re.match(r"\s*(?:[-*+] |\d+\. |#|\||>|!\[|<|    )", line)
        if breaks and lines:
            yield start, " ".join(lines)
            lines = []
        if fence:
            fenced = not fenced
        elif fenced:
            continue
        elif line.lstrip().startswith("|"):
            for cell in re.split(r"(?<!\\)\|", line):
                yield number, cell
        elif line.strip() and not line.startswith("    "):
            if not lines:
                start = number
            lines.append(re.sub(r"^\s*(?:[-*+] |\d+\. |#+ |> )", "", line.strip()))


def comment_paragraphs(text: str):
    """(line, paragraph) of a header's comments: an indented line, a formula or a table, stands alone."""
    start, lines = 0, []
    for number, line in enumerate(text.split("\n") + [""], 1):
        match = re.match(r"\s*//+ ?(.*)$", line)
        body = match.group(1) if match else ""
        alone = body.startswith("  ") or re.match(r"\s*[-*] ", body) or re.match(r"\w+(?:, \w+)* +: ", body)
        if (not body.strip() or alone) and lines:
            yield start, " ".join(lines)
            lines = []
        if body.strip():
            if not lines:
                start = number
            lines.append(body.strip())


def sentences(paragraph: str):
    paragraph = re.sub(r"\]\([^)]*\)", "]", paragraph)  # a link's target is not read
    paragraph = re.sub(r"`[^`]*`", "`code`", paragraph)
    return re.split(r"(?<=[.!?])[)*\"']* +(?=[A-Z(`\"*'\[0-9a-z~|])|(?<=[.!?])$", paragraph)


def sentence_faults(path: str, text: str) -> list[Fault]:
    paragraphs = document_paragraphs(text) if path.endswith(".md") else comment_paragraphs(text)
    faults = []
    for line, paragraph in paragraphs:
        for sentence in sentences(paragraph):
            count = sum(1 for word in sentence.split() if re.fullmatch(r"\W*[A-Za-z][A-Za-z'-]*\W*", word))  # no numbers, no formulas
            if count > MAX_SENTENCE_WORDS:
                faults.append(Fault(f"{path}:{line}", f"a sentence of {count} words, at most {MAX_SENTENCE_WORDS}: "
                                    f"'{' '.join(sentence.split()[:8])} ...'"))
    return faults


def faults_of(path: str, text: str) -> list[Fault]:
    faults = word_faults(path, path) + word_faults(path, text)
    if path.endswith((".md", ".h")):
        faults += sentence_faults(path, text)
    return faults


def tracked(root: Path) -> list[str]:
    out = subprocess.run(["git", "-C", str(root), "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others",
                          "--exclude-standard"], stdout=subprocess.PIPE, check=True).stdout.decode()
    return sorted(f for f in out.split("\0") if f and not DATA.search(f) and (root / f).is_file() and
                  (Path(f).suffix in SUFFIXES or Path(f).name in NAMES))


def self_test() -> None:
    """Each refused word in a comment and in a document, a long sentence in both, and what must pass."""
    clean = "// The number of draft tokens is " + "n, " * 20 + "as the acceptance rate says.\n" + "// Strip blanks. Rooms are folders.\n"
    assert faults_of("src/base/a.h", clean) == [], faults_of("src/base/a.h", clean)
    for pattern, _, example in REFUSED:
        for path, text in (("src/base/a.cc", f"int x;  // {example}\n"), ("docs/a.md", f"One.\n\n{example}\n")):
            assert any("say" in f.what for f in faults_of(path, text)), f"not found in {path}: {example} ({pattern})"
    long = "word " * (MAX_SENTENCE_WORDS + 1)
    for path, text in (("docs/a.md", f"# T\n\n{long}\n"), ("docs/a.md", f"| {long} |\n"), ("src/base/a.h", f"// A line.\n// {long}\n")):
        assert any("sentence" in f.what for f in faults_of(path, text)), f"a long sentence in {path} was not found"
    half = "word " * (MAX_SENTENCE_WORDS - 1)
    for path, text in (("docs/a.md", f"{half}end. {half}end.\n\n```\n{long}\n```\n"), ("src/base/a.h", f"// {half}end.\n// {half}end.\n")):
        assert faults_of(path, text) == [], f"a short sentence in {path} was refused: {faults_of(path, text)}"
    print(f"check_words: {len(REFUSED)} planted words and a long sentence were found")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--self-test", action="store_true", help="plant each fault and assert that it is found")
    if parser.parse_args().self_test:
        self_test()
        return 0
    root = Path(__file__).resolve().parent.parent
    paths = tracked(root)
    faults = [fault for path in paths for fault in faults_of(path, (root / path).read_text(errors="replace"))]
    for fault in faults:
        print(fault)
    print(f"check_words: {len(paths)} files, {len(faults)} faults", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
