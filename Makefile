# The two commands for a newcomer are `make run` and `make test`. What they do is in tools/.
# make itself would expand $ in PROMPT=...; $(value ...) hands the text over as it was typed.
override PROMPT := $(value PROMPT)
override MODEL := $(value MODEL)
export PROMPT MODEL YES

.DEFAULT_GOAL := help
.PHONY: help run test ci-quick format clean

help:
	@sed -n 's/^#: //p' Makefile

#: make run        install what is missing, build, fetch a small model (98 MB) and answer a question
#:                   PROMPT='...'   the question        MODEL=PATH   a .gguf file or model folder of yours
#: make test       install what is missing, build with tests and run every test
#: make ci-quick   format and structure checks only, in a minute
#: make format     write the sources as clang-format 14 has them
#: make clean      remove build/ (the model stays in the cache folder)
#:                   YES=1 installs Debian or Ubuntu packages without asking

run:
	@bash tools/run.sh

test:
	@bash tools/test.sh

ci-quick:
	@bash .ci/run format structure

format:
	@clang-format --version 2>/dev/null | grep -q 'version 14\.' || \
	  { echo 'tidemill: format: no clang-format 14 on the PATH; run: .ci/run deps' >&2; exit 1; }
	@find include src tests benchmarks \( -name '*.h' -o -name '*.cc' \) -print0 2>/dev/null | xargs -0 clang-format -i

clean:
	rm -rf build
