// parley doctor: what would keep a server with these settings from starting, or make it slow on this
// machine, and the command that fixes it.
#include "base/memory.h"
#include "engine/device.h"
#include "engine/model/inspect.h"
#include "engine/model/text_files.h"
#include "engine/text/chat_template.h"
#include "ws/cli/doctor.h"
#include "ws/cli/model_names.h"
#include "ws/cli/serve_options.h"
#include "ws/instances.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (INT64_C(1) << 20)

struct own {
    char *config, *model_repository; // struct serve_files
    bool json;
};
#define SETTINGS struct own
static const struct config_key own_keys[] = {
    SERVE_FILE_ROWS,
    BOOL("", json, "off", "Print JSON."),
};

// --- model ---

static int open_text(const struct serve_config *c, struct err *err) {
    struct tokenizer *tokenizer = NULL;
    struct chat_template *template = NULL;
    char dir[PATH_MAX];
    TRY(text_files_dir(dir, c->model.model, c->model.tokenizer, err));
    TRY(tokenizer_open(&tokenizer, dir, err));
    int rc = chat_template_open(
        &template, dir, *c->model.chat_template ? c->model.chat_template : NULL, tokenizer, err);
    chat_template_close(template);
    tokenizer_close(tokenizer);
    return rc;
}

// Bytes of the weights as they will be loaded, by what `inspect` says.
static int64_t bytes_of_weights(const struct serve_config *c, const cJSON *model) {
    const char *eight_bits = c->model.weight_dtype == WEIGHTS_INT8  ? "weight_bytes_int8"
                             : c->model.weight_dtype == WEIGHTS_FP8 ? "weight_bytes_fp8"
                                                                    : "";
    const cJSON *bytes = cJSON_GetObjectItemCaseSensitive(model, eight_bits);
    if (!bytes)
        bytes = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(model, "tensors"),
                                                 "bytes");
    return cJSON_IsNumber(bytes) ? (int64_t)bytes->valuedouble : 0;
}

static void check_memory(struct findings *f, const struct serve_config *c, int64_t weights,
                         const struct backend_cuda_look *gpu) {
    static const char subject[] = "memory";
    bool on_gpu = strcmp(c->model.device, "cpu") != 0 && gpu->n_gpus > 0;
    int64_t left = on_gpu ? gpu->left : memory_left(), cache = c->model.kv_cache_bytes;
    int64_t wanted = weights + cache + (on_gpu ? 0 : c->host_cache_bytes);
    const char *where = on_gpu ? "on the GPU" : "in memory";
    if (f->server_pid || left == 0) return; // a running server has its memory already
    if (weights + cache > left)
        finding_add(f, FINDING_FAULT, subject,
                    cache ? "lower kv_cache_bytes, or set weight_dtype to int8"
                          : "set weight_dtype to int8, or choose a smaller model",
                    "weights take %lld MiB%s, and %lld MiB are free %s", (long long)(weights / MIB),
                    cache ? " without the cache" : "", (long long)(left / MIB), where);
    else if (wanted > left)
        finding_add(f, FINDING_ADVICE, subject, "lower host_cache_bytes",
                    "weights and caches may take %lld MiB, and %lld MiB are free %s",
                    (long long)(wanted / MIB), (long long)(left / MIB), where);
    else
        finding_add(f, FINDING_OK, subject, NULL, "weights take %lld MiB of %lld MiB free %s",
                    (long long)(weights / MIB), (long long)(left / MIB), where);
}

