// engine.h: refusals, the ends of turns, and their events, on a small fixture model (text needs the demo
// model). The engine's thread: test_engine_thread.c.
#include "base/utf8.h"
#include "tests/unit/engine_fixture.h"

static const char *const demo = "configs/demo-model";
static struct clock_fake fake;
static struct outcome out;

// *state, if any: another model's folder.
static int set_up(void **state) {
    struct engine_options o;
    struct err err = {0};
    metrics = metrics_new();
    clock_fake_init(&fake, 0);
    clock_fake_advance(&fake, 1000000);
    options(&o);
    o.metrics = metrics;
    if (*state) o.model_dir = *state;
    if (engine_open_manual(&e, &o, &fake.clock, &err) < 0) fail_msg("%s", err.text);
    e->core.check = true;
    return 0;
}

static bool next_done(struct engine_event *ev) {
    while (engine_poll(e, ev) == 1) {
        if (ev->kind == ENGINE_DONE) return true;
    }
    return false;
}

static int refused(struct engine_turn t) {
    struct err err = {0};
    int rc = engine_turn_submit(e, &t, &err);
    if (rc == 0) return 0;
    assert_int_equal(err.code, rc);
    assert_true(strlen(err.text) > 10);
    free(t.ids);
    return rc;
}

// --- refusals ------------------------------------------------------------------------------------

static void test_bad_turns_are_refused(void **state) {
    struct engine_turn t;
    t = prompt(0, 4);
    assert_int_equal(refused(t), E_INVAL);
    t = prompt(1, 4), t.n_ids = 0;
    assert_int_equal(refused(t), E_INVAL);
    t = prompt(1, 4), t.n_input = 5;
    assert_int_equal(refused(t), E_INVAL);
    t = prompt(1, 4), t.ids[2] = e->info.n_vocab;
    assert_int_equal(refused(t), E_INVAL);
    t = prompt(1, 4), t.ids[0] = -1;
    assert_int_equal(refused(t), E_INVAL);
    t = prompt(1, 4), t.memory_len = 0;
    assert_int_equal(refused(t), E_INVAL);
    t = prompt(1, 4), t.memory_len = e->info.max_memory_len + 1;
    assert_int_equal(refused(t), E_INVAL);
    t = prompt(1, 4), t.sink_len = t.memory_len;
    assert_int_equal(refused(t), E_INVAL);
    t = prompt(1, 4), t.session_len = 601;
    assert_int_equal(refused(t), E_INVAL);
    t = prompt(1, 4), t.sampling.temperature = NAN;
    assert_int_equal(refused(t), E_INVAL);
    t = prompt(1, 4), t.session_len = 4;
    assert_int_equal(refused(t), E_FULL);
    t = prompt(1, 4), t.session_len = 3, t.score_only = true;
    assert_int_equal(refused(t), E_FULL);
    assert_null(e->owned);
}

static void test_busy_and_full(void **state) {
    struct engine_turn t;
    for (uint64_t s = 1; s <= 4; s++) {
        t = prompt(s, 4);
        submit(e, &t);
    }
    assert_int_equal(refused(prompt(2, 4)), E_BUSY); // its turn is under way
    assert_int_equal(refused(prompt(9, 4)), E_BUSY); // the queue is full
    engine_stop(e);
    assert_int_equal(refused(prompt(9, 4)), E_CLOSED);
}

static int submit_as(uint64_t sequence, uint64_t owner, enum engine_priority priority) {
    struct engine_turn t = prompt(sequence, 4);
    t.owner = owner;
    t.priority = priority;
    return refused(t);
}

