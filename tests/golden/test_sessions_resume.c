// Sessions over the real engine and the demo model: a script of turns with evictions and restarts
// at random points gives the same tokens and the same bits of log-probabilities as the undisturbed
// run.
#include "base/err.h"
#include "base/log.h"
#include "sessions/archive/archive.h"
#include "sessions/sessions.h"
#include "tests/cmocka.h"
#include "tests/unit/asks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N_TURNS 6
#define MODEL "configs/demo-model"

static struct {
    struct engine *engine;
    struct sessions *ss;
    struct clock_fake clock;
    char path[200];
    int n_done, n_evicted, n_recomputed;
    char error[256];
} world;

static void on_answer(void *ctx, uint64_t client, const struct session_answer *a) {
    if (a->kind == ANSWER_ERROR)
        snprintf(world.error, sizeof world.error, "%s: %.200s", a->code, a->message);
}
static void on_ready(void *ctx, uint64_t client, struct session *s) {
    struct session_event e;
    while (session_next_event(s, client, 4096, &e) == 1) {
        world.n_done += e.kind == EVENT_DONE;
        world.n_evicted += e.kind == EVENT_EVICTED;
        if (e.kind == EVENT_DONE) world.n_recomputed += e.turn.numbers.source == CACHE_RECOMPUTED;
    }
}

static void open_world(void) {
    static const struct sessions_callbacks cb = {.on_answer = on_answer, .on_ready = on_ready};
    struct engine_options eo;
    struct err err = {0};
    engine_options_init(&eo);
    eo.model_dir = MODEL;
    eo.n_threads = 2;
    const char *device = getenv("PARLEY_TEST_DEVICE"); // as in tests/golden/runner.h
    eo.device = device ? device : "cpu";
    eo.deterministic = true;
    if (engine_open(&world.engine, &eo, &err) < 0) fail_msg("%s", err.text);
    struct sessions_options so = {.db_path = world.path,
                                  .max_sequence_idle_microseconds = 60000000,
                                  .max_queued_turns = 4,
                                  .max_resident_sessions = 10,
                                  .commit_interval_us = 20000,
                                  .clock = &world.clock.clock};
    if (sessions_open(&world.ss, &so, &cb, &err) < 0) fail_msg("%s", err.text);
    struct instance_options io = {
        .engine = world.engine, .sink_len = 4, .sampling = engine_info(world.engine)->suggested};
    if (sessions_add_instance(world.ss, &io, &err) < 0) fail_msg("%s", err.text);
}
static void close_world(void) {
    sessions_close(world.ss);
    engine_close(world.engine);
}

static void wait_for(int *counter, int value) {
    for (int i = 0; *counter < value && i < 60000; i++) {
        sessions_poll(world.ss);
        if (*counter < value) usleep(500);
    }
    if (*counter < value) fail_msg("no event; last error: %s", world.error);
}

static struct request request(void) {
    return (struct request){.client = 1, .owner = "local", .request_id = ""};
}

static void attach(void) {
    struct request r = request();
    ask_attach(world.ss, &r, "s", -1);
}

static void run_script(bool disturbed) {
    static const char *const said[N_TURNS] = {
        "My name is Zora.",     "Tell me about the sea, please.",
        "And about mountains?", "What did I ask you first?",
        "Say something else.",  "What is my name?"};
    snprintf(world.path, sizeof world.path, "/tmp/parley-resume-%ld-%d.db", (long)getpid(),
             disturbed);
    world.n_done = world.n_evicted = world.n_recomputed = 0;
    open_world();
    struct request r = request();
    // A short memory: later turns have lost sight of the first ones.
    struct ask_open o = {.id = "s", .system = "You are brief.", .memory_len = 48, .sink_len = 4};
    ask_open(world.ss, &r, &o);
    for (int i = 0; i < N_TURNS; i++) {
        char sampling[96];
        snprintf(sampling, sizeof sampling, "{\"seed\":%d,\"max_tokens\":24,\"temperature\":0.9}",
                 100 + i);
        struct turn_input in = {
            .kind = INPUT_CONTENT, .text = said[i], .text_len = strlen(said[i])};
        ask_start(world.ss, &r, "s", TURN_HEAD, &in, sampling, false);
        wait_for(&world.n_done, i + 1);
        if (disturbed && random() % 2) {
            int before = world.n_evicted;
            clock_fake_advance(&world.clock, 61000000);
            wait_for(&world.n_evicted, before + 1);
        } else if (disturbed) {
            close_world();
            open_world();
            attach();
        }
    }
    close_world();
}

static struct stored_session *load(bool disturbed) {
    struct archive *a;
    struct stored_session *s = NULL;
    struct err err = {0};
    char path[220];
    snprintf(world.path, sizeof world.path, "/tmp/parley-resume-%ld-%d.db", (long)getpid(),
             disturbed);
    if (archive_open(&a, world.path, &err) < 0 || archive_load(a, NULL, "s", &s, &err) < 0)
        fail_msg("%s", err.text);
    archive_close(a);
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", world.path, suffixes[i]);
        unlink(path);
    }
    return s;
}

static void disturbed_runs_give_the_same_bits(void **state) {
    log_set_level(LOG_OFF);
    clock_fake_init(&world.clock, 1700000000000000);
    srandom(11);
    run_script(false);
    struct stored_session *calm = load(false);
    assert_int_equal(world.n_recomputed, 0);
    assert_true(calm->rec.n_tokens > 48);
    for (int round = 0; round < 2; round++) {
        run_script(true);
        assert_int_equal(world.n_recomputed, N_TURNS - 1);
        struct stored_session *other = load(true);
        assert_int_equal(other->n_turns, N_TURNS);
        for (int i = 0; i < N_TURNS; i++) {
            const struct token_run *a = &calm->turns[i].tokens, *b = &other->turns[i].tokens;
            assert_int_equal(a->n, b->n);
            assert_memory_equal(a->ids, b->ids, a->n * sizeof *a->ids);
            assert_memory_equal(a->logprobs, b->logprobs, a->n * sizeof *a->logprobs);
            assert_string_equal(a->text, b->text);
        }
        stored_session_free(other);
    }
    stored_session_free(calm);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(disturbed_runs_give_the_same_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
