// JSON into values and back: what the caller sends (everything in it is the caller's, but for plain roles), and the filter tojson.
#ifndef TIDEMILL_TEXT_JINJA_JSON_H_
#define TIDEMILL_TEXT_JINJA_JSON_H_

#include <string_view>
#include <unordered_map>

#include "base/json_document.h"
#include "text/jinja_value.h"
#include "tidemill/chat.h"

namespace tidemill::jinja {

// The words that chats call their sides by. Templates build markers from them ('<|' + message.role + '|>'), and a plain word
// smuggles nothing in: so such a role counts as the template's text. Any other role is the caller's like the rest.
bool IsPlainRole(std::string_view role);

// Counts the values of all the JSON texts of one input.
class JsonReader {
 public:
  JsonReader(Heap& heap, const ChatTemplateLimits& limits)
      : heap_(heap), limits_(limits), values_left_(limits.input_values) {}

  // Fails, beginning with `name`, for what JsonDocument refuses, for integers beyond 64 bits, and past the limits on input.
  Value Read(std::string_view name, std::string_view text);

 private:
  // Everything in it is the caller's, but for the text of a plain role. Recurses as deep as the document is.
  Value ValueOf(const JsonValue& json, bool is_role = false);
  Value BigInteger(std::string_view digits);
  // One text for all that are equal: the keys of a thousand messages then lie together in the processor's cache.
  const Str* Shared(std::string_view text, bool caller);

  Heap& heap_;
  const ChatTemplateLimits& limits_;
  size_t values_left_;
  std::unordered_map<std::string_view, const Str*> keys_, roles_;
};

}  // namespace tidemill::jinja

#endif  // TIDEMILL_TEXT_JINJA_JSON_H_
