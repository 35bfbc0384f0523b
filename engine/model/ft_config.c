// See ft_config.h.
#include "engine/model/ft_config.h"
#include "base/buf.h"
#include "engine/model/ft_ini.h"
#include "engine/model/prompt.h"
#include "engine/model/rope.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

// What a model without max_pos_seq_len was trained on: BLOOM and GPT-J alike. (FasterTransformer
// took 16384, the size of its own buffers.)
#define DEFAULT_POSITIONS 2048

struct ft_reader {
    struct ft_config *out;
    const struct ft_ini *ini;
    const char *section; // "gpt", "gptj" or "gptneox"
};

// --- words ---

static const struct {
    const char *name;
    enum dtype dtype;
} dtypes[] = {{"fp32", DTYPE_F32}, {"fp16", DTYPE_F16}, {"bf16", DTYPE_BF16}};
#define N_DTYPES (sizeof dtypes / sizeof *dtypes)

const char *ft_dtype_name(enum dtype dtype) {
    for (size_t i = 0; i < N_DTYPES; i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    return "?";
}

int ft_dtype_find(const char *name, enum dtype *out) {
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (strcmp(dtypes[i].name, name) != 0) continue;
        *out = dtypes[i].dtype;
        return 0;
    }
    return E_NOTFOUND;
}

// FasterTransformer's Gelu is the form with tanh; it knows no other.
static const struct {
    const char *name;
    enum activation activation;
} activations[] = {{"Gelu", ACT_GELU_TANH}, {"Relu", ACT_RELU}, {"Silu", ACT_SILU}};
#define N_ACTIVATIONS (sizeof activations / sizeof *activations)

const char *ft_activation_name(enum activation activation) {
    for (size_t i = 0; i < N_ACTIVATIONS; i++)
        if (activations[i].activation == activation) return activations[i].name;
    return NULL;
}

// --- keys ---

static int read_i32(const struct ft_reader *r, const char *name, int64_t min, int64_t max,
                    int32_t *out, struct err *err) {
    int64_t v;
    int rc = ft_ini_int(r->ini, r->section, name, min, max, &v, err);
    if (rc == FT_INI_PRESENT) *out = (int32_t)v;
    return rc;
}

static int require_i32(const struct ft_reader *r, const char *name, int64_t max, int32_t *out,
                       struct err *err) {
    int rc = read_i32(r, name, 1, max, out, err);
    if (rc != FT_INI_ABSENT) return rc;
    return err_set(err, E_FORMAT, "%s: '%s' is missing in [%s]", r->ini->path, name, r->section);
}

static int read_bool(const struct ft_reader *r, const char *name, bool *out, struct err *err) {
    return ft_ini_bool(r->ini, r->section, name, out, err);
}

static int read_shape(const struct ft_reader *r, struct err *err) {
    struct model_config *c = &r->out->model;
    TRY(require_i32(r, "head_num", MODEL_MAX_HEADS, &c->kinds[0].attention.n_heads, err));
    TRY(require_i32(r, "size_per_head", MODEL_MAX_HEAD_DIM, &c->kinds[0].attention.head_dim, err));
    TRY(require_i32(r, "inter_size", MODEL_MAX_FFN, &c->kinds[0].feed.width, err));
    TRY(require_i32(r, "num_layer", MODEL_MAX_LAYERS, &c->n_layers, err));
    TRY(require_i32(r, "vocab_size", MODEL_MAX_VOCAB, &c->vocab_size, err));
    int64_t width = (int64_t)c->kinds[0].attention.n_heads * c->kinds[0].attention.head_dim;
    if (width > MODEL_MAX_WIDTH)
        return err_set(err, E_LIMIT, "%s: 'head_num' %d times 'size_per_head' %d is over %d",
                       r->ini->path, c->kinds[0].attention.n_heads, c->kinds[0].attention.head_dim,
                       MODEL_MAX_WIDTH);
    c->kinds[0].attention.n_kv_heads = c->kinds[0].attention.n_heads;
    c->width = c->embed_width = (int32_t)width;
    c->kinds[0].attention.scale = (float)(1.0 / sqrt(c->kinds[0].attention.head_dim));
    return 0;
}

static int read_dtype(const struct ft_reader *r, struct err *err) {
    const char *name = "fp32"; // as FasterTransformer
    ft_ini_string(r->ini, r->section, "weight_data_type", &name);
    if (ft_dtype_find(name, &r->out->model.dtype) == 0) return 0;
    return err_set(err, E_UNSUPPORTED,
                   "%s: 'weight_data_type' is '%.40s'; known are fp32, fp16, bf16", r->ini->path,
                   name);
}

