#!/bin/bash
# Runs the suites named and ends with `N passed, N failed`; each line has the seconds that it took. Logs stay in
# BUILD/test-logs; those of failures are shown.
# usage: tests/run.sh [--times] BUILD unit|ops|golden|layers|cuda|sanitize|threads|e2e|e2e-threads|clients|page|fuzz ...
# --times: prints the programs with most processor time at the end, and the sums.
# cuda: the tests of a GPU (make check-cuda); programs that need one and find none say so and are skipped.
# sanitize: compute-sanitizer over the op tests, shortened (make check-cuda-sanitize).
# clients: frameworks that are built on the protocols (make check-clients).
# threads, e2e-threads: the tests of several threads, for ThreadSanitizer.
# A program that crashes, times out or prints nothing counts as a failure: silence never passes.
#
# Programs run in three lanes at once: programs that compute, programs that talk to a server, and programs that drive a
# browser. The last two wait half of the time, and timeouts depend on them, so the programs that compute run at a lower
# priority, one more at a time; not those of several ranks, which wait for each other at each sum. TEST_JOBS programs of
# a lane run at a time, by default as many as there are processors; TEST_JOBS=1 runs a single program at a time.
#
# TEST_AGAIN=N (default 0): a program that waits for others (of the last two lanes, or of several ranks) and failed runs
# once more when all others have ended, and that run counts. It is for machines that others use, too: what it waits for may
# come too late beside the rest. Its first failure is shown, and the end names it. At most N do so, and none with a
# sanitizer's report.
set -u
times=0
[ "${1:-}" = --times ] && times=1 && shift
build=$1
shift
logs=$build/test-logs
jobs=${TEST_JOBS:-$(nproc)}
scratch=$(mktemp -d)
# The tests create hundreds of databases and model folders. In memory, if there is enough, syncing them costs nothing.
# Tests of failing disks and power cuts simulate the disk themselves.
memory=""
if [ -z "${TMPDIR:-}" ] && [ "$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1)" -gt $((4 << 20)) ] 2>/dev/null; then
    memory=$(mktemp -d /dev/shm/parley-tests-XXXXXX) && chmod 1777 "$memory" && export TMPDIR=$memory # as /tmp is
fi
trap 'rm -rf "$scratch" ${memory:+"$memory"}' EXIT
mkdir -p "$logs"
passed=0 failed=0
again=() # numbers of the jobs that run once more
# AddressSanitizer's quarantine of freed memory and its depth of stacks: the defaults, 256 MB and 30, are too much for two
# dozen programs at once.
export ASAN_OPTIONS=${ASAN_OPTIONS:-quarantine_size_mb=32:malloc_context_size=12}

# What a reader needs of a failed program's log: of node's form (TAP) the tests that failed, of others the end.
failures() { # failures LOG
    if grep -q '^ *not ok ' "$1"; then
        awk '/^ *not ok /{on=1} on; /^ *\.\.\.$/{on=0}' "$1" | head -n 60
    else
        tail -n 60 "$1"
    fi
}
count() { # count NAME STATUS PASSED FAILED LOG SECONDS
    local p=${3:-0} f=${4:-0}
    if [ "$2" != 0 ] && [ "$f" = 0 ]; then f=1; fi
    if [ "$p" = 0 ] && [ "$f" = 0 ]; then f=1; fi
    passed=$((passed + p)) failed=$((failed + f))
    if [ "$f" = 0 ]; then
        printf '  ok    %-34s %4d %7.1f s\n' "$1" "$p" "$6"
    else
        printf '  FAIL  %-34s %4d passed, %d failed (status %s) after %.1f s\n' "$1" "$p" "$f" "$2" "$6"
        failures "$5" | sed 's/^/        /'
    fi
}

