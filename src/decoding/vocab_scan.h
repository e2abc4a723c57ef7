// The passes over all logits of one step, in chunks of 64 tokens: whether all are numbers, the largest of each chunk, and
// sums of softmax numerators. One routine per level of instructions (Highway); all give equal bits, the baseline included:
// comparisons are exact, and the sums use no fused operations. So `isa` only has to be one that the CPU runs.
//   logits : [vocab] f32, vocab >= 1        chunk_... : [NumChunks(vocab)]        Threads: those of `parts`, else one. Allocate nothing.
#ifndef TIDEMILL_DECODING_VOCAB_SCAN_H_
#define TIDEMILL_DECODING_VOCAB_SCAN_H_

#include <cstddef>
#include <limits>
#include <span>

#include "base/isa.h"
#include "decoding/exact_math.h"
#include "decoding/vocab_parts.h"

namespace tidemill {

inline constexpr float kLowestLogit = std::numeric_limits<float>::lowest();  // all but masked tokens are at least this

// The logits after the last whole chunk, filled up with masked tokens, which change neither a maximum nor a sum.
struct LastChunk {
  explicit LastChunk(std::span<const float> logits);

  size_t num_tokens;  // 0..63 before the masked ones
  float padded[kChunkTokens];
};

struct LogitScan {
  float max;         // of all; meaningless unless all_numbers
  bool all_numbers;  // neither NaN nor +infinity; -infinity (a masked token) is a number here
};

//   chunk_max[c] = max of logits[64 c .. 64 c + 63]
// Cost: 4 vocab bytes read once.
LogitScan ScanLogits(Isa isa, std::span<const float> logits, std::span<float> chunk_max);

// The lowest id whose logit is `max`, which one of them is.
size_t ArgMax(std::span<const float> logits, std::span<const float> chunk_max, float max);

// Weight of a token: its probability over that of the best one. f64; 0 when it is e^-708 or less.
inline double TokenWeight(float logit, float max, double inverse_temperature) {
  return Exp((static_cast<double>(logit) - static_cast<double>(max)) * inverse_temperature);
}

//   chunk_sum[c] = sum of TokenWeight(logits[64 c .. 64 c + 63]);  returns the sum of chunk_sum in ascending c
// Bits: s = 16 partial sums, s[i % 16] += weight in ascending i, then s[j] += s[j + h] for h = 8, 4, 2, 1.
// Needs ScanLogits' all_numbers and a finite max. Cost: about 40 f64 operations a token.
double SumWeights(Isa isa, std::span<const float> logits, float max, double inverse_temperature,
                  std::span<double> chunk_sum, const VocabParts& parts = {});

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_VOCAB_SCAN_H_
