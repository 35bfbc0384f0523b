// Vocabulary, merges and special tokens of a GGUF file, as the files of a folder have them.
#include "engine/gguf/gguf_tokenizer.h"
#include "base/json.h"
#include "engine/gguf/gguf_pre.h"
#include <stdio.h>
#include <string.h>

#define TOKENIZER "tokenizer.ggml."
#define SPACE_MARK "\xe2\x96\x81" // U+2581

enum token_type { // as SentencePiece counts the types of pieces
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER_DEFINED,
    TOKEN_UNUSED,
    TOKEN_BYTE
};

int gguf_tokenizer_kind(const struct gguf *g, enum gguf_tokenizer *out, struct err *err) {
    const char *model = json_string(gguf_metadata(g), TOKENIZER "model");
    *out = GGUF_TOKENIZER_NONE;
    if (!model || strcmp(model, "none") == 0 || strcmp(model, "no_vocab") == 0) return 0;
    if (strcmp(model, "gpt2") == 0) *out = GGUF_TOKENIZER_BYTE_LEVEL;
    if (strcmp(model, "gemma4") == 0) *out = GGUF_TOKENIZER_PIECES;
    if (strcmp(model, "llama") == 0) *out = GGUF_TOKENIZER_SENTENCEPIECE;
    if (*out != GGUF_TOKENIZER_NONE) return 0;
    return err_set(err, E_UNSUPPORTED,
                   TOKENIZER "model is '%.60s'; known are gpt2, llama and gemma4", model);
}

// --- the tokens ---

// The arrays of the vocabulary, walked side by side.
struct tokens {
    const cJSON *content, *type, *score; // the present token's; type and score may be NULL
    int32_t id;
    bool is_gemma4; // whose text may have "</s>", which other models' files often call text wrongly
};

static int first_token(const struct gguf *g, struct tokens *t, struct err *err) {
    const cJSON *m = gguf_metadata(g), *list = json_member(m, TOKENIZER "tokens");
    const cJSON *types = json_member(m, TOKENIZER "token_type");
    const cJSON *scores = json_member(m, TOKENIZER "scores");
    if (!cJSON_IsArray(list) || !list->child)
        return err_set(err, E_FORMAT, "the file has no " TOKENIZER "tokens");
    const int n = cJSON_GetArraySize(list);
    if ((types && cJSON_GetArraySize(types) != n) || (scores && cJSON_GetArraySize(scores) != n))
        return err_set(err, E_FORMAT,
                       "the file has %d tokens, and another number of types or scores", n);
    const char *model = json_string(m, TOKENIZER "model");
    *t = (struct tokens){.content = list->child,
                         .type = types ? types->child : NULL,
                         .score = scores ? scores->child : NULL,
                         .is_gemma4 = model && strcmp(model, "gemma4") == 0};
    return 0;
}

static bool next_token(struct tokens *t) {
    t->content = t->content->next;
    if (t->type) t->type = t->type->next;
    if (t->score) t->score = t->score->next;
    t->id++;
    return t->content != NULL;
}

static int check_token(const struct tokens *t, struct err *err) {
    if (cJSON_IsString(t->content) && (!t->type || cJSON_IsNumber(t->type)) &&
        (!t->score || cJSON_IsNumber(t->score)))
        return 0;
    return err_set(err, E_FORMAT, "token %d is no text with a type and a score", t->id);
}

// Tokens with these texts are control tokens whatever their type is, as in llama.cpp: many files have them as text.
static bool is_control_text(const char *s) {
    static const char *const texts[] = {"<|eot_id|>",
                                        "<|im_end|>",
                                        "<|end|>",
                                        "<|return|>",
                                        "<|call|>",
                                        "<|flush|>",
                                        "<|calls|>",
                                        "<end_of_turn>",
                                        "<|endoftext|>",
                                        "</s>",
                                        "<|eom_id|>",
                                        "<EOT>",
                                        "_<EOT>",
                                        "[EOT]",
                                        "[EOS]",
                                        "<|end_of_text|>",
                                        "<end_of_utterance>",
                                        "<eos>",
                                        "<turn|>",
                                        "<|tool_response>",
                                        "<\xef\xbd\x9c"
                                        "end" SPACE_MARK "of" SPACE_MARK "sentence\xef\xbd\x9c>",
                                        "[e~["};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(s, texts[i]) == 0) return true;
    return false;
}

