// Matrices of few bits: what quantization_config says, and parts that do not fit together. Values:
// golden/test_quantised.c.
#include "base/json.h"
#include "engine/model/packed_tensors.h"
#include "tests/unit/in_tmp_dir.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// --- quantization_config ---

static void methods_have_the_names_that_people_use(void **state) {
#define CT(format, groups)                                                                         \
    "{\"quant_method\":\"compressed-tensors\",\"format\":\"" format                                \
    "\",\"config_groups\":{" groups "}}"
#define GROUP(name, bits, type, more)                                                              \
    "\"" name "\":{\"weights\":{\"num_bits\":" bits ",\"type\":\"" type "\"}" more "}"
    static const struct {
        const char *q, *name;
    } cases[] = {
        {"{}", ""},
        {"{\"quant_method\":\"awq\",\"bits\":4}", "AWQ"},
        {"{\"quant_method\":\"gptq\",\"bits\":4}", "GPTQ-Int4"},
        {"{\"quant_method\":\"gptq\",\"bits\":8}", "GPTQ-Int8"},
        {"{\"quant_method\":\"intel/auto-round\",\"bits\":4}", "AutoRound-Int4"},
        {"{\"quant_method\":\"mxfp4\"}", "MXFP4"},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\"}", "FP8"},
        {"{\"load_in_4bit\":true,\"bnb_4bit_quant_type\":\"nf4\"}", "NF4"},
        {"{\"quant_method\":\"bitsandbytes\",\"bnb_4bit_quant_type\":\"fp4\"}", "FP4"},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}", "LLM.int8"},
        {CT("pack-quantized", GROUP("a", "4", "int", "")), "W4A16"},
        {CT("int-quantized", GROUP("a", "8", "int", ",\"input_activations\":{\"num_bits\":8}")),
         "W8A8"},
        {CT("float-quantized", GROUP("a", "8", "float", "")), "FP8"},
        {CT("mxfp8-quantized", GROUP("a", "8", "float", "")), "MXFP8"},
        {CT("mixed-precision", GROUP("a", "8", "int", "") "," GROUP(
                                   "b", "4", "float", ",\"format\":\"nvfp4-pack-quantized\"")),
         "NVFP4"},
        {CT("pack-quantized", ""), ""},
        {CT("pack-quantized", "\"a\":3"), ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[PACKED_NAME] = "unset";
        cJSON *q = cJSON_Parse(cases[i].q);
        assert_non_null(q);
        packed_name_of(name, q);
        assert_string_equal(name, cases[i].name);
        cJSON_Delete(q);
    }
    char name[PACKED_NAME];
    packed_name_of(name, NULL);
    assert_string_equal(name, "");
}

