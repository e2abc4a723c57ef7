#include <algorithm>

#include "text/jinja_interpreter.h"

namespace tidemill::jinja {

void Interpreter::Depth::FailDepth() { Fail("evaluation nested deeper than " + std::to_string(kMaxDepth) + " levels"); }

Value Interpreter::Evaluate(const Expr& expr) {
  const Depth depth(*this);
  heap_.Work(1);
  offset_ = expr.offset;
  switch (expr.kind) {
    case ExprKind::kConst: return static_cast<const ConstExpr&>(expr).value;
    case ExprKind::kName: return EvaluateName(static_cast<const NameExpr&>(expr));
    case ExprKind::kList:
    case ExprKind::kTuple: return EvaluateList(static_cast<const ListExpr&>(expr));
    case ExprKind::kDict: return EvaluateDict(static_cast<const DictExpr&>(expr));
    case ExprKind::kCond: {
      const auto& condition = static_cast<const CondExpr&>(expr);
      if (IsTrue(Evaluate(*condition.test))) return Evaluate(*condition.then_value);
      if (condition.else_value != nullptr) return Evaluate(*condition.else_value);
      return UndefinedBecause(heap_, "an \"if\" without \"else\" was false: its value is undefined");
    }
    case ExprKind::kAnd:
    case ExprKind::kOr: return EvaluateLogic(static_cast<const ListExpr&>(expr));
    case ExprKind::kNot:
    case ExprKind::kNegate:
    case ExprKind::kPlus: return EvaluateUnary(static_cast<const UnaryExpr&>(expr));
    case ExprKind::kArithmetic: return EvaluateArithmetic(static_cast<const ChainExpr&>(expr));
    case ExprKind::kConcat: return EvaluateConcat(static_cast<const ListExpr&>(expr));
    case ExprKind::kCompare: return EvaluateCompare(static_cast<const ChainExpr&>(expr));
    case ExprKind::kPostfix: return EvaluatePostfix(static_cast<const PostfixExpr&>(expr));
  }
  return Value::None();
}

Value Interpreter::EvaluateName(const NameExpr& expr) {
  if (const Value* value = FindVariable(expr.name)) return *value;
  if (expr.function != nullptr && (expr.function->name != "strftime_now" || now_.has_value()))
    return Value::Of(expr.function);
  return Undefined(parsed_.names[expr.name], {});
}

Value Interpreter::EvaluateList(const ListExpr& expr) {
  const std::span<Value> items = heap_.NewArray<Value>(expr.items.size());
  for (size_t i = 0; i < items.size(); ++i) items[i] = Evaluate(*expr.items[i]);
  return NewSequence(heap_, expr.kind == ExprKind::kTuple ? Sequence::Form::kTuple : Sequence::Form::kList, items);
}

Value Interpreter::EvaluateDict(const DictExpr& expr) {
  const std::span<Mapping::Entry> entries = heap_.NewArray<Mapping::Entry>(expr.items.size() / 2);
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i].key = Evaluate(*expr.items[2 * i]);
    entries[i].value = Evaluate(*expr.items[2 * i + 1]);
  }
  return NewMapping(heap_, entries);
}

// The first operand that decides, or the last one.
Value Interpreter::EvaluateLogic(const ListExpr& expr) {
  Value value;
  for (const Expr* item : expr.items) {
    value = Evaluate(*item);
    if (IsTrue(value) == (expr.kind == ExprKind::kOr)) break;
  }
  return value;
}

Value Interpreter::EvaluateConcat(const ListExpr& expr) {
  TextBuilder text(heap_);
  const Str* left = nullptr;  // a long text at the beginning, which may grow in its place
  for (const Expr* item : expr.items) {
    const Value value = Evaluate(*item);
    if (item == expr.items.front() && value.is_string() && value.text().size() >= kLongText) {
      left = value.str;
    } else {
      AppendText(text, heap_, value);
    }
  }
  return Value::Of(left != nullptr ? JoinStr(heap_, *left, *text.Finish(), false) : text.Finish());
}

Value Interpreter::EvaluateUnary(const UnaryExpr& expr) {
  const Value value = Evaluate(*expr.operand);
  offset_ = expr.offset;
  if (expr.kind == ExprKind::kNot) return Value::Bool(!IsTrue(value));
  if (value.is_undefined()) Fail(UndefinedMessage(value));
  if (!value.is_number()) Fail("bad operand type for a sign: '" + std::string(TypeName(value)) + "'");
  if (value.kind == Kind::kFloat)
    return Value::Float(expr.kind == ExprKind::kNegate ? -value.real : value.real).FromCaller(value.caller);
  if (expr.kind == ExprKind::kPlus) return Value::Int(value.AsInt()).FromCaller(value.caller);
  return Arithmetic(heap_, Operator::kSub, Value::Int(0), value);
}

