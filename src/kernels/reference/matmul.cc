#include <vector>

#include "kernels/matmul.h"
#include "tensor/half.h"

namespace tidemill::reference {

void MatMul(std::span<const MatMulTask> tasks) {
  for (const MatMulTask& task : tasks) {
    const WeightMatrix& w = *task.weight;
    std::vector<float> weights(w.cols());
    for (size_t n = 0; n < w.rows(); ++n) {
      w.CopyRow(n, weights);
      for (size_t r = 0; r < task.y.rows; ++r) {
        double sum = 0;
        for (size_t k = 0; k < w.cols(); ++k) {
          const QuantizedRows& q = task.quantized;
          double x;
          if (w.quantized()) {
            x = static_cast<double>(q.d[(r * q.cols + k) / kQuantBlock]) * q.q[r * q.cols + k];
          } else {
            x = static_cast<double>(task.bfloat16.data != nullptr ? BFloat16ToFloat(task.bfloat16.row(r)[k])
                                                                  : task.x.row(r)[k]);
          }
          sum += static_cast<double>(weights[k]) * x;
        }
        float& y = task.y.row(r)[n];
        y = task.accumulate ? y + static_cast<float>(sum) : static_cast<float>(sum);
      }
    }
  }
}

}  // namespace tidemill::reference
