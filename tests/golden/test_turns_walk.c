// All kinds of turns at once, in steps of every width: plain ones, samples, beams, drafts, grammars, thinking, scores of
// the input, context outputs, idle priority, several owners; submitted, cancelled, yielded, forked, parked and released at
// random moments. Each turn that ends by itself says what the same turn says alone, bit for bit: tokens,
// log-probabilities, texts, branches and outputs.
#include "base/buf.h"
#include "base/log.h"
#include "engine/model/synth.h"
#include "tests/golden/tiers_world.h"
#include "tests/unit/tmp_dir.h"

enum {
    SEQUENCES = 14,
    PLACES = 16,
    OPERATIONS = 1500,
    LOG = 300,
    CHUNK = 16,
    WINDOW = 88,
    BLOCKS = 420,
    ONE_IN = 3, // so many turns are compared
    WIDE = 12   // rows of a step
};
// Small, so that the sanitizers' set can afford the walk; the vocabulary is the demo model's.
static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 64, "
    "\"intermediate_size\": 96, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 16, \"vocab_size\": 4096, "
    "\"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000, "
    "\"tie_word_embeddings\": true, \"bos_token_id\": 0, \"eos_token_id\": 2, "
    "\"hidden_act\": \"silu\", \"dtype\": \"bfloat16\"}";
static struct tmp_dir folder;
static const char *model;

enum kind {
    PLAIN,
    SAMPLES,
    BEAMS,
    DRAFTS,
    GRAMMAR,
    GRAMMAR_SAMPLES,
    GRAMMAR_DRAFTS,
    THINKING,
    SCORES,
    SCORE_ONLY,
    CONTEXT,
    WORDS,
    IDLE,
    KINDS
};
static const char *const kind_names[] = {"plain",   "samples",         "beams",          "drafts",
                                         "grammar", "grammar_samples", "grammar_drafts", "thinking",
                                         "scores",  "score_only",      "context",        "words",
                                         "idle"};
static const struct grammar_text *grammars[3];

static struct player {
    uint64_t turn; // under way, or 0
    enum kind kind;
    uint64_t mix; // all that is random about the turn
    int32_t log[LOG], drawn[LOG];
    int64_t n_log, n_input, n_drawn;
    struct buf said; // all results, see take
    struct buf text; // of the answer
} players[SEQUENCES], alone;
static struct { int64_t done[KINDS], compared, ended[8], wide, beside_beams; } books;

static uint32_t part(uint64_t *mix, uint32_t n) {
    uint32_t x = (uint32_t)(*mix % n);
    *mix /= n;
    return x;
}

// A turn of the player's kind. Drafts come from a text that the answer may resemble.
static struct engine_turn turn_of(const struct engine *e, const struct player *p, uint64_t id) {
    static int32_t expected[24];
    uint64_t mix = p->mix;
    struct engine_turn t =
        turn_for(e, id, p->log, p->n_log, part(&mix, 6) == 0 ? 40 : WINDOW, DRAWN_SINKS);
    struct sampling_params *s = &t.sampling;
    t.n_input = p->n_input;
    t.turn = p->turn;
    s->max_tokens = 1 + (int32_t)part(&mix, 28);
    s->temperature = (float)part(&mix, 3) * 0.6f;
    s->has_seed = true;
    s->seed = mix;
    if (part(&mix, 4) == 0) s->repetition_penalty = 1.3f;
    if (part(&mix, 4) == 0) s->top_p = 0.9f;
    if (part(&mix, 2) == 0) {
        s->ignore_eos = false;
        s->end_id = 20 + (int32_t)part(&mix, 280);
    }
    const int32_t width = 2 + (int32_t)part(&mix, part(&mix, 8) == 0 ? PLACES + 3 : 6);
    const uint32_t which = part(&mix, 3);
    switch (p->kind) {
    case PLAIN:
        s->top_logprobs = (int32_t)which;
        break;
    case SAMPLES:
        s->n = width;
        s->temperature = 1;
        break;
    case BEAMS:
        s->beam_width = width;
        s->beam_search_diversity_rate = which == 0 ? -0.05f : 0;
        s->early_stopping = which == 1;
        break;
    case DRAFTS:
        s->draft_tokens = 1 + (int32_t)which * 4;
        for (int i = 0; i < 24; i++) expected[i] = p->log[(size_t)i % (size_t)p->n_log];
        t.expected = expected;
        t.n_expected = 24;
        break;
    case GRAMMAR:
    case GRAMMAR_SAMPLES:
    case GRAMMAR_DRAFTS:
        s->grammar = grammars[which];
        if (p->kind == GRAMMAR_SAMPLES) s->n = width;
        if (p->kind == GRAMMAR_DRAFTS) s->draft_tokens = 3;
        s->ignore_eos = false;
        s->end_id = -1;
        s->max_tokens += 30;
        break;
    case THINKING:
        s->thinking_budget = (int32_t)which * 4;
        if (which == 1) s->grammar = grammars[0];
        s->ignore_eos = false;
        s->end_id = -1;
        s->max_tokens += 20;
        break;
    case SCORES:
        t.scores_input = true;
        s->top_logprobs = (int32_t)which;
        break;
    case SCORE_ONLY:
        t.scores_input = t.score_only = true;
        break;
    case CONTEXT:
        s->context_logprob = true;
        s->context_embedding = true;
        s->context_pooling = (int32_t)which;
        break;
    case WORDS:
        (void)sampling_words_add_text(&s->stop, "stop", which ? "a" : "e", 1, NULL);
        (void)sampling_words_add_ids(&s->bad_words, "bad_words", (int32_t[]){40}, 1, NULL);
        s->min_tokens = (int32_t)which;
        break;
    case IDLE:
        t.priority = ENGINE_IDLE;
        break;
    case KINDS:
        break;
    }
    return t;
}

