#!/usr/bin/env bash
# `make run`: from a fresh checkout to an answer. Each step is skipped when it is already done.
#   PROMPT   the question         MODEL   a .gguf file or model folder, else a small model is fetched
#   YES=1    install packages without asking
# stdout carries the answer and nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/messages.sh
source tools/check_platform.sh
source tools/build.sh

check_platform run
model=${MODEL:-}
if [[ -n $model && ! -e $model ]]; then
  die "run: MODEL=$model: no such file or folder"
fi
bash tools/install_packages.sh run
build run tidemill
chat=()
if [[ -z $model ]]; then
  model=$(python3 tools/get_model.py smollm2)
  chat=(--chat)
fi
prompt=${PROMPT:-What is photosynthesis?}
say "Model:  $model"
say "Prompt: $prompt"
say
exec build/run/bin/tidemill run "$model" -p "$prompt" "${chat[@]}"
