// GGUF models in several files, as llama.cpp's gguf-split writes them: NAME-00001-of-00003.gguf, ... Each part is a GGUF file of its
// own with the keys
//   split.no             its number, from 0
//   split.count          how many parts there are
//   split.tensors.count  how many tensors they have together
// and the first one has the model's metadata.
#ifndef TIDEMILL_FORMATS_GGUF_SPLIT_H_
#define TIDEMILL_FORMATS_GGUF_SPLIT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "tidemill/result.h"

namespace tidemill {

inline constexpr uint32_t kGgufMaxParts = 10'000;

// The place of one part, as its name or its keys say it.
struct PartNumber {
  uint32_t number = 1;  // 1 .. count
  uint32_t count = 1;   // 1 .. kGgufMaxParts
};

// Of "x-00002-of-00003.gguf" with the extension ".gguf"; nothing for another name.
std::optional<PartNumber> ParsePartName(std::string_view file_name, std::string_view extension);

// What the keys of `file` say; nothing for a model in one file. kCorruptFile when they contradict themselves.
Result<std::optional<PartNumber>> ReadGgufPart(const GgufFile& file);

// The names of all parts, in order, from that of one of them. kCorruptFile unless `file_name` says what the file's keys say.
Result<std::vector<std::string>> GgufPartNames(std::string_view file_name, const PartNumber& part);

// One file from all parts, in order: the metadata of the first, the tensors of all. kCorruptFile "GGUF part 2 of 3: ..." for a part
// whose keys do not fit its place, a tensor in two parts, or another number of tensors than the keys say.
Result<GgufFile> JoinGgufParts(std::vector<GgufFile> parts);

}  // namespace tidemill

#endif  // TIDEMILL_FORMATS_GGUF_SPLIT_H_
