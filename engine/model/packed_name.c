// What people call the formats of folders of few bits. See packed_tensors.h.
#include "base/json.h"
#include "engine/model/packed_tensors.h"
#include <stdio.h>
#include <string.h>

static int bits_of(const cJSON *weights) {
    const cJSON *bits = json_member(weights, "num_bits");
    return cJSON_IsNumber(bits) && bits->valuedouble > 0 && bits->valuedouble <= 64
               ? (int)bits->valuedouble
               : 0;
}

// compressed-tensors: of several groups the one of the fewest bits gives the name.
static void name_compressed(char out[PACKED_NAME], const cJSON *q) {
    static const struct {
        const char *format, *name;
    } formats[] = {{"nvfp4-pack-quantized", "NVFP4"},
                   {"mxfp4-pack-quantized", "MXFP4"},
                   {"mxfp8-quantized", "MXFP8"}};
    const cJSON *best = NULL, *group;
    cJSON_ArrayForEach(group, json_member(q, "config_groups")) {
        const int bits = bits_of(json_member(group, "weights"));
        if (bits && (!best || bits < bits_of(json_member(best, "weights")))) best = group;
    }
    const cJSON *weights = json_member(best, "weights"), *inputs;
    const char *format = json_string(best, "format"), *type = json_string(weights, "type");
    if (!best) return;
    if (!format) format = json_string(q, "format");
    for (size_t i = 0; format && i < sizeof formats / sizeof *formats; i++)
        if (strcmp(format, formats[i].format) == 0)
            snprintf(out, PACKED_NAME, "%s", formats[i].name);
    if (out[0]) return;
    inputs = json_member(best, "input_activations");
    if (type && strcmp(type, "float") == 0)
        snprintf(out, PACKED_NAME, "FP%d", bits_of(weights));
    else
        snprintf(out, PACKED_NAME, "W%dA%d", bits_of(weights),
                 bits_of(inputs) ? bits_of(inputs) : 16);
}

void packed_name_of(char out[PACKED_NAME], const cJSON *q) {
    const char *method = json_string(q, "quant_method"), *algo = json_string(q, "quant_algo");
    const cJSON *b = json_member(q, "bits");
    const int bits = cJSON_IsNumber(b) && b->valuedouble == 8 ? 8 : 4;
    out[0] = '\0';
    if (!method) method = "";
    if (strcmp(method, "compressed-tensors") == 0)
        name_compressed(out, q);
    else if (strcmp(method, "awq") == 0)
        snprintf(out, PACKED_NAME, "AWQ");
    else if (strcmp(method, "gptq") == 0)
        snprintf(out, PACKED_NAME, "GPTQ-Int%d", bits);
    else if (strstr(method, "auto-round"))
        snprintf(out, PACKED_NAME, "AutoRound-Int%d", bits);
    else if (strcmp(method, "mxfp4") == 0)
        snprintf(out, PACKED_NAME, "MXFP4");
    else if (strcmp(method, "modelopt") == 0 && algo)
        snprintf(out, PACKED_NAME, "%.20s", algo);
    else if (strcmp(method, "bitsandbytes") == 0 || json_member(q, "load_in_4bit"))
        snprintf(out, PACKED_NAME, "%s",
                 cJSON_IsTrue(json_member(q, "load_in_8bit")) ? "LLM.int8"
                 : json_string(q, "bnb_4bit_quant_type") &&
                         strcmp(json_string(q, "bnb_4bit_quant_type"), "fp4") == 0
                     ? "FP4"
                     : "NF4");
}
