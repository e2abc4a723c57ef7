#include "text/utf8.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

std::string StreamDecoder::Push(int32_t id) {
  std::string text;
  if (keep_special_ || !tokenizer_->IsSpecial(id)) AppendWholeUtf8(tokenizer_->TokenBytes(id), pending_, text);
  return text;
}

std::string StreamDecoder::Finish() {
  std::string text = ReplaceInvalidUtf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace tidemill
