// The forms as a table, and beside it the fingerprints of the published templates that print
// exactly what a row prints for system, user and assistant messages. A template is recognised only
// through that list: one wrong space in a prompt costs a model more than a refusal costs its user.
// To add one: `parley tokenize --chat` names the normal form of a template that it refuses; compare
// what the template renders with what the row writes, then enter it.
#include "engine/text/chat_forms.h"
#include <string.h>

#define BOS FORM_BOS
#define EOS FORM_EOS
#define IM(role)                                                                                   \
    { "<|im_start|>" role "\n", "<|im_end|>\n" }
#define CHATML                                                                                     \
    .system = IM("system"), .user = IM("user"), .assistant = IM("assistant"),                      \
    .generation = "<|im_start|>assistant\n", .end_of_turn = "<|im_end|>"
#define HEADER(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define LLAMA3                                                                                     \
    .prefix = BOS, .system = {HEADER("system"), "<|eot_id|>"},                                     \
    .user = {HEADER("user"), "<|eot_id|>"}, .assistant = {HEADER("assistant"), "<|eot_id|>"},      \
    .generation = HEADER("assistant"), .end_of_turn = "<|eot_id|>", .flags = FORM_TRIM
#define PHI3                                                                                       \
    .system = {"<|system|>\n", "<|end|>\n"}, .user = {"<|user|>\n", "<|end|>\n"},                  \
    .assistant = {"<|assistant|>\n", "<|end|>\n"}, .generation = "<|assistant|>\n",                \
    .no_generation = EOS, .end_of_turn = "<|end|>"
#define GRANITE(role)                                                                              \
    { "<|start_of_role|>" role "<|end_of_role|>", "<|end_of_text|>\n" }