# Jobs: each waits in its lane, then runs in the background with its output in a log. The kind of program decides how its
# results are read from the log.
lanes=(page talk compute)
declare -A running=([page]=0 [talk]=0 [compute]=0) room=([page]=$jobs [talk]=$jobs [compute]=$((jobs + 1)))
declare -A waiting=([page]="" [talk]="" [compute]="") # numbers of jobs, in order
n_jobs=0 n_running=0
# The longest programs start first, so that none runs alone at the end.
longest=" unit/test_power golden/test_tiers golden/test_invariants golden/test_sessions_tree unit/test_isolation
 golden/invariants-tp2-pp1 unit/test_tokenizer_time unit/test_sessions_memory ops/test_linear_fp8 ops/test_attention
 e2e/admission e2e/replay e2e/concurrency e2e/streams e2e/crash e2e/cli e2e/memory e2e/wire_flow page/branching
 page/access page/render "

enter() { # enter LANE KIND NAME LOG COMMAND...
    local lane=$1 job=$((++n_jobs))
    shift
    printf '%s\n' "$lane" "$1" "$2" "$3" >"$scratch/$job.job"
    case $longest in
    *[[:space:]]$2[[:space:]]*) waiting[$lane]="$job ${waiting[$lane]}" ;;
    *) waiting[$lane]+="$job " ;;
    esac
    shift 3
    printf '%q ' "$@" >"$scratch/$job.command"
}
waits() { [ "$1" != compute ] || [ "$2" = ranks ]; } # waits LANE KIND: whether such programs wait for others
start_some() { # starts jobs in every lane that has room
    local lane job rest
    for lane in "${lanes[@]}"; do
        while [ "${running[$lane]}" -lt "${room[$lane]}" ] && [ -n "${waiting[$lane]}" ]; do
            [ "$jobs" = 1 ] && [ "$n_running" -gt 0 ] && return
            read -r job rest <<<"${waiting[$lane]}"
            waiting[$lane]=${rest:+$rest }
            ( { read -r _; read -r kind; read -r _; read -r log; } <"$scratch/$job.job"
              waits "$lane" "$kind" || renice -n 5 "$BASHPID" >/dev/null
              TIMEFORMAT='%R %U %S'
              { time eval "$(cat "$scratch/$job.command")" >"$log" 2>&1; echo $? >"$scratch/$job.status"; } 2>"$scratch/$job.time" ) &
            echo "$job" >"$scratch/$!.pid"
            running[$lane]=$((running[$lane] + 1)) n_running=$((n_running + 1))
        done
    done
}
finish_one() {
    local pid job lane kind name log status seconds user system
    wait -n -p pid
    read -r job <"$scratch/$pid.pid"
    { read -r lane; read -r kind; read -r name; read -r log; } <"$scratch/$job.job"
    running[$lane]=$((running[$lane] - 1)) n_running=$((n_running - 1))
    start_some
    status=$(cat "$scratch/$job.status" 2>/dev/null || echo 255)
    read -r seconds user system < <(tail -n 1 "$scratch/$job.time")
    echo "$user $system $seconds $name" >>"$scratch/times"
    "${kind}_result" "$name" "$status" "$log" "$seconds"
}
finish_all() {
    start_some
    while [ "$n_running" -gt 0 ]; do finish_one; done
}

