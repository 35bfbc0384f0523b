// See inspect.h. Enumerations are printed with the words that config files use.
#include "engine/model/inspect.h"
#include "base/json.h"
#include "base/path.h"
#include "engine/gguf/gguf_folder.h"
#include "engine/model/cache_groups.h"
#include "engine/model/checkpoint.h"
#include "engine/model/fingerprint.h"
#include "engine/model/model.h"
#include "engine/model/parts.h"
#include "engine/model/text_files.h"
#include "engine/model/tied_head.h"
#include "kernels/int8.h"
#include "kvcache/groups.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The memory table answers "how many sessions fit": for chats of up to this many tokens.
#define TABLE_TOKENS 4096
static const int table_sessions[] = {1, 8, 64};

static const char *const norm_words[] = {[NORM_RMS] = "rms", [NORM_LAYER] = "layer"};
static const char *const placement_words[] = {[NORM_PRE] = "pre",
                                              [NORM_OUT] = "output",
                                              [NORM_PRE | NORM_OUT] = "pre and output",
                                              [NORM_POST] = "post"};
static const char *const position_words[] = {[POSITION_LEARNED] = "learned",
                                             [POSITION_SINUSOIDAL] = "sinusoidal",
                                             [POSITION_ROTARY] = "rotary",
                                             [POSITION_ALIBI] = "alibi"};
static const char *const rope_words[] = {[ROPE_HALF] = "half", [ROPE_INTERLEAVED] = "interleaved"};
static const char *const activation_words[] = {[ACT_SILU] = "silu",
                                               [ACT_GELU] = "gelu",
                                               [ACT_GELU_TANH] = "gelu_tanh",
                                               [ACT_RELU] = "relu",
                                               [ACT_QUICK_GELU] = "quick_gelu",
                                               [ACT_RELU2] = "relu2",
                                               [ACT_RELU6] = "relu6",
                                               [ACT_LEAKY_RELU] = "leaky_relu",
                                               [ACT_SIGMOID] = "sigmoid",
                                               [ACT_TANH] = "tanh",
                                               [ACT_MISH] = "mish",
                                               [ACT_LINEAR] = "linear"};

static void put_format(struct json_writer *w, const struct model_config *c,
                       const struct checkpoint *cp) {
    bool ft = c->format == FORMAT_FASTERTRANSFORMER;
    json_put_string(w, "format", ft ? "fastertransformer" : "hugging_face");
    if (ft) json_put_int(w, "tensor_parallel", checkpoint_ft_ranks(cp));
}

static void put_experts(struct json_writer *w, const struct experts_config *x) {
    if (!x->n_experts) return;
    json_put_int(w, "n_experts", x->n_experts);
    json_put_int(w, "n_experts_chosen", x->n_chosen);
    json_put_int(w, "expert_width", x->width);
    json_put_int(w, "shared_expert_width", x->shared_width);
}

static void put_shape(struct json_writer *w, const struct model_config *c) {
    json_put_int(w, "n_params", model_config_n_params(c));
    json_put_int(w, "n_layers", c->n_layers);
    json_put_int(w, "width", c->width);
    json_put_int(w, "n_heads", c->kinds[0].attention.n_heads);
    json_put_int(w, "n_kv_heads", c->kinds[0].attention.n_kv_heads);
    json_put_int(w, "head_dim", c->kinds[0].attention.head_dim);
    json_put_int(w, "ffn_width", c->kinds[0].feed.width);
    put_experts(w, &model_layer(c, c->n_layers - 1)->feed.experts);
    json_put_int(w, "vocab_size", c->vocab_size);
    json_put_int(w, "max_positions", c->max_positions);
}

// The widest window of a layer, and the first layer that has one; 0: none has.
static void put_window(struct json_writer *w, const struct model_config *c) {
    int32_t window = 0, first = 0;
    for (int32_t i = c->n_layers - 1; i >= 0; i--) {
        int32_t own = model_layer(c, i)->attention.window;
        if (own > window) window = own;
        if (own > 0) first = i;
    }
    json_put_int(w, "sliding_window", window);
    json_put_int(w, "first_windowed_layer", first);
}

