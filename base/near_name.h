// Names like an unknown one, for the sentence that refuses it.
#pragma once
#include <stddef.h>

// The name that a mistyped one probably means: the nearest candidate of those at most a third of whose letters differ.
struct near_name {
    const char *name, *best; // best: NULL before the first look, and if none is near
    int distance;
};
void near_name_look(struct near_name *n, const char *candidate);

// Up to three names of models or formats like an unknown one, the nearest first: those that near_name finds, and those
// that it begins with (qwen3_vl: qwen3). Candidates are borrowed.
enum { NEAR_NAMES = 3 };
struct near_names {
    const char *name, *best[NEAR_NAMES];
    int distance[NEAR_NAMES], n;
};
void near_names_look(struct near_names *n, const char *candidate);
// "; near are qwen3, qwen2", or "" where none is near. Returns out.
#define NEAR_NAMES_TEXT 128
char *near_names_text(char out[NEAR_NAMES_TEXT], const struct near_names *n);
