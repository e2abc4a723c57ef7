#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <new>

#include "base/byte_reader.h"
#include "base/checked_math.h"
#include "base/printable_name.h"
#include "formats/file_signature.h"
#include "formats/gguf_tensor_type.h"
#include "formats/name_order.h"

namespace tidemill {
namespace {

constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;             // length, one byte of key, type, the smallest value
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;  // length, one byte of name, rank, one dim, type, offset
constexpr uint32_t kMaxDims = 4;
constexpr std::string_view kReadable = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K";

std::string Count(uint64_t n) { return std::to_string(n); }

// "byte 24: tensor count: expected ..., found ...": the caller puts the section in front.
Error At(ErrorCode code, size_t offset, std::string_view field, const std::string& expected, const std::string& found) {
  return Error(code,
               "byte " + Count(offset) + ": " + std::string(field) + ": expected " + expected + ", found " + found);
}

// Bytes of one element of a type that the file may name; 0 for string and array.
constexpr uint64_t ScalarBytes(GgufValueType type) {
  constexpr uint64_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kBytes[static_cast<size_t>(type)];
}

}  // namespace

class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> file) : bytes_(file), reader_(file) { file_.file_ = file; }

  Result<GgufFile> Parse() {
    if (auto header = ParseHeader(); !header.ok()) return std::move(header).WithContext("GGUF header").error();
    TIDEMILL_TRY_VOID(ParseKeys());
    TIDEMILL_TRY_VOID(ParseAlignment());
    TIDEMILL_TRY_VOID(ParseTensors());
    TIDEMILL_TRY_VOID(CheckOverlap());
    return std::move(file_);
  }

 private:
  // The offset of a view into the file.
  size_t OffsetOf(const void* at) const {
    return static_cast<size_t>(static_cast<const std::byte*>(at) - bytes_.data());
  }

  Result<void> ParseHeader() {
    TIDEMILL_TRY(magic, reader_.Take(4, "magic"));
    const std::string_view text(reinterpret_cast<const char*>(magic.data()), magic.size());
    if (text != "GGUF") {
      const FileSignature signature = RecognizeFile(bytes_);
      const std::string other = DescribeSignature(signature, "GGUF");
      if (other.empty()) return At(ErrorCode::kCorruptFile, 0, "magic", "\"GGUF\"", QuoteName(text));
      return At(CodeOfSignature(signature), 0, "magic", "\"GGUF\"", QuoteName(text) + ", " + other);
    }
    TIDEMILL_TRY(version, reader_.Read<uint32_t>("version"));
    if (version == 0x02000000 || version == 0x03000000) {
      return At(ErrorCode::kUnsupported, 4, "version", "2 or 3",
                Count(version >> 24) + " in big-endian byte order; convert the model to a little-endian file");
    }
    if (version == 1) {
      return At(ErrorCode::kUnsupported, 4, "version", "2 or 3", "1, which has 32-bit counts; convert the model again");
    }
    if (version != 2 && version != 3) return At(ErrorCode::kUnsupported, 4, "version", "2 or 3", Count(version));
    file_.version_ = version;
    TIDEMILL_TRY(num_tensors, reader_.Read<uint64_t>("tensor count"));
    TIDEMILL_TRY(num_keys, reader_.Read<uint64_t>("key count"));
    TIDEMILL_TRY_VOID(CheckCount(8, "tensor count", num_tensors, kMinTensorBytes, kGgufMaxTensors));
    TIDEMILL_TRY_VOID(CheckCount(16, "key count", num_keys, kMinKeyBytes, kGgufMaxKeys));
    file_.tensors_.reserve(static_cast<size_t>(num_tensors));
    file_.values_.reserve(static_cast<size_t>(num_keys));
    num_tensors_ = num_tensors;
    num_keys_ = num_keys;
    return {};
  }

  // A count is believed only as far as the bytes behind it could hold that many entries.
  Result<void> CheckCount(size_t offset, std::string_view field, uint64_t count, uint64_t min_entry_bytes,
                          uint64_t limit) {
    const uint64_t fits = reader_.remaining() / min_entry_bytes;
    if (count > fits) {
      return At(ErrorCode::kCorruptFile, offset, field,
                "at most " + Count(fits) + " in the " + Count(reader_.remaining()) + " bytes left", Count(count));
    }
    if (count > limit) return At(ErrorCode::kUnsupported, offset, field, "at most " + Count(limit), Count(count));
    return {};
  }

  Result<void> ParseKeys() {
    for (uint64_t i = 0; i < num_keys_; ++i) {
      auto key = ReadName("key", kGgufMaxKeyBytes);
      if (!key.ok()) return std::move(key).error().WithContext("GGUF metadata entry " + Count(i));
      auto value = ReadValue();
      if (!value.ok()) return std::move(value).error().WithContext("GGUF metadata key " + QuoteName(*key));
      file_.values_.emplace_back(*key, *value);
    }
    return IndexNames(
        file_.values_.size(), [&](uint32_t i) { return file_.values_[i].first; }, "metadata key", file_.values_by_key_);
  }

  // Two entries of one name are an error that gives both places.
  template <typename NameOf>
  Result<void> IndexNames(size_t count, NameOf name, const std::string& kind, std::vector<uint32_t>& order) {
    NameOrder names = OrderByName(count, name);
    order = std::move(names.order);
    if (!names.twins) return {};
    const std::string_view first = name(names.twins->first);
    const std::string_view second = name(names.twins->second);
    return At(ErrorCode::kCorruptFile, OffsetOf(second.data()), "name", "a " + kind + " that is not there yet",
              "the name that also stands at byte " + Count(OffsetOf(first.data())))
        .WithContext("GGUF " + kind + " " + QuoteName(first));
  }

  Result<std::string_view> ReadString(std::string_view field, uint64_t max_bytes) {
    const size_t offset = reader_.position();
    TIDEMILL_TRY(length, reader_.Read<uint64_t>(field));
    if (length > reader_.remaining()) {
      return At(ErrorCode::kCorruptFile, offset, std::string(field) + " length",
                "at most the " + Count(reader_.remaining()) + " bytes left", Count(length));
    }
    if (length > max_bytes) {
      return At(ErrorCode::kUnsupported, offset, std::string(field) + " length", "at most " + Count(max_bytes),
                Count(length));
    }
    TIDEMILL_TRY(bytes, reader_.Take(length, field));
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }

  Result<std::string_view> ReadName(std::string_view field, uint64_t max_bytes) {
    const size_t offset = reader_.position();
    TIDEMILL_TRY(name, ReadString(field, max_bytes));
    if (name.empty()) return At(ErrorCode::kCorruptFile, offset, field, "at least one character", "none");
    if (const size_t bad = FindUnprintableByte(name); bad != name.size()) {
      return At(ErrorCode::kCorruptFile, OffsetOf(name.data() + bad), field, "UTF-8 without control characters",
                QuoteName(name));
    }
    return name;
  }

  Result<GgufValueType> ReadValueType(std::string_view field) {
    const size_t offset = reader_.position();
    TIDEMILL_TRY(number, reader_.Read<uint32_t>(field));
    if (number > static_cast<uint32_t>(GgufValueType::kFloat64)) {
      return At(ErrorCode::kCorruptFile, offset, field, "0 to 12", Count(number));
    }
    return static_cast<GgufValueType>(number);
  }

  Result<GgufValue> ReadValue() {
    TIDEMILL_TRY(type, ReadValueType("value type"));
    GgufValue value{.type = type, .element_type = type, .count = 1, .bytes = {}};
    if (type == GgufValueType::kArray) {
      TIDEMILL_TRY_VOID(ReadArray(value));
    } else if (type == GgufValueType::kString) {
      TIDEMILL_TRY_VOID(ReadStrings(value));
    } else {
      TIDEMILL_TRY_VOID(ReadScalars(value));
    }
    return value;
  }

  Result<void> ReadArray(GgufValue& value) {
    const size_t type_offset = reader_.position();
    TIDEMILL_TRY(element_type, ReadValueType("element type"));
    value.element_type = element_type;
    if (value.element_type == GgufValueType::kArray) {
      return At(ErrorCode::kUnsupported, type_offset, "element type", "a scalar or a string",
                "array (arrays of arrays)");
    }
    const size_t count_offset = reader_.position();
    TIDEMILL_TRY(count, reader_.Read<uint64_t>("element count"));
    value.count = count;
    const bool strings = value.element_type == GgufValueType::kString;
    TIDEMILL_TRY_VOID(CheckCount(count_offset, "element count", value.count,
                                 strings ? 8 : ScalarBytes(value.element_type), kGgufMaxArrayElements));
    return strings ? ReadStrings(value) : ReadScalars(value);
  }

  Result<void> ReadStrings(GgufValue& value) {
    const size_t begin = reader_.position();
    for (uint64_t i = 0; i < value.count; ++i) {
      if (auto text = ReadString("string", kGgufMaxStringBytes); !text.ok()) {
        if (value.type != GgufValueType::kArray) return std::move(text).error();
        return std::move(text).error().WithContext("element " + Count(i));
      }
    }
    value.bytes = bytes_.subspan(begin, reader_.position() - begin);
    return {};
  }

  Result<void> ReadScalars(GgufValue& value) {
    // At most 16 Mi elements of 8 bytes: the product fits.
    TIDEMILL_TRY(bytes, reader_.Take(value.count * ScalarBytes(value.element_type), "value"));
    value.bytes = bytes;
    if (value.element_type == GgufValueType::kBool) {
      for (const std::byte& b : value.bytes) {
        if (std::to_integer<unsigned>(b) > 1) {
          return At(ErrorCode::kCorruptFile, OffsetOf(&b), "bool", "0 or 1", Count(std::to_integer<unsigned>(b)));
        }
      }
    }
    return {};
  }

  Result<void> ParseAlignment() {
    constexpr std::string_view kKey = "general.alignment";
    const GgufValue* value = file_.FindValue(kKey);
    if (value == nullptr) return {};
    const size_t offset = OffsetOf(value->bytes.data());
    const auto fail = [&](const std::string& found) {
      return At(ErrorCode::kCorruptFile, offset, "value",
                "a u32 power of two from " + Count(kGgufMinAlignment) + " to " + Count(kGgufMaxAlignment), found)
          .WithContext("GGUF metadata key " + QuoteName(kKey));
    };
    if (value->type != GgufValueType::kUint32) return fail(std::string(GgufValueTypeName(value->type)));
    TIDEMILL_TRY(alignment, ByteReader(value->bytes).Read<uint32_t>("value"));
    if (!std::has_single_bit(alignment) || alignment < kGgufMinAlignment || alignment > kGgufMaxAlignment) {
      return fail(Count(alignment));
    }
    alignment_ = alignment;
    return {};
  }

  Result<void> ParseTensors() {
    // Tensor ranges need the end of the last entry, so offsets wait in `offsets_`.
    offsets_.reserve(static_cast<size_t>(num_tensors_));
    for (uint64_t i = 0; i < num_tensors_; ++i) {
      auto name = ReadName("name", kGgufMaxTensorNameBytes);
      if (!name.ok()) return std::move(name).error().WithContext("GGUF tensor entry " + Count(i));
      FileTensor tensor;
      tensor.name = *name;
      if (auto entry = ParseTensorEntry(tensor); !entry.ok()) {
        return std::move(entry).error().WithContext("GGUF tensor " + QuoteName(*name));
      }
      file_.tensors_.push_back(tensor);
    }
    TIDEMILL_TRY_VOID(IndexNames(
        file_.tensors_.size(), [&](uint32_t i) { return file_.tensors_[i].name; }, "tensor", file_.tensors_by_name_));
    if (file_.tensors_.empty()) return {};
    uint64_t data_begin = 0;
    if (!CheckedAlignUp<uint64_t>(reader_.position(), alignment_, &data_begin))
      data_begin = std::numeric_limits<uint64_t>::max();
    for (size_t i = 0; i < file_.tensors_.size(); ++i) {
      if (auto placed = PlaceTensor(file_.tensors_[i], offsets_[i], data_begin); !placed.ok()) {
        return std::move(placed).error().WithContext("GGUF tensor " + QuoteName(file_.tensors_[i].name));
      }
    }
    return {};
  }

  // Everything of an entry but its name and its place.
  Result<void> ParseTensorEntry(FileTensor& tensor) {
    const size_t rank_offset = reader_.position();
    TIDEMILL_TRY(num_dims, reader_.Read<uint32_t>("dimension count"));
    if (num_dims < 1 || num_dims > kMaxDims) {
      return At(ErrorCode::kCorruptFile, rank_offset, "dimension count", "1 to 4", Count(num_dims));
    }
    const size_t dims_offset = reader_.position();
    uint64_t dims[kMaxDims] = {1, 1, 1, 1};
    uint64_t elements = 1;
    for (uint32_t i = 0; i < num_dims; ++i) {
      const size_t offset = reader_.position();
      TIDEMILL_TRY(dim, reader_.Read<uint64_t>("dimension"));
      dims[i] = dim;
      if (dims[i] == 0) return At(ErrorCode::kCorruptFile, offset, "dimension " + Count(i), "at least 1", "0");
      if (!CheckedMul(elements, dims[i], &elements) || elements > (uint64_t{1} << 62)) {
        return At(ErrorCode::kCorruptFile, offset, "dimension " + Count(i), "an element count of at most 2^62",
                  Count(dims[i]));
      }
    }
    if (dims[3] != 1) {
      return At(ErrorCode::kUnsupported, rank_offset, "dimension count", "1 to 3 (or more that are 1)",
                Count(num_dims));
    }
    // Converters differ in whether they write outer dimensions of 1, so these do not count.
    size_t rank = num_dims;
    while (rank > 1 && dims[rank - 1] == 1) --rank;
    tensor.rank = static_cast<uint8_t>(rank);
    std::reverse_copy(dims, dims + rank, tensor.shape.begin());
    tensor.cols = dims[0];
    tensor.rows = elements / dims[0];
    const size_t type_offset = reader_.position();
    TIDEMILL_TRY(type, reader_.Read<uint32_t>("tensor type"));
    const std::optional<DType> dtype = GgufTensorDType(type);
    if (!dtype) {
      const std::string_view name = GgufTensorTypeName(type);
      const std::string found = name.empty() ? "unknown tensor type " + Count(type)
                                             : "tensor type " + std::string(name) + " (" + Count(type) + ")";
      return At(ErrorCode::kUnsupported, type_offset, "type", std::string(kReadable),
                found + "; convert the model to one of the types named");
    }
    tensor.dtype = *dtype;
    const DTypeInfo info = InfoOf(tensor.dtype);
    tensor.type_name = info.name;
    if (tensor.cols % info.block_elements != 0) {
      return At(ErrorCode::kCorruptFile, dims_offset, "dimension 0",
                "a multiple of " + Count(info.block_elements) + " for " + std::string(info.name), Count(tensor.cols));
    }
    uint64_t size = 0;
    if (!CheckedMul<uint64_t>(elements / info.block_elements, info.block_bytes, &size) || size > bytes_.size()) {
      return At(ErrorCode::kCorruptFile, dims_offset, "dimensions",
                std::string(info.name) + " data within the " + Count(bytes_.size()) + " bytes of the file",
                "shape " + (rank > 2 ? ShapeText(std::span(tensor.shape).first(rank))
                                     : "[" + Count(tensor.rows) + ", " + Count(tensor.cols) + "]"));
    }
    const size_t offset_offset = reader_.position();
    TIDEMILL_TRY(offset, reader_.Read<uint64_t>("offset"));
    if (offset % alignment_ != 0) {
      return At(ErrorCode::kCorruptFile, offset_offset, "offset", "a multiple of the alignment " + Count(alignment_),
                Count(offset));
    }
    offsets_.push_back({.offset = offset, .at = offset_offset, .size = static_cast<size_t>(size)});
    return {};
  }

  struct Placement {
    uint64_t offset = 0;  // from the start of the data section
    size_t at = 0;        // where the file says so
    size_t size = 0;      // bytes, at most the file's
  };

  Result<void> PlaceTensor(FileTensor& tensor, const Placement& placement, uint64_t data_begin) {
    uint64_t begin = 0;
    if (!CheckedAdd(data_begin, placement.offset, &begin) || begin > bytes_.size() ||
        placement.size > bytes_.size() - begin) {
      return At(
          ErrorCode::kCorruptFile, placement.at, "offset",
          Count(placement.size) + " bytes of data inside the file of " + Count(bytes_.size()) + " bytes",
          "data at " + Count(data_begin) + " + " + Count(placement.offset) + "; the file is truncated or damaged");
    }
    tensor.bytes = bytes_.subspan(static_cast<size_t>(begin), placement.size);
    return {};
  }

  Result<void> CheckOverlap() {
    struct Start {
      size_t begin;
      uint32_t index;
      auto operator<=>(const Start&) const = default;
    };
    std::vector<Start> starts(file_.tensors_.size());
    for (size_t i = 0; i < starts.size(); ++i) {
      starts[i] = {OffsetOf(file_.tensors_[i].bytes.data()), static_cast<uint32_t>(i)};
    }
    if (!std::is_sorted(starts.begin(), starts.end())) std::sort(starts.begin(), starts.end());
    for (size_t i = 1; i < starts.size(); ++i) {
      const FileTensor& before = file_.tensors_[starts[i - 1].index];
      const size_t end = starts[i - 1].begin + before.bytes.size();
      if (starts[i].begin < end) {
        const FileTensor& tensor = file_.tensors_[starts[i].index];
        return At(ErrorCode::kCorruptFile, offsets_[starts[i].index].at, "offset",
                  "data at or after byte " + Count(end) + ", where tensor " + QuoteName(before.name) + " ends",
                  "data at byte " + Count(starts[i].begin))
            .WithContext("GGUF tensor " + QuoteName(tensor.name));
      }
    }
    return {};
  }

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  GgufFile file_;
  uint64_t num_tensors_ = 0;
  uint64_t num_keys_ = 0;
  uint64_t alignment_ = kGgufDefaultAlignment;
  std::vector<Placement> offsets_;
};

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> file) {
  try {
    return GgufParser(file).Parse();
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "GGUF header: no memory for its entries");
  }
}

}  // namespace tidemill
