// Which ops a step asks for, in which order, on which buffers: the backend only records its calls.
// The numbers are tested elsewhere (tests/golden); this shows the paths of families and ranks that
// have no fixture here.
#include "base/buf.h"
#include "engine/run/forward.h"
#include "tests/cmocka.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct buf script;
static struct forward f;
static struct model model;
static struct layer_weights layers[2];
static struct backend backend;
static struct comm comm;
static struct kv_place places[] = {{0, 0}, {0, 1}};
static const struct kv_groups groups = {.n = 1, .places = places};
static const struct cache_stores stores = {.groups = &groups};
static float unit[1];
static int begin_answer;

static const char *buffer_name(const void *p) {
    if (p == f.x) return "x";
    if (p == f.rows) return "rows";
    if (p == f.normed) return "h";
    if (p == f.qkv) return "qkv";
    if (p == f.attended) return "att";
    if (p == f.up) return "up";
    if (p == f.activated) return "act";
    if (p == f.embedded) return "emb";
    if (p == f.logits) return "logits";
    if (p == f.part) return "part";
    // Rows of a part of the step, in a stream of 8 floats a row.
    static char within[2][16];
    static int at;
    for (size_t i = 1; i < 4; i++) {
        if (p != (float *)f.x + 8 * i && p != (float *)f.rows + 8 * i) continue;
        char *name = within[at++ % 2];
        snprintf(name, sizeof within[0], "%s[%zu]", p == (float *)f.x + 8 * i ? "x" : "rows", i);
        return name;
    }
    return "?";
}

static const char *weight_name(const struct weight *w) {
    for (int i = 0; i < 2; i++) {
        if (w == &layers[i].qkv) return "qkv";
        if (w == &layers[i].o) return "o";
        if (w == &layers[i].up) return "up";
        if (w == &layers[i].down) return "down";
    }
    return w == &model.head        ? "head"
           : w == &model.embed_in  ? "in"
           : w == &model.embed_out ? "out"
                                   : "?";
}

static const char *norm_name(const float *w) {
    for (int i = 0; i < 2; i++) {
        if (w == layers[i].attn_norm.weight) return "n1";
        if (w == layers[i].ffn_norm.weight) return "n2";
    }
    return w == model.final_norm.weight ? "nf" : "ne";
}

static int fake_alloc(struct backend *be, size_t bytes, void **out, struct err *err) {
    *out = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    return *out ? 0 : E_NOMEM;
}
static void fake_free(struct backend *be, void *p) {
    free(p);
}
static int fake_begin(struct backend *be, const struct batch *b, const struct batch **run) {
    *run = b;
    return begin_answer;
}
static int fake_wider_begin(struct backend *be, const struct batch *b, const struct batch **run) {
    static struct batch wider;
    wider = *b;
    wider.n_rows = wider.n_logits = 4;
    *run = &wider;
    return 0;
}
static int fake_launch(struct backend *be) {
    return buf_addz(&script, "launch ");
}
static int fake_end(struct backend *be) {
    return 0;
}
static int fake_embed(struct backend *be, void *y, const struct batch *b, const struct weight *w,
                      float scale) {
    return buf_addf(&script, "embed>%s ", buffer_name(y));
}
static int fake_positions(struct backend *be, void *y, const struct batch *b, const float *table,
                          int32_t cols, int32_t offset) {
    return buf_addf(&script, "positions>%s ", buffer_name(y));
}
static int fake_norm(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                     const struct norm_args *args) {
    return buf_addf(&script, "%s:%s>%s*%d ", norm_name(args->weight), buffer_name(x),
                    buffer_name(y), n);
}
static int fake_linear(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                       const struct weight *w, const float *bias) {
    return buf_addf(&script, "%s:%s>%s%s*%d ", weight_name(w), buffer_name(x),
                    mode == LINEAR_ADD ? "+" : "", buffer_name(y), n);
}
static int fake_qk_norm(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
                        const struct qkv_args *args) {
    return buf_addz(&script, "qk_norm ");
}
static int fake_angles(struct backend *be, float *cos_sin, const struct batch *b,
                       const float *inv_freq, const float *short_inv_freq, int32_t rot_dim,
                       float scale) {
    return buf_addz(&script, "angles ");
}
static int fake_rope(struct backend *be, void *qkv, int32_t n, const struct qkv_shape *shape,
                     const struct qkv_args *args) {
    return buf_addz(&script, "rope ");
}
static int fake_kv_write(struct backend *be, const struct kv_store *kv, int32_t layer,
                         const void *qkv, const struct batch *b, int32_t n_heads) {
    return buf_addz(&script, "kv ");
}
static int fake_attention(struct backend *be, void *out, const void *qkv, const struct kv_store *kv,
                          const struct batch *b, const struct attention_args *args) {
    return buf_addf(&script, "attend%d/%d>%s ", args->layer, args->window, buffer_name(out));
}
static int fake_activate(struct backend *be, enum activation act, bool gated, void *y,
                         const void *x, int32_t n, int32_t width) {
    return buf_addz(&script, "act ");
}
static int fake_gather(struct backend *be, void *y, const void *x, const struct batch *b,
                       int32_t width) {
    return buf_addf(&script, "gather:%s>%s ", buffer_name(x), buffer_name(y));
}
static int fake_read(struct backend *be, float *host, const void *logits, int32_t n,
                     int32_t vocab) {
    return buf_addf(&script, "read:%s ", buffer_name(logits));
}
static int fake_fusion(struct backend *be, void *qkv, const struct kv_store *kv,
                       const struct batch *b, int32_t layer, int32_t n_heads,
                       const struct qkv_args *args) {
    return buf_addz(&script, "fused ");
}

