#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizer/: texts and what the PyPI package `tokenizers` makes of them.

    python tools/make_tokenizer_goldens.py --gguf smollm2-135m-instruct-q4_1.gguf

Needs `tokenizers` and `gguf`. The vocabulary and the merges come from the GGUF file; the rest of the tokenizer is what the
model's tokenizer.json says: no normaliser, pre-tokenizer Digits(individual) then ByteLevel(regex), BPE without an unknown
token, special tokens that are not normalised. The README beside the files names versions, seed and hashes.
"""

import argparse
import hashlib
import importlib.metadata
import json
import pathlib
import random
import unicodedata

import gguf
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

SEED = 20240731
TEXTS = 320  # per category
SPLIT_TEXTS = 50  # per category, for word_lengths.jsonl
FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "tests/fixtures/tokenizer"

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
WORD_RULES = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "smollm": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    ),
    "llama-bpe": pre_tokenizers.Split(Regex(LLAMA3), "isolated", invert=False),
    "qwen2": pre_tokenizers.Split(Regex(QWEN2), "isolated", invert=False),
}

LATIN = """the of and to in is you that it he was for on are as with his they at be this have from or one had by word but
not what all were we when your can said there use an each which she do how their if will up other about out many then them
these so some her would make like him into time has look two more write go see number no way could people my than first
water been call who oil its now find long down day did get come made may part international understanding straightforward
naïve café résumé über straße Größe fräulein Ärger où être œuvre français garçon señor mañana años niño corazón coração não
ação irmã město příliš žluťoučký kůň łódź źdźbło święto þjóð ísland smørrebrød årsag İstanbul ışık ağaç ştiință țară Đà Nẵng
tiếng Việt người đường perché città università Ljubljana čeština ĥoro ŭesto ſtrasse ŉ ǆ Ǆ ﬁne ﬀ ﬆ""".split()
CYRILLIC_GREEK = """и в не на я быть он с что а по это она этот к но они мы весь который из у от для так год человек время
рука дело жизнь день Россия Москва Ёлка съёмка подъезд объявление їжак Київ ґанок україна мова љубав њива ћевапи Ђорђе ў
беларусь българия ъгъл монгол өдөр қазақ ғылым και το να είναι για με που από θα στο ένα τη δεν της Ελλάδα Αθήνα άνθρωπος
ζωή χρόνος ἄνθρωπος ὁδός φῶς ψυχή ΐ ΰ Ω ς Σίσυφος ΑΒΓ""".split()
CJK = """我们 今天 天气 很好 人工智能 模型 语言 生成 文本 中华人民共和国 臺灣 繁體字 電腦 學習 、 。 ， ！ ？ 「引用」 《书名》 （括号）
こんにちは 世界 ありがとう ございます カタカナ ひらがな 東京 日本語 勉強 する です ます ー ｶﾀｶﾅ ＡＢＣ １２３ 안녕하세요 세계 한국어
대한민국 감사합니다 ㅋㅋㅋ 한글 㐀 𠀀 𠮷野家 𪚥 〇 々 〆 ㈱ ㍿ 龍 鬱 麤""".split()
RIGHT_TO_LEFT_INDIC = """مرحبا بالعالم السلام عليكم كتاب مدرسة الذكاء الاصطناعي قَرَأَ مُحَمَّد لا إله ﷺ ﻻ پارسی گفتن چای ژاله ٱلْحَمْدُ اردو
ہے شלום שָׁלוֹם עולם ספר בְּרֵאשִׁית ירושלים ״ציטוט״ नमस्ते दुनिया हिन्दी क्षत्रिय ज्ञान श्री ॐ कृष्ण বাংলা আমার সোনার தமிழ் வணக்கம்
తెలుగు నమస్కారం ಕನ್ನಡ മലയാളം ਪੰਜਾਬੀ ગુજરાતી ଓଡ଼ିଆ සිංහල ภาษาไทย สวัสดี ลາວ မြန်မာ ខ្មែរ བོད་ཡིག ქართული հայերեն አማርኛ""".split()
EMOJI = """😀 😂 🤣 ❤️ 👍🏽 👩‍👩‍👧‍👦 👨🏿‍🚀 🏳️‍🌈 🏴‍☠️ 🇩🇪 🇯🇵🇫🇷 🏴󠁧󠁢󠁥󠁮󠁧󠁿 1️⃣ #️⃣ ☃ ☃︎ ✈️ 🧑‍🤝‍🧑 🫠 🪿 🫨 ‼️ ©️ ™ 🀄 🃏 ♾️ 👁️‍🗨️ 🤷🏻‍♀️ 🏃🏾‍➡️ 🙂‍↔️ ⛹🏼‍♂️""".split()
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\v", "\f", "\u0085", "\u00a0", "\u1680", "\u2000", "\u2003", "\u2009",
          "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\u180e", "\n\n", " \n", "\n ", "\t\t"]
