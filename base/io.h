// Whole reads and writes of files: short ones and signals are gone on from.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct err;
// Writes n bytes at the file's position. path: for the sentence. As err_errno.
int io_write(int fd, const void *bytes, size_t n, const char *path, struct err *err);
// Reads n bytes that begin at byte `at`. As err_errno; E_CORRUPT: the file ends before.
int io_read_at(int fd, void *out, size_t n, uint64_t at, const char *path, struct err *err);
