"""What is measured of speculation: each setting with its flags, and the cell of the journal that it fills for a prompt."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

TREES = ["fixed", "dynamic", "optimal"]
# Settings without a policy have all rows of an answer in one block from the start, since its length is stated: BMC with unused capacity that runs out
# is the first of these, which the others are compared with.
POLICIES = {"bmc64": ("--kv-policy", "bmc", "--kv-increment", "64"), "iterative": ("--kv-policy", "iterative"),
            "upfront": ("--kv-policy", "upfront")}
LONG_CHARACTERS = 4200     # of a prompt of the long set: 1000 to 1500 tokens of code and text
PEER_WIDTHS = [2, 4, 10]  # llama-cpp-python's default is 10
LLAMA_WIDTHS = [2, 4, 8]   # of llama-speculative-simple, whose default is 3
# Its types that draft from the text alone, at their defaults: they look for 12 tokens and draft up to 48 (mod: 24, and 48 to 64; cache: 1 to 4, and 8).
# The second looks for as few and drafts as many as our lookup does.
LLAMA_NGRAMS = {"ngram-simple": (), "ngram-simple n3 m8": ("--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", "8"),
                "ngram-map-k": (), "ngram-map-k4v": (), "ngram-mod": (), "ngram-cache": ()}
# It has no plain decoding, but a type that never drafts: it looks for 1024 equal tokens.
LLAMA_PLAIN = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "1024", "--spec-ngram-simple-size-m", "1")


@dataclass(frozen=True)
class Setting:
    name: str
    flags: tuple[str, ...] = ()
    drafter: str = ""       # its name in tables; empty: none
    draft: str = ""         # what --draft names
    width: int | None = None  # fixed number of draft tokens of a step; None: adaptive, or no drafter
    kind: str = "chain"     # or "tree", "policy", "alone" (the draft model answers itself: another text), "peer" (llama-cpp-python), "llama"
    lookup: int = 0         # of a peer: draft tokens of its prompt lookup, 0: plain
    beside: str = ""        # of a peer, and of llama.cpp's own program: our setting that it stands beside


def named_draft(text: str) -> tuple[str, str]:
    """NAME=MODEL, or MODEL, or layers:M."""
    name, equals, draft = text.partition("=")
    if equals:
        return name, draft
    return (text if text.startswith("layers:") else Path(text).stem), text


def is_at_once(draft: str) -> bool:
    """Whether the draft model makes all draft tokens of a step in one of its own (PARD)."""
    path = Path(draft) / "config.json"
    return path.exists() and "pard_token" in json.loads(path.read_text())


def is_head(draft: str) -> bool:
    """Whether it is a draft head (EAGLE), which answers nothing by itself."""
    path = Path(draft) / "model.safetensors"
    if not path.exists():
        return False
    with path.open("rb") as file:
        header = file.read(int.from_bytes(file.read(8), "little"))
    return "fc.weight" in json.loads(header)


def is_model(draft: str) -> bool:
    return draft != "ngram" and not draft.startswith("layers:") and not is_head(draft)


def of_drafter(name: str, draft: str, widths: list[int]) -> list[Setting]:
    def setting(more: str, *flags: str, **fields) -> Setting:
        return Setting(f"{name} {more}".strip(), ("--draft", draft, *flags), name, draft, **fields)

    made = [setting("")]
    if widths and max(widths) != 8:  # the default stops at 8: the sweep is compared with one that has its range
        made.append(setting(f"to {max(widths)}", "--draft-max", str(max(widths))))
    made += [setting(f"w{g}", "--draft-min", str(g), "--draft-max", str(g), width=g) for g in widths]
    if draft != "ngram":
        made += [setting(f"tree {tree}", "--draft-tree", tree, kind="tree") for tree in TREES]
    if is_model(draft) and not is_at_once(draft):
        made.append(setting("alone", kind="alone"))
    return made


def of_llama(drafts: dict[str, str]) -> list[Setting]:
    """llama.cpp's own speculation: `flags` are its program's."""
    made = [Setting("llama.cpp C++ plain", LLAMA_PLAIN, kind="llama", beside="plain")]
    made += [Setting(f"llama.cpp {name}", ("--spec-type", name.split()[0], *flags), kind="llama", beside="ngram")
             for name, flags in LLAMA_NGRAMS.items()]
    for name, draft in drafts.items():
        if draft.endswith(".gguf"):
            made += [Setting(f"llama.cpp draft {name} w{g}", ("--spec-type", "draft-simple", "-md", draft, "--spec-draft-n-max", str(g)), draft=draft,
                             width=g, kind="llama", beside=name) for g in LLAMA_WIDTHS]
    return made


def all_settings(drafts: dict[str, str], widths: list[int], has_peer: bool, has_llama: bool = False) -> list[Setting]:
    """`drafts`: what --draft gets, by name."""
    made = [Setting("plain")]
    for name, draft in drafts.items():
        made += of_drafter(name, draft, widths)
    for base in [s for s in made if s.kind == "chain" and s.width is None and " to " not in s.name]:
        # After a long prompt a draft model would not be used: the gain of unused capacity is to be measured.
        least = ("--draft-min", "1") if base.drafter and is_model(base.draft) else ()
        made += [Setting(f"{base.name} {policy}", (*base.flags, *least, *flags), base.drafter, base.draft, kind="policy")
                 for policy, flags in POLICIES.items()]
    if has_peer:
        made += [Setting("llama.cpp plain", kind="peer", beside="plain")]
        made += [Setting(f"llama.cpp lookup {g}", kind="peer", width=g, lookup=g, beside="ngram") for g in PEER_WIDTHS]
    return made + (of_llama(drafts) if has_llama else [])


def read_prompts(path: Path, most: int | None) -> list[dict]:
    prompts = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return prompts[:most]


def behind_passages(prompts: list[dict], characters: int = LONG_CHARACTERS) -> list[dict]:
    """The same requests after passages of the prompts that follow them, in a ring, until there are so many characters."""
    made = []
    for i, prompt in enumerate(prompts):
        before = ""
        for other in (prompts[(i + j) % len(prompts)] for j in range(1, len(prompts))):
            if len(before) + len(prompt["prompt"]) >= characters:
                break
            before += other["prompt"].partition("\n\n")[2].strip() + "\n\n"
        made.append({"id": prompt["id"].replace("edit", "long"), "prompt": f"Some notes:\n\n{before}{prompt['prompt']}"})
    return made


def prompts_of(name: str, folder: Path, most: int | None) -> list[dict]:
    if name == "long":
        return behind_passages(read_prompts(folder / "speculation_edit.jsonl", None))[:most]
    return read_prompts(folder / f"speculation_{name}.jsonl", most)


def cell_of(model: str, set_name: str, prompt: dict, setting: Setting, arguments) -> dict:
    """Names a measurement by all that changes its answer. Program and machine are in the journal's own lines, which the report names."""
    return {"model": Path(model).name, "set": set_name, "prompt": prompt["id"],
            "digest": hashlib.sha256(prompt["prompt"].encode()).hexdigest()[:12], "raw": arguments.raw,
            "setting": setting.name, "draft": Path(setting.draft).name, "threads": arguments.threads, "tokens": arguments.tokens}
