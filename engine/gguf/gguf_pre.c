// See gguf_pre.h.
#include "engine/gguf/gguf_pre.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

#define TOKENIZER "tokenizer.ggml."

// --- how `pre` cuts text before merging ---

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define REST_SLASH "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define NO_WORD "[^\\r\\n\\p{L}\\p{N}]?"

static const char llama3[] = CONTRACTIONS "|" NO_WORD "\\p{L}+|\\p{N}{1,3}" REST;
static const char qwen2[] = CONTRACTIONS "|" NO_WORD "\\p{L}+|\\p{N}" REST;
static const char minicpm5[] = CONTRACTIONS "|" NO_WORD "\\p{L}+|\\p{N}+" REST;
static const char qwen35[] = CONTRACTIONS
    "|" NO_WORD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!"
    "\\S)|\\s+";
static const char gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char tekken[] =
    NO_WORD UPPER "*" LOWER "+|" NO_WORD UPPER "+" LOWER "*|\\p{N}" REST_SLASH;
static const char gpt4o[] = NO_WORD UPPER "*" LOWER "+" CONTRACTIONS "?|" NO_WORD UPPER "+" LOWER
                                          "*" CONTRACTIONS "?|\\p{N}{1,3}" REST_SLASH;
static const char youtu[] = NO_WORD UPPER "*" LOWER "+" CONTRACTIONS "?|" NO_WORD UPPER "+" LOWER
                                          "*" CONTRACTIONS "?|\\p{N}" REST_SLASH;
// Hangul; signs; Bopomofo; what cjk has.
static const char youtu_scripts[] =
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+"
    "|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}\\x{ff1b}\\x{ff0c}"
    "\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+"
    "|[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+";
static const char bailing[] =
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
    "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";
static const char exaone_moe[] = CONTRACTIONS
    "|" NO_WORD
    "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]"
    "|\\s+(?!\\S)|\\s+";
// The original ends with \b: no letter, mark, number or connector follows.
static const char thousands[] = "\\p{Nd}{1,3}(?=(?:\\p{Nd}{3})*(?![\\p{L}\\p{M}\\p{N}\\p{Pc}]))";
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
static const struct gguf_cut cuts[] = {
    {"llama-bpe", {llama3}, true, true},
    {"llama3", {llama3}, true, true},
    {"llama-v3", {llama3}, true, true},
    {"falcon3", {llama3}, true, true},
    {"falcon-h1", {llama3}, true, true},
    {"pixtral", {llama3}, true, true},
    {"midm-2.0", {llama3}, true, true},
    {"lfm2", {llama3}, true, true},
    {"jina-v5-nano", {llama3}, true, true},
    {"minicpm5", {digits3, minicpm5}, true, false},
    {"smaug-bpe", {llama3}, false, false},
    {"dbrx", {llama3}, false, false},
    {"glm4", {llama3}, false, false},
    {"chatglm-bpe", {llama3}, false, false},
    {"qwen2", {qwen2}, false, false},
    {"deepseek-r1-qwen", {qwen2}, false, false},
    {"kormo", {qwen2}, false, false},
    {"f2llmv2", {qwen2}, false, false},
    {"megrez", {qwen2}, false, false},
    {"stablelm2", {qwen2}, false, false},
    {"hunyuan", {qwen2}, false, false},
    {"grok-2", {qwen2}, false, false},
    {"solar-open", {qwen2}, false, false},
    {"laguna", {newlines, qwen2}, false, false},
    {"qwen35", {qwen35}, false, false},
    {"seed-coder", {seed}, false, false},
    {"gpt-2", {gpt2}, false, false},
    {"phi-2", {gpt2}, false, false},
    {"exaone4", {gpt2}, false, false},
    {"olmo", {gpt2}, false, false},
    {"mpt", {gpt2}, false, false},
    {"jais", {gpt2}, false, false},
    {"trillion", {gpt2}, false, false},
    {"granite-docling", {gpt2}, false, false},
    {"gigachat", {gpt2}, false, false},
    {"mellum", {gpt2}, false, false},
    {"a.x-4.0", {gpt2}, false, false},
    {"tekken", {tekken}, true, true},
    {"gpt-4o", {gpt4o}, false, false},
    {"llama4", {gpt4o}, false, false},
    {"kanana2", {gpt4o}, false, false},
    {"minimax-m2", {gpt4o}, false, false},
    {"talkie", {gpt4o}, false, false},
    {"youtu", {youtu_scripts, youtu}, true, false},
    {"tiny_aya", {thousands, gpt4o}, false, false},
    {"cohere2moe", {thousands, gpt4o}, false, false},
    {"bailingmoe", {bailing}, false, false},
    {"bailingmoe2", {bailing}, false, false},
    {"llada-moe", {bailing}, false, false},
    {"exaone-moe", {exaone_moe}, false, false},
    {"kimi-k2", {kimi}, false, false},
    {"smollm", {digit, gpt2}, false, false},
    {"starcoder", {digit, gpt2}, false, false},
    {"refact", {digit, gpt2}, false, false},
    {"command-r", {digit, gpt2}, false, false},
    {"codeshell", {digit, gpt2}, false, false},
    {"exaone", {digit, gpt2}, false, false},
    {"minerva-7b", {digit, gpt2}, false, false},
    {"mellum2", {digit, gpt2}, false, false},
    {"deepseek-v3", {digits3, cjk, deepseek3}, false, false},
    {"hunyuan-dense", {digits3, cjk, deepseek3}, false, false},
    {"joyai-llm", {digits3, cjk, deepseek3}, false, false},
    {"deepseek-llm",
     {line_end, deepseek_letters, deepseek_signs, last_space, east_asian, digits},
     false,
     false},
    {"deepseek-coder", {line_end, some_letters, some_signs, east_asian, digit}, false, false},
    {"bloom", {bloom}, false, false},
    {"poro-chat", {bloom}, false, false},
    {"gpt3-finnish", {bloom}, false, false},
    {"viking", {bloom, digit}, false, false},
    {"falcon", {signs_and_tick, gpt2, three_digits}, false, false},
    {"default", {signs, gpt2, digits, three_digits}, false, false},
};
#define N_CUTS (sizeof cuts / sizeof *cuts)

