#!/bin/bash
# One GPU beside two: tensor parallel, stages, and two instances. Random models that are never written (`bench --like`), medians
# of five, a line for each. usage: tests/bench/ranks.sh [PARLEY]   REPEAT=5 JSON=FILE (appends what each bench printed)
# To try it without GPUs: DEVICES=cpu SMALL=demo MIDDLE=demo LARGE=demo CONTEXT=32 REPEAT=1 tests/bench/ranks.sh
set -eu
parley=${1:-build/release/parley} devices=${DEVICES:-cuda:0,cuda:1} context=${CONTEXT:-1024}
small=${SMALL:-llama-1b} middle=${MIDDLE:-llama-8b} large=${LARGE:-llama-70b}

measure() { # measure SHAPE DEVICES [BENCH OPTIONS]: JSON in one line
    "$parley" bench --like "$1" --device "$2" --json --repeat "${REPEAT:-5}" "${@:3}" | tr -d '\n'
    echo
}
field() { sed -n "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/p"; }
line() { # line TITLE FIELD SHAPE DEVICES [BENCH OPTIONS]
    json=$(measure "${@:3}") || { printf '%-58s %10s\n' "$1" "failed"; return 0; }
    [ -z "${JSON:-}" ] || printf '%s\n' "$json" >>"$JSON"
    printf '%-58s %10.1f tokens/s\n' "$1" "$(field "$2" <<<"$json")"
}
one=(--parts decode --decode-tokens 128) many=(--parts together --context-tokens "$context" --decode-tokens 128 --sequences)
first=${devices%%,*} tp=(--tensor-parallel 2) pp=(--pipeline-parallel 2)
for shape in "$small" "$middle"; do
    line "$shape, one session, one device" decode_tokens_per_second "$shape" "$first" "${one[@]}"
    line "$shape, one session, tp 2" decode_tokens_per_second "$shape" "$devices" "${one[@]}" "${tp[@]}"
done
line "$middle, 64 x $context, one device" together_tokens_per_second "$middle" "$first" "${many[@]}" 64
line "$middle, 64 x $context, tp 2" together_tokens_per_second "$middle" "$devices" "${many[@]}" 64 "${tp[@]}"
line "$middle, 64 x $context, pp 2" together_tokens_per_second "$middle" "$devices" "${many[@]}" 64 "${pp[@]}"
prompt=(--parts prefill --prompt-tokens $((2 * context)))
line "$middle, prefill of $((2 * context)), one device" prefill_tokens_per_second "$middle" "$first" "${prompt[@]}"
line "$middle, prefill of $((2 * context)), tp 2" prefill_tokens_per_second "$middle" "$devices" "${prompt[@]}" "${tp[@]}"
line "$large, one session, tp 2" decode_tokens_per_second "$large" "$devices" "${one[@]}" "${tp[@]}"
line "$large, 32 x $context, tp 2" together_tokens_per_second "$large" "$devices" "${many[@]}" 32 "${tp[@]}"

# Two instances: two engines at once, each with half of the sessions. A server's own part is not in it.
line "$small, 128 x $context, one instance" together_tokens_per_second "$small" "$first" "${many[@]}" 128
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
for device in "$first" "${devices##*,}"; do
    measure "$small" "$device" "${many[@]}" 64 >"$(mktemp "$results/XXXXXX")" &
done
wait
printf '%-58s %10.1f tokens/s\n' "$small, 2 x 64 x $context, two instances" \
    "$(cat "$results"/* | field together_tokens_per_second | awk '{ sum += $1 } END { print sum }')"
