#include "formats/safetensors.h"

#include <algorithm>
#include <array>
#include <new>

#include "base/byte_reader.h"
#include "base/checked_math.h"
#include "base/json_reader.h"
#include "base/printable_name.h"
#include "formats/file_signature.h"
#include "formats/name_order.h"
#include "formats/safetensors_type.h"

namespace tidemill {
namespace {

constexpr std::string_view kHeader = "safetensors header";
constexpr size_t kMinEntryBytes = std::string_view(R"("a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)").size();

}  // namespace

// Takes the header's JSON event by event. The format fixes what may stand where, so that a place and a position in it are all the
// state there is.
class SafetensorsParser {
 public:
  explicit SafetensorsParser(std::span<const std::byte> file) : bytes_(file) {}

  Result<SafetensorsFile> Parse() {
    auto header = FindHeader();
    if (!header.ok()) return std::move(header).error().WithContext(kHeader);
    // The parser's own limits are never met: nesting is fixed by the format, and values are fewer than bytes.
    const JsonLimits limits{.max_values = kSafetensorsMaxHeaderBytes, .first_byte = sizeof(uint64_t)};
    // An entry is an object: no more room than for those that the bytes can hold, and it need not grow.
    const auto objects = static_cast<size_t>(std::count(header->begin(), header->end(), '{'));
    const size_t most = std::min<size_t>(header->size() / kMinEntryBytes + 1, kSafetensorsMaxTensors);
    file_.tensors_.reserve(std::min(objects, most));
    places_.reserve(std::min(objects, most));
    const auto take = [this](const JsonEvent& event) { return Take(event); };
    if (auto read = ReadJson(*header, limits, take); !read.ok()) {
      return named_ ? std::move(read).error() : std::move(read).error().WithContext(kHeader);
    }
    TIDEMILL_TRY_VOID(IndexNames());
    TIDEMILL_TRY_VOID(CheckCover());
    std::sort(metadata_keys_.begin(), metadata_keys_.end());
    const auto twin = std::adjacent_find(metadata_keys_.begin(), metadata_keys_.end());
    if (twin != metadata_keys_.end()) {
      return ErrorAtByte(ErrorCode::kCorruptFile, metadata_at_, "__metadata__", "each key once",
                         QuoteName(*twin) + " twice")
          .WithContext(kHeader);
    }
    return std::move(file_);
  }

 private:
  // The header's text; data_ is what stands behind it.
  Result<std::string_view> FindHeader() {
    if (const auto signature = RecognizeFile(bytes_);
        signature != FileSignature::kUnknown && signature != FileSignature::kSafetensors) {
      return Error(CodeOfSignature(signature),
                   "byte 0: expected a safetensors file, found " + DescribeSignature(signature, "safetensors"));
    }
    ByteReader reader(bytes_);
    TIDEMILL_TRY(length, reader.Read<uint64_t>("header length"));
    if (length > reader.remaining()) {
      return ErrorAtByte(ErrorCode::kCorruptFile, 0, "header length",
                         "at most the " + std::to_string(reader.remaining()) + " bytes left",
                         std::to_string(length) + "; the file is truncated or no safetensors file");
    }
    if (length > kSafetensorsMaxHeaderBytes) {
      return ErrorAtByte(ErrorCode::kUnsupported, 0, "header length",
                         "at most " + std::to_string(kSafetensorsMaxHeaderBytes), std::to_string(length));
    }
    TIDEMILL_TRY(bytes, reader.Take(length, "header"));
    data_ = bytes_.subspan(reader.position());
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!text.starts_with('{')) {
      return ErrorAtByte(ErrorCode::kCorruptFile, sizeof(uint64_t), "header", "\"{\"",
                         text.empty() ? "nothing" : QuoteName(text.substr(0, 1)));
    }
    return text;
  }

  enum class Place {
    kTop,
    kNames,
    kMetadata,
    kTensorBegin,
    kTensor,
    kDtype,
    kShapeBegin,
    kShape,
    kOffsetsBegin,
    kOffsets
  };

  Result<void> Take(const JsonEvent& event) {
    switch (place_) {
      case Place::kTop: place_ = Place::kNames; return {};  // '{' was checked
      case Place::kNames: return TakeName(event);
      case Place::kMetadata: return TakeMetadata(event);
      default: break;
    }
    auto taken = TakeTensorPart(event);
    if (taken.ok()) return {};
    named_ = true;
    return std::move(taken).error().WithContext("safetensors tensor " + QuoteName(tensor_.name));
  }

