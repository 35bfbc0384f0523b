// See ft_export.h. Refuses switches that config.ini cannot express, finds every tensor, sums the
// bytes, and only then creates a folder. Writes it under another name and renames it.
#include "engine/model/ft_export.h"
#include "base/buf.h"
#include "base/json.h"
#include "engine/model/ft_config.h"
#include "engine/model/ft_source.h"
#include "engine/model/ft_target.h"
#include "engine/model/text_files.h"
#include "engine/model/tied_head.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct export {
    const struct ft_export_options *o;
    struct ft_source_model source;
    struct model_config target; // what config.ini will say
    enum dtype dtype;           // DTYPE_COUNT until it is known
    bool mixed;                 // tensors differ
    bool has_head, made_out_dir;
    char folder[PATH_MAX];  // OUT_DIR/N-gpu
    char partial[PATH_MAX]; // its name until it is whole; "" before it is made
    struct ft_target out;
};

// --- switches that config.ini can express ---

static int refuse(const struct export *x, const char *what, struct err *err) {
    return err_set(err, E_UNSUPPORTED, "%s, a model of the family %s: FasterTransformer has no %s",
                   x->o->model_dir, x->source.config.family, what);
}

static int check_family(const struct export *x, struct err *err) {
    static const char *const known[] = {"gpt2", "opt", "bloom", "gptj", "gpt"};
    const char *family = x->source.config.family;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(family, known[i]) == 0) return 0;
    const char *why = strcmp(family, "gpt_neox") == 0 ? "its own format of GPT-NeoX is not written"
                      : strcmp(family, "xglm") == 0   ? "its GELU is the form with tanh only"
                                                      : "its GPT has no RMS norm and no gated "
                                                        "feed-forward";
    return err_set(err, E_UNSUPPORTED,
                   "%s: the family %s is not exported to FasterTransformer: %s; gpt2, opt, bloom "
                   "and gptj are",
                   x->o->model_dir, family, why);
}

static int check_switches(const struct export *x, struct err *err) {
    const struct model_config *c = &x->source.config;
    bool gptj = c->positions == POSITION_ROTARY;
    const char *activation = ft_activation_name(c->kinds[0].feed.activation);
    if (c->int8 || c->fp8)
        return refuse(x, "weights in 8 bits: export the model that they were made from", err);
    if (c->kinds[0].attention.scale_by_layer) return refuse(x, "scale of attention by layer", err);
    if (c->kinds[0].normed_residual)
        return refuse(x, "residual of the normed stream (apply_residual_connection_post_layernorm)",
                      err);
    if (c->kinds[0].attention.scale != (float)(1.0 / sqrt(c->kinds[0].attention.head_dim)))
        return refuse(x, "scale of attention but 1/sqrt(size_per_head)", err);
    if (c->width != c->kinds[0].attention.n_heads * c->kinds[0].attention.head_dim ||
        c->kinds[0].attention.n_kv_heads != c->kinds[0].attention.n_heads)
        return refuse(x, "heads that do not make up the width", err);
    if (!activation || (gptj && c->kinds[0].feed.activation != ACT_GELU_TANH))
        return refuse(x, "activation such as this model's (its Gelu is the form with tanh)", err);
    return 0;
}

static int check_ranks(const struct export *x, struct err *err) {
    const struct model_config *c = &x->source.config;
    int32_t n = x->o->tensor_parallel;
    const struct split ranks = {.tp_size = n, .pp_size = 1};
    if (n < 1 || n > FT_MAX_RANKS)
        return err_set(err, E_INVAL, "tensor_parallel: %d is not in 1 .. %d", n, FT_MAX_RANKS);
    return split_check(&ranks, c->n_layers, c->kinds[0].attention.n_heads,
                       c->kinds[0].attention.n_kv_heads, c->kinds[0].feed.width, err);
}

// The source as config.ini describes it: every bias there, the embedding as wide as the stream.
// GPT-J has a head of its own even where it is the embedding.
static void describe_target(struct export *x) {
    struct model_config *t = &x->target;
    *t = x->source.config;
    bool gptj = t->positions == POSITION_ROTARY;
    x->has_head = gptj || !t->tied_head || t->embed_width != t->width;
    t->kinds[0].attention.qkv_bias = t->kinds[0].attention.o_bias = !gptj;
    t->kinds[0].feed.bias = t->norm_bias = true;
    t->head_bias = gptj;
    t->position_offset = 0;
    t->embed_width = t->width;
}

// --- the first walk ---

