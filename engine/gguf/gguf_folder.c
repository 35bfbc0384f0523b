// See gguf_folder.h.
#include "engine/gguf/gguf_folder.h"
#include "engine/gguf/gguf_config.h"
#include "engine/gguf/gguf_tokenizer.h"
#include <string.h>

#define MODEL_MAX_BYTES ((size_t)256 << 20)

static int no_such(const char *path, const char *name, struct err *err) {
    return err_set(err, E_NOTFOUND, "%s has no metadata for a %s", path, name);
}

enum virtual_file { FILE_CONFIG, FILE_TOKENIZER, FILE_TOKENIZER_CONFIG, FILE_MODEL, FILE_NONE };

static enum virtual_file file_named(const char *name) {
    static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json",
                                        "tokenizer.model"};
    for (int i = 0; i < FILE_NONE; i++)
        if (strcmp(name, names[i]) == 0) return (enum virtual_file)i;
    return FILE_NONE;
}

// Whether the file is there depends on the kind of tokenizer.
static bool is_there(enum virtual_file file, enum gguf_tokenizer kind) {
    if (file == FILE_TOKENIZER)
        return kind == GGUF_TOKENIZER_BYTE_LEVEL || kind == GGUF_TOKENIZER_PIECES;
    if (file == FILE_MODEL) return kind == GGUF_TOKENIZER_SENTENCEPIECE;
    if (file == FILE_TOKENIZER_CONFIG) return kind != GGUF_TOKENIZER_NONE;
    return file == FILE_CONFIG;
}

bool gguf_folder_holds(const char *path, const char *name) {
    struct gguf *g = NULL;
    enum gguf_tokenizer kind;
    if (file_named(name) == FILE_NONE || !gguf_is(path)) return false;
    // Of a tokenizer that is unknown, opening tells.
    bool holds =
        gguf_open(&g, path, false, NULL) == 0 &&
        is_there(file_named(name),
                 gguf_tokenizer_kind(g, &kind, NULL) < 0 ? GGUF_TOKENIZER_BYTE_LEVEL : kind);
    gguf_close(g);
    return holds;
}

static int make(const struct gguf *g, enum virtual_file file, cJSON *into, struct err *err) {
    if (file == FILE_CONFIG) return gguf_config_make(g, into, err);
    if (file == FILE_TOKENIZER_CONFIG) return gguf_tokenizer_config(g, into, err);
    return gguf_tokenizer_json(g, into, err);
}

// Puts the file's name before a sentence about its contents.
static int in_file(const char *path, int rc, const struct err *why, struct err *err) {
    return rc < 0 ? err_set(err, rc, "%.200s: %.300s", path, why->text) : rc;
}

int gguf_folder_json(cJSON **out, const char *path, const char *name, struct err *err) {
    const enum virtual_file file = file_named(name);
    struct gguf *g = NULL;
    struct err why = {0};
    enum gguf_tokenizer kind = GGUF_TOKENIZER_NONE;
    *out = NULL;
    if (file == FILE_NONE || file == FILE_MODEL) return no_such(path, name, err);
    TRY(gguf_open(&g, path, file != FILE_CONFIG, err));
    int rc = file == FILE_CONFIG ? 0 : gguf_tokenizer_kind(g, &kind, &why);
    if (rc == 0 && !is_there(file, kind)) {
        gguf_close(g);
        return no_such(path, name, err);
    }
    cJSON *root = cJSON_CreateObject();
    if (rc == 0 && !root) rc = err_set(&why, E_NOMEM, "no memory");
    if (rc == 0) rc = make(g, file, root, &why);
    gguf_close(g);
    if (rc < 0)
        cJSON_Delete(root);
    else
        *out = root;
    return in_file(path, rc < 0 ? rc : 0, &why, err);
}

int gguf_folder_templates(cJSON **out, const char *path, struct err *err) {
    struct gguf *g = NULL;
    struct err why = {0};
    *out = NULL;
    TRY(gguf_open(&g, path, false, err));
    cJSON *root = cJSON_CreateObject();
    int rc = root ? gguf_tokenizer_templates(g, root, &why) : err_set(&why, E_NOMEM, "no memory");
    gguf_close(g);
    if (rc < 0)
        cJSON_Delete(root);
    else
        *out = root;
    return in_file(path, rc, &why, err);
}

int gguf_folder_model(struct buf *out, const char *path, struct err *err) {
    struct gguf *g = NULL;
    struct err why = {0};
    enum gguf_tokenizer kind;
    buf_init(out, MODEL_MAX_BYTES);
    TRY(gguf_open(&g, path, true, err));
    int rc = gguf_tokenizer_kind(g, &kind, &why);
    if (rc == 0 && kind != GGUF_TOKENIZER_SENTENCEPIECE)
        rc = err_set(&why, E_NOTFOUND, "it has no pieces of SentencePiece");
    if (rc == 0) rc = gguf_tokenizer_model(g, out, &why);
    gguf_close(g);
    return in_file(path, rc, &why, err);
}
