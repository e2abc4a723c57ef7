# shellcheck shell=bash
# Sourced after messages.sh, in the root of the checkout.

# run_tests BUILD_FOLDER CTEST_ARG...: ctest, then each test program's time, what was skipped, and ctest's own summary last.
run_tests() {
  local folder=$1 line summary='' result=0
  shift
  rm -f "$folder/tests.xml"
  ctest --test-dir "$folder" --output-on-failure --no-tests=error --test-output-size-passed 100000 \
    --output-junit tests.xml "$@" | {
    while IFS= read -r line; do
      [[ -z $summary && $line =~ ^[0-9]+%\ tests\ passed ]] && summary=$line && continue
      if [[ -n $summary ]]; then summary+=$'\n'$line; else printf '%s\n' "$line"; fi
    done
    [[ ! -f $folder/tests.xml ]] || python3 tools/test_times.py "$folder/tests.xml"
    printf '%s\n' "$summary"
  } || result=$?
  return "$result"
}
