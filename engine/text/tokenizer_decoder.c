// The decoder of a tokenizer.json: nested JSON to a flat list of steps. Unknown names are refused.
#include "base/json.h"
#include "engine/text/tokenizer_file.h"
#include <string.h>

static int add(struct decoder *d, enum decode_kind kind, struct decode_step **out,
               struct err *err) {
    if (d->n_steps == DECODER_MAX_STEPS)
        return err_set(err, E_LIMIT, "decoder: more than %d steps", DECODER_MAX_STEPS);
    *out = &d->steps[d->n_steps++];
    (*out)->kind = kind;
    return 0;
}

static int keep(char **out, const char *s, struct err *err) {
    *out = strdup(s);
    return *out ? 0 : err_set(err, E_NOMEM, "no memory for the decoder");
}

static int read_string(const cJSON *json, const char *type, const char *key, const char * or,
                       char **out, struct err *err) {
    const char *s = or ;
    TRY(json_get_string(json, key, &s, err));
    if (!s) return err_set(err, E_FORMAT, "decoder %s has no %s", type, key);
    return keep(out, s, err);
}

static int read_metaspace(struct decoder *d, const cJSON *json, struct err *err) {
    struct tokenizer_metaspace m;
    struct decode_step *step = NULL;
    TRY(tokenizer_read_metaspace(json, "decoder Metaspace", &m, err));
    TRY(add(d, DECODE_METASPACE, &step, err));
    step->flag = m.prepend != PREPEND_NEVER;
    return keep(&step->content, m.replacement, err);
}

static int read_replace(struct decoder *d, const cJSON *json, struct err *err) {
    static const char *const keys[] = {"type", "pattern", "content", NULL};
    struct decode_step *step = NULL;
    const char *regex, *string;
    TRY(tokenizer_known_keys(json, "decoder Replace", keys, err));
    TRY(tokenizer_read_pattern(json, "Replace", &regex, &string, err));
    TRY(add(d, DECODE_REPLACE, &step, err));
    step->flag = string && tokenizer_is_character(string);
    TRY(regex ? pattern_regex(&step->pattern, regex, err)
              : pattern_literal(&step->pattern, string, err));
    return read_string(json, "Replace", "content", NULL, &step->content, err);
}

static int read_strip(struct decoder *d, const cJSON *json, struct err *err) {
    static const char *const keys[] = {"type", "content", "start", "stop", NULL};
    struct decode_step *step = NULL;
    int64_t start = 0, stop = 0;
    TRY(tokenizer_known_keys(json, "decoder Strip", keys, err));
    TRY(add(d, DECODE_STRIP, &step, err));
    TRY(json_get_int(json, "start", 0, INT32_MAX, &start, err));
    TRY(json_get_int(json, "stop", 0, INT32_MAX, &stop, err));
    step->start = (size_t)start;
    step->stop = (size_t)stop;
    TRY(read_string(json, "Strip", "content", NULL, &step->content, err));
    return tokenizer_is_character(step->content)
               ? 0
               : err_set(err, E_FORMAT, "decoder Strip: content '%.20s' is not one character",
                         step->content);
}

static int read_word_piece(struct decoder *d, const cJSON *json, struct err *err) {
    static const char *const keys[] = {"type", "prefix", "cleanup", NULL};
    struct decode_step *step = NULL;
    TRY(tokenizer_known_keys(json, "decoder WordPiece", keys, err));
    TRY(add(d, DECODE_WORD_PIECE, &step, err));
    step->flag = true;
    TRY(json_get_bool(json, "cleanup", &step->flag, err));
    return read_string(json, "WordPiece", "prefix", "##", &step->content, err);
}

static int read_ctc(struct decoder *d, const cJSON *json, struct err *err) {
    static const char *const keys[] = {"type", "pad_token", "word_delimiter_token", "cleanup",
                                       NULL};
    struct decode_step *step = NULL;
    TRY(tokenizer_known_keys(json, "decoder CTC", keys, err));
    TRY(add(d, DECODE_CTC, &step, err));
    step->flag = true;
    TRY(json_get_bool(json, "cleanup", &step->flag, err));
    TRY(read_string(json, "CTC", "pad_token", "<pad>", &step->content, err));
    return read_string(json, "CTC", "word_delimiter_token", "|", &step->delimiter, err);
}

static int read_bpe(struct decoder *d, const cJSON *json, struct err *err) {
    static const char *const keys[] = {"type", "suffix", NULL};
    struct decode_step *step = NULL;
    TRY(tokenizer_known_keys(json, "decoder BPEDecoder", keys, err));
    TRY(add(d, DECODE_BPE, &step, err));
    return read_string(json, "BPEDecoder", "suffix", "</w>", &step->content, err);
}

static int read_simple(struct decoder *d, const cJSON *json, const char *type,
                       enum decode_kind kind, struct err *err) {
    // ByteLevel's options say nothing about decoding.
    static const char *const keys[] = {"type", "add_prefix_space", "trim_offsets", "use_regex",
                                       NULL};
    static const char *const none[] = {"type", NULL};
    struct decode_step *step = NULL;
    TRY(tokenizer_known_keys(json, type, kind == DECODE_BYTE_LEVEL ? keys : none, err));
    return add(d, kind, &step, err);
}

static int read_decoder(struct decoder *d, const cJSON *json, int depth, struct err *err) {
    static const char *const sequence_keys[] = {"type", "decoders", NULL};
    const char *type = NULL;
    TRY(tokenizer_type_of(json, "decoder", &type, err));
    if (depth > TOKENIZER_MAX_NESTING)
        return err_set(err, E_LIMIT, "decoder: nested more than %d deep", TOKENIZER_MAX_NESTING);
    if (strcmp(type, "ByteLevel") == 0) return read_simple(d, json, type, DECODE_BYTE_LEVEL, err);
    if (strcmp(type, "ByteFallback") == 0)
        return read_simple(d, json, type, DECODE_BYTE_FALLBACK, err);
    if (strcmp(type, "Fuse") == 0) return read_simple(d, json, type, DECODE_FUSE, err);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(d, json, err);
    if (strcmp(type, "Replace") == 0) return read_replace(d, json, err);
    if (strcmp(type, "Strip") == 0) return read_strip(d, json, err);
    if (strcmp(type, "BPEDecoder") == 0) return read_bpe(d, json, err);
    if (strcmp(type, "WordPiece") == 0) return read_word_piece(d, json, err);
    if (strcmp(type, "CTC") == 0) return read_ctc(d, json, err);
    if (strcmp(type, "Sequence") != 0)
        return err_set(err, E_UNSUPPORTED, "decoder '%.60s' is not supported", type);
    const cJSON *list = NULL, *item;
    TRY(tokenizer_known_keys(json, "decoder Sequence", sequence_keys, err));
    TRY(json_get_array(json, "decoders", &list, err));
    cJSON_ArrayForEach(item, list) TRY(read_decoder(d, item, depth + 1, err));
    return 0;
}

int tokenizer_read_decoder(struct decoder *d, const cJSON *json, struct err *err) {
    struct decode_step *step = NULL;
    return !json || cJSON_IsNull(json) ? add(d, DECODE_SPACES, &step, err)
                                       : read_decoder(d, json, 0, err);
}
