// Metadata of a GGUF file as config.json has it. See gguf_config.h.
#include "engine/gguf/gguf_config.h"
#include "base/json.h"
#include "engine/gguf/gguf_arch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_MAX 160
#define ROPE_FREQS "rope_freqs.weight"
#define ROPE_FREQS_MAX 4096

struct making {
    const struct gguf *g;
    const struct gguf_arch *arch;
    const cJSON *metadata;
    cJSON *into;
    struct err *err;
};

static int no_memory(const struct making *m) {
    return err_set(m->err, E_NOMEM, "no memory for the model's switches");
}

static const cJSON *value_of(const struct making *m, const char *key) {
    char name[KEY_MAX];
    snprintf(name, sizeof name, "%s.%s", m->arch->name, key);
    return json_member(m->metadata, name);
}

static int add(const struct making *m, cJSON *into, const char *key, cJSON *item) {
    if (item && cJSON_AddItemToObject(into, key, item)) return 0;
    cJSON_Delete(item);
    return no_memory(m);
}

// A number, or an array of equal numbers, one for each layer.
static int add_number(const struct making *m, const struct gguf_key *key) {
    const cJSON *value = value_of(m, key->gguf), *first = value, *item;
    if (!value) return 0;
    if (cJSON_IsArray(value)) {
        first = value->child;
        cJSON_ArrayForEach(item, value) {
            if (!cJSON_IsNumber(item) || item->valuedouble != first->valuedouble)
                return err_set(m->err, E_UNSUPPORTED, "'%s.%s' differs between layers",
                               m->arch->name, key->gguf);
        }
    }
    if (!cJSON_IsNumber(first))
        return err_set(m->err, E_FORMAT, "'%s.%s' is no number", m->arch->name, key->gguf);
    return add(m, m->into, key->hf, cJSON_CreateNumber(first->valuedouble));
}

static int add_numbers(const struct making *m, const struct gguf_key *keys) {
    for (; keys && keys->gguf; keys++) TRY(add_number(m, keys));
    return 0;
}

// --- positions ---

static double number(const struct making *m, const char *key, double otherwise) {
    const cJSON *value = value_of(m, key);
    return cJSON_IsNumber(value) ? value->valuedouble : otherwise;
}

// rope_freqs divides the frequencies of the dimensions, one number for each pair: what longrope calls factors.
static int add_rope_freqs(const struct making *m, const struct gguf_tensor *t) {
    const int64_t n = t->shape[0];
    if (t->n_dims != 1 || n > ROPE_FREQS_MAX || strcmp(t->type->name, "F32") != 0)
        return err_set(m->err, E_FORMAT, "the tensor '" ROPE_FREQS "' is no row of F32");
    float values[ROPE_FREQS_MAX];
    TRY(gguf_read(m->g, t, 0, values, (size_t)t->bytes, m->err));
    cJSON *scaling = cJSON_CreateObject();
    TRY(add(m, m->into, "rope_scaling", scaling));
    TRY(add(m, scaling, "rope_type", cJSON_CreateString("longrope")));
    TRY(add(m, scaling, "short_factor", cJSON_CreateFloatArray(values, (int)n)));
    TRY(add(m, scaling, "long_factor", cJSON_CreateFloatArray(values, (int)n)));
    TRY(add(m, scaling, "attention_factor", cJSON_CreateNumber(1)));
    return add(m, scaling, "original_max_position_embeddings",
               cJSON_CreateNumber(number(m, "context_length", 1)));
}