static int plan_array(void *ctx, const struct ft_array *a, struct err *err) {
    struct export *x = ctx;
    struct ft_source s;
    TRY(ft_source_find(&s, &x->source, a, err));
    enum dtype dtype = ft_source_dtype(&s);
    if (dtype != DTYPE_COUNT) {
        x->mixed |= x->dtype != DTYPE_COUNT && x->dtype != dtype;
        x->dtype = dtype;
    }
    x->out.total += a->lines * a->width; // values; bytes once the dtype is known
    return 0;
}

static int plan(struct export *x, struct err *err) {
    x->dtype = DTYPE_COUNT;
    TRY(ft_layout_walk(&x->target, x->has_head, plan_array, x, err));
    if (x->mixed) x->dtype = DTYPE_F32;
    if (x->o->dtype && ft_dtype_find(x->o->dtype, &x->dtype) < 0)
        return err_set(err, E_INVAL, "dtype: '%.40s' is not fp32, fp16 or bf16", x->o->dtype);
    x->target.dtype = x->dtype;
    x->out.total *= (int64_t)dtype_size(x->dtype);
    x->out.n_ranks = x->o->tensor_parallel;
    x->out.dtype = x->dtype;
    x->out.dir = x->partial;
    x->out.progress = x->o->progress;
    x->out.progress_ctx = x->o->progress_ctx;
    x->out.stop = x->o->stop;
    return 0;
}

// --- the folder ---

static int name_folders(struct export *x, struct err *err) {
    int n = snprintf(x->folder, PATH_MAX, "%s/%d-gpu", x->o->out_dir, x->o->tensor_parallel);
    if (n < 0 || n + 32 >= PATH_MAX)
        return err_set(err, E_LIMIT, "the path %.300s... is too long", x->o->out_dir);
    struct stat s;
    if (lstat(x->folder, &s) == 0)
        return err_set(err, E_EXISTS, "%s exists already and is not overwritten", x->folder);
    return 0;
}

static int check_space(const struct export *x, struct err *err) {
    struct statvfs s;
    if (statvfs(x->o->out_dir, &s) < 0) return err_errno(err, "cannot examine %s", x->o->out_dir);
    uint64_t room = (uint64_t)s.f_bavail * s.f_frsize;
    if (room >= (uint64_t)x->out.total) return 0;
    return err_set(err, E_FULL, "%s has room for %llu MiB; the checkpoint takes %lld",
                   x->o->out_dir, (unsigned long long)(room >> 20),
                   (long long)(x->out.total >> 20) + 1);
}

static int make_folder(struct export *x, struct err *err) {
    char partial[PATH_MAX];
    x->made_out_dir = mkdir(x->o->out_dir, 0777) == 0;
    if (!x->made_out_dir && errno != EEXIST)
        return err_errno(err, "cannot create %s", x->o->out_dir);
    TRY(check_space(x, err));
    if (snprintf(partial, PATH_MAX, "%s/.%d-gpu.partial-%ld", x->o->out_dir, x->o->tensor_parallel,
                 (long)getpid()) >= PATH_MAX)
        return err_set(err, E_LIMIT, "the path %.300s... is too long", x->o->out_dir);
    if (mkdir(partial, 0777) < 0) return err_errno(err, "cannot create %s", partial);
    strcpy(x->partial, partial);
    return 0;
}

// --- config.ini ---

// In the fewest digits that read back as the same float.
static void add_float(struct buf *b, const char *key, float v) {
    char text[40];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) break;
    }
    buf_addf(b, "%s=%s\n", key, text);
}

static void add_gpt_keys(struct buf *b, const struct model_config *c) {
    buf_addf(b, "layernorm_type=%s_layernorm\n", c->kinds[0].norms == NORM_PRE ? "pre" : "post");
    buf_addf(b, "activation_type=%s\n", ft_activation_name(c->kinds[0].feed.activation));
    buf_addf(b, "has_positional_encoding=%d\n", c->positions == POSITION_LEARNED);
    buf_addf(b, "has_pre_decoder_layernorm=%d\n", c->embed_norm);
    buf_addf(b, "has_post_decoder_layernorm=%d\n", c->final_norm);
    buf_addf(b, "use_attention_linear_bias=%d\n", c->positions == POSITION_ALIBI);
}

