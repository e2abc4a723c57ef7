#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "base/out_of_memory.h"
#include "base/thread_pool.h"
#include "models/registry.h"
#include "runtime/model_impl.h"
#include "runtime/unread_settings.h"
#include "tidemill/model.h"

namespace tidemill {
namespace {

Result<std::unique_ptr<DraftHead::Impl>> LoadImpl(const std::string& path, std::shared_ptr<const Model> target,
                                                  const LoadOptions& options) {
  TIDEMILL_TRY(files, ModelFiles::Open(path));
  if (!IsDraftHead(files)) {
    return Error(
        ErrorCode::kInvalidArgument,
        "expected the folder of a draft head of EAGLE or EAGLE-3, found another model's; give that as a draft model");
  }
  TIDEMILL_TRY(threads, ThreadPool::Create(options.threads == 0 ? DefaultThreadCount() : options.threads));
  TIDEMILL_TRY(head, LoadDraftHead(files, *target->impl().language_model, LoadSettingsOf(options, *threads)));
  std::vector<UnreadSettings> unread = ListUnread(files, ReadPart::kModel);
  return std::make_unique<DraftHead::Impl>(
      DraftHead::Impl{std::move(files), std::move(target), std::move(head), std::move(unread)});
}

Result<std::unique_ptr<DraftHead::Impl>> LoadOwnImpl(std::shared_ptr<const Model> target, const LoadOptions& options) {
  const Model::Impl& model = target->impl();
  TIDEMILL_TRY(threads, ThreadPool::Create(options.threads == 0 ? DefaultThreadCount() : options.threads));
  TIDEMILL_TRY(head, LoadOwnDraftHead(model.files, *model.language_model, LoadSettingsOf(options, *threads)));
  return std::make_unique<DraftHead::Impl>(DraftHead::Impl{std::nullopt, std::move(target), std::move(head)});
}

// Of what `load` loads from `path`.
template <typename Load>
Result<std::shared_ptr<const DraftHead>> LoadFrom(const std::string& path, const Load& load) {
  try {
    auto impl = load();
    if (!impl.ok()) return std::move(impl).error().WithContext("load " + path);
    return std::shared_ptr<const DraftHead>(std::make_shared<DraftHead>(std::move(impl).value()));
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("load draft head");
  }
}

}  // namespace

DraftHead::DraftHead(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DraftHead::~DraftHead() = default;

Result<bool> DraftHead::IsAt(const std::string& path) {
  try {
    auto files = ModelFiles::Open(path);
    if (!files.ok()) return std::move(files).error().WithContext("load " + path);
    return IsDraftHead(*files);
  } catch (const std::exception&) {  // std::bad_alloc
    return OutOfMemoryError("load draft head");
  }
}

Result<std::shared_ptr<const DraftHead>> DraftHead::Load(const std::string& path, std::shared_ptr<const Model> target,
                                                         LoadOptions options) {
  return LoadFrom(path, [&] { return LoadImpl(path, std::move(target), options); });
}

Result<std::shared_ptr<const DraftHead>> DraftHead::LoadOwn(std::shared_ptr<const Model> target, LoadOptions options) {
  const Model& model = *target;
  return LoadFrom(model.info().path, [&] { return LoadOwnImpl(std::move(target), options); });
}

const Model& DraftHead::target() const { return *impl_->target; }
const std::vector<UnreadSettings>& DraftHead::unread_settings() const { return impl_->unread; }
uint64_t DraftHead::resident_weight_bytes() const { return impl_->head->resident_bytes(); }

}  // namespace tidemill
