#!/bin/bash
# The GPU's figures: random checkpoints of the shapes in the README's table, each measured by `parley
# bench` (medians of five), one line for each. usage: tests/bench/gpu.sh [PARLEY [FOLDER]]
# FOLDER keeps the checkpoints (30 GB); without one they go to a temporary folder and away.
set -eu
parley=${1:-build/release/parley}
folder=${2:-}
[ -n "$folder" ] || { folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; }
repeat=${REPEAT:-5}

shape() { # shape NAME [SYNTH OPTIONS]
    [ -e "$folder/$1/config.json" ] || "$parley" synth --like "$1" --out "$folder/$1" "${@:2}" >/dev/null
}
field() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" <<<"$json"; }
# line TITLE NAME [BENCH OPTIONS]
line() {
    shape "$2" ${SYNTH:-}
    json=$("$parley" bench --device cuda:0 --model "$folder/$2" --json --repeat "$repeat" "${@:3}" | tr -d '\n')
    awk -v t="$1" -v p="$(field prefill_tokens_per_second)" -v d="$(field decode_tokens_per_second)" \
        -v a="$(field together_tokens_per_second)" -v g="$(field gb_per_second)" -v c="$(field ceiling_gb_per_second)" \
        'BEGIN { printf "%-44s %9.0f %9.1f %9.0f %8.0f %8.0f %5.1f %%\n", t, p, d, a, g, c, 100 * g / c }'
}
printf '%-44s %9s %9s %9s %8s %8s %7s\n' 'tokens/s' prefill decode together GB/s ceiling share
line 'llama-1b bf16, 8 together' llama-1b --prompt-tokens 2048 --context-tokens 128 --sequences 8
line 'llama-8b bf16, 8 together at 1,024' llama-8b --prompt-tokens 2048 --context-tokens 1024 --sequences 8
line 'llama-8b bf16, 64 together at 1,024' llama-8b --prompt-tokens 65536 --context-tokens 1024 --sequences 64
line 'llama-8b int8, 8 together at 1,024' llama-8b --weight-dtype int8 --prompt-tokens 2048 --context-tokens 1024
line 'llama-8b bf16 deterministic, 8 at 1,024' llama-8b --deterministic --prompt-tokens 2048 --context-tokens 1024
line 'gpt-j-6b bf16, 8 together' gpt-j-6b --prompt-tokens 1024 --context-tokens 128
SYNTH='--dtype f16' line 'gpt2-xl f16, 8 together' gpt2-xl --prompt-tokens 512 --context-tokens 128