static int fake_reduce(struct comm *c, struct backend *be, void *x, int64_t n) {
    return buf_addf(&script, "reduce:%s ", buffer_name(x));
}
static int fake_gather_rows(struct comm *c, struct backend *be, void *out, const void *part,
                            int32_t n_rows, int32_t part_width, int32_t width) {
    return buf_addf(&script, "collect:%s>%s ", buffer_name(part), buffer_name(out));
}
static int fake_send(struct comm *c, struct backend *be, const void *x, int64_t n,
                     int32_t pp_rank) {
    return buf_addf(&script, "send:%s>%d ", buffer_name(x), pp_rank);
}
static int fake_recv(struct comm *c, struct backend *be, void *x, int64_t n, int32_t pp_rank) {
    return buf_addf(&script, "recv:%d>%s ", pp_rank, buffer_name(x));
}

// Only the waits of a stage that sends are of interest.
static int fake_sent(struct comm *c, bool wait) {
    bool sends = model.split.pp_rank < model.split.pp_size - 1;
    return wait && sends ? buf_addz(&script, "sent ") : 0;
}

static struct backend_ops ops;
static const struct comm_ops comm_table = {.all_reduce = fake_reduce,
                                           .gather_rows = fake_gather_rows,
                                           .send = fake_send,
                                           .recv = fake_recv,
                                           .sent = fake_sent};

