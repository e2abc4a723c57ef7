// safetensors: the container of Hugging Face checkpoints. Format: huggingface/safetensors README.
//
//   header length  u64    at most 100 MB
//   header         JSON   { "__metadata__": { string: string, ... },
//                           NAME: { "dtype": "F32", "shape": [4, 2, 64], "data_offsets": [begin, end] }, ... }
//                         begins with '{', may end in blanks
//   data           tensor bytes, row-major; offsets count from here
//
// The file is hostile input. Everything is validated before the first tensor is handed out: the header's length, every name, type,
// shape and range, and, as the format demands, that the tensors cover the data exactly: no hole, no overlap, nothing behind the
// last one. Data has no alignment: early writers began it at odd addresses.
#ifndef TIDEMILL_FORMATS_SAFETENSORS_H_
#define TIDEMILL_FORMATS_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/file_tensor.h"
#include "tidemill/result.h"

namespace tidemill {

// What a file may ask for. Real files stay far below; a file above is refused, however large it is.
inline constexpr uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;  // as the reference implementation
inline constexpr uint64_t kSafetensorsMaxTensors = 1'000'000;
inline constexpr uint64_t kSafetensorsMaxNameBytes = 256;    // UTF-8 without control characters, not empty
inline constexpr uint64_t kSafetensorsMaxMetadata = 10'000;  // pairs
inline constexpr size_t kSafetensorsMaxRank = 64;

// Borrows the bytes it was parsed from: the mapping must outlive it and every view it returns.
class SafetensorsFile {
 public:
  // kCorruptFile names the section, the byte offset, what was expected and found; kUnsupported for a type of element, a field or a
  // number that this build does not know or take, and for a file of another format; kOutOfMemory. The caller adds the file's name.
  // Cost: O(n log n) in the tensors; memory below 4 x the header. Tensor bytes stay where they are.
  static Result<SafetensorsFile> Parse(std::span<const std::byte> file);

  // Not copied: views into names that it holds itself would stay with the original.
  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;

  // In the order of their data. Of every type, also of those that CheckReadable refuses.
  std::span<const FileTensor> tensors() const { return tensors_; }
  const FileTensor* FindTensor(std::string_view name) const;  // null when there is none

 private:
  SafetensorsFile() = default;

  friend class SafetensorsParser;

  std::vector<FileTensor> tensors_;
  std::vector<uint32_t>
      tensors_by_name_;  // indices into tensors_, sorted: unlike a hash table, no set of names slows it
  std::deque<std::string>
      escaped_names_;  // that the header does not hold as they are; stay in place when the file moves
};

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_SAFETENSORS_H_