  Result<void> TakeName(const JsonEvent& event) {
    if (event.kind == JsonKind::kEndObject) return {};  // of the header: nothing comes behind it
    if (event.text == "__metadata__") {
      if (metadata_at_ != 0) {
        return ErrorAtByte(ErrorCode::kCorruptFile, event.at, "__metadata__", "it once",
                           "it also at byte " + std::to_string(metadata_at_));
      }
      metadata_at_ = event.at;
      place_ = Place::kMetadata;
      return {};
    }
    const size_t length = event.text.size();
    if (length == 0) return ErrorAtByte(ErrorCode::kCorruptFile, event.at, "name", "at least one character", "none");
    if (length > kSafetensorsMaxNameBytes) {
      return ErrorAtByte(ErrorCode::kUnsupported, event.at, "name length",
                         "at most " + std::to_string(kSafetensorsMaxNameBytes), std::to_string(length));
    }
    if (FindUnprintableByte(event.text) != length) {
      return ErrorAtByte(ErrorCode::kCorruptFile, event.at, "name", "UTF-8 without control characters",
                         QuoteName(event.text));
    }
    if (file_.tensors_.size() == kSafetensorsMaxTensors) {
      return ErrorAtByte(ErrorCode::kUnsupported, event.at, "tensors",
                         "at most " + std::to_string(kSafetensorsMaxTensors), "more");
    }
    tensor_ = FileTensor();
    const bool escaped = event.source.size() != length + 2;
    tensor_.name = escaped ? file_.escaped_names_.emplace_back(event.text) : event.source.substr(1, length);
    place_ = Place::kTensorBegin;
    name_at_ = event.at;
    type_ = nullptr;
    has_shape_ = has_offsets_ = false;
    return {};
  }

  Result<void> TakeMetadata(const JsonEvent& event) {
    if (!metadata_open_) {
      if (event.kind != JsonKind::kBeginObject) {
        return ErrorAtByte(ErrorCode::kCorruptFile, event.at, "__metadata__", "an object", DescribeJson(event));
      }
      metadata_open_ = true;
      return {};
    }
    if (event.kind == JsonKind::kEndObject) {
      place_ = Place::kNames;
    } else if (event.kind == JsonKind::kKey) {
      if (metadata_keys_.size() == kSafetensorsMaxMetadata) {
        return ErrorAtByte(ErrorCode::kUnsupported, event.at, "__metadata__",
                           "at most " + std::to_string(kSafetensorsMaxMetadata) + " keys", "more");
      }
      metadata_keys_.emplace_back(event.text);
    } else if (event.kind != JsonKind::kString) {
      return ErrorAtByte(ErrorCode::kCorruptFile, event.at, "__metadata__ " + QuoteName(metadata_keys_.back()),
                         "a string", DescribeJson(event));
    }
    return {};
  }

  Result<void> TakeTensorPart(const JsonEvent& event) {
    switch (place_) {
      case Place::kTensorBegin:
        place_ = Place::kTensor;
        return Expect(event, JsonKind::kBeginObject, "entry", "an object");
      case Place::kTensor: return event.kind == JsonKind::kEndObject ? FinishTensor(event.at) : TakeField(event);
      case Place::kDtype: return TakeDtype(event);
      case Place::kShapeBegin: place_ = Place::kShape; return Expect(event, JsonKind::kBeginArray, "shape", "an array");
      case Place::kShape: return TakeDimension(event);
      case Place::kOffsetsBegin:
        place_ = Place::kOffsets;
        return Expect(event, JsonKind::kBeginArray, "data_offsets", "an array");
      default: return TakeOffset(event);
    }
  }

  static Result<void> Expect(const JsonEvent& event, JsonKind kind, std::string_view field,
                             const std::string& expected) {
    if (event.kind == kind) return {};
    return ErrorAtByte(ErrorCode::kCorruptFile, event.at, field, expected, DescribeJson(event));
  }

  static Result<uint64_t> Uint(const JsonEvent& event, const std::string& field) {
    if (event.kind == JsonKind::kInteger && !event.negative) return event.integer;
    return ErrorAtByte(ErrorCode::kCorruptFile, event.at, field, "an integer of 0 to 2^64 - 1", DescribeJson(event));
  }

