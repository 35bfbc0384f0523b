// What people call the number format of a GGUF file: "Q4_K_M", "IQ4_XS", "MXFP4".
#pragma once
#include "engine/gguf/gguf.h"

// By general.file_type, where the file has matrices of the type that the number stands for; else the type that most
// bytes of its matrices have. A static string.
const char *gguf_file_type(const struct gguf *g);
