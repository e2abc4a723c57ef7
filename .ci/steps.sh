# shellcheck shell=bash
# Sourced by .ci/run and .ci/full, in the root of the checkout: the steps, and `run_steps`, which takes those of `steps`.
source tools/messages.sh
source tools/build.sh
source tools/run_tests.sh

export YES=1
export TIDEMILL_WERROR=ON  # a warning is an error here, whatever it is to users
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
fuzz_seconds=${FUZZ_SECONDS:-30}

# What .ci/run and .ci/full set: each step with its limit of minutes on the wall, wide enough for noisy neighbours, and its bound of
# CPU-minutes or 0; the bounds of a whole run in minutes, on the wall with two cores; how much of AddressSanitizer.
steps=() cpu_bound=0 warm_cpu_bound=0 wall_bound=0
asan_levels=best with_fuzzers=OFF

step_deps() { bash tools/install_packages.sh ci; }

# Other versions of clang-format lay out some lines otherwise.
need_format_tools() {
  if ! clang-format --version 2>/dev/null | grep -q 'version 14\.' || ! command -v shellcheck >/dev/null; then
    die "format: no clang-format 14 or no shellcheck on the PATH; run: .ci/run deps"
  fi
}

step_format() {
  local files=() wrong=()
  need_format_tools
  mapfile -t files < <(find include src tests benchmarks -name '*.h' -o -name '*.cc' 2>/dev/null | sort)
  ((${#files[@]} > 0)) || die "format: no sources found"
  say "$(clang-format --version): ${#files[@]} files"
  mapfile -t wrong < <(printf '%s\0' "${files[@]}" | xargs -0 -P "$(nproc)" -n 50 clang-format --dry-run -Werror 2>&1 |
    sed -nE 's/^([^ :]+):[0-9]+:[0-9]+: error: .*/\1/p' | sort -u)
  if ((${#wrong[@]} > 0)); then
    for file in "${wrong[@]}"; do clang-format "$file" | diff -u "$file" - | sed -n 3,12p >&2 || true; done
    die "format: ${#wrong[@]} files differ from clang-format's: ${wrong[*]}; run: make format"
  fi
  mapfile -t files < <(find tools .ci -name '*.sh' -o -path '.ci/run' -o -path '.ci/full' | sort)
  say "shellcheck: ${#files[@]} files"
  shellcheck -x "${files[@]}"
}

step_structure() {
  python3 tools/check_structure.py --self-test
  python3 tools/check_structure.py
}

step_words() {
  python3 tools/check_words.py --self-test
  python3 tools/check_words.py
}

# ThreadSanitizer of clang 14 cannot place its shadow where the kernel randomises addresses widely.
fixed_addresses() {
  if setarch "$(uname -m)" -R true 2>/dev/null; then setarch "$(uname -m)" -R "$@"; else "$@"; fi
}

# The fast tests of a preset.
fast_tests() { run_tests "build/$1" --label-exclude slow --parallel "$(nproc)"; }

step_asan() {
  build asan all "-DTIDEMILL_FUZZERS=$with_fuzzers"
  TIDEMILL_TEST_LEVELS=$asan_levels fast_tests asan
}

step_tsan() {
  build tsan all
  TIDEMILL_TEST_LEVELS=best fixed_addresses bash -euo pipefail -c 'source .ci/steps.sh; fast_tests tsan'
}

# Runs what `asan` has built.
step_fuzz() {
  build asan fuzzers -DTIDEMILL_FUZZERS=ON
  bash tools/fuzz.sh build/asan/bin "$fuzz_seconds"
}

step_aarch64() {
  build aarch64 all
  fast_tests aarch64
}

# gcc beside the checks that the sanitizers' builds have, which are clang's; no tests.
step_dev() { build dev tidemill; }

# What `make run` builds.
step_run() { build run tidemill -DTIDEMILL_WERROR=ON; }

# Published chat templates as transformers renders them, vocabularies as llama.cpp splits them; uses what `run` has built.
step_published() {
  build run tidemill -DTIDEMILL_WERROR=ON
  bash tools/check_published.sh build/run/bin/tidemill
}

# What sparse attention costs in quality on a model with something to lose; uses what `run` has built.
step_quality() {
  local model
  build run tidemill -DTIDEMILL_WERROR=ON
  model=$(python3 tools/get_model.py smollm2)
  python3 tools/quality/check_eval.py build/run/bin/tidemill "$model"
}

# With the benchmarks, whose measuring code has tests, too.
step_test() { TIDEMILL_BENCHMARKS=ON make --no-print-directory test; }

# Sets cpu_seconds: of user and system, of all that this shell has waited for.
read_cpu_seconds() {
  times >"$state/times"
  cpu_seconds=$(awk 'NR == 2 { gsub(/[ms]/, " "); print int(60 * $1 + $2 + 60 * $3 + $4) }' "$state/times")
}

minutes() { printf '%d.%d' $(($1 / 60)) $(($1 % 60 / 6)); }

# Whether this is the processor that the bounds are of: AMD family 25, the models of Zen 4.
is_zen4() {
  awk -F': *' '/^cpu family/ { family = $2 } /^model[ \t]*:/ { model = $2 }
    END { exit !(family == 25 && (model >= 16 && model <= 31 || model >= 96 && model <= 127 || model >= 160 && model <= 175)) }' /proc/cpuinfo
}

# judge WHAT SECONDS BOUND_MINUTES: a line of the report; counts what is more than half above its bound on a Zen 4.
judge() {
  local line
  line=$(printf '%-34s %6s' "$1" "$(minutes "$2")")
  if (($3 > 0)); then
    line+=$(printf ' of %d' "$3")
    if ((2 * $2 > 3 * 60 * $3)); then
      line+="  MORE THAN 1.5 TIMES ITS BOUND"
      ! is_zen4 || too_much+=("$1")
    elif (($2 > 60 * $3)); then
      line+="  above its bound"
    fi
  fi
  say "$line"
}

# Whether nine in ten objects came from the compiler cache.
cache_was_warm() {
  [[ -f $CCACHE_STATSLOG ]] || return 1
  local misses hits
  misses=$(grep -cx cache_miss "$CCACHE_STATSLOG" || true)
  hits=$(grep -cxE 'direct_cache_hit|preprocessed_cache_hit' "$CCACHE_STATSLOG" || true)
  say "compiler cache: $hits hits, $misses misses"
  ((hits > 9 * misses))
}

# run_steps ARGUMENTS: the steps that are named, or all. The first failure stops the run. Bounds are those of an idle Zen 4; there a run fails
# above 1.5 times one, elsewhere it says so.
run_steps() {
  if [[ ${1:-} == --step ]]; then
    "step_$2"
    return
  fi
  local known name minutes bound result before used cpu_seconds selected=("$@") lines=() too_much=()
  known=$(printf '%s\n' "${steps[@]}" | cut -d: -f1 | tr '\n' ' ')
  for name in "${selected[@]}"; do
    [[ " $known" == *" $name "* ]] || die "ci: '$name': expected some of: $known"
  done
  state=$PWD/build/ci
  mkdir -p "$state"
  export CCACHE_STATSLOG=$state/ccache.log
  rm -f "$CCACHE_STATSLOG"
  for step in "${steps[@]}"; do
    IFS=: read -r name minutes bound <<<"$step"
    if ((${#selected[@]} > 0)) && [[ " ${selected[*]} " != *" $name "* ]]; then
      continue
    fi
    printf '\n== %s (at %d:%02d, limit %d min) ==\n' "$name" $((SECONDS / 60)) $((SECONDS % 60)) "$minutes"
    read_cpu_seconds
    result=0 before=$cpu_seconds
    timeout --kill-after=30s "${minutes}m" bash "$0" --step "$name" </dev/null || result=$?
    read_cpu_seconds
    used=$((cpu_seconds - before))
    say "step $name: $(minutes $used) CPU-minutes"
    lines+=("$name:$used:$bound")
    if ((result == 124 || result == 137)); then
      die "ci: step $name: took longer than $minutes minutes"
    elif ((result != 0)); then
      die "ci: step $name: failed with exit code $result, see above"
    fi
  done
  say
  say "CPU-minutes, with bounds of an idle Zen 4:"
  for step in "${lines[@]}"; do
    IFS=: read -r name used bound <<<"$step"
    judge "$name" "$used" "$bound"
  done
  if ((${#selected[@]} == 0)); then
    if cache_was_warm; then
      cpu_bound=$warm_cpu_bound
    fi
    judge "all steps" "$cpu_seconds" "$cpu_bound"
    judge "on the wall" "$SECONDS" $((2 * wall_bound / ($(nproc) < 2 ? 1 : 2)))
  fi
  ((${#too_much[@]} == 0)) || die "ci: $(printf '%s; ' "${too_much[@]}")took more than 1.5 times the bound, see above"
}