static int type_of(const struct tokens *t) {
    const char *s = t->content->valuestring;
    if (is_control_text(s) && !(t->is_gemma4 && strcmp(s, "</s>") == 0)) return TOKEN_CONTROL;
    return t->type ? t->type->valueint : TOKEN_NORMAL;
}

static int no_memory(struct err *err) {
    return err_set(err, E_NOMEM, "no memory for the vocabulary");
}

static int add(cJSON *into, const char *key, cJSON *item, struct err *err) {
    if (item && cJSON_AddItemToObject(into, key, item)) return 0;
    cJSON_Delete(item);
    return no_memory(err);
}

// --- tokenizer.json ---

// The content of the token whose id the metadata have.
static int add_named(const struct gguf *g, cJSON *into, const char *key, const char *name,
                     struct err *err) {
    int64_t id = -1;
    const cJSON *m = gguf_metadata(g);
    TRY(json_get_int(m, key, 0, INT32_MAX, &id, err));
    if (id < 0) return 0;
    const cJSON *token = cJSON_GetArrayItem(json_member(m, TOKENIZER "tokens"), (int)id);
    if (!cJSON_IsString(token)) return err_set(err, E_FORMAT, "'%s' is no token", key);
    return add(into, name, cJSON_CreateString(token->valuestring), err);
}

static int add_vocab(const struct gguf *g, cJSON *model, struct err *err) {
    struct tokens t;
    cJSON *vocab = cJSON_CreateObject();
    TRY(add(model, "vocab", vocab, err));
    TRY(first_token(g, &t, err));
    do {
        TRY(check_token(&t, err));
        TRY(add(vocab, t.content->valuestring, cJSON_CreateNumber(t.id), err));
    } while (next_token(&t));
    return 0;
}

static int add_merges(const struct gguf *g, cJSON *model, struct err *err) {
    const cJSON *list = json_member(gguf_metadata(g), TOKENIZER "merges"), *item;
    cJSON *merges = cJSON_CreateArray();
    TRY(add(model, "merges", merges, err));
    if (!cJSON_IsArray(list)) return err_set(err, E_FORMAT, "the file has no " TOKENIZER "merges");
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsString(item)) return err_set(err, E_FORMAT, "a merge that is no text");
        cJSON *copy = cJSON_CreateString(item->valuestring);
        if (!copy || !cJSON_AddItemToArray(merges, copy)) return no_memory(err);
    }
    return 0;
}

static int add_splits(const struct gguf_cut *cut, bool prefix_space, cJSON *into, struct err *err) {
    cJSON *sequence = cJSON_CreateObject(), *list = cJSON_CreateArray();
    TRY(add(into, "pre_tokenizer", sequence, err));
    TRY(add(sequence, "type", cJSON_CreateString("Sequence"), err));
    TRY(add(sequence, "pretokenizers", list, err));
    for (size_t i = 0; i <= GGUF_MAX_CUTS; i++) {
        const bool last = i == GGUF_MAX_CUTS || !cut->patterns[i];
        cJSON *step = cJSON_CreateObject();
        if (!step || !cJSON_AddItemToArray(list, step)) return no_memory(err);
        TRY(add(step, "type", cJSON_CreateString(last ? "ByteLevel" : "Split"), err));
        if (last) {
            TRY(add(step, "add_prefix_space", cJSON_CreateBool(prefix_space), err));
            TRY(add(step, "trim_offsets", cJSON_CreateTrue(), err));
            return add(step, "use_regex", cJSON_CreateFalse(), err);
        }
        cJSON *pattern = cJSON_CreateObject();
        TRY(add(step, "pattern", pattern, err));
        TRY(add(pattern, "Regex", cJSON_CreateString(cut->patterns[i]), err));
        TRY(add(step, "behavior", cJSON_CreateString("Isolated"), err));
        TRY(add(step, "invert", cJSON_CreateFalse(), err));
    }
    return 0;
}

// Phi-3's marks take the white space behind them; metadata have no place for that, so the model's name tells.
static bool takes_space(const struct gguf *g, const char *content) {
    static const char *const plain[] = {"<unk>", "<s>", "<|endoftext|>"};
    const char *name = json_string(gguf_metadata(g), "general.name");
    if (!name || (!strcasestr(name, "phi-3") && !strcasestr(name, "phi3"))) return false;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (strcmp(content, plain[i]) == 0) return false;
    return true;
}