// The distinct layers, and each layer's number in them.
static void put_layers(struct json_writer *w, const struct model_config *c) {
    put_window(w, c);
    json_open(w, "kinds", '[');
    for (int32_t i = 0; i < c->n_kinds; i++) {
        const struct attention_config *a = &c->kinds[i].attention;
        json_open(w, NULL, '{');
        json_put_int(w, "n_kv_heads", a->n_kv_heads);
        json_put_int(w, "head_dim", a->head_dim);
        json_put_int(w, "sliding_window", a->window);
        json_put_int(w, "rope", a->rope);
        if (a->soft_cap != 0) json_put_float(w, "soft_cap", a->soft_cap);
        json_put_int(w, "ffn_width", c->kinds[i].feed.width);
        put_experts(w, &c->kinds[i].feed.experts);
        json_put_bool(w, "own_keys_and_values", !a->kv_from);
        json_close(w, '}');
    }
    json_close(w, ']');
    json_open(w, "kind_of_layer", '[');
    for (int32_t i = 0; i < c->n_layers; i++) json_put_int(w, NULL, c->kind_of[i]);
    json_close(w, ']');
}

static void put_switches(struct json_writer *w, const struct model_config *c) {
    json_put_string(w, "norm", norm_words[c->norm]);
    json_put_string(w, "norm_placement", placement_words[c->kinds[0].norms]);
    json_put_float(w, "norm_eps", c->norm_eps);
    json_put_bool(w, "norm_bias", c->norm_bias);
    json_put_bool(w, "embed_norm", c->embed_norm);
    json_put_bool(w, "final_norm", c->final_norm);
    json_put_bool(w, "qk_norm", c->kinds[0].attention.qk_norm);
    json_put_string(w, "positions", position_words[c->positions]);
    json_put_int(w, "position_offset", c->position_offset);
    if (c->positions == POSITION_ROTARY) {
        json_open(w, "rope", '{');
        json_put_string(w, "style", rope_words[c->ropes[0].style]);
        json_put_int(w, "rot_dim", c->ropes[0].rot_dim);
        json_put_float(w, "scale", c->ropes[0].scale);
        if (c->ropes[0].short_len > 0) json_put_int(w, "short_len", c->ropes[0].short_len);
        json_put_float(w, "lowest_frequency", c->ropes[0].inv_freq[c->ropes[0].rot_dim / 2 - 1]);
        json_close(w, '}');
    }
    json_put_string(w, "activation", activation_words[c->kinds[0].feed.activation]);
    json_put_bool(w, "gated", c->kinds[0].feed.gated);
    if (c->logit_soft_cap != 0) json_put_float(w, "logit_soft_cap", c->logit_soft_cap);
    if (c->logit_scale != 0) json_put_float(w, "logit_scale", c->logit_scale);
    json_put_bool(w, "qkv_bias", c->kinds[0].attention.qkv_bias);
    json_put_bool(w, "o_bias", c->kinds[0].attention.o_bias);
    json_put_bool(w, "ffn_bias", c->kinds[0].feed.bias);
    json_put_bool(w, "head_bias", c->head_bias);
    json_put_bool(w, "parallel_residual", c->kinds[0].parallel);
    json_put_bool(w, "shared_norm", c->kinds[0].shared_norm);
    json_put_bool(w, "normed_residual", c->kinds[0].normed_residual);
    json_put_float(w, "attention_scale", c->kinds[0].attention.scale);
    json_put_bool(w, "scale_by_layer", c->kinds[0].attention.scale_by_layer);
    json_put_float(w, "embed_scale", c->embed_scale);
    json_put_int(w, "embed_width", c->embed_width);
    json_put_bool(w, "tied_head", c->tied_head);
    put_layers(w, c);
}

static void put_suggestion(struct json_writer *w, const char *key, float v) {
    if (v >= 0) json_put_float(w, key, v);
}

static void put_tokens(struct json_writer *w, const struct model_config *c) {
    json_put_int_or_null(w, "bos_id", c->bos_id);
    json_put_ids(w, "eos_ids", c->eos_ids, (size_t)c->n_eos);
    json_open(w, "suggested_sampling", '{');
    put_suggestion(w, "temperature", c->temperature);
    put_suggestion(w, "top_p", c->top_p);
    put_suggestion(w, "top_k", c->top_k);
    put_suggestion(w, "repetition_penalty", c->repetition_penalty);
    json_close(w, '}');
}

// Tensors of one number format, or of one kind of few bits.
struct tally {
    char name[64];
    int64_t count, bytes;
};
enum { MAX_TALLIES = 64 };

static void tally_up(struct tally *all, int *n, const char *name, int64_t bytes) {
    int i = 0;
    while (i < *n && strcmp(all[i].name, name) != 0) i++;
    if (i == MAX_TALLIES) i--; // more kinds than files have
    if (i == *n) {
        snprintf(all[i].name, sizeof all[i].name, "%s", name);
        (*n)++;
    }
    all[i].count++;
    all[i].bytes += bytes;
}

