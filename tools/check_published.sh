#!/usr/bin/env bash
# Compares a tidemill with what llama.cpp's source package has: its vocabularies, their texts and ids (check_vocabularies.py), and its chat
# templates, which transformers renders (check_templates.py): check_published.sh TIDEMILL
# Fetches both through pip into build/published, by version and hash, and keeps them there.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/messages.sh

(($# == 1)) || die "check published: expected the program, found $# arguments; run: tools/check_published.sh build/release/bin/tidemill"
tidemill=$1 folder=build/published
python=$folder/venv/bin/python models=$folder/llama_cpp_python-0.3.36/vendor/llama.cpp/models
[[ -x $tidemill ]] || die "check published: $tidemill: expected the program, found none; build it first"

if [[ ! -f $folder/ready ]]; then
  mkdir -p "$folder"
  need_disk "$folder" 1000 "check published"
  rm -rf "$folder"/{venv,files}
  python3 -m venv "$folder/venv" || die "check published: $folder/venv: no virtual environment; install the package python3-venv"
  log=$folder/pip.log
  fetch() {
    "$python" -m pip "$@" >"$log" 2>&1 || die "check published: pip: $(grep -m 1 '^ERROR' "$log" || tail -1 "$log"); see $log"
  }
  fetch download --no-deps --dest "$folder/files" jinja2==3.1.6 transformers==5.24.0
  fetch download --no-deps --no-binary llama-cpp-python --dest "$folder/files" llama-cpp-python==0.3.36
  (cd "$folder/files" && sha256sum --quiet --check -) <<'HASHES' || die "check published: a package has another hash, see above"
85ece4451f492d0c13c5dd7c13a64681a86afae63a5f347908daf103ce6d2f67  jinja2-3.1.6-py3-none-any.whl
ff5ebedf9359f94bb63772b6380eba6e7104d010cbbb2cb82c788817ea7486f6  transformers-5.24.0-py3-none-any.whl
832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e  llama_cpp_python-0.3.36.tar.gz
HASHES
  fetch install "$folder"/files/*.whl
  tar -xzf "$folder/files/llama_cpp_python-0.3.36.tar.gz" -C "$folder" "${models#"$folder/"}"
  touch "$folder/ready"
fi
"$python" tools/check_vocabularies.py "$tidemill" "$models" --min-vocabularies 15
"$python" tools/check_templates.py --templates "$models/templates" --tidemill "$tidemill" --min-templates 70