// One owner may fill the queue. Another owner's turn is still accepted, and only the first owner is
// refused with a time to retry; idle turns have a queue of their own.
static void test_a_full_queue_is_full_for_the_greedy_owner(void **state) {
    struct engine_event ev;
    const enum engine_priority turn = ENGINE_INTERACTIVE, idle = ENGINE_IDLE;
    for (uint64_t s = 1; s <= 4; s++) assert_int_equal(submit_as(s, 1, turn), 0);
    assert_int_equal(submit_as(5, 1, turn), E_BUSY);
    assert_int_equal(submit_as(5, 2, turn), 0);
    assert_int_equal(submit_as(6, 2, turn), E_BUSY); // it has its share
    assert_int_equal(submit_as(6, 3, turn), 0);
    assert_int_equal(submit_as(7, 4, turn), 0);
    assert_int_equal(submit_as(8, 5, turn), 0);
    assert_int_equal(submit_as(9, 6, turn), E_BUSY); // twice the places: memory's bound
    assert_int_equal(submit_as(11, 1, idle), 0);
    assert_int_equal(submit_as(12, 1, idle), 0);
    assert_int_equal(submit_as(13, 1, idle), E_BUSY);
    assert_int_equal(submit_as(13, 2, idle), 0);
    clock_fake_advance(&fake, 700000);
    assert_in_range(engine_retry_us(e, 1, turn), 700000, 710000); // as long as it has been full
    assert_in_range(engine_retry_us(e, 9, turn), TURNOVER_UNKNOWN_US, TURNOVER_UNKNOWN_US);
    for (uint64_t s = 1; s <= 13; s++) engine_turn_cancel(e, s, 1);
    int n = 0;
    for (engine_round(e); next_done(&ev); n++) continue;
    assert_int_equal(n, 11);
    for (uint64_t s = 1; s <= 4; s++) assert_int_equal(submit_as(s, 2, turn), 0);
}

static void test_shape_that_never_fits(void **state) {
    struct engine_options o;
    struct err err = {0};
    int64_t block_bytes = e->info.block_bytes;
    engine_close(e);
    options(&o);
    o.kv_cache_bytes = 20 * block_bytes; // of 8 tokens: less than a session
    assert_int_equal(engine_open_manual(&e, &o, &fake.clock, &err), 0);
    assert_int_equal(e->info.n_blocks, 20);
    assert_int_equal(refused(prompt(1, 300)), 0); // memory_len 128 and a chunk fit
    struct engine_turn t = prompt(2, 300);
    t.memory_len = e->info.max_memory_len + 1;
    assert_int_equal(refused(t), E_INVAL);
    t = prompt(2, 300);
    t.memory_len = e->info.max_memory_len;
    assert_int_equal(refused(t), 0);
}

static void test_open_says_what_is_wrong(void **state) {
    struct engine_options o;
    struct engine *none;
    struct err err = {0};
    options(&o), o.model_dir = "/nonexistent";
    assert_true(engine_open(&none, &o, &err) < 0);
    assert_non_null(strstr(err.text, "/nonexistent"));
    options(&o), o.device = "cuda:1023"; // a GPU that no machine has
    int rc = engine_open(&none, &o, &err);
    assert_true(rc == E_UNSUPPORTED || rc == E_NOTFOUND); // built without CUDA, or with it
    assert_non_null(strstr(err.text, "1023"));
    static const char *const words[] = {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:0x", ""};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        options(&o), o.device = words[i];
        assert_int_equal(engine_open(&none, &o, &err), E_INVAL);
        assert_non_null(strstr(err.text, "device"));
    }
    options(&o), o.compute_dtype = "int3";
    assert_int_equal(engine_open(&none, &o, &err), E_INVAL);
    assert_non_null(strstr(err.text, "compute_dtype"));
    options(&o), o.compute_dtype = "f16"; // a GPU's
    assert_int_equal(engine_open(&none, &o, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "f32 or bf16"));
    options(&o), o.compute_dtype = "bf16", o.isa = "portable";
    assert_int_equal(engine_open(&none, &o, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "AVX512-BF16"));
    options(&o), o.compute_dtype = "auto", o.isa = "portable"; // which cannot, so F32
    assert_int_equal(engine_open(&none, &o, &err), 0);
    assert_null(strstr(engine_info(none)->backend, "bf16"));
    engine_close(none);
    none = NULL;
    options(&o), o.gpu_memory_fraction = 1.5;
    assert_int_equal(engine_open(&none, &o, &err), E_INVAL);
    options(&o), o.block_tokens = 24;
    assert_int_equal(engine_open(&none, &o, &err), E_INVAL);
    options(&o), o.prefill_chunk_tokens = -1;
    assert_int_equal(engine_open(&none, &o, &err), E_INVAL);
    options(&o), o.kv_cache_bytes = 4096;
    assert_int_equal(engine_open(&none, &o, &err), E_NOMEM);
    assert_non_null(strstr(err.text, "kv_cache_bytes"));
    assert_null(none);
}

// --- a device that fails

static struct backend_ops failing_ops;
static int failing_linear(struct backend *be, enum linear_mode mode, void *y, const void *x,
                          int32_t n, const struct weight *w, const float *bias) {
    return E_DEVICE;
}

