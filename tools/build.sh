# shellcheck shell=bash
# Sourced after messages.sh: configure and build one preset, in few lines when all goes well.

# build PRESET TARGET [CMAKE_ARG...]: TARGET may be all.
build() {
  local preset=$1 target=$2 log=build/$1/configure.log
  shift 2
  mkdir -p "build/$preset"
  need_disk "build/$preset" 1500 "build"
  command -v "${CXX:-g++}" >/dev/null || die "build: no C++ compiler '${CXX:-g++}' on the PATH; install g++ 12 or newer"
  say "Building $target (preset $preset, $(build_jobs) at a time) ..."
  configure() { cmake --preset "$preset" "$@" >"$log" 2>&1; }
  # Where the preset's compiler is another than the folder's, cmake forgets what else the preset says, but once.
  if ! configure "$@" || { grep -q 'require your cache to be deleted' "$log" && ! configure "$@"; }; then
    cat "$log" >&2
    die "configure preset $preset: cmake failed, see above or $log"
  fi
  # On a terminal ninja rewrites one line; in a log a line for each tenth is enough.
  if [[ -t 2 ]]; then
    cmake --build "build/$preset" --target "$target" --parallel "$(build_jobs)" >&2 ||
      die "build preset $preset: the compiler failed, see above"
  else
    log=build/$preset/build.log
    local tenth=0
    cmake --build "build/$preset" --target "$target" --parallel "$(build_jobs)" 2>&1 | tee "$log" |
      while IFS= read -r line; do  # awk may read 4 KiB before it says anything
        if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
          local done=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
          if ((all >= 20 && 10 * done / all > tenth)); then
            tenth=$((10 * done / all))
            echo "  $done of $all"
          fi
        fi
      done >&2 || {
      tail -60 "$log" >&2
      die "build preset $preset: the compiler failed, see above or $log"
    }
  fi
}