static void add(struct buf *b, const void *bytes, size_t n) {
    if (n > 0) assert_int_equal(buf_add(b, bytes, n), 0);
}

static void take_branches(struct buf *b, const struct engine_branches *of) {
    for (int32_t i = 0; of && i < of->n; i++) {
        const struct engine_branch *x = &of->of[i];
        add(b, x->ids, (size_t)x->n * sizeof *x->ids);
        add(b, x->logprobs, (size_t)x->n * sizeof *x->logprobs);
        add(b, &x->score, sizeof x->score);
        add(b, &x->finish, sizeof x->finish);
        add(b, x->text, x->text_len);
    }
}

static void take_scores(struct buf *b, const struct engine *e, const struct engine_event *ev) {
    if (ev->has_context_logprob) add(b, &ev->context_logprob, sizeof ev->context_logprob);
    if (ev->context_embedding)
        add(b, ev->context_embedding, (size_t)e->info.width * sizeof *ev->context_embedding);
    for (int64_t i = 0; ev->scores && i < ev->scores->n; i++)
        add(b, &ev->scores->logprobs[i], sizeof(float));
}

static void take(struct player *p, const struct engine *e, const struct engine_event *ev) {
    bool answer = ev->kind == ENGINE_TOKEN && ev->branch == 0;
    if (ev->kind == ENGINE_TOKEN && ev->id >= 0 && answer) {
        assert_true(p->n_drawn < LOG);
        p->drawn[p->n_drawn++] = ev->id;
        add(&p->said, &ev->id, sizeof ev->id);
        add(&p->said, &ev->logprob, sizeof ev->logprob);
        for (int32_t i = 0; i < ev->n_alternatives; i++)
            add(&p->said, &ev->alternatives[i].logprob, sizeof(float));
    }
    if (answer || (ev->kind == ENGINE_DONE && ev->finish != FINISH_ERROR))
        add(&p->text, ev->text, ev->text_len);
    if (ev->kind != ENGINE_DONE) return;
    add(&p->said, &ev->finish, sizeof ev->finish);
    take_branches(&p->said, ev->branches);
    take_scores(&p->said, e, ev);
}

static void begin_to_listen(struct player *p) {
    buf_reset(&p->said);
    buf_reset(&p->text);
    p->n_drawn = 0;
}