static int set_up(void **state) {
    static float norms[6];
    buf_init(&script, 1 << 16);
    begin_answer = 0;
    ops = (struct backend_ops){.name = "fake",
                               .mem_alloc = fake_alloc,
                               .mem_free = fake_free,
                               .step_begin = fake_begin,
                               .step_launch = fake_launch,
                               .step_end = fake_end,
                               .embed = fake_embed,
                               .embed_positions = fake_positions,
                               .norm = fake_norm,
                               .linear = fake_linear,
                               .qk_norm = fake_qk_norm,
                               .rope_angles = fake_angles,
                               .rope = fake_rope,
                               .kv_write = fake_kv_write,
                               .attention = fake_attention,
                               .activate = fake_activate,
                               .gather_logit_rows = fake_gather,
                               .logits_read = fake_read};
    backend = (struct backend){.ops = &ops, .act_dtype = DTYPE_F32};
    comm = (struct comm){.ops = &comm_table};
    memset(layers, 0, sizeof layers);
    for (int i = 0; i < 2; i++) {
        layers[i].attn_norm.weight = &norms[i * 2];
        layers[i].ffn_norm.weight = &norms[i * 2 + 1];
    }
    model = (struct model){
        .config =
            {.n_layers = 1,
             .width = 8,
             .kinds[0] = {.attention = {.n_heads = 2, .n_kv_heads = 1, .head_dim = 4, .rope = 1},
                          .feed = {.width = 16, .gated = true},
                          .norms = NORM_PRE},
             .n_ropes = 1,
             .vocab_size = 32,
             .embed_width = 8,
             .final_norm = true,
             .positions = POSITION_ROTARY,
             .ropes[0].rot_dim = 4},
        .split = {.tp_size = 1, .pp_size = 1},
        .backend = &backend,
        .n_layers = 1,
        .of_kind[0] = {2, 1, 16},
        .vocab_rows = 32,
        .layers = layers,
        .final_norm = {.weight = &norms[4]},
        .embed_norm = {.weight = &norms[5]},
        .head = {.cols = 8}};
    return 0;
}

static int tear_down(void **state) {
    buf_release(&script);
    return 0;
}

static const int32_t logit_rows[] = {2};
static const struct forward_options options = {
    .model = &model, .comm = &comm, .kv = &stores, .max_rows = 4, .max_logits = 2};

// Runs one step of 3 rows, whose logits are wanted for one, and its head; compares the recorded
// calls.
static void expect(int32_t n_logits, const char *want) {
    struct batch b = {.n_rows = 3, .n_logits = n_logits, .logit_rows = logit_rows};
    const float *logits;
    assert_int_equal(forward_init(&f, &options, NULL), 0);
    assert_int_equal(forward_run(&f, &b), 0);
    if (n_logits > 0) assert_int_equal(forward_logits(&f, 0, n_logits, &logits), 0);
    assert_int_equal(forward_done(&f), 0);
    assert_string_equal(buf_z(&script), want);
    forward_release(&f);
}

static void test_llama(void **state) {
    expect(1,
           "angles embed>x n1:x>h*3 qkv:h>qkv*3 rope kv attend0/0>att gather:x>rows gather:att>qkv "
           "o:qkv>+rows*1 reduce:rows n2:rows>h*1 up:h>up*1 act down:act>+rows*1 reduce:rows "
           "nf:rows>h*1 "
           "head:h>logits*1 collect:logits>logits launch read:logits ");
}

static void test_chunk_without_logits_stops_behind_the_cache(void **state) {
    expect(0, "angles embed>x n1:x>h*3 qkv:h>qkv*3 rope kv attend0/0>att gather:x>rows "
              "gather:att>qkv launch ");
}

static void test_only_the_last_layer_is_narrowed(void **state) {
    model.n_layers = model.config.n_layers = 2;
    model.config.kinds[1] = model.config.kinds[0];
    model.config.kinds[1].attention.window = 5;
    model.config.kind_of[1] = 1;
    model.of_kind[1] = model.of_kind[0];
    layers[1].q_norm = layers[1].k_norm = unit;
    expect(
        1,
        "angles embed>x n1:x>h*3 qkv:h>qkv*3 rope kv attend0/0>att o:att>+x*3 reduce:x n2:x>h*3 "
        "up:h>up*3 act "
        "down:act>+x*3 reduce:x n1:x>h*3 qkv:h>qkv*3 qk_norm rope kv attend1/5>att gather:x>rows "
        "gather:att>qkv o:qkv>+rows*1 reduce:rows n2:rows>h*1 up:h>up*1 act down:act>+rows*1 "
        "reduce:rows "
        "nf:rows>h*1 head:h>logits*1 collect:logits>logits launch read:logits ");
}

static void test_fusion_replaces_its_parts(void **state) {
    ops.qkv_finish = fake_fusion;
    layers[0].q_norm = layers[0].k_norm = unit;
    expect(0, "angles embed>x n1:x>h*3 qkv:h>qkv*3 fused attend0/0>att gather:x>rows "
              "gather:att>qkv launch ");
}