Value Interpreter::EvaluateArithmetic(const ChainExpr& expr) {
  Value value = Evaluate(*expr.first);
  for (size_t i = 0; i < expr.items.size(); ++i) {
    Value operand = Evaluate(*expr.items[i]);
    offset_ = expr.offset;
    const bool markup = value.is_markup();
    if (expr.operators[i] == Operator::kAdd && value.is_string() && operand.is_string() &&
        (markup || !operand.is_markup())) {
      TextBuilder text(heap_);  // all the strings of the chain at once: joining them in pairs would be quadratic
      const Str* left = value.text().size() >= kLongText ? value.str : nullptr;
      if (left == nullptr) text.Append(*value.str);
      text.Append(markup ? *EscapeStr(heap_, *operand.str) : *operand.str);
      while (i + 1 < expr.items.size() && expr.operators[i + 1] == Operator::kAdd) {
        operand = Evaluate(*expr.items[i + 1]);
        offset_ = expr.offset;
        if (!operand.is_string() || (operand.is_markup() && !markup)) break;
        text.Append(markup ? *EscapeStr(heap_, *operand.str) : *operand.str);
        ++i;
      }
      value = Value::Of(left != nullptr ? JoinStr(heap_, *left, *text.Finish(), markup) : text.Finish(markup));
      if (operand.is_string() && (markup || !operand.is_markup())) continue;
      ++i;
    }
    value = Arithmetic(heap_, expr.operators[i], value, operand);
  }
  return value;
}

Value Interpreter::EvaluateCompare(const ChainExpr& expr) {
  Value left = Evaluate(*expr.first);
  for (size_t i = 0; i < expr.items.size(); ++i) {
    const Value right = Evaluate(*expr.items[i]);
    offset_ = expr.offset;
    if (!CompareValues(heap_, expr.operators[i], left, right)) return Value::Bool(false);
    left = right;
  }
  return Value::Bool(true);
}

Value Interpreter::EvaluatePostfix(const PostfixExpr& expr) {
  Value value = Evaluate(*expr.base);
  for (size_t i = 0; i < expr.suffixes.size(); ++i) {
    const Suffix& suffix = expr.suffixes[i];
    if (suffix.kind == SuffixKind::kAttribute && suffix.may_be_method && i + 1 < expr.suffixes.size() &&
        CallMethod(value, suffix, expr.suffixes[i + 1])) {
      ++i;
    } else {
      value = ApplySuffix(value, suffix);
    }
  }
  return value;
}

// value.name(few arguments) without a bound method in between; false if it is something else.
bool Interpreter::CallMethod(Value& value, const Suffix& name, const Suffix& call) {
  constexpr size_t kMaxArguments = 3;
  if (call.kind != SuffixKind::kCall || !call.arguments->keyword_names.empty() || call.arguments->star != nullptr ||
      call.arguments->star_star != nullptr || call.arguments->positional.size() > kMaxArguments)
    return false;
  const MethodInfo* method = FindMethod(value, name.name->bytes);
  if (method == nullptr) return false;
  heap_.Work(2);
  std::array<Value, kMaxArguments + 1> arguments = {value};
  size_t size = 1;
  for (const Expr* argument : call.arguments->positional) arguments[size++] = Evaluate(*argument);
  offset_ = call.offset;
  value = method->call(*this, {std::span<const Value>(arguments).first(size), {}});
  return true;
}

