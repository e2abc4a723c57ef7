// The layer of GPT-2, GPT-NeoX and OPT: layer norms, one key/value head for each query head, a feed-forward layer without gate. A family
// states its weights' names and forms.
#ifndef TIDEMILL_MODELS_PLAIN_LAYER_H_
#define TIDEMILL_MODELS_PLAIN_LAYER_H_

#include "formats/model_settings.h"
#include "models/layers/decoder_layer.h"
#include "models/weight_loader.h"
#include "tidemill/result.h"

namespace tidemill {

struct PlainLayerSource {
  WeightName attention_norm = {}, mlp_norm = {};
  WeightName q = {}, k = {}, v = {};  // the same name three times if one matrix holds all
  WeightForm q_form = {}, k_form = {}, v_form = {};
  WeightName o = {}, up = {}, down = {};
  Bias attention_bias = Bias::kRequired;  // the feed-forward layer always has biases
  bool transposed = false;                // o, up and down are held as [in, out]
  bool rotary = true;                     // by the model's first table
};

// q, k, v: [heads * head_dim, hidden]; o: [hidden, heads * head_dim]. The residual is sequential.
Result<DecoderLayer> LoadPlainLayer(const ModelSettings& settings, const PlainLayerSource& source,
                                    WeightLoader& weights);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_PLAIN_LAYER_H_