static int fake_linear_activate(struct backend *be, void *y, const void *x, int32_t n,
                                const struct weight *w, const float *bias, enum activation act,
                                bool gated) {
    if (n > 1) return OP_DECLINED;
    return buf_addf(&script, "%s+act:%s>%s*%d ", weight_name(w), buffer_name(x), buffer_name(y), n);
}

// A fused op that takes narrow batches only: wider ones are composed.
static void test_a_fusion_may_decline(void **state) {
    ops.linear_activate = fake_linear_activate;
    model.n_layers = model.config.n_layers = 2;
    expect(1, "angles embed>x n1:x>h*3 qkv:h>qkv*3 rope kv attend0/0>att o:att>+x*3 reduce:x "
              "n2:x>h*3 up:h>up*3 act down:act>+x*3 reduce:x n1:x>h*3 qkv:h>qkv*3 rope kv "
              "attend1/0>att gather:x>rows gather:att>qkv o:qkv>+rows*1 reduce:rows n2:rows>h*1 "
              "up+act:h>act*1 down:act>+rows*1 reduce:rows nf:rows>h*1 head:h>logits*1 "
              "collect:logits>logits launch read:logits ");
}

static int fake_feed_forward(struct backend *be, enum linear_mode mode, void *y, const void *x,
                             int32_t n, const struct feed_forward_args *a) {
    if (n > 1) return OP_DECLINED;
    return buf_addf(&script, "%s+%s+act+%s:%s>%s%s*%d ", a->norm ? norm_name(a->norm->weight) : "",
                    weight_name(a->up), weight_name(a->down), buffer_name(x),
                    mode == LINEAR_ADD ? "+" : "", buffer_name(y), n);
}

static int norm_linear_declines; // so many rows, and more than three
static int fake_norm_linear(struct backend *be, const struct norm_args *norm, enum linear_mode mode,
                            void *y, const void *x, int32_t n, const struct weight *w,
                            const float *bias, const struct activate_args *act) {
    if (n > 3 || n == norm_linear_declines) return OP_DECLINED;
    assert_true(!act || mode == LINEAR_STORE);
    return buf_addf(&script, "%s+%s%s:%s>%s*%d ", norm_name(norm->weight), weight_name(w),
                    act ? "+act" : "", buffer_name(x), buffer_name(y), n);
}

// The op for the whole feed-forward is tried before those for parts of it; where it declines, the
// parts are used.
static void test_a_fused_feed_forward(void **state) {
    ops.feed_forward = fake_feed_forward;
    ops.linear_activate = fake_linear_activate;
    model.n_layers = model.config.n_layers = 2;
    expect(1, "angles embed>x n1:x>h*3 qkv:h>qkv*3 rope kv attend0/0>att o:att>+x*3 reduce:x "
              "n2:x>h*3 up:h>up*3 act down:act>+x*3 reduce:x n1:x>h*3 qkv:h>qkv*3 rope kv "
              "attend1/0>att gather:x>rows gather:att>qkv o:qkv>+rows*1 reduce:rows "
              "n2+up+act+down:rows>+rows*1 reduce:rows nf:rows>h*1 head:h>logits*1 "
              "collect:logits>logits launch read:logits ");
}

// A norm goes with the linear behind it where the device takes both, unless the stream itself is
// normed.
static void test_a_norm_in_its_linear(void **state) {
    ops.norm_linear = fake_norm_linear;
    norm_linear_declines = 0;
    expect(0, "angles embed>x n1+qkv:x>qkv*3 rope kv attend0/0>att gather:x>rows "
              "gather:att>qkv launch ");
    buf_reset(&script);
    norm_linear_declines = 3;
    expect(0, "angles embed>x n1:x>h*3 qkv:h>qkv*3 rope kv attend0/0>att gather:x>rows "
              "gather:att>qkv launch ");
    buf_reset(&script);
    norm_linear_declines = 0;
    model.config.kinds[0].normed_residual = true;
    expect(0, "angles embed>x n1:x>x*3 qkv:x>qkv*3 rope kv attend0/0>att gather:x>rows "
              "gather:att>qkv launch ");
}