CONTRACTIONS = """it's don't we're I've I'm you'll he'd IT'S DON'T WE'RE I'VE I'M YOU'LL HE'D it'S 'sleep 'tis 'twas 're 've 'll 'd
'm 's 't o'clock rock'n'roll y'all'd've 'Sam 'Led it’s don’t 'r 'v 'l ''s 's's l'été d'accord qu'il 'ſ it'ſx 'ſ't 'RE 'Ve 'lL "'s" '' ' '' 's't're""".split()
CODE = [
    "def f(x):\n    return x ** 2 + 1\n",
    "for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\n}\n",
    "#include <vector>\nstd::vector<std::unique_ptr<T>> v;\n",
    "fn main() -> Result<(), Box<dyn Error>> {\n    println!(\"{:?}\", x?);\n}\n",
    "SELECT a.id, COUNT(*) FROM t AS a WHERE a.x >= 10 GROUP BY 1;\n",
    "<div class=\"a b\" id='c'>&nbsp;&#x27;</div>\n",
    "{\"key\": [1, 2.5e-10, null, true], \"s\": \"\\u00e9\\n\"}\n",
    "\\begin{align} \\frac{1}{2} \\sum_{i=0}^{n} x_i^{2} \\end{align}\n",
    "$ grep -rn 'main(' src | awk '{print $1}' > out.txt 2>&1\n",
    "  if a == b and not c:\n        pass\n    # comment --------------\n",
    "const f = async (x) => { await g?.(x ?? 0); }; // ok\n",
    "0xDEADBEEF 0b1010 1_000_000 3.14159f 1e9 'c' \"s\" @decorator $var %d ~x ^y |z `q`\n",
    "| a | b |\n|---|:-:|\n| **x** | `y` |\n\n- [ ] item\n",
    "http://example.com/path?q=1&r=%20#frag user@mail.example C:\\Temp\\new.txt\n",
    "\t\t\tif err != nil {\n\t\t\t\treturn nil, fmt.Errorf(\"x: %w\", err)\n\t\t\t}\n",
]
PUNCTUATION = list("..,,;:!?-()\"'") + ["...", "—", "–", "“", "”", "‘", "’", "«", "»", "¿", "¡", "/", "&", "%", "€", "№"]


class Maker:
    """Texts of one category. `rng` is its own, so that a change to one category leaves the others as they were."""

    def __init__(self, name):
        self.rng = random.Random(f"{SEED}:{name}")

    def words(self, vocabulary, size, joiners=(" ",)):
        rng, parts, length = self.rng, [], 0
        while length < size:
            word = rng.choice(vocabulary)
            shape = rng.random()
            word = word.upper() if shape < 0.05 else word.capitalize() if shape < 0.2 else word
            if rng.random() < 0.12:
                word += rng.choice(PUNCTUATION)
            parts.append(word + rng.choice(joiners))
            length += len(parts[-1].encode())
        return "".join(parts)

    def characters(self, pick, count):
        return "".join(chr(pick()) for _ in range(count))

    def size(self):
        return self.rng.choice((8, 40, 120, 250, 400, 600))


def any_code_point(rng):
    while True:
        plane = rng.random()
        c = rng.randrange(0x80 if plane < 0.1 else 0x3000 if plane < 0.4 else 0x10000 if plane < 0.7 else 0x110000)
        if not 0xD800 <= c < 0xE000:
            return c


def of_category(letters, limit=0x20000):
    return [c for c in range(limit) if unicodedata.category(chr(c)).startswith(letters)]


def latin(m):
    return m.words(LATIN, m.size(), (" ", " ", " ", "", "\n", ", "))


def cyrillic_greek(m):
    return m.words(CYRILLIC_GREEK, m.size(), (" ", " ", "", "-", "\n"))


def cjk(m):
    return m.words(CJK, m.size(), ("", "", "", " ", "\u3000", "\n"))


def right_to_left_indic(m):
    return m.words(RIGHT_TO_LEFT_INDIC, m.size(), (" ", " ", "", "\u200c", "\u200d", "\u200f ", "\n"))


