#!/usr/bin/env python3
"""What a short request holds at most in a long context, under the growth policies that do not allocate it at once; llama.cpp beside them.

  benchmarks/bmc/peak_resident.py build/release/bin/tidemill MODEL.gguf [--context 512 131072] [--rope-scaling yarn=4]
      [--policies bmc geometric reserve] [--new 20] [--threads 2] [--llama PYTHON]

Each run is a process of its own, whose peak of resident memory the system counts (ru_maxrss). "stated" asks for --new tokens; "open" asks
for as many as the context holds, reads --new of them from the pipe and is interrupted then: the engine never knew how few there would be. Printed: a Markdown
table with the growth from the first context to the last one. The limit is 4 MiB: the exit code is 1 where one of ours takes more. Large
pages are the system's setting, printed with the table: /sys/kernel/mm/transparent_hugepage/enabled is to be `always` for the worst case.
--llama: an interpreter that has llama-cpp-python; its scaling is YaRN with the factor of --rope-scaling.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

PROMPT = "The tide comes in and"
LIMIT_MIB = 4
LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

LLAMA = """
import sys
from llama_cpp import Llama
path, context, own, factor, new, threads, prompt = sys.argv[1:]
more = {} if float(factor) == 1 else {"rope_scaling_type": 2, "rope_freq_scale": 1 / float(factor), "yarn_orig_ctx": int(own)}
llama = Llama(path, n_ctx=int(context), n_gpu_layers=0, n_threads=int(threads), n_threads_batch=int(threads), verbose=False, **more)
tokens = 0
for _ in llama.generate(llama.tokenize(prompt.encode()), temp=0):
    tokens += 1
    if tokens == int(new):
        break
"""


def finish(process: subprocess.Popen, allowed: set[int]) -> float:
    """Peak resident MiB of a process that ends by itself."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in allowed:
        sys.exit(f"run {' '.join(map(str, process.args))[:300]}: exit code {process.returncode}")
    return usage.ru_maxrss / 1024


def ours(arguments: argparse.Namespace, policy: str, context: int, is_open: bool) -> float:
    command = [arguments.tidemill, "run", arguments.model, "--raw", "-p", PROMPT, "--ignore-eos", "--temperature", "0",
               "--allow-repetition", "--quiet", "--context", str(context), "--kv-policy", policy, "--threads", str(arguments.threads)]
    command += ["--rope-scaling", arguments.rope_scaling] if arguments.rope_scaling else []
    command += ["-n", str(context), "--state-memory", "1T"] if is_open else ["-n", str(arguments.new)]  # a limit: it takes nothing
    process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
    pieces = 0
    while process.stdout.read(64):  # a token's text each
        pieces += 1
        if is_open and pieces == arguments.new:
            process.send_signal(signal.SIGTERM)  # which nobody ignores, as a shell's background jobs do SIGINT
    if pieces == 0:
        sys.exit(f"run {' '.join(command)}: expected text, found none")
    return finish(process, {0, 143} if is_open else {0})


def llama(arguments: argparse.Namespace, own: int, context: int) -> float:
    factor = float(arguments.rope_scaling.split("=")[1]) if arguments.rope_scaling else 1.0
    given = [arguments.model, context, own, factor, arguments.new, arguments.threads, PROMPT]
    process = subprocess.Popen([arguments.llama, "-c", LLAMA, *map(str, given)], stderr=subprocess.DEVNULL)
    return finish(process, {0})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tidemill")
    parser.add_argument("model")
    parser.add_argument("--context", nargs="+", type=int, default=[512, 131072])
    parser.add_argument("--rope-scaling", default="yarn=4", help="KIND=FACTOR; empty: none")
    parser.add_argument("--policies", nargs="+", default=["bmc", "geometric", "reserve"])
    parser.add_argument("--new", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--llama", metavar="PYTHON")
    arguments = parser.parse_args()
    if len(arguments.context) < 2:
        parser.error(f"--context: expected two or more to compare, found {len(arguments.context)}")
    said = subprocess.run([arguments.tidemill, "inspect", arguments.model, "--json"], text=True, capture_output=True, check=True)
    own = json.loads(said.stdout)["max_position_embeddings"]
    rows = [(f"tidemill, {policy}, {'open' if is_open else 'stated'}",
             [ours(arguments, policy, context, is_open) for context in arguments.context])
            for policy in arguments.policies for is_open in (False, True)]
    worst = max(peaks[-1] - peaks[0] for _, peaks in rows)
    if arguments.llama:
        rows.append(("llama.cpp", [llama(arguments, own, context) for context in arguments.context]))
    print(f"{Path(arguments.model).name}, {arguments.rope_scaling or 'no scaling'}, {arguments.new} tokens, {arguments.threads} threads; "
          f"large pages: {LARGE_PAGES.read_text().strip() if LARGE_PAGES.exists() else 'not known'}\n")
    print("| peak resident, MiB | " + " | ".join(f"context {context}" for context in arguments.context) + " | more |")
    print("| --- |" + " --- |" * (len(arguments.context) + 1))
    for name, peaks in rows:
        print(f"| {name} | " + " | ".join(f"{peak:.1f}" for peak in peaks) + f" | {peaks[-1] - peaks[0]:+.1f} |")
    print(f"\nThe most that one of ours takes more: {worst:+.1f} MiB, of {LIMIT_MIB} that it may.")
    return 0 if worst <= LIMIT_MIB else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"peak_resident: {error}{getattr(error, 'stderr', None) or ''}")
