// Loading: every tensor is stored where forward reads it, whole or by rank; errors name the fault;
// every failure frees everything.
#include "base/log.h"
#include "tests/unit/tiny_model.h"
#include <fcntl.h>
#include <math.h>

static int setup(void **state) {
    tmp_dir_open(&dir);
    log_set_level(LOG_OFF);
    return 0;
}
static int teardown(void **state) {
    tmp_dir_close(&dir);
    return 0;
}

// --- where things are ---

static struct checkpoint *source; // of the folder under test

static float stored(const char *name, int64_t i) {
    const struct tensor *t = checkpoint_find(source, name);
    if (!t) fail_msg("no %s", name);
    const struct tensor_view v = {.data = t->data, .dtype = t->dtype, .row_stride = 1};
    return fake_element(&v, i, 0);
}

// What the families call their tensors, once more and by hand.
enum layout { SEPARATE, STACKED, BY_HEAD };
static const struct names {
    const char *family, *layers, *embed, *head, *final_norm, *n1, *n2, *q, *k, *v, *o, *gate, *up,
        *down;
    enum layout layout;
    bool conv1d;
} all_names[] = {
    {"llama", "model.layers", "model.embed_tokens", "lm_head", "model.norm", "input_layernorm",
     "post_attention_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
     "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", SEPARATE, false},
    {"gpt2", "transformer.h", "transformer.wte", "lm_head", "transformer.ln_f", "ln_1", "ln_2",
     "attn.c_attn", "attn.c_attn", "attn.c_attn", "attn.c_proj", NULL, "mlp.c_fc", "mlp.c_proj",
     STACKED, true},
    {"gptj", "transformer.h", "transformer.wte", "lm_head", "transformer.ln_f", "ln_1", NULL,
     "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj", NULL, "mlp.fc_in", "mlp.fc_out",
     SEPARATE, false},
    {"gpt_neox", "gpt_neox.layers", "gpt_neox.embed_in", "embed_out", "gpt_neox.final_layer_norm",
     "input_layernorm", "post_attention_layernorm", "attention.query_key_value",
     "attention.query_key_value", "attention.query_key_value", "attention.dense", NULL,
     "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", BY_HEAD, false},
    {"bloom", "transformer.h", "transformer.word_embeddings", "lm_head", "transformer.ln_f",
     "input_layernorm", "post_attention_layernorm", "self_attention.query_key_value",
     "self_attention.query_key_value", "self_attention.query_key_value", "self_attention.dense",
     NULL, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", BY_HEAD, false},
    {"opt", "model.decoder.layers", "model.decoder.embed_tokens", "lm_head",
     "model.decoder.final_layer_norm", "self_attn_layer_norm", "final_layer_norm",
     "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj", NULL, "fc1",
     "fc2", SEPARATE, false},
    {"xglm", "model.layers", "model.embed_tokens", "lm_head", "model.layer_norm",
     "self_attn_layer_norm", "final_layer_norm", "self_attn.q_proj", "self_attn.k_proj",
     "self_attn.v_proj", "self_attn.out_proj", NULL, "fc1", "fc2", SEPARATE, false},
};

static const struct names *names_of(const struct model *m) {
    for (size_t i = 1; i < sizeof all_names / sizeof *all_names; i++)
        if (strcmp(all_names[i].family, m->config.family) == 0) return &all_names[i];
    return &all_names[0];
}

struct slice { // of a stored matrix of rows x cols: rows from `from`, columns from `col_from`
    const char *stem;
    int64_t rows, cols, from, col_from;
    bool conv1d;      // stored the other way round
    int64_t head_dim; // not 0: every head's q, k, v in turn; `from` counts rows of `which`
    int which;
};

static const char *full_name(int32_t layer, const struct names *t, const char *stem,
                             const char *end) {
    static char name[200];
    if (layer < 0)
        snprintf(name, sizeof name, "%s.%s", stem, end);
    else
        snprintf(name, sizeof name, "%s.%d.%s.%s", t->layers, layer, stem, end);
    return name;
}

static int64_t slice_row(const struct slice *s, int64_t r) {
    int64_t d = s->head_dim;
    return d ? (s->from + r) / d * 3 * d + s->which * d + (s->from + r) % d : s->from + r;
}

// Rows [first, first + n) of w are those of the slice.
static void same_rows(const struct names *t, int32_t layer, const struct weight *w, int32_t first,
                      int32_t n, const struct slice *s) {
    const char *name = full_name(layer, t, s->stem, "weight");
    assert_true(first + n <= w->rows);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < w->cols; c++) {
            float got = ((const float *)w->data)[(first + r) * w->cols + c];
            int64_t row = slice_row(s, r), col = s->col_from + c;
            if (got != stored(name, s->conv1d ? col * s->rows + row : row * s->cols + col))
                fail_msg("%s: row %d, column %d", name, (int)r, (int)c);
        }
}