Value Interpreter::ApplySuffix(const Value& value, const Suffix& suffix) {
  heap_.Work(1);
  offset_ = suffix.offset;
  switch (suffix.kind) {
    case SuffixKind::kAttribute:
      if (value.kind == Kind::kMapping && !suffix.may_be_method) {  // most of all: message.role
        const Value* found = FindKey(heap_, *value.mapping, suffix.name->bytes);
        return found != nullptr ? *found : Undefined(suffix.name->bytes, TypeName(value));
      }
      return Attribute(value, *suffix.name);
    case SuffixKind::kItem: {
      const Value key = Evaluate(*suffix.item);
      offset_ = suffix.offset;
      return Item(value, key);
    }
    case SuffixKind::kSlice: return ApplySlice(value, suffix);
    case SuffixKind::kCall: {
      const CallArguments arguments = EvaluateArguments(*suffix.arguments, Value(), nullptr);
      offset_ = suffix.offset;
      return Call(value, arguments);
    }
    case SuffixKind::kFilter: {
      if (suffix.filter == nullptr) Fail("unknown filter \"" + ForMessage(suffix.name->bytes, 60) + "\"");
      if (suffix.arguments->IsEmpty()) return suffix.filter->call(*this, {{&value, 1}, {}});
      const CallArguments arguments = EvaluateArguments(*suffix.arguments, value, nullptr);
      offset_ = suffix.offset;
      return suffix.filter->call(*this, arguments);
    }
    case SuffixKind::kTest: {
      if (suffix.test == nullptr) Fail("unknown test \"" + ForMessage(suffix.name->bytes, 60) + "\"");
      if (suffix.arguments->IsEmpty())
        return Value::Bool(suffix.test->call(*this, {{&value, 1}, {}}) != suffix.negated);
      const CallArguments arguments = EvaluateArguments(*suffix.arguments, value, nullptr);
      offset_ = suffix.offset;
      return Value::Bool(suffix.test->call(*this, arguments) != suffix.negated);
    }
  }
  return value;
}

Value Interpreter::ApplySlice(const Value& value, const Suffix& suffix) {
  const Value start = suffix.item != nullptr ? Evaluate(*suffix.item) : Value();
  const Value stop = suffix.stop != nullptr ? Evaluate(*suffix.stop) : Value();
  const Value step = suffix.step != nullptr ? Evaluate(*suffix.step) : Value();
  offset_ = suffix.offset;
  return Slice(heap_, value, start, stop, step);
}

CallArguments Interpreter::EvaluateArguments(const Arguments& arguments, const Value& first,
                                             const MacroObject* caller) {
  std::span<const Value> starred;
  if (arguments.star != nullptr) starred = Iterate(heap_, Evaluate(*arguments.star));
  const size_t leading = first.is_absent() ? 0 : 1;
  const std::span<Value> positional = heap_.NewArray<Value>(leading + arguments.positional.size() + starred.size());
  if (leading != 0) positional[0] = first;
  for (size_t i = 0; i < arguments.positional.size(); ++i) positional[leading + i] = Evaluate(*arguments.positional[i]);
  std::copy(starred.begin(), starred.end(), positional.end() - static_cast<std::ptrdiff_t>(starred.size()));

  std::span<const Mapping::Entry> more;
  if (arguments.star_star != nullptr) {
    const Value value = Evaluate(*arguments.star_star);
    if (value.kind != Kind::kMapping)
      Fail("the argument after ** is a '" + std::string(TypeName(value)) + "', not a dict");
    more = value.mapping->entries;
  }
  const size_t named = arguments.keyword_names.size();
  const std::span<Keyword> keywords = heap_.NewArray<Keyword>(named + more.size() + (caller != nullptr ? 1 : 0));
  for (size_t i = 0; i < named; ++i) keywords[i] = {arguments.keyword_names[i], Evaluate(*arguments.keyword_values[i])};
  for (size_t i = 0; i < more.size(); ++i) {
    if (!more[i].key.is_string()) Fail("keywords must be strings");
    for (const Keyword& earlier : keywords.first(named)) {
      if (earlier.name->bytes == more[i].key.text())
        Fail("the keyword argument \"" + ForMessage(more[i].key.text(), 60) + "\" is given twice");
    }
    heap_.Work(1 + named);
    keywords[named + i] = {more[i].key.str, more[i].value};
  }
  if (caller != nullptr) keywords.back() = {BorrowStr(heap_, "caller", false), Value::Of(caller)};
  return {positional, keywords};
}

Value Interpreter::Call(const Value& callee, const CallArguments& arguments) {
  switch (callee.kind) {
    case Kind::kFunction: return callee.function->call(*this, arguments);
    case Kind::kMacro: return CallMacro(*callee.macro, arguments);
    case Kind::kLoop: return CallLoop(*callee.loop, arguments);
    case Kind::kCycler:
      if (!callee.cycler->is_joiner) Fail("a 'Cycler' cannot be called: call its next()");
      if (!arguments.positional.empty() || !arguments.keywords.empty()) Fail("a joiner takes no arguments");
      return callee.cycler->next++ == 0 ? Value::Of(BorrowStr(heap_, {}, false)) : callee.cycler->items[0];
    case Kind::kMethod: {
      const std::span<Value> positional = heap_.NewArray<Value>(arguments.positional.size() + 1);
      positional[0] = callee.method->self;
      std::copy(arguments.positional.begin(), arguments.positional.end(), positional.begin() + 1);
      return callee.method->info->call(*this, {positional, arguments.keywords});
    }
    case Kind::kUndefined: Fail(UndefinedMessage(callee) + " and cannot be called");
    default: Fail("a '" + std::string(TypeName(callee)) + "' cannot be called");
  }
}

