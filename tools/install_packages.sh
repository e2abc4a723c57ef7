#!/usr/bin/env bash
# Installs the Debian or Ubuntu packages that are missing, and says which: install_packages.sh run|test|ci
#   run   what building and running the program needs     test   and the tests     ci   and every check of .ci/run
# Asks on a terminal. Without one it installs only if YES=1, and else names the command and stops.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/messages.sh

run_packages=(ca-certificates cmake g++ libcli11-dev libhwy-dev libpcre2-dev ninja-build nlohmann-json3-dev python3 python3-venv)
test_packages=(googletest libgmock-dev libgtest-dev python3-numpy)
ci_packages=(clang clang-format g++-aarch64-linux-gnu git libbenchmark-dev libclang-rt-dev libdnnl-dev libpcre2-dev:arm64 llvm qemu-user shellcheck)

case "${1:-}" in
  run) packages=("${run_packages[@]}") ;;
  test) packages=("${run_packages[@]}" "${test_packages[@]}") ;;
  ci) packages=("${run_packages[@]}" "${test_packages[@]}" "${ci_packages[@]}") ;;
  *) die "install packages: '${1:-}': expected run, test or ci" ;;
esac

missing=()
# Matches packages that another one provides by name, too; an uninstalled one prints nothing to stdout.
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed* ]] || missing+=("$package")
done
((${#missing[@]} == 0)) && exit 0

become_root=()
if [[ $(id -u) -ne 0 ]]; then
  command -v sudo >/dev/null || die "install packages: not root and no sudo; as root run: apt-get install -y ${missing[*]}"
  become_root=(sudo)
fi
command_line="${become_root[*]:+${become_root[*]} }apt-get install -y --no-install-recommends ${missing[*]}"

if [[ ${YES:-} != 1 ]]; then
  say "These packages are missing: ${missing[*]}"
  if [[ -t 0 && -t 2 ]]; then
    read -r -p "Run '$command_line'? [Y/n] " answer || answer=n
    [[ ${answer,,} =~ ^(y|yes|)$ ]] || die "install packages: declined; nothing was changed"
  else
    die "install packages: no terminal to ask on; repeat with YES=1, or run: $command_line"
  fi
fi

need_disk / 1500 "install packages"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt_get=("${become_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o APT::Color=0)

# Keeps the last lines on screen short: what apt-get prints goes to a log, of which a failure shows the first errors.
run_apt() {
  local what=$1 errors
  shift
  if ! "${apt_get[@]}" "$@" >"$log" 2>&1 </dev/null; then
    errors=$(grep -E '^E: ' "$log" | head -3 | tr '\n' ' ')
    if grep -qE 'Temporary failure|Could not resolve|Could not connect|Network is unreachable|Connection (timed|failed)' "$log"; then
      die "$what: apt-get: no network: ${errors:-see /var/log/apt}; connect, then run the same command again"
    fi
    die "$what: apt-get: ${errors:-$(tail -1 "$log")}"
  fi
}

say "Installing ${#missing[@]} packages: ${missing[*]}"
SECONDS=0
# For what the cross-build links.
if [[ " ${missing[*]} " == *:arm64\ * ]]; then "${become_root[@]}" dpkg --add-architecture arm64; fi
# An update that reaches no server still ends with 0 and leaves the old lists; the install then says what is missing.
run_apt "update package lists" update
if ! grep -qE '^(Get|Hit):' "$log"; then
  die "update package lists: apt-get reached no server: $(grep -E '^(Err|W|E): ?' "$log" | head -1); check the network, then run the same command again"
fi
run_apt "install packages" install -y --no-install-recommends "${missing[@]}"
say "Installed in $SECONDS s."
