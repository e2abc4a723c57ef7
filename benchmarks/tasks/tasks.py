#!/usr/bin/env python3
"""What people do, from the question to the answer: a chat, questions about one text, many prompts, a file to rewrite.

  benchmarks/tasks/tasks.py build/release/bin/tidemill MODEL.gguf [--peer PEER/bin/python] [--threads 2] [--pairs 1] [--out tasks.jsonl]

Greedy, with the model's chat template and otherwise default flags. Tidemill runs as a program, `chat` or `run`; the peer is the class `Llama` of
llama-cpp-python, which keeps the longest beginning of one sequence, in the interpreter PEER. Seconds count from after the model is loaded until the
last token. In each pair every task runs once in each engine, in random order. Prints a Markdown table, the median over pairs, and writes every
measurement to --out. Answers end by themselves, so both engines may generate other numbers of tokens; the table has them.
"""

import argparse
import json
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PLACES = ("mill", "harbour", "market", "chapel", "bridge", "orchard", "quarry")
GOODS = ("barley", "rope", "salt", "slate", "wool", "honey", "lamp oil", "timber", "glass")
CHAT = ("What is a tide?", "Why are there two of them a day?", "Which coast has the largest tides?", "How do mills use the tide?",
        "Were there tide mills in the Middle Ages?", "What did they grind?", "Who owned them?", "How many hours could one work in a day?",
        "What happened to them later?", "Is power made from tides today?", "Name one such power station.", "Sum up what you told me.")


def text_of(words: int) -> str:
    """Sentences of 12 words about villages, each of them another."""
    return " ".join(f"In year {1700 + i} the {PLACES[i % 7]} sold {3 + i * 37 % 91} loads of {GOODS[i % 9]} to the north."
                    for i in range(words // 12))


def code_of(functions: int) -> str:
    return "\n".join(f"def tide_{i}(level, hours):\n    # the level after some hours at basin {i}\n    rise = {i % 7 + 1} * hours\n"
                     f"    return level + rise - {i % 5}\n" for i in range(functions))


def tasks() -> dict[str, dict]:
    """Each has turns of one conversation, or prompts of their own; and the most tokens of an answer."""
    text, beginning = text_of(2600), text_of(260)
    return {
        "chat of 12 turns": {"turns": list(CHAT), "tokens": 48},
        "8 questions over one text of 2,600 words": {
            "prompts": [f"{text}\n\nWhat was sold in the year {1710 + 17 * i}?" for i in range(8)], "tokens": 32},
        "48 prompts with 260 words in common": {
            "prompts": [f"{beginning}\n\nWrite one sentence about the year {1700 + i % 21} and number {i}." for i in range(48)], "tokens": 32},
        "rewrite a file (nothing to reuse)": {
            "prompts": [f"Write this file again with `tide` renamed to `wave`, and nothing else.\n\n{code_of(22)}"], "tokens": 1200},
    }


def measure_ours(tidemill: str, model: str, task: dict, threads: int) -> dict:
    common = ["--threads", str(threads), "--temperature", "0", "-n", str(task["tokens"])]
    start = time.perf_counter()
    if "turns" in task:
        command = [tidemill, "chat", model, *common, "--allow-repetition"]
        done = subprocess.run(command, input="\n".join(task["turns"]) + "\n/stats\n", text=True, capture_output=True)
        seconds = time.perf_counter() - start
        load = re.search(r"^load +([\d.]+) ms", done.stderr, re.MULTILINE)
        tokens = None
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
            for prompt in task["prompts"]:
                file.write(json.dumps({"messages": [{"role": "user", "content": prompt}]}) + "\n")
            file.flush()
            command = [tidemill, "run", model, *common, "--prompts", file.name]
            done = subprocess.run(command, text=True, capture_output=True)
        seconds = time.perf_counter() - start
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        load, tokens = None, sum(answer.get("generated_tokens", 0) for answer in answers)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    load_s = float(load[1]) / 1000 if load else answers[0]["timings"]["load_ms"] / 1000
    result = {"seconds": seconds - load_s, "load_s": load_s, "tokens": tokens}
    if "prompts" in task:
        result["prompt_tokens"] = sum(answer["prompt_tokens"] for answer in answers)
        result["cached_tokens"] = sum(answer["cached_tokens"] for answer in answers)
    return result


def be_peer(model: str, threads: int) -> None:
    """A task as JSON from standard input, its measurement to standard output; in the peer's interpreter."""
    from llama_cpp import Llama
    task = json.load(sys.stdin)
    llama = Llama(model_path=model, n_ctx=8192, n_threads=threads, n_threads_batch=threads, verbose=False)
    start, tokens, messages = time.perf_counter(), 0, []
    for prompt in task.get("turns", task.get("prompts")):
        messages = [*messages, {"role": "user", "content": prompt}]
        answer = llama.create_chat_completion(messages, temperature=0, max_tokens=task["tokens"])
        tokens += answer["usage"]["completion_tokens"]
        messages = [*messages, answer["choices"][0]["message"]] if "turns" in task else []
    print(json.dumps({"seconds": time.perf_counter() - start, "tokens": tokens}))


def measure_peer(python: str, model: str, task: dict, threads: int) -> dict:
    command = [python, __file__, "--as-peer", str(threads), "", model]
    done = subprocess.run(command, input=json.dumps(task), text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("model")
    parser.add_argument("--peer", help="an interpreter with llama-cpp-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--as-peer", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_peer is not None:
        return be_peer(arguments.model, arguments.as_peer)
    rows, order = [], random.Random(1)
    for name, task in tasks().items():
        engines = {"Tidemill": lambda: measure_ours(arguments.tidemill, arguments.model, task, arguments.threads)}
        if arguments.peer:
            engines["llama.cpp"] = lambda: measure_peer(arguments.peer, arguments.model, task, arguments.threads)
        for pair in range(arguments.pairs):
            for engine in order.sample(list(engines), len(engines)):
                rows.append({"task": name, "engine": engine, "pair": pair, "model": Path(arguments.model).name,
                             "threads": arguments.threads, **engines[engine]()})
                print(rows[-1], file=sys.stderr)
                if arguments.out:
                    with arguments.out.open("a") as out:
                        out.write(json.dumps(rows[-1]) + "\n")
    print("| task | Tidemill | llama.cpp | ratio | prompt tokens, computed |\n| --- | --- | --- | --- | --- |")
    for name in tasks():
        seconds = {engine: statistics.median(row["seconds"] for row in rows if row["task"] == name and row["engine"] == engine)
                   for engine in {row["engine"] for row in rows}}
        ours, peer = seconds["Tidemill"], seconds.get("llama.cpp")
        one = next(row for row in rows if row["task"] == name and row["engine"] == "Tidemill")
        computed = f"{one['prompt_tokens']}, {one['prompt_tokens'] - one['cached_tokens']}" if "prompt_tokens" in one else ""
        print(f"| {name} | {ours:.1f} s | {f'{peer:.1f} s' if peer else ''} | {f'{peer / ours:.2f}' if peer else ''} | {computed} |")


if __name__ == "__main__":
    main()