static void same_vector(const float *v, int64_t n, const char *name, int64_t from) {
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        if (v[i] != stored(name, from + i)) fail_msg("%s: element %d", name, (int)i);
}

static void same_norm(const struct norm_weights *w, const struct model_config *c,
                      const struct names *t, int32_t layer, const char *stem) {
    same_vector(w->weight, c->width, full_name(layer, t, stem, "weight"), 0);
    assert_int_equal(w->bias != NULL, c->norm_bias);
    if (w->bias) same_vector(w->bias, c->width, full_name(layer, t, stem, "bias"), 0);
}

static void check_qkv(const struct model *m, const struct layer_weights *w, int32_t layer) {
    const struct model_config *c = &m->config;
    const struct names *t = names_of(m);
    int32_t d = c->kinds[0].attention.head_dim, n_q = m->of_kind[0].n_heads * d,
            n_kv = m->of_kind[0].n_kv_heads * d, first = 0;
    int32_t q = c->kinds[0].attention.n_heads * d, kv = c->kinds[0].attention.n_kv_heads * d;
    const char *stems[] = {t->q, t->k, t->v};
    assert_int_equal(w->qkv.rows, n_q + 2 * n_kv);
    assert_int_equal(w->qkv_bias != NULL, c->kinds[0].attention.qkv_bias);
    for (int which = 0; which < 3; which++) {
        int32_t n = which == 0 ? n_q : n_kv;
        int32_t from = which == 0
                           ? split_heads(&m->split, c->kinds[0].attention.n_heads).first * d
                           : split_kv_heads(&m->split, c->kinds[0].attention.n_kv_heads).first * d;
        struct slice s = {stems[which], which == 0 ? q : kv, c->width, from, 0, t->conv1d, 0,
                          which};
        if (t->layout == STACKED) s.rows = 3 * q, s.from += which * q;
        if (t->layout == BY_HEAD) s.head_dim = d;
        same_rows(t, layer, &w->qkv, first, n, &s);
        for (int32_t i = 0; c->kinds[0].attention.qkv_bias && i < n; i++)
            assert_true(w->qkv_bias[first + i] ==
                        stored(full_name(layer, t, s.stem, "bias"), slice_row(&s, i)));
        first += n;
    }
}

