#include "tidemill/tokenizer.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "text/encoder.h"
#include "text/tokenizer_impl.h"

namespace tidemill {
namespace {

constexpr size_t kMaxTextBytes = size_t{64} << 20;

Error Invalid(const std::string& message) { return Error(ErrorCode::kInvalidArgument, message); }

std::string ToString(const ByteRange& range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

// The ranges that are not empty.
Result<std::vector<ByteRange>> CheckRanges(std::span<const ByteRange> caller, size_t text_size) {
  std::vector<ByteRange> ranges;
  ranges.reserve(caller.size());
  size_t least = 0;
  for (const ByteRange& range : caller) {
    if (range.begin < least || range.end < range.begin || range.end > text_size) {
      return Invalid("tokenize a prompt: caller range " + ToString(range) + ": expected it within [" +
                     std::to_string(least) + ", " + std::to_string(text_size) + ")");
    }
    least = range.end;
    if (range.begin < range.end) ranges.push_back(range);
  }
  return ranges;
}

Result<std::vector<int32_t>> EncodeText(const Tokenizer::Impl& impl, std::string_view text,
                                        std::span<const ByteRange> caller, EncodeOptions options) {
  if (text.size() > kMaxTextBytes) {
    return Invalid("tokenize a text: expected at most " + std::to_string(kMaxTextBytes) + " bytes, found " +
                   std::to_string(text.size()) + "; tokenize it in parts");
  }
  try {
    TIDEMILL_TRY(ranges, CheckRanges(caller, text.size()));
    std::vector<int32_t> ids;
    if (options.add_special) ids = impl.begin_ids;
    Encoder encoder(impl, text.size(), ids);
    TIDEMILL_TRY_VOID(encoder.EncodeAll({.text = text, .special = options.parse_special, .caller = ranges}));
    if (options.add_special) ids.insert(ids.end(), impl.end_ids.begin(), impl.end_ids.end());
    return ids;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "tokenize a text of " + std::to_string(text.size()) +
                                              " bytes: not enough memory; tokenize it in parts");
  }
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) { TIDEMILL_CHECK(impl_ != nullptr); }
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text, EncodeOptions options) const {
  return EncodeText(*impl_, text, {}, options);
}

Result<std::vector<int32_t>> Tokenizer::Encode(const PromptText& prompt, EncodeOptions options) const {
  return EncodeText(*impl_, prompt.text, prompt.caller, options);
}

Result<std::string> Tokenizer::Decode(std::span<const int32_t> ids, bool keep_special) const {
  try {
    std::string text;
    for (const int32_t id : ids) {
      if (!impl_->InRange(id)) {
        return Invalid("detokenize: token id " + std::to_string(id) + ": expected an id below " +
                       std::to_string(vocab_size()));
      }
      if (keep_special || !impl_->IsSpecial(id)) text += impl_->BytesOf(id);
    }
    return text;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "detokenize " + std::to_string(ids.size()) + " tokens: not enough memory");
  }
}

Result<std::string> Tokenizer::DecodeText(std::span<const int32_t> ids, bool keep_special) const {
  TIDEMILL_TRY(text, Decode(ids, keep_special));
  size_t spaces = 0;
  if (impl_->leading_space == LeadingSpace::kOneDropped) {
    spaces = text.starts_with(' ') ? 1 : 0;
  } else if (impl_->leading_space == LeadingSpace::kAllDroppedOfFirstToken) {
    const auto first =
        std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return keep_special || !impl_->IsSpecial(id); });
    if (first != ids.end()) spaces = std::min(TokenBytes(*first).find_first_not_of(' '), TokenBytes(*first).size());
  }
  text.erase(0, spaces);
  return text;
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  return impl_->InRange(id) ? impl_->BytesOf(id) : std::string_view();
}

std::string_view Tokenizer::TokenName(int32_t id) const {
  return impl_->InRange(id) ? impl_->NameOf(id) : std::string_view();
}

std::optional<int32_t> Tokenizer::FindToken(std::string_view name) const {
  const int32_t found = impl_->FindName(name);
  return found >= 0 ? std::optional(found) : std::nullopt;
}

size_t Tokenizer::vocab_size() const { return impl_->num_tokens(); }
std::optional<int32_t> Tokenizer::bos_id() const { return impl_->bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->eos_id; }
bool Tokenizer::adds_bos() const { return impl_->add_bos; }
bool Tokenizer::adds_eos() const { return impl_->add_eos; }

bool Tokenizer::IsSpecial(int32_t id) const { return impl_->InRange(id) && impl_->IsSpecial(id); }

bool Tokenizer::IsEndOfGeneration(int32_t id) const {
  const auto& ids = impl_->end_of_generation_ids;
  return std::binary_search(ids.begin(), ids.end(), id);
}

std::span<const int32_t> Tokenizer::end_of_generation_ids() const { return impl_->end_of_generation_ids; }
std::span<const uint8_t> Tokenizer::dropped_bytes() const { return impl_->dropped_bytes; }

}  // namespace tidemill