// The feed-forward of a parallel residual reads what attention has read, before either is added:
// where it is one op, its norm stays an op of its own.
static void test_fusions_of_a_parallel_residual(void **state) {
    ops.norm_linear = fake_norm_linear;
    ops.feed_forward = fake_feed_forward;
    norm_linear_declines = 0;
    model.config.kinds[0].parallel = model.config.kinds[0].shared_norm = true;
    expect(1, "angles embed>x n1+qkv:x>qkv*3 rope kv attend0/0>att gather:x>rows gather:att>qkv "
              "n1:rows>h*1 o:qkv>+rows*1 +up+act+down:h>+rows*1 reduce:rows nf+head:rows>logits*1 "
              "collect:logits>logits launch read:logits ");
}

static int fake_qkv_attention(struct backend *be, void *out, void *qkv, const struct kv_store *kv,
                              const struct batch *b, const struct attention_args *args,
                              const struct qkv_args *finish) {
    if (b->n_rows > 3) return OP_DECLINED;
    return buf_addf(&script, "finish+attend%d:%s>%s ", args->layer, buffer_name(qkv),
                    buffer_name(out));
}

// What a linear reads is normed by it, and what attention reads is finished by it; a stream that
// keeps its norm is normed by itself. Declined, both are composed.
static void test_norms_and_attention_fused(void **state) {
    ops.norm_linear = fake_norm_linear;
    norm_linear_declines = 0;
    ops.qkv_attention = fake_qkv_attention;
    expect(1, "angles embed>x n1+qkv:x>qkv*3 finish+attend0:qkv>att gather:x>rows gather:att>qkv "
              "o:qkv>+rows*1 reduce:rows n2+up+act:rows>act*1 down:act>+rows*1 reduce:rows "
              "nf+head:rows>logits*1 collect:logits>logits launch read:logits ");
}
static void test_fused_but_for_a_normed_stream(void **state) {
    ops.norm_linear = fake_norm_linear;
    norm_linear_declines = 0;
    model.config.kinds[0].normed_residual = true;
    expect(1, "angles embed>x n1:x>x*3 qkv:x>qkv*3 rope kv attend0/0>att gather:x>rows "
              "gather:att>qkv o:qkv>+rows*1 reduce:rows n2:rows>rows*1 up:rows>up*1 act "
              "down:act>+rows*1 reduce:rows nf+head:rows>logits*1 collect:logits>logits launch "
              "read:logits ");
}
static void test_fusions_decline(void **state) {
    ops.norm_linear = fake_norm_linear;
    norm_linear_declines = 0;
    ops.qkv_attention = fake_qkv_attention;
    ops.step_begin = fake_wider_begin;
    expect(1,
           "angles embed>x n1:x>h*4 qkv:h>qkv*4 rope kv attend0/0>att o:att>+x*4 reduce:x n2:x>h*4 "
           "up:h>up*4 act down:act>+x*4 reduce:x nf:x>h*4 head:h>logits*2 collect:logits>logits "
           "launch read:logits ");
}

static void test_parallel_residual_reduces_once(void **state) { // GPT-J
    model.config.kinds[0].parallel = model.config.kinds[0].shared_norm = true;
    expect(1,
           "angles embed>x n1:x>h*3 qkv:h>qkv*3 rope kv attend0/0>att gather:x>rows gather:att>qkv "
           "n1:rows>h*1 up:h>up*1 act o:qkv>+rows*1 down:act>+rows*1 reduce:rows nf:rows>h*1 "
           "head:h>logits*1 collect:logits>logits launch read:logits ");
}

static void no_rotation(enum position_kind positions) {
    model.config.positions = positions;
    model.config.n_ropes = model.config.kinds[0].attention.rope = 0;
}