static void check_layer(const struct model *m, const struct layer_weights *w, int32_t layer) {
    const struct model_config *c = &m->config;
    const struct names *t = names_of(m);
    int32_t d = c->kinds[0].attention.head_dim, f = m->of_kind[0].ffn_width,
            F = c->kinds[0].feed.width, width = c->width;
    int32_t q0 = split_heads(&m->split, c->kinds[0].attention.n_heads).first * d,
            q = c->kinds[0].attention.n_heads * d;
    int32_t f0 = split_even(&m->split, F).first, ups = c->kinds[0].feed.gated ? 2 : 1;
    bool first_rank = m->split.tp_rank == 0;
    check_qkv(m, w, layer);
    assert_int_equal(w->o.cols, m->of_kind[0].n_heads * d);
    same_rows(t, layer, &w->o, 0, width, &(struct slice){t->o, width, q, 0, q0, t->conv1d, 0, 0});
    assert_int_equal(w->up.rows, ups * f);
    if (c->kinds[0].feed.gated)
        same_rows(t, layer, &w->up, 0, f, &(struct slice){t->gate, F, width, f0, 0, false, 0, 0});
    same_rows(t, layer, &w->up, (ups - 1) * f, f,
              &(struct slice){t->up, F, width, f0, 0, t->conv1d, 0, 0});
    assert_int_equal(w->down.cols, f);
    same_rows(t, layer, &w->down, 0, width,
              &(struct slice){t->down, width, F, 0, f0, t->conv1d, 0, 0});
    same_norm(&w->attn_norm, c, t, layer, t->n1);
    assert_int_equal(w->ffn_norm.weight == NULL, c->kinds[0].shared_norm);
    if (!c->kinds[0].shared_norm) same_norm(&w->ffn_norm, c, t, layer, t->n2);
    if (c->kinds[0].attention.qk_norm)
        same_vector(w->k_norm, d, full_name(layer, t, "self_attn.k_norm", "weight"), 0);
    assert_int_equal(w->q_norm != NULL, c->kinds[0].attention.qk_norm);
    if (c->kinds[0].feed.bias)
        same_vector(w->up_bias + (ups - 1) * f, f, full_name(layer, t, t->up, "bias"), f0);
    assert_int_equal(w->up_bias != NULL, c->kinds[0].feed.bias);
    assert_int_equal(w->o_bias != NULL, c->kinds[0].attention.o_bias && first_rank);
    if (w->o_bias) same_vector(w->o_bias, width, full_name(layer, t, t->o, "bias"), 0);
    assert_int_equal(w->down_bias != NULL, c->kinds[0].feed.bias && first_rank);
    if (w->down_bias) same_vector(w->down_bias, width, full_name(layer, t, t->down, "bias"), 0);
}

// Where positions come from: a tensor, or a formula that test_positions.c checks.
static void check_positions(const struct model *m) {
    const struct model_config *c = &m->config;
    bool table = c->positions == POSITION_LEARNED || c->positions == POSITION_SINUSOIDAL;
    int64_t rows = c->max_positions + c->position_offset;
    assert_int_equal(m->inv_freq[0] != NULL, c->positions == POSITION_ROTARY);
    assert_int_equal(m->alibi_slopes != NULL, c->positions == POSITION_ALIBI);
    assert_int_equal(m->position_table != NULL, table && m->split.pp_rank == 0);
    for (int32_t i = 0; i < c->ropes[0].rot_dim / 2; i++)
        assert_true(m->inv_freq[0][i] == c->ropes[0].inv_freq[i]);
    if (m->position_table && c->positions == POSITION_LEARNED)
        same_vector(m->position_table, rows * c->width,
                    strcmp(c->family, "opt") == 0 ? "model.decoder.embed_positions.weight"
                                                  : "transformer.wpe.weight",
                    0);
    if (m->position_table && c->positions == POSITION_SINUSOIDAL) {
        assert_true(m->position_table[2 * c->width] == sinf(2)); // position 0 is row 2
        // Cos of a small angle
        assert_true(fabsf(m->position_table[rows * c->width - 1] - 1) < 0.01f);
    }
    if (m->alibi_slopes) { // of four heads in all: 2^-2, 2^-4, 2^-6, 2^-8
        int32_t first = split_heads(&m->split, c->kinds[0].attention.n_heads).first;
        for (int32_t i = 0; i < m->of_kind[0].n_heads; i++)
            assert_true(m->alibi_slopes[i] == exp2f((float)(-2 * (first + i + 1))));
    }
}