// Every turn, running or waiting, ends with an error that says so, and no new turn is accepted.
static void test_a_lost_device_ends_everything(void **state) {
    struct engine_event ev;
    char why[ENGINE_WHY_MAX];
    struct engine_load load;
    struct err err = {0};
    int n_errors = 0;
    failing_ops = *e->backend->ops;
    failing_ops.linear = failing_linear;
    for (uint64_t s = 1; s <= 4; s++) { // two run, two wait
        struct engine_turn t = prompt(s, 5);
        assert_int_equal(engine_turn_submit(e, &t, &err), 0);
    }
    e->backend->ops = &failing_ops;
    assert_false(engine_round(e));
    while (engine_poll(e, &ev) == 1) {
        if (ev.kind != ENGINE_DONE) continue;
        assert_int_equal(ev.finish, FINISH_ERROR);
        assert_int_equal(ev.error_code, E_DEVICE);
        n_errors++;
    }
    assert_int_equal(n_errors, 4);
    engine_load(e, &load);
    assert_true(load.device_lost);
    engine_why_lost(e, why, sizeof why);
    assert_string_equal(why, "the device cpu failed");
    struct engine_turn t = prompt(9, 5);
    assert_int_equal(engine_turn_submit(e, &t, &err), E_DEVICE);
    free(t.ids);
}

// --- how turns end -------------------------------------------------------------------------------

static void test_cancel_within_one_step(void **state) {
    struct engine_event ev;
    for (int rounds = 0; rounds < 6;
         rounds++) { // 0: queued; 1, 2: prefilling (40 tokens, 16 a step); then decoding
        struct engine_turn t = prompt(1, 40);
        t.turn = 50 + (uint64_t)rounds;
        submit(e, &t);
        for (int i = 0; i < rounds; i++) assert_true(engine_round(e));
        assert_false(next_done(&ev));
        engine_turn_cancel(e, 1, 49 + (uint64_t)rounds); // another turn's number: ignored
        engine_turn_cancel(e, 1, t.turn);
        assert_true(engine_round(e));
        assert_true(next_done(&ev));
        assert_int_equal(ev.finish, FINISH_CANCELLED);
        assert_int_equal(ev.turn, t.turn);
        release(e, 1);
    }
    assert_int_equal(e->core.caches.pool.n_free, e->info.n_blocks);
}

static void test_cancelled_turn_keeps_what_it_computed(void **state) {
    struct engine_event ev;
    struct engine_turn t = prompt(1, 100);
    submit(e, &t);
    for (int i = 0; i < 3; i++) engine_round(e);
    engine_turn_cancel(e, 1, 1);
    engine_round(e);
    assert_true(next_done(&ev));
    t = prompt(1, 100);
    t.sampling.max_tokens = 1;
    run_turn(e, &t, &out);
    assert_int_equal(out.source, CACHE_KEPT);
    assert_int_equal(out.n_cached, 48);
    assert_int_equal(out.n_prefilled, 52);
}

static void test_deadlines(void **state) {
    struct engine_event ev;
    struct engine_turn t[3];
    for (uint64_t s = 0; s < 3; s++) { // two run, one waits
        t[s] = prompt(s + 1, 8);
        t[s].sampling.deadline_us = s == 1 ? 0 : 500;
        submit(e, &t[s]);
    }
    for (int i = 0; i < 5; i++) engine_round(e);
    assert_false(next_done(&ev));
    clock_fake_advance(&fake, 501);
    engine_round(e);
    int n = 0;
    while (next_done(&ev)) {
        assert_int_equal(ev.finish, FINISH_DEADLINE);
        assert_int_not_equal(ev.sequence, 2);
        assert_int_equal(ev.n_generated > 0, ev.sequence == 1);
        n++;
    }
    assert_int_equal(n, 2);
}