static void formats_are_known_or_refused_by_name(void **state) {
    static const struct {
        const char *q;
        int format; // or the error
        const char *says;
    } cases[] = {
        {"{}", PACKED_NONE, NULL},
        {"{\"quant_method\":\"parley_int8\"}", PACKED_NONE, NULL},
        {"{\"quant_method\":\"fp8\"}", PACKED_NONE, NULL},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"GEMM\"}", PACKED_AWQ, NULL},
        {"{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemv\"}", E_UNSUPPORTED, "gemv"},
        {"{\"quant_method\":\"awq\",\"bits\":3}", E_UNSUPPORTED, "4 bits"},
        {"{\"quant_method\":\"gptq\",\"bits\":4}", PACKED_GPTQ, NULL},
        {"{\"quant_method\":\"gptq\",\"bits\":8,\"checkpoint_format\":\"gptq_v2\"}", PACKED_GPTQ_V2,
         NULL},
        {"{\"quant_method\":\"gptq\",\"bits\":3}", E_UNSUPPORTED, "4 and 8"},
        {"{\"quant_method\":\"gptq\",\"bits\":4,\"checkpoint_format\":\"marlin\"}", E_UNSUPPORTED,
         "marlin"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"}", PACKED_OTHER,
         NULL},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\",\"config_"
         "groups\":{\"a\":{}}}",
         PACKED_NONE, NULL},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"marlin-24\"}", E_UNSUPPORTED,
         "marlin-24"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"mixed-precision\",\"config_"
         "groups\":{\"a\":{"
         "\"format\":\"sparse-24\"}}}",
         E_UNSUPPORTED, "sparse-24"},
        {"{\"quant_method\":\"auto-round\",\"bits\":4}", PACKED_GPTQ, NULL},
        {"{\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:auto_gptq\"}",
         PACKED_GPTQ, NULL},
        {"{\"quant_method\":\"intel/auto-round\",\"packing_format\":\"auto_round:auto_awq\"}",
         PACKED_AWQ, NULL},
        {"{\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:gptqmodel\"}",
         PACKED_GPTQ_V2, NULL},
        {"{\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round\"}", PACKED_GPTQ_V2,
         NULL},
        {"{\"quant_method\":\"auto-round\",\"data_type\":\"nv_fp\",\"packing_format\":"
         "\"auto_round:llm_compressor\"}",
         PACKED_OTHER, NULL},
        {"{\"quant_method\":\"auto-round\",\"bits\":2}", E_UNSUPPORTED, "4 and 8"},
        {"{\"quant_method\":\"auto-round\",\"data_type\":\"mx_fp\"}", E_UNSUPPORTED, "mx_fp"},
        {"{\"quant_method\":\"auto-round\",\"packing_format\":\"auto_round:marlin\"}",
         E_UNSUPPORTED, "auto_round:marlin"},
        {"{\"quant_method\":\"mxfp4\"}", PACKED_OTHER, NULL},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"mxfp8-quantized\"}", PACKED_OTHER,
         NULL},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}", PACKED_BNB, NULL},
        {"{\"load_in_4bit\":true,\"bnb_4bit_quant_type\":\"fp4\"}", PACKED_BNB, NULL},
        {"{\"quant_method\":\"bitsandbytes\",\"bnb_4bit_quant_type\":\"int4\"}", E_UNSUPPORTED,
         "int4"},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}", PACKED_OTHER, NULL},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"W4A8_AWQ\"}", E_UNSUPPORTED, "W4A8_AWQ"},
    };
    static const char *const keys[] = {"quantization_config", "compression_config"};
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        char text[512];
        enum packed_format format;
        struct err err = {0};
        snprintf(text, sizeof text, "{\"%s\":%s}", keys[i % 2], cases[i / 2].q);
        cJSON *config = json_parse(text, strlen(text), &json_limits_file, &err);
        assert_non_null(config);
        int rc = packed_format_read(config, &format, &err);
        if (rc < 0 ? rc != cases[i / 2].format || !strstr(err.text, cases[i / 2].says)
                   : (int)format != cases[i / 2].format)
            fail_msg("%s: %d, %s", cases[i / 2].q, rc < 0 ? rc : (int)format, err.text);
        cJSON_Delete(config);
    }
}

// Older folders name their method beside config.json, which does not.
static void a_file_of_its_own_names_the_method(void **state) {
    static const struct {
        const char *file, *text;
        int format; // or the error
    } cases[] = {
        {"quantize_config.json", "{\"bits\":8,\"group_size\":64}", PACKED_GPTQ},
        {"quant_config.json", "{\"w_bit\":4,\"q_group_size\":64,\"version\":\"GEMM\"}", PACKED_AWQ},
        {"quant_config.json", "{\"w_bit\":3,\"version\":\"GEMM\"}", E_UNSUPPORTED},
        {"hf_quant_config.json", "{\"quantization\":{\"quant_algo\":\"NVFP4\"}}", PACKED_OTHER},
        {"hf_quant_config.json", "{\"quantization\":{\"quant_algo\":\"W4A8_AWQ\"}}", E_UNSUPPORTED},
        {"hf_quant_config.json", "{\"quantization\":{\"kv_cache_quant_algo\":\"FP8\"}}",
         PACKED_NONE},
        {"hf_quant_config.json", "{\"quantization\":5}", PACKED_NONE},
        {"hf_quant_config.json", "[1]", PACKED_NONE},
        {"hf_quant_config.json", "{", E_FORMAT},
    };
    tmp_text(&dir, "config.json", "{\"model_type\":\"llama\"}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[PACKED_NAME];
        enum packed_format format;
        struct err err = {0};
        tmp_text(&dir, cases[i].file, cases[i].text);
        int rc = packed_format_of(dir.path, &format, name, &err);
        if (rc < 0 ? rc != cases[i].format : (int)format != cases[i].format)
            fail_msg("%s %s: %d, %s", cases[i].file, cases[i].text, rc < 0 ? rc : (int)format,
                     err.text);
        unlink(tmp_path(&dir, cases[i].file));
    }
}