Value Interpreter::CallMacro(const MacroObject& object, const CallArguments& arguments) {
  const Depth depth(*this);
  const MacroStatement& macro = *object.macro;
  const std::string name = "macro \"" + std::string(macro.name_text->bytes) + "\"";
  if (call_depth_ >= limits_.call_depth)
    Fail(name + ": calls nested deeper than " + std::to_string(limits_.call_depth) + " levels");

  Scope& scope = *heap_.New(Scope{object.scope, {}, 0});
  const size_t num_parameters = macro.parameters.size();
  const std::span<bool> used = heap_.NewArray<bool>(arguments.keywords.size());
  const auto take_keyword = [&](std::string_view keyword) {
    heap_.Work(used.size() / 8);
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i] || arguments.keywords[i].name->bytes != keyword) continue;
      used[i] = true;
      return arguments.keywords[i].value;
    }
    return Value();
  };
  if (arguments.positional.size() > num_parameters && !macro.uses_varargs) {
    Fail(name + " takes at most " + std::to_string(num_parameters) + " arguments, got " +
         std::to_string(arguments.positional.size()));
  }
  bool caller_is_parameter = false;
  const std::span<Value> given = heap_.NewArray<Value>(num_parameters);
  for (size_t i = 0; i < num_parameters; ++i) {
    caller_is_parameter = caller_is_parameter || macro.parameters[i] == kCallerName;
    given[i] =
        i < arguments.positional.size() ? arguments.positional[i] : take_keyword(parsed_.names[macro.parameters[i]]);
  }
  if (macro.uses_caller && !caller_is_parameter) {
    const Value caller = take_keyword("caller");
    SetVariable(scope, kCallerName, caller.is_absent() ? UndefinedBecause(heap_, "no caller is defined") : caller);
  }
  if (macro.uses_varargs) {
    const size_t first = std::min(num_parameters, arguments.positional.size());
    SetVariable(scope, kVarargsName, NewSequence(heap_, Sequence::Form::kTuple, arguments.positional.subspan(first)));
  }
  std::vector<Mapping::Entry> rest;
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]) continue;
    if (!macro.uses_kwargs)
      Fail(name + " takes no keyword argument \"" + ForMessage(arguments.keywords[i].name->bytes, 60) + "\"");
    rest.push_back({Value::Of(arguments.keywords[i].name), arguments.keywords[i].value});
  }
  if (macro.uses_kwargs) SetVariable(scope, kKwargsName, NewMapping(heap_, rest));

  Scope* const outer = std::exchange(scope_, &scope);
  ++call_depth_;
  for (size_t i = 0; i < num_parameters; ++i) {
    Value value = given[i];
    const size_t defaults_begin = num_parameters - macro.defaults.size();
    if (value.is_absent()) {
      value = i >= defaults_begin ? Evaluate(*macro.defaults[i - defaults_begin])
                                  : NewUndefined(heap_, parsed_.names[macro.parameters[i]]);
    }
    SetVariable(scope, macro.parameters[i], value);
  }
  const Str* text = Capture(macro.body, scope);
  --call_depth_;
  scope_ = outer;
  return Value::Of(text);
}

Value Interpreter::CallLoop(const LoopObject& loop, const CallArguments& arguments) {
  if (!loop.statement->recursive) Fail("the loop cannot be called: it is not marked as recursive");
  const auto [items] = Bind<1>("loop", arguments, {"iterable"}, 1);
  return Value::Of(ExecuteRecursive(*loop.statement, items, loop.outer, loop.depth0 + 1));
}

Value Interpreter::CallFilter(std::string_view name, const CallArguments& arguments) {
  const Depth depth(*this);
  heap_.Work(1);
  const FilterInfo* filter = FindFilter(name);
  if (filter == nullptr) Fail("unknown filter \"" + ForMessage(name, 60) + "\"");
  return filter->call(*this, arguments);
}

bool Interpreter::CallTest(std::string_view name, const CallArguments& arguments) {
  heap_.Work(1);
  const TestInfo* test = FindTest(name);
  if (test == nullptr) Fail("unknown test \"" + ForMessage(name, 60) + "\"");
  return test->call(*this, arguments);
}

}  // namespace tidemill::jinja