static void check_model(const struct model *m) {
    const struct model_config *c = &m->config;
    const struct names *t = names_of(m);
    bool first = m->split.pp_rank == 0, last = m->split.pp_rank == m->split.pp_size - 1;
    int32_t from = split_even(&m->split, c->vocab_size).first, e = c->embed_width;
    assert_int_equal(m->embed.data != NULL, first);
    assert_int_equal(m->head.data != NULL, last);
    assert_int_equal(m->final_norm.weight != NULL, last && c->final_norm);
    assert_int_equal(m->embed_norm.weight != NULL, first && c->embed_norm);
    assert_int_equal(m->embed_in.data != NULL, first && e != c->width);
    assert_int_equal(m->embed_out.data != NULL, last && e != c->width);
    assert_int_equal(m->head_bias != NULL, last && c->head_bias);
    if (first)
        same_rows(t, -1, &m->embed, 0, c->vocab_size,
                  &(struct slice){t->embed, c->vocab_size, e, 0, 0, false, 0, 0});
    if (m->embed_norm.weight)
        same_norm(&m->embed_norm, c, t, -1, "transformer.word_embeddings_layernorm");
    if (last) {
        const char *head = c->tied_head ? t->embed : t->head;
        assert_int_equal(m->head.rows, m->vocab_rows);
        same_rows(t, -1, &m->head, 0, m->vocab_rows,
                  &(struct slice){head, c->vocab_size, e, from, 0, false, 0, 0});
        if (c->final_norm) same_norm(&m->final_norm, c, t, -1, t->final_norm);
    }
    if (m->head_bias) same_vector(m->head_bias, m->vocab_rows, "lm_head.bias", from);
    check_positions(m);
    for (int32_t i = 0; i < m->n_layers; i++) check_layer(m, &m->layers[i], m->first_layer + i);
    assert_int_equal(strlen(m->fingerprint), 32);
}

// Loads every rank of a tp x pp group, checks each, and that ranks agree on the fingerprint.
static void check_ranks(const char *path, int32_t tp, int32_t pp) {
    struct err err;
    char fingerprint[33] = "";
    assert_int_equal(checkpoint_open(&source, path, &err), 0);
    for (int32_t rank = 0; rank < tp * pp; rank++) {
        struct split s = {rank % tp, tp, rank / tp, pp};
        struct fake_backend f = fake_backend();
        struct model *m = load_ok(path, &f, &s);
        check_model(m);
        if (rank == 0) strcpy(fingerprint, m->fingerprint);
        assert_string_equal(m->fingerprint, fingerprint);
        model_free(m);
        assert_int_equal(f.n_live, 0);
    }
    checkpoint_close(source);
}

static void loads_every_family(void **state) {
    static const char *const names[] = {"llama", "mistral",  "qwen2", "qwen3", "gpt2",
                                        "gptj",  "gpt_neox", "bloom", "opt",   "xglm"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[100];
        snprintf(path, sizeof path, "tests/fixtures/models/%s", names[i]);
        check_ranks(path, 1, 1);
        check_ranks(path, 2, 1); // mistral's one key/value head is on both
        check_ranks(path, 4, 1);
        check_ranks(path, 1, 3);
        check_ranks(path, 2, 2);
    }
}

static void loads_shards_and_biases(void **state) {
    check_ranks("configs/demo-model", 1, 1);
    write_tiny(&(struct tweak){.shards = true});
    check_ranks(dir.path, 1, 1);
    write_tiny(&(struct tweak){0});
    check_ranks(dir.path, 2, 1);
    write_tiny(&(struct tweak){.as_f16 = "model.norm.weight"});
    check_ranks(dir.path, 1, 1);
    // Parts of one matrix in different floats: all become F32.
    write_tiny(&(struct tweak){.as_f16 = "model.layers.0.self_attn.k_proj.weight"});
    check_ranks(dir.path, 1, 1);
    write_tiny(
        &(struct tweak){.config = ",\"tie_word_embeddings\":true", .skip = "lm_head.weight"});
    check_ranks(dir.path, 2, 1);
}