// Only scales that the loader itself reads leave e4m3 numbers as they are.
static void e4m3_numbers_stay_where_their_scales_allow(void **state) {
    static const struct {
        enum dtype scales;
        int n_dims;
        int64_t shape[2];
        bool stays;
    } cases[] = {
        {DTYPE_F32, 0, {0}, true},       {DTYPE_F32, 1, {1}, true},
        {DTYPE_BF16, 1, {256}, true},    {DTYPE_F16, 2, {256, 1}, true},
        {DTYPE_F32, 2, {2, 3}, false},   {DTYPE_BF16, 2, {256, 12}, false},
        {DTYPE_U8, 1, {256}, false},     {DTYPE_F32, 1, {3}, false},
        {DTYPE_F32, 3, {256, 1}, false},
    };
    struct tensor codes = {
        .name = "a.weight", .dtype = DTYPE_F8_E4M3, .n_dims = 2, .shape = {256, 384}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tensor scales = {.name = "a.weight_scale",
                                      .dtype = cases[i].scales,
                                      .n_dims = cases[i].n_dims,
                                      .shape = {cases[i].shape[0], cases[i].shape[1]}};
        const struct tensor *const stored[] = {&codes, &scales};
        assert_int_equal(packed_fp8_stays(&codes, stored, 2), cases[i].stays);
        assert_false(packed_fp8_stays(&codes, stored, 1));
        assert_false(packed_fp8_stays(&scales, stored, 2));
    }
}

// --- parts ---

static const int32_t no_words[64];
static const float ones[72] = {1, 1, 1, 1, 1, 1, 1, 1};
static const float a_nan[8] = {1, NAN};
static const int32_t no_groups[8] = {0, 0, 7};
static const int64_t shape_8x8[2] = {8, 8}, shape_9x8[2] = {9, 8};

static int read_data(const void *ctx, const struct tensor *t, size_t offset, void *out, size_t n,
                     struct err *err) {
    assert_true(offset + n <= t->bytes);
    memcpy(out, (const char *)t->data + offset, n);
    return 0;
}

// n dims and dtype; the data must be large enough.
#define WORDS(label, n_rows, n_cols)                                                               \
    {                                                                                              \
        .name = label, .data = no_words, .bytes = (n_rows) * (n_cols)*4, .dtype = DTYPE_I32,       \
        .n_dims = 2, .shape = {                                                                    \
            n_rows,                                                                                \
            n_cols                                                                                 \
        }                                                                                          \
    }
#define FLOATS(label, values, n_rows, n_cols)                                                      \
    {                                                                                              \
        .name = label, .data = values, .bytes = (n_rows) * (n_cols)*4, .dtype = DTYPE_F32,         \
        .n_dims = 2, .shape = {                                                                    \
            n_rows,                                                                                \
            n_cols                                                                                 \
        }                                                                                          \
    }
#define LIST(label, values, type, n)                                                               \
    {                                                                                              \
        .name = label, .data = values, .bytes = (n) * sizeof *(values), .dtype = type,             \
        .n_dims = 1, .shape = {                                                                    \
            n                                                                                      \
        }                                                                                          \
    }