static int write_config(const struct export *x, struct err *err) {
    const struct model_config *c = &x->target;
    bool gptj = c->positions == POSITION_ROTARY;
    struct buf b;
    buf_init(&b, 65536);
    buf_addf(&b, "[%s]\nmodel_name=%s\n", gptj ? "gptj" : "gpt", c->family);
    buf_addf(&b, "head_num=%d\nsize_per_head=%d\n", c->kinds[0].attention.n_heads,
             c->kinds[0].attention.head_dim);
    buf_addf(&b, "inter_size=%d\nnum_layer=%d\n", c->kinds[0].feed.width, c->n_layers);
    buf_addf(&b, "max_pos_seq_len=%d\nvocab_size=%d\n", c->max_positions, c->vocab_size);
    buf_addf(&b, "start_id=%d\nend_id=%d\n", c->bos_id, c->n_eos ? c->eos_ids[0] : -1);
    buf_addf(&b, "weight_data_type=%s\n", ft_dtype_name(x->dtype));
    buf_addf(&b, "tensor_para_size=%d\n", x->o->tensor_parallel);
    add_float(&b, "layernorm_eps", c->norm_eps);
    if (gptj)
        buf_addf(&b, "rotary_embedding=%d\n", c->ropes[0].rot_dim);
    else
        add_gpt_keys(&b, c);
    int rc = b.error ? err_set(err, b.error, "no memory for config.ini")
                     : ft_target_file(&x->out, "config.ini", b.data, b.len, err);
    buf_release(&b);
    return rc;
}

// --- text files ---

// config.ini holds one end token: those of a model with more are in generation_config.json.
static int write_generation(const struct export *x, struct err *err) {
    const struct model_config *c = &x->target;
    struct buf b;
    struct json_writer w;
    buf_init(&b, 65536);
    json_writer_init(&w, &b);
    json_open(&w, NULL, '{');
    if (c->bos_id >= 0) json_put_int(&w, "bos_token_id", c->bos_id);
    json_put_ids(&w, "eos_token_id", c->eos_ids, (size_t)c->n_eos);
    if (c->temperature >= 0) json_put_double(&w, "temperature", (double)c->temperature);
    if (c->top_p >= 0) json_put_double(&w, "top_p", (double)c->top_p);
    if (c->top_k >= 0) json_put_int(&w, "top_k", c->top_k);
    if (c->repetition_penalty >= 0)
        json_put_double(&w, "repetition_penalty", (double)c->repetition_penalty);
    json_close(&w, '}');
    int rc = b.error ? err_set(err, b.error, "no memory for generation_config.json")
                     : ft_target_file(&x->out, "generation_config.json", b.data, b.len, err);
    buf_release(&b);
    return rc;
}

static bool has_suggestions(const struct model_config *c) {
    return c->n_eos > 1 || c->temperature >= 0 || c->top_p >= 0 || c->top_k >= 0 ||
           c->repetition_penalty >= 0;
}

static int write_text_files(const struct export *x, struct err *err) {
    char from[PATH_MAX];
    TRY(text_files_dir(from, x->o->model_dir, NULL, err));
    TRY(text_files_copy(from, x->partial, NULL, err));
    return has_suggestions(&x->target) ? write_generation(x, err) : 0;
}

// --- the second walk ---

static int write_array(void *ctx, const struct ft_array *a, struct err *err) {
    struct export *x = ctx;
    struct ft_source s;
    TRY(ft_source_find(&s, &x->source, a, err));
    int rc = ft_source_open(&s, err);
    if (rc == 0) rc = ft_target_array(&x->out, &s, a, err);
    ft_source_close(&s);
    return rc;
}

static int write_all(struct export *x, struct err *err) {
    TRY(make_folder(x, err));
    TRY(write_config(x, err));
    TRY(ft_layout_walk(&x->target, x->has_head, write_array, x, err));
    TRY(write_text_files(x, err));
    TRY(checkpoint_check_unchanged(x->source.cp, err));
    if (rename(x->partial, x->folder) == 0) return 0;
    return err_errno(err, "cannot name %s", x->folder);
}

static int export(struct export *x, struct err *err) {
    TRY(model_config_load(&x->source.config, x->o->model_dir, err));
    TRY(check_family(x, err));
    TRY(check_switches(x, err));
    TRY(check_ranks(x, err));
    TRY(name_folders(x, err));
    TRY(checkpoint_open(&x->source.cp, x->o->model_dir, err));
    TRY(tied_head_settle(&x->source.config, x->source.cp, err));
    x->source.names = family_tensors_of(&x->source.config);
    describe_target(x);
    TRY(plan(x, err));
    int rc = write_all(x, err);
    if (rc == 0) return 0;
    if (*x->partial) ft_target_remove(x->partial);
    if (x->made_out_dir) rmdir(x->o->out_dir);
    return rc;
}

int ft_export(const struct ft_export_options *o, char written[PATH_MAX], struct err *err) {
    struct export *x = calloc(1, sizeof *x);
    if (!x) return err_set(err, E_NOMEM, "no memory to export %s", o->model_dir);
    x->o = o;
    int rc = export(x, err);
    if (rc == 0) strcpy(written, x->folder);
    checkpoint_close(x->source.cp);
    free(x);
    return rc;
}
