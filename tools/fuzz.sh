#!/usr/bin/env bash
# Runs every fuzz target over its kept corpus for some seconds: fuzz.sh BIN_FOLDER SECONDS
# A target is BIN_FOLDER/fuzz_NAME, its corpus tests/fuzz/corpus/NAME, its dictionary, if any, tests/fuzz/NAME.dict. An input
# that crashes it lands in build/fuzz/crashes/; once the bug is fixed it joins the corpus.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/messages.sh

(($# == 2)) || die "fuzz: expected a folder and seconds, found $# arguments; run: tools/fuzz.sh build/fuzz/bin 30"
bin=$1 seconds=$2
shopt -s nullglob
targets=("$bin"/fuzz_*)
((${#targets[@]} > 0)) || die "fuzz: $bin: no targets named fuzz_*; build them with: cmake --preset fuzz && cmake --build --preset fuzz"
for corpus in tests/fuzz/corpus/*/; do
  name=$(basename "$corpus")
  [[ -x $bin/fuzz_$name ]] || die "fuzz: $corpus: has no target $bin/fuzz_$name; a corpus that nothing reads is no check"
done
crashes=build/fuzz/crashes logs=build/fuzz/logs
mkdir -p "$crashes" "$logs"

fuzz_one() {
  local target=$1 name found_folder corpus
  name=$(basename "$target")
  name=${name#fuzz_}
  corpus=tests/fuzz/corpus/$name
  [[ -d $corpus && -n $(ls -A "$corpus") ]] || { say "fuzz: $name: has no corpus at $corpus"; return 1; }
  found_folder=$(mktemp -d) # what is new goes here; the kept corpus is only read
  local result=0 dictionary=()
  [[ -f tests/fuzz/$name.dict ]] && dictionary=("-dict=tests/fuzz/$name.dict")
  "$target" "${dictionary[@]}" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -malloc_limit_mb=1024 -print_final_stats=1 \
    -artifact_prefix="$crashes/$name-" "$found_folder" "$corpus" >"$logs/$name.log" 2>&1 || result=$?
  rm -rf "$found_folder"
  if ((result != 0)); then
    tail -40 "$logs/$name.log" >&2
    say "fuzz: $name: failed with exit code $result; its input is in $crashes/"
    return 1
  fi
  say "fuzz: $name: $(awk '/number_of_executed_units/ { print $2 }' "$logs/$name.log") inputs in $seconds s, no fault"
}
export -f fuzz_one say
export crashes logs seconds

# shellcheck disable=SC2016  # $0 is the inner shell's: the target
printf '%s\0' "${targets[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -euo pipefail -c 'fuzz_one "$0"'
say "fuzz: ${#targets[@]} targets, each $seconds s"