#define CODES(label, type, n_rows, n_cols)                                                         \
    {                                                                                              \
        .name = label, .data = no_words, .bytes = (n_rows) * (n_cols), .dtype = type, .n_dims = 2, \
        .shape = {                                                                                 \
            n_rows,                                                                                \
            n_cols                                                                                 \
        }                                                                                          \
    }

#define BLOCKS(label, n_experts, n_rows, n_groups)                                                 \
    {                                                                                              \
        .name = label, .data = no_words, .bytes = (n_experts) * (n_rows) * (n_groups)*16,          \
        .dtype = DTYPE_U8, .n_dims = 4, .shape = {                                                 \
            n_experts,                                                                             \
            n_rows,                                                                                \
            n_groups,                                                                              \
            16                                                                                     \
        }                                                                                          \
    }
#define BLOCK_SCALES(label, values, n_experts, n_rows, n_groups)                                   \
    {                                                                                              \
        .name = label, .data = values, .bytes = (n_experts) * (n_rows) * (n_groups),               \
        .dtype = DTYPE_U8, .n_dims = 3, .shape = {                                                 \
            n_experts,                                                                             \
            n_rows,                                                                                \
            n_groups                                                                               \
        }                                                                                          \
    }
#define SCALES(label, values, n_rows, n_groups)                                                    \
    {                                                                                              \
        .name = label, .data = values, .bytes = (n_rows) * (n_groups), .dtype = DTYPE_F8_E4M3,     \
        .n_dims = 2, .shape = {                                                                    \
            n_rows,                                                                                \
            n_groups                                                                               \
        }                                                                                          \
    }
static const float tiny[1] = {1e-38f};
static const uint8_t large[8] = {0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e};
static const uint8_t no_number[4] = {127, 255, 127, 127}; // e8m0