static void test_post_norm_with_projected_embedding(void **state) { // OPT-350m
    no_rotation(POSITION_LEARNED);
    model.config.kinds[0].norms = NORM_POST;
    model.config.final_norm = false;
    model.config.embed_width = 4;
    model.position_table = unit;
    model.embed_in.data = model.embed_out.data = unit;
    model.head.cols = 4;
    expect(1, "embed>emb in:emb>x*3 positions>x qkv:x>qkv*3 kv attend0/0>att gather:x>rows "
              "gather:att>qkv "
              "o:qkv>+rows*1 reduce:rows n1:rows>h*1 n1:rows>rows*1 up:h>up*1 act down:act>+rows*1 "
              "reduce:rows "
              "n2:rows>rows*1 out:rows>emb*1 head:emb>logits*1 collect:logits>logits launch "
              "read:logits ");
}

static void test_norm_behind_the_embedding(void **state) { // BLOOM
    no_rotation(POSITION_ALIBI);
    model.config.embed_norm = true;
    expect(0, "embed>x ne:x>x*3 n1:x>h*3 qkv:h>qkv*3 kv attend0/0>att gather:x>rows gather:att>qkv "
              "launch ");
}

// What is added to is the normed stream: no copy of it, and the feed-forward reads it in place.
static void test_normed_residual(void **state) {
    model.config.kinds[0].normed_residual = true;
    expect(1, "angles embed>x n1:x>x*3 qkv:x>qkv*3 rope kv attend0/0>att gather:x>rows "
              "gather:att>qkv o:qkv>+rows*1 reduce:rows n2:rows>rows*1 up:rows>up*1 act "
              "down:act>+rows*1 reduce:rows nf:rows>h*1 head:h>logits*1 "
              "collect:logits>logits launch read:logits ");
}

// Ranks past the first put their part in the stream's place, so that the sum over ranks holds the
// stream once.
static void test_second_tensor_parallel_rank(void **state) {
    model.split = (struct split){.tp_rank = 1, .tp_size = 2, .pp_size = 1};
    model.vocab_rows = 16;
    expect(1,
           "angles embed>x n1:x>h*3 qkv:h>qkv*3 rope kv attend0/0>att gather:x>rows gather:att>qkv "
           "o:qkv>rows*1 reduce:rows n2:rows>h*1 up:h>up*1 act down:act>rows*1 reduce:rows "
           "nf:rows>h*1 "
           "head:h>part*1 collect:part>logits launch read:logits ");
}

static void test_middle_pipeline_rank(void **state) {
    model.split = (struct split){.tp_size = 1, .pp_rank = 1, .pp_size = 3};
    expect(0, "angles recv:0>x n1:x>h*3 qkv:h>qkv*3 rope kv attend0/0>att o:att>+x*3 reduce:x "
              "n2:x>h*3 up:h>up*3 act "
              "down:act>+x*3 reduce:x send:x>2 launch sent ");
}

// A step in parts: each has its rows' place in the stream; the head is for all of them.
static void test_the_last_pipeline_rank_in_parts(void **state) {
    static const int32_t positions[4] = {0}, wanted[] = {0, 3};
    static const struct batch_seq seqs[] = {{.first_row = 0, .n_rows = 1},
                                            {.first_row = 1, .n_rows = 3}};
    struct batch b = {.n_rows = 4,
                      .n_seqs = 2,
                      .n_logits = 2,
                      .positions = positions,
                      .logit_rows = wanted,
                      .seqs = seqs};
    model.split = (struct split){.tp_size = 1, .pp_rank = 1, .pp_size = 2};
    assert_int_equal(forward_init(&f, &options, NULL), 0);
    f.n_parts = 2;
    assert_int_equal(forward_run(&f, &b), 0);
    assert_string_equal(
        buf_z(&script),
        "angles recv:0>x n1:x>h*2 qkv:h>qkv*2 rope kv attend0/0>att gather:x>rows gather:att>qkv "
        "o:qkv>+rows*1 reduce:rows n2:rows>h*1 up:h>up*1 act down:act>+rows*1 reduce:rows launch "
        "angles recv:0>x[2] n1:x[2]>h*2 qkv:h>qkv*2 rope kv attend0/0>att gather:x[2]>rows[1] "
        "gather:att>qkv o:qkv>+rows[1]*1 reduce:rows[1] n2:rows[1]>h*1 up:h>up*1 act "
        "down:act>+rows[1]*1 reduce:rows[1] launch "
        "nf:rows>h*2 head:h>logits*2 collect:logits>logits launch ");
    forward_release(&f);
}

