#!/usr/bin/env python3
"""Compares ids and decoded texts with those of the library that a tokenizer was made for, on 21,000 texts.

    python tools/check_tokenizers.py TIDEMILL MODEL... [--texts N]

MODEL: a folder with tokenizer.json, compared with the PyPI package `tokenizers`, or a .gguf file, compared with llama-cpp-python,
or, where its rule is smollm, with `tokenizers`, since llama.cpp knows fewer digits and treats bytes without a token in another way. Texts are those of
make_tokenizer_goldens.py with other seeds (which needs `tokenizers` and `gguf`). They go to the program in one text, with a special token
between them; a tokenizer whose words depend on where a text begins is therefore compared behind that token.
"""

import argparse
import ctypes
import json
import pathlib
import subprocess
import sys

import gguf
import tokenizers

import make_tokenizer_goldens as base


def make_texts(count):
    texts, makers = [], [(make, base.Maker(f"check:{make.__name__}")) for make in base.CATEGORIES]
    while len(texts) < count:
        texts += [make(maker) for make, maker in makers]
    return [text for text in texts[:count] if text]


class Folder:
    """The package `tokenizers`."""

    def __init__(self, path):
        self.tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
        document = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
        special = [t for t in document["added_tokens"] if t["special"] and not t["lstrip"] and not t["rstrip"]]
        self.separator, self.separator_id = special[-1]["content"], special[-1]["id"]
        decoder = document["decoder"]
        self.strips = any(step["type"] == "Strip" for step in decoder.get("decoders", []))

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def text(self, ids):
        return self.tokenizer.decode(ids, skip_special_tokens=False)


class SmolLm(Folder):
    """The package `tokenizers` with the vocabulary of a GGUF file whose rule is smollm."""

    def __init__(self, path):
        tokens, merges, num_special, _ = base.read_vocabulary(path)
        self.tokenizer = base.make_tokenizer(tokens, merges, num_special)
        self.separator, self.separator_id, self.strips = tokens[num_special - 1], num_special - 1, False


class Gguf:
    """llama.cpp."""

    def __init__(self, path):
        import llama_library  # noqa: PLC0415  only where it is asked for
        self.model = llama_library.Model(str(path), vocab_only=True)
        i32, p = ctypes.c_int32, ctypes.c_void_p
        self.detokenize = llama_library.function("llama_detokenize", i32, p, ctypes.POINTER(i32), i32, ctypes.c_char_p, i32,
                                                 ctypes.c_bool, ctypes.c_bool)
        fields = gguf.GGUFReader(path).fields
        names, types = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type"))
        self.separator_id = max(i for i, kind in enumerate(types) if int(kind) == 3)
        self.separator = names[self.separator_id]
        self.strips = False

    def ids(self, text):
        return self.model.tokenize(text.encode(), add_special=False, parse_special=True)

    def text(self, ids):
        out = ctypes.create_string_buffer(1024 * len(ids) + 1024)
        length = self.detokenize(self.model.vocab, (ctypes.c_int32 * len(ids))(*ids), len(ids), out, len(out), False, True)
        return out.raw[:length].decode(errors="replace")


def has_smollm_rule(path):
    return gguf.GGUFReader(path).fields["tokenizer.ggml.pre"].contents() == "smollm"


def run(command, text):
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr.decode(errors="replace"))
    return done.stdout


def split(items, separator):
    parts = [[]]
    for item in items:
        if item == separator:
            parts.append([])
        else:
            parts[-1].append(item)
    return parts


def check(tidemill, path, texts):
    peer = Folder(path) if path.suffix != ".gguf" else SmolLm(path) if has_smollm_rule(path) else Gguf(path)
    texts = [text for text in texts if peer.separator not in text]
    joined = peer.separator + peer.separator.join(texts) + peer.separator
    ids = [int(word) for word in run([tidemill, "tokenize", str(path), "--no-add-special", "-"], joined).split()]
    found = split(ids, peer.separator_id)[1:-1]
    if len(found) != len(texts):
        raise SystemExit(f"{path}: {len(texts)} texts, found {len(found)}")
    decoded = run([tidemill, "detokenize", str(path), "--keep-special"], " ".join(map(str, ids))).decode(errors="replace")
    decoded = decoded.split(peer.separator)[1:-1]
    wrong_ids = wrong_text = 0
    for text, mine, mine_text in zip(texts, found, decoded, strict=True):
        wanted = peer.ids(text)
        wanted_text = peer.text(wanted)
        if peer.strips:  # in the middle of a text the space that stands before each stretch is there
            mine_text = mine_text.removeprefix(" ")
        wrong_ids += mine != wanted
        wrong_text += mine_text != wanted_text
        if mine != wanted and wrong_ids <= 3:
            print(f"  {text[:60]!r}\n    expected {wanted[:16]}\n    found    {mine[:16]}")
        elif mine_text != wanted_text and wrong_text <= 3:
            print(f"  decoded: expected {wanted_text[:60]!r}\n           found    {mine_text[:60]!r}")
    print(f"{path.name}: {len(texts)} texts, {wrong_ids} differ in ids, {wrong_text} in text")
    return wrong_ids + wrong_text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("models", nargs="+", type=pathlib.Path)
    parser.add_argument("--texts", type=int, default=21000, help="made; those that spell a special token are left out")
    arguments = parser.parse_args()
    texts = make_texts(arguments.texts)
    return sum(check(arguments.tidemill, path, texts) for path in arguments.models) > 0


if __name__ == "__main__":
    sys.exit(main())
