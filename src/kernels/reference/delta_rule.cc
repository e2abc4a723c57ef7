#include "kernels/delta_rule.h"

#include <cmath>

namespace tidemill::reference {

void DeltaRule(const DeltaShape& shape, const DeltaTask& rows, std::vector<double>* state, std::vector<double>* y) {
  const size_t dk = shape.key_dim, dv = shape.value_dim;
  state->resize(shape.value_heads * dk * dv);
  y->assign(rows.k.rows * shape.value_heads * dv, 0.0);
  for (size_t t = 0; t < rows.k.rows; ++t) {
    for (size_t h = 0; h < shape.value_heads; ++h) {
      double* s = state->data() + h * dk * dv;
      const float* k = rows.k.row(t) + shape.key_head(h) * dk;
      const float* q = rows.q.row(t) + shape.key_head(h) * dk;
      const double alpha = std::exp(static_cast<double>(rows.g.row(t)[h]));
      for (size_t c = 0; c < dv; ++c) {
        double seen = 0;
        for (size_t r = 0; r < dk; ++r) {
          s[r * dv + c] *= alpha;
          seen += static_cast<double>(k[r]) * s[r * dv + c];
        }
        const double u =
            static_cast<double>(rows.beta.row(t)[h]) * (static_cast<double>(rows.v.row(t)[h * dv + c]) - seen);
        double sum = 0;
        for (size_t r = 0; r < dk; ++r) {
          s[r * dv + c] += static_cast<double>(k[r]) * u;
          sum += static_cast<double>(q[r]) * s[r * dv + c];
        }
        (*y)[(t * shape.value_heads + h) * dv + c] = sum;
      }
    }
  }
}

}  // namespace tidemill::reference