// An added token is found in the text before anything else.
static int add_added(const struct gguf *g, const struct tokens *t, cJSON *token, struct err *err) {
    TRY(add(token, "content", cJSON_CreateString(t->content->valuestring), err));
    const bool special = type_of(t) != TOKEN_USER_DEFINED && type_of(t) != TOKEN_NORMAL;
    TRY(add(token, "special", cJSON_CreateBool(special), err));
    TRY(add(token, "normalized", cJSON_CreateFalse(), err));
    TRY(add(token, "lstrip", cJSON_CreateFalse(), err));
    const bool rstrip = takes_space(g, t->content->valuestring);
    TRY(add(token, "rstrip", cJSON_CreateBool(rstrip), err));
    return add(token, "single_word", cJSON_CreateFalse(), err);
}

static bool is_added(const struct tokens *t) {
    return type_of(t) == TOKEN_CONTROL || type_of(t) == TOKEN_USER_DEFINED ||
           type_of(t) == TOKEN_UNKNOWN;
}

// Line ends in a row, which Gemma's pieces have as tokens of type normal and merge only in some files.
static bool is_newlines(const struct tokens *t) {
    const char *s = t->content->valuestring;
    return s[0] == '\n' && s[1] == '\n' && s[strspn(s, "\n")] == '\0';
}

static int add_added_list(const struct gguf *g, enum gguf_tokenizer kind, cJSON *into,
                          struct err *err) {
    struct tokens t;
    cJSON *list = cJSON_CreateArray();
    TRY(add(into, "added_tokens", list, err));
    TRY(first_token(g, &t, err));
    do {
        const bool newlines_too = kind == GGUF_TOKENIZER_PIECES && is_newlines(&t);
        if (!is_added(&t) && !newlines_too) continue;
        cJSON *token = cJSON_CreateObject();
        if (!token || !cJSON_AddItemToArray(list, token)) return no_memory(err);
        TRY(add(token, "id", cJSON_CreateNumber(t.id), err));
        TRY(add_added(g, &t, token, err));
    } while (next_token(&t));
    return 0;
}

// Replaces one text by another, as normaliser or decoder.
static int add_replace(cJSON *step, const char *from, const char *to, struct err *err) {
    cJSON *pattern = cJSON_CreateObject();
    TRY(add(step, "type", cJSON_CreateString("Replace"), err));
    TRY(add(step, "pattern", pattern, err));
    TRY(add(pattern, "String", cJSON_CreateString(from), err));
    return add(step, "content", cJSON_CreateString(to), err);
}

static int add_pieces_decoder(cJSON *into, struct err *err) {
    static const char *const rest[] = {"ByteFallback", "Fuse"};
    cJSON *decoder = cJSON_CreateObject(), *list = cJSON_CreateArray();
    TRY(add(into, "decoder", decoder, err));
    TRY(add(decoder, "type", cJSON_CreateString("Sequence"), err));
    TRY(add(decoder, "decoders", list, err));
    for (size_t i = 0; i < 3; i++) {
        cJSON *step = cJSON_CreateObject();
        if (!step || !cJSON_AddItemToArray(list, step)) return no_memory(err);
        if (i == 0)
            TRY(add_replace(step, SPACE_MARK, " ", err));
        else
            TRY(add(step, "type", cJSON_CreateString(rest[i - 1]), err));
    }
    return 0;
}

static int pieces_json(const struct gguf *g, cJSON *into, struct err *err) {
    cJSON *normalizer = cJSON_CreateObject(), *model = cJSON_CreateObject();
    TRY(add(into, "normalizer", normalizer, err));
    TRY(add(into, "model", model, err));
    TRY(add_replace(normalizer, " ", SPACE_MARK, err));
    TRY(add_pieces_decoder(into, err));
    TRY(add(model, "type", cJSON_CreateString("BPE"), err));
    TRY(add(model, "byte_fallback", cJSON_CreateTrue(), err));
    TRY(add(model, "fuse_unk", cJSON_CreateTrue(), err));
    TRY(add_named(g, model, TOKENIZER "unknown_token_id", "unk_token", err));
    TRY(add_vocab(g, model, err));
    TRY(add_merges(g, model, err));
    return add_added_list(g, GGUF_TOKENIZER_PIECES, into, err);
}