// Python's None, and -1, mean that there is none.
static int read_token(const struct ft_reader *r, const char *name, int32_t *out, struct err *err) {
    const char *text;
    *out = -1;
    if (ft_ini_string(r->ini, r->section, name, &text) == FT_INI_PRESENT &&
        strcasecmp(text, "none") == 0)
        return 0;
    return read_i32(r, name, -1, r->out->model.vocab_size - 1, out, err);
}

static int read_tokens(const struct ft_reader *r, struct err *err) {
    struct model_config *c = &r->out->model;
    int32_t end;
    TRY(read_token(r, "start_id", &c->bos_id, err));
    TRY(read_token(r, "end_id", &end, err));
    if (end >= 0) c->eos_ids[c->n_eos++] = end;
    return 0;
}

static int read_activation(const struct ft_reader *r, struct err *err) {
    const char *name = "Gelu";
    ft_ini_string(r->ini, r->section, "activation_type", &name);
    for (size_t i = 0; i < N_ACTIVATIONS; i++) {
        if (strcasecmp(name, activations[i].name) != 0) continue;
        r->out->model.kinds[0].feed.activation = activations[i].activation;
        return 0;
    }
    return err_set(err, E_UNSUPPORTED,
                   "%s: 'activation_type' is '%.40s'; known are Gelu, Relu, Silu", r->ini->path,
                   name);
}

// BLOOM's apply_residual_connection_post_layernorm, which the converter writes as post_layernorm:
// its authors mean a pre-norm layer that adds to the normed stream.
static bool is_bloom_post(const struct ft_reader *r, const char *variant) {
    const struct model_config *c = &r->out->model;
    if (strcmp(variant, "bloom-post") == 0) return true;
    return !*variant && c->positions == POSITION_ALIBI && c->embed_norm;
}

static int read_placement(const struct ft_reader *r, const char *variant, struct err *err) {
    const char *type = "pre_layernorm";
    ft_ini_string(r->ini, r->section, "layernorm_type", &type);
    bool post = strcmp(type, "post_layernorm") == 0;
    if (!post && strcmp(type, "pre_layernorm") != 0)
        return err_set(err, E_UNSUPPORTED,
                       "%s: 'layernorm_type' is '%.40s'; known are pre_layernorm, post_layernorm",
                       r->ini->path, type);
    if (post && is_bloom_post(r, variant))
        r->out->model.kinds[0].normed_residual = true;
    else if (post)
        r->out->model.kinds[0].norms = NORM_POST;
    return 0;
}

// --- unsupported features ---

static int refuse_key(const struct ft_reader *r, const char *section, const char *name,
                      struct err *err) {
    bool on = false;
    TRY(ft_ini_bool(r->ini, section, name, &on, err));
    if (!on) return 0;
    return err_set(err, E_UNSUPPORTED, "%s: '%s' is not supported", r->ini->path, name);
}

static int refuse_unknown(const struct ft_reader *r, struct err *err) {
    int64_t n = 0;
    TRY(refuse_key(r, r->section, "has_adapters", err));
    TRY(refuse_key(r, "structure", "gpt_with_moe", err));
    TRY(ft_ini_int(r->ini, r->section, "expert_num", 0, INT32_MAX, &n, err));
    if (n == 0) TRY(ft_ini_int(r->ini, "structure", "expert_num", 0, INT32_MAX, &n, err));
    if (n > 0)
        return err_set(err, E_UNSUPPORTED, "%s: 'expert_num' %lld is not supported", r->ini->path,
                       (long long)n);
    return 0;
}

// --- prompt learning ---

static int read_task(const struct ft_reader *r, int32_t i, enum ft_prompt_type type,
                     struct err *err) {
    struct ft_task *t = &r->out->tasks[i];
    char section[32];
    const char *name = NULL;
    int64_t length = 0;
    snprintf(section, sizeof section, "task_%d", i);
    if (!ft_ini_has_section(r->ini, section))
        return err_set(err, E_FORMAT, "%s: [%s] is missing: 'num_tasks' counts it", r->ini->path,
                       section);
    if (ft_ini_string(r->ini, section, "task_name", &name) != FT_INI_PRESENT || !name[0])
        return err_set(err, E_FORMAT, "%s: 'task_name' is missing in [%s]", r->ini->path, section);
    if (!prompt_name_valid(name))
        return err_set(err, E_FORMAT,
                       "%s: 'task_name' in [%s] is not 1 to %d letters, digits, spaces, '_', '-', "
                       "'.'",
                       r->ini->path, section, PROMPT_NAME_MAX);
    int rc = ft_ini_int(r->ini, section, "prompt_length", 1, PROMPT_MAX_ROWS, &length, err);
    if (rc == FT_INI_ABSENT)
        return err_set(err, E_FORMAT, "%s: 'prompt_length' is missing in [%s]", r->ini->path,
                       section);
    if (rc < 0) return rc;
    *t = (struct ft_task){.type = type, .length = (int32_t)length};
    snprintf(t->name, sizeof t->name, "%s", name);
    return 0;
}

