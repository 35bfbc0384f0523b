// The files of a FasterTransformer folder: their paths, their state when they were examined, and
// the struct that ft_checkpoint.c fills and ft_read.c reads. Internal to these files.
#pragma once
#include "engine/model/ft_checkpoint.h"
#include "engine/model/ft_layout.h"
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

struct ft_file { // its state when it was examined
    dev_t dev;
    ino_t ino;
    off_t size;
    struct timespec mtime;
};

struct ft_files {
    char *dir;
    int32_t n_ranks;
    struct ft_file *list; // (n)
    size_t n, cap;
};

struct ft_entry {
    struct ft_array array;
    struct tensor tensor;
    size_t first_file; // in files.list: rank 0's; the other ranks' follow
};

struct ft_checkpoint {
    struct ft_config config;
    struct ft_files files;
    bool has_head;            // a file of its own
    struct ft_entry *entries; // (n)
    size_t n, cap;
};

// The path of the file that has rank's piece of a. E_LIMIT: longer than PATH_MAX.
int ft_files_path(const struct ft_files *f, char out[PATH_MAX], const struct ft_array *a,
                  int32_t rank, struct err *err);
// Examines a file and records its state. E_NOTFOUND names it.
int ft_files_add(struct ft_files *f, const char *path, int64_t *size, struct err *err);
// E_CORRUPT if the file has changed.
int ft_files_check(const struct ft_files *f, size_t file, const char *path, struct err *err);
// Opens a file and checks it as ft_files_check does; returns the descriptor or an error.
int ft_files_open(const struct ft_files *f, size_t file, const char *path, struct err *err);
// The number of values of each line (struct ft_array) in one file.
int64_t ft_files_piece(const struct ft_files *f, const struct ft_array *a);
void ft_files_release(struct ft_files *f);
