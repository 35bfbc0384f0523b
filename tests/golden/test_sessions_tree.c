// Nothing depends on history: after any sequence of starting, rewinding, asking again, editing,
// going on, forking, evictions and restarts, on rings that have wrapped many times, the next tokens
// and the bits of their log-probabilities are those of a fresh session given the same log. Over the
// real engine and the demo model, with caches that are dropped, parked in host memory, or written to
// files.
#include "base/err.h"
#include "base/log.h"
#include "sessions/state/service.h"
#include "tests/cmocka.h"
#include "tests/unit/asks.h"
#include "tests/unit/tmp_dir.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL "configs/demo-model"
#define MEMORY_LEN 32 // two blocks of the ring, and a log of hundreds
#define SINK_LEN 3
#define DRAWN 5 // tokens compared
#define SESSIONS_MAX 6

enum tier { NO_TIER, HOST_TIER, FILES }; // behind the device

static struct {
    enum tier tier;
    struct tmp_dir folder; // of the files
    struct engine *engine;
    struct sessions *ss;
    struct clock_fake clock;
    char path[200];
    int n_done, n_answers;
    int n_by_source[CACHE_SNAPSHOT + 1], n_errors;
    char last_finish[16];
    int32_t ids[64]; // of the deltas since they were last cleared
    float logprobs[64];
    size_t n_ids;
    char ids_of[SESSIONS_MAX][16]; // sessions
    int n_sessions;
} world;

static void on_answer(void *ctx, uint64_t client, const struct session_answer *a) {
    world.n_answers++;
    world.n_errors += a->kind == ANSWER_ERROR;
}
static void on_ready(void *ctx, uint64_t client, struct session *s) {
    struct session_event e;
    while (session_next_event(s, client, 4096, &e) == 1) {
        if (e.request_id[0]) world.n_answers++;
        if (e.kind == EVENT_DELTA)
            for (size_t i = 0; i < e.n_ids && world.n_ids < 64; i++) {
                world.ids[world.n_ids] = e.ids[i];
                world.logprobs[world.n_ids++] = e.logprobs ? e.logprobs[i] : 0;
            }
        if (e.kind != EVENT_DONE) continue;
        world.n_done++;
        world.n_by_source[e.turn.numbers.source]++;
        snprintf(world.last_finish, sizeof world.last_finish, "%s", e.turn.finish_reason);
    }
}

static void open_world(void) {
    static const struct sessions_callbacks cb = {.on_answer = on_answer, .on_ready = on_ready};
    struct engine_options eo;
    struct err err = {0};
    engine_options_init(&eo);
    eo.model_dir = MODEL;
    eo.n_threads = 1;
    eo.block_tokens = 8;
    const char *device = getenv("PARLEY_TEST_DEVICE"); // as in tests/golden/runner.h
    eo.device = device ? device : "cpu";
    eo.deterministic = true;
    eo.host_cache_bytes = world.tier == HOST_TIER ? INT64_C(64) << 20 : 0;
    eo.snapshot_dir = world.tier == FILES ? world.folder.path : NULL;
    eo.snapshot_bytes = INT64_C(1) << 30;
    if (engine_open(&world.engine, &eo, &err) < 0) fail_msg("%s", err.text);
    struct sessions_options so = {.db_path = world.path,
                                  .max_sequence_idle_microseconds = 60000000,
                                  .max_queued_turns = 4,
                                  .max_resident_sessions = 6,
                                  .commit_interval_us = 20000,
                                  .clock = &world.clock.clock};
    if (sessions_open(&world.ss, &so, &cb, &err) < 0) fail_msg("%s", err.text);
    struct instance_options io = {.engine = world.engine,
                                  .sink_len = SINK_LEN,
                                  .sampling = engine_info(world.engine)->suggested};
    if (sessions_add_instance(world.ss, &io, &err) < 0) fail_msg("%s", err.text);
}
static void close_world(void) {
    engine_save_at_stop(world.engine);
    sessions_close(world.ss);
    engine_close(world.engine);
}

// Until everything asked for has been answered and every turn has ended.
static void settle(void) {
    int quiet = 0;
    for (int i = 0; quiet < 3; i++) {
        if (i > 100000) fail_msg("it does not come to rest");
        sessions_poll(world.ss);
        bool rests = sessions_settled(world.ss) && store_n_waiting(world.ss->store) == 0;
        quiet = rests ? quiet + 1 : 0;
        if (quiet < 3) usleep(100);
    }
}

static struct request request(void) {
    static int n;
    struct request r = {.client = 1, .owner = "local"};
    snprintf(r.request_id, sizeof r.request_id, "q%d", ++n);
    return r;
}

static void open_session(const char *id) {
    struct request r = request();
    struct ask_open o = {
        .id = id, .system = "Be brief.", .memory_len = MEMORY_LEN, .sink_len = SINK_LEN};
    ask_open(world.ss, &r, &o);
    settle();
}

static const char *const sampled = "{\"max_tokens\":9}";
static const char *const greedy =
    "{\"temperature\":0,\"max_tokens\":5,\"ignore_eos\":true,\"logprobs\":true}";

static void start(const char *id, int64_t after, const struct turn_input *in, const char *how) {
    struct request r = request();
    ask_start(world.ss, &r, id, after, in, how, false);
    settle();
}

static int pick(int n) {
    return (int)(random() % n);
}

static void say(const char *id, int64_t after) {
    static const char *const said[] = {"Hello there.", "And the sea?", "Say it another way.",
                                       "Why?"};
    const char *text = said[pick(4)];
    struct turn_input in = {.kind = INPUT_CONTENT, .text = text, .text_len = strlen(text)};
    start(id, after, &in, sampled);
}