// Tables that are there and not named by a type would be passed over in silence.
static int read_tasks(const struct ft_reader *r, struct err *err) {
    int64_t type = 0, n = 0, start_id = -1;
    TRY(ft_ini_int(r->ini, r->section, "prompt_learning_type", 0, FT_PROMPT_PTUNING, &type, err));
    TRY(ft_ini_int(r->ini, r->section, "num_tasks", 0, FT_MAX_TASKS, &n, err));
    TRY(ft_ini_int(r->ini, r->section, "prompt_learning_start_id", -1, INT32_MAX / 4, &start_id,
                   err));
    r->out->prompt_start_id = (int32_t)start_id;
    if (n > 0 && type != FT_PROMPT_PREFIX && type != FT_PROMPT_PTUNING)
        return err_set(err, E_UNSUPPORTED,
                       "%s: 'num_tasks' is %lld with a 'prompt_learning_type' of %lld; tables are "
                       "of type 2 (prefixes) or 3 (p-tuning)",
                       r->ini->path, (long long)n, (long long)type);
    for (; r->out->n_tasks < n; r->out->n_tasks++)
        TRY(read_task(r, r->out->n_tasks, (enum ft_prompt_type)type, err));
    return 0;
}

// Keys that say nothing about the weights, or only together with those refused above.
static void pass_over(const struct ft_reader *r) {
    static const char *const keys[] = {"model_name", "adapter_inter_size", "int8"};
    const char *value;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        ft_ini_string(r->ini, r->section, keys[i], &value);
    const char *first = ft_ini_unused(r->ini, r->section, &r->out->n_unused);
    snprintf(r->out->unused, sizeof r->out->unused, "%s", first ? first : "");
}

// --- the sections ---

static const struct model_config gpt_base = {.family = "gpt",
                                             .positions = POSITION_LEARNED,
                                             .final_norm = true,
                                             .kinds[0].attention.qkv_bias = true,
                                             .kinds[0].attention.o_bias = true,
                                             .tied_head = true};
static const struct model_config gptj_base = {.family = "gptj",
                                              .positions = POSITION_ROTARY,
                                              .ropes[0].style = ROPE_INTERLEAVED,
                                              .final_norm = true,
                                              .kinds[0].feed.activation = ACT_GELU_TANH,
                                              .kinds[0].parallel = true,
                                              .kinds[0].shared_norm = true,
                                              .head_bias = true};
// Its Gelu is the form with tanh, whatever the model was trained with.
static const struct model_config gptneox_base = {.family = "gpt_neox",
                                                 .positions = POSITION_ROTARY,
                                                 .ropes[0].style = ROPE_HALF,
                                                 .final_norm = true,
                                                 .kinds[0].feed.activation = ACT_GELU_TANH,
                                                 .kinds[0].attention.qkv_bias = true};

static int read_positions(const struct ft_reader *r, struct err *err) {
    struct model_config *c = &r->out->model;
    bool table = true, alibi = false;
    TRY(read_bool(r, "has_positional_encoding", &table, err));
    TRY(read_bool(r, "use_attention_linear_bias", &alibi, err));
    if (table == alibi)
        return err_set(err, E_UNSUPPORTED,
                       "%s: 'has_positional_encoding' and 'use_attention_linear_bias' are both %s",
                       r->ini->path, table ? "on" : "off");
    if (table) return require_i32(r, "max_pos_seq_len", INT32_MAX, &c->max_positions, err);
    c->positions = POSITION_ALIBI;
    return read_i32(r, "max_pos_seq_len", 1, INT32_MAX, &c->max_positions, err);
}

static int read_gpt(const struct ft_reader *r, struct err *err) {
    struct model_config *c = &r->out->model;
    const char *variant = "";
    ft_ini_string(r->ini, r->section, "model_variant", &variant);
    r->out->head_transposed = strncmp(variant, "bloom", 5) == 0;
    TRY(read_positions(r, err));
    TRY(read_activation(r, err));
    TRY(read_bool(r, "has_pre_decoder_layernorm", &c->embed_norm, err));
    TRY(read_bool(r, "has_post_decoder_layernorm", &c->final_norm, err));
    return read_placement(r, variant, err);
}

