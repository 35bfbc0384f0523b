// Vocabulary, merges and special tokens of a GGUF file, as the files of a folder have them.
#include "engine/gguf/gguf_tokenizer.h"
#include "base/json.h"
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

// --- how `pre` cuts text before merging ---

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define REST_SLASH "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define NO_WORD "[^\\r\\n\\p{L}\\p{N}]?"

static const char llama3[] = CONTRACTIONS "|" NO_WORD "\\p{L}+|\\p{N}{1,3}" REST;
static const char qwen2[] = CONTRACTIONS "|" NO_WORD "\\p{L}+|\\p{N}" REST;
static const char qwen35[] = CONTRACTIONS
    "|" NO_WORD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!"
    "\\S)|\\s+";
static const char gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char tekken[] =
    NO_WORD UPPER "*" LOWER "+|" NO_WORD UPPER "+" LOWER "*|\\p{N}" REST_SLASH;
static const char gpt4o[] = NO_WORD UPPER "*" LOWER "+" CONTRACTIONS "?|" NO_WORD UPPER "+" LOWER
                                          "*" CONTRACTIONS "?|\\p{N}{1,3}" REST_SLASH;
static const char digit[] = "\\p{N}";
static const char digits[] = "\\p{N}+";
static const char digits3[] = "\\p{N}{1,3}";
static const char three_digits[] = "[0-9][0-9][0-9]";
static const char newlines[] = "[^\\n]+|[\\n]+";
static const char cjk[] = "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+";
static const char deepseek3[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{"
    "M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char line_end[] = "[\\r\\n]", last_space[] = "\\s+$";
// Cased letters of DeepSeek's first tokenizers, as those list them.
static const char deepseek_letters[] =
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}"
    "\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}"
    "\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}"
    "\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}"
    "\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}"
    "\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}"
    "\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}"
    "\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}"
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}"
    "\\x{2145}-\\x{2149}\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}"
    "\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+";
