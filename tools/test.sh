#!/usr/bin/env bash
# `make test`: install what is missing, build with tests, fetch the small model, run every test.
# The last thing printed is ctest's own summary.
#   TIDEMILL_TEST_LEVELS=all   at every instruction-set level that this CPU has; else at the lowest, the best and the usual one
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/messages.sh
source tools/check_platform.sh
source tools/build.sh
source tools/run_tests.sh

check_platform test
bash tools/install_packages.sh test
# A newer compiler than those the project is checked with may warn about more; that is no reason to have no tests.
build release all -DTIDEMILL_TESTS=ON "-DTIDEMILL_WERROR=${TIDEMILL_WERROR:-OFF}" "-DTIDEMILL_BENCHMARKS=${TIDEMILL_BENCHMARKS:-OFF}"

# The slow tests read real weights and fail without them.
TIDEMILL_SMOLLM2=$(python3 tools/get_model.py smollm2)
export TIDEMILL_SMOLLM2

export TIDEMILL_TEST_LEVELS=${TIDEMILL_TEST_LEVELS:-ends}
if [[ -d src/kernels ]]; then
  say "Instruction-set levels in this build and on this CPU:"
  levels=build/release/bin/kernels_test
  [[ -x $levels ]] || die "list instruction-set levels: $levels: was not built"
  "$levels" --gtest_filter='IsaLevels*' >&2 || die "list instruction-set levels: $levels failed, see above"
fi

# One run, so that its summary counts every test. ctest starts the costly ones first unless told otherwise:
# rooms' fast tests carry a COST above all others (cmake/rooms.cmake), so they fail first.
run_tests build/release --parallel "$(nproc)"
