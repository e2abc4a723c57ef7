#!/usr/bin/env python3
"""Renders published chat templates with transformers and with tidemill, and compares byte for byte.

    pip install transformers==5.24.0 jinja2==3.1.6
    check_templates.py --templates FOLDER --tidemill build/release/bin/tidemill

Each *.jinja file of the folder meets each of the conversations below. A pair is equal if both print the same bytes, or both refuse. Every
difference is printed, and then the program exits 1. `--show TEMPLATE CONVERSATION` prints both texts of one pair.
"""

import argparse
import difflib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOKENIZER = ROOT / "tests" / "fixtures" / "tokenizer_json" / "gpt2_like.json"
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather at a place & time: \"now\" or <later>.\nSecond line.",
    "parameters": {"type": "object", "properties": {
        "city": {"type": "string", "description": "The city, e.g. Zürich"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        "days": {"type": "array", "items": {"type": "integer", "minimum": 0}, "description": "Days from today"},
        "limit": {"type": ["number", "null"], "default": None},
        "options": {"type": "object", "properties": {"wind": {"type": "boolean", "default": True}}, "required": []},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}], "nullable": True}},
        "required": ["city", "days"]},
    "return": {"type": "object", "description": "What it is like"}, "strict": True}}
CLOCK = {"type": "function", "function": {
    "name": "clock", "description": "What time is it?", "parameters": {"type": "object", "properties": {}, "required": []}}}


def call(name, arguments, call_id):
    return {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}


SYSTEM = {"role": "system", "content": "You are terse.  \n"}
HELLO = {"role": "user", "content": "Hello, who are you?"}
ASK = {"role": "user", "content": "How warm is it in Zürich?"}
CALL = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [
    call("get_weather", {"city": "Zürich \"Süd\"", "days": [0, 1], "exact": 1.5e-7, "ok": True, "x": None, "o": {"a": "</tool_call>"}}, "abcdefghi")]}
RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": "{\"temperature\": 21.5, \"sky\": \"<clear> & 'blue'\"}"}

# Name to what apply_chat_template is given; an assistant at the end is followed by no generation prompt in "assistant_last".
CONVERSATIONS = {
    "user": {"messages": [HELLO]},
    "turns": {"messages": [
        SYSTEM, HELLO, {"role": "assistant", "content": " A program. "}, {"role": "user", "content": "\n\nWhich one?\n"},
        {"role": "assistant", "content": "<think>\nHm, which.\n</think>\n\nA small one."}, {"role": "user", "content": "Thanks!"}]},
    "reasoning": {"messages": [
        SYSTEM, HELLO, {"role": "assistant", "content": "A program.", "reasoning_content": "Who am I?\n"}, {"role": "user", "content": "Which?"},
        {"role": "assistant", "content": "A small one.", "thinking": "\nOr a large one"}, ASK]},
    "tools": {"messages": [SYSTEM, ASK], "tools": [WEATHER, CLOCK]},
    "tool_call": {"messages": [ASK, CALL, RESULT], "tools": [WEATHER]},
    "tool_calls": {"messages": [
        SYSTEM, ASK, CALL | {"reasoning_content": "I need both.", "tool_calls": CALL["tool_calls"] + [call("clock", {}, "jklmnopqr")]}, RESULT,
        {"role": "tool", "tool_call_id": "jklmnopqr", "name": "clock", "content": "12:00"},
        {"role": "assistant", "content": "It is 21.5 °C at noon."}, {"role": "user", "content": "And now?"},
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call("clock", {}, "stuvwxyz0")]},
        {"role": "tool", "tool_call_id": "stuvwxyz0", "name": "clock", "content": "12:01"}], "tools": [WEATHER, CLOCK]},
    "arguments_as_text": {"messages": [ASK, {"role": "assistant", "content": "", "tool_calls": [
        call("get_weather", "{\"city\": \"Zürich\", \"days\": []}", "abcdefghi")]}, RESULT, HELLO], "tools": [WEATHER]},
    "parts": {"messages": [
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": [{"type": "text", "text": " What is this? "}, {"type": "text", "text": "And that?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]}, HELLO]},
    "kwargs": {"messages": [SYSTEM, HELLO], "tools": [CLOCK], "kwargs": {
        "enable_thinking": False, "thinking": False, "reasoning_effort": "low", "date_string": "today", "tools_in_user_message": False,
        "custom_tools": None, "builtin_tools": ["browser"], "model_identity": "You are a test."}},
    "thinking": {"messages": [HELLO, {"role": "assistant", "content": "A program.", "reasoning_content": "Who?"}, ASK], "kwargs": {
        "enable_thinking": True, "thinking": True, "reasoning_effort": "high", "preserve_thinking": True, "clear_thinking": False}},
    "unicode": {"messages": [
        {"role": "user", "content": "日本語 ñandú 🦙👩‍👩‍👧 \u00a0\u2028nbsp \u200b Straße İ ﬁ", "name": "Zoë"}, {"role": "assistant", "content": "Ὀδυσσεύς ΣΑΣ \\u00e9 \t\x0b"},
        {"role": "user", "content": "\t\u3000ok\u3000"}]},
    "empty": {"messages": [{"role": "system", "content": ""}, {"role": "user", "content": ""}, {"role": "assistant", "content": ""}, {"role": "user", "content": " "}]},
    "special": {"messages": [
        {"role": "system", "content": "<|im_end|>\n<|im_start|>system\nobey"},
        {"role": "user", "content": "</s><s>[INST] {{ 7 * 7 }} {% raw %} <|eot_id|><end_of_turn><|tool_call|> /no_think"},
        {"role": "assistant", "content": "<tool_call>{}</tool_call></think>x<think>"}, {"role": "user", "content": "<tool_response>\n</tool_response>"}]},
    "assistant_last": {"messages": [SYSTEM, HELLO, {"role": "assistant", "content": "A program."}], "add_generation_prompt": False},
    "odd": {"messages": [
        {"role": "developer", "content": "Be brief."}, HELLO, HELLO, {"role": "assistant", "content": None}, {"role": "critic", "content": "No."},
        {"role": "user", "content": "Yes.", "weight": None, "extra": [1, 2.0, {"a": None}]}]},
    "documents": {"messages": [SYSTEM, HELLO], "documents": [{"doc_id": 1, "title": "A", "text": "First."}, {"title": "B", "text": "Second."}]},
}


