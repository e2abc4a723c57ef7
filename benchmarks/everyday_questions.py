#!/usr/bin/env python3
"""Ten everyday questions, as a newcomer asks them: `tidemill run MODEL -p QUESTION --seed N --json`, one after the other.

  benchmarks/everyday_questions.py build/release/bin/tidemill MODEL [--seed 1]

Prints a Markdown table with tokens, finish reason and the beginning of each answer, then every answer whole. A reader judges whether an
answer is sensible. The exit code is 1 where one has more than 2048 tokens.
"""

import argparse
import json
import subprocess
import sys

LIMIT = 2048
QUESTIONS = (
    "What is the capital of France?",
    "What is photosynthesis?",
    "How do I boil an egg?",
    "Why is the sky blue?",
    "Name three fruits.",
    "What is 2 + 2?",
    "Write a short thank-you note to a neighbor who watered my plants.",
    "What is the difference between a cat and a dog?",
    "How can I fall asleep faster?",
    "Who wrote Romeo and Juliet?",
)


def ask(tidemill: str, model: str, question: str, seed: int) -> dict:
    command = [tidemill, "run", model, "-p", question, "--seed", str(seed), "--json"]
    done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def first_words(text: str) -> str:
    words = " ".join(text.split()).replace("|", "\\|")
    return words if len(words) <= 90 else words[:90].rsplit(" ", 1)[0] + " ..."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("model")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    answers = [ask(arguments.tidemill, arguments.model, question, arguments.seed) for question in QUESTIONS]
    print("| | question | tokens | finish reason | answer |\n| --- | --- | --- | --- | --- |")
    for number, (question, answer) in enumerate(zip(QUESTIONS, answers), start=1):
        print(f"| {number} | {question} | {answer['generated_tokens']} | {answer['finish_reason']} | {first_words(answer['text'])} |")
    for number, (question, answer) in enumerate(zip(QUESTIONS, answers), start=1):
        print(f"\n{number}. {question}\n\n{answer['text']}")
    longest = max(answer["generated_tokens"] for answer in answers)
    if longest > LIMIT:
        print(f"everyday_questions: expected at most {LIMIT} tokens, found {longest}", file=sys.stderr)
    return int(longest > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
