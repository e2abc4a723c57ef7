# shellcheck shell=bash
# Sourced: stops with one sentence where the two commands cannot work.

check_platform() {
  # shellcheck disable=SC2016  # $PWD is for the reader's shell
  local advice='Tidemill is built on Debian 12, Debian 13 and Ubuntu 24.04; elsewhere, use a container: docker run -it --rm -v "$PWD":/tidemill -w /tidemill debian:12 sh -c "apt-get update && apt-get install -y make && make '"$1"' YES=1"'
  [[ $(uname -s) == Linux ]] || die "this is $(uname -s). $advice"
  local id='' version=''
  if [[ -r /etc/os-release ]]; then
    id=$(. /etc/os-release && echo "${ID:-}")
    version=$(. /etc/os-release && echo "${VERSION_ID:-}")
  fi
  case "$id $version" in
    'debian 12' | 'debian 13' | 'ubuntu 24.04') ;;
    *) die "this is ${id:-an unknown system} $version. $advice" ;;
  esac
  case $(uname -m) in
    x86_64)
      # aes and pclmulqdq as well: what src/ is compiled for as the lowest level
      for flag in sse4_2 popcnt aes pclmulqdq; do
        grep -qw "$flag" /proc/cpuinfo || die "this CPU lacks $flag; Tidemill needs an x86-64 CPU of about 2011 or later"
      done ;;
    aarch64) ;;
    *) die "this is a $(uname -m) CPU; Tidemill runs on x86-64 and arm64" ;;
  esac
}
