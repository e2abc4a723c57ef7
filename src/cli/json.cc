#include "cli/json.h"

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "cli/errors.h"

namespace tidemill::cli {
namespace {

void TakeApart(Json& json) noexcept {  // at most kMostJsonNesting deep
  if (json.is_array()) {
    for (auto& list = json.get_ref<Json::array_t&>(); !list.empty(); list.pop_back()) TakeApart(list.back());
  } else if (json.is_object()) {
    for (auto& members = json.get_ref<Json::object_t&>(); !members.empty(); members.pop_back())
      TakeApart(members.back().second);
  }
}

// Makes the value from what the library reads. Its own maker looks for each member among those before it, and with a callback at all
// siblings of each object.
class Maker final : public nlohmann::json_sax<Json> {
 public:
  explicit Maker(Json* root) : root_(root) {}

  const std::string& fault() const { return fault_; }

  bool null() override { return Add(nullptr) != nullptr; }
  bool boolean(bool value) override { return Add(value) != nullptr; }
  bool number_integer(int64_t value) override { return Add(value) != nullptr; }
  bool number_unsigned(uint64_t value) override { return Add(value) != nullptr; }
  bool number_float(double value, const std::string& /*text*/) override { return Add(value) != nullptr; }
  bool string(std::string& value) override { return Add(std::move(value)) != nullptr; }
  bool binary(Json::binary_t& /*value*/) override { return false; }  // not in a text
  bool start_object(size_t /*members*/) override { return Open(Json::object()); }
  bool start_array(size_t /*elements*/) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(std::string& name) override {
    if (!open_.back().names.insert(name).second) fault_ = "the member " + Quoted(name) + " twice";
    name_ = std::move(name);
    return fault_.empty();
  }
  bool parse_error(size_t at, const std::string& /*token*/, const nlohmann::detail::exception& error) override {
    constexpr int kOutOfRange = 406;
    fault_ = error.id == kOutOfRange ? "a number that is too large" : "a mistake at byte " + std::to_string(at);
    return false;
  }

 private:
  struct Container {
    explicit Container(Json* where) : value(where) {}
    Container(Container&&) noexcept = default;
    ~Container() {
      for (auto& [name, member] : members) TakeApart(member);
    }

    Json* value;  // stays where it is: what holds it grows when it is closed
    // Of an object, which gets them when it ends: its own vector would copy them to grow, since their names are const there.
    std::vector<std::pair<std::string, Json>> members;
    std::set<std::string> names;
  };

  Json* Add(Json value) {
    if (open_.empty()) return &(*root_ = std::move(value));
    Json& in = *open_.back().value;
    if (in.is_array()) return &in.get_ref<Json::array_t&>().emplace_back(std::move(value));
    return &open_.back().members.emplace_back(std::move(name_), std::move(value)).second;
  }
  bool Open(Json empty) {
    if (open_.size() == kMostJsonNesting) {
      fault_ = "more than " + std::to_string(kMostJsonNesting) + " levels";
      return false;
    }
    open_.emplace_back(Add(std::move(empty)));
    return true;
  }
  bool Close() {
    Container& closed = open_.back();
    if (closed.value->is_object()) {
      auto& members = closed.value->get_ref<Json::object_t&>();
      members.reserve(closed.members.size());
      for (auto& [name, member] : closed.members) members.emplace_back(std::move(name), std::move(member));
    }
    open_.pop_back();
    return true;
  }

  Json* root_;
  std::vector<Container> open_;
  std::string name_;  // of the member that comes
  std::string fault_;
};

}  // namespace

ParsedJson::~ParsedJson() { TakeApart(json_); }

Result<ParsedJson> ParseJson(std::string_view what, std::string_view text) {
  // The library takes a zero byte for the end.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return Error(ErrorCode::kInvalidArgument,
                 std::string(what) + ": expected JSON, found a zero byte at byte " + std::to_string(zero));
  }
  ParsedJson json;
  Maker maker(&*json);
  if (Json::sax_parse(text, &maker)) return json;
  return Error(ErrorCode::kInvalidArgument, std::string(what) + ": expected JSON, found " + maker.fault());
}

}  // namespace tidemill::cli
