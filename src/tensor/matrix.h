// Borrowed two-dimensional views: row-major, last dimension contiguous, rows `stride` elements apart.
#ifndef TIDEMILL_TENSOR_MATRIX_H_
#define TIDEMILL_TENSOR_MATRIX_H_

#include <cstddef>
#include <type_traits>

namespace tidemill {

template <typename T>
struct MatrixView {
  T* data = nullptr;
  size_t rows = 0;
  size_t cols = 0;
  size_t stride = 0;

  MatrixView() = default;
  MatrixView(T* d, size_t r, size_t c) : data(d), rows(r), cols(c), stride(c) {}
  MatrixView(T* d, size_t r, size_t c, size_t s) : data(d), rows(r), cols(c), stride(s) {}
  template <typename U>
  requires std::is_same_v<const U, T> MatrixView(const MatrixView<U>& m)
      : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride) {}  // NOLINT: T to const T

  T* row(size_t i) const { return data + i * stride; }
  MatrixView Rows(size_t first, size_t count) const { return {data + first * stride, count, cols, stride}; }
  MatrixView Cols(size_t first, size_t count) const { return {data + first, rows, count, stride}; }
};

template <typename T>
using Matrix = MatrixView<T>;
template <typename T>
using ConstMatrix = MatrixView<const T>;

}  // namespace tidemill

#endif  // TIDEMILL_TENSOR_MATRIX_H_
