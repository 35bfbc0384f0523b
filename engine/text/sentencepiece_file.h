// A SentencePiece model file (.model): a protocol buffer message, read without the protobuf library.
// Keeps only the fields that encoding and decoding need. Strings are borrowed from the file's bytes.
#pragma once
#include "base/err.h"
#include "engine/text/pieces.h"

struct file_string {
    const char *bytes;
    size_t len;
};
struct file_piece {
    struct file_string content;
    float score;
    enum piece_kind kind;
};
enum sentencepiece_type { SENTENCEPIECE_UNIGRAM = 1, SENTENCEPIECE_BPE = 2 };
struct sentencepiece_file {
    struct file_piece *pieces; // owned
    size_t n_pieces;
    enum sentencepiece_type type;
    bool byte_fallback, treat_whitespace_as_suffix;
    struct file_string unk_surface, bos, eos;
    struct file_string charsmap; // empty: none
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
};

// E_FORMAT names the wrong byte or field; E_UNSUPPORTED names the feature that Parley lacks; E_NOMEM.
int sentencepiece_file_read(struct sentencepiece_file *f, const char *bytes, size_t len,
                            struct err *err);
void sentencepiece_file_release(struct sentencepiece_file *f);
