// FasterTransformer folders as its converters write them from Hugging Face's models, with formulas
// of their own, independent of the program's code for the layout. For small f32 models of tests.
//
// The facts are those of the converters of GPT-2, OPT, BLOOM, GPT-J and GPT-NeoX in FasterTransformer 5.3.
#pragma once
#include "engine/model/checkpoint.h"
#include "tests/unit/tmp_dir.h"
#include <ftw.h>
#include <stdbool.h>

struct ft_writer {
    struct tmp_dir dir;   // FOLDER
    char folder[128];     // FOLDER/N-gpu
    struct checkpoint *c; // the source
    const char *family;
    int n_ranks, width, n_heads, ffn, n_layers, vocab, positions;
    bool head; // BLOOM's and OPT's: a copy of the embedding, as the converters leave it
};

static inline int ft_remove_one(const char *path, const struct stat *s, int type, struct FTW *f) {
    return remove(path);
}
static inline void ft_remove(const char *path) {
    nftw(path, ft_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline float ft_value(const struct ft_writer *w, const char *name, int64_t i) {
    const struct tensor *t = checkpoint_find(w->c, name);
    if (!t) fail_msg("no tensor %s", name);
    assert_true((size_t)i * dtype_size(t->dtype) < t->bytes);
    if (t->dtype == DTYPE_F32) return ((const float *)t->data)[i];
    assert_int_equal(t->dtype, DTYPE_F16);
    return f16_to_f32(((const uint16_t *)t->data)[i]);
}

static inline FILE *ft_create(const struct ft_writer *w, const char *name) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", w->folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    return f;
}
static inline void ft_put(FILE *f, float v) {
    assert_int_equal(fwrite(&v, sizeof v, 1, f), 1);
}

// A tensor as it is, from value `first` on.
static inline void ft_copy(const struct ft_writer *w, const char *file, const char *tensor,
                           int64_t first, int64_t n) {
    FILE *f = ft_create(w, file);
    for (int64_t i = 0; i < n; i++) ft_put(f, ft_value(w, tensor, first + i));
    assert_int_equal(fclose(f), 0);
}

// --- what lies how in the source ---

// Weight from input i to output o of a matrix of a layer; j of q, k, v.
static inline float ft_weight(const struct ft_writer *w, const char *tensor, int i, int o, int j,
                              int inputs, int outputs) {
    int head_dim = w->width / w->n_heads;
    if (strcmp(w->family, "gpt2") == 0) // Conv1D: (inputs, outputs); q, k, v beside each other
        return strstr(tensor, "c_attn")
                   ? ft_value(w, tensor, (int64_t)i * 3 * outputs + j * outputs + o)
                   : ft_value(w, tensor, (int64_t)i * outputs + o);
    if (strstr(tensor, "query_key_value")) { // BLOOM: (heads, 3, head_dim) outputs
        int row = o / head_dim * 3 * head_dim + j * head_dim + o % head_dim;
        return ft_value(w, tensor, (int64_t)row * inputs + i);
    }
    return ft_value(w, tensor, (int64_t)o * inputs + i);
}

static inline float ft_qkv_bias(const struct ft_writer *w, const char *tensor, int o, int j) {
    int head_dim = w->width / w->n_heads;
    if (strcmp(w->family, "gpt2") == 0) return ft_value(w, tensor, j * w->width + o);
    if (strstr(tensor, "query_key_value"))
        return ft_value(w, tensor, o / head_dim * 3 * head_dim + j * head_dim + o % head_dim);
    return ft_value(w, tensor, o);
}

struct ft_names { // of a layer: "%d" is its number; q, k, v may be one
    const char *layer, *norm1, *norm2, *qkv[3], *o, *up, *down;
};
static inline struct ft_names ft_names_of(const char *family) {
    if (strcmp(family, "gpt2") == 0)
        return (struct ft_names){"transformer.h.%d.%s.%s",
                                 "ln_1",
                                 "ln_2",
                                 {"attn.c_attn", "attn.c_attn", "attn.c_attn"},
                                 "attn.c_proj",
                                 "mlp.c_fc",
                                 "mlp.c_proj"};
    if (strcmp(family, "opt") == 0)
        return (struct ft_names){"model.decoder.layers.%d.%s.%s",
                                 "self_attn_layer_norm",
                                 "final_layer_norm",
                                 {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
                                 "self_attn.out_proj",
                                 "fc1",
                                 "fc2"};
    if (strcmp(family, "bloom") == 0)
        return (struct ft_names){"transformer.h.%d.%s.%s",
                                 "input_layernorm",
                                 "post_attention_layernorm",
                                 {"self_attention.query_key_value",
                                  "self_attention.query_key_value",
                                  "self_attention.query_key_value"},
                                 "self_attention.dense",
                                 "mlp.dense_h_to_4h",
                                 "mlp.dense_4h_to_h"};
    if (strcmp(family, "gpt_neox") == 0)
        return (struct ft_names){
            "gpt_neox.layers.%d.%s.%s",
            "input_layernorm",
            "post_attention_layernorm",
            {"attention.query_key_value", "attention.query_key_value", "attention.query_key_value"},
            "attention.dense",
            "mlp.dense_h_to_4h",
            "mlp.dense_4h_to_h"};
    return (struct ft_names){"transformer.h.%d.%s.%s",
                             "ln_1",
                             NULL,
                             {"attn.q_proj", "attn.k_proj", "attn.v_proj"},
                             "attn.out_proj",
                             "mlp.fc_in",
                             "mlp.fc_out"};
}

// --- a layer ---

static inline const char *ft_name(const struct ft_writer *w, int layer, const char *stem,
                                  const char *suffix) {
    static char names[4][200];
    static int next;
    char *name = names[next++ % 4];
    struct ft_names n = ft_names_of(w->family);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, sizeof names[0], n.layer, layer, stem, suffix);
#pragma GCC diagnostic pop
    return name;
}

static inline void ft_norm(const struct ft_writer *w, int layer, const char *ours,
                           const char *theirs) {
    for (int bias = 0; bias < 2; bias++) {
        char file[200];
        const char *suffix = bias ? "bias" : "weight";
        snprintf(file, sizeof file, "model.layers.%d.%s.%s.bin", layer, theirs, suffix);
        ft_copy(w, file, ft_name(w, layer, ours, suffix), 0, w->width);
    }
}

static inline void ft_rank(const struct ft_writer *w, int layer, int rank) {
    struct ft_names n = ft_names_of(w->family);
    int heads = w->width / w->n_ranks, ffn = w->ffn / w->n_ranks;
    bool gptj = strcmp(w->family, "gptj") == 0;
    char file[200];
    snprintf(file, sizeof file, "model.layers.%d.attention.query_key_value.weight.%d.bin", layer,
             rank);
    FILE *f = ft_create(w, file);
    for (int i = 0; i < w->width; i++)
        for (int j = 0; j < 3; j++)
            for (int c = rank * heads; c < (rank + 1) * heads; c++)
                ft_put(f, ft_weight(w, ft_name(w, layer, n.qkv[j], "weight"), i, c, j, w->width,
                                    w->width));
    assert_int_equal(fclose(f), 0);
    if (!gptj) {
        snprintf(file, sizeof file, "model.layers.%d.attention.query_key_value.bias.%d.bin", layer,
                 rank);
        f = ft_create(w, file);
        for (int j = 0; j < 3; j++)
            for (int c = rank * heads; c < (rank + 1) * heads; c++)
                ft_put(f, ft_qkv_bias(w, ft_name(w, layer, n.qkv[j], "bias"), c, j));
        assert_int_equal(fclose(f), 0);
    }
    snprintf(file, sizeof file, "model.layers.%d.attention.dense.weight.%d.bin", layer, rank);
    f = ft_create(w, file);
    for (int i = rank * heads; i < (rank + 1) * heads; i++)
        for (int o = 0; o < w->width; o++)
            ft_put(f, ft_weight(w, ft_name(w, layer, n.o, "weight"), i, o, 0, w->width, w->width));
    assert_int_equal(fclose(f), 0);
    snprintf(file, sizeof file, "model.layers.%d.mlp.dense_h_to_4h.weight.%d.bin", layer, rank);
    f = ft_create(w, file);
    for (int i = 0; i < w->width; i++)
        for (int o = rank * ffn; o < (rank + 1) * ffn; o++)
            ft_put(f, ft_weight(w, ft_name(w, layer, n.up, "weight"), i, o, 0, w->width, w->ffn));
    assert_int_equal(fclose(f), 0);
    snprintf(file, sizeof file, "model.layers.%d.mlp.dense_h_to_4h.bias.%d.bin", layer, rank);
    ft_copy(w, file, ft_name(w, layer, n.up, "bias"), rank * ffn, ffn);
    snprintf(file, sizeof file, "model.layers.%d.mlp.dense_4h_to_h.weight.%d.bin", layer, rank);
    f = ft_create(w, file);
    for (int i = rank * ffn; i < (rank + 1) * ffn; i++)
        for (int o = 0; o < w->width; o++)
            ft_put(f, ft_weight(w, ft_name(w, layer, n.down, "weight"), i, o, 0, w->ffn, w->width));
    assert_int_equal(fclose(f), 0);
}

static inline void ft_layer(const struct ft_writer *w, int layer) {
    struct ft_names n = ft_names_of(w->family);
    char file[200];
    ft_norm(w, layer, n.norm1, "input_layernorm");
    if (n.norm2) ft_norm(w, layer, n.norm2, "post_attention_layernorm");
    for (int rank = 0; rank < w->n_ranks; rank++) ft_rank(w, layer, rank);
    snprintf(file, sizeof file, "model.layers.%d.attention.dense.bias.bin", layer);
    if (n.norm2) ft_copy(w, file, ft_name(w, layer, n.o, "bias"), 0, w->width);
    snprintf(file, sizeof file, "model.layers.%d.mlp.dense_4h_to_h.bias.bin", layer);
    ft_copy(w, file, ft_name(w, layer, n.down, "bias"), 0, w->width);
    if (strcmp(w->family, "gpt_neox") != 0) return;
    snprintf(file, sizeof file, "model.layers.%d.mlp.attention.bias.sum.bin", layer);
    FILE *f = ft_create(w, file);
    for (int i = 0; i < w->width; i++)
        ft_put(f, ft_value(w, ft_name(w, layer, n.o, "bias"), i) +
                      ft_value(w, ft_name(w, layer, n.down, "bias"), i));
    assert_int_equal(fclose(f), 0);
}

// --- the whole ---

static inline void ft_final_norm(const struct ft_writer *w, const char *ours) {
    char name[100];
    snprintf(name, sizeof name, "%s.weight", ours);
    ft_copy(w, "model.final_layernorm.weight.bin", name, 0, w->width);
    snprintf(name, sizeof name, "%s.bias", ours);
    ft_copy(w, "model.final_layernorm.bias.bin", name, 0, w->width);
}

static inline void ft_ends(const struct ft_writer *w) {
    int64_t table = (int64_t)w->vocab * w->width, positions = (int64_t)w->positions * w->width;
    if (strcmp(w->family, "gpt2") == 0) {
        ft_copy(w, "model.wte.bin", "transformer.wte.weight", 0, table);
        ft_copy(w, "model.wpe.bin", "transformer.wpe.weight", 0, positions);
        ft_final_norm(w, "transformer.ln_f");
    } else if (strcmp(w->family, "opt") == 0) { // its first two positions are dropped
        const char *embed = "model.decoder.embed_tokens.weight";
        ft_copy(w, "model.wte.bin", embed, 0, table);
        ft_copy(w, "model.lm_head.weight.bin", embed, 0, table);
        ft_copy(w, "model.wpe.bin", "model.decoder.embed_positions.weight", 2 * w->width,
                positions);
        ft_final_norm(w, "model.decoder.final_layer_norm");
    } else if (strcmp(w->family, "bloom") == 0) {
        const char *embed = "transformer.word_embeddings.weight";
        ft_copy(w, "model.wte.bin", embed, 0, table);
        ft_copy(w, "model.pre_decoder_layernorm.weight.bin",
                "transformer.word_embeddings_layernorm.weight", 0, w->width);
        ft_copy(w, "model.pre_decoder_layernorm.bias.bin",
                "transformer.word_embeddings_layernorm.bias", 0, w->width);
        ft_final_norm(w, "transformer.ln_f");
        if (!w->head) return;
        FILE *f = ft_create(w, "model.lm_head.weight.bin"); // transposed, as its converter has it
        for (int i = 0; i < w->width; i++)
            for (int v = 0; v < w->vocab; v++)
                ft_put(f, ft_value(w, embed, (int64_t)v * w->width + i));
        assert_int_equal(fclose(f), 0);
    } else if (strcmp(w->family, "gpt_neox") == 0) {
        ft_copy(w, "model.wte.bin", "gpt_neox.embed_in.weight", 0, table);
        ft_copy(w, "model.lm_head.weight.bin", "embed_out.weight", 0, table);
        ft_final_norm(w, "gpt_neox.final_layer_norm");
    } else {
        ft_copy(w, "model.wte.bin", "transformer.wte.weight", 0, table);
        ft_copy(w, "model.lm_head.weight.bin", "lm_head.weight", 0, table);
        ft_copy(w, "model.lm_head.bias.bin", "lm_head.bias", 0, w->vocab);
        ft_final_norm(w, "transformer.ln_f");
    }
}

// config.ini as that family's converter writes it, which may lack keys.
static inline void ft_config_text(const struct ft_writer *w, char *out, size_t cap) {
    int n = snprintf(out, cap,
                     "[%s]\nmodel_name = %s\nhead_num = %d\nsize_per_head = %d\ninter_size = %d\n"
                     "num_layer = %d\nvocab_size = %d\nstart_id = 0\nend_id = 1\n"
                     "weight_data_type = fp32\n",
                     strcmp(w->family, "gptj") == 0       ? "gptj"
                     : strcmp(w->family, "gpt_neox") == 0 ? "gptneox"
                                                          : "gpt",
                     w->family, w->n_heads, w->width / w->n_heads, w->ffn, w->n_layers, w->vocab);
    const char *more = "";
    if (strcmp(w->family, "gptj") == 0) more = "rotary_embedding = 8\n";
    if (strcmp(w->family, "gpt_neox") == 0) more = "rotary_embedding = 4\nuse_gptj_residual = 1\n";
    if (strcmp(w->family, "opt") == 0)
        more = "layernorm_eps = 1e-5\nlayernorm_type = pre_layernorm\nactivation_type = Relu\n"
               "has_post_decoder_layernorm = 1\nint8 = False\n";
    if (strcmp(w->family, "bloom") == 0)
        more = "tensor_para_size=%d\nmodel_variant=bloom-pre\nlayernorm_eps=1e-05\n"
               "layernorm_type=pre_layernorm\nactivation_type=Gelu\n"
               "has_positional_encoding=False\nhas_pre_decoder_layernorm=True\n"
               "has_post_decoder_layernorm=True\nuse_attention_linear_bias=True\n";
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-extra-args"
    n += snprintf(out + n, cap - (size_t)n, more, w->n_ranks);
#pragma GCC diagnostic pop
    if (strcmp(w->family, "gpt2") == 0 || strcmp(w->family, "opt") == 0)
        snprintf(out + n, cap - (size_t)n, "max_pos_seq_len = %d\n", w->positions);
}

// The fixture of a family for n ranks: FOLDER/N-gpu. All fixtures have 3 layers, 4 heads, width 64,
// vocab 320, 256 positions; OPT's feed-forward is of 128, the others' of 256.
static inline void ft_writer_open(struct ft_writer *w, const char *family, int n_ranks, bool head) {
    char source[100], config[1500], path[200];
    struct err err = {0};
    *w = (struct ft_writer){.family = family,
                            .n_ranks = n_ranks,
                            .width = 64,
                            .n_heads = 4,
                            .ffn = strcmp(family, "opt") == 0 ? 128 : 256,
                            .n_layers = 3,
                            .vocab = 320,
                            .positions = 256,
                            .head = head};
    tmp_dir_open(&w->dir);
    snprintf(w->folder, sizeof w->folder, "%s/%d-gpu", w->dir.path, n_ranks);
    assert_int_equal(mkdir(w->folder, 0777), 0);
    snprintf(source, sizeof source, "tests/fixtures/models/%s", family);
    if (checkpoint_open(&w->c, source, &err) < 0) fail_msg("%s", err.text);
    ft_config_text(w, config, sizeof config);
    snprintf(path, sizeof path, "%d-gpu/config.ini", n_ranks);
    tmp_text(&w->dir, path, config);
    ft_ends(w);
    for (int i = 0; i < w->n_layers; i++) ft_layer(w, i);
    checkpoint_close(w->c);
    w->c = NULL;
}

static inline void ft_writer_close(struct ft_writer *w) {
    ft_remove(w->dir.path);
}