static void compare(struct engine *calm, const struct player *p) {
    struct engine_turn t = turn_of(calm, p, 1);
    struct engine_event ev;
    bool done = false;
    t.priority = ENGINE_INTERACTIVE;
    begin_to_listen(&alone);
    submit(calm, &t);
    while (!done) {
        assert_true(engine_round(calm));
        while (engine_poll(calm, &ev) == 1) {
            take(&alone, calm, &ev);
            done = done || ev.kind == ENGINE_DONE;
        }
    }
    release(calm, 1);
    if (alone.said.len != p->said.len || alone.text.len != p->text.len ||
        memcmp(buf_z(&alone.said), buf_z(&p->said), p->said.len) != 0 ||
        memcmp(buf_z(&alone.text), buf_z(&p->text), p->text.len) != 0)
        fail_msg("a turn with %s differs from the same turn alone: \"%s\" and \"%s\"",
                 kind_names[p->kind], buf_z(&p->text), buf_z(&alone.text));
    books.compared++;
}

static void note(struct engine *e, struct engine *calm, const struct engine_event *ev) {
    struct player *p = &players[ev->sequence - 1];
    if (ev->kind != ENGINE_TOKEN && ev->kind != ENGINE_DONE) return;
    take(p, e, ev);
    if (ev->kind != ENGINE_DONE) return;
    if (ev->finish == FINISH_ERROR) fail_msg("%s: %s", kind_names[p->kind], ev->text);
    bool broken = ev->finish == FINISH_CANCELLED || ev->finish == FINISH_YIELDED;
    books.ended[ev->finish]++;
    books.done[p->kind] += !broken;
    if (!broken && below(ONE_IN) == 0) compare(calm, p);
    memcpy(p->log + p->n_log, p->drawn, (size_t)p->n_drawn * sizeof *p->drawn);
    p->n_log += p->n_drawn;
    p->turn = 0;
}

static void start(struct engine *e, uint64_t id) {
    static uint64_t next_turn = 1;
    struct player *p = &players[id - 1];
    struct err err = {0};
    if (p->turn) return;
    if (p->n_log > LOG - 140) p->n_log = below(LOG - 140); // rewind
    p->n_input = 1 + below(below(3) == 0 ? 40 : 9);
    random_log(e, p->log + p->n_log, p->n_input);
    p->n_log += p->n_input;
    p->kind = (enum kind)below(KINDS);
    p->mix = (uint64_t)below(UINT32_MAX) << 32 | below(UINT32_MAX);
    p->turn = next_turn;
    struct engine_turn t = turn_of(e, p, id);
    t.share_group = id % 3;
    t.owner = id % 4;
    if (engine_turn_submit(e, &t, &err) < 0) { // full, or too long for this cache
        free(t.ids);
        if (err.code != E_BUSY && err.code != E_NOMEM) fail_msg("%s", err.text);
        p->n_log -= p->n_input;
        p->turn = 0;
        return;
    }
    begin_to_listen(p);
    next_turn++;
}

// Also from a session whose turn is under way.
static void fork_one(struct engine *e, uint64_t id) {
    struct player *p = &players[id - 1];
    uint64_t from = 1 + below(SEQUENCES);
    const struct player *o = &players[from - 1];
    if (p->turn || from == id || o->n_log < 2) return;
    int64_t n = 1 + below((uint32_t)o->n_log);
    if (engine_sequence_fork(e, from, id, n) < 0) return; // it has a cache
    memcpy(p->log, o->log, (size_t)n * sizeof *p->log);
    p->n_log = n;
}

static void disturb(struct engine *e, uint64_t id) {
    switch (below(7)) {
    case 0:
        engine_turn_cancel(e, id, players[id - 1].turn);
        break;
    case 1:
        engine_turn_yield(e, id, players[id - 1].turn);
        break;
    case 2:
        engine_sequence_release(e, id);
        break;
    case 3:
        engine_sequence_park(e, id);
        break;
    case 4:
        engine_sequence_warm(e, id);
        break;
    default:
        fork_one(e, id);
    }
}

static void look_at_step(const struct engine *e) {
    const struct scheduler *s = &e->core.sched;
    int32_t n_beams = 0, n_others = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        const struct live_turn *t = (const struct live_turn *)s->running[i];
        if (t->sched.state != SCHED_DECODE) continue;
        if (t->branches && t->branches->beams)
            n_beams += t->sched.n_rows;
        else
            n_others += t->branches ? t->sched.n_rows : 1;
    }
    books.wide += n_beams + n_others >= WIDE;
    books.beside_beams += n_beams > 1 && n_others > 1 && n_beams + n_others >= WIDE;
}