static void check_model(struct findings *f, const struct serve_config *c,
                        const struct backend_cuda_look *gpu) {
    static const char subject[] = "model";
    struct buf text;
    struct json_writer w;
    struct err err = {0};
    if (model_name_is(c->model.model)) {
        char fix[HUB_NAME_BYTES + 40];
        snprintf(fix, sizeof fix, "parley models pull %s", c->model.model);
        finding_add(f, FINDING_ADVICE, subject, fix,
                    "%s is no folder here, and not in the cache: the server would download it",
                    c->model.model);
        return;
    }
    buf_init(&text, json_limits_file.max_bytes);
    json_writer_init(&w, &text);
    json_open(&w, NULL, '{');
    int rc = model_inspect(c->model.model, &w, &err);
    json_close(&w, '}');
    cJSON *model = rc < 0 ? NULL : json_parse(buf_z(&text), text.len, &json_limits_file, &err);
    if (model) rc = open_text(c, &err);
    if (!model || rc < 0)
        finding_add(f, FINDING_FAULT, subject,
                    rc == E_NOTFOUND ? "set model to a folder with config.json and weights"
                                     : "`parley inspect --model MODEL` shows what is read of it",
                    "%s", err.text);
    else
        finding_add(f, FINDING_OK, subject, NULL, "%s, %s",
                    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(model, "family")),
                    c->model.model);
    if (model) check_memory(f, c, bytes_of_weights(c, model), gpu);
    cJSON_Delete(model);
    buf_release(&text);
}

// --- devices ---

static bool machine_has_nvidia(void) {
    glob_t devices;
    char vendor[16], class[16];
    bool found = false;
    if (glob("/sys/bus/pci/devices/*", 0, NULL, &devices) != 0) return false;
    for (size_t i = 0; i < devices.gl_pathc && !found; i++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/vendor", devices.gl_pathv[i]);
        doctor_read_line(path, vendor, sizeof vendor);
        snprintf(path, sizeof path, "%s/class", devices.gl_pathv[i]);
        doctor_read_line(path, class, sizeof class);
        found = !strcmp(vendor, "0x10de") && !strncmp(class, "0x03", 4); // display controllers
    }
    globfree(&devices);
    return found;
}

static const char *fix_for_gpu(const struct backend_cuda_look *gpu, bool there) {
    if (!device_cuda_archs()) return "build it where nvcc is found: make CUDA=1";
    if (!there && !gpu->driver) return "set device to cpu";
    if (!gpu->driver) return "install NVIDIA's driver, then `nvidia-smi` must show the GPU";
    if (gpu->driver < gpu->needed) return "install a newer driver of NVIDIA's";
    return "`nvidia-smi` must show the GPU to this user";
}

static void check_gpu(struct findings *f, const struct serve_config *c,
                      const struct backend_cuda_look *gpu) {
    static const char subject[] = "gpu";
    bool asked = !strncmp(c->model.device, "cuda", 4), there = machine_has_nvidia();
    int number = asked && c->model.device[4] == ':' ? atoi(c->model.device + 5) : 0;
    if (!strcmp(c->model.device, "cpu")) {
        finding_add(f, FINDING_OK, subject, NULL, "not used: device is cpu");
    } else if (gpu->n_gpus > 0 && number >= gpu->n_gpus) {
        finding_add(f, FINDING_FAULT, subject, "`nvidia-smi -L` lists them",
                    "device is %s, and CUDA finds %d GPUs", c->model.device, gpu->n_gpus);
    } else if (gpu->n_gpus > 0 && !gpu->problem[0]) {
        finding_add(f, FINDING_OK, subject, NULL,
                    "%s, %lld of %lld MiB free, driver for CUDA %d.%d", gpu->name,
                    (long long)(gpu->left / MIB), (long long)(gpu->total / MIB), gpu->driver / 1000,
                    gpu->driver % 1000 / 10);
    } else if (asked || there) {
        finding_add(f, asked ? FINDING_FAULT : FINDING_ADVICE, subject, fix_for_gpu(gpu, there),
                    "%s%s", there ? "a GPU is there, but " : "",
                    gpu->problem[0] ? gpu->problem : "CUDA finds none");
    } else {
        finding_add(f, FINDING_OK, subject, NULL, "none: the model runs on the CPU");
    }
}