static const char deepseek_signs[] =
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+";
static const char east_asian[] = "[\\x{4e00}-\\x{9fa5}\\x{0800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+";
static const char some_letters[] = "\\s?\\p{L}+", some_signs[] = "\\s?\\p{P}+";
static const char bloom[] = " ?[^(\\s|.,!?…。，、।۔،)]+";
static const char seed[] = CONTRACTIONS "|" NO_WORD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+"
                                        "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char signs[] = "[\\p{P}$+<=>^~|]+", signs_and_tick[] = "[\\p{P}$+<=>^~|`]+";
#define NO_HAN(CLASS) "(?:(?!\\p{Han})" CLASS ")"
static const char kimi[] =
    "\\p{Han}+|" NO_WORD NO_HAN(UPPER) "*" NO_HAN(LOWER) "+" CONTRACTIONS "?|" NO_WORD NO_HAN(
        UPPER) "+" NO_HAN(LOWER) "*" CONTRACTIONS "?|\\p{N}{1,3}" REST;

// The patterns apply one after the other, each to the pieces of the one before.
#define MAX_CUTS 6
static const struct cut {
    const char *pre;
    const char *patterns[MAX_CUTS];
    bool ignore_merges; // a piece that is a token is that token
} cuts[] = {
    {"llama-bpe", {llama3}, true},
    {"llama3", {llama3}, true},
    {"llama-v3", {llama3}, true},
    {"falcon3", {llama3}, true},
    {"falcon-h1", {llama3}, true},
    {"pixtral", {llama3}, true},
    {"midm-2.0", {llama3}, true},
    {"lfm2", {llama3}, true},
    {"smaug-bpe", {llama3}, false},
    {"dbrx", {llama3}, false},
    {"glm4", {llama3}, false},
    {"chatglm-bpe", {llama3}, false},
    {"qwen2", {qwen2}, false},
    {"deepseek-r1-qwen", {qwen2}, false},
    {"megrez", {qwen2}, false},
    {"stablelm2", {qwen2}, false},
    {"hunyuan", {qwen2}, false},
    {"grok-2", {qwen2}, false},
    {"solar-open", {qwen2}, false},
    {"laguna", {newlines, qwen2}, false},
    {"qwen35", {qwen35}, false},
    {"seed-coder", {seed}, false},
    {"gpt-2", {gpt2}, false},
    {"phi-2", {gpt2}, false},
    {"exaone4", {gpt2}, false},
    {"olmo", {gpt2}, false},
    {"mpt", {gpt2}, false},
    {"jais", {gpt2}, false},
    {"trillion", {gpt2}, false},
    {"granite-docling", {gpt2}, false},
    {"gigachat", {gpt2}, false},
    {"mellum", {gpt2}, false},
    {"a.x-4.0", {gpt2}, false},
    {"tekken", {tekken}, true},
    {"gpt-4o", {gpt4o}, false},
    {"llama4", {gpt4o}, false},
    {"kanana2", {gpt4o}, false},
    {"minimax-m2", {gpt4o}, false},
    {"kimi-k2", {kimi}, false},
    {"smollm", {digit, gpt2}, false},
    {"starcoder", {digit, gpt2}, false},
    {"refact", {digit, gpt2}, false},
    {"command-r", {digit, gpt2}, false},
    {"codeshell", {digit, gpt2}, false},
    {"exaone", {digit, gpt2}, false},
    {"minerva-7b", {digit, gpt2}, false},
    {"deepseek-v3", {digits3, cjk, deepseek3}, false},
    {"hunyuan-dense", {digits3, cjk, deepseek3}, false},
    {"joyai-llm", {digits3, cjk, deepseek3}, false},
    {"deepseek-llm",
     {line_end, deepseek_letters, deepseek_signs, last_space, east_asian, digits},
     false},
    {"deepseek-coder", {line_end, some_letters, some_signs, east_asian, digit}, false},
    {"bloom", {bloom}, false},
    {"poro-chat", {bloom}, false},
    {"gpt3-finnish", {bloom}, false},
    {"viking", {bloom, digit}, false},
    {"falcon", {signs_and_tick, gpt2, three_digits}, false},
    {"default", {signs, gpt2, digits, three_digits}, false},
};
#define N_CUTS (sizeof cuts / sizeof *cuts)

static int find_cut(const struct gguf *g, const struct cut **out, struct err *err) {
    const char *pre = json_string(gguf_metadata(g), TOKENIZER "pre");
    if (!pre)
        return err_set(
            err, E_UNSUPPORTED,
            "the file has no " TOKENIZER
            "pre, so how its tokenizer cuts text is unknown: a newer conversion names it");
    for (size_t i = 0; i < N_CUTS; i++) {
        *out = &cuts[i];
        if (strcmp(cuts[i].pre, pre) == 0) return 0;
    }
    return err_set(err, E_UNSUPPORTED,
                   TOKENIZER "pre is '%.60s': how that tokenizer cuts text is unknown", pre);
}

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
    *t =
        (struct tokens){list->child, types ? types->child : NULL, scores ? scores->child : NULL, 0};
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

static int type_of(const struct tokens *t) {
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

static int add_splits(const struct cut *cut, bool prefix_space, cJSON *into, struct err *err) {
    cJSON *sequence = cJSON_CreateObject(), *list = cJSON_CreateArray();
    TRY(add(into, "pre_tokenizer", sequence, err));
    TRY(add(sequence, "type", cJSON_CreateString("Sequence"), err));
    TRY(add(sequence, "pretokenizers", list, err));
    for (size_t i = 0; i <= MAX_CUTS; i++) {
        const bool last = i == MAX_CUTS || !cut->patterns[i];
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
    const struct cut *cut = NULL;
    TRY(gguf_tokenizer_kind(g, &kind, err));
    if (kind == GGUF_TOKENIZER_PIECES) return pieces_json(g, into, err);
    bool prefix_space = false;
    TRY(find_cut(g, &cut, err));
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

static int put_pieces(const struct gguf *g, struct buf *piece, struct buf *out, struct err *err) {
    struct tokens t;
    TRY(first_token(g, &t, err));
    if (!t.score) return err_set(err, E_FORMAT, "the file has no " TOKENIZER "scores");
    do {
        TRY(check_token(&t, err));
        int type = type_of(&t);
        buf_reset(piece);
        put_bytes(piece, 1, t.content->valuestring, strlen(t.content->valuestring));
        put_float(piece, 2, (float)t.score->valuedouble);
        put_number(piece, 3,
                   (uint64_t)(type < TOKEN_NORMAL || type > TOKEN_BYTE ? TOKEN_UNUSED : type));
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
static int add_templates(const struct gguf *g, cJSON *into, struct err *err) {
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

int gguf_tokenizer_config(const struct gguf *g, cJSON *into, struct err *err) {
    enum gguf_tokenizer kind;
    bool prefix = true;
    TRY(gguf_tokenizer_kind(g, &kind, err));
    TRY(add_named(g, into, TOKENIZER "bos_token_id", "bos_token", err));
    TRY(add_named(g, into, TOKENIZER "eos_token_id", "eos_token", err));
    TRY(add_templates(g, into, err));
    if (kind != GGUF_TOKENIZER_SENTENCEPIECE) return 0;
    TRY(json_get_bool(gguf_metadata(g), TOKENIZER "add_space_prefix", &prefix, err));
    TRY(add(into, "tokenizer_class", cJSON_CreateString("LlamaTokenizer"), err));
    TRY(add(into, "legacy", cJSON_CreateTrue(), err)); // a space after each special token
    TRY(add(into, "add_prefix_space", cJSON_CreateBool(prefix), err));
    return add_decoder(g, into, err);
}