static void make_model(void) {
    struct tmp_dir shape;
    struct err err;
    tmp_dir_open(&shape);
    tmp_dir_open(&folder);
    tmp_text(&shape, "config.json", config);
    model = folder.path;
    const struct synth_options o = {.config_path = tmp_path(&shape, "config.json"),
                                    .out_dir = model,
                                    .tokenizer_from = "configs/demo-model",
                                    .seed = 3};
    if (synth_write(&o, &err) < 0) fail_msg("%s", err.text);
    tmp_dir_close(&shape);
}

static struct engine *open_walk(int64_t blocks, int64_t host) {
    struct err err;
    runner_places = PLACES;
    struct engine *e = tiered(model, CHUNK, blocks, host);
    if (!e->thinking)
        assert_int_equal(thinking_marks_new(&e->thinking, e->tokenizer, "<think>", "</think>",
                                            "\n</think>\n\n", 12, &err),
                         0);
    return e;
}

// Turns meet by when copies end, so how many operations such steps take differs from run to run.
static bool met(void) {
    return books.wide > 50 && books.beside_beams > 20;
}

static void test_all_kinds_at_once(void **state) {
    make_model();
    struct engine *e = open_walk(BLOCKS, 100), *calm = open_walk(BLOCKS, 0);
    struct engine_event ev;
    bool goes_on = true, over = false;
    for (int op = 0; goes_on || !over; op++) {
        assert_true(op < 20 * OPERATIONS);
        goes_on = op < OPERATIONS || (!met() && op < 10 * OPERATIONS);
        if (goes_on && below(2) == 0) start(e, 1 + below(SEQUENCES));
        if (goes_on && below(6) == 0) disturb(e, 1 + below(SEQUENCES));
        look_at_step(e);
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) note(e, calm, &ev);
        over = e->n_active[ENGINE_INTERACTIVE] + e->n_active[ENGINE_IDLE] == 0;
    }
    int64_t least = INT64_MAX, sum = 0;
    for (int k = 0; k < KINDS; k++) {
        if (books.done[k] < least) least = books.done[k];
        sum += books.done[k];
    }
    print_message("%lld turns, of each kind at least %lld; %lld compared, %lld cancelled, %lld "
                  "yielded; %lld wide steps, %lld of them beside beams\n",
                  (long long)sum, (long long)least, (long long)books.compared,
                  (long long)books.ended[FINISH_CANCELLED], (long long)books.ended[FINISH_YIELDED],
                  (long long)books.wide, (long long)books.beside_beams);
    assert_true(least >= 5 && books.compared > 50 && books.ended[FINISH_CANCELLED] > 2);
    assert_true(met());
    assert_int_equal(e->core.sched.n_reserved, 0);
    assert_int_equal(e->core.sched.n_places, 0);
    engine_close(e);
    engine_close(calm);
    tmp_dir_close(&folder);
}

int main(void) {
    static const struct {
        enum grammar_kind kind;
        const char *text;
    } texts[] = {
        {GRAMMAR_REGEX, "[a-f]{3,9}(x|y|z)[0-9]*!"},
        {GRAMMAR_CHOICE, "[\"yes\", \"no\", \"not at all\", \"nothing\"]"},
        {GRAMMAR_JSON_SCHEMA, "{\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
                              "\"boolean\"}}, \"required\": [\"a\"], "
                              "\"additionalProperties\": false}"},
    };
    struct err err;
    log_set_level(LOG_ERROR);
    for (int i = 0; i < 3; i++)
        if (grammar_text_new(&grammars[i], texts[i].kind, texts[i].text, strlen(texts[i].text),
                             &err) < 0)
            return 1;
    for (int i = 0; i < SEQUENCES; i++) {
        buf_init(&players[i].said, 1 << 20);
        buf_init(&players[i].text, 1 << 20);
    }
    buf_init(&alone.said, 1 << 20);
    buf_init(&alone.text, 1 << 20);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_kinds_at_once)};
    int rc = cmocka_run_group_tests_name("turns_walk", tests, NULL, NULL);
    for (int i = 0; i < SEQUENCES; i++) {
        buf_release(&players[i].said);
        buf_release(&players[i].text);
    }
    buf_release(&alone.said);
    buf_release(&alone.text);
    for (int i = 0; i < 3; i++) grammar_text_free(grammars[i]);
    return rc;
}
