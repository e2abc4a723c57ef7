#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizer_kinds/: a small tokenizer of each kind that is read, texts, and what the PyPI packages make of them.

    python tools/make_tokenizer_kind_goldens.py

Needs `tokenizers`, `sentencepiece` with `protobuf`, `transformers` and `gguf` (make_tokenizer_goldens.py, whose texts are used, imports it). The README
beside the files names versions and hashes.
"""

import base64
import hashlib
import io
import json
import pathlib
import random
import tempfile
import unicodedata

import sentencepiece
import tokenizers
import transformers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, models, trainers
from tokenizers import decoders as d
from tokenizers import normalizers as n
from tokenizers import pre_tokenizers as p
from tokenizers import processors

import make_tokenizer_goldens as base

FIXTURES = base.FIXTURES.parent / "tokenizer_kinds"
TRAINING = [text for make in (base.latin, base.cyrillic_greek, base.whitespace, base.code, base.contractions, base.digits)
            for text in base.make_texts(make)[:40]]
# What the added tokens, rules and normalisers of this file are about.
ODD_TEXTS = ["", " ", "  ", "a  b", " a", "a ", "\n\n\n a", "<M> x<M>", "x <M>y", "  <M>  z", "a<L> b", "  <L>  b", "<R>   b <R>",
             "word<W>word <W> x_<W>, <W>", "  <L><R>  <L>", "\u2581", "a\u2581b", " \u2581 a", "\u180ea \u180e b", "ſ's 'ſ",
             "It's 'S 'RE", "12345 678 9", "1,234.56", "İstanbul ẞ", "ﬁne ﬀ ½ ² ③", "नमस्ते दुनिया", "👩‍👩‍👧 é e\u0301", "你好，世界", "a\u200bb",
             "x\u00a0y\u3000z", "\t\ta\r\n\r\nb", "don't do not n't ' s", "Hello , world . ok ? !", "ab" * 60 + " b", "。's\t。",
             "e\u0301! é!", "<s>x</s>", "<m>"]
WORDS = ["the", "tide", " ", "  ", "\n", "<M>", "<L>", "<R>", "<W>", "é", "e\u0301", "12", "3", "ß", "中", "。", "'s", "_", "-", "\t", SPACE := "\u2581", "Ａ",
         "ﬁ", "\u0301", "\u200d", "é!"]
FLAGS = [AddedToken("<M>", normalized=True), AddedToken("<L>", lstrip=True, normalized=False),
         AddedToken("<R>", rstrip=True, normalized=False), AddedToken("<W>", single_word=True, normalized=True)]
BYTES = p.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = p.ByteLevel(add_prefix_space=False, use_regex=True)
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
HAN = (r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}&&[^\p{Han}]]+(?i:'s|'t)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def make_texts():
    rng = random.Random(base.SEED)
    texts = [text for make in base.CATEGORIES for text in base.make_texts(make)[1:4] if len(text) < 300]
    texts += ODD_TEXTS + ["".join(rng.choice(WORDS) for _ in range(rng.randint(1, 14))) for _ in range(60)]
    # Marks and punctuation of younger Unicode versions than the package's normalizers know, or than PCRE2 does, are not compared.
    strip = n.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)

    def is_old(c):
        if unicodedata.category(c) == "Mn":
            return strip.normalize_str(f"a{c}b") == "ab"
        return ord(c) < 0x1F000 or 0x1F300 < ord(c) < 0x1F650

    return [text for text in texts if all(is_old(c) for c in text)]


def split(expression, behavior="isolated", invert=False):
    return p.Split(Regex(expression), behavior, invert)


def byte_level(*steps, normalizer=None, added=()):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = p.Sequence(list(steps))
    tokenizer.train_from_iterator(TRAINING, trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=p.ByteLevel.alphabet(), special_tokens=["<s>", "</s>"], show_progress=False))
    tokenizer.decoder = d.ByteLevel()
    tokenizer.add_tokens(list(added))
    return tokenizer


def characters(pre_tokenizer, normalizer=None, fallback=True, decoder=None, added=()):
    tokenizer = Tokenizer(models.BPE(byte_fallback=fallback, unk_token="<unk>", fuse_unk=True))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    special = ["<unk>", "<s>", "</s>", *([f"<0x{i:02X}>" for i in range(256)] if fallback else [])]
    tokenizer.train_from_iterator(TRAINING[:120], trainers.BpeTrainer(
        vocab_size=620, special_tokens=special, show_progress=False, max_token_length=12))
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.decoder = decoder or d.Sequence([d.Replace(SPACE, " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    tokenizer.add_tokens(list(added))
    return tokenizer


def metaspace(scheme, cut):
    return characters(p.Metaspace(prepend_scheme=scheme, split=cut), added=FLAGS)


def train_pieces(**options):
    model = io.BytesIO()
    sentences = [line for text in TRAINING for line in text.split("\n") if line and "\0" not in line]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=model, hard_vocab_limit=False,
                                             num_threads=1, minloglevel=9, **options)
    return model.getvalue()


def unigram(normalizer=None, pre_tokenizer=None, fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or p.Metaspace()
    tokenizer.train_from_iterator([t for t in TRAINING if t.isascii()], trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    tokenizer.decoder = d.Metaspace()
    if fallback:
        document = json.loads(tokenizer.to_str())
        document["model"]["vocab"] += [[f"<0x{i:02X}>", 0.0] for i in range(256)]
        document["model"]["byte_fallback"] = True
        tokenizer = Tokenizer.from_str(json.dumps(document))
        tokenizer.decoder = d.Sequence([d.Replace(SPACE, " "), d.ByteFallback(), d.Fuse(), d.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def like_t5():
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(train_pieces(vocab_size=300, normalization_rule_name="nmt_nfkc", character_coverage=0.98))
    chars = proto.normalizer_spec.precompiled_charsmap
    # The whole map has 240 KB; a document of the fixture would hold little else.
    return unigram(n.Sequence([n.Precompiled(chars), n.Strip(False, True), n.Replace(Regex(" {2,}"), SPACE)]))


def word_piece(lowercase, **settings):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = n.BertNormalizer(lowercase=lowercase, **settings)
    tokenizer.pre_tokenizer = p.BertPreTokenizer()
    tokenizer.train_from_iterator(TRAINING, trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False, limit_alphabet=150))
    tokenizer.decoder = d.WordPiece(cleanup=True)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def word_level(pre_tokenizer):
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(TRAINING, trainers.WordLevelTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>"], show_progress=False))
    return tokenizer


KINDS = {
    "added_flags": lambda: byte_level(GPT2, added=FLAGS),
    "added_flags_nfc": lambda: byte_level(GPT2, normalizer=n.NFC(), added=[*FLAGS, AddedToken("  ", normalized=True)]),
    "added_flags_lowercase": lambda: byte_level(GPT2, normalizer=n.Lowercase(), added=FLAGS),
    "tekken": lambda: byte_level(split(TEKKEN), BYTES),
    "possessive": lambda: byte_level(split(CL100K), BYTES),
    "class_without_han": lambda: byte_level(split(HAN), BYTES),
    "word_boundary": lambda: byte_level(split(r"\d{1,3}(?=(?:\d{3})*\b)"), split(TEKKEN), BYTES),
    "many_splits": lambda: byte_level(split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), p.Digits(True), BYTES),
    "byte_level_first": lambda: byte_level(p.Punctuation("contiguous"), GPT2, p.Digits(False), split("[0-9][0-9][0-9]")),
    "prefix_space": lambda: byte_level(p.ByteLevel(add_prefix_space=True, use_regex=True), added=FLAGS),
    "whitespace": lambda: byte_level(p.Punctuation(), p.Whitespace(), BYTES),
    "merged_with_previous": lambda: byte_level(split(r"\s+", "merged_with_previous"), BYTES),
    "merged_with_next": lambda: byte_level(split(r"\s", "merged_with_next"), BYTES),
    "contiguous_removed": lambda: byte_level(split(r"\s", "contiguous"), split(r"[^_]+", "removed", True), BYTES),
    "empty_matches": lambda: byte_level(split(r"(?=\d)"), split(r"x*", "merged_with_next"), BYTES),
    "texts_split": lambda: byte_level(p.Split(" ", "merged_with_next"), p.CharDelimiterSplit("_"), BYTES),
    "replaced": lambda: byte_level(GPT2, normalizer=n.Sequence([n.NFD(), n.Strip(), n.Replace(Regex(r"\s+"), " ")])),
    "metaspace_always": lambda: metaspace("always", True),
    "metaspace_always_whole": lambda: metaspace("always", False),
    "metaspace_first": lambda: metaspace("first", True),
    "metaspace_never_whole": lambda: metaspace("never", False),
    "metaspace_unknown": lambda: characters(p.Metaspace(), fallback=False, decoder=d.Metaspace()),
    "prepended": lambda: characters(None, n.Sequence([n.Prepend(SPACE), n.Replace(" ", SPACE)]), added=FLAGS),
    "unigram": unigram,
    "unigram_bytes": lambda: unigram(fallback=True),
    "unigram_words": lambda: unigram(pre_tokenizer=p.Sequence([p.WhitespaceSplit(), p.Metaspace()])),
    "unigram_characters_mapped": like_t5,
    "word_piece": lambda: word_piece(True),
    "word_piece_cased": lambda: word_piece(False, strip_accents=False, clean_text=False, handle_chinese_chars=False),
    "word_level": lambda: word_level(p.WhitespaceSplit()),
}


def write_kind(name, tokenizer, texts):
    rows = [json.loads(tokenizer.to_str())]
    for text in texts:
        ids = tokenizer.encode(text).ids
        rows.append([text, ids, tokenizer.decode(ids)])
    return write(f"{name}.jsonl", rows)


def write(name, rows):
    return name, base.write(FIXTURES / name, map(base.to_json, rows))


def write_pieces(name, texts, **options):
    """The model, then texts and ids."""
    model = train_pieces(**options)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    rows = [{"model": base64.b64encode(model).decode()}]
    return write(f"{name}.jsonl", rows + [[text, processor.encode(text)] for text in texts])


def write_slow(name, tokenizer_class, settings, texts):
    """vocab.json, merges.txt and tokenizer_config.json, then texts and ids by transformers."""
    document = json.loads(byte_level(GPT2).to_str())
    merges = "#version: 0.2\n" + "".join(" ".join(merge) + "\n" for merge in document["model"]["merges"])
    config = {"tokenizer_class": tokenizer_class, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "</s>", **settings}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "vocab.json").write_text(json.dumps(document["model"]["vocab"]), encoding="utf-8")
        (path / "merges.txt").write_text(merges, encoding="utf-8")
        (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        tokenizer = getattr(transformers, tokenizer_class).from_pretrained(folder)
    rows = [{"vocab": document["model"]["vocab"], "merges": merges, "config": config}]
    return write(f"{name}.jsonl", rows + [[text, tokenizer(text)["input_ids"]] for text in texts])


README = """# A small tokenizer of each kind

