#!/bin/sh
# Runs suites of tests and ends with `N passed, N failed`; tests/run.sh --help has the options. The runner is tests/run.
# usage: tests/run.sh [OPTION ...] BUILD unit|ops|golden|layers|e2e|page|... ...
cd "$(dirname "$0")/.." || exit 2
exec node tests/run/main.mjs "$@"
