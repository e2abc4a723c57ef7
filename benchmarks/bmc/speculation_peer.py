#!/usr/bin/env python3
"""The prompt lookup of llama-cpp-python, run by the interpreter that has that package: llama.cpp's own speculation, in C++, is another.

Reads settings as one JSON object a line ({"model", "threads", "tokens", "ids", "lookup"}) and answers each with one line, until its input
ends. `lookup` is the number of draft tokens of a step (LlamaPromptLookupDecoding with its own n-grams of two), 0 is plain. Answers are greedy.

The package's own loop is what is measured: it samples and looks up in Python, as its users have it. Timed is from the first token to the
last, as we time ours. Plain runs ask for one row of logits a step, with lookup the package asks for all rows; so they are two contexts.
"""

import json
import sys
import time

from llama_cpp import Llama, llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding


class CountingLookup(LlamaPromptLookupDecoding):
    """Counts its draft tokens, the steps that have some, and all steps: it is asked once before each."""

    def __init__(self, num_draft_tokens: int):
        super().__init__(num_pred_tokens=num_draft_tokens)
        self.steps = self.with_drafts = self.drafted = 0

    def __call__(self, input_ids, /, **kwargs):
        found = super().__call__(input_ids, **kwargs)
        self.steps += 1
        self.with_drafts += len(found) > 0
        self.drafted += len(found)
        return found


class Loaded:
    def __init__(self):
        self.key = self.llama = None

    def get(self, s: dict) -> Llama:
        room = max(1024, -(-(len(s["ids"]) + s["tokens"] + 32) // 256) * 256)
        key = (s["model"], s["threads"], room, s["lookup"] > 0)
        if key != self.key:
            if self.llama is not None:
                self.llama.close()
            self.llama = Llama(s["model"], n_ctx=room, n_batch=512, n_threads=s["threads"], n_threads_batch=s["threads"],
                               flash_attn=True, n_gpu_layers=0,  # without it was not tried
                               logits_all=s["lookup"] > 0, verbose=False)
            self.key = key
        return self.llama


def answer(llama: Llama, s: dict) -> dict:
    lookup = CountingLookup(s["lookup"]) if s["lookup"] else None
    llama.draft_model = lookup
    llama.reset()
    vocabulary = llama_cpp.llama_model_get_vocab(llama.model)
    ids, start = [], time.perf_counter()
    for token in llama.generate(s["ids"], temp=0.0, top_k=1):
        last = time.perf_counter()
        first = last if not ids else first
        ids.append(int(token))
        if len(ids) == s["tokens"] or llama_cpp.llama_vocab_is_eog(vocabulary, token):
            break
    return {"ids": ids, "prompt_tokens": len(s["ids"]), "tokens": len(ids) - 1, "seconds": last - first, "first_s": first - start,
            "drafted": lookup.drafted if lookup else 0, "accepted": len(ids) - 1 - lookup.steps if lookup else 0,
            "with_drafts": lookup.with_drafts if lookup else 0}


def main() -> None:
    loaded = Loaded()
    for line in sys.stdin:
        if line.strip():
            s = json.loads(line)
            print(json.dumps(answer(loaded.get(s), s)), flush=True)


if __name__ == "__main__":
    main()
