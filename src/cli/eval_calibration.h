// tidemill eval --calibrate: floors for --attention-floor FILE.
//
//   {"model", "model_hash", "attention": {"kind", "r", "k", "local", "rule", "mean"}, "max_error", "context_tokens": [], "seed",
//    "rows": [], "correlation": [], "floors": [], "dense_share": [], "error": []}           lists have one for each layer
#ifndef TIDEMILL_CLI_EVAL_CALIBRATION_H_
#define TIDEMILL_CLI_EVAL_CALIBRATION_H_

#include <atomic>
#include <string>

#include "cli/command.h"
#include "cli/session.h"
#include "tidemill/eval.h"
#include "tidemill/result.h"

namespace tidemill::cli {

struct CalibrationRun {
  std::string path;
  double max_error = 0;
  bool json = false;  // prints what is in the file, else a table of layers
};

// As CalibrateFloors; also errors of OutputFile, before anything is computed. The file is there when all is.
Result<void> Calibrate(const CalibrationRun& run, const Session& session, const EvalOptions& options,
                       const std::atomic<bool>& interrupt, CommandContext& context);

}  // namespace tidemill::cli

#endif  // TIDEMILL_CLI_EVAL_CALIBRATION_H_