def emoji(m):
    return m.words(EMOJI + ["lol", "ok", "a"], m.size() // 2, ("", "", " ", "\u200d", "\ufe0f", "\U0001f3fd"))


MARKS = of_category("M")
NUMBERS = of_category("N")


def combining_marks(m):
    rng = m.rng
    out = []
    for _ in range(rng.randrange(1, 60)):
        base = rng.choice("aeiouAEnsz дикй 中 . 7-\n")
        out.append(base + m.characters(lambda: rng.choice(MARKS), rng.choice((0, 0, 1, 1, 2, 5))))
    text = "".join(out)
    return unicodedata.normalize(rng.choice(("NFC", "NFD", "NFKC", "NFKD")), text)


def whitespace(m):
    rng = m.rng
    parts = []
    for _ in range(rng.randrange(1, 70)):
        parts.append(rng.choice(SPACES) * rng.choice((1, 1, 1, 2, 3, 7)))
        if rng.random() < 0.5:
            parts.append(rng.choice(("a", "word", "1", ".", "'s", "'", "é", "中", "<|im_end|>", "12")))
    return "".join(parts)


def code(m):
    return "".join(m.rng.choice(CODE) for _ in range(m.rng.randrange(1, 9)))


def digits(m):
    rng = m.rng
    parts = []
    for _ in range(rng.randrange(1, 50)):
        kind = rng.random()
        if kind < 0.5:
            parts.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
        elif kind < 0.75:
            parts.append(m.characters(lambda: rng.choice(NUMBERS), rng.randrange(1, 5)))
        else:
            parts.append(rng.choice((" ", "  ", ".", ",", "-", "x", " a", "\n", "'s", "½", "²", "Ⅷ", "〇", " $", "\U00011de3")))
    return "".join(parts)


def contractions(m):
    return m.words(CONTRACTIONS, m.size(), (" ", "", "\n", "'"))


SPECIAL_PARTS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<reponame>", "<file_sep>", "<filename>",
                 "<gh_stars>", "<issue_start>", "<issue_comment>", "<issue_closed>", "<jupyter_start>", "<jupyter_text>",
                 "<jupyter_code>", "<jupyter_output>", "<jupyter_script>", "<empty_output>", "<|im_start|", "|im_end|>",
                 "<|IM_START|>", "< |im_start|>", "<|im_start |>", "<|im_", "<", "|>", "<|", "user", "\n", " ", "  ", "7", "'s",
                 "<file", "name>", "<|im_end|", "assistant", "<|end", "<<|im_end|>>", "é", "<｜im_end｜>"]


def special_tokens(m):
    return "".join(m.rng.choice(SPECIAL_PARTS) for _ in range(m.rng.randrange(1, 40)))


def random_unicode(m):
    return m.characters(lambda: any_code_point(m.rng), m.rng.randrange(1, 140))


def mixed(m):
    makers = (latin, cyrillic_greek, cjk, right_to_left_indic, emoji, whitespace, code, digits, contractions, special_tokens)
    parts = []
    for _ in range(m.rng.randrange(1, 6)):
        part = m.rng.choice(makers)(m)
        start = m.rng.randrange(len(part))
        parts.append(part[start : start + m.rng.randrange(1, 120)])
    return "".join(parts)


def control_characters(m):
    rng = m.rng
    controls = [*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x200B, 0x200E, 0x202E, 0x2060, 0xFEFF, 0xFFF9, 0xFFFD, 0xFFFE, 0xFFFF]
    return "".join(
        chr(rng.choice(controls)) if rng.random() < 0.6 else rng.choice(("a", " ", "the", "1", ".", "é", " in", "ing"))
        for _ in range(rng.randrange(1, 250))
    )