static const struct fault {
    enum packed_format format;
    struct tensor stored[5]; // sorted by name
    const char *says;        // NULL: none
} faults[] = {
    {PACKED_AWQ,
     {WORDS("a.qweight", 8, 1), WORDS("a.qzeros", 1, 1), FLOATS("a.scales", ones, 1, 8)},
     NULL},
    {PACKED_AWQ,
     {WORDS("a.qweight", 8, 1), WORDS("a.qzeros", 1, 1)},
     "'a.weight': it has no scales"},
    {PACKED_AWQ,
     {WORDS("a.qweight", 8, 2), WORDS("a.qzeros", 1, 1), FLOATS("a.scales", ones, 1, 8)},
     "differ in width"},
    {PACKED_AWQ,
     {WORDS("a.qweight", 8, 1), WORDS("a.qzeros", 2, 1), FLOATS("a.scales", ones, 1, 8)},
     "qzeros have another shape"},
    {PACKED_AWQ,
     {WORDS("a.qweight", 8, 1), WORDS("a.qzeros", 3, 1), FLOATS("a.scales", ones, 3, 8)},
     "whole groups"},
    {PACKED_AWQ,
     {WORDS("a.qweight", 8, 1), WORDS("a.qzeros", 1, 1), FLOATS("a.scales", a_nan, 1, 8)},
     "a scale that is infinite or no number"},
    {PACKED_GPTQ, {WORDS("a.qweight", 1, 8), FLOATS("a.scales", ones, 1, 8)}, "no qzeros"},
    {PACKED_GPTQ,
     {WORDS("a.qweight", 1, 8), WORDS("a.qzeros", 1, 3), FLOATS("a.scales", ones, 1, 8)},
     "not of 4 or 8 bits"},
    {PACKED_GPTQ,
     {WORDS("a.qweight", 1, 10), WORDS("a.qzeros", 1, 1), FLOATS("a.scales", ones, 1, 10)},
     "'a.weight': its outputs do not fill the 32-bit words of qzeros"},
    {PACKED_GPTQ,
     {WORDS("a.qweight", 1, 10), WORDS("a.qzeros", 1, 2), FLOATS("a.scales", ones, 1, 10)},
     "do not fill the 32-bit words"},
    {PACKED_GPTQ,
     {LIST("a.g_idx", no_groups, DTYPE_I32, 8), WORDS("a.qweight", 1, 8), WORDS("a.qzeros", 1, 1),
      FLOATS("a.scales", ones, 1, 8)},
     "names group 7 of 1"},
    {PACKED_GPTQ,
     {LIST("a.g_idx", no_groups, DTYPE_I32, 4), WORDS("a.qweight", 1, 8), WORDS("a.qzeros", 1, 1),
      FLOATS("a.scales", ones, 1, 8)},
     "g_idx has another shape"},
    {PACKED_GPTQ,
     {LIST("a.g_idx", no_words, DTYPE_I32, 8), WORDS("a.qweight", 1, 8), WORDS("a.qzeros", 9, 1),
      FLOATS("a.scales", ones, 9, 8)},
     "more groups than columns"},
    {PACKED_OTHER, {WORDS("a.weight_packed", 8, 1)}, "it has no scales"},
    {PACKED_OTHER,
     {WORDS("a.weight_packed", 8, 1), FLOATS("a.weight_scale", ones, 8, 1)},
     "no weight_shape"},
    {PACKED_OTHER,
     {WORDS("a.weight_packed", 8, 1), FLOATS("a.weight_scale", ones, 8, 1),
      LIST("a.weight_shape", shape_9x8, DTYPE_I64, 2)},
     "weight_shape does not fit"},
    {PACKED_OTHER,
     {WORDS("a.weight_packed", 8, 5), FLOATS("a.weight_scale", ones, 8, 1),
      LIST("a.weight_shape", shape_8x8, DTYPE_I64, 2)},
     "not of 4 or 8 bits"},
    {PACKED_GPTQ,
     {WORDS("a.qweight", 1, 10), WORDS("a.qzeros", 1, 1), FLOATS("a.scales", ones, 1, 10)},
     "'a.weight': its outputs do not fill the 32-bit words of qzeros"},
    {PACKED_GPTQ,
     {WORDS("a.qweight", 1, 10), WORDS("a.qzeros", 1, 2), FLOATS("a.scales", ones, 1, 10)},
     "do not fill the 32-bit words"},
    {PACKED_OTHER,
     {CODES("a.weight_packed", DTYPE_U8, 8, 8), CODES("a.weight_scale", DTYPE_F8_E4M3, 8, 1)},
     "no global scale"},
    {PACKED_OTHER,
     {FLOATS("a.weight_global_scale", tiny, 1, 1), CODES("a.weight_packed", DTYPE_U8, 8, 4),
      SCALES("a.weight_scale", large, 8, 1)},
     "'a.weight_scale' holds a scale that is infinite or no number"},
    {PACKED_OTHER,
     {CODES("a.weight", DTYPE_I8, 8, 8), FLOATS("a.weight_scale", ones, 3, 1)},
     "its scales have another shape"},
    {PACKED_OTHER,
     {BLOCKS("a_blocks", 2, 1, 1), BLOCK_SCALES("a_scales", no_words, 2, 1, 1)},
     NULL},
    {PACKED_OTHER, {BLOCKS("a_blocks", 2, 1, 1)}, "its blocks have no scales"},
    {PACKED_OTHER,
     {BLOCKS("a_blocks", 2, 1, 1), BLOCK_SCALES("a_scales", no_words, 1, 2, 1)},
     "its blocks have no scales"},
    {PACKED_OTHER,
     {BLOCKS("a_blocks", 2, 1, 1), BLOCK_SCALES("a_scales", no_number, 2, 1, 1)},
     "a scale that is infinite or no number"},
};