int gguf_pre_find(const char *pre, const struct gguf_cut **out, struct err *err) {
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

// --- the name of what a tokenizer.json does ---

// The pattern of one step that cuts; NULL: none of those that names stand for.
static const char *pattern_of(const cJSON *step) {
    const char *type = json_string(step, "type");
    const char *behavior = json_string(step, "behavior");
    if (!type) return NULL;
    if (strcmp(type, "Digits") == 0)
        return cJSON_IsTrue(json_member(step, "individual_digits")) ? digit : digits;
    if (strcmp(type, "ByteLevel") == 0)
        return cJSON_IsFalse(json_member(step, "use_regex")) ? "" : gpt2;
    if (strcmp(type, "Split") != 0 || !behavior) return NULL;
    // A pattern that matches all of a text cuts alike either way.
    const bool invert = cJSON_IsTrue(json_member(step, "invert"));
    if (strcmp(behavior, invert ? "Removed" : "Isolated") != 0) return NULL;
    return json_string(json_member(step, "pattern"), "Regex");
}

// The bytes of a pattern, in which \x{HEX} is a spelling of a character of two or three bytes.
struct spelled {
    const char *at;
    char bytes[3];
    int left; // of bytes
};

static char next_byte(struct spelled *s) {
    if (s->left == 0 && strncmp(s->at, "\\x{", 3) == 0) {
        char *end;
        const unsigned c = (unsigned)strtoul(s->at + 3, &end, 16);
        s->at = *end == '}' ? end + 1 : end;
        s->bytes[2] = (char)(c < 0x800 ? 0xc0 | c >> 6 : 0xe0 | c >> 12);
        s->bytes[1] = (char)(0x80 | (c >> 6 & 0x3f));
        s->bytes[0] = (char)(0x80 | (c & 0x3f));
        s->left = 3;
        if (c < 0x800) {
            s->bytes[1] = s->bytes[2];
            s->left = 2;
        }
    }
    if (s->left > 0) return s->bytes[--s->left];
    return *s->at ? *s->at++ : '\0';
}

static bool same_pattern(const char *a, const char *b) {
    struct spelled x = {.at = a}, y = {.at = b};
    for (;;) {
        const char c = next_byte(&x);
        if (c != next_byte(&y)) return false;
        if (!c) return true;
    }
}

static bool is_cut(const struct gguf_cut *cut, const char *const *patterns, int n) {
    for (int i = 0; i < GGUF_MAX_CUTS; i++) {
        const char *have = i < n ? patterns[i] : NULL;
        if (!have != !cut->patterns[i]) return false;
        if (have && !same_pattern(have, cut->patterns[i])) return false;
    }
    return true;
}

static int add_pattern(const cJSON *step, const char **patterns, int *n, struct err *err) {
    const char *pattern = pattern_of(step), *type = json_string(step, "type");
    if (!pattern || *n == GGUF_MAX_CUTS)
        return err_set(err, E_UNSUPPORTED,
                       "no " TOKENIZER "pre stands for the pre-tokeniser's step '%.40s'",
                       type ? type : "");
    if (*pattern) patterns[(*n)++] = pattern;
    return 0;
}

int gguf_pre_of(const cJSON *pre_tokenizer, bool ignore_merges, const char **pre, struct err *err) {
    const char *patterns[GGUF_MAX_CUTS], *type = json_string(pre_tokenizer, "type");
    const cJSON *step;
    int n = 0;
    if (type && strcmp(type, "Sequence") == 0) {
        cJSON_ArrayForEach(step, json_member(pre_tokenizer, "pretokenizers"))
            TRY(add_pattern(step, patterns, &n, err));
    } else {
        TRY(add_pattern(pre_tokenizer, patterns, &n, err));
    }
    for (size_t i = 0; i < N_CUTS; i++) {
        if (cuts[i].ignore_merges != ignore_merges || !is_cut(&cuts[i], patterns, n)) continue;
        *pre = cuts[i].pre;
        return 0;
    }
    return err_set(err, E_UNSUPPORTED,
                   "no " TOKENIZER "pre stands for the way in which this tokenizer cuts text");
}