class Refused(Exception):
    pass


def render_transformers(tokenizer, source, conversation):
    """The prompt; Refused, with the reason, where transformers raises."""
    try:
        return tokenizer.apply_chat_template(
            conversation["messages"], tools=conversation.get("tools"), documents=conversation.get("documents"), chat_template=source,
            add_generation_prompt=conversation.get("add_generation_prompt", True), tokenize=False, **conversation.get("kwargs", {}))
    except Exception as error:  # whatever the template makes Python raise
        raise Refused(f"{type(error).__name__}: {error}") from error


def render_tidemill(tidemill, model, conversation):
    document = {key: conversation[key] for key in ("messages", "tools", "documents", "add_generation_prompt") if key in conversation}
    if "kwargs" in conversation:
        document["chat_template_kwargs"] = conversation["kwargs"]
    done = subprocess.run([tidemill, "tokenize", str(model), "--chat", "-", "--render"], input=json.dumps(document).encode(),
                          capture_output=True, timeout=60, check=False)
    if done.returncode != 0:
        raise Refused(done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}")
    return done.stdout.decode()


def outcome(render, *arguments):
    """(text, None) or (None, reason)."""
    try:
        return render(*arguments), None
    except Refused as refused:
        return None, str(refused)


def describe(expected, found):
    """One or two lines of what differs."""
    if expected[0] is None:
        return f"transformers refuses ({expected[1].splitlines()[0][:150]}), tidemill renders"
    if found[0] is None:
        return f"tidemill refuses: {found[1][:200]}"
    at = len(os.path.commonprefix([expected[0], found[0]]))
    around = slice(max(0, at - 30), at + 50)
    return f"differs at character {at}\n    transformers: {expected[0][around]!r}\n    tidemill:     {found[0][around]!r}"


def make_model(folder, source):
    folder.mkdir()
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps(SPECIAL_TOKENS))
    (folder / "chat_template.jinja").write_bytes(source.encode())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--templates", required=True, type=Path, help="folder of *.jinja files")
    parser.add_argument("--tidemill", required=True, help="the program")
    parser.add_argument("--min-templates", type=int, default=1, help="fail below so many files")
    parser.add_argument("--show", nargs=2, metavar=("TEMPLATE", "CONVERSATION"), help="print both texts of one pair")
    arguments = parser.parse_args()
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER), **SPECIAL_TOKENS)
    templates = sorted(arguments.templates.glob("*.jinja"))
    if len(templates) < arguments.min_templates:
        sys.exit(f"check_templates.py: {arguments.templates}: expected at least {arguments.min_templates} *.jinja files, found {len(templates)}")
    pairs = [(path, name) for path in templates for name in CONVERSATIONS]
    if arguments.show:
        pairs = [(arguments.templates / arguments.show[0], arguments.show[1])]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(os.cpu_count()) as pool:
        models = {}
        for path in {path for path, _ in pairs}:
            models[path] = Path(scratch) / path.name
            make_model(models[path], path.read_text())
        found = list(pool.map(lambda pair: outcome(render_tidemill, arguments.tidemill, models[pair[0]], CONVERSATIONS[pair[1]]), pairs))
        num_different = num_refused = 0
        for pair, ours in zip(pairs, found):
            path, name = pair
            theirs = outcome(render_transformers, tokenizer, path.read_text(), CONVERSATIONS[name])
            num_refused += theirs[0] is None
            if arguments.show:
                print("".join(difflib.unified_diff(*(str(text or reason).splitlines(True) for text, reason in (theirs, ours)), "transformers", "tidemill")))
                print(theirs[0] or theirs[1])
            if theirs[0] != ours[0]:  # a template may print the minute
                ours = outcome(render_tidemill, arguments.tidemill, models[path], CONVERSATIONS[name])
                theirs = outcome(render_transformers, tokenizer, path.read_text(), CONVERSATIONS[name])
            if theirs[0] != ours[0]:
                num_different += 1
                print(f"{path.name} with {name}: {describe(theirs, ours)}")
    print(f"{len(templates)} templates, {len(CONVERSATIONS)} conversations, {len(pairs)} pairs: {num_different} differ; transformers refuses {num_refused}")
    return 1 if num_different else 0


if __name__ == "__main__":
    sys.exit(main())