static void a_tied_head_is_the_embedding(void **state) {
    struct fake_backend f = fake_backend();
    struct model *m = load_ok("tests/fixtures/models/qwen2", &f, &split_single);
    assert_true(m->head_is_embed);
    assert_ptr_equal(m->head.data, m->embed.data);
    model_free(m);
    m = load_ok("tests/fixtures/models/qwen2", &f, &(struct split){1, 2, 0, 1});
    assert_false(m->head_is_embed);
    assert_ptr_not_equal(m->head.data, m->embed.data);
    model_free(m);
    m = load_ok("tests/fixtures/models/llama", &f, &split_single);
    assert_false(m->head_is_embed);
    model_free(m);
    assert_int_equal(f.n_live, 0);
}

// config.json calls it tied, but the file has a head of its own (transformers 5 takes that one).
static void a_head_beside_a_tied_one_counts_where_it_differs(void **state) {
    struct fake_backend f = fake_backend();
    write_tiny(&(struct tweak){.config = ",\"tie_word_embeddings\":true"});
    struct model *m = load_ok(dir.path, &f, &split_single);
    assert_false(m->head_is_embed || m->config.tied_head);
    struct model *untied;
    write_tiny(&(struct tweak){0});
    untied = load_ok(dir.path, &f, &split_single);
    assert_memory_equal(m->head.data, untied->head.data, m->head.bytes);
    assert_string_equal(m->fingerprint, untied->fingerprint);
    model_free(m);
    model_free(untied);
    // The embedding once more: nothing to tell apart.
    write_tiny(&(struct tweak){.config = ",\"tie_word_embeddings\":true", .head_is_embed = true});
    m = load_ok(dir.path, &f, &split_single);
    assert_true(m->head_is_embed && m->config.tied_head);
    model_free(m);
    assert_int_equal(f.n_live, 0);
}

struct seen {
    int64_t done, total;
    int calls;
};
static void note(void *ctx, int64_t done, int64_t total) {
    struct seen *s = ctx;
    assert_true(done >= s->done && done <= total);
    assert_true(s->calls == 0 || total == s->total);
    *s = (struct seen){done, total, s->calls + 1};
}

static void reports_progress_and_size(void **state) {
    struct fake_backend f = fake_backend();
    struct seen seen = {0};
    struct model *m = NULL;
    struct err err;
    assert_int_equal(model_load(&m,
                                &(struct model_load_options){.dir = "configs/demo-model",
                                                             .backend = &f.be,
                                                             .split = &split_single,
                                                             .progress = note,
                                                             .progress_ctx = &seen},
                                &err),
                     0);
    assert_int_equal(seen.total, 28324608); // the index's total_size: each tensor is read once
    assert_int_equal(seen.done, seen.total);
    assert_true(seen.calls > 8 * 6);
    // As f32, and the rotary table
    assert_int_equal(m->weight_bytes, (size_t)seen.total * 2 + 32 * 4);
    model_free(m);
}

// A head of its own leaves the embedding to be looked up in, as positions always are.
static void what_a_step_reads(void **state) {
    struct fake_backend f = fake_backend();
    struct model *m = load_ok("tests/fixtures/models/llama", &f, &split_single);
    assert_false(m->head_is_embed);
    assert_true(m->embed.bytes > 0);
    assert_int_equal(m->weight_bytes - model_bytes_read(m), m->embed.bytes);
    model_free(m);
    m = load_ok("tests/fixtures/models/gpt2", &f, &split_single);
    assert_true(m->head_is_embed);
    assert_int_equal(m->weight_bytes - model_bytes_read(m),
                     (size_t)m->config.max_positions * (size_t)m->config.width * 4);
    model_free(m);
}

// --- what is wrong ---

static void refuses(const struct tweak *k, int code, const char *names) {
    struct fake_backend f = fake_backend();
    struct model *m = NULL;
    struct err err = {0};
    write_tiny(k);
    int rc = model_load(
        &m, &(struct model_load_options){.dir = dir.path, .backend = &f.be, .split = &split_single},
        &err);
    if (rc != code || err.code != rc || !strstr(err.text, names) || !strstr(err.text, dir.path))
        fail_msg("%d '%s', not %d '%s'", rc, err.text, code, names);
    assert_null(m);
    assert_int_equal(f.n_calls, 0); // found before anything is read
}