// A full queue answers with a time to retry: by then as many turns have ended as were promised
// before.
static void test_when_to_come_again(void **state) {
    struct engine_event ev;
    int64_t ended = 0, told[3];
    uint64_t next = 1;
    for (int round = 0; round < 600; round++) {
        struct engine_turn t = prompt(next, 4);
        struct err err = {0};
        t.sampling.max_tokens = 5 + (int32_t)(next % 7);
        if (engine_turn_submit(e, &t, &err) == 0)
            next++;
        else
            free(t.ids);
        engine_round(e);
        clock_fake_advance(&fake, 10000);
        while (next_done(&ev)) ended++;
    }
    assert_true(ended > 50);
    for (int i = 0; i < 3; i++) told[i] = engine_retry_us(e, 0, ENGINE_INTERACTIVE);
    assert_in_range(told[0], 30000, 100000); // two at a time, each of 80 ms
    assert_true(told[1] == 2 * told[0] && told[2] == 3 * told[0]);
    ended = 0;
    for (int64_t us = 0; us < told[2]; us += 10000) {
        engine_round(e);
        clock_fake_advance(&fake, 10000);
        while (next_done(&ev)) ended++;
    }
    assert_in_range(ended, 2, 5);
}

static void test_length_by_max_tokens_and_by_session(void **state) {
    struct engine_turn t = prompt(1, 10);
    t.sampling.max_tokens = 7;
    run_turn(e, &t, &out);
    assert_int_equal(out.finish, FINISH_LENGTH);
    assert_int_equal(out.n, 7);
    t = prompt(2, 10);
    t.session_len = 15;
    run_turn(e, &t, &out);
    assert_int_equal(out.finish, FINISH_LENGTH);
    assert_int_equal(out.n, 5);
}

static void test_eos_is_in_the_log_and_ends_the_turn(void **state) {
    struct engine_turn t = prompt(1, 10);
    t.sampling.max_tokens = 6;
    run_turn(e, &t, &out);
    int32_t third = out.ids[2];
    assert_true(third != out.ids[0] && third != out.ids[1]);
    e->eos_ids[0] = third;
    e->core.n_eos = 1;
    t = prompt(2, 10);
    t.sampling.max_tokens = 6;
    t.sampling.ignore_eos = false;
    run_turn(e, &t, &out);
    assert_int_equal(out.finish, FINISH_EOS);
    assert_int_equal(out.n, 3);
    assert_int_equal(out.ids[2], third);
    // The next turn starts with the token that was drawn last and has not been through the model.
    int32_t log[14];
    struct engine_turn first = prompt(2, 10);
    memcpy(log, first.ids, 10 * sizeof *log);
    free(first.ids);
    memcpy(log + 10, out.ids, 3 * sizeof *log);
    log[13] = 42;
    t = turn_for(e, 2, log, 14, 128, 4);
    t.n_input = 1;
    t.sampling.max_tokens = 1;
    run_turn(e, &t, &out);
    assert_int_equal(out.n_cached, 12);
    assert_int_equal(out.n_prefilled, 2);
}

static struct engine_turn story(uint64_t sequence) {
    struct token_list ids;
    struct err err;
    token_list_init(&ids);
    assert_int_equal(engine_tokenize(e, "Once upon a time", 16, true, &ids, &err), 0);
    struct engine_turn t = turn_for(e, sequence, ids.ids, (int64_t)ids.len, 128, 4);
    token_list_release(&ids);
    t.sampling.max_tokens = 40;
    return t;
}

static void test_text_is_the_tokens_text(void **state) {
    struct engine_turn t = story(1);
    run_turn(e, &t, &out);
    struct buf want;
    struct err err;
    buf_init(&want, 1 << 20);
    assert_int_equal(engine_detokenize(e, out.ids, (size_t)out.n, true, &want, &err), 0);
    assert_string_equal(out.text, buf_z(&want));
    assert_true(want.len > 20);
    buf_release(&want);
}

static void test_stop_string_across_tokens(void **state) {
    struct engine_turn t = story(1);
    static struct outcome whole;
    run_turn(e, &t, &whole);
    // From the middle of a token to the middle of one two tokens on.
    size_t from = whole.text_len / 2, len = 9;
    while (!utf8_valid(whole.text + from, len)) from++;
    char stop[16] = {0};
    memcpy(stop, whole.text + from, len);
    size_t first = (size_t)(strstr(whole.text, stop) - whole.text);
    t = story(2);
    sampling_words_add_text(&t.sampling.stop, "stop", "never to be seen", 16, NULL);
    sampling_words_add_text(&t.sampling.stop, "stop", stop, strlen(stop), NULL);
    run_turn(e, &t, &out);
    assert_int_equal(out.finish, FINISH_STOP);
    assert_int_equal(out.text_len, first);
    assert_memory_equal(out.text, whole.text, first);
    assert_true(out.n < whole.n);
    // They stay in the log
    assert_memory_equal(out.ids, whole.ids, (size_t)out.n * sizeof *out.ids);
}

