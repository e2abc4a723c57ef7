#include "cli/eval_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "cli/errors.h"
#include "cli/files.h"
#include "cli/output.h"

namespace tidemill::cli {
namespace {

constexpr char kDoing[] = "write the records";

Result<EvalRecord> RecordOf(const JsonDocument& line) {
  constexpr uint64_t kMaxValue = uint64_t{1} << 32;
  EvalRecord record;
  TIDEMILL_TRY(task_name, line.GetString("task"));
  TIDEMILL_TRY(task, ParseEvalTask(task_name));
  record.key.task = task;
  TIDEMILL_TRY(policy, line.GetString("policy"));
  record.key.policy = policy;
  for (const auto& [key, target] : {std::pair<const char*, size_t*>{"context_tokens", &record.key.context_tokens},
                                    {"context", &record.key.context},
                                    {"question", &record.key.question},
                                    {"r", &record.r},
                                    {"k", &record.k},
                                    {"prompt_tokens", &record.prompt_tokens},
                                    {"scored_tokens", &record.scored_tokens},
                                    {"matched_characters", &record.matched_characters}}) {
    TIDEMILL_TRY(value, line.GetUint(key, 0, kMaxValue));
    *target = value;
  }
  for (const auto& [key, target] : {std::pair<const char*, double*>{"bytes", &record.bytes},
                                    {"nll", &record.nll},
                                    {"kl", &record.kl},
                                    {"agreement", &record.agreement}}) {
    TIDEMILL_TRY(value, line.GetFloat(key));
    *target = value;
  }
  TIDEMILL_TRY(exact, line.GetBool("exact"));
  record.exact = exact;
  for (const auto& [key, target] : {std::pair<const char*, std::optional<double>*>{"rouge_l", &record.rouge_l},
                                    {"bits_per_character", &record.bits_per_character},
                                    {"alpha_estimate", &record.attention.alpha_estimate}}) {
    if (!line.Has(key)) continue;
    TIDEMILL_TRY(value, line.GetFloat(key));
    *target = value;
  }
  if (!line.Has("audits")) return record;
  TIDEMILL_TRY(audits, line.GetUint("audits", 1, kMaxValue));
  record.attention.audits = audits;
  for (const auto& [key, target] : {std::pair<const char*, double*>{"kept_mass", &record.attention.kept_mass},
                                    {"error", &record.attention.error},
                                    {"overlap", &record.attention.overlap}}) {
    TIDEMILL_TRY(value, line.GetFloat(key));
    *target = value;
  }
  return record;
}

}  // namespace

Json EvalRecordJson(const EvalRecord& record) {
  Json json = {{"task", EvalTaskName(record.key.task)},
               {"context_tokens", record.key.context_tokens},
               {"context", record.key.context},
               {"question", record.key.question},
               {"policy", record.key.policy},
               {"r", record.r},
               {"k", record.k},
               {"bytes", record.bytes},
               {"prompt_tokens", record.prompt_tokens},
               {"scored_tokens", record.scored_tokens},
               {"nll", record.nll},
               {"kl", record.kl},
               {"agreement", record.agreement},
               {"exact", record.exact},
               {"matched_characters", record.matched_characters}};
  if (record.rouge_l) json["rouge_l"] = *record.rouge_l;
  if (record.bits_per_character) json["bits_per_character"] = *record.bits_per_character;
  AddAttention(record.attention, &json);
  return json;
}

void AddAttention(const EvalAttention& attention, Json* json) {
  if (attention.alpha_estimate) (*json)["alpha_estimate"] = *attention.alpha_estimate;
  if (attention.audits == 0) return;
  (*json)["audits"] = attention.audits;
  (*json)["kept_mass"] = attention.kept_mass;
  (*json)["error"] = attention.error;
  (*json)["overlap"] = attention.overlap;
}

Result<EvalFile> EvalFile::Open(const std::string& path, const Json& header) {
  EvalFile file;
  file.path_ = path;
  file.fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file.fd_ < 0) return SystemError(kDoing, path, errno);
  TIDEMILL_TRY(bytes, ReadFile(kDoing, path));
  bytes.resize(bytes.rfind('\n') + 1);  // npos + 1 is 0
  const std::string first_line = JsonLine(header);
  TIDEMILL_TRY_VOID(file.ReadRecords(bytes, first_line));
  const auto end = static_cast<off_t>(bytes.size());
  if (ftruncate(file.fd_, end) != 0 || lseek(file.fd_, end, SEEK_SET) != end) return SystemError(kDoing, path, errno);
  if (bytes.empty()) {
    if (const int error_number = WriteFully(file.fd_, first_line); error_number != 0)
      return SystemError(kDoing, path, error_number);
  }
  return file;
}

Error EvalFile::OtherHeader(const std::string& found, const std::string& expected) const {
  const std::string what = std::string(kDoing) + ": " + path_ + ": ", advice = "; choose another --out";
  const auto its = JsonDocument::Parse(path_, found), wanted = JsonDocument::Parse(path_, expected);
  if (its.ok() && wanted.ok() && its->Has("eval")) {
    for (const auto& [key, value] : wanted->Members()) {
      const auto other = its->Member(key);
      const std::string is = other ? other->Describe() : "none";
      if (is == value.Describe()) continue;
      return Error(ErrorCode::kFailedPrecondition,
                   what + "\"" + std::string(key) + "\": expected " + value.Describe() + ", found " + is + advice);
    }
  }
  return Error(ErrorCode::kFailedPrecondition, what + "expected records of " + expected.substr(0, expected.size() - 1) +
                                                   ", found " + Quoted(found) + advice);
}

Result<void> EvalFile::ReadRecords(const std::string& bytes, const std::string& first_line) {
  size_t number = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = bytes.find('\n', begin) + 1;
    const std::string line = bytes.substr(begin, end - begin);
    begin = end;
    if (++number == 1) {
      if (line == first_line) continue;
      return OtherHeader(line, first_line);
    }
    const std::string name = path_ + ": line " + std::to_string(number);
    TIDEMILL_TRY(json, JsonDocument::Parse(name, line));
    TIDEMILL_TRY(record, RecordOf(json));
    Keep(record);
  }
  return {};
}

EvalFile::EvalFile(EvalFile&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      records_(std::move(other.records_)),
      keys_(std::move(other.keys_)) {}

EvalFile::~EvalFile() {
  if (fd_ >= 0) close(fd_);
}

Result<void> EvalFile::Append(const EvalRecord& record) {
  if (fd_ >= 0) {
    if (const int error_number = WriteFully(fd_, JsonLine(EvalRecordJson(record))); error_number != 0)
      return SystemError(kDoing, path_, error_number);
  }
  Keep(record);
  return {};
}

void EvalFile::Keep(const EvalRecord& record) {
  if (keys_.insert(record.key).second) records_.push_back(record);
}

}  // namespace tidemill::cli
