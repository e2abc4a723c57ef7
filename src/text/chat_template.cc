#include <new>
#include <utility>

#include "text/jinja_interpreter.h"
#include "text/jinja_json.h"
#include "text/jinja_parser.h"
#include "text/utf8.h"
#include "tidemill/chat.h"

namespace tidemill {

using jinja::Fail;
using jinja::Heap;
using jinja::Interpreter;
using jinja::Mapping;
using jinja::NewStr;
using jinja::TemplateError;
using jinja::Value;

struct ChatTemplate::Impl {
  explicit Impl(std::string text, const ChatTemplateLimits& template_limits)
      : limits(template_limits), source(jinja::NormalizeSource(text)), heap(kTreeBytes, UINT64_MAX) {}

  static constexpr size_t kTreeBytes = size_t{256} << 20;  // about 60 bytes for a byte of source at worst

  ChatTemplateLimits limits;
  std::string source;
  Heap heap;  // the tree, which borrows from `source`
  jinja::ParsedTemplate parsed;
};

namespace {

// "line 3, column 14: ", both from 1, columns in characters.
std::string Place(std::string_view source, uint32_t offset) {
  const std::string_view before = source.substr(0, offset);
  const size_t newline = before.rfind('\n');
  const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
  size_t line = 1;
  for (const char c : before) line += c == '\n' ? 1 : 0;
  return "line " + std::to_string(line) + ", column " +
         std::to_string(jinja::CountChars(before.substr(line_begin)) + 1) + ": ";
}

// What an input field holds; `name` begins the error.
Value FieldText(Heap& heap, std::string_view name, std::string_view text, bool caller) {
  if (!IsValidUtf8(text)) Fail(std::string(name) + ": not valid UTF-8");
  return Value::Of(NewStr(heap, text, caller)).FromCaller(caller);
}

Value ReadMessages(Heap& heap, jinja::JsonReader& reader, const std::vector<ChatMessage>& messages) {
  std::vector<Value> list;
  for (const ChatMessage& message : messages) {
    const std::string name = "message " + std::to_string(list.size() + 1);
    std::vector<Mapping::Entry> entries;
    const auto add = [&](std::string_view key, const Value& value) {
      entries.push_back({Value::Of(NewStr(heap, key, true)), value});
    };
    add("role", FieldText(heap, name, message.role, !jinja::IsPlainRole(message.role)));
    add("content", FieldText(heap, name, message.content, true));
    if (!message.more_json.empty()) {
      const Value more = reader.Read(name, message.more_json);
      if (more.kind != jinja::Kind::kMapping) Fail(name + ": more_json must be a JSON object");
      for (const Mapping::Entry& entry : more.mapping->entries) {
        if (entry.key.text() == "role") Fail(name + ": more_json brings a second role");
        entries.push_back(entry);  // "content" may be a list of parts here
      }
    }
    list.push_back(NewMapping(heap, entries, true));
  }
  return NewSequence(heap, jinja::Sequence::Form::kList, list, true);
}

// The variables of a template, gathered from the fields of the input.
struct Inputs {
  Value messages;
  Value tools = Value::None();
  Value documents = Value::None();
  Value variables;  // a mapping, or absent
  std::optional<bool> add_generation_prompt;
};

// A message as transformers hands it to a template: without members that are null, and with what the model thought under both names
// that templates look for. Made anew also where nothing changes: then all messages lie together, and a loop over them runs faster.
Value NormalizeMessage(Heap& heap, const Value& message) {
  const std::span<const Mapping::Entry> members = message.mapping->entries;
  const Value* reasoning = nullptr;
  for (const std::string_view name : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* found = reasoning == nullptr ? FindKey(heap, *message.mapping, name) : nullptr;
    if (found != nullptr && !found->is_none()) reasoning = found;
  }
  std::vector<Mapping::Entry> entries;  // of equal keys the first place and the last value count
  const auto add = [&](std::string_view key, const Value& value) {
    entries.push_back({Value::Of(NewStr(heap, key, true)), value});
  };
  if (reasoning != nullptr) add("thinking", *reasoning);
  for (const Mapping::Entry& member : members) {
    if (!member.value.is_none()) entries.push_back(member);
  }
  if (reasoning != nullptr) add("reasoning_content", *reasoning);
  return NewMapping(heap, entries, true);
}

// That every element of a list is an object; `what` is one of them.
void CheckObjects(std::string_view what, const Value& list) {
  if (list.kind != jinja::Kind::kSequence) return;  // none
  for (const Value& element : list.sequence->items) {
    if (element.kind != jinja::Kind::kMapping)
      Fail("a " + std::string(what) + " is a '" + std::string(TypeName(element)) + "', not an object");
  }
}

Value NormalizeMessages(Heap& heap, const Value& messages) {
  std::vector<Value> list;
  list.reserve(messages.sequence->items.size());
  for (const Value& message : messages.sequence->items) list.push_back(NormalizeMessage(heap, message));
  return NewSequence(heap, jinja::Sequence::Form::kList, list, true);
}

Value ReadList(jinja::JsonReader& reader, std::string_view name, std::string_view json) {
  if (json.empty()) return Value::None();
  const Value list = reader.Read(name, json);
  if (list.kind != jinja::Kind::kSequence)
    Fail(std::string(name) + ": expected a JSON list, found a '" + std::string(TypeName(list)) + "'");
  return list;
}

Inputs ReadInput(Heap& heap, jinja::JsonReader& reader, const ChatRenderInput& input) {
  Inputs inputs;
  inputs.messages = ReadMessages(heap, reader, input.messages);
  inputs.tools = ReadList(reader, "tools", input.tools_json);
  inputs.documents = ReadList(reader, "documents", input.documents_json);
  if (!input.variables_json.empty()) {
    inputs.variables = reader.Read("variables", input.variables_json);
    if (inputs.variables.kind != jinja::Kind::kMapping) Fail("variables: expected a JSON object");
  }
  return inputs;
}

// The members of both; those of `over` go before.
Value Merged(Heap& heap, const Value& under, const Value& over) {
  if (under.kind != jinja::Kind::kMapping) return over;
  std::vector<Mapping::Entry> entries(under.mapping->entries.begin(), under.mapping->entries.end());
  entries.insert(entries.end(), over.mapping->entries.begin(), over.mapping->entries.end());
  return NewMapping(heap, entries, true);
}

// Overlays what the JSON document brings; a field that both bring is refused.
void ReadConversation(Heap& heap, jinja::JsonReader& reader, std::string_view json, const ChatRenderInput& options,
                      Inputs& inputs) {
  const Value document = reader.Read("conversation", json);
  if (!options.messages.empty()) Fail("conversation: messages are given twice, in the JSON and beside it");
  if (document.kind == jinja::Kind::kSequence) {
    inputs.messages = document;
  } else if (document.kind == jinja::Kind::kMapping) {
    bool has_messages = false;
    for (const auto& [key, value] : document.mapping->entries) {
      const bool is_list = value.kind == jinja::Kind::kSequence;
      const bool is_null = value.is_none();
      if (key.text() == "messages" && is_list) {
        inputs.messages = value;
        has_messages = true;
      } else if (key.text() == "tools" && (is_list || is_null) && options.tools_json.empty()) {
        inputs.tools = value;
      } else if (key.text() == "documents" && (is_list || is_null) && options.documents_json.empty()) {
        inputs.documents = value;
      } else if (key.text() == "chat_template_kwargs" && value.kind == jinja::Kind::kMapping) {
        inputs.variables = Merged(heap, inputs.variables, value);
      } else if (key.text() == "add_generation_prompt" && value.kind == jinja::Kind::kBool) {
        inputs.add_generation_prompt = value.boolean;
      } else {
        Fail("conversation: the member \"" + jinja::ForMessage(key.text(), 60) +
             "\" is unknown, of the wrong type or given twice; expected messages, tools, documents (lists), "
             "chat_template_kwargs (an object) and add_generation_prompt (true or false)");
      }
    }
    if (!has_messages) Fail("conversation: the member \"messages\" is missing");
  } else {
    Fail("conversation: expected a JSON list of messages or an object with the member \"messages\"");
  }
}

void DefineVariables(Interpreter& interpreter, Heap& heap, const ChatRenderInput& input, const Inputs& inputs) {
  if (inputs.variables.kind == jinja::Kind::kMapping) {
    for (const auto& [key, value] : inputs.variables.mapping->entries) {
      for (const std::string_view taken :
           {"messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"}) {
        if (key.text() == taken) Fail("variables: \"" + std::string(taken) + "\" has a field of its own");
      }
      interpreter.Define(key.text(), value);
    }
  }
  const auto define_token = [&](std::string_view name, std::string_view text) {
    interpreter.Define(name, FieldText(heap, name, text, false));
  };
  for (const auto& [name, text] : input.special_tokens) define_token(name, text);
  if (input.bos_token) define_token("bos_token", *input.bos_token);
  if (input.eos_token) define_token("eos_token", *input.eos_token);
  interpreter.Define("messages", inputs.messages);
  interpreter.Define("tools", inputs.tools);
  interpreter.Define("documents", inputs.documents);
  interpreter.Define("add_generation_prompt",
                     Value::Bool(inputs.add_generation_prompt.value_or(input.add_generation_prompt)));
}

void CheckTime(const ChatTime& now) {
  const bool fits = now.year >= 1 && now.year <= 9999 && now.month >= 1 && now.month <= 12 && now.day >= 1 &&
                    now.day <= 31 && now.hour >= 0 && now.hour <= 23 && now.minute >= 0 && now.minute <= 59 &&
                    now.second >= 0 && now.second <= 60;
  if (!fits) Fail("now: a field is out of range");
}

Result<PromptText> RenderWith(const ChatTemplateLimits& limits, std::string_view source,
                              const jinja::ParsedTemplate& parsed, const ChatRenderInput& input,
                              const std::string_view* json) {
  try {
    Heap heap(limits.value_bytes, limits.steps);
    // Input has its own limits, so it does not use up the template's.
    Heap input_heap(limits.input_bytes * 16, UINT64_MAX);
    Interpreter interpreter(heap, parsed, limits, input.now);
    try {
      if (input.now) CheckTime(*input.now);
      jinja::JsonReader reader(input_heap, limits);
      Inputs inputs = ReadInput(input_heap, reader, input);
      if (json != nullptr) ReadConversation(input_heap, reader, *json, input, inputs);
      CheckObjects("message", inputs.messages);
      CheckObjects("tool", inputs.tools);
      CheckObjects("document", inputs.documents);
      inputs.messages = NormalizeMessages(input_heap, inputs.messages);
      DefineVariables(interpreter, input_heap, input, inputs);
    } catch (TemplateError& error) {
      return Error(error.code, "render chat template: " + error.message);
    }
    try {
      return interpreter.Run();
    } catch (TemplateError& error) {
      const std::string place = Place(source, error.offset.value_or(interpreter.offset()));
      const bool is_bad_template = error.code == ErrorCode::kInvalidArgument && !error.is_refusal;
      return Error(is_bad_template ? ErrorCode::kCorruptFile : error.code,
                   "render chat template: " + place + error.message);
    }
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, "render chat template: out of memory");
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::Parse(std::string source, const ChatTemplateLimits& limits) {
  const std::string prefix = "parse chat template: ";
  if (source.size() > limits.source_bytes) {
    return Error(ErrorCode::kInvalidArgument, prefix + "expected at most " + std::to_string(limits.source_bytes) +
                                                  " bytes, found " + std::to_string(source.size()));
  }
  if (!IsValidUtf8(source)) return Error(ErrorCode::kInvalidArgument, prefix + "not valid UTF-8");
  try {
    auto impl = std::make_unique<Impl>(std::move(source), limits);
    try {
      impl->parsed = jinja::Parse(impl->heap, impl->source, limits.nesting);
    } catch (TemplateError& error) {
      return Error(error.code, prefix + Place(impl->source, error.offset.value_or(0)) + error.message);
    }
    return ChatTemplate(std::move(impl));
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kOutOfMemory, prefix + "out of memory");
  }
}

Result<PromptText> ChatTemplate::Render(const ChatRenderInput& input) const {
  return RenderWith(impl_->limits, impl_->source, impl_->parsed, input, nullptr);
}

Result<PromptText> ChatTemplate::RenderJson(std::string_view json, const ChatRenderInput& options) const {
  return RenderWith(impl_->limits, impl_->source, impl_->parsed, options, &json);
}

}  // namespace tidemill
