#!/usr/bin/env python3
"""Writes tests/fixtures/sampler/transformers.json: what transformers' own chain of logits processors leaves of a step.

The chain is the one that `generate` builds for the options (GenerationMixin._get_logits_processor), so its order is theirs.
Needs torch and transformers. Run from the repository's root:
    python tools/make_sampler_goldens.py
"""

import json
import pathlib
import random

import torch
import transformers

VOCAB = 80
EOS = 7
SEED = 20240901

# The options of each group of cases; the names are GenerationConfig's and ours.
OPTIONS = [
    {},
    {"temperature": 0.7},
    {"temperature": 2.5},
    {"top_k": 1},
    {"top_k": 12},
    {"top_p": 0.9},
    {"top_p": 0.35},
    {"top_p": 0.01},
    {"min_p": 0.05},
    {"min_p": 0.4},
    {"repetition_penalty": 1.3},
    {"repetition_penalty": 0.8},
    {"no_repeat_ngram_size": 1},
    {"no_repeat_ngram_size": 2},
    {"no_repeat_ngram_size": 3},
    {"min_new_tokens": 6},
    {"logit_bias": [[3, 4.5], [11, -2.25], [79, 1.5]]},
    {"temperature": 0.8, "top_k": 20, "top_p": 0.8},
    {"temperature": 1.7, "top_p": 0.95, "min_p": 0.02},
    {"temperature": 1.2, "top_k": 30, "min_p": 0.1},
    {"logit_bias": [[3, 4.5], [79, 1.5]], "repetition_penalty": 1.2, "no_repeat_ngram_size": 2, "min_new_tokens": 6,
     "temperature": 0.9, "top_k": 25, "top_p": 0.85, "min_p": 0.01},
]
# What generation_config.json may say besides; with lengths of prompt and answer. The ends of the text that the bad words go by are drawn below:
# "PROMPT" stands for its last id, "BEFORE" for the one before that.
FILE_OPTIONS = [
    ({"suppress_tokens": [0, 5, 79]}, 10, 5),
    ({"suppress_tokens": [0, 5, 79], "logit_bias": [[5, 4.5]], "repetition_penalty": 1.3}, 10, 5),
    ({"begin_suppress_tokens": [1, 2, 79]}, 10, 0),
    ({"begin_suppress_tokens": [1, 2, 79]}, 10, 1),
    ({"bad_words_ids": [[3], [EOS], [4, EOS], ["LAST", 11], ["BEFORE", "LAST", 12], ["LAST", "BEFORE", 13], ["LAST", "LAST", "LAST", 14]]}, 10, 5),
    ({"bad_words_ids": [["LAST", 11], ["LAST", 12], ["BEFORE", "LAST", EOS], [1] * 9 + [15]]}, 2, 1),
    ({"bad_words_ids": [[3], ["LAST", 3]], "suppress_tokens": [3, 4], "min_new_tokens": 9, "temperature": 0.7, "top_k": 30}, 6, 3),
    ({"forced_bos_token_id": 42}, 1, 0),
    ({"forced_bos_token_id": 42}, 1, 1),
    ({"forced_bos_token_id": 42}, 2, 0),
    ({"forced_bos_token_id": 42, "begin_suppress_tokens": [1, 2, 42]}, 1, 0),
    ({"forced_bos_token_id": 42, "begin_suppress_tokens": [1, 2, 42]}, 1, 1),
    ({"forced_bos_token_id": 42, "begin_suppress_tokens": [1, 2, 42]}, 2, 0),
    ({"forced_eos_token_id": EOS, "max_new_tokens": 6}, 10, 5),
    ({"forced_eos_token_id": EOS, "max_new_tokens": 6}, 10, 4),
    ({"forced_eos_token_id": [EOS, 9], "max_new_tokens": 3, "min_new_tokens": 3, "repetition_penalty": 1.3}, 3, 2),
    ({"forced_eos_token_id": [EOS, 9], "suppress_tokens": [9], "max_new_tokens": 3}, 3, 2),
]
CASES_PER_GROUP = 3


def distribution(model, logits, prompt, answer, options):
    settings = dict(options)
    bias = settings.pop("logit_bias", None)
    if bias is not None:
        settings["sequence_bias"] = [[[token], value] for token, value in bias]
    config = transformers.GenerationConfig(do_sample=True, eos_token_id=EOS, **{"top_k": 0, **settings})
    ids = torch.tensor([prompt + answer])
    if "max_new_tokens" in options:
        config.max_length = len(prompt) + options["max_new_tokens"]  # as generate does
    model._prepare_special_tokens(config, device=ids.device)
    chain = model._get_logits_processor(generation_config=config, input_ids_seq_length=len(prompt))
    scores = chain(ids, torch.tensor([logits], dtype=torch.float32))
    return torch.softmax(scores.double(), dim=-1)[0]


def near_an_edge(model, case):
    """Whether a slightly different top_p or min_p would keep other tokens, so that rounding could decide."""
    survivors = None
    for factor in (1 - 1e-4, 1, 1 + 1e-4):
        options = dict(case["options"])
        for name in ("top_p", "min_p"):
            if name in options:
                options[name] *= factor
        kept = distribution(model, case["logits"], case["prompt"], case["answer"], options) > 0
        if survivors is not None and not torch.equal(kept, survivors):
            return True
        survivors = kept
    return False


def main():
    rng = random.Random(SEED)
    torch.manual_seed(SEED)
    tiny = transformers.GPT2Config(vocab_size=VOCAB, n_positions=64, n_embd=8, n_layer=1, n_head=1)
    model = transformers.GPT2LMHeadModel(tiny)
    cases = []
    for options, prompt_tokens, answer_tokens in [(options, 10, 5) for options in OPTIONS] + FILE_OPTIONS:
        done = 0
        while done < CASES_PER_GROUP:
            # Multiples of 1/1024 are exact in f32 and short in JSON; distinct, since transformers keeps all ties at top_k.
            units = rng.sample(range(-6 * 1024, 9 * 1024), VOCAB)
            case = {"options": options, "logits": [unit / 1024 for unit in units],
                    "prompt": [rng.randrange(10) for _ in range(prompt_tokens)],
                    "answer": [rng.randrange(10) for _ in range(answer_tokens)]}
            if "bad_words_ids" in options:
                text = case["prompt"] + case["answer"]
                ends = {"LAST": text[-1], "BEFORE": text[-2]}
                words = [[ends.get(id, id) for id in word] for word in options["bad_words_ids"]]
                case["options"] = {**options, "bad_words_ids": words}
            if near_an_edge(model, case):
                continue
            probabilities = distribution(model, case["logits"], case["prompt"], case["answer"], case["options"])
            case["ids"] = [i for i in range(VOCAB) if probabilities[i] > 0]
            case["probabilities"] = [float(f"{probabilities[i]:.9g}") for i in case["ids"]]
            cases.append(case)
            done += 1
    out = pathlib.Path("tests/fixtures/sampler/transformers.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    out.write_text(f'{{"versions":{json.dumps(versions)},"vocab_size":{VOCAB},"eos":{EOS},"cases":[\n{lines}\n]}}\n')
    print(f"{out}: {len(cases)} cases, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