static void parts_that_do_not_fit_are_refused(void **state) {
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        const struct fault *f = &faults[i];
        const struct tensor *list[5];
        struct packed_tensors *p = NULL;
        struct err err = {0};
        size_t n = 0;
        for (; n < 5 && f->stored[n].name; n++) list[n] = &f->stored[n];
        int rc = packed_tensors_open(&p, f->format, list, n,
                                     (struct packed_reader){read_data, NULL}, &err);
        if (rc == 0) {
            assert_int_equal(packed_tensors_count(p), 1);
            const struct tensor *t = packed_tensors_at(p, 0);
            float values[64];
            assert_string_equal(t->name, "a.weight");
            assert_true(packed_tensors_has(p, t));
            assert_int_equal(t->bytes, sizeof values);
            rc = packed_tensors_read(p, t, 0, values, sizeof values, &err);
        }
        if (f->says ? rc != E_FORMAT || !strstr(err.text, f->says) : rc != 0)
            fail_msg("fault %zu: %d %s", i, rc, err.text);
        packed_tensors_close(p);
    }
}

static int read_counted(const void *ctx, const struct tensor *t, size_t offset, void *out, size_t n,
                        struct err *err) {
    *(size_t *)(uintptr_t)ctx += n;
    return read_data(NULL, t, offset, out, n, err);
}

// A read may begin and end anywhere. One of a few columns, as a fingerprint's samples, costs their words, its rows' scales and all
// zeros: 16 samples of each matrix of an AWQ model read each of their eight rows' columns once.
static void pieces_are_the_same_as_the_whole(void **state) {
    enum { ROWS = 16, COLS = 32, GROUPS = 2 };
    static const struct {
        enum packed_format method;
        int64_t lines, words;                // of the codes
        size_t first_value, last_two_values; // bytes that they cost, codes alone
    } cases[] = {{PACKED_AWQ, COLS, ROWS / 8, 4, 8}, {PACKED_GPTQ, COLS / 8, ROWS, 32, 32}};
    static uint32_t words[COLS * ROWS / 8];
    static float scales[GROUPS * ROWS];
    for (uint32_t i = 0; i < COLS * ROWS / 8; i++) words[i] = i * 2654435761u + 12345;
    for (int i = 0; i < GROUPS * ROWS; i++) scales[i] = (float)(i + 1);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const struct tensor stored[] = {
            {.name = "a.qweight",
             .data = words,
             .bytes = sizeof words,
             .dtype = DTYPE_I32,
             .n_dims = 2,
             .shape = {cases[c].lines, cases[c].words}},
            {.name = "a.qzeros",
             .data = words,
             .bytes = GROUPS * ROWS / 2,
             .dtype = DTYPE_I32,
             .n_dims = 2,
             .shape = {GROUPS, ROWS / 8}},
            {.name = "a.scales",
             .data = scales,
             .bytes = sizeof scales,
             .dtype = DTYPE_F32,
             .n_dims = 2,
             .shape = {GROUPS, ROWS}},
        };
        const struct tensor *list[] = {&stored[0], &stored[1], &stored[2]};
        const size_t besides = 8 * GROUPS * 4 + GROUPS * ROWS / 2; // scales and zeros of eight rows
        struct packed_tensors *p = NULL;
        struct err err = {0};
        char whole[ROWS * COLS * 4], part[ROWS * COLS * 4];
        size_t n_read = 0;
        assert_int_equal(packed_tensors_open(&p, cases[c].method, list, 3,
                                             (struct packed_reader){read_counted, &n_read}, &err),
                         0);
        const struct tensor *t = packed_tensors_at(p, 0);
        assert_int_equal(packed_tensors_read(p, t, 0, whole, sizeof whole, &err), 0);
        for (size_t from = 0; from < sizeof whole; from += 13)
            for (size_t n = 1; from + n <= sizeof whole; n += 37) {
                assert_int_equal(packed_tensors_read(p, t, from, part, n, &err), 0);
                assert_memory_equal(part, whole + from, n);
            }
        n_read = 0;
        assert_int_equal(packed_tensors_read(p, t, 3 * COLS * 4, part, 4, &err), 0);
        assert_int_equal(n_read, cases[c].first_value + besides);
        n_read = 0;
        assert_int_equal(packed_tensors_read(p, t, 12 * COLS * 4 - 8, part, 8, &err), 0);
        assert_int_equal(n_read, cases[c].last_two_values + besides);
        assert_int_equal(packed_tensors_read(p, t, sizeof whole, part, 1, &err), E_INTERNAL);
        packed_tensors_close(p);
    }
}

