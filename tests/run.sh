#!/bin/bash
# Runs the suites named and ends with `N passed, N failed`. Logs stay in BUILD/test-logs; those of failures are shown.
# usage: tests/run.sh BUILD unit|ops|golden|layers|cuda|threads|e2e|e2e-threads|page|fuzz ...
# cuda: what a GPU is compared by (make check-cuda); programs that need one and find none say so and are skipped.
# threads, e2e-threads: what several threads do at once, for ThreadSanitizer; the rest only runs slower under it.
# A program that crashes, times out or says nothing counts as a failure of its own: silence never passes.
set -u
build=$1
shift
logs=$build/test-logs
mkdir -p "$logs"
passed=0 failed=0

count() { # count NAME STATUS PASSED FAILED LOG
    local p=${3:-0} f=${4:-0}
    if [ "$2" != 0 ] && [ "$f" = 0 ]; then f=1; fi
    if [ "$p" = 0 ] && [ "$f" = 0 ]; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f))
    if [ "$f" = 0 ]; then
        printf '  ok    %-34s %4d\n' "$1" "$p"
    else
        printf '  FAIL  %-34s %4d passed, %d failed (status %s)\n' "$1" "$p" "$f" "$2"
        tail -n 60 "$5" | sed 's/^/        /'
    fi
}
cmocka() { # cmocka FOLDER [NAME ...]: the programs named of one folder of tests, or all of them
    local program log status folder=$1
    shift
    for program in $(if [ $# = 0 ]; then ls "$build/tests/$folder"/test_*; else printf "$build/tests/$folder/test_%s\n" "$@"; fi); do
        case $program in *.o | *.d) continue ;; esac
        log=$logs/$folder-$(basename "$program").log
        timeout "${TEST_TIMEOUT:-600}" "$program" >"$log" 2>&1
        status=$?
        if [ $status = 0 ] && ! grep -q '^\[       OK \]' "$log" && grep -q '^\[  SKIPPED \]' "$log"; then
            printf '  skip  %-34s      %s\n' "$folder/$(basename "$program")" "$(grep -m1 'not run$' "$log")"
            continue
        fi
        count "$folder/$(basename "$program")" $status "$(grep -c '^\[       OK \]' "$log")" \
            "$(grep '^\[  FAILED  \] [^0-9]' "$log" | sort -u | wc -l)" "$log" # named again at the end
    done
}
node_tests() { # node_tests NAME FILE...
    local name=$1 log=$logs/${1//\//-}.log status
    shift
    (cd tests/e2e && [ -d node_modules ] || npm ci --ignore-scripts --no-audit --no-fund >/dev/null 2>&1)
    PARLEY=$PWD/$build/parley timeout "${TEST_TIMEOUT:-900}" node --test --test-reporter=tap "$@" >"$log" 2>&1
    status=$?
    count "$name" $status "$(awk '/^# pass /{n=$3} END{print n+0}' "$log")" \
        "$(awk '/^# fail /{n=$3} END{print n+0}' "$log")" "$log"
}
# Each target over its kept corpus, then from one seed for a fixed number of inputs, under bounds on time and memory:
# two results each. What it finds on its way goes to a scratch folder, so that every run starts from the same.
fuzz() {
    local program name log status runs scratch=$build/fuzz-scratch
    for program in "$build"/tests/fuzz/fuzz_*; do
        case $program in *.o | *.d) continue ;; esac
        name=${program##*/fuzz_}
        log=$logs/fuzz-$name.log
        for runs in 0 "${FUZZ_RUNS:-10000}"; do
            rm -rf "$scratch" && mkdir -p "$scratch"
            ASAN_OPTIONS=quarantine_size_mb=16 timeout "${TEST_TIMEOUT:-600}" "$program" \
                $([ -f "tests/fuzz/$name.dict" ] && echo "-dict=tests/fuzz/$name.dict") -seed=1 -runs="$runs" -timeout=20 \
                -rss_limit_mb=1024 -artifact_prefix="$logs/fuzz-$name-" "$scratch" "tests/fuzz/corpus/$name" >"$log" 2>&1
            status=$?
            grep -q 'seed corpus: files' "$log" || status=1 # an empty corpus shows nothing
            count "fuzz/$name $([ "$runs" = 0 ] && echo corpus || echo "$runs runs")" $status $((status == 0)) \
                $((status != 0)) "$log"
        done
    done
    rm -rf "$scratch"
}
for suite in "$@"; do
    case $suite in
    unit | ops | golden) cmocka "$suite" ;;
    cuda)
        cmocka ops cuda_rows cuda_linear cuda_attention cuda_draw
        cmocka golden models variants invariants sessions_resume sampling
        PARLEY_TEST_COMPUTE=bf16 PARLEY_TEST_DETERMINISTIC=1 cmocka golden invariants
        PARLEY_TEST_COMPUTE=bf16 cmocka golden models
        PARLEY_TEST_COMPUTE=f16 cmocka golden models
        ;;
    threads) cmocka unit queue log metrics threads thread_priority engine store sessions sessions_turns ;;
    e2e-threads)
        for name in concurrency streams turns crash; do node_tests "e2e/$name" "tests/e2e/$name.test.mjs"; done
        ;;
    layers)
        tests/check_layers.sh >"$logs/layers.log" 2>&1
        status=$?
        count layers $status $((status == 0)) $((status != 0)) "$logs/layers.log"
        ;;
    fuzz) fuzz ;;
    e2e) for file in tests/e2e/*.test.mjs; do node_tests "e2e/$(basename "$file" .test.mjs)" "$file"; done ;;
    page)
        # tests/e2e/page/browser_path.mjs looks in the same places.
        [ -n "${CHROMIUM:-}" ] || command -v chromium google-chrome google-chrome-stable >/dev/null ||
            (cd tests/e2e/page/chromium && [ -d node_modules ] || npm ci --ignore-scripts --no-audit --no-fund >/dev/null 2>&1)
        for file in tests/e2e/page/*.test.mjs; do node_tests "page/$(basename "$file" .test.mjs)" "$file"; done
        ;;
    *) echo "unknown suite: $suite" >&2; exit 2 ;;
    esac
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