static void names_what_is_wrong(void **state) {
    for (size_t t = 0; t < N_TINY; t++) {
        refuses(&(struct tweak){.skip = tiny[t].name}, E_NOTFOUND, tiny[t].name);
        refuses(&(struct tweak){.reshape = tiny[t].name}, E_FORMAT, tiny[t].name);
        refuses(&(struct tweak){.as_i32 = tiny[t].name}, E_UNSUPPORTED, tiny[t].name);
    }
    refuses(&(struct tweak){.config = ",\"hidden_act\":\"xielu\""}, E_UNSUPPORTED, "xielu");
    refuses(&(struct tweak){.config = ",\"num_key_value_heads\":1"}, E_FORMAT,
            "(8, 8), not (4, 8)");
    refuses(&(struct tweak){.config = ",\"head_dim\":1024"}, E_UNSUPPORTED, "even width");
}

// What was logged at warn while a checkpoint with this tensor loaded.
static void warning_of(const char *extra, char *out, size_t cap) {
    struct fake_backend f = fake_backend();
    char path[200];
    snprintf(path, sizeof path, "%s", tmp_path(&dir, "stderr"));
    write_tiny(&(struct tweak){.extra = extra});
    fflush(stderr);
    int saved = dup(STDERR_FILENO), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(saved >= 0 && fd >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    log_set_level(LOG_WARN);
    struct model *m = load_ok(dir.path, &f, &split_single);
    log_set_level(LOG_OFF);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    ssize_t n = pread(fd, out, cap - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    close(saved);
    close(fd);
    unlink(path);
    model_free(m);
}

static void buffers_are_passed_over_and_the_rest_is_named(void **state) {
    static const char *const buffers[] = {
        "h.0.attn.bias",
        "transformer.h.11.attn.masked_bias",
        "gpt_neox.layers.0.attention.bias",
        "gpt_neox.layers.0.attention.masked_bias",
        "gpt_neox.layers.0.attention.rotary_emb.inv_freq",
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.rotary_emb.inv_freq",
        "transformer.h.0.attn.embed_positions",
        "model.embed_positions.weights",
    };
    static const char *const others[] = {"score.weight", "model.layers.0.self_attn.o_proj.scale",
                                         "model.layers.0.bias"};
    char text[1000];
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        warning_of(buffers[i], text, sizeof text);
        if (text[0]) fail_msg("%s", text);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        warning_of(others[i], text, sizeof text);
        if (!strstr(text, "model.unused_tensors") || !strstr(text, others[i]))
            fail_msg("%s: '%s'", others[i], text);
    }
}

static void refuses_a_split_that_does_not_divide(void **state) {
    struct fake_backend f = fake_backend();
    struct model *m = NULL;
    struct err err;
    struct split s = {0, 3, 0, 1};
    write_tiny(&(struct tweak){0});
    assert_int_equal(
        model_load(&m, &(struct model_load_options){.dir = dir.path, .backend = &f.be, .split = &s},
                   &err),
        E_INVAL);
    assert_non_null(strstr(err.text, "2 heads"));
}

static void gives_everything_back_whatever_fails(void **state) {
    static const char *const paths[] = {"tests/fixtures/models/qwen3",
                                        "tests/fixtures/models/qwen2",
                                        "tests/fixtures/models/gptj",
                                        "tests/fixtures/models/bloom",
                                        "tests/fixtures/models/xglm",
                                        "tests/fixtures/models/opt",
                                        NULL};
    write_tiny(&(struct tweak){0});
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int n = 1;
        for (;; n++) {
            struct fake_backend f = fake_backend();
            struct model *m = NULL;
            struct err err = {0};
            f.fail_at = n;
            int rc = model_load(&m,
                                &(struct model_load_options){.dir = paths[i] ? paths[i] : dir.path,
                                                             .backend = &f.be,
                                                             .split = &split_single},
                                &err);
            model_free(m);
            assert_int_equal(f.n_live, 0);
            if (rc == 0) break;
            assert_true(rc == E_NOMEM || rc == E_DEVICE);
            assert_int_equal(err.code, rc);
            if (rc == E_NOMEM) assert_non_null(strstr(err.text, "MiB for its weights"));
        }
        assert_true(n > 15);
    }
}