int gguf_tokenizer_json(const struct gguf *g, cJSON *into, struct err *err) {
    enum gguf_tokenizer kind;
    const struct gguf_cut *cut = NULL;
    TRY(gguf_tokenizer_kind(g, &kind, err));
    if (kind == GGUF_TOKENIZER_PIECES) return pieces_json(g, into, err);
    bool prefix_space = false;
    TRY(gguf_pre_find(json_string(gguf_metadata(g), TOKENIZER "pre"), &cut, err));
    TRY(json_get_bool(gguf_metadata(g), TOKENIZER "add_space_prefix", &prefix_space, err));
    TRY(add_splits(cut, prefix_space, into, err));
    cJSON *decoder = cJSON_CreateObject(), *model = cJSON_CreateObject();
    TRY(add(into, "decoder", decoder, err));
    TRY(add(decoder, "type", cJSON_CreateString("ByteLevel"), err));
    TRY(add(into, "model", model, err));
    TRY(add(model, "type", cJSON_CreateString("BPE"), err));
    TRY(add(model, "ignore_merges", cJSON_CreateBool(cut->ignore_merges), err));
    TRY(add_vocab(g, model, err));
    TRY(add_merges(g, model, err));
    return add_added_list(g, kind, into, err);
}

// --- tokenizer.model: a protocol buffer message, as SentencePiece writes it ---

