#!/bin/bash
# Runs fuzz targets, one after the other. What is new in coverage gathers in BUILD/corpus/NAME and what fails in
# BUILD/findings; the corpus in tests/fuzz/corpus is only read.
# usage: tests/fuzz/run.sh BUILD SECONDS [NAME ...]; `make fuzz` runs this
# With MINIMISE=1: afterwards the kept corpus is replaced by the smallest set of both that covers the same.
set -u
build=$1 seconds=$2
shift 2
status=0
names=${*:-$(ls tests/fuzz/fuzz_*.c | sed 's|.*/fuzz_\(.*\)\.c|\1|')}
mkdir -p "$build/findings"
for name in $names; do
    new=$build/corpus/$name kept=tests/fuzz/corpus/$name dictionary=tests/fuzz/$name.dict
    mkdir -p "$new"
    echo "== $name: $seconds s"
    ASAN_OPTIONS=quarantine_size_mb=16 "$build/tests/fuzz/fuzz_$name" $([ -f "$dictionary" ] && echo "-dict=$dictionary") \
        -max_total_time="$seconds" -timeout=20 -rss_limit_mb=1024 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="$build/findings/$name-" "$new" "$kept" 2>&1 | grep -v '^"' || true
    [ "${PIPESTATUS[0]}" = 0 ] || status=1
    [ "${MINIMISE:-0}" = 1 ] || continue
    rm -rf "$build/merged" && mkdir "$build/merged"
    ASAN_OPTIONS=quarantine_size_mb=16 "$build/tests/fuzz/fuzz_$name" -set_cover_merge=1 -use_counters=0 -max_len=16384 \
        -verbosity=0 "$build/merged" "$kept" "$new" >/dev/null 2>&1 || continue
    # What failed once has a name of its own and stays; libFuzzer's names are 40 digits.
    find "$kept" -type f ! -regex '.*/[0-9a-f]*' -exec cp {} "$build/merged" \;
    rm -rf "$kept" && mv "$build/merged" "$kept"
done
[ "$status" = 0 ] || echo "Findings are in $build/findings: run the target with one as its argument." >&2
exit $status
