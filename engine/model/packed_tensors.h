// Matrices of few bits in safetensors files, as Hugging Face's quantisers store them: several tensors each (codes,
// scales, zeros ...), shown as one matrix "STEM.weight" of F32, whose values reading computes. Weight-only: what a
// folder says of activations and of the cache does not change them.
//
//   STEM.qweight (K, N / 8)       AWQ, `gemm`      4 bits; eight outputs share a word, in the order 0 2 4 6 1 3 5 7
//   STEM.qweight (K b / 32, N)    GPTQ             b = 4 or 8 bits; inputs share a word; qzeros: z - 1, or z (gptq_v2)
//                                 AutoRound stores AWQ's or GPTQ's (packing_format)
//   STEM.weight_packed, I32       compressed-tensors, pack-quantized: b = 4 or 8, (N, K b / 32), dense along K
//   STEM.weight_packed, U8        compressed-tensors, nvfp4-pack (scales e4m3) and mxfp4-pack (scales U8: e8m0)
//   STEM_blocks, U8               gpt-oss: MXFP4 of all experts of a layer, (E, N, K / 32, 16), and STEM_scales; the
//                                 matrix is (E, N, K)
//   STEM.weight, U8               ModelOpt NVFP4: weight_scale_2
//   STEM.weight, I8 or F8_E4M3    with scales, where the folder mixes formats, is int-quantized or mxfp8-quantized; e4m3
//                                 with a scale a row or one for all stays as it is (packed_fp8.c)
//   STEM.weight, I8, STEM.SCB     bitsandbytes' LLM.int8(): a row's largest magnitude, 127 times its scale
//   STEM.weight with quant_state  bitsandbytes' 4 bits (packed_bnb.h), shown in the dtype that they widen to
//
// What a tensor is, its own parts decide, not the lists of modules in config.json.
#pragma once
#include "engine/model/safetensors.h"
#include "kernels/groups.h"
#include <cjson/cJSON.h>
#include <stdbool.h>

enum packed_format { // of quantization_config
    PACKED_NONE, // no such folder, or one whose matrices the loader reads itself (quantization.h)
    PACKED_AWQ,
    PACKED_GPTQ,    // version 1: zeros are stored as z - 1
    PACKED_GPTQ_V2, // zeros are stored as they are
    PACKED_BNB,     // bitsandbytes
    PACKED_OTHER    // compressed-tensors, ModelOpt, MXFP4 of gpt-oss
};
// config.json's quantization_config, or compression_config, its name in older versions of compressed-tensors. NULL: it
// has neither.
const cJSON *quantization_of(const cJSON *config);
// The format that config.json's quantization_config names. E_UNSUPPORTED names what is unknown and changes values.
int packed_format_read(const cJSON *config, enum packed_format *out, struct err *err);
// The same of a folder, whose quantization_config may also be a file of its own: quantize_config.json (GPTQ),
// quant_config.json (AWQ) or hf_quant_config.json (ModelOpt). name: as packed_name_of.
enum { PACKED_NAME = 24 };
int packed_format_of(const char *model_dir, enum packed_format *out, char name[PACKED_NAME],
                     struct err *err);
// What people call it: "W4A16", "AWQ", "GPTQ-Int4", "NVFP4". "": no method that is known here (packed_name.c).
void packed_name_of(char out[PACKED_NAME], const cJSON *quantization_config);

// Whether e4m3 numbers "STEM.weight" stay a tensor of 8 bits, which the loader reads itself: "STEM.weight_scale" beside
// them has a scale a row, or one for all. stored: (n), sorted by name.
#define PACKED_FP8_END "_scale" // behind the name of the numbers
bool packed_fp8_stays(const struct tensor *t, const struct tensor *const *stored, size_t n);

struct packed_tensors;

// Reads a tensor's stored bytes.
struct packed_reader {
    int (*read)(const void *ctx, const struct tensor *t, size_t offset, void *out, size_t n,
                struct err *err);
    const void *ctx;
};
// Finds the packed matrices among stored tensors, which are borrowed and sorted by name. *out stays NULL if there is
// none. E_FORMAT names a matrix whose parts do not fit together.
int packed_tensors_open(struct packed_tensors **out, enum packed_format format,
                        const struct tensor *const *stored, size_t n, struct packed_reader reader,
                        struct err *err);
void packed_tensors_close(struct packed_tensors *p); // NULL is allowed
// All tensors of the folder, with a matrix in place of its parts.
size_t packed_tensors_count(const struct packed_tensors *p);
const struct tensor *packed_tensors_at(const struct packed_tensors *p, size_t i);
// Whether t is such a matrix, whose data is NULL; others are stored tensors.
bool packed_tensors_has(const struct packed_tensors *p, const struct tensor *t);
// Like safetensors_read. E_FORMAT: a scale that is infinite or no number.
int packed_tensors_read(const struct packed_tensors *p, const struct tensor *t, size_t offset,
                        void *out, size_t n, struct err *err);

// A matrix as codes, scales and zeros (packed_groups.c). false: it is none of these, and read as F32 alone: e4m3
// numbers, groups of columns in another order than theirs (desc_act), groups of sizes that 16 does not divide.
bool packed_tensors_groups(const struct packed_tensors *p, const struct tensor *t,
                           struct group_format *out);
// The stored parts of its rows [first, first + count) in memory, until close. E_FORMAT: a scale that is infinite or
// no number.
struct packed_rows;
int packed_tensors_rows_open(struct packed_rows **out, const struct packed_tensors *p,
                             const struct tensor *t, int64_t first, int64_t count, struct err *err);
void packed_tensors_rows_close(struct packed_rows *rows); // NULL is allowed
// Columns [first, first + n) of the matrix's row `row`, one of those in memory; first is a multiple of the format's
// group. Any thread.
void packed_tensors_row(const struct packed_rows *rows, int64_t row, int64_t first, int64_t n,
                        struct group_row *out);