// Some rows of a matrix cost their own bytes alone, and have the values that the whole has: a model of experts opens
// each one's.
static void some_rows_cost_their_own_bytes(void **state) {
    enum { EXPERTS = 5, ROWS = 6, GROUPS = 2, COLS = 32 * GROUPS };
    static uint8_t codes[EXPERTS * ROWS * COLS / 2], scales[EXPERTS * ROWS * GROUPS];
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)(i * 37 + i / 16);
    for (size_t i = 0; i < sizeof scales; i++) scales[i] = (uint8_t)(120 + i % 9);
    const struct tensor stored[] = {
        {.name = "e.gate_up_proj_blocks",
         .data = codes,
         .bytes = sizeof codes,
         .dtype = DTYPE_U8,
         .n_dims = 4,
         .shape = {EXPERTS, ROWS, GROUPS, 16}},
        {.name = "e.gate_up_proj_scales",
         .data = scales,
         .bytes = sizeof scales,
         .dtype = DTYPE_U8,
         .n_dims = 3,
         .shape = {EXPERTS, ROWS, GROUPS}},
    };
    const struct tensor *list[] = {&stored[0], &stored[1]};
    static float whole[EXPERTS * ROWS * COLS];
    size_t n_read = 0;
    struct packed_tensors *p = NULL;
    struct packed_rows *rows = NULL;
    struct group_format format;
    struct err err = {0};
    assert_int_equal(packed_tensors_open(&p, PACKED_OTHER, list, 2,
                                         (struct packed_reader){read_counted, &n_read}, &err),
                     0);
    const struct tensor *t = packed_tensors_at(p, 0);
    assert_int_equal(t->bytes, sizeof whole);
    assert_int_equal(packed_tensors_read(p, t, 0, whole, sizeof whole, &err), 0);
    assert_true(packed_tensors_groups(p, t, &format));
    for (int64_t e = 0; e < EXPERTS; e++) {
        n_read = 0;
        assert_int_equal(packed_tensors_rows_open(&rows, p, t, e * ROWS, ROWS, &err), 0);
        // The rows that a strip begins and ends with come by eights.
        assert_in_range(n_read, ROWS * (COLS / 2 + GROUPS), (ROWS + 14) * (COLS / 2 + GROUPS));
        for (int64_t r = e * ROWS; r < (e + 1) * ROWS; r++) {
            uint8_t of_row[COLS];
            float of_groups[COLS / GROUP_MIN];
            struct group_row row = {.codes = of_row, .scales = of_groups};
            packed_tensors_row(rows, r, 0, COLS, &row);
            for (int64_t k = 0; k < COLS; k++) {
                const float value =
                    (float)(format.book[of_row[k]] - format.zero) * of_groups[k / format.group];
                if (value != whole[r * COLS + k])
                    fail_msg("row %d, column %d: %g, not %g", (int)r, (int)k, (double)value,
                             (double)whole[r * COLS + k]);
            }
        }
        packed_tensors_rows_close(rows);
    }
    packed_tensors_close(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods_have_the_names_that_people_use),
        cmocka_unit_test(formats_are_known_or_refused_by_name),
        cmocka_unit_test(a_file_of_its_own_names_the_method),
        cmocka_unit_test(e4m3_numbers_stay_where_their_scales_allow),
        cmocka_unit_test(parts_that_do_not_fit_are_refused),
        cmocka_unit_test(pieces_are_the_same_as_the_whole),
        cmocka_unit_test(some_rows_cost_their_own_bytes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
