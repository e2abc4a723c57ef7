# shellcheck shell=bash
# Sourced by the scripts beside it: how they speak. All of it goes to stderr; stdout belongs to the answer.

say() { printf '%s\n' "$*" >&2; }

# One line that says what was being done, to what, and what to do; then exit 1.
die() {
  printf 'tidemill: %s\n' "$*" >&2
  exit 1
}

# How many compilers to run at once: one a core, and 1.2 GB of free memory for each.
build_jobs() {
  local cores free_kb jobs
  cores=$(nproc)
  free_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
  jobs=$((${free_kb:-2400000} / 1200000))
  ((jobs < 1)) && jobs=1
  ((jobs > cores)) && jobs=$cores
  echo "$jobs"
}

# need_disk FOLDER MEGABYTES WHAT: stops when the file system under FOLDER has less free space.
need_disk() {
  local free_kb
  free_kb=$(df -Pk "$1" | awk 'NR == 2 { print $4 }')
  if ((free_kb < $2 * 1024)); then
    die "$3: $1: needs $2 MB of free disk space, found $((free_kb / 1024)) MB; free some, then run the same command again"
  fi
}
