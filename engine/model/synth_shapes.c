// Shapes from the config.json files that the models' authors publish. See synth_shapes.h.
#include "engine/model/synth_shapes.h"
#include "base/json.h"
#include "engine/model/families.h"
#include "engine/model/synth.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

// clang-format off
static const struct synth_shape shapes[] = {
    // name, family, layers, width, heads, kv, head, ffn, vocab, positions, tied, eps, theta, llama3, bos, eos, more
    {"tiny", "llama", 2, 64, 4, 2, 16, 128, 320, 512, false, 1e-5, 1e4, 0, 0, 1, NULL},
    {"demo", "llama", 8, 384, 6, 2, 64, 1024, 4096, 4096, true, 1e-5, 1e4, 0, 0, 2, NULL},
    {"llama-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, true, 1e-5, 5e5, 32, 128000, 128001, NULL},
    {"llama-3b", "llama", 28, 3072, 24, 8, 128, 8192, 128256, 131072, true, 1e-5, 5e5, 32, 128000, 128001, NULL},
    {"llama-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072, false, 1e-5, 5e5, 8, 128000, 128001, NULL},
    {"llama-70b", "llama", 80, 8192, 64, 8, 128, 28672, 128256, 131072, false, 1e-5, 5e5, 8, 128000, 128001, NULL},
    {"mistral-7b", "mistral", 32, 4096, 32, 8, 128, 14336, 32768, 32768, false, 1e-5, 1e6, 0, 1, 2, NULL},
    {"qwen2-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, true, 1e-6, 1e6, 0, 151643, 151643, NULL},
    {"qwen2-7b", "qwen2", 28, 3584, 28, 4, 128, 18944, 152064, 131072, false, 1e-6, 1e6, 0, 151643, 151643, NULL},
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, true, 1e-6, 1e6, 0, 151643, 151645, NULL},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960, false, 1e-6, 1e6, 0, 151643, 151645, NULL},
    {"phi4", "phi3", 40, 5120, 40, 10, 0, 17920, 100352, 16384, false, 1e-5, 250000, 0, 100257, 100265, NULL},
    {"smollm3", "smollm3", 36, 2048, 16, 4, 0, 11008, 128256, 65536, true, 1e-6, 5e6, 0, 128000, 128012, NULL},
    {"ministral3-8b", "ministral3", 34, 4096, 32, 8, 128, 14336, 131072, 262144, false, 1e-5, 1e6, 0, 1, 2,
     "\"rope_parameters\":{\"rope_type\":\"yarn\",\"rope_theta\":1000000,\"factor\":16,\"beta_fast\":32,\"beta_slow\":1,"
     "\"original_max_position_embeddings\":16384,\"mscale\":1,\"mscale_all_dim\":1,\"llama_4_scaling_beta\":0.1}"},
    {"gemma3-12b", "gemma3_text", 48, 3840, 16, 8, 256, 15360, 262208, 131072, true, 1e-6, 0, 0, 2, 1,
     "\"sliding_window\":1024,\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}"},
    {"qwen3-30b-a3b", "qwen3_moe", 48, 2048, 32, 4, 128, 6144, 151936, 40960, false, 1e-6, 1e6, 0, 151643, 151645,
     "\"num_experts\":128,\"num_experts_per_tok\":8,\"moe_intermediate_size\":768,\"norm_topk_prob\":true,"
     "\"decoder_sparse_step\":1,\"mlp_only_layers\":[]"},
    {"gpt-oss-20b", "gpt_oss", 24, 2880, 64, 8, 64, 2880, 201088, 131072, false, 1e-5, 0, 0, 199998, 200002,
     "\"num_local_experts\":32,\"num_experts_per_tok\":4,\"sliding_window\":128,\"swiglu_limit\":7.0,\"rope_theta\":150000,"
     "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32,\"beta_fast\":32,\"beta_slow\":1,"
     "\"original_max_position_embeddings\":4096,\"truncate\":false}"},
    {"gpt2", "gpt2", 12, 768, 12, 0, 0, 0, 50257, 1024, true, 1e-5, 0, 0, 50256, 50256, NULL},
    {"gpt2-xl", "gpt2", 48, 1600, 25, 0, 0, 0, 50257, 1024, true, 1e-5, 0, 0, 50256, 50256, NULL},
    {"gpt-j-6b", "gptj", 28, 4096, 16, 0, 0, 0, 50400, 2048, false, 1e-5, 0, 0, 50256, 50256, "\"rotary_dim\":64"},
    {"gpt-neox-20b", "gpt_neox", 44, 6144, 64, 0, 0, 24576, 50432, 2048, false, 1e-5, 0, 0, 0, 0,
     "\"rotary_pct\":0.25,\"rotary_emb_base\":10000,\"hidden_act\":\"gelu_fast\",\"use_parallel_residual\":true"},
    {"bloom-560m", "bloom", 24, 1024, 16, 0, 0, 0, 250880, 2048, true, 1e-5, 0, 0, 1, 2, NULL},
    {"bloom-7b1", "bloom", 30, 4096, 32, 0, 0, 0, 250880, 2048, true, 1e-5, 0, 0, 1, 2, NULL},
    {"opt-125m", "opt", 12, 768, 12, 0, 0, 3072, 50272, 2048, true, 0, 0, 0, 2, 2, NULL},
    {"opt-350m", "opt", 24, 1024, 16, 0, 0, 4096, 50272, 2048, true, 0, 0, 0, 2, 2,
     "\"do_layer_norm_before\":false,\"word_embed_proj_dim\":512"},
    {"opt-6.7b", "opt", 32, 4096, 32, 0, 0, 16384, 50272, 2048, true, 0, 0, 0, 2, 2, NULL},
    {"xglm-564m", "xglm", 24, 1024, 16, 0, 0, 4096, 256008, 2048, true, 0, 0, 0, 0, 2, NULL},
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

// A key that the family has, with a value that the shape has.
static void put(struct json_writer *w, const char *key, int32_t value) {
    if (key && value > 0) json_put_int(w, key, value);
}

void synth_shape_config(const struct synth_shape *s, const char *dtype, struct buf *out) {
    struct json_writer w;
    const struct family *f = family_find(s->family);
    const struct family_keys *k = f->keys;
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_open(&w, "architectures", '[');
    json_put_string(&w, NULL, f->class);
    json_close(&w, ']');
    json_put_string(&w, "model_type", s->family);
    json_put_string(&w, "torch_dtype", dtype);
    put(&w, k->n_layers, s->n_layers);
    put(&w, k->width, s->width);
    put(&w, k->n_heads, s->n_heads);
    put(&w, k->n_kv_heads, s->n_kv_heads);
    put(&w, k->head_dim, s->head_dim);
    put(&w, k->ffn_width, s->ffn_width);
    put(&w, "vocab_size", s->vocab_size);
    put(&w, k->max_positions, s->max_positions);
    if (k->norm_eps) json_put_double(&w, k->norm_eps, s->norm_eps);
    json_put_bool(&w, "tie_word_embeddings", s->tied_head);
    if (s->rope_theta > 0) {
        json_put_string(&w, k->activation, "silu");
        json_put_null(&w, "sliding_window"); // left out, Mistral would have one
        write_rope(s, &w);
    }
    json_put_int(&w, "bos_token_id", s->bos_id);
    json_put_int(&w, "eos_token_id", s->eos_id);
    if (s->more) buf_addf(out, ",%s", s->more);
    json_close(&w, '}');
}
