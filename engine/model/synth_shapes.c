// Shapes from the config.json files that the models' authors publish. See synth_shapes.h.
#include "engine/model/synth_shapes.h"
#include "base/json.h"
#include "engine/model/synth.h"
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

// clang-format off
static const struct synth_shape shapes[] = {
    // name, family, layers, width, heads, kv, head, ffn, vocab, positions, tied, eps, theta, llama3, bos, eos
    {"tiny", "llama", 2, 64, 4, 2, 16, 128, 320, 512, false, 1e-5, 1e4, 0, 0, 1},
    {"demo", "llama", 8, 384, 6, 2, 64, 1024, 4096, 4096, true, 1e-5, 1e4, 0, 0, 2},
    {"llama-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, true, 1e-5, 5e5, 32, 128000, 128001},
    {"llama-3b", "llama", 28, 3072, 24, 8, 128, 8192, 128256, 131072, true, 1e-5, 5e5, 32, 128000, 128001},
    {"llama-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072, false, 1e-5, 5e5, 8, 128000, 128001},
    {"mistral-7b", "mistral", 32, 4096, 32, 8, 128, 14336, 32768, 32768, false, 1e-5, 1e6, 0, 1, 2},
    {"qwen2-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, true, 1e-6, 1e6, 0, 151643, 151643},
    {"qwen2-7b", "qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 131072, false, 1e-6, 1e6, 0, 151643, 151643},
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, true, 1e-6, 1e6, 0, 151643, 151645},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960, false, 1e-6, 1e6, 0, 151643, 151645},
};
// clang-format on
#define N_SHAPES (sizeof shapes / sizeof *shapes)

const struct synth_shape *synth_shape_find(const char *name) {
    for (size_t i = 0; i < N_SHAPES; i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

static char names[N_SHAPES * 16];

static void join_names(void) {
    for (size_t i = 0, at = 0; i < N_SHAPES; i++)
        at +=
            (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", shapes[i].name);
}

const char *synth_names(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, join_names);
    return names;
}

static void write_rope(const struct synth_shape *s, struct json_writer *w) {
    json_put_double(w, "rope_theta", s->rope_theta);
    if (s->llama3_factor == 0) return;
    json_open(w, "rope_scaling", '{');
    json_put_string(w, "rope_type", "llama3");
    json_put_double(w, "factor", s->llama3_factor);
    json_put_double(w, "low_freq_factor", 1);
    json_put_double(w, "high_freq_factor", 4);
    json_put_int(w, "original_max_position_embeddings", 8192);
    json_close(w, '}');
}

void synth_shape_config(const struct synth_shape *s, const char *dtype, struct buf *out) {
    struct json_writer w;
    char class[64];
    // Every class so far is its model_type with a capital: LlamaForCausalLM, Qwen3ForCausalLM.
    snprintf(class, sizeof class, "%c%sForCausalLM", toupper((unsigned char)s->family[0]),
             s->family + 1);
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_open(&w, "architectures", '[');
    json_put_string(&w, NULL, class);
    json_close(&w, ']');
    json_put_string(&w, "model_type", s->family);
    json_put_string(&w, "torch_dtype", dtype);
    json_put_int(&w, "num_hidden_layers", s->n_layers);
    json_put_int(&w, "hidden_size", s->width);
    json_put_int(&w, "num_attention_heads", s->n_heads);
    json_put_int(&w, "num_key_value_heads", s->n_kv_heads);
    json_put_int(&w, "head_dim", s->head_dim);
    json_put_int(&w, "intermediate_size", s->ffn_width);
    json_put_int(&w, "vocab_size", s->vocab_size);
    json_put_int(&w, "max_position_embeddings", s->max_positions);
    json_put_string(&w, "hidden_act", "silu");
    json_put_double(&w, "rms_norm_eps", s->norm_eps);
    json_put_bool(&w, "tie_word_embeddings", s->tied_head);
    json_put_null(&w, "sliding_window"); // left out, Mistral would have one
    write_rope(s, &w);
    json_put_int(&w, "bos_token_id", s->bos_id);
    json_put_int(&w, "eos_token_id", s->eos_id);
    json_close(&w, '}');
}
