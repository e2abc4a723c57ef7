#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizer_json/: small tokenizers, texts, and what the PyPI packages make of the texts.

    python tools/make_tokenizer_json_goldens.py [--shakespeare FOLDER]

Needs `tokenizers`, `sentencepiece` and `gguf` (make_tokenizer_goldens.py, whose texts are used, imports it). Each tokenizer has
the shape of a published one and a vocabulary trained here on those texts; seeds are fixed. --shakespeare copies tokenizer.json
and golden.json from a folder. The README beside the files names versions and hashes.
"""

import argparse
import hashlib
import io
import json
import pathlib
import random
import unicodedata

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import make_tokenizer_goldens as base

FIXTURES = base.FIXTURES.parent / "tokenizer_json"
TEXTS = 12  # per category
SPACE = "\u2581"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def training_texts(categories=base.CATEGORIES[:9]):
    return [text for category in categories for text in base.make_texts(category)[:100]]


def test_texts():
    texts = [text for category in base.CATEGORIES for text in base.make_texts(category)[:TEXTS]]
    texts += ["", " ", "  ", "a  b", " a", "a ", "\n\n\n a", "<tool_call>{}</tool_call>", "x<tool_call> <|im_end|> y", SPACE, f"a{SPACE}b",
              "<0x41>", "<s>a</s> b", "ééé e\u0301e\u0301", "\u212b\u1100\u1161\u11a8", "q\u0307\u0323", "\x00a\x00"]
    return texts


def byte_level(splitter, vocab_size, special=SPECIAL, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = splitter
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def split(expression):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(expression), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def template(tokenizer, before, after=""):
    pieces = [before, "$A", after] if after else [before, "$A"]
    ids = [(token, tokenizer.token_to_id(token)) for token in pieces if token != "$A"]
    return processors.TemplateProcessing(single=" ".join(pieces), special_tokens=ids)


def gpt2_like():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), 700, ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    document = json.loads(tokenizer.to_str())
    # As old files spell it: no type, merges as strings, an added token that is normalised.
    del document["model"]["type"]
    document["model"]["merges"] = [" ".join(merge) for merge in document["model"]["merges"]]
    document["added_tokens"][0]["normalized"] = True
    return document


def qwen2_like():
    tokenizer = byte_level(split(base.QWEN2), 800)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ("<tool_call>", "</tool_call>")])
    return json.loads(tokenizer.to_str())


def llama3_like():
    tokenizer = byte_level(split(base.LLAMA3), 800, ["<|begin_of_text|>", *SPECIAL], ignore_merges=True)
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), template(tokenizer, "<|begin_of_text|>")]
    )
    document = json.loads(tokenizer.to_str())
    # A word that no merge makes, and one that merging would split elsewhere.
    vocabulary = document["model"]["vocab"]
    for word in ("Ġzzyzx", "Ġunderstanding", "---zz"):
        vocabulary.setdefault(word, len(vocabulary))
    return document


def digits_like():
    tokenizer = byte_level(base.WORD_RULES["smollm"], 600, ["<s>", "</s>"])
    tokenizer.post_processor = template(tokenizer, "<s>", "</s>")
    return json.loads(tokenizer.to_str())


def train_pieces(**options):
    model = io.BytesIO()
    texts = training_texts((base.latin, base.cyrillic_greek, base.whitespace, base.code, base.contractions))  # few characters
    sentences = [line for text in texts for line in text.split("\n") if line and "\0" not in line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, model_type="bpe", vocab_size=1000, byte_fallback=True,
        character_coverage=0.98, normalization_rule_name="identity", remove_extra_whitespaces=False, num_threads=1,
        split_digits=True, minloglevel=2, **options,
    )
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model.getvalue())
    return processor


def type_of(processor, i):
    """As tokenizer.ggml.token_type numbers them."""
    if processor.IsUnknown(i):
        return 2
    if processor.IsControl(i):
        return 3
    if processor.IsByte(i):
        return 6
    return 4 if processor.GetScore(i) == 0 and i > 2 and processor.IdToPiece(i) in USER_DEFINED else 1


USER_DEFINED = ["<tool_call>", "</tool_call>", "\n", "\n\n", SPACE * 2]


def write_pieces(name, processor):
    """A line per token: spelling, score, type. As in a GGUF file, user-defined tokens have spaces for U+2581."""
    rows = []
    for i in range(processor.GetPieceSize()):
        piece, kind = processor.IdToPiece(i), type_of(processor, i)
        rows.append([piece.replace(SPACE, " ") if kind == 4 else piece, processor.GetScore(i), kind])
    return write(f"{name}.jsonl", rows)


def characters_from(processor, prefix):
    """The same vocabulary as a tokenizer.json: its merges are all pairs that make a token, by score."""
    size = processor.GetPieceSize()
    vocabulary = {processor.IdToPiece(i): i for i in range(size)}
    mergeable = {t for t, i in vocabulary.items() if type_of(processor, i) in (1, 4)}
    merges = []
    for token in sorted(mergeable, key=lambda t: (-processor.GetScore(vocabulary[t]), vocabulary[t])):
        halves = [(token[:i], token[i:]) for i in range(1, len(token))]
        merges += [(a, b) for a, b in halves if a in mergeable and b in mergeable]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    replace = normalizers.Replace(" ", SPACE)
    decode = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), replace])
        decode.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = replace
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(decode)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")])
    added = [t for t in USER_DEFINED if t in vocabulary]
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in added])
    tokenizer.post_processor = template(tokenizer, "<s>")
    return json.loads(tokenizer.to_str())


def write(name, rows):
    digest = base.write(FIXTURES / name, map(base.to_json, rows))
    return name, digest


def write_document(name, document):
    path = FIXTURES / f"{name}.json"
    path.write_text(json.dumps(document, ensure_ascii=False, indent=0, separators=(",", ":")) + "\n", encoding="utf-8")
    assert path.stat().st_size < 300_000, path
    return path.name, hashlib.sha256(path.read_bytes()).hexdigest()


def nfc_rows():
    rng = random.Random(base.SEED)
    every = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    marks = [c for c in every if unicodedata.combining(chr(c))]
    composites = [c for c in every if unicodedata.decomposition(chr(c)) and "<" not in unicodedata.decomposition(chr(c))]
    parts = [ord(c) for composite in composites for c in unicodedata.normalize("NFD", chr(composite))]
    pools = [marks, composites, parts, list(range(0xAC00, 0xD7A4)), list(range(0x1100, 0x1200)), list(range(0x80)), every]
    texts = ["".join(chr(rng.choice(rng.choice(pools))) for _ in range(rng.randrange(1, 16))) for _ in range(1500)]
    nfc = normalizers.NFC()
    return [[text, nfc.normalize_str(text)] for text in texts]


README = """# Tokenizers of small checkpoints

