// Rows of an attention cell that attend as their layer's SparseForm says: those at SequenceRows::sparse_from and later positions, where the layer
// is a SparseKvLayer whose form is not kDense. A row is sparse for where it stands, never for how many rows the step has. Dense rows of a layer
// with sums of weights (kH2o) add theirs.
#ifndef TIDEMILL_MODELS_LAYERS_SPARSE_ROWS_H_
#define TIDEMILL_MODELS_LAYERS_SPARSE_ROWS_H_

#include <cstddef>

#include "kernels/attention.h"
#include "kernels/execution_context.h"
#include "models/layers/step_buffers.h"
#include "state/cell.h"
#include "state/kv_layer.h"
#include "tensor/matrix.h"

namespace tidemill {

// Whether AttendSparseRows has anything to do.
bool NeedsSparse(KvLayer& kv, const SequenceRows& rows);
// The first rows, up to the last dense one. Sparse nodes of a tree may be among them.
size_t NumDenseRows(KvLayer& kv, const SequenceRows& rows);

// All sparse rows of a cell; `state`: of the layer, in the sequences. q, out: [rows of the step, heads * head_dim]. Adds to the layers' counts.
void AttendSparseRows(ExecutionContext& ctx, const AttentionShape& shape, const Cell& cell, size_t state,
                      ConstMatrix<float> q, Matrix<float> out, SparseRowMemory& scratch);

}  // namespace tidemill

#endif  // TIDEMILL_MODELS_LAYERS_SPARSE_ROWS_H_