// Matrices of few bits count as what they take where the backend keeps them so (the CPU).
static int64_t tally_tensor(const struct checkpoint *cp, const struct tensor *t, struct tally *all,
                            int *n) {
    struct group_format f;
    char name[64];
    int64_t rows = 1, bytes = (int64_t)t->bytes;
    if (t->n_dims < 2 || !checkpoint_groups(cp, t, &f)) {
        tally_up(all, n, dtype_name(t->dtype), bytes);
        return bytes;
    }
    for (int i = 0; i + 1 < t->n_dims; i++) rows *= t->shape[i];
    bytes = rows * group_format_row_bytes(&f, t->shape[t->n_dims - 1]);
    group_format_text(name, &f);
    tally_up(all, n, name, bytes);
    return bytes;
}

// Returns the bytes of all tensors.
static int64_t put_tensors(struct json_writer *w, const struct checkpoint *cp) {
    struct tally all[MAX_TALLIES] = {0};
    int64_t total = 0;
    int n = 0;
    for (size_t i = 0; i < checkpoint_count(cp); i++)
        total += tally_tensor(cp, checkpoint_at(cp, i), all, &n);
    json_open(w, "tensors", '{');
    json_put_int(w, "count", (int64_t)checkpoint_count(cp));
    json_put_int(w, "bytes", total);
    json_open(w, "dtypes", '{');
    for (int i = 0; i < n; i++) {
        json_open(w, all[i].name, '{');
        json_put_int(w, "count", all[i].count);
        json_put_int(w, "bytes", all[i].bytes);
        json_close(w, '}');
    }
    json_close(w, '}');
    json_close(w, '}');
    return total;
}

// A position's bytes in one block of each group, by the cache's number format.
struct kv_rates {
    int64_t f32, bf16, int8; // fp8 takes what int8 takes (kernels/kv_quant.h)
};

static struct kv_rates rates_of(int64_t vectors, int64_t values) {
    return (struct kv_rates){4 * values, 2 * values, values + vectors * (int64_t)sizeof(float)};
}

// All blocks have the size of the largest group's.
static struct kv_rates block_rates(const struct kv_groups *g) {
    struct kv_rates most = {0};
    for (int32_t i = 0; i < g->n; i++) {
        const struct kv_group *of = &g->group[i];
        int64_t vectors = (of->latent ? 1 : 2) * (int64_t)of->n_layers * of->kv_heads;
        struct kv_rates r = rates_of(vectors, vectors * of->head_dim);
        if (r.f32 > most.f32) most.f32 = r.f32, most.bf16 = r.bf16;
        if (r.int8 > most.int8) most.int8 = r.int8;
    }
    return most;
}

// Positions that a session of so many tokens holds between its steps, summed over the groups.
static int64_t held_positions(const struct kv_groups *g, int64_t tokens) {
    int64_t sum = 0;
    for (int32_t i = 0; i < g->n; i++) {
        int32_t window = g->group[i].window;
        sum += window > 0 && window < tokens ? window : tokens;
    }
    return sum;
}

static void put_bytes(struct json_writer *w, const struct kv_rates *r, int64_t positions,
                      int64_t beside) {
    json_put_int(w, "bytes_kv_f32", beside + positions * r->f32);
    json_put_int(w, "bytes_kv_bf16", beside + positions * r->bf16);
    json_put_int(w, "bytes_kv_int8", beside + positions * r->int8);
}

static void put_rates(struct json_writer *w, const char *key, const struct kv_rates *r) {
    json_open(w, key, '{');
    json_put_int(w, "f32", r->f32);
    json_put_int(w, "bf16", r->bf16);
    json_put_int(w, "int8", r->int8);
    json_close(w, '}');
}

// Bytes of a token that every layer sees; then what sessions hold, whose windowed layers forget.
static void put_memory(struct json_writer *w, const struct model_config *c,
                       const struct kv_groups *groups, int64_t weight_bytes) {
    int64_t values = 0, vectors = 0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        const struct attention_config *a = &model_layer(c, i)->attention;
        if (a->kv_from) continue;
        const int64_t own = (a->kv_rank ? 1 : 2) * (int64_t)a->n_kv_heads;
        values += own * a->head_dim;
        vectors += own;
    }
    const struct kv_rates token = rates_of(vectors, values), block = block_rates(groups);
    int64_t tokens = c->max_positions < TABLE_TOKENS ? c->max_positions : TABLE_TOKENS;
    put_rates(w, "kv_bytes_per_token", &token);
    json_open(w, "longest_session", '{');
    json_put_int(w, "tokens", c->max_positions);
    put_bytes(w, &block, held_positions(groups, c->max_positions), 0);
    json_close(w, '}');
    json_open(w, "memory", '[');
    for (size_t i = 0; i < sizeof table_sessions / sizeof *table_sessions; i++) {
        int64_t held = table_sessions[i] * held_positions(groups, tokens);
        json_open(w, NULL, '{');
        json_put_int(w, "sessions", table_sessions[i]);
        json_put_int(w, "tokens_each", tokens);
        put_bytes(w, &block, held, weight_bytes);
        json_close(w, '}');
    }
    json_close(w, ']');
}

