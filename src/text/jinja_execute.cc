#include <algorithm>
#include <utility>

#include "text/jinja_interpreter.h"

namespace tidemill::jinja {

void Interpreter::Define(std::string_view name, const Value& value) {
  if (FindFunction(name) != nullptr)
    Fail("the variable \"" + ForMessage(name, 60) + "\" has the name of a function of the template language");
  const auto found = std::lower_bound(parsed_.names_in_order.begin(), parsed_.names_in_order.end(), name,
                                      [this](NameId id, std::string_view text) { return parsed_.names[id] < text; });
  if (found == parsed_.names_in_order.end() || parsed_.names[*found] != name) return;  // the template never mentions it
  SetVariable(globals_, *found, value);
}

PromptText Interpreter::Run() {
  TextBuilder out(heap_);
  out_ = &out;
  top_ = heap_.New(Scope{&globals_, {}, 0});
  scope_ = top_;
  Execute(parsed_.body);
  return out.TakePrompt();
}

const Value* Interpreter::FindVariable(NameId name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const Scope::Slot& slot : scope->slots.first(scope->size)) {
      if (slot.name == name) return &slot.value;
    }
    heap_.Work(scope->size / 8);
  }
  return nullptr;
}

void Interpreter::SetVariable(Scope& scope, NameId name, const Value& value) {
  for (Scope::Slot& slot : scope.slots.first(scope.size)) {
    if (slot.name != name) continue;
    slot.value = value;
    return;
  }
  if (scope.size == scope.slots.size()) {
    const std::span<Scope::Slot> larger = heap_.NewArray<Scope::Slot>(std::max<size_t>(4, 2 * scope.size));
    std::copy(scope.slots.begin(), scope.slots.end(), larger.begin());
    scope.slots = larger;
  }
  heap_.Work(scope.size / 8);
  scope.slots[scope.size++] = {name, value};
}