Tokenizers in the shapes that published ones have, each with a small vocabulary, and what the PyPI packages make of some texts.
Made by

    python tools/make_tokenizer_json_goldens.py --shakespeare FOLDER

with tokenizers {tokenizers}, sentencepiece {sentencepiece}, Unicode data of Python {unidata} (it only chooses characters).

| file | holds |
| --- | --- |
| `texts.jsonl` | a text per line |
| `<name>.json` | a tokenizer.json; `gpt2_like`, `qwen2_like`, `llama3_like` and `digits_like` over bytes, `llama2_like` and `gemma_like` over characters |
| `<name>.ids.jsonl` | the ids that `tokenizers` gives each text with it, those that the post-processor adds included |
| `prefix_pieces.jsonl`, `plain_pieces.jsonl` | `[spelling, score, type]` per token: the vocabulary of a SentencePiece model, as a GGUF file has it; `prefix_pieces` puts a space before a text, `plain_pieces` does not and has user-defined tokens |
| `<name>_pieces.ids.jsonl` | the ids that `sentencepiece` gives each text with it: control tokens are not recognised, none is added |
| `nfc.jsonl` | `[text, text in NFC]` by `tokenizers` |
| `shakespeare.json`, `shakespeare.golden.json` | byte-level BPE of 2048 tokens and its goldens; trained on the works of Shakespeare as packaged in `shakespeare` 0.6 by Open Shakespeare (public domain; the edition CC BY 2.5, Open Knowledge Foundation) |

SHA-256 of the files:

{hashes}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shakespeare", type=pathlib.Path, help="a folder with tokenizer.json and golden.json")
    arguments = parser.parse_args()
    FIXTURES.mkdir(parents=True, exist_ok=True)
    texts = test_texts()
    files = [write("texts.jsonl", texts), write("nfc.jsonl", nfc_rows())]

    with_prefix = train_pieces(add_dummy_prefix=True)
    plain = train_pieces(add_dummy_prefix=False, split_by_whitespace=False, user_defined_symbols=USER_DEFINED)
    for name, processor in (("prefix_pieces", with_prefix), ("plain_pieces", plain)):
        files.append(write_pieces(name, processor))
        files.append(write(f"{name}.ids.jsonl", [processor.EncodeAsIds(text) for text in texts]))

    documents = {make.__name__: make() for make in (gpt2_like, qwen2_like, llama3_like, digits_like)}
    documents["llama2_like"] = characters_from(with_prefix, prefix=True)
    documents["gemma_like"] = characters_from(plain, prefix=False)
    for name, document in documents.items():
        files.append(write_document(name, document))
        tokenizer = Tokenizer.from_str(json.dumps(document))
        files.append(write(f"{name}.ids.jsonl", [tokenizer.encode(text).ids for text in texts]))

    if arguments.shakespeare:
        for source, name in (("tokenizer.json", "shakespeare.json"), ("golden.json", "shakespeare.golden.json")):
            (FIXTURES / name).write_bytes((arguments.shakespeare / source).read_bytes())
    for path in sorted(FIXTURES.glob("shakespeare*.json")):
        files.append((path.name, hashlib.sha256(path.read_bytes()).hexdigest()))
    readme = README.format(
        tokenizers=tokenizers.__version__,
        sentencepiece=sentencepiece.__version__,
        unidata=unicodedata.unidata_version,
        hashes="\n".join(f"    {digest}  {name}" for name, digest in files),
    )
    (FIXTURES / "README.md").write_text(readme, encoding="utf-8")
    print(f"{FIXTURES}: {len(files)} files, {len(texts)} texts")


if __name__ == "__main__":
    main()