// Bytes of a matrix and its scales.
static int64_t bytes_of(enum weight_format f, int64_t rows, int64_t cols) {
    int64_t bytes = f == WEIGHTS_INT8 ? int8_panels(rows) * int8_panel_bytes(cols) : rows * cols;
    return bytes + rows * (int64_t)sizeof(float);
}

// Bytes of all tensors once every matrix has 8 bits; -1 with *why if a tensor is missing or
// wrong.
static int64_t weight_bytes(const struct model_config *c, struct checkpoint *cp,
                            enum weight_format f, struct err *why) {
    size_t n = checkpoint_count(cp);
    uint8_t *roles = calloc(n + 1, sizeof *roles);
    int64_t bytes = roles ? 0 : err_set(why, E_NOMEM, "no memory for %zu tensors", n);
    if (roles && model_tensor_roles(c, cp, roles, NULL, why) < 0) bytes = -1;
    for (size_t i = 0; i < n && bytes >= 0; i++) {
        const struct tensor *t = checkpoint_at(cp, i);
        bool turned = roles[i] == TENSOR_TRANSPOSED, stored = part_is_8bit(t);
        if (roles[i] == TENSOR_UNUSED) continue;
        if (roles[i] == TENSOR_OTHER || stored)
            bytes += (int64_t)t->bytes;
        else
            bytes += bytes_of(f, t->shape[turned], t->shape[!turned]);
    }
    free(roles);
    return bytes;
}

static void put_weights(struct json_writer *w, const struct model_config *c,
                        struct checkpoint *cp) {
    struct err why = {0};
    int64_t int8 = weight_bytes(c, cp, WEIGHTS_INT8, &why);
    int64_t fp8 = weight_bytes(c, cp, WEIGHTS_FP8, &why);
    json_put_string(w, "weight_dtype", model_weight_format(c, cp));
    if (int8 >= 0 && fp8 >= 0) { // only formats that can be requested
        if (!c->fp8) json_put_int(w, "weight_bytes_int8", int8);
        if (!c->int8) json_put_int(w, "weight_bytes_fp8", fp8);
    } else {
        json_put_string(w, "weights_error", why.text);
    }
}

// --- files beside the weights ---

static const char *template_file(const char *dir) {
    char path[PATH_MAX];
    cJSON *json = NULL;
    if (path_holds(dir, "chat_template.jinja", R_OK)) return "chat_template.jinja";
    if ((size_t)snprintf(path, sizeof path, "%s/tokenizer_config.json", dir) >= sizeof path)
        return NULL;
    // The tokenizer reports a broken file; here it counts as one without a template.
    if (gguf_is(dir))
        gguf_folder_templates(&json, dir, NULL);
    else if (path_holds(dir, "tokenizer_config.json", R_OK))
        json = json_parse_file(path, &json_limits_file, NULL);
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "chat_template");
    bool there = item && !cJSON_IsNull(item);
    cJSON_Delete(json);
    return there ? "tokenizer_config.json" : NULL;
}

int model_inspect(const char *dir, struct json_writer *w, struct err *err) {
    struct model_config c;
    struct checkpoint *cp = NULL;
    struct kv_groups groups = {0};
    char fingerprint[FINGERPRINT_LEN + 1], text[PATH_MAX];
    TRY(model_config_load(&c, dir, err));
    TRY(text_files_dir(text, dir, NULL, err));
    TRY(checkpoint_open(&cp, dir, err));
    int rc = tied_head_settle(&c, cp, err);
    if (rc == 0) rc = fingerprint_compute(fingerprint, &c, cp, err);
    if (rc == 0) rc = model_config_cache_groups(&c, &groups, err);
    if (rc == 0) {
        json_put_string(w, "family", c.family);
        put_format(w, &c, cp);
        // A GGUF file of few bits names no other format.
        json_put_string(w, "dtype",
                        gguf_is(dir) ? model_weight_format(&c, cp) : dtype_name(c.dtype));
        put_shape(w, &c);
        put_switches(w, &c);
        put_tokens(w, &c);
        put_weights(w, &c, cp);
        put_memory(w, &c, &groups, put_tensors(w, cp));
        json_put_string(w, "tokenizer_file", text_files_tokenizer(text));
        json_put_string(w, "chat_template_file", template_file(text));
        json_put_string(w, "fingerprint", fingerprint);
    }
    kv_groups_release(&groups);
    checkpoint_close(cp);
    return rc;
}