static struct session *resident(const char *id) {
    struct request r = request();
    ask_get(world.ss, &r, id, true, 0, -1); // reads it from the disk, attaches
    settle();
    return service_find(world.ss, "local", id);
}

static void one_step(const char *id) {
    struct session *s = resident(id);
    int64_t turn = s->n_turns ? pick((int)s->n_turns + 1) - 1 : TURN_NONE;
    struct request r = request();
    struct turn_input go_on = {.kind = INPUT_CONTINUE};
    char copy[16];
    switch (pick(9)) {
    case 0:
    case 1:
        say(id, TURN_HEAD);
        break;
    case 2:
        say(id, turn); // an edit
        break;
    case 3:
        start(id, pick(2) ? turn : TURN_HEAD, &go_on, sampled); // often refused
        break;
    case 4:
        if (s->n_turns) ask_again(world.ss, &r, id, turn < 0 ? TURN_HEAD : turn, NULL);
        break;
    case 5:
        ask_rewind(world.ss, &r, id, turn, pick(2));
        break;
    case 6:
        if (world.n_sessions == SESSIONS_MAX) break;
        snprintf(copy, sizeof copy, "s%d", world.n_sessions);
        ask_fork(world.ss, &r, id, turn, copy, NULL);
        snprintf(world.ids_of[world.n_sessions++], sizeof world.ids_of[0], "%s", copy);
        break;
    case 7:
        clock_fake_advance(&world.clock, 61000000); // all caches go
        break;
    case 8:
        if (pick(3) == 0) {
            close_world();
            open_world();
        }
        break;
    }
    settle();
}

struct drawn {
    int32_t ids[DRAWN];
    float logprobs[DRAWN];
};

static struct drawn draw(const char *id, const int32_t *ids, size_t n) {
    struct turn_input in = {.kind = INPUT_IDS, .ids = ids, .n_ids = n};
    struct drawn d;
    world.n_ids = 0;
    start(id, TURN_HEAD, &in, greedy);
    if (world.n_ids != DRAWN) fail_msg("%s: %zu tokens, %s", id, world.n_ids, world.last_finish);
    memcpy(d.ids, world.ids, sizeof d.ids);
    memcpy(d.logprobs, world.logprobs, sizeof d.logprobs);
    return d;
}

static void compare_with_fresh(const char *id, unsigned seed, int step) {
    struct session *s = resident(id);
    size_t n = s->n_log;
    int32_t *log = malloc((n + 1) * sizeof *log);
    if (n) memcpy(log, s->log, n * sizeof *log);
    log[n] = 10 + pick(100);
    struct drawn here = draw(id, log + n, 1);
    open_session("fresh");
    struct drawn there = draw("fresh", log, n + 1);
    struct request r = request();
    ask_close(world.ss, &r, "fresh", true);
    settle();
    free(log);
    if (memcmp(&here, &there, sizeof here) != 0)
        fail_msg("seed %u, step %d, %s: a log of %zu tokens goes on differently", seed, step, id,
                 n);
}

static void remove_files(void) {
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock", ".tail"};
    char path[220];
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s%s", world.path, suffixes[i]);
        unlink(path);
    }
}

static void nothing_depends_on_history(void **state) {
    size_t longest = 0;
    log_set_level(LOG_OFF);
    world.tier = *(const enum tier *)*state;
    memset(world.n_by_source, 0, sizeof world.n_by_source);
    strcpy(world.folder.path, "/dev/shm/parley-tree-XXXXXX"); // what is synced is seen elsewhere
    if (!mkdtemp(world.folder.path)) tmp_dir_open(&world.folder);
    snprintf(world.path, sizeof world.path, "%s.db", world.folder.path);
    for (unsigned seed = 1; seed <= 4; seed++) {
        clock_fake_init(&world.clock, 1700000000000000);
        srandom(seed);
        remove_files();
        open_world();
        open_session("s0");
        strcpy(world.ids_of[0], "s0");
        world.n_sessions = 1;
        for (int step = 0; step < 40; step++) {
            const char *id = world.ids_of[pick(world.n_sessions)];
            one_step(id);
            if (step % 4 == 3) compare_with_fresh(id, seed, step);
            const struct session *s = service_find(world.ss, "local", id);
            if (s && s->n_log > longest) longest = s->n_log;
        }
        close_world();
    }
    remove_files();
    // The walk was long enough: logs far beyond the memory, caches kept and caches computed again.
    assert_true(longest > 3 * MEMORY_LEN);
    tmp_dir_close(&world.folder);
    const int *n = world.n_by_source;
    print_message("%d turns found their cache on the device, %d in host memory, %d in a file; %d "
                  "computed it\n",
                  n[CACHE_KEPT], n[CACHE_HOST], n[CACHE_SNAPSHOT], n[CACHE_RECOMPUTED]);
    assert_true(n[CACHE_KEPT] > 20 && n[CACHE_RECOMPUTED] > (world.tier == NO_TIER ? 20 : 0));
    assert_true(world.tier != HOST_TIER || n[CACHE_HOST] > 10);
    assert_true(world.tier != FILES || n[CACHE_SNAPSHOT] > 10);
}

int main(void) {
    static const enum tier tiers[] = {NO_TIER, HOST_TIER, FILES};
    const struct CMUnitTest tests[] = {
        {"caches that go are gone", nothing_depends_on_history, NULL, NULL, (void *)&tiers[0]},
        {"caches go to host memory", nothing_depends_on_history, NULL, NULL, (void *)&tiers[1]},
        {"caches go to files", nothing_depends_on_history, NULL, NULL, (void *)&tiers[2]},
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
