// The folders of tests/fixtures/families, a small seeded checkpoint of each family.
#ifndef TIDEMILL_TESTS_SUPPORT_FAMILIES_H_
#define TIDEMILL_TESTS_SUPPORT_FAMILIES_H_

namespace tidemill::testing {

inline constexpr const char* kFamilies[] = {"gemma3_text", "gpt2",          "gpt_neox", "llama3_rope",
                                            "llama_yarn",  "mistral",       "mixtral",  "opt",
                                            "qwen2",       "opt_post_norm", "qwen3",    "qwen3_moe"};

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_FAMILIES_H_