const struct chat_form chat_forms[] = {
    {.name = "chatml", .prefix = "", CHATML},
    {.name = "chatml-bos", .prefix = BOS, CHATML},
    {.name = "qwen2", .prefix = "", CHATML, .default_system = "You are a helpful assistant."},
    {.name = "qwen2.5",
     .prefix = "",
     CHATML,
     .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {.name = "qwen3", .prefix = "", CHATML, .think = THINK_QWEN3},
    {.name = "lfm2", .prefix = BOS, CHATML, .flags = FORM_SKIP_EMPTY_SYSTEM},
    {.name = "llama2",
     .prefix = "",
     .system = {"<<SYS>>\n", "\n<</SYS>>\n\n"},
     .user = {BOS "[INST] ", " [/INST]"},
     .assistant = {" ", " " EOS},
     .generation = "",
     .end_of_turn = EOS,
     .place = SYSTEM_IN_FIRST_USER,
     .flags = FORM_ALTERNATE | FORM_TRIM_USER | FORM_TRIM_ASSISTANT},
    {.name = "llama3", LLAMA3},
    {.name = "llama3.1",
     LLAMA3,
     .default_system = "",
     .first_system =
         HEADER("system") "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"},
    {.name = "llama3.2",
     LLAMA3,
     .default_system = "",
     .first_system =
         HEADER("system") "Cutting Knowledge Date: December 2023\nToday Date: " FORM_DATE "\n\n"},
    // Mistral's spacing by tokenizer generation: v1 and v2 before a system prompt existed, then v1,
    // v3, tekken.
    {.name = "mistral",
     .prefix = BOS,
     .user = {"[INST] ", " [/INST]"},
     .assistant = {"", EOS},
     .generation = "",
     .end_of_turn = EOS,
     .place = SYSTEM_REFUSED,
     .flags = FORM_ALTERNATE},
    {.name = "mistral-v1",
     .prefix = BOS,
     .system = {"", "\n\n"},
     .user = {" [INST] ", " [/INST]"},
     .assistant = {" ", EOS},
     .generation = "",
     .end_of_turn = EOS,
     .place = SYSTEM_IN_FIRST_USER,
     .flags = FORM_ALTERNATE},
    {.name = "mistral-v3",
     .prefix = BOS,
     .system = {"", "\n\n"},
     .user = {"[INST] ", "[/INST]"},
     .assistant = {" ", EOS},
     .generation = "",
     .end_of_turn = EOS,
     .place = SYSTEM_IN_LAST_USER,
     .flags = FORM_ALTERNATE | FORM_TRIM_ASSISTANT},
    {.name = "mistral-nemo",
     .prefix = BOS,
     .system = {"", "\n\n"},
     .user = {"[INST]", "[/INST]"},
     .assistant = {"", EOS},
     .generation = "",
     .end_of_turn = EOS,
     .place = SYSTEM_IN_LAST_USER,
     .flags = FORM_ALTERNATE},
    {.name = "gemma",
     .prefix = BOS,
     .user = {"<start_of_turn>user\n", "<end_of_turn>\n"},
     .assistant = {"<start_of_turn>model\n", "<end_of_turn>\n"},
     .generation = "<start_of_turn>model\n",
     .end_of_turn = "<end_of_turn>",
     .place = SYSTEM_REFUSED,
     .flags = FORM_ALTERNATE | FORM_TRIM_USER | FORM_TRIM_ASSISTANT},
    {.name = "phi3", .prefix = "", PHI3},
    {.name = "phi3-small", .prefix = BOS, PHI3},
    {.name = "phi3.5", .prefix = "", PHI3, .flags = FORM_SKIP_EMPTY_SYSTEM},
    {.name = "zephyr",
     .prefix = "",
     .system = {"<|system|>\n", EOS "\n"},
     .user = {"<|user|>\n", EOS "\n"},
     .assistant = {"<|assistant|>\n", EOS "\n"},
     .generation = "<|assistant|>\n",
     .end_of_turn = EOS},
    {.name = "deepseek-v2",
     .prefix = BOS,
     .system = {"", "\n\n"},
     .user = {"User: ", "\n\n"},
     .assistant = {"Assistant: ", EOS},
     .generation = "Assistant:",
     .end_of_turn = EOS},
    {.name = "deepseek-r1",
     .prefix = BOS,
     .user = {"<｜User｜>", ""},
     .assistant = {"<｜Assistant｜>", "<｜end▁of▁sentence｜>"},
     .generation = "<｜Assistant｜><think>\n</think>",
     .end_of_turn = "<｜end▁of▁sentence｜>",
     .place = SYSTEM_GATHERED,
     .think = THINK_CUT},
    {.name = "glm4",
     .prefix = "[gMASK]<sop>",
     .system = {"<|system|>\n", ""},
     .user = {"<|user|>\n", ""},
     .assistant = {"<|assistant|>", ""},
     .generation = "<|assistant|>",
     .end_of_turn = "<|user|>", // the model asks for the next turn itself
     .think = THINK_GLM},
    {.name = "granite",
     .prefix = "",
     .system = GRANITE("system"),
     .user = GRANITE("user"),
     .assistant = GRANITE("assistant"),
     .generation = "<|start_of_role|>assistant<|end_of_role|>",
     .end_of_turn = "<|end_of_text|>"},
    {.name = "openchat",
     .prefix = BOS,
     .system = {"GPT4 Correct System: ", "<|end_of_turn|>"},
     .user = {"GPT4 Correct User: ", "<|end_of_turn|>"},
     .assistant = {"GPT4 Correct Assistant: ", "<|end_of_turn|>"},
     .generation = "GPT4 Correct Assistant:",
     .end_of_turn = "<|end_of_turn|>"},
    {.name = "command-r",
     .prefix = BOS,
     .system = {"<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
     .user = {"<|START_OF_TURN_TOKEN|><|USER_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
     .assistant = {"<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>", "<|END_OF_TURN_TOKEN|>"},
     .generation = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>",
     .end_of_turn = "<|END_OF_TURN_TOKEN|>",
     .place = SYSTEM_FIRST,
     .flags = FORM_ALTERNATE | FORM_TRIM_USER | FORM_TRIM_ASSISTANT},
};
const size_t n_chat_forms = sizeof chat_forms / sizeof *chat_forms;

static const struct {
    uint64_t fingerprint;
    const char *form;
} published[] = {
    {0x5c77634f1b7e51c3, "chatml"},     // OpenHermes 2.5, and many since
    {0x214643f6277fae0f, "chatml"},     // transformers' own default
    {0x8a7474676b47b082, "chatml"},     // Qwen3-Coder
    {0x2c90c397be251ca6, "chatml-bos"}, // the demo model
    {0xae650efb4588966e, "chatml-bos"}, // the same with a default for add_generation_prompt
    {0xc5da4a9fab07955d, "chatml-bos"}, // the same with bos inside the loop
    {0x782a2e0178d57bbb,
     "qwen2"}, // Qwen1.5, Qwen2, SmolLM2; the default system prompt is the template's own
    {0x9bc0a2dbac4e4e7d, "qwen2.5"},      // Qwen2.5-Instruct
    {0xe324b15dc86c1a5d, "qwen3"},        // Qwen3
    {0x9a2a549d92669b26, "lfm2"},         // LFM2-8B-A1B
    {0x343f8bdf6d6e2da9, "llama2"},       // Llama-2-chat
    {0x81e223f1cb6782ee, "llama3"},       // Meta-Llama-3-Instruct
    {0x4f8ecb281538f0a2, "llama3.1"},     // Llama-3.1-Instruct
    {0x9d84d6ba4b1b274e, "llama3.2"},     // Llama-3.2-Instruct
    {0xfa1b81deebd5a238, "mistral"},      // Mistral-7B-Instruct-v0.2
    {0x766e057901a5b5e6, "mistral-v1"},   // Mistral-7B-Instruct-v0.2, with a system prompt
    {0x36e9dae73a7e357d, "mistral-v3"},   // Mistral-Large-Instruct-2407
    {0xd50e2dd348a9974d, "mistral-nemo"}, // Mistral-Nemo-Instruct-2407
    {0x0df871c0507fbe60, "gemma"},        // gemma-it, gemma-2-it
    {0x0cdb9516f8aaae34, "phi3"},         // Phi-3-mini-instruct, revision of July 2024
    {0xdbce7baee004d2c2, "phi3-small"},   // Phi-3-small-instruct
    {0x634a130c6e628497, "phi3.5"},       // Phi-3.5-mini-instruct
    {0x2cdb625645b9f3bd, "zephyr"},       // zephyr-7b-beta, TinyLlama-1.1B-Chat
    {0x49c9eb9cec3dce04, "deepseek-v2"},  // DeepSeek-V2-Chat
    {0x8fb39c9b233d59c8, "deepseek-r1"},  // DeepSeek-R1-Distill-Qwen
    {0xc2654a310e01aee3, "glm4"},         // GLM-4.6
    {0xd316602d7472aaa2, "granite"},      // granite-3.0-instruct
    {0x87de4910c2cd1627, "openchat"},     // openchat-3.5
    {0xeb1f5078d5fc0d12, "command-r"},    // c4ai-command-r
};

const struct chat_form *chat_form_named(const char *name) {
    for (size_t i = 0; i < n_chat_forms; i++)
        if (strcmp(chat_forms[i].name, name) == 0) return &chat_forms[i];
    return NULL;
}

const struct chat_form *chat_form_of_fingerprint(uint64_t fingerprint) {
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        if (published[i].fingerprint == fingerprint) return chat_form_named(published[i].form);
    return NULL;
}

const char *chat_form_names(void) {
    return "chatml, chatml-bos, qwen2, qwen2.5, qwen3, lfm2, llama2, llama3, llama3.1, llama3.2, "
           "mistral, mistral-v1, "
           "mistral-v3, mistral-nemo, gemma, phi3, phi3-small, phi3.5, zephyr, deepseek-v2, "
           "deepseek-r1, glm4, granite, "
           "openchat, command-r";
}