def long_runs(m):
    rng = m.rng
    parts = []
    for _ in range(rng.randrange(1, 4)):
        unit = rng.choice(("a", " ", "ab", "-", "=", "\n", "é", "中", "😀", "\t", "0", "ha", "the", ".", "'", "́", "_", "AAAB", "\u3000"))
        parts.append(unit * (rng.choice((2, 17, 64, 255, 400)) // len(unit.encode()) + 1))
    return "".join(parts)


CATEGORIES = (latin, cyrillic_greek, cjk, right_to_left_indic, emoji, combining_marks, whitespace, code, digits, contractions,
              special_tokens, random_unicode, mixed, control_characters, long_runs)


def make_texts(category):
    maker = Maker(category.__name__)
    return ["", *(category(maker) for _ in range(TEXTS - 1))]


def read_vocabulary(path):
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = fields["tokenizer.ggml.merges"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    num_special = sum(t == gguf.TokenType.CONTROL for t in types)
    num_bytes = len(tokens) - num_special - len(merges)
    # The fixture says the vocabulary in half the space; this is why the test may rebuild it.
    assert all(t == gguf.TokenType.CONTROL for t in types[:num_special]), "special tokens come first"
    assert all(len(t) == 1 for t in tokens[num_special : num_special + num_bytes]), "then single bytes"
    assert tokens[num_special + num_bytes :] == [m.replace(" ", "") for m in merges], "then the merges, in order"
    return tokens, merges, num_special, num_bytes


def make_tokenizer(tokens, merges, num_special):
    model = models.BPE({token: i for i, token in enumerate(tokens)}, [tuple(merge.split(" ")) for merge in merges])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = WORD_RULES["smollm"]
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in tokens[:num_special]])
    assert tokenizer.get_vocab_size() == len(tokens), "adding the special tokens added no ids"
    return tokenizer


def write(path, lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    assert path.stat().st_size < 1_000_000, path
    return hashlib.sha256(path.read_bytes()).hexdigest()


def to_json(row):
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def word_lengths(rule, text):
    """The bytes of each word."""
    lengths = [len(text[begin:end].encode()) for _, (begin, end) in rule.pre_tokenize_str(text)]
    assert sum(lengths) == len(text.encode()), text
    return lengths


README = """# Tokenizer goldens

Texts and the token ids that the PyPI package `tokenizers` gives them with the tokenizer of SmolLM2-135M-Instruct. Made by

    python tools/make_tokenizer_goldens.py --gguf {gguf_name}

with tokenizers {tokenizers_version}, gguf-py {gguf_version}, Unicode data of Python {unidata_version} (it only chooses characters to put into texts),
seed {seed}. The GGUF file's SHA-256 is
`{gguf_hash}`.

| file | holds |
| --- | --- |
| `smollm2_vocabulary.txt` | first line: how many special tokens, bytes and merges; then each on a line of its own. The vocabulary is these in this order, a merge without its space. {num_special} + {num_bytes} + {num_merges} = {num_tokens} tokens. |
| `<category>.jsonl` | `[text, ids]` per line, {num_texts} lines: special tokens recognised, none added |
| `special_tokens_as_text.jsonl` | the texts of `special_tokens.jsonl` with special tokens not recognised |
| `word_lengths.jsonl` | `[text, lengths by gpt-2, by smollm, by llama-bpe, by qwen2]`: the bytes of each word by four splitting rules; {num_split_texts} texts of each category |

Together the texts have {text_bytes} bytes. 21 bytes are not in the vocabulary; `tokenizers` leaves them out, and so do we.

The vocabulary is from SmolLM2 (Hugging Face), Apache License 2.0: <https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct>.

SHA-256 of the files:

{hashes}
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gguf", type=pathlib.Path, required=True, help="the model file with the vocabulary")
    arguments = parser.parse_args()
    tokens, merges, num_special, num_bytes = read_vocabulary(arguments.gguf)
    tokenizer = make_tokenizer(tokens, merges, num_special)
    FIXTURES.mkdir(parents=True, exist_ok=True)

    hashes = {}
    counts = f"{num_special} {num_bytes} {len(merges)}"
    lines = [counts, *tokens[: num_special + num_bytes], *merges]
    hashes["smollm2_vocabulary.txt"] = write(FIXTURES / "smollm2_vocabulary.txt", lines)
    text_bytes = 0
    split_texts = []
    for category in CATEGORIES:
        texts = make_texts(category)
        text_bytes += sum(len(text.encode()) for text in texts)
        split_texts += texts[:SPLIT_TEXTS]
        name = f"{category.__name__}.jsonl"
        rows = [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in texts]
        hashes[name] = write(FIXTURES / name, map(to_json, rows))
    tokenizer.encode_special_tokens = True
    rows = [[text, tokenizer.encode(text, add_special_tokens=False).ids] for text in make_texts(special_tokens)]
    hashes["special_tokens_as_text.jsonl"] = write(FIXTURES / "special_tokens_as_text.jsonl", map(to_json, rows))
    rows = [[text, *(word_lengths(rule, text) for rule in WORD_RULES.values())] for text in split_texts]
    hashes["word_lengths.jsonl"] = write(FIXTURES / "word_lengths.jsonl", map(to_json, rows))

    readme = README.format(
        gguf_name=arguments.gguf.name,
        gguf_hash=hashlib.sha256(arguments.gguf.read_bytes()).hexdigest(),
        gguf_version=importlib.metadata.version("gguf"),
        tokenizers_version=tokenizers.__version__,
        unidata_version=unicodedata.unidata_version,
        seed=SEED,
        num_special=num_special,
        num_bytes=num_bytes,
        num_merges=len(merges),
        num_tokens=len(tokens),
        num_texts=TEXTS,
        num_split_texts=SPLIT_TEXTS,
        text_bytes=text_bytes,
        hashes="\n".join(f"    {digest}  {name}" for name, digest in hashes.items()),
    )
    (FIXTURES / "README.md").write_text(readme, encoding="utf-8")
    print(f"{FIXTURES}: {len(CATEGORIES)} categories, {text_bytes} bytes of text")


if __name__ == "__main__":
    main()
