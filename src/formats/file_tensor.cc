#include "formats/file_tensor.h"

#include "base/printable_name.h"

namespace tidemill {

Result<void> CheckReadable(const FileTensor& tensor) {
  const std::string context = "tensor " + QuoteName(tensor.name);
  if (tensor.encoding == TensorEncoding::kOther) {
    return Error(ErrorCode::kUnsupported, context + ": expected F32, F16, BF16, F8_E4M3 or F8_E5M2, found type " +
                                              std::string(tensor.type_name));
  }
  if (tensor.rank > kMaxTensorRank) {
    return Error(ErrorCode::kUnsupported, context + ": expected at most " + std::to_string(kMaxTensorRank) +
                                              " dimensions, found " + std::to_string(tensor.rank));
  }
  return {};
}

}  // namespace tidemill