// The file is cut short between the check of its header and the reading of its data.
static void cut(void *ctx, int64_t done, int64_t total) {
    if (done == 0) assert_int_equal(truncate(ctx, 2000), 0);
}
static void touch(void *ctx, int64_t done, int64_t total) {
    FILE *f = done == 0 ? fopen(ctx, "r+b") : NULL;
    if (!f) return;
    fseek(f, -1, SEEK_END);
    fputc('x', f);
    fclose(f);
}

static void a_file_cut_while_loading_is_an_error(void **state) {
    void (*const spoil[])(void *, int64_t, int64_t) = {cut, touch};
    for (int i = 0; i < 2; i++) {
        struct fake_backend f = fake_backend();
        struct model *m = NULL;
        struct err err;
        write_tiny(&(struct tweak){0});
        char path[200];
        snprintf(path, sizeof path, "%s", tmp_path(&dir, "model.safetensors"));
        // Long ago: the clock of a file system may be too coarse to tell a change at once.
        const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
        assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
        assert_int_equal(model_load(&m,
                                    &(struct model_load_options){.dir = dir.path,
                                                                 .backend = &f.be,
                                                                 .split = &split_single,
                                                                 .progress = spoil[i],
                                                                 .progress_ctx = path},
                                    &err),
                         E_CORRUPT);
        assert_non_null(strstr(err.text, "model.safetensors"));
        assert_int_equal(f.n_live, 0);
    }
}

static void fingerprint_of(const struct tweak *k, char out[33]) {
    struct fake_backend f = fake_backend();
    write_tiny(k);
    struct model *m = load_ok(dir.path, &f, &split_single);
    memcpy(out, m->fingerprint, 33);
    model_free(m);
}

static void fingerprints_tell_models_apart(void **state) {
    char a[33], b[33];
    fingerprint_of(&(struct tweak){0}, a);
    fingerprint_of(&(struct tweak){0}, b);
    assert_string_equal(a, b);
    fingerprint_of(&(struct tweak){.shards = true}, b);
    assert_string_equal(a, b);
    fingerprint_of(&(struct tweak){.config = ",\"eos_token_id\":3,\"rope_theta\":10000.0"}, b);
    assert_string_equal(a, b);
    static const struct tweak others[] = {{.config = ",\"rope_theta\":10001.0"},
                                          {.config = ",\"rms_norm_eps\":1e-5"},
                                          {.change = "model.norm.weight"},
                                          {.change = "model.layers.0.self_attn.v_proj.weight"},
                                          {.as_f16 = "model.norm.weight"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        fingerprint_of(&others[i], b);
        assert_string_not_equal(a, b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_every_family),
        cmocka_unit_test(loads_shards_and_biases),
        cmocka_unit_test(a_tied_head_is_the_embedding),
        cmocka_unit_test(a_head_beside_a_tied_one_counts_where_it_differs),
        cmocka_unit_test(reports_progress_and_size),
        cmocka_unit_test(what_a_step_reads),
        cmocka_unit_test(names_what_is_wrong),
        cmocka_unit_test(buffers_are_passed_over_and_the_rest_is_named),
        cmocka_unit_test(refuses_a_split_that_does_not_divide),
        cmocka_unit_test(gives_everything_back_whatever_fails),
        cmocka_unit_test(a_file_cut_while_loading_is_an_error),
        cmocka_unit_test(fingerprints_tell_models_apart),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