cmocka_result() { # NAME STATUS LOG SECONDS
    if [ "$2" = 0 ] && ! grep -q '^\[       OK \]' "$3" && grep -q '^\[  SKIPPED \]' "$3"; then
        printf '  skip  %-34s      %s\n' "$1" "$(grep -m1 'not run$' "$3")"
        return
    fi
    ! runs_again "$@" || return
    count "$1" "$2" "$(grep -c '^\[       OK \]' "$3")" \
        "$(grep '^\[  FAILED  \] [^0-9]' "$3" | sort -u | wc -l)" "$3" "$4" # named twice in the log
}
cmocka() { # cmocka FOLDER [NAME ...]: the programs named of one folder of tests, or all of them
    local program label folder=$1
    shift
    label=${PARLEY_TEST_COMPUTE:+-$PARLEY_TEST_COMPUTE}
    for program in $(if [ $# = 0 ]; then ls "$build/tests/$folder"/test_*; else printf "$build/tests/$folder/test_%s\n" "$@"; fi); do
        case $program in *.o | *.d) continue ;; esac
        enter compute cmocka "$folder/${program##*/}$label" "$logs/$folder-${program##*/}$label.log" timeout "${TEST_TIMEOUT:-1800}" "$program"
    done
    [ -z "$label${PARLEY_TEST_DETERMINISTIC:-}" ] || finish_all # while the variables are set
}
node_result() { # NAME STATUS LOG SECONDS
    # Every test of the file was skipped, and says why.
    if [ "$2" = 0 ] && ! grep -qE '^(not )?ok ' <(grep -vE ' # SKIP .+' "$3") && grep -qE ' # SKIP .+' "$3"; then
        printf '  skip  %-34s      %s\n' "$1" "$(sed -n 's/.* # SKIP //p' "$3" | head -n 1)"
        return
    fi
    ! runs_again "$@" || return
    count "$1" "$2" "$(awk '/^# pass /{n=$3} END{print n+0}' "$3")" "$(awk '/^# fail /{n=$3} END{print n+0}' "$3")" "$3" "$4"
}
runs_again() { # runs_again NAME STATUS LOG SECONDS: whether the job has failed and runs once more at the end (TEST_AGAIN)
    [ "$2" != 0 ] && [ "${#again[@]}" -lt "${TEST_AGAIN:-0}" ] || return
    waits "$lane" "$kind" || return
    ! grep -qE 'Sanitizer|runtime error:' "$3" || return
    again+=("$job")
    printf '  again %-34s      failed (status %s) after %.1f s\n' "$1" "$2" "$4"
    failures "$3" | sed 's/^/        /'
}
run_again() {
    local jobs_again=("${again[@]}") before=$failed
    [ "${#again[@]}" -gt 0 ] || return 0
    TEST_AGAIN=0 jobs=1
    for job in "${jobs_again[@]}"; do
        { read -r lane; read -r _; } <"$scratch/$job.job"
        waiting[$lane]+="$job "
    done
    finish_all
    printf '  %d programs failed beside others and ran again alone, %d of their tests failed again: %s\n' \
        "${#jobs_again[@]}" "$((failed - before))" "$(for job in "${jobs_again[@]}"; do sed -n 3p "$scratch/$job.job"; done | xargs)"
}
node_tests() { # node_tests LANE NAME FILE...
    local lane=$1 name=$2 threads=()
    shift 2
    [ tests/e2e/node_modules/.package-lock.json -nt tests/e2e/package-lock.json ] || (cd tests/e2e && npm ci --ignore-scripts --no-audit --no-fund >/dev/null 2>&1)
    # If several servers share the processors, the threads of one mostly wait for each other. unit, golden and
    # e2e-threads test with several threads.
    [ "$suite" = e2e ] && [ "$jobs" -gt 1 ] && threads=("PARLEY_THREADS=${PARLEY_THREADS:-1}")
    enter "$lane" node "$name" "$logs/${name//\//-}.log" \
        env "PARLEY=$PWD/$build/parley" "${threads[@]}" timeout "${TEST_TIMEOUT:-1800}" node --test --test-reporter=tap "$@"
}
ranks() { # ranks TP PP NAME ...: golden tests whose engines have TP x PP ranks
    local name with="PARLEY_TEST_TP=$1 PARLEY_TEST_PP=$2 PARLEY_TEST_DEVICE=${PARLEY_TEST_DEVICE:-cpu}" label=tp$1-pp$2
    [ -e "$build/mpi-1" ] || return 0
    shift 2
    for name; do
        enter compute ranks "golden/$name-$label" "$logs/golden-$name-$label.log" \
            env $with timeout "${TEST_TIMEOUT:-1800}" "$build/tests/golden/test_$name"
    done
}
ranks_result() { cmocka_result "$@"; }
gpu_here() { [ -e /dev/nvidiactl ] || nvidia-smi -L >/dev/null 2>&1; }
skip_for_gpu() { printf '  skip  %-34s      no GPU here: not run\n' "$@"; } # NAME ...
gpu_result() { node_result "$@"; } # its summary has node's form
# Runs one of compute-sanitizer's tools over an op test, or over one part of it. initcheck does not see all writes of
# cuBLASLt's kernels; the deterministic backend does not use them.
sanitize() { # sanitize TOOL NAME [PART]
    local label=$1/$2${3:+-$3} with=("PARLEY_TEST_ONLY=${3:-}")
    local options=(--error-exitcode 9)
    [ -n "${3:-}" ] || with=()
    [ "$1" = memcheck ] && options+=(--report-api-errors no) # tests exhaust memory on purpose
    [ "$2" = cuda_linear ] && [ "$1" != memcheck ] && with+=(PARLEY_TEST_DETERMINISTIC=1)
    [ "$2" = cuda_draw ] && with+=(PARLEY_TEST_COMPUTE=f32 PARLEY_TEST_DETERMINISTIC=1)
    enter compute cmocka "$label" "$logs/${label/\//-}.log" timeout "${TEST_TIMEOUT:-1800}" env "${with[@]}" \
        "$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)" --tool "$1" "${options[@]}" \
        "$build/tests/ops/test_$2"
}
parts() { # parts NAME: an op test's, by its source
    grep -o 'cmocka_unit_test([a-z0-9_]*)' "tests/ops/test_$1.c" | sed 's/.*(\(.*\))/\1/'
}
check_result() { count "$1" "$2" $(($2 == 0)) $(($2 != 0)) "$3" "$4"; }
fuzz_result() { # NAME STATUS LOG SECONDS
    local status=$2
    grep -q 'seed corpus: files' "$3" || status=1 # an empty corpus tests nothing
    count "$1" "$status" $((status == 0)) $((status != 0)) "$3" "$4"
}
# Runs each target over its kept corpus, then from one seed for a fixed number of inputs, with limits on time and memory:
# two results each. New inputs go to a scratch folder, so that every run starts from the same corpus.
fuzz() {
    local program name runs found
    for program in "$build"/tests/fuzz/fuzz_*; do
        case $program in *.o | *.d) continue ;; esac
        name=${program##*/fuzz_}
        for runs in 0 "${FUZZ_RUNS:-10000}"; do
            found=$scratch/fuzz-$name-$runs && mkdir -p "$found"
            enter compute fuzz "fuzz/$name $([ "$runs" = 0 ] && echo corpus || echo "$runs runs")" "$logs/fuzz-$name-$runs.log" \
                env ASAN_OPTIONS=quarantine_size_mb=16 timeout "${TEST_TIMEOUT:-600}" "$program" \
                $([ -f "tests/fuzz/$name.dict" ] && echo "-dict=tests/fuzz/$name.dict") -seed=1 -runs="$runs" -timeout=20 \
                -rss_limit_mb=1024 -artifact_prefix="$logs/fuzz-$name-" "$found" "tests/fuzz/corpus/$name"
        done
    done
}
for suite in "$@"; do
    case $suite in
    unit | ops) cmocka "$suite" ;;
    golden)
        cmocka golden
        ranks 2 1 models invariants ahead fork sharing tiers 8bit kv_dtype prompts snapshots travel
        ranks 4 1 models
        ranks 2 2 models snapshots travel
        ranks 1 2 models fork ft snapshots
        ;;
    cuda)
        jobs=1 # they share the GPU's memory
        cmocka ops cuda_devices cuda_rows cuda_linear cuda_fp8 cuda_attention cuda_draw cuda_copies cuda_plans
        if gpu_here; then
            cmocka golden models variants invariants sessions_resume sampling tiers overlap fork fork_tiers sharing sessions_tree 8bit kv_dtype snapshots snapshots_damage ft pause prompts \
                beams branches travel tiers_walk admission drafts masks ahead flight
            [ "$(nvidia-smi -L 2>/dev/null | wc -l)" -lt 2 ] || PARLEY_TEST_DEVICE=cuda:0,cuda:1 ranks 2 1 ahead models
            PARLEY_TEST_COMPUTE=bf16 PARLEY_TEST_DETERMINISTIC=1 cmocka golden invariants
            PARLEY_TEST_COMPUTE=bf16 cmocka golden models prompts
            PARLEY_TEST_COMPUTE=f16 cmocka golden models prompts
            enter compute gpu gpu/serve "$logs/gpu-serve.log" env "PARLEY=$PWD/$build/parley" \
                "FAULT=$PWD/$build/tests/gpu/fault.so" "CUDA_FAULT_CODE=$PWD/$build/tests/gpu/trap.fatbin" timeout "${TEST_TIMEOUT:-900}" python3 tests/gpu/serve.py
        else
            skip_for_gpu golden gpu/serve
        fi
        ;;
    sanitize)
        gpu_here || { skip_for_gpu "compute-sanitizer over ops/test_cuda"; continue; }
        export PARLEY_TEST_SCALE=${PARLEY_TEST_SCALE:-0.1} PARLEY_TEST_COMPUTE=${PARLEY_TEST_COMPUTE:-bf16}
        # The longest first. The tools share the GPU, but spend most of their time on the processor.
        for tool in racecheck initcheck memcheck synccheck; do
            for part in $(parts cuda_attention); do sanitize $tool cuda_attention "$part"; done
            for part in $(parts cuda_linear); do sanitize $tool cuda_linear "$part"; done
            if [ $tool = initcheck ]; then sanitize $tool cuda_fp8 test_rounding; else sanitize $tool cuda_fp8; fi
            sanitize $tool cuda_draw
            sanitize $tool cuda_rows
            sanitize $tool cuda_copies
        done
        ;;
    threads) cmocka unit ${THREADED:?make check-tsan names the programs} ;;
    e2e-threads)
        for name in concurrency streams turns crash; do node_tests talk "e2e/$name" "tests/e2e/$name.test.mjs"; done
        ;;
    layers) # checks of the sources: includes, circles of calls, format, language features
        [ -d tests/lint/node_modules ] || (cd tests/lint && npm ci --ignore-scripts --no-audit --no-fund >/dev/null 2>&1)
        enter compute check layers "$logs/layers.log" tests/check_layers.sh
        enter compute check cycles "$logs/cycles.log" node tests/check_cycles.mjs
        enter compute check format "$logs/format.log" node tests/check_format.mjs
        enter compute check javascript "$logs/javascript.log" node tests/lint/check_javascript.mjs
        ;;
    fuzz) fuzz ;;
    clients) # needs Node 20
        [ tests/e2e/clients/node_modules/.package-lock.json -nt tests/e2e/clients/package-lock.json ] ||
            (cd tests/e2e/clients && npm ci --ignore-scripts --no-audit --no-fund >/dev/null 2>&1)
        node_tests talk e2e/clients tests/e2e/clients/clients.test.mjs
        ;;
    e2e)
        for file in tests/e2e/*.test.mjs; do node_tests talk "e2e/$(basename "$file" .test.mjs)" "$file"; done
        ;;
    page)
        # tests/e2e/page/browser_path.mjs looks in the same places.
        [ -n "${CHROMIUM:-}" ] || command -v chromium google-chrome google-chrome-stable >/dev/null ||
            (cd tests/e2e/page/chromium && [ -d node_modules ] || npm ci --ignore-scripts --no-audit --no-fund >/dev/null 2>&1)
        for file in tests/e2e/page/*.test.mjs; do node_tests page "page/$(basename "$file" .test.mjs)" "$file"; done
        ;;
    *) echo "unknown suite: $suite" >&2; exit 2 ;;
    esac
done
finish_all
run_again
if [ "$times" = 1 ]; then
    echo '  processor time in seconds, user + system, longest first'
    sort -rn <(awk '{printf "  %8.1f + %.1f  %s (%.1f s)\n", $1, $2, $4, $3}' "$scratch/times") | head -n 25
    awk '{u += $1; s += $2} END {printf "  %8.1f + %.1f  all\n", u, s}' "$scratch/times"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