static void put_varint(struct buf *b, uint64_t v) {
    char bytes[10];
    size_t n = 0;
    do {
        bytes[n++] = (char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        v >>= 7;
    } while (v);
    buf_add(b, bytes, n);
}

static void put_number(struct buf *b, unsigned field, uint64_t v) {
    put_varint(b, field << 3);
    put_varint(b, v);
}

static void put_bytes(struct buf *b, unsigned field, const char *bytes, size_t len) {
    put_varint(b, field << 3 | 2);
    put_varint(b, len);
    buf_add(b, bytes, len);
}

static void put_float(struct buf *b, unsigned field, float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    char bytes[4] = {(char)u, (char)(u >> 8), (char)(u >> 16), (char)(u >> 24)};
    put_varint(b, field << 3 | 5);
    buf_add(b, bytes, sizeof bytes);
}

// SentencePiece has one unknown piece. Files may have more (padding), or none; then the key tells, or it is the first.
static int piece_type(const struct tokens *t, int64_t unknown) {
    const int type = type_of(t);
    if (t->id == unknown) return TOKEN_UNKNOWN;
    if (type == TOKEN_UNKNOWN) return TOKEN_CONTROL;
    return type < TOKEN_NORMAL || type > TOKEN_BYTE ? TOKEN_UNUSED : type;
}

static int put_pieces(const struct gguf *g, struct buf *piece, struct buf *out, struct err *err) {
    struct tokens t;
    int64_t unknown = 0;
    TRY(json_get_int(gguf_metadata(g), TOKENIZER "unknown_token_id", 0, INT32_MAX, &unknown, err));
    TRY(first_token(g, &t, err));
    if (!t.score) return err_set(err, E_FORMAT, "the file has no " TOKENIZER "scores");
    do {
        TRY(check_token(&t, err));
        buf_reset(piece);
        put_bytes(piece, 1, t.content->valuestring, strlen(t.content->valuestring));
        put_float(piece, 2, (float)t.score->valuedouble);
        put_number(piece, 3, (uint64_t)piece_type(&t, unknown));
        if (piece->error < 0) return no_memory(err);
        put_bytes(out, 1, piece->data, piece->len);
    } while (next_token(&t));
    return 0;
}

int gguf_tokenizer_model(const struct gguf *g, struct buf *out, struct err *err) {
    struct buf part;
    bool prefix = true, squeeze = false;
    TRY(json_get_bool(gguf_metadata(g), TOKENIZER "add_space_prefix", &prefix, err));
    TRY(json_get_bool(gguf_metadata(g), TOKENIZER "remove_extra_whitespaces", &squeeze, err));
    buf_init(&part, (size_t)1 << 20);
    int rc = put_pieces(g, &part, out, err);
    buf_reset(&part);
    put_number(&part, 3, 2);  // model_type: BPE
    put_number(&part, 35, 1); // byte_fallback
    put_bytes(out, 2, part.data, part.len);
    buf_reset(&part);
    put_number(&part, 3, prefix);
    put_number(&part, 4, squeeze);
    put_number(&part, 5, 1); // escape_whitespaces
    put_bytes(out, 3, part.data, part.len);
    if (rc == 0 && (part.error < 0 || out->error < 0)) rc = no_memory(err);
    buf_release(&part);
    return rc;
}

// --- tokenizer_config.json ---

static int add_decoder(const struct gguf *g, cJSON *into, struct err *err) {
    struct tokens t;
    char key[16];
    cJSON *decoder = cJSON_CreateObject();
    TRY(add(into, "added_tokens_decoder", decoder, err));
    TRY(first_token(g, &t, err));
    do {
        if (!is_added(&t)) continue;
        cJSON *token = cJSON_CreateObject();
        snprintf(key, sizeof key, "%d", t.id);
        TRY(add(decoder, key, token, err));
        TRY(add_added(g, &t, token, err));
    } while (next_token(&t));
    return 0;
}

// tokenizer.chat_template, and tokenizer.chat_template.NAME for others.
int gguf_tokenizer_templates(const struct gguf *g, cJSON *into, struct err *err) {
    static const char key[] = "tokenizer.chat_template";
    const cJSON *m = gguf_metadata(g), *item;
    const char *main_text = json_string(m, key);
    cJSON *list = cJSON_CreateArray();
    TRY(add(into, "chat_template", list, err));
    cJSON_ArrayForEach(item, m) {
        if (!cJSON_IsString(item) || strncmp(item->string, key, sizeof key - 1) != 0) continue;
        const char *name = item->string + sizeof key - 1;
        if (*name && *name != '.') continue;
        cJSON *one = cJSON_CreateObject();
        if (!one || !cJSON_AddItemToArray(list, one)) return no_memory(err);
        TRY(add(one, "name", cJSON_CreateString(*name ? name + 1 : "default"), err));
        TRY(add(one, "template", cJSON_CreateString(item->valuestring), err));
    }
    if (main_text) return 0;
    cJSON_DeleteItemFromObjectCaseSensitive(into, "chat_template");
    return 0;
}

// Whether bos stands before a text, and eos behind it. Without the key of bos, llama.cpp's defaults: SentencePiece, Llama 3
// and Tekken.
static int add_start(const struct gguf *g, enum gguf_tokenizer kind, cJSON *into, struct err *err) {
    const struct gguf_cut *cut = NULL;
    const char *pre = json_string(gguf_metadata(g), TOKENIZER "pre");
    bool adds = kind == GGUF_TOKENIZER_SENTENCEPIECE;
    if (kind == GGUF_TOKENIZER_BYTE_LEVEL && gguf_pre_find(pre, &cut, NULL) == 0)
        adds = cut->starts;
    TRY(json_get_bool(gguf_metadata(g), TOKENIZER "add_bos_token", &adds, err));
    TRY(add(into, "add_bos_token", cJSON_CreateBool(adds), err));
    adds = false;
    TRY(json_get_bool(gguf_metadata(g), TOKENIZER "add_eos_token", &adds, err));
    return add(into, "add_eos_token", cJSON_CreateBool(adds), err);
}

int gguf_tokenizer_config(const struct gguf *g, cJSON *into, struct err *err) {
    enum gguf_tokenizer kind;
    bool prefix = true;
    TRY(gguf_tokenizer_kind(g, &kind, err));
    TRY(add_start(g, kind, into, err));
    TRY(add_named(g, into, TOKENIZER "bos_token_id", "bos_token", err));
    TRY(add_named(g, into, TOKENIZER "eos_token_id", "eos_token", err));
    TRY(gguf_tokenizer_templates(g, into, err));
    if (kind != GGUF_TOKENIZER_SENTENCEPIECE) return 0;
    TRY(json_get_bool(gguf_metadata(g), TOKENIZER "add_space_prefix", &prefix, err));
    TRY(add(into, "tokenizer_class", cJSON_CreateString("LlamaTokenizer"), err));
    TRY(add(into, "legacy", cJSON_CreateTrue(), err)); // a space after each special token
    TRY(add(into, "add_prefix_space", cJSON_CreateBool(prefix), err));
    return add_decoder(g, into, err);
}