Made by

    python tools/make_tokenizer_kind_goldens.py

with tokenizers {tokenizers}, sentencepiece {sentencepiece}, transformers {transformers}.

`<kind>.jsonl`: a tokenizer.json on the first line, then `[text, ids, text of the ids]` by `tokenizers`. `pieces_<kind>.jsonl`: a SentencePiece model,
then `[text, ids]` by `sentencepiece`. `slow_<class>.jsonl`: vocab.json, merges.txt and tokenizer_config.json, then `[text, ids]` by `transformers`.

SHA-256 of the files:

{hashes}
"""


def main():
    FIXTURES.mkdir(parents=True, exist_ok=True)
    texts = make_texts()
    files = [write_kind(name, make(), texts) for name, make in KINDS.items()]
    lines = [text for text in texts if "\0" not in text]
    files.append(write_pieces("pieces_bpe", lines, model_type="bpe", vocab_size=700, byte_fallback=True, character_coverage=0.98,
                              normalization_rule_name="identity", remove_extra_whitespaces=False))
    files.append(write_pieces("pieces_bpe_unknown", lines, model_type="bpe", vocab_size=600, character_coverage=0.98,
                              normalization_rule_name="identity"))
    files.append(write_pieces("pieces_unigram", lines, model_type="unigram", vocab_size=600, byte_fallback=True, character_coverage=0.98,
                              normalization_rule_name="nmt_nfkc_cf"))
    files.append(write_pieces("pieces_unigram_plain", lines, model_type="unigram", vocab_size=600, character_coverage=0.98,
                              add_dummy_prefix=False, remove_extra_whitespaces=False, normalization_rule_name="identity",
                              user_defined_symbols=["<M>", "<L>"]))
    added = {"420": {"content": "<M>", "special": False, "normalized": True}}
    files.append(write_slow("slow_gpt2", "GPT2Tokenizer", {"added_tokens_decoder": added}, texts))
    files.append(write_slow("slow_gpt2_prefix", "GPT2Tokenizer", {"add_prefix_space": True}, texts))
    files.append(write_slow("slow_qwen2", "Qwen2Tokenizer", {"pad_token": "</s>"}, texts))
    files.append(write_slow("slow_roberta", "RobertaTokenizer", {
        "cls_token": "<s>", "sep_token": "</s>", "pad_token": "</s>", "mask_token": "</s>"}, texts))
    readme = README.format(tokenizers=tokenizers.__version__, sentencepiece=sentencepiece.__version__,
                           transformers=transformers.__version__, hashes="\n".join(f"    {h}  {name}" for name, h in files))
    (FIXTURES / "README.md").write_text(readme, encoding="utf-8")
    print(f"{FIXTURES}: {len(files)} files, {len(texts)} texts, {sum(f.stat().st_size for f in FIXTURES.iterdir())} bytes")


if __name__ == "__main__":
    main()
