// Bytes of the states that share one bound: each block of rows counts once, whoever shares it.
#ifndef TIDEMILL_STATE_STATE_LEDGER_H_
#define TIDEMILL_STATE_STATE_LEDGER_H_

#include <cstdint>

namespace tidemill {

class StateLedger {
 public:
  uint64_t held() const { return held_; }

 private:
  friend class LedgerEntry;
  uint64_t held_ = 0;
};

// What one owner of memory holds. Outlived by its ledger, which may be null: then nobody counts.
class LedgerEntry {
 public:
  explicit LedgerEntry(StateLedger* ledger) : ledger_(ledger) {}
  LedgerEntry(const LedgerEntry&) = delete;
  LedgerEntry& operator=(const LedgerEntry&) = delete;
  ~LedgerEntry() { Set(0); }

  void Set(uint64_t bytes) {
    if (ledger_ != nullptr) ledger_->held_ += bytes - bytes_;  // wraps where it shrinks
    bytes_ = bytes;
  }
  uint64_t bytes() const { return bytes_; }

 private:
  StateLedger* ledger_;
  uint64_t bytes_ = 0;
};

}  // namespace tidemill

#endif  // TIDEMILL_STATE_STATE_LEDGER_H_
