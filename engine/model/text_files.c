// See text_files.h.
#include "engine/model/text_files.h"
#include "base/buf.h"
#include "base/path.h"
#include "engine/gguf/gguf_folder.h"
#include "engine/model/ft_folder.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_MAX_BYTES ((size_t)256 << 20)

const char *text_files_tokenizer(const char *dir) {
    static const char *const names[] = {"tokenizer.json", "20B_tokenizer.json", "tokenizer.model",
                                        "sentencepiece.bpe.model", "spiece.model"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (path_holds(dir, names[i], R_OK) || gguf_folder_holds(dir, names[i])) return names[i];
    if (path_holds(dir, "vocab.json", R_OK) && path_holds(dir, "merges.txt", R_OK))
        return "vocab.json";
    return path_holds(dir, "gpt2-vocab.json", R_OK) && path_holds(dir, "gpt2-merges.txt", R_OK)
               ? "gpt2-vocab.json"
               : NULL;
}

int text_files_dir(char out[PATH_MAX], const char *model_dir, const char *named, struct err *err) {
    // The checkpoint of a model repository is REPOSITORY/fastertransformer/1/N-gpu.
    static const char *const beside[] = {"..", "../../../preprocessing/1"};
    char weights[PATH_MAX];
    bool found = false;
    if (named && *named) {
        if (!text_files_tokenizer(named))
            return err_set(err, E_NOTFOUND, "tokenizer '%.300s' is no folder with a tokenizer",
                           named);
    } else {
        TRY(ft_folder_find(weights, model_dir, &found, err));
        named = found ? weights : model_dir;
    }
    for (size_t i = 0; found && i < sizeof beside / sizeof *beside; i++) {
        if (text_files_tokenizer(weights)) break;
        TRY(path_join(out, weights, beside[i], err));
        if (text_files_tokenizer(out)) return 0;
    }
    if ((size_t)snprintf(out, PATH_MAX, "%s", named) < PATH_MAX) return 0;
    return err_set(err, E_LIMIT, "the path %.300s is too long", named);
}

static int write_bytes(const char *to, const char *bytes, size_t n, struct err *err) {
    FILE *f = fopen(to, "wbe");
    if (!f) return err_errno(err, "cannot create %s", to);
    const size_t put = fwrite(bytes, 1, n, f);
    return fclose(f) != 0 || put != n ? err_errno(err, "cannot write %s", to) : 0;
}

static int copy_file(const char *from, const char *to, struct err *err) {
    struct buf bytes;
    int rc = buf_read_file(&bytes, from, FILE_MAX_BYTES, err);
    if (rc == 0) rc = write_bytes(to, buf_z(&bytes), bytes.len, err);
    buf_release(&bytes);
    return rc;
}

// A file that a GGUF file stands for.
static int write_made(const char *gguf, const char *name, const char *to, struct err *err) {
    if (strcmp(name, "tokenizer.model") == 0) {
        struct buf bytes;
        int rc = gguf_folder_model(&bytes, gguf, err);
        if (rc == 0) rc = write_bytes(to, bytes.data, bytes.len, err);
        buf_release(&bytes);
        return rc;
    }
    cJSON *json;
    TRY(gguf_folder_json(&json, gguf, name, err));
    char *text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    if (!text) return err_set(err, E_NOMEM, "no memory for %s", to);
    int rc = write_bytes(to, text, strlen(text), err);
    free(text);
    return rc;
}

int text_files_copy(const char *from, const char *to, int *n, struct err *err) {
    static const char *const names[] = {
        "tokenizer.json",
        "20B_tokenizer.json",
        "gpt2-vocab.json",
        "gpt2-merges.txt",
        "tokenizer_config.json",
        "tokenizer.model",
        "sentencepiece.bpe.model",
        "spiece.model",
        "vocab.json",
        "merges.txt",
        "special_tokens_map.json",
        "added_tokens.json",
        "chat_template.jinja",
    };
    int copied = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char source[PATH_MAX], target[PATH_MAX];
        TRY(path_join(source, from, names[i], err));
        TRY(path_join(target, to, names[i], err));
        const bool made = gguf_folder_holds(from, names[i]);
        if (!made && access(source, F_OK) < 0) continue;
        TRY(made ? write_made(from, names[i], target, err) : copy_file(source, target, err));
        copied++;
    }
    if (n) *n = copied;
    return 0;
}
