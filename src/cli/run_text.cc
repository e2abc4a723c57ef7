#include "cli/run_text.h"

#include <algorithm>
#include <span>
#include <utility>

#include "cli/errors.h"
#include "cli/text_source.h"

namespace tidemill::cli {
namespace {

constexpr char kRead[] = "read the prompt";

// A file and a question are raw, as one text is with --raw.
Result<void> CheckTwoTexts(const RunFlags& flags) {
  const PromptForm& form = flags.form;
  const char* chat = form.chat                   ? "--chat"
                     : form.system               ? "--system"
                     : form.chat_template.name   ? "--chat-template"
                     : form.chat_template.kwargs ? "--chat-template-kwargs"
                                                 : nullptr;
  if (chat != nullptr) return UsageError(chat, "expected a chat of one text, found -f and -p; leave one out");
  TIDEMILL_TRY(info, Inspect(flags.model));
  if (info.segment_size != 0) return {};
  return UsageError("text", "expected one, found two: -p " + Quoted(*flags.text.prompt) + " and -f " +
                                Quoted(*flags.text.file) +
                                "; leave one out: a question behind a file is for models that read segments");
}

// Behind other text: in its middle.
Result<std::vector<int32_t>> EncodeBehind(const Model& model, const std::string& text) {
  return model.text().tokenizer.Encode(text, {.add_special = false, .parse_special = true});
}

std::string TokenText(std::span<const int32_t> ids, size_t i, const Tokenizer& tokenizer) {
  if (i >= ids.size()) return "the end";
  const bool has_text = ids[i] >= 0 && static_cast<size_t>(ids[i]) < tokenizer.vocab_size();
  return std::to_string(ids[i]) + (has_text ? " " + Quoted(tokenizer.TokenBytes(ids[i])) : "");
}

Result<void> CheckSameText(std::span<const int32_t> ids, const SavedRequest& saved, const std::string& path,
                           const Tokenizer& tokenizer) {
  const std::span<const int32_t> expected = saved.ids();
  const auto [found, in_saved] = std::mismatch(ids.begin(), ids.end(), expected.begin(), expected.end());
  if (found == ids.end() && in_saved == expected.end()) return {};
  const auto i = static_cast<size_t>(found - ids.begin());
  return Error(ErrorCode::kInvalidArgument, "go on with the prompt of " + path + ": token " + std::to_string(i) +
                                                ": expected " + TokenText(expected, i, tokenizer) + ", found " +
                                                TokenText(ids, i, tokenizer) +
                                                "; give the text that was being read, or none");
}

}  // namespace

Result<RunText> ReadRunText(const RunFlags& flags) {
  const TextSource& source = flags.text;
  RunText text;
  if (flags.state.load_file && !source.positional && !source.prompt && !source.file) return text;
  if (source.file && source.prompt && !source.positional) {
    TIDEMILL_TRY_VOID(CheckTwoTexts(flags));
    TIDEMILL_TRY_VOID(CheckUtf8(kRead, "-p", *source.prompt));
    text.question = source.prompt;
    TIDEMILL_TRY(file, (TextSource{.positional = {}, .prompt = {}, .file = source.file}).Read(kRead, ""));
    text.text = std::move(file);
    return text;
  }
  TIDEMILL_TRY(one, source.Read(kRead, "give one with -p, or talk with tidemill chat MODEL"));
  text.text = std::move(one);
  return text;
}

Result<std::vector<int32_t>> EncodeRunText(const RunText& text, const RunFlags& flags, const Model& model,
                                           const SavedRequest* saved) {
  const bool is_begun = saved != nullptr && saved->is_in_prompt();
  if (is_begun && !text.text) return std::vector<int32_t>();
  std::vector<int32_t> ids;
  if (saved != nullptr && !is_begun) {
    TIDEMILL_TRY(encoded, EncodeBehind(model, text.text.value_or("")));
    ids = std::move(encoded);
  } else {
    PromptForm form = flags.form;
    form.raw = form.raw || text.question.has_value();
    TIDEMILL_TRY(encoder, PromptEncoder::Create(model, form));
    TIDEMILL_TRY(encoded, encoder.Encode(*text.text));
    ids = std::move(encoded);
  }
  if (text.question) {
    TIDEMILL_TRY(question, EncodeBehind(model, *text.question));
    ids.insert(ids.end(), question.begin(), question.end());
  }
  if (!is_begun) return ids;
  TIDEMILL_TRY_VOID(CheckSameText(ids, *saved, *flags.state.load_file, model.text().tokenizer));
  return std::vector<int32_t>();
}

void WarnAboutDroppedBytes(const Tokenizer& tokenizer, const RunText& text, Messages& messages) {
  if (tokenizer.dropped_bytes().empty()) return;
  const std::string all = text.text.value_or("") + text.question.value_or("");
  for (const uint8_t byte : tokenizer.dropped_bytes()) {
    const size_t offset = all.find(static_cast<char>(byte));
    if (offset != std::string::npos) {
      messages.Warning("the prompt has byte " + std::to_string(byte) + " at offset " + std::to_string(offset) +
                       ", for which the vocabulary has no token; it is left out");
      return;
    }
  }
}

}  // namespace tidemill::cli