  Result<void> TakeField(const JsonEvent& event) {
    const std::string_view field = event.text;
    if (field == "dtype" ? type_ != nullptr : field == "shape" ? has_shape_ : field == "data_offsets" && has_offsets_) {
      return ErrorAtByte(ErrorCode::kCorruptFile, event.at, field, "it once", "it twice");
    }
    if (field == "dtype") {
      place_ = Place::kDtype;
    } else if (field == "shape") {
      place_ = Place::kShapeBegin;
      has_shape_ = true;
      dims_.clear();
    } else if (field == "data_offsets") {
      place_ = Place::kOffsetsBegin;
      has_offsets_ = true;
      num_offsets_ = 0;
    } else {
      return ErrorAtByte(ErrorCode::kUnsupported, event.at, "entry", "\"dtype\", \"shape\" or \"data_offsets\"",
                         QuoteName(field));
    }
    return {};
  }

  Result<void> TakeDtype(const JsonEvent& event) {
    place_ = Place::kTensor;
    TIDEMILL_TRY_VOID(Expect(event, JsonKind::kString, "dtype", "a string"));
    type_ = FindSafetensorsType(event.text);
    if (type_ != nullptr) return {};
    return ErrorAtByte(ErrorCode::kUnsupported, event.at, "dtype", "a type of safetensors, such as F32, F16 or BF16",
                       QuoteName(event.text));
  }

  Result<void> TakeDimension(const JsonEvent& event) {
    if (event.kind == JsonKind::kEndArray) {
      place_ = Place::kTensor;
      return {};
    }
    TIDEMILL_TRY(dim, Uint(event, "shape"));
    if (dims_.size() == kSafetensorsMaxRank) {
      return ErrorAtByte(ErrorCode::kUnsupported, event.at, "shape",
                         "at most " + std::to_string(kSafetensorsMaxRank) + " dimensions", "more");
    }
    dims_.push_back(dim);
    return {};
  }

  Result<void> TakeOffset(const JsonEvent& event) {
    if (event.kind == JsonKind::kEndArray) {
      place_ = Place::kTensor;
      if (num_offsets_ == 2) return {};
      return ErrorAtByte(ErrorCode::kCorruptFile, event.at, "data_offsets", "two integers",
                         std::to_string(num_offsets_));
    }
    if (num_offsets_ == 2)
      return ErrorAtByte(ErrorCode::kCorruptFile, event.at, "data_offsets", "two integers", "a third value");
    TIDEMILL_TRY(offset, Uint(event, "data_offsets"));
    offsets_[num_offsets_++] = offset;
    return {};
  }

  // All fields are there, or one is missing; `at`: the end of the entry.
  Result<void> FinishTensor(size_t at) {
    place_ = Place::kNames;
    if (type_ == nullptr || !has_shape_ || !has_offsets_) {
      const std::string missing = type_ == nullptr ? "dtype" : !has_shape_ ? "shape" : "data_offsets";
      return ErrorAtByte(ErrorCode::kCorruptFile, at, "entry", "\"dtype\", \"shape\" and \"data_offsets\"",
                         "no \"" + missing + "\"");
    }
    uint64_t elements = 1;
    for (size_t i = 0; i < dims_.size(); ++i) {
      if (i + 1 == dims_.size()) tensor_.rows = elements;
      if (!CheckedMul(elements, dims_[i], &elements)) return ShapeError("an element count below 2^64");
    }
    tensor_.cols = dims_.empty() ? 1 : dims_.back();
    tensor_.rank = static_cast<uint8_t>(dims_.size());
    std::copy_n(dims_.begin(), std::min(dims_.size(), kMaxTensorRank), tensor_.shape.begin());
    tensor_.encoding = type_->encoding;
    tensor_.dtype = type_->dtype;
    tensor_.type_name = type_->name;
    uint64_t bits = 0;
    if (!CheckedMul<uint64_t>(elements, type_->bits, &bits)) {
      return ShapeError(std::string(type_->name) + " data of less than 2^64 bits");
    }
    if (bits % 8 != 0) return ShapeError(std::string(type_->name) + " data of whole bytes");
    const auto [begin, end] = offsets_;
    const auto offset_error = [&](const std::string& expected, const std::string& hint) {
      return ErrorAtByte(ErrorCode::kCorruptFile, name_at_, "data_offsets", expected,
                         "[" + std::to_string(offsets_[0]) + ", " + std::to_string(offsets_[1]) + "]" + hint);
    };
    if (begin > end) return offset_error("a begin that is not behind the end", "");
    if (end - begin != bits / 8) {
      return offset_error(std::to_string(bits / 8) + " bytes for " + std::string(type_->name) + " " + ShapeText(dims_),
                          "");
    }
    if (end > data_.size()) {
      return offset_error("a range of the " + std::to_string(data_.size()) + " bytes of data",
                          "; the file is truncated or damaged");
    }
    tensor_.bytes = data_.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    file_.tensors_.push_back(tensor_);
    places_.push_back(static_cast<uint32_t>(name_at_));  // below 8 + 100 MB
    return {};
  }

