#include "tests/support/bits_hashes.h"
#include "tests/fixtures_path.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tidemill::testing {
namespace {

const char kPath[] = TIDEMILL_FIXTURES "/bits/hashes.json";

nlohmann::json ReadHashes() {
  std::ifstream in(kPath);
  auto hashes = nlohmann::json::parse(in, nullptr, false);
  return hashes.is_discarded() ? nlohmann::json::object() : hashes;
}

}  // namespace

void ExpectStoredHash(const std::string& group, const std::string& entry, const std::string& field, uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  auto hashes = ReadHashes();
  if (std::getenv("TIDEMILL_WRITE_BIT_HASHES") != nullptr) {
    hashes[group][entry][field] = text;
    std::ofstream out(kPath);
    out << hashes.dump(1) << "\n";
    ADD_FAILURE() << kPath << ": wrote " << field << " of " << group << ", " << entry
                  << ": nothing was checked; run again without "
                  << "TIDEMILL_WRITE_BIT_HASHES";
    return;
  }
  const nlohmann::json* at = &hashes;
  for (const std::string& key : {group, entry, field}) {
    if (!at->is_object() || !at->contains(key)) {
      ADD_FAILURE() << kPath << ": no " << field << " of " << group << ", " << entry << "; found now: " << text;
      return;
    }
    at = &at->at(key);
  }
  EXPECT_EQ(*at, std::string(text)) << field << " of " << group << ", " << entry << ": the bits are not those of "
                                    << kPath << "; tests/fixtures/bits/README.md says when they may change";
}

}  // namespace tidemill::testing
