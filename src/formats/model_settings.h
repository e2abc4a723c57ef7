// A model's settings as typed, checked numbers, with the names of config.json, whatever file they come from.
#ifndef TIDEMILL_FORMATS_MODEL_SETTINGS_H_
#define TIDEMILL_FORMATS_MODEL_SETTINGS_H_

#include <cstddef>
#include <string>

#include "formats/gguf.h"
#include "tidemill/result.h"

namespace tidemill {

struct ModelSettings {
  std::string architecture;  // "llama"
  std::string name;          // as the file calls itself; may be empty
  size_t vocab_size = 0;     // 1 .. 2^24
  size_t hidden_size = 0;    // 1 .. 2^20, as the other sizes
  size_t intermediate_size = 0;
  size_t num_hidden_layers = 0;        // 1 .. 4096
  size_t num_attention_heads = 0;      // 1 .. 4096
  size_t num_key_value_heads = 0;      // divides num_attention_heads
  size_t head_dim = 0;                 // even, 2 .. 512
  size_t rotary_dim = 0;               // even, 2 .. head_dim
  size_t max_position_embeddings = 0;  // 1 .. 2^30
  double rope_theta = 10000;           // > 0
  double rms_norm_eps = 1e-5;          // > 0
  bool tie_word_embeddings = false;
};

// From the keys "<architecture>.*" of a GGUF file. kCorruptFile names the key, the range and what was found; kUnsupported for a
// rope scaling or an expert count, which no family here has yet.
Result<ModelSettings> ReadGgufSettings(const GgufFile& file);

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_MODEL_SETTINGS_H_