// Token sequences stop the turn where they are complete, and stay in the text.
static void test_stop_and_bad_words(void **state) {
    struct engine_turn t = story(1);
    static struct outcome whole;
    run_turn(e, &t, &whole);
    assert_true(whole.n > 8);
    t = story(2);
    sampling_words_add_ids(&t.sampling.stop, "stop", whole.ids + 3, 2, NULL);
    sampling_words_add_text(&t.sampling.stop, "stop", "never to be seen", 16, NULL);
    run_turn(e, &t, &out);
    assert_int_equal(out.finish, FINISH_STOP);
    int64_t want = 2;
    while (memcmp(whole.ids + want - 2, whole.ids + 3, 2 * sizeof *whole.ids) != 0) want++;
    assert_int_equal(out.n, want);
    assert_memory_equal(out.ids, whole.ids, (size_t)want * sizeof *out.ids);
    struct buf text;
    buf_init(&text, 1 << 20);
    assert_int_equal(engine_detokenize(e, out.ids, (size_t)out.n, true, &text, NULL), 0);
    assert_string_equal(out.text, buf_z(&text)); // also what was held back for the stop string
    buf_release(&text);

    // A banned word never appears, with or without a space before it.
    t = story(4);
    sampling_words_add_text(&t.sampling.bad_words, "bad_words", "the", 3, NULL);
    run_turn(e, &t, &out);
    struct token_list ids;
    token_list_init(&ids);
    assert_int_equal(engine_tokenize_after(e, whole.ids[0], " the", 4, &ids, NULL), 0);
    assert_int_equal(ids.len, 1);
    for (int64_t i = 0; i < out.n; i++) assert_int_not_equal(out.ids[i], ids.ids[0]);
    token_list_release(&ids);
}

static int broken_attention(struct backend *be, void *o, const void *qkv, const struct kv_store *kv,
                            const struct batch *b, const struct attention_args *args) {
    return E_INVAL;
}

static void test_failed_step_ends_its_turns_and_nobody_elses(void **state) {
    struct engine_turn t = prompt(1, 30);
    t.sampling.max_tokens = 3;
    run_turn(e, &t, &out); // idle with a cache
    int32_t held = out.blocks;
    struct backend_ops ops = *e->backend->ops;
    const struct backend_ops *working = e->backend->ops;
    ops.attention = broken_attention;
    e->backend->ops = &ops;
    t = prompt(2, 30);
    run_turn(e, &t, &out);
    assert_int_equal(out.finish, FINISH_ERROR);
    assert_int_equal(out.error_code, E_INVAL);
    assert_true(out.text_len > 10);
    assert_int_equal(out.blocks, 0);
    assert_int_equal(e->info.n_blocks - e->core.caches.pool.n_free, held);
    e->backend->ops = working;
    t = prompt(2, 30);
    t.sampling.max_tokens = 2;
    run_turn(e, &t, &out); // the engine and the sequence go on
    assert_int_equal(out.finish, FINISH_LENGTH);
    t = prompt(1, 30);
    t.sampling.max_tokens = 1;
    run_turn(e, &t, &out);
    assert_int_equal(out.source, CACHE_KEPT);
}

// --- what is said --------------------------------------------------------------------------------

static void test_logprobs_and_alternatives(void **state) {
    struct engine_event ev;
    struct rows rows = rows_new(e->info.n_vocab);
    struct engine_turn t = prompt(1, 10);
    t.sampling.temperature = 1.5f;
    t.sampling.seed = 5;
    t.sampling.has_seed = true;
    t.sampling.max_tokens = 5;
    t.sampling.top_logprobs = 3;
    t.on_logits = rows_keep;
    t.on_logits_ctx = &rows;
    submit(e, &t);
    int64_t position = 10;
    while (position < 15) {
        engine_round(e);
        while (engine_poll(e, &ev) == 1) {
            if (ev.kind != ENGINE_TOKEN || ev.id < 0) continue;
            const float *l = rows.data + (position++ - 1) * rows.vocab;
            double top = l[0], sum = 0;
            for (int32_t i = 0; i < rows.vocab; i++) top = fmax(top, l[i]);
            for (int32_t i = 0; i < rows.vocab; i++) sum += exp(l[i] - top);
            assert_true(fabs(ev.logprob - (l[ev.id] - top - log(sum))) < 1e-4);
            assert_int_equal(ev.n_alternatives, 3);
            assert_true(fabs(ev.alternatives[0].logprob + log(sum)) < 1e-4);
            assert_true(ev.alternatives[0].logprob >= ev.alternatives[1].logprob);
        }
    }
    free(rows.data);
}