static int read_rotary(const struct ft_reader *r, struct err *err) {
    struct model_config *c = &r->out->model;
    struct err why = {0};
    TRY(require_i32(r, "rotary_embedding", c->kinds[0].attention.head_dim, &c->ropes[0].rot_dim,
                    err));
    TRY(read_i32(r, "max_pos_seq_len", 1, INT32_MAX, &c->max_positions, err));
    int rc = rope_plain(&c->ropes[0], &why);
    return rc < 0 ? err_set(err, rc, "%s: %s", r->ini->path, why.text) : 0;
}

// In parallel layers the biases of both projections are one array (struct ft_array), so attention has none.
static int read_gptneox(const struct ft_reader *r, struct err *err) {
    struct model_config *c = &r->out->model;
    bool parallel = true;
    TRY(read_bool(r, "use_gptj_residual", &parallel, err));
    c->kinds[0].parallel = parallel;
    c->kinds[0].attention.o_bias = !parallel;
    return read_rotary(r, err);
}

static const struct ft_section {
    const char *name;
    const struct model_config *base;
    int (*read)(const struct ft_reader *r, struct err *err);
} sections[] = {{"gpt", &gpt_base, read_gpt},
                {"gptj", &gptj_base, read_rotary},
                {"gptneox", &gptneox_base, read_gptneox}};

static int find_section(struct ft_reader *r, const struct ft_section **out, struct err *err) {
    char names[200] = "";
    *out = NULL;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        const struct ft_section *s = &sections[i];
        if (!ft_ini_has_section(r->ini, s->name)) continue;
        if (*out)
            return err_set(err, E_FORMAT, "%s: both [%s] and [%s]", r->ini->path, (*out)->name,
                           s->name);
        *out = s;
        r->section = s->name;
    }
    if (*out) return 0;
    for (size_t i = 0, at = 0; i < r->ini->n_sections && at + 50 < sizeof names; i++)
        at += (size_t)snprintf(names + at, sizeof names - at, " [%.40s]", r->ini->sections[i]);
    return err_set(err, E_UNSUPPORTED, "%s: none of [gpt], [gptj], [gptneox]; it has%s",
                   r->ini->path, *names ? names : " no section");
}

static int read_config(struct ft_reader *r, struct err *err) {
    struct model_config *c = &r->out->model;
    double eps = 1e-5;
    const struct ft_section *section;
    TRY(find_section(r, &section, err));
    *c = *section->base;
    c->n_kinds = 1;
    if (c->positions == POSITION_ROTARY) c->n_ropes = c->kinds[0].attention.rope = 1;
    c->format = FORMAT_FASTERTRANSFORMER;
    c->norm = NORM_LAYER;
    c->kinds[0].norms = NORM_PRE;
    c->norm_bias = c->kinds[0].feed.bias = true;
    c->ropes[0].scale = c->embed_scale = 1;
    c->max_positions = DEFAULT_POSITIONS;
    c->temperature = c->top_p = c->repetition_penalty = -1;
    c->top_k = -1;
    TRY(refuse_unknown(r, err));
    TRY(read_shape(r, err));
    TRY(read_dtype(r, err));
    TRY(read_tokens(r, err));
    TRY(ft_ini_double(r->ini, r->section, "layernorm_eps", 1e-12, 1, &eps, err));
    c->norm_eps = (float)eps;
    TRY(read_i32(r, "tensor_para_size", 1, FT_MAX_RANKS, &r->out->n_ranks, err));
    TRY(section->read(r, err));
    TRY(read_tasks(r, err));
    pass_over(r);
    return 0;
}

int ft_config_parse(struct ft_config *out, const char *path, const char *text, size_t len,
                    struct err *err) {
    struct ft_ini ini;
    *out = (struct ft_config){0};
    int rc = ft_ini_parse(&ini, path, text, len, err);
    if (rc == 0) rc = read_config(&(struct ft_reader){.out = out, .ini = &ini}, err);
    ft_ini_release(&ini);
    return rc;
}

int ft_config_load(struct ft_config *out, const char *path, struct err *err) {
    struct buf text;
    int rc = buf_read_file(&text, path, FT_INI_MAX_BYTES, err);
    if (rc == 0) rc = ft_config_parse(out, path, buf_z(&text), text.len, err);
    buf_release(&text);
    return rc;
}
