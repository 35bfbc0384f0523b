// Rows of the settings of a model. See model_settings.h.
#include "ws/model_settings.h"
#include "base/config_rows.h"
#include <string.h>

#define SETTINGS struct model_settings
#define GIB (1024.0 * 1024 * 1024)

static const struct config_key keys[] = {
    TEXT("engine", model, "", MODEL_VALUE, "Model: " MODEL_VALUE_HELP " (`parley models --help`)."),
    TEXT("engine", tokenizer, "", MODEL_VALUE,
         "Model whose tokenizer and chat template to use instead of the model's own; in a model "
         "repository, preprocessing/1."),
    TEXT("engine", chat_template, "", "NAME|FILE",
         "Chat template to use instead of the model's own: a built-in name or a file."),
    TEXT("engine", prompt_tasks, "", "LIST",
         "Tables of prompt learning (PEFT's prompt tuning, p-tuning and prefix tuning) as "
         "NAME=DIR,NAME=DIR, or as a folder of such folders, whose names are the tasks. Those of a "
         "FasterTransformer checkpoint are available without it."),
    TEXT("engine", device, "auto", "DEVICE",
         "Where the model runs: cpu, cuda:0 (a GPU by number), or auto: the first GPU, or the CPU "
         "if there is none. Several ranks have a GPU each, from this one on; a list "
         "(cuda:0,cuda:2) names each rank's, of one instance after the other. With auto, several "
         "instances spread over the GPUs."),
    TEXT("engine", compute_dtype, "auto", "DTYPE",
         "Number format of the computation: f32, bf16, f16 (GPU only) or auto: on a GPU the "
         "model's own, bf16 for one of few bits; on the CPU bf16 if all matrices are bf16 or of "
         "few bits and the processor has AVX512-BF16 or AMX, else f32. bf16 on the CPU rounds the "
         "input of each product, to bf16 with bf16 weights, to 8 bits in blocks of 32 with weights "
         "of 2 to 6 bits, which is up to twice as fast with many rows; `parley score "
         "--compare-compute bf16` measures the loss of accuracy."),
    BOOL("engine", deterministic, "off",
         "On a GPU, compute the same bits for the same log and seed regardless of the batch; "
         "slower. The CPU always does."),
    FLOAT("engine", gpu_memory_fraction, 0.05, 1, "0.9",
          "Share of GPU memory for weights, work buffers and KV cache together; the cache gets the "
          "rest of it."),
    TEXT("engine", isa, "auto", "ISA", "CPU instruction set: auto, portable, avx2, avx512 or amx."),
    INT("engine", threads, 0, 64, "0",
        "CPU threads of each rank; 0 means one for each core that it may use, divided by the ranks "
        "that share them."),
    INT("engine", tensor_parallel, 1, 1024, "1",
        "Processes (ranks) that compute each layer together, by parts of its heads and "
        "feed-forward. They are those that mpirun or srun started, or Parley starts them on this "
        "machine through Open MPI."),
    INT("engine", pipeline_parallel, 1, 1024, "1",
        "Stages of consecutive layers, of tensor_parallel ranks each."),
    FLOAT("engine", rank_timeout, 1, 86400, "60",
          "Seconds that a rank may stay silent while others wait for it; then their instance "
          "fails, as it does when a rank ends."),
    CHOICE("engine", weight_dtype, WEIGHT_FORMATS, "model",
           "Number format of the weights: model is the model's own; int8 and fp8 (e4m3) are 8 bits "
           "with a scale for each output, converted while loading. 8 bits take half the memory of "
           "bf16 and decode faster; `parley score --compare-weights int8` measures the loss of "
           "accuracy. Activations are not quantised but by fp8_activations and compute_dtype."),
    BOOL("engine", fp8_activations, "off",
         "On a GPU with weights of fp8, also round the activations of steps with more than 32 "
         "tokens to fp8, with a scale for each token: prompts are computed faster. `parley score "
         "--compare-weights fp8 --fp8-activations` measures the loss of accuracy."),
    CHOICE("engine", kv_dtype, ENGINE_KV_DTYPES, "auto",
           "Number format of the KV cache; auto is the compute dtype, f32 on the CPU. fp8 (e4m3) "
           "and int8 have a scale for each position and head and take about half the memory of "
           "bf16, so twice as many sessions fit; `parley score --compare-kv int8` measures the "
           "loss of accuracy."),
    BYTES("engine", kv_cache_bytes, 0, 4096 * GIB, "0",
          "Size of the KV cache; 0 means enough for max_sequences full windows, at most half of "
          "free memory; on a GPU, the rest of gpu_memory_fraction."),
    INT("engine", block_tokens, 8, 256, "64", "Positions in one cache block; a power of two."),
    INT("engine", prefill_chunk_tokens, 0, 8192, "0",
        "Maximum prompt tokens in one step. It bounds how long a long prompt delays other turns; 0 "
        "means 256 on the CPU and 2048 on a GPU."),
    INT("sessions", session_len, 0, 1e9, "0",
        "Default maximum tokens of a session; 0 means the model's maximum."),
    INT("sessions", memory_len, 0, 1e9, "0",
        "Default number of latest tokens that the model attends to; 0 means the context that the "
        "model was trained with."),
    INT("sessions", sink_len, 0, 1e6, "4",
        "Default number of first tokens that stay visible (attention sinks); 0 as in "
        "FasterTransformer."),
};

int model_setting_keys(struct config_key *out, const char *section, size_t offset) {
    int n = 0;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (section && strcmp(keys[i].section, section) != 0) continue;
        out[n] = keys[i];
        out[n++].offset += offset;
    }
    return n;
}

void model_settings_engine(const struct model_settings *s, struct engine_options *o) {
    engine_options_init(o);
    o->model_dir = s->model;
    o->tokenizer = s->tokenizer;
    o->chat_template = s->chat_template[0] ? s->chat_template : NULL;
    o->prompt_tasks = s->prompt_tasks;
    o->device = s->device;
    o->isa = s->isa;
    o->compute_dtype = s->compute_dtype[0] ? s->compute_dtype : NULL;
    o->deterministic = s->deterministic;
    o->fp8_activations = s->fp8_activations;
    o->gpu_memory_fraction = s->gpu_memory_fraction;
    o->n_threads = (int32_t)s->threads;
    o->tensor_parallel = (int32_t)s->tensor_parallel;
    o->pipeline_parallel = (int32_t)s->pipeline_parallel;
    o->rank_timeout = s->rank_timeout;
    o->weight_format = (enum weight_format)s->weight_dtype;
    engine_options_kv_dtype(o, s->kv_dtype);
    o->kv_cache_bytes = s->kv_cache_bytes;
    o->block_tokens = (int32_t)s->block_tokens;
    o->prefill_chunk_tokens = (int32_t)s->prefill_chunk_tokens;
    o->default_memory_len = (int32_t)s->memory_len;
}
