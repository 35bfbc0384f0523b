#!/bin/bash
# The GPU's figures: random checkpoints of the shapes in RESULTS.md, each measured by `parley
# bench` (medians of five), one line for each. usage: tests/bench/gpu.sh [PARLEY [FOLDER]]
# FOLDER keeps the checkpoints (51 GB); without one they go to a temporary folder and away.
# JSON=FILE: appends what `parley bench` printed for each line, as JSON Lines.
#
# A device's time is dear: checkpoints are made side by side before the first measurement, what two lines share is
# measured once, and what costs so much more as `deterministic` comes from the process that measures both.
set -eu
parley=${1:-build/release/parley}
folder=${2:-}
[ -n "$folder" ] || { folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT; }
repeat=${REPEAT:-5}

shape() { # shape NAME [SYNTH OPTIONS]
    [ -e "$folder/$1/config.json" ] || "$parley" synth --like "$1" --out "$folder/$1" "${@:2}" >/dev/null
}
bench() { # bench NAME [BENCH OPTIONS]: into $json
    json=$("$parley" bench --device cuda:0 --model "$folder/$1" --json --repeat "$repeat" "${@:2}" | tr -d '\n')
    [ -z "${JSON:-}" ] || printf '%s\n' "$json" >>"$JSON"
}
field() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p" <<<"$json"; }
# figures TITLE PREFIX: a line of tokens/s from $json, "-" for what was not measured
figures() {
    awk -v t="$1" -v p="$(field "${2}prefill_tokens_per_second")" -v m="$(field "${2}prompts_tokens_per_second")" \
        -v d="$(field "${2}decode_tokens_per_second")" -v a="$(field "${2}together_tokens_per_second")" \
        -v b="$(field bytes_per_step)" -v c="$(field ceiling_gb_per_second)" '
        function shown(v, form) { return v == "" ? "-" : sprintf(form, v) }
        BEGIN {
            g = d == "" ? "" : b * d / 1e9
            printf "%-42s %9s %9s %8s %9s %7s %7s %7s\n", t, shown(p, "%.0f"), shown(m, "%.0f"), shown(d, "%.1f"), shown(a, "%.0f"),
                shown(g, "%.0f"), shown(c, "%.0f"), g == "" ? "-" : sprintf("%.1f %%", 100 * g / c)
        }'
}
line() { # line TITLE NAME [BENCH OPTIONS]
    bench "${@:2}"
    figures "$1" ""
}
# both TITLE NAME [BENCH OPTIONS]: without `deterministic` and with it, and what it costs
both() {
    bench "${@:2}" --deterministic
    figures "$1" plain_
    figures "    deterministic" ""
    awk -v p="$(field deterministic_cost_prefill)" -v d="$(field deterministic_cost_decode)" \
        -v a="$(field deterministic_cost_together)" '
        function shown(v) { return v == "" ? "-" : sprintf("%.1f%%", 100 * v) }
        BEGIN { printf "%-42s %9s %9s %8s %9s\n", "    its cost, of the time without", shown(p), "", shown(d), shown(a) }'
}

shape llama-1b & shape gpt2-xl --dtype f16 & shape gpt-j-6b & shape llama-8b &
for job in $(jobs -p); do wait "$job"; done # the first that fails ends the script
quantized() { # quantized NAME DTYPE
    [ -e "$folder/$1-$2/config.json" ] || "$parley" quantize --model "$folder/$1" --output "$folder/$1-$2" --weight-dtype "$2" >/dev/null
}
quantized llama-8b int8 & quantized llama-8b fp8 &
for job in $(jobs -p); do wait "$job"; done

together='--parts together --context-tokens 1024 --sequences 64'
printf '%-42s %9s %9s %8s %9s %7s %7s %7s\n' 'tokens/s' prefill prompts decode together GB/s ceiling share
line 'llama-1b bf16, 8 together' llama-1b --prompt-tokens 2048 --context-tokens 128 --sequences 8
both 'llama-8b bf16, 8 together at 1,024' llama-8b --prompt-tokens 2048 --context-tokens 1024 --sequences 8
both 'llama-8b bf16, 64 together at 1,024' llama-8b $together
line 'llama-8b int8, 8 together at 1,024' llama-8b-int8 --prompt-tokens 2048 --context-tokens 1024
line 'llama-8b fp8, 8 together at 1,024' llama-8b-fp8 --prompt-tokens 2048 --context-tokens 1024
line 'llama-8b int8, 64 together at 1,024' llama-8b-int8 $together
line 'llama-8b fp8, 64 together at 1,024' llama-8b-fp8 $together
line 'llama-8b fp8 with activations, 64 together' llama-8b-fp8 --fp8-activations --prompt-tokens 2048 --context-tokens 1024 --sequences 64
line 'llama-8b bf16, int8 cache, 64 at 1,024' llama-8b --kv-dtype int8 $together
line 'gpt-j-6b bf16, 8 together' gpt-j-6b --prompt-tokens 1024 --context-tokens 128
line 'gpt2-xl f16, 8 together' gpt2-xl --prompt-tokens 512 --context-tokens 128

printf '\n%-44s %9s %9s %9s %9s %9s\n' 'sessions' 'load GB/s' 'idle us' 'idle %' 'idle us' 'idle %'
# session TITLE NAME [BENCH OPTIONS]: loading; the device's idle time between two steps, of one session and of all
session() {
    bench "${@:2}"
    awk -v t="$1" -v b="$(field weight_bytes)" -v l="$(field load_seconds)" -v d="$(field decode_idle_us)" -v ds="$(field decode_idle_share)" \
        -v a="$(field together_idle_us)" -v as="$(field together_idle_share)" \
        'BEGIN { printf "%-44s %9.2f %9.1f %9.2f %9.1f %9.2f\n", t, b / l / 1e9, d, 100 * ds, a, 100 * as }'
}
session 'llama-8b, 1 and 8 sessions at 4,096' llama-8b --parts decode,together --context-tokens 4096 --sequences 8 --later-turn 200
printf '  first token of a turn of 200 on 4,096 in the cache: %s ms, %s ms of it in the engine\n' \
    "$(field later_turn_first_token_ms)" "$(field later_turn_engine_ms)"
session 'llama-1b, 1 and 64 sessions at 128' llama-1b --parts decode,together --context-tokens 128 --sequences 64 --memory-len 1024 --turns 1000
printf '  1,000 turns of 32 tokens, memory_len 1024: %s us for a token at 1 x memory_len, %s at 10 x and on\n' \
    "$(field session_token_us_at_1)" "$(field session_token_us_at_10)"