static void test_progress_of_a_long_prompt(void **state) {
    struct engine_event ev;
    struct engine_turn t = prompt(1, 40);
    t.sampling.max_tokens = 1;
    int64_t done[8];
    int n = 0;
    submit(e, &t);
    for (int i = 0; i < 4; i++) {
        engine_round(e);
        while (engine_poll(e, &ev) == 1) {
            if (ev.kind == ENGINE_STARTED) assert_int_equal(ev.n_total, 40);
            if (ev.kind != ENGINE_PROGRESS) continue;
            assert_int_equal(ev.n_total, 40);
            done[n++] = ev.n_done;
        }
    }
    assert_int_equal(n, 2);
    assert_int_equal(done[0], 16);
    assert_int_equal(done[1], 32);
}

static void test_seed_is_drawn_and_told(void **state) {
    struct engine_turn t = prompt(1, 4);
    t.sampling.temperature = 1;
    submit(e, &t);
    assert_true(t.sampling.has_seed);
    assert_null(t.ids);
}

static void test_times_and_counters(void **state) {
    struct engine_turn t = prompt(1, 20);
    t.sampling.max_tokens = 4;
    run_turn(e, &t, &out);
    struct buf page;
    buf_init(&page, 1 << 20);
    assert_int_equal(metrics_write(metrics, &page), 0);
    const char *lines[] = {"parley_engine_prompt_tokens_total 20\n",
                           "parley_engine_generated_tokens_total 4\n",
                           "parley_engine_requests_running 0\n",
                           "parley_engine_requests_finished_total{reason=\"length\"} 1\n",
                           "parley_engine_time_to_first_token_seconds_count 1\n",
                           "parley_engine_inter_token_latency_seconds_count 3\n",
                           "parley_engine_steps_total 5\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (!strstr(buf_z(&page), lines[i])) fail_msg("no '%s' in:\n%s", lines[i], buf_z(&page));
    }
    buf_release(&page);
}

// Each of two engines in one process has its own rows, those of one name together.
static void test_two_engines_share_metrics(void **state) {
    struct engine_options o;
    struct engine *other;
    struct err err = {0};
    struct buf page;
    options(&o);
    o.metrics = metrics;
    o.instance = "two";
    if (engine_open_manual(&other, &o, &fake.clock, &err) < 0) fail_msg("%s", err.text);
    struct engine_turn t = prompt(1, 20);
    t.sampling.max_tokens = 4;
    run_turn(e, &t, &out);
    buf_init(&page, 1 << 20);
    assert_int_equal(metrics_write(metrics, &page), 0);
    assert_non_null(strstr(buf_z(&page), "parley_engine_prompt_tokens_total 20\n"
                                         "parley_engine_prompt_tokens_total{engine=\"two\"} 0\n"));
    assert_non_null(
        strstr(buf_z(&page),
               "parley_engine_requests_finished_total{engine=\"two\",reason=\"length\"} 0\n"));
    buf_release(&page);
    engine_close(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_bad_turns_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_busy_and_full, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_full_queue_is_full_for_the_greedy_owner, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_when_to_come_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_shape_that_never_fits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_lost_device_ends_everything, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_open_says_what_is_wrong, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cancel_within_one_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_cancelled_turn_keeps_what_it_computed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_deadlines, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_length_by_max_tokens_and_by_session, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_eos_is_in_the_log_and_ends_the_turn, set_up,
                                        tear_down),
        {"test_text_is_the_tokens_text", test_text_is_the_tokens_text, set_up, tear_down,
         (void *)demo},
        {"test_stop_and_bad_words", test_stop_and_bad_words, set_up, tear_down, (void *)demo},
        {"test_stop_string_across_tokens", test_stop_string_across_tokens, set_up, tear_down,
         (void *)demo},
        cmocka_unit_test_setup_teardown(test_failed_step_ends_its_turns_and_nobody_elses, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_logprobs_and_alternatives, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_progress_of_a_long_prompt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_seed_is_drawn_and_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_times_and_counters, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_two_engines_share_metrics, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
