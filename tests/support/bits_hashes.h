// Hashes of bits that are kept in the repository: tests/fixtures/bits/hashes.json.
#ifndef TIDEMILL_TESTS_SUPPORT_BITS_HASHES_H_
#define TIDEMILL_TESTS_SUPPORT_BITS_HASHES_H_

#include <cstdint>
#include <string>

namespace tidemill::testing {

// Fails the running test unless hashes.json holds `value` for (group, entry, field): a missing entry fails, too. With the environment
// variable TIDEMILL_WRITE_BIT_HASHES the value is written instead, and the test fails to say that it checked nothing.
void ExpectStoredHash(const std::string& group, const std::string& entry, const std::string& field, uint64_t value);

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_SUPPORT_BITS_HASHES_H_
