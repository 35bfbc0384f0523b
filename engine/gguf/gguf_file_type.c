// See gguf_file_type.h. Numbers: llama.cpp's llama_ftype.
#include "engine/gguf/gguf_file_type.h"
#include "base/json.h"
#include <string.h>

enum { BLOCK_TYPES_MAX = 64 }; // more than ggml has

static const struct {
    int number;
    const char *name;
    const char *type; // of a matrix that such a file has
} file_types[] = {
    {0, "F32", "F32"},        {1, "F16", "F16"},          {2, "Q4_0", "Q4_0"},
    {3, "Q4_1", "Q4_1"},      {7, "Q8_0", "Q8_0"},        {8, "Q5_0", "Q5_0"},
    {9, "Q5_1", "Q5_1"},      {10, "Q2_K", "Q2_K"},       {11, "Q3_K_S", "Q3_K"},
    {12, "Q3_K_M", "Q3_K"},   {13, "Q3_K_L", "Q3_K"},     {14, "Q4_K_S", "Q4_K"},
    {15, "Q4_K_M", "Q4_K"},   {16, "Q5_K_S", "Q5_K"},     {17, "Q5_K_M", "Q5_K"},
    {18, "Q6_K", "Q6_K"},     {19, "IQ2_XXS", "IQ2_XXS"}, {20, "IQ2_XS", "IQ2_XS"},
    {21, "Q2_K_S", "Q2_K"},   {22, "IQ3_XS", "IQ3_S"},    {23, "IQ3_XXS", "IQ3_XXS"},
    {24, "IQ1_S", "IQ1_S"},   {25, "IQ4_NL", "IQ4_NL"},   {26, "IQ3_S", "IQ3_S"},
    {27, "IQ3_M", "IQ3_S"},   {28, "IQ2_S", "IQ2_XS"},    {29, "IQ2_M", "IQ2_S"},
    {30, "IQ4_XS", "IQ4_XS"}, {31, "IQ1_M", "IQ1_M"},     {32, "BF16", "BF16"},
    {36, "TQ1_0", "TQ1_0"},   {37, "TQ2_0", "TQ2_0"},     {38, "MXFP4", "MXFP4"},
    {39, "NVFP4", "NVFP4"},   {40, "Q1_0", "Q1_0"},       {41, "Q2_0", "Q2_0"},
};

static bool has_matrix_of(const struct gguf *g, const char *type) {
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        if (t->n_dims >= 2 && strcmp(t->type->name, type) == 0) return true;
    }
    return false;
}

// The type that most bytes of matrices have.
static const char *most_bytes(const struct gguf *g) {
    struct {
        const struct block_type *type;
        uint64_t bytes;
    } all[BLOCK_TYPES_MAX] = {{0}};
    int best = 0;
    for (size_t i = 0; i < gguf_count(g); i++) {
        const struct gguf_tensor *t = gguf_at(g, i);
        int k = 0;
        if (t->n_dims < 2) continue;
        while (k < BLOCK_TYPES_MAX - 1 && all[k].type && all[k].type != t->type) k++;
        all[k].type = t->type;
        all[k].bytes += t->bytes;
        if (all[k].bytes > all[best].bytes) best = k;
    }
    return all[best].type ? all[best].type->name : "F32";
}

const char *gguf_file_type(const struct gguf *g) {
    const cJSON *number = json_member(gguf_metadata(g), "general.file_type");
    for (size_t i = 0; i < sizeof file_types / sizeof *file_types; i++)
        if (cJSON_IsNumber(number) && number->valuedouble == file_types[i].number &&
            has_matrix_of(g, file_types[i].type))
            return file_types[i].name;
    return most_bytes(g);
}
