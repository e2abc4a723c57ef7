#include "tidemill/model.h"

#include <exception>
#include <utility>

#include "base/out_of_memory.h"
#include "base/thread_pool.h"
#include "models/registry.h"
#include "runtime/model_impl.h"
#include "runtime/unread_settings.h"
#include "text/tokenizer_impl.h"

namespace tidemill {
namespace {

// A tokenizer without tokens leaves out all bytes of a text.
Result<ModelText> NoText() {
  auto none = std::make_unique<Tokenizer::Impl>();
  none->id_of_byte.fill(-1);
  return ModelText{.tokenizer = Tokenizer(std::move(none)), .chat_template = {}, .bos_token = "", .eos_token = ""};
}

// Of rows that have no text nothing is drawn. What then is wrong with the options is wrong with the file.
Result<void> KeepWhatHasText(size_t vocab_size, GenerationOptions& options) {
  const auto has_none = [&](int32_t id) { return static_cast<size_t>(id) >= vocab_size; };
  std::erase_if(options.suppress_tokens, has_none);
  std::erase_if(options.begin_suppress_tokens, has_none);
  std::erase_if(options.bad_words_ids, [&](const auto& word) { return has_none(word.back()); });
  const Result<void> valid = Validate(options, vocab_size);
  if (valid.ok()) return {};
  return Error(ErrorCode::kCorruptFile, "generation_config.json: " + valid.error().message());
}

Result<std::unique_ptr<Model::Impl>> LoadImpl(const std::string& path, const LoadOptions& options) {
  TIDEMILL_TRY(files, ModelFiles::Open(path));
  TIDEMILL_TRY(info, DescribeModel(files));
  TIDEMILL_TRY(text, options.text ? ReadModelText(files) : NoText());
  TIDEMILL_TRY(recommended, ReadRecommendation(files));
  if (text.tokenizer.vocab_size() > info.vocab_size) {
    const std::string limit =
        files.gguf() != nullptr ? "rows of \"token_embd.weight\"" : "\"vocab_size\" of config.json";
    return Error(ErrorCode::kCorruptFile, "tokenizer: expected at most " + std::to_string(info.vocab_size) +
                                              " tokens, the " + limit + ", found " +
                                              std::to_string(text.tokenizer.vocab_size()));
  }
  if (options.text) TIDEMILL_TRY_VOID(KeepWhatHasText(text.tokenizer.vocab_size(), recommended.options));
  TIDEMILL_TRY(threads, ThreadPool::Create(options.threads == 0 ? DefaultThreadCount() : options.threads));
  TIDEMILL_TRY(model, LoadLanguageModel(files, LoadSettingsOf(options, *threads), options.rope_scaling));
  std::vector<UnreadSettings> unread = ListUnread(files, options.text ? ReadPart::kAll : ReadPart::kModel);
  return std::make_unique<Model::Impl>(Model::Impl{std::move(files), std::move(info), std::move(text),
                                                   std::move(recommended), std::move(model), options.f32,
                                                   options.rope_scaling, std::move(unread)});
}

}  // namespace

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

Result<std::shared_ptr<const Model>> Model::Load(const std::string& path, LoadOptions options) {
  try {
    const std::string context = "load " + path;
    auto impl = LoadImpl(path, options);
    if (!impl.ok()) return std::move(impl).error().WithContext(context);
    return std::shared_ptr<const Model>(std::make_shared<Model>(std::move(impl).value()));
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("load model");
  }
}

const ModelInfo& Model::info() const { return impl_->info; }
const ModelText& Model::text() const { return impl_->text; }
GenerationOptions Model::default_generation() const { return impl_->recommended.options; }
bool Model::has_sampling_defaults() const { return impl_->recommended.says_how_to_choose; }
const std::vector<UnreadSettings>& Model::unread_settings() const { return impl_->unread; }
uint64_t Model::resident_weight_bytes() const { return impl_->language_model->resident_bytes(); }

}  // namespace tidemill