void Interpreter::Assign(Scope& scope, const Target& target, const Value& value) {
  if (target.is_tuple) {
    offset_ = target.offset;
    if (!IsIterable(value)) Fail("cannot unpack a '" + std::string(TypeName(value)) + "' into several names");
    const std::span<const Value> items = Iterate(heap_, value);
    if (items.size() != target.elements.size()) {
      Fail("cannot unpack " + std::to_string(items.size()) + " values into " + std::to_string(target.elements.size()) +
           " names");
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(scope, target.elements[i], items[i]);
  } else if (target.attribute == nullptr) {
    SetVariable(scope, target.name, value);
  } else {
    offset_ = target.offset;
    const Value* space = FindVariable(target.name);
    if (space == nullptr || space->kind != Kind::kNamespace) {
      Fail("cannot assign an attribute of \"" + std::string(parsed_.names[target.name]) + "\": it is no namespace");
    }
    if (target.attribute->bytes.starts_with('_'))
      Fail("an attribute of a namespace cannot begin with an underscore: \"" + std::string(target.attribute->bytes) +
           "\"");
    SetSlot(heap_, *space->space, target.attribute, value);
  }
}

void Interpreter::CheckOutput() const {
  if (out_->size() > limits_.output_bytes)
    Fail("more than " + std::to_string(limits_.output_bytes) + " bytes of output");
}

Interpreter::Flow Interpreter::Execute(Block block) {
  const Depth depth(*this);
  for (const Statement* statement : block) {
    const Flow flow = ExecuteOne(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteOne(const Statement& statement) {
  heap_.Work(1);
  offset_ = statement.offset;
  switch (statement.kind) {
    case StatementKind::kText:
      out_->Append(*static_cast<const TextStatement&>(statement).text);
      CheckOutput();
      return Flow::kNext;
    case StatementKind::kPrint:
      AppendText(*out_, heap_, Evaluate(*static_cast<const PrintStatement&>(statement).value));
      CheckOutput();
      return Flow::kNext;
    case StatementKind::kIf: return ExecuteIf(static_cast<const IfStatement&>(statement));
    case StatementKind::kFor: return ExecuteFor(static_cast<const ForStatement&>(statement));
    case StatementKind::kSet: {
      const auto& set = static_cast<const SetStatement&>(statement);
      Assign(*scope_, set.target, Evaluate(*set.value));
      return Flow::kNext;
    }
    case StatementKind::kSetBlock:
      ExecuteSetBlock(static_cast<const SetBlockStatement&>(statement));
      return Flow::kNext;
    case StatementKind::kMacro: {
      const auto& macro = static_cast<const MacroStatement&>(statement);
      SetVariable(*scope_, macro.name, Value::Of(heap_.New(MacroObject{&macro, scope_})));
      return Flow::kNext;
    }
    case StatementKind::kCallBlock:
      ExecuteCallBlock(static_cast<const CallBlockStatement&>(statement));
      return Flow::kNext;
    case StatementKind::kFilterBlock:
      ExecuteFilterBlock(static_cast<const FilterBlockStatement&>(statement));
      return Flow::kNext;
    case StatementKind::kWith: return ExecuteWith(static_cast<const WithStatement&>(statement));
    case StatementKind::kScope: {
      const auto& inner = static_cast<const ScopeStatement&>(statement);
      Scope* const outer = std::exchange(scope_, heap_.New(Scope{inner.sees_top_only ? top_ : scope_, {}, 0}));
      Execute(inner.body);
      scope_ = outer;
      return Flow::kNext;
    }
    case StatementKind::kBreak: return Flow::kBreak;
    case StatementKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteIf(const IfStatement& statement) {
  for (size_t i = 0; i < statement.tests.size(); ++i) {
    if (IsTrue(Evaluate(*statement.tests[i]))) return Execute(statement.bodies[i]);
  }
  return statement.else_body.empty() ? Flow::kNext : Execute(statement.else_body);
}

Scope& Interpreter::TakeScope() {
  if (free_scopes_.empty()) return *heap_.New(Scope{scope_, {}, 0});
  Scope& scope = *free_scopes_.back();
  free_scopes_.pop_back();
  scope.parent = scope_;
  scope.size = 0;
  return scope;
}

// Does the loop's condition hold? It sees the item, but nothing of the body.
bool Interpreter::LoopAccepts(const ForStatement& statement, const Value& item) {
  Scope& scope = TakeScope();
  Assign(scope, statement.target, item);
  Scope* const outer = std::exchange(scope_, &scope);
  const bool accepts = IsTrue(Evaluate(*statement.condition));
  scope_ = outer;
  ReturnScope(scope);
  return accepts;
}

Interpreter::Flow Interpreter::ExecuteTurn(const ForStatement& statement, const Value& item, Scope& scope,
                                           LoopObject* loop) {
  heap_.Work(1);
  scope.size = 0;  // what an earlier turn set is gone
  if (loop != nullptr) SetVariable(scope, kLoopName, Value::Of(loop));
  Assign(scope, statement.target, item);
  Scope* const outer = std::exchange(scope_, &scope);
  const Flow flow = Execute(statement.body);
  scope_ = outer;
  return flow;
}

Interpreter::Flow Interpreter::ExecuteFor(const ForStatement& statement) {
  const Value iterable = Evaluate(*statement.iterable);
  offset_ = statement.offset;
  if (!statement.recursive) return ExecuteLoop(statement, iterable, 0);
  out_->Append(*ExecuteRecursive(statement, iterable, scope_, 0));
  CheckOutput();
  return Flow::kNext;
}

const Str* Interpreter::ExecuteRecursive(const ForStatement& statement, const Value& iterable, Scope* outer,
                                         int depth0) {
  const Depth depth(*this);
  if (call_depth_ >= limits_.call_depth)
    Fail("a recursive loop: calls nested deeper than " + std::to_string(limits_.call_depth) + " levels");
  ++call_depth_;
  TextBuilder text(heap_);
  TextBuilder* const outer_out = std::exchange(out_, &text);
  Scope* const outer_scope = std::exchange(scope_, outer);
  ExecuteLoop(statement, iterable, depth0);
  out_ = outer_out;
  scope_ = outer_scope;
  --call_depth_;
  return text.Finish();
}

Interpreter::Flow Interpreter::ExecuteLoop(const ForStatement& statement, const Value& iterable, int depth0) {
  std::span<const Value> items = Iterate(heap_, iterable);
  LoopObject* loop = nullptr;
  // Jinja tests an item just before its turn; with "loop" in the body, whose length counts what passes, all at once.
  const bool test_first = statement.uses_loop && statement.condition != nullptr;
  if (test_first) {
    const std::span<Value> kept = heap_.NewArray<Value>(items.size());
    size_t size = 0;
    for (const Value& item : items) {
      if (LoopAccepts(statement, item)) kept[size++] = item;
    }
    items = kept.first(size);
  }
  if (statement.uses_loop) loop = heap_.New(LoopObject{&statement, scope_, items, 0, depth0, {}, false});
  Scope& scope = TakeScope();
  bool ran_through = false;  // some turn came to its end
  for (size_t i = 0; i < items.size(); ++i) {
    if (statement.condition != nullptr && !test_first && !LoopAccepts(statement, items[i])) continue;
    if (loop != nullptr) loop->index0 = i;
    const Flow flow = ExecuteTurn(statement, items[i], scope, loop);
    if (flow == Flow::kBreak) break;
    ran_through = ran_through || flow == Flow::kNext;
  }
  if (!statement.has_macro && !statement.recursive) ReturnScope(scope);
  if (ran_through || statement.else_body.empty()) return Flow::kNext;
  Scope* const outer = std::exchange(scope_, heap_.New(Scope{scope_, {}, 0}));
  const Flow flow = Execute(statement.else_body);  // a break in there leaves the loop around this one
  scope_ = outer;
  return flow;
}

const Str* Interpreter::Capture(Block block, Scope& scope) {
  TextBuilder text(heap_);
  TextBuilder* const outer_out = std::exchange(out_, &text);
  Scope* const outer_scope = std::exchange(scope_, &scope);
  Execute(block);
  out_ = outer_out;
  scope_ = outer_scope;
  return text.Finish();
}

void Interpreter::ExecuteSetBlock(const SetBlockStatement& statement) {
  Value value = Value::Of(Capture(statement.body, *heap_.New(Scope{scope_, {}, 0})));
  for (const Suffix& filter : statement.filters) value = ApplySuffix(value, filter);
  Assign(*scope_, statement.target, value);
}

void Interpreter::ExecuteCallBlock(const CallBlockStatement& statement) {
  Value callee = Evaluate(*statement.call->base);
  for (const Suffix& suffix : statement.call->suffixes.first(statement.call->suffixes.size() - 1))
    callee = ApplySuffix(callee, suffix);
  const Suffix& call = statement.call->suffixes.back();
  const MacroObject* caller = heap_.New(MacroObject{statement.caller, scope_});
  const CallArguments arguments = EvaluateArguments(*call.arguments, Value(), caller);
  offset_ = call.offset;
  AppendText(*out_, heap_, Call(callee, arguments));
  CheckOutput();
}

void Interpreter::ExecuteFilterBlock(const FilterBlockStatement& statement) {
  Value value = Value::Of(Capture(statement.body, *heap_.New(Scope{scope_, {}, 0})));
  for (const Suffix& filter : statement.filters) value = ApplySuffix(value, filter);
  AppendText(*out_, heap_, value);
  CheckOutput();
}

Interpreter::Flow Interpreter::ExecuteWith(const WithStatement& statement) {
  Scope& scope = *heap_.New(Scope{scope_, {}, 0});
  for (size_t i = 0; i < statement.targets.size(); ++i)
    Assign(scope, statement.targets[i], Evaluate(*statement.values[i]));
  Scope* const outer = std::exchange(scope_, &scope);
  const Flow flow = Execute(statement.body);
  scope_ = outer;
  return flow;
}

}  // namespace tidemill::jinja