static int add_rope_scaling(const struct making *m) {
    static const struct gguf_key yarn[] = {
        {"rope.scaling.original_context_length", "original_max_position_embeddings"},
        {"rope.scaling.yarn_beta_fast", "beta_fast"},
        {"rope.scaling.yarn_beta_slow", "beta_slow"},
        {NULL, NULL},
    };
    const cJSON *type = value_of(m, "rope.scaling.type");
    if (!type || !cJSON_IsString(type) || strcmp(type->valuestring, "none") == 0) return 0;
    if (strcmp(type->valuestring, "linear") != 0 && strcmp(type->valuestring, "yarn") != 0)
        return err_set(m->err, E_UNSUPPORTED,
                       "'%s.rope.scaling.type' is '%.40s'; known are linear and yarn",
                       m->arch->name, type->valuestring);
    struct making inner = *m;
    inner.into = cJSON_CreateObject();
    TRY(add(m, m->into, "rope_scaling", inner.into));
    TRY(add(m, inner.into, "rope_type", cJSON_CreateString(type->valuestring)));
    TRY(add(m, inner.into, "factor", cJSON_CreateNumber(number(m, "rope.scaling.factor", 1))));
    return strcmp(type->valuestring, "yarn") == 0 ? add_numbers(&inner, yarn) : 0;
}

// The rotated part of a head, if it is not the whole.
static int add_rotated_part(const struct making *m) {
    double width = number(m, "embedding_length", 0), heads = number(m, "attention.head_count", 0);
    double dim = number(m, "attention.key_length", heads > 0 ? width / heads : 0);
    double rotated = number(m, "rope.dimension_count", dim);
    if (!(dim > 0) || rotated == dim) return 0;
    return add(m, m->into, "partial_rotary_factor", cJSON_CreateNumber(rotated / dim));
}

static int add_positions(const struct making *m) {
    const struct gguf_tensor *freqs = gguf_find(m->g, ROPE_FREQS);
    TRY(add_rotated_part(m));
    return freqs ? add_rope_freqs(m, freqs) : add_rope_scaling(m);
}

// --- what the tensors say ---

static const char *torch_dtype(const struct gguf *g) {
    const struct gguf_tensor *t = gguf_find(g, "blk.0.ffn_down.weight");
    if (t && strcmp(t->type->name, "F16") == 0) return "float16";
    if (t && strcmp(t->type->name, "BF16") == 0) return "bfloat16";
    return "float32";
}

static int add_tensors(const struct making *m) {
    const struct gguf_tensor *embed = gguf_find(m->g, "token_embd.weight");
    if (!embed || embed->n_dims != 2)
        return err_set(m->err, E_NOTFOUND, "the tensor 'token_embd.weight' is missing");
    TRY(add(m, m->into, "vocab_size", cJSON_CreateNumber((double)embed->shape[0])));
    TRY(add(m, m->into, "tie_word_embeddings",
            cJSON_CreateBool(!gguf_find(m->g, "output.weight"))));
    TRY(add(m, m->into, "torch_dtype", cJSON_CreateString(torch_dtype(m->g))));
    if (strcmp(m->arch->model_type, "llama") != 0) return 0;
    TRY(add(m, m->into, "attention_bias",
            cJSON_CreateBool(gguf_find(m->g, "blk.0.attn_q.bias") != NULL)));
    return add(m, m->into, "mlp_bias",
               cJSON_CreateBool(gguf_find(m->g, "blk.0.ffn_down.bias") != NULL));
}

// --- tokens ---

// The tokens that end an answer: of the text, of a turn, of a message.
static int add_ends(const struct making *m) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    cJSON *list = cJSON_CreateArray();
    TRY(add(m, m->into, "eos_token_id", list));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const cJSON *id = json_member(m->metadata, keys[i]);
        if (!id) continue;
        cJSON *item = cJSON_Duplicate(id, false);
        if (!item || !cJSON_AddItemToArray(list, item)) return no_memory(m);
    }
    const cJSON *bos = json_member(m->metadata, "tokenizer.ggml.bos_token_id");
    return bos ? add(m, m->into, "bos_token_id", cJSON_Duplicate(bos, false)) : 0;
}

int gguf_config_make(const struct gguf *g, cJSON *into, struct err *err) {
    struct making m = {.g = g, .metadata = gguf_metadata(g), .into = into, .err = err};
    TRY(gguf_arch_of(g, &m.arch, err));
    TRY(add(&m, into, "model_type", cJSON_CreateString(m.arch->model_type)));
    TRY(add_numbers(&m, gguf_common_keys));
    TRY(add_numbers(&m, m.arch->keys));
    TRY(add_positions(&m));
    TRY(add_tensors(&m));
    return add_ends(&m);
}
