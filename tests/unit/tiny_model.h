// A model of one layer that a test can bend, in the folder `dir`.
#pragma once
#include "engine/model/checkpoint.h"
#include "engine/model/model.h"
#include "tests/unit/fake_backend.h"
#include "tests/unit/tmp_dir.h"

static struct tmp_dir dir;

struct tweak {
    const char *config;                    // further keys, with a comma in front
    const char *skip;                      // leave out this tensor
    const char *reshape, *as_i32, *as_f16; // give these another shape or dtype
    const char *change;                    // other content
    const char *extra;                     // a tensor that no model uses
    bool head_is_embed;                    // lm_head has the embedding's values
    bool shards;                           // layer in one file, the rest in another
};

// Width 8, 2 heads of 4, 2 key/value heads, ffn 12, vocab 10; with all biases that Llama can have.
static const struct tensor tiny[] = {
    {.name = "lm_head.weight", .n_dims = 2, .shape = {10, 8}},
    {.name = "model.embed_tokens.weight", .n_dims = 2, .shape = {10, 8}},
    {.name = "model.norm.weight", .n_dims = 1, .shape = {8}},
    {.name = "model.layers.0.input_layernorm.weight", .n_dims = 1, .shape = {8}},
    {.name = "model.layers.0.mlp.down_proj.bias", .n_dims = 1, .shape = {8}},
    {.name = "model.layers.0.mlp.down_proj.weight", .n_dims = 2, .shape = {8, 12}},
    {.name = "model.layers.0.mlp.gate_proj.bias", .n_dims = 1, .shape = {12}},
    {.name = "model.layers.0.mlp.gate_proj.weight", .n_dims = 2, .shape = {12, 8}},
    {.name = "model.layers.0.mlp.up_proj.bias", .n_dims = 1, .shape = {12}},
    {.name = "model.layers.0.mlp.up_proj.weight", .n_dims = 2, .shape = {12, 8}},
    {.name = "model.layers.0.post_attention_layernorm.weight", .n_dims = 1, .shape = {8}},
    {.name = "model.layers.0.self_attn.k_proj.bias", .n_dims = 1, .shape = {8}},
    {.name = "model.layers.0.self_attn.k_proj.weight", .n_dims = 2, .shape = {8, 8}},
    {.name = "model.layers.0.self_attn.o_proj.bias", .n_dims = 1, .shape = {8}},
    {.name = "model.layers.0.self_attn.o_proj.weight", .n_dims = 2, .shape = {8, 8}},
    {.name = "model.layers.0.self_attn.q_proj.bias", .n_dims = 1, .shape = {8}},
    {.name = "model.layers.0.self_attn.q_proj.weight", .n_dims = 2, .shape = {8, 8}},
    {.name = "model.layers.0.self_attn.v_proj.bias", .n_dims = 1, .shape = {8}},
    {.name = "model.layers.0.self_attn.v_proj.weight", .n_dims = 2, .shape = {8, 8}},
};
#define N_TINY (sizeof tiny / sizeof *tiny)
#define N_ENDS 3 // those that are not a layer's

static inline bool is(const char *name, const char *wanted) {
    return wanted && strcmp(name, wanted) == 0;
}

// Element i of tensor t is t + i / 1000: every number tells where it is from.
static inline void write_tensors(const char *file, size_t first, size_t last,
                                 const struct tweak *k) {
    struct tensor list[N_TINY + 1];
    size_t n = 0, from[N_TINY + 1];
    for (size_t t = first; t < last; t++) {
        if (is(tiny[t].name, k->skip)) continue;
        from[n] = t + (t == 0 && k->head_is_embed);
        list[n] = tiny[t];
        list[n].dtype = is(tiny[t].name, k->as_i32)   ? DTYPE_I32
                        : is(tiny[t].name, k->as_f16) ? DTYPE_F16
                                                      : DTYPE_F32;
        if (is(tiny[t].name, k->reshape)) list[n].shape[0]++;
        n++;
    }
    if (k->extra) {
        from[n] = N_TINY;
        list[n++] = (struct tensor){
            .name = k->extra, .n_dims = 4, .shape = {1, 1, 3, 3}, .dtype = DTYPE_F32};
    }
    struct safetensors_writer *w = NULL;
    struct err err;
    assert_int_equal(safetensors_create(&w, tmp_path(&dir, file), list, n, &err), 0);
    for (size_t t = 0; t < n; t++) {
        int64_t count = 1;
        for (int d = 0; d < list[t].n_dims; d++) count *= list[t].shape[d];
        for (int64_t i = 0; i < count; i++) {
            float v = (float)from[t] + (float)i / 1000 + (is(list[t].name, k->change) ? 0.5f : 0);
            uint16_t half = f16_from_f32(v);
            bool short_one = list[t].dtype == DTYPE_F16;
            assert_int_equal(
                safetensors_write(w, short_one ? (void *)&half : &v, short_one ? 2 : 4, &err), 0);
        }
    }
    assert_int_equal(safetensors_finish(w, &err), 0);
}

static inline void write_tiny(const struct tweak *k) {
    char config[1000];
    snprintf(
        config, sizeof config,
        "{\"model_type\":\"llama\",\"vocab_size\":10,\"hidden_size\":8,\"intermediate_size\":12,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"max_position_embeddings\":64,"
        "\"attention_bias\":true,\"mlp_bias\":true%s}",
        k->config ? k->config : "");
    tmp_text(&dir, "config.json", config);
    unlink(tmp_path(&dir, "model.safetensors"));
    unlink(tmp_path(&dir, "model.safetensors.index.json"));
    if (!k->shards) {
        write_tensors("model.safetensors", 0, N_TINY, k);
        return;
    }
    write_tensors("one.safetensors", 0, N_ENDS, k);
    write_tensors("two.safetensors", N_ENDS, N_TINY, k);
    tmp_text(&dir, "model.safetensors.index.json",
             "{\"weight_map\":{\"model.norm.weight\":\"one.safetensors\","
             "\"model.layers.0.mlp.up_proj.weight\":\"two.safetensors\"}}");
}

static inline struct model *load_ok(const char *path, struct fake_backend *f,
                                    const struct split *s) {
    struct model *m = NULL;
    struct err err = {0};
    if (model_load(&m, &(struct model_load_options){.dir = path, .backend = &f->be, .split = s},
                   &err) != 0)
        fail_msg("%s", err.text);
    return m;
}
