// What `tidemill eval` found so far, one JSON object a line, so that a run that was stopped goes on.
//
//   line 1          {"eval": 1, ...}                        what the records depend on; the model, the text and the options
//   line 2 and on   {"task", "context_tokens", "context", "question", "policy", ...}      an EvalRecord
#ifndef TIDEMILL_CLI_EVAL_FILE_H_
#define TIDEMILL_CLI_EVAL_FILE_H_

#include <set>
#include <string>
#include <vector>

#include "cli/json.h"
#include "tidemill/eval.h"
#include "tidemill/result.h"

namespace tidemill::cli {

Json EvalRecordJson(const EvalRecord& record);
// Adds "alpha_estimate", "audits", "kept_mass", "error", "overlap", as far as they are there.
void AddAttention(const EvalAttention& attention, Json* json);

class EvalFile {
 public:
  // In memory only.
  EvalFile() = default;
  // Makes the file, or reads the one that is there. A last line without its end was torn, and is overwritten. kFailedPrecondition: another
  // first line than `header`; kCorruptFile: a line that is no record, by its number; kNotFound, kIoError, kNoSpace.
  static Result<EvalFile> Open(const std::string& path, const Json& header);
  EvalFile(EvalFile&& other) noexcept;
  EvalFile& operator=(EvalFile&&) = delete;
  ~EvalFile();

  const std::vector<EvalRecord>& records() const { return records_; }
  bool Has(const EvalKey& key) const { return keys_.contains(key); }
  Result<void> Append(const EvalRecord& record);  // kNoSpace, kIoError

 private:
  void Keep(const EvalRecord& record);
  Result<void> ReadRecords(const std::string& bytes, const std::string& first_line);
  // Names the first member that differs, where both are headers.
  Error OtherHeader(const std::string& found, const std::string& expected) const;

  std::string path_;
  int fd_ = -1;  // -1: none
  std::vector<EvalRecord> records_;
  std::set<EvalKey> keys_;
};

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_EVAL_FILE_H_
