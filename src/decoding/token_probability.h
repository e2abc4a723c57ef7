// A token of a distribution.
#ifndef TIDEMILL_DECODING_TOKEN_PROBABILITY_H_
#define TIDEMILL_DECODING_TOKEN_PROBABILITY_H_

#include <cstdint>

namespace tidemill {

struct TokenProbability {
  int32_t id;
  double probability;  // > 0
};

}  // namespace tidemill

#endif  // TIDEMILL_DECODING_TOKEN_PROBABILITY_H_