// A step that the device launched from a recording: only the ops that the recording lacks are
// called.
static void test_a_replayed_step_asks_for_nothing(void **state) {
    begin_answer = STEP_REPLAYED;
    expect(1, "read:logits ");
}

// The ops get the batch that the device returned; the reader of logits gets the original.
static void test_a_step_filled_up(void **state) {
    ops.step_begin = fake_wider_begin;
    expect(1,
           "angles embed>x n1:x>h*4 qkv:h>qkv*4 rope kv attend0/0>att o:att>+x*4 reduce:x n2:x>h*4 "
           "up:h>up*4 act down:act>+x*4 reduce:x nf:x>h*4 head:h>logits*2 collect:logits>logits "
           "launch read:logits ");
}

static int broken_norm(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                       const struct norm_args *args) {
    return E_DEVICE;
}

static void test_an_ops_failure_is_the_steps(void **state) {
    struct batch b = {.n_rows = 3};
    ops.norm = broken_norm;
    assert_int_equal(forward_init(&f, &options, NULL), 0);
    assert_int_equal(forward_run(&f, &b), E_DEVICE);
    forward_release(&f);
}

// Logits that are in host memory already are not copied.
static void test_logits_of_a_host_are_read_where_they_are(void **state) {
    struct batch b = {.n_rows = 3, .n_logits = 1, .logit_rows = logit_rows};
    const float *logits;
    size_t with = forward_bytes(&model, 4, 2);
    ops.logits_read = NULL;
    assert_true(forward_bytes(&model, 4, 2) < with);
    assert_int_equal(forward_init(&f, &options, NULL), 0);
    assert_int_equal(forward_run(&f, &b), 0);
    assert_int_equal(forward_logits(&f, 0, 1, &logits), 0);
    assert_ptr_equal(logits, f.logits);
    assert_int_equal(forward_done(&f), 0);
    assert_null(strstr(buf_z(&script), "read"));
    forward_release(&f);
}

static int64_t told; // percent

static void tell(void *ctx, int64_t done, int64_t total) {
    *(int64_t *)ctx = done * 100 / total;
}

static int measuring_reserve(struct backend *be, const struct step_limits *l, struct err *err) {
    if (l->progress) l->progress(l->progress_ctx, 3, 4);
    return 0;
}

// The measurements before the first step are reported as progress of the opening.
static void test_measuring_is_shown(void **state) {
    ops.step_reserve = measuring_reserve;
    struct forward_options o = options;
    o.progress = tell;
    o.progress_ctx = &told;
    assert_int_equal(forward_init(&f, &o, NULL), 0);
    assert_int_equal(told, 75);
    forward_release(&f);
    told = 0;
    assert_int_equal(forward_init(&f, &options, NULL), 0);
    assert_int_equal(told, 0);
    forward_release(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_measuring_is_shown, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_llama, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_chunk_without_logits_stops_behind_the_cache, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_only_the_last_layer_is_narrowed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fusion_replaces_its_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_fusion_may_decline, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_fused_feed_forward, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_norm_in_its_linear, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fusions_of_a_parallel_residual, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_norms_and_attention_fused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fused_but_for_a_normed_stream, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fusions_decline, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_parallel_residual_reduces_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_post_norm_with_projected_embedding, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_norm_behind_the_embedding, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_normed_residual, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_second_tensor_parallel_rank, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_middle_pipeline_rank, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_last_pipeline_rank_in_parts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_replayed_step_asks_for_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_step_filled_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_ops_failure_is_the_steps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_logits_of_a_host_are_read_where_they_are, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