  Error ShapeError(const std::string& expected) const {
    return ErrorAtByte(ErrorCode::kCorruptFile, name_at_, "shape", expected, ShapeText(dims_));
  }

  Error TensorError(uint32_t index, std::string_view field, const std::string& expected,
                    const std::string& found) const {
    return ErrorAtByte(ErrorCode::kCorruptFile, places_[index], field, expected, found)
        .WithContext("safetensors tensor " + QuoteName(file_.tensors_[index].name));
  }

  Result<void> IndexNames() {
    NameOrder names = OrderByName(file_.tensors_.size(), [&](uint32_t i) { return file_.tensors_[i].name; });
    file_.tensors_by_name_ = std::move(names.order);
    if (!names.twins) return {};
    return TensorError(names.twins->second, "name", "a tensor that is not there yet",
                       "the name that also stands at byte " + std::to_string(places_[names.twins->first]));
  }

  // Tensors follow each other without holes, and nothing is behind the last one.
  Result<void> CheckCover() {
    struct Extent {
      size_t begin, size;
      uint32_t index;
      auto operator<=>(const Extent&) const = default;
    };
    std::vector<Extent> extents(file_.tensors_.size());
    for (size_t i = 0; i < extents.size(); ++i) {
      const std::span<const std::byte> bytes = file_.tensors_[i].bytes;
      extents[i] = {static_cast<size_t>(bytes.data() - data_.data()), bytes.size(), static_cast<uint32_t>(i)};
    }
    if (!std::is_sorted(extents.begin(), extents.end())) std::sort(extents.begin(), extents.end());
    size_t covered = 0;
    for (size_t i = 0; i < extents.size(); ++i) {
      if (extents[i].begin != covered) {
        const std::string before =
            i == 0 ? "the data begins" : "tensor " + QuoteName(file_.tensors_[extents[i - 1].index].name) + " ends";
        return TensorError(extents[i].index, "data_offsets",
                           "data from " + std::to_string(covered) + " on, where " + before,
                           "data from " + std::to_string(extents[i].begin) + " on");
      }
      covered += extents[i].size;
    }
    if (covered == data_.size()) return {};
    return ErrorAtByte(ErrorCode::kCorruptFile, bytes_.size() - data_.size() + covered, "data",
                       "the end of the file, where the last tensor ends",
                       std::to_string(data_.size() - covered) + " bytes more")
        .WithContext(kHeader);
  }

  std::span<const std::byte> bytes_;
  std::span<const std::byte> data_;
  SafetensorsFile file_;
  std::vector<uint32_t> places_;  // of each tensor's name in the file
  Place place_ = Place::kTop;
  bool named_ = false;      // the error that ends the reading names its tensor
  size_t metadata_at_ = 0;  // 0: not met yet
  bool metadata_open_ = false;
  std::vector<std::string> metadata_keys_;
  // The entry that is being read:
  FileTensor tensor_;
  size_t name_at_ = 0;
  const SafetensorsType* type_ = nullptr;
  bool has_shape_ = false, has_offsets_ = false;
  std::vector<uint64_t> dims_;
  std::array<uint64_t, 2> offsets_ = {};
  size_t num_offsets_ = 0;
};

Result<SafetensorsFile> SafetensorsFile::Parse(std::span<const std::byte> file) {
  try {
    return SafetensorsParser(file).Parse();
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "safetensors header: no memory for its entries");
  }
}

const FileTensor* SafetensorsFile::FindTensor(std::string_view name) const {
  const auto less = [&](uint32_t i, std::string_view wanted) { return tensors_[i].name < wanted; };
  const auto found = std::lower_bound(tensors_by_name_.begin(), tensors_by_name_.end(), name, less);
  return found != tensors_by_name_.end() && tensors_[*found].name == name ? &tensors_[*found] : nullptr;
}

}  // namespace tidemill