static void check_cpu(struct findings *f, const struct serve_config *c) {
    static const char subject[] = "cpu";
    struct backend *cpu = NULL;
    struct err err = {0};
    struct device_options o = {.device = "cpu", .isa = c->model.isa, .n_threads = 1};
    if (device_open(&cpu, &o, &err) < 0) {
        finding_add(f, FINDING_FAULT, subject, "set isa to auto", "%s", err.text);
        return;
    }
    finding_add(f, FINDING_OK, subject, NULL, "%.*s", (int)strcspn(cpu->description, ","),
                cpu->description); // not the threads of this probe
    cpu->ops->close(cpu);
}

static void check_jit(struct findings *f) {
    if (cli_pattern_jit_works())
        finding_add(f, FINDING_OK, "patterns", NULL, "PCRE2 compiles them to machine code");
    else
        finding_add(f, FINDING_ADVICE, "patterns",
                    "MemoryDenyWriteExecute=no in the systemd unit; SELinux: allow execmem",
                    "the system allows no machine code made at run time: tokenizing is slower");
}

static void check_models(struct findings *f, const struct serve_config *c,
                         const struct backend_cuda_look *gpu) {
    struct instances planned = {0};
    struct err err = {0};
    if (!*c->model.model && !c->parts.first) return;
    if (instances_plan(&planned, c, &err) < 0) {
        finding_add(f, FINDING_FAULT, "model", "parley serve --help", "%s", err.text);
        return;
    }
    for (const struct hosted *h = planned.list; h; h = h->next) check_model(f, &h->config, gpu);
    instances_release(&planned);
}

static void check_all(struct findings *f, const struct serve_config *c) {
    static void (*const checks[])(struct findings *, const struct serve_config *) = {
        doctor_check_database,   doctor_check_snapshots,  doctor_check_port,
        doctor_check_tls,        doctor_check_tokens,     doctor_check_descriptors,
        doctor_check_priority,   doctor_check_processors, doctor_check_numa,
        doctor_check_huge_pages,
    };
    struct err err = {0};
    struct backend_cuda_look gpu;
    if (serve_config_check(c, &err) < 0)
        finding_add(f, FINDING_FAULT, "settings", "parley serve --help", "%s", err.text);
    else
        finding_add(f, FINDING_OK, "settings", NULL, "they fit together");
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) checks[i](f, c);
    check_cpu(f, c);
    check_jit(f);
    backend_cuda_look(&gpu);
    check_gpu(f, c, &gpu);
    check_models(f, c, &gpu);
}

// --- the command ---

static int report(const struct findings *f, bool json, struct err *err) {
    struct cli_json j;
    int rc = 0;
    if (json) {
        cli_json_begin(&j);
        findings_put_json(f, &j.w);
        rc = cli_json_end(&j, err);
    } else {
        findings_print(f);
    }
    if (rc == 0 && f->no_memory) rc = err_set(err, E_NOMEM, "out of memory: findings are missing");
    return rc < 0 ? rc : findings_count(f, FINDING_FAULT) ? CLI_FAILED : CLI_OK;
}

static int run(void *settings, struct serve_config *config, struct err *err) {
    const struct own *own = settings;
    struct findings findings = {0};
    TRY(model_names_look(serve_config_table(), config, err));
    TRY(model_names_look_parts(&config->parts, err));
    check_all(&findings, config);
    int rc = report(&findings, own->json, err);
    findings_release(&findings);
    return rc;
}

const struct cli_command command_doctor = {
    .name = "doctor",
    .summary = "say what is wrong with these settings and this machine",
    .usage = "doctor [--config FILE] [OPTIONS OF serve] [--json]",
    .about = "Looks at what `parley serve` with the same options would use: model, database, disk, "
             "port,\ncertificate, tokens, memory, processors, GPU, limits. Says what is wrong and "
             "the command that\nfixes it. Changes nothing; a server may run meanwhile. Exit status "
             "1: the server would not start.",
    CLI_SETTINGS(own_keys),
    .serve = run,
};
