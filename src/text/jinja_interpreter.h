// Runs a parsed template. One Interpreter renders once; it holds all that changes, so templates are shared freely.
#ifndef TIDEMILL_TEXT_JINJA_INTERPRETER_H_
#define TIDEMILL_TEXT_JINJA_INTERPRETER_H_

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_builtins.h"
#include "tidemill/chat.h"

namespace tidemill::jinja {

// The variables of a block, a macro call or one turn of a loop.
struct Scope {
  struct Slot {
    NameId name;
    Value value;
  };
  Scope* parent = nullptr;
  std::span<Slot> slots;
  size_t size = 0;
};

struct MacroObject {
  const MacroStatement* macro;
  Scope* scope;  // where it was defined
};

inline constexpr int64_t kMaxRange = 100'000;  // Jinja's sandbox has the same bound

struct LoopObject {
  const ForStatement* statement;
  Scope* outer;  // where the loop stands
  std::span<const Value> items;
  size_t index0 = 0;
  int depth0 = 0;
  std::span<const Value> last_changed;  // arguments of the last loop.changed()
  bool has_changed = false;
};

class Interpreter {
 public:
  Interpreter(Heap& heap, const ParsedTemplate& parsed, const ChatTemplateLimits& limits,
              const std::optional<ChatTime>& now)
      : heap_(heap), parsed_(parsed), limits_(limits), now_(now) {}

  // Sets a variable that the template sees. Fails for the name of a built-in function.
  void Define(std::string_view name, const Value& value);
  PromptText Run();

  // What was being evaluated when something failed: an offset into the source.
  uint32_t offset() const { return offset_; }

  // For natives.
  Heap& heap() { return heap_; }
  const std::optional<ChatTime>& now() const { return now_; }
  Value Attribute(const Value& value, const Str& name);                          // value.name
  Value Item(const Value& value, const Value& key);                              // value[key]
  std::span<const Value> Numbers(int64_t start, size_t count, bool descending);  // whole numbers, within 0 to kMaxRange
  Value CallFilter(std::string_view name, const CallArguments& arguments);
  bool CallTest(std::string_view name, const CallArguments& arguments);

 private:
  class Depth;  // counts one level of evaluation while it lives
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // jinja_execute.cc: statements
  Flow Execute(Block block);
  Flow ExecuteOne(const Statement& statement);
  Flow ExecuteIf(const IfStatement& statement);
  Flow ExecuteFor(const ForStatement& statement);
  // A scope for what nothing keeps, and back.
  Scope& TakeScope();
  void ReturnScope(Scope& scope) { free_scopes_.push_back(&scope); }
  Flow ExecuteLoop(const ForStatement& statement, const Value& iterable, int depth0);
  // What a recursive loop prints for `iterable`, in the scope `outer`.
  const Str* ExecuteRecursive(const ForStatement& statement, const Value& iterable, Scope* outer, int depth0);
  Flow ExecuteTurn(const ForStatement& statement, const Value& item, Scope& scope, LoopObject* loop);
  bool LoopAccepts(const ForStatement& statement, const Value& item);
  void ExecuteSetBlock(const SetBlockStatement& statement);
  void ExecuteCallBlock(const CallBlockStatement& statement);
  void ExecuteFilterBlock(const FilterBlockStatement& statement);
  Flow ExecuteWith(const WithStatement& statement);
  const Str* Capture(Block block, Scope& scope);  // renders `block` in `scope` into a text of its own
  void Assign(Scope& scope, const Target& target, const Value& value);
  void SetVariable(Scope& scope, NameId name, const Value& value);
  const Value* FindVariable(NameId name) const;
  void CheckOutput() const;

  // jinja_evaluate.cc: expressions
  Value Evaluate(const Expr& expr);
  Value EvaluateName(const NameExpr& expr);
  Value EvaluateList(const ListExpr& expr);
  Value EvaluateDict(const DictExpr& expr);
  Value EvaluateLogic(const ListExpr& expr);
  Value EvaluateConcat(const ListExpr& expr);
  Value EvaluateUnary(const UnaryExpr& expr);
  Value EvaluateArithmetic(const ChainExpr& expr);
  Value EvaluateCompare(const ChainExpr& expr);
  Value EvaluatePostfix(const PostfixExpr& expr);
  bool CallMethod(Value& value, const Suffix& name, const Suffix& call);
  Value ApplySuffix(const Value& value, const Suffix& suffix);
  // A variable, or an attribute of the type, that is not there. `name` outlives the heap.
  Value Undefined(std::string_view name, std::string_view owner_type);
  Value ApplySlice(const Value& value, const Suffix& suffix);
  // Evaluates arguments; `first`, if not absent, stands before them, and `caller`, if not null, after the keywords.
  CallArguments EvaluateArguments(const Arguments& arguments, const Value& first, const MacroObject* caller);
  Value Call(const Value& callee, const CallArguments& arguments);
  Value CallMacro(const MacroObject& macro, const CallArguments& arguments);
  Value CallLoop(const LoopObject& loop, const CallArguments& arguments);
  Value LoopAttribute(LoopObject& loop, std::string_view name);

  Heap& heap_;
  const ParsedTemplate& parsed_;
  const ChatTemplateLimits& limits_;
  const std::optional<ChatTime>& now_;
  Scope globals_;
  Scope* scope_ = &globals_;
  Scope* top_ = nullptr;  // what the template itself sets
  std::vector<Scope*> free_scopes_;
  TextBuilder* out_ = nullptr;
  std::array<const UndefinedInfo*, 64> undefined_ = {};  // made before, by the place of the name
  std::span<Value> ascending_, descending_;              // 0, 1, ... and the last of it, ... 1, 0
  uint32_t offset_ = 0;
  int depth_ = 0;
  int call_depth_ = 0;
};

// Counts one level of evaluation while it lives: what bounds the stack.
class Interpreter::Depth {
 public:
  explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) {
    if (interpreter_.depth_ >= kMaxDepth) FailDepth();
    ++interpreter_.depth_;
  }
  ~Depth() { --interpreter_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  static constexpr int kMaxDepth = 320;  // the deepest template takes less than 192 KiB of stack in an optimised build
  [[noreturn]] static void FailDepth();

  Interpreter& interpreter_;
};

// Values (jinja_operators.cc).
Value Arithmetic(Heap& heap, Operator op, const Value& a, const Value& b);
bool CompareValues(Heap& heap, Operator op, const Value& a, const Value& b);
bool Contains(Heap& heap, const Value& container, const Value& item);
// value[start:stop:step]; absent or none: not given.
Value Slice(Heap& heap, const Value& value, const Value& start, const Value& stop, const Value& step);

}  // namespace tidemill::jinja

#endif  // TIDEMILL_TEXT_JINJA_INTERPRETER_H_
