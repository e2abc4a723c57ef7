// A gated delta net's weights, from the layouts that files have them in (docs/models.md).
#ifndef TIDEMILL_MODELS_DELTA_LOADER_H_
#define TIDEMILL_MODELS_DELTA_LOADER_H_

#include <functional>
#include <string>

#include "formats/model_settings.h"
#include "models/layers/delta_branch.h"
#include "models/weight_loader.h"
#include "tidemill/result.h"

namespace tidemill {

// A name in this layer: "linear_attn.norm" in a checkpoint, "ssm_norm" in a GGUF file.
using LayerWeightName = std::function<WeightName(const std::string& checkpoint, const std::string& gguf)>;

// tiled: the order of value heads in the layer, and in the family's GGUF files. Checkpoints always have them key head by key head.
// Kinds of projections are told apart by which tensors are there. kCorruptFile names a tensor of another shape, or whose decay is not a
// finite number below 0.
Result<DeltaLayer> LoadDeltaLayer(const ModelSettings& settings, bool tiled, const LayerWeightName& name,
                                  WeightLoader& weights);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_DELTA_LOADER_H_
