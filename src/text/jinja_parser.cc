#include "text/jinja_parser.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tidemill::jinja {
namespace {

std::string Describe(const Token& token) {
  switch (token.type) {
    case TokenType::kData: return "text";
    case TokenType::kVariableBegin: return "\"{{\"";
    case TokenType::kVariableEnd: return "\"}}\"";
    case TokenType::kBlockBegin: return "\"{%\"";
    case TokenType::kBlockEnd: return "\"%}\"";
    case TokenType::kName:
    case TokenType::kOperator: return "\"" + ForMessage(token.text, 60) + "\"";
    case TokenType::kString: return "a string";
    case TokenType::kInteger:
    case TokenType::kFloat: return "a number";
    case TokenType::kEnd: return "the end of the template";
  }
  return "something else";
}

}  // namespace

void Parser::FailAt(uint32_t offset, std::string message) const {
  throw TemplateError{ErrorCode::kInvalidArgument, std::move(message), offset};
}
void Parser::FailHere(std::string message) const { FailAt(current().offset, std::move(message)); }
void Parser::FailExpected(std::string_view what) const {
  FailHere("expected " + std::string(what) + ", found " + Describe(current()));
}

void Parser::FailCount(size_t limit, std::string_view what) const {
  FailHere("more than " + std::to_string(limit) + " " + std::string(what));
}
void Parser::FailNesting() const { FailHere("nested deeper than " + std::to_string(max_nesting_) + " levels"); }

bool Parser::SkipOperator(std::string_view text) {
  const bool here = AtOperator(text);
  if (here) Advance();
  return here;
}
bool Parser::SkipName(std::string_view text) {
  const bool here = AtName(text);
  if (here) Advance();
  return here;
}
void Parser::ExpectOperator(std::string_view text) {
  if (!SkipOperator(text)) FailExpected("\"" + std::string(text) + "\"");
}
void Parser::ExpectName(std::string_view text) {
  if (!SkipName(text)) FailExpected("\"" + std::string(text) + "\"");
}
void Parser::ExpectBlockEnd() {
  if (current().type != TokenType::kBlockEnd) FailExpected("\"%}\"");
  Advance();
}
std::string_view Parser::ExpectAnyName() {
  if (current().type != TokenType::kName) FailExpected("a name");
  const std::string_view name = current().text;
  Advance();
  return name;
}

NameId Parser::Intern(std::string_view name) {
  const auto [entry, is_new] = name_ids_.try_emplace(name, static_cast<NameId>(names_.size()));
  if (is_new) {
    heap_.Charge(4 * sizeof(name));
    names_.push_back(name);
  }
  return entry->second;
}

ParsedTemplate Parser::Run() {
  for (const std::string_view name : {"loop", "caller", "varargs", "kwargs"})
    Intern(name);  // kLoopName, ... in this order
  const Block body = ParseBody({});
  std::vector<NameId> in_order(names_.size());
  std::iota(in_order.begin(), in_order.end(), NameId{0});
  std::sort(in_order.begin(), in_order.end(), [this](NameId a, NameId b) { return names_[a] < names_[b]; });
  return {body, heap_.Copy(names_), heap_.Copy(in_order)};
}

Block Parser::ParseBody(std::initializer_list<std::string_view> ends) {
  const Nesting nesting(*this);
  std::vector<const Statement*> body;
  const uint32_t begin = current().offset;
  while (true) {
    const Token& token = current();
    Advance();
    switch (token.type) {
      case TokenType::kData:
        body.push_back(
            heap_.New(TextStatement{{StatementKind::kText, token.offset}, BorrowStr(heap_, token.text, false)}));
        break;
      case TokenType::kVariableBegin: {
        const Expr* value = ParseTuple(true, false);
        body.push_back(heap_.New(PrintStatement{{StatementKind::kPrint, value->offset}, value}));
        if (current().type != TokenType::kVariableEnd) FailExpected("\"}}\"");
        Advance();
        break;
      }
      case TokenType::kBlockBegin: {
        const bool at_end = std::any_of(ends.begin(), ends.end(), [this](std::string_view end) { return AtName(end); });
        if (at_end) return heap_.Copy(body);
        if (const Statement* statement = ParseStatement()) body.push_back(statement);
        ExpectBlockEnd();
        break;
      }
      default:  // kEnd
        if (ends.size() != 0)
          FailAt(begin, "a block is not closed: expected \"{% " + std::string(*(ends.end() - 1)) + " %}\"");
        return heap_.Copy(body);
    }
  }
}

Block Parser::ParseBlockOf(std::initializer_list<std::string_view> ends) {
  SkipOperator(":");
  ExpectBlockEnd();
  return ParseBody(ends);
}

const Statement* Parser::ParseStatement() {
  const uint32_t offset = current().offset;
  if (current().type != TokenType::kName) FailExpected("the name of a tag");
  const std::string_view tag = ExpectAnyName();
  if (tag == "if") return ParseIf(offset);
  if (tag == "for") return ParseFor(offset);
  if (tag == "set") return ParseSet(offset);
  if (tag == "macro") return ParseMacro(offset);
  if (tag == "call") return ParseCallBlock(offset);
  if (tag == "filter") return ParseFilterBlock(offset);
  if (tag == "with") return ParseWith(offset);
  if (tag == "generation") return ParseGeneration(offset);
  if (tag == "block") return ParseNamedBlock(offset);
  if (tag == "break") return ParseLoopControl(offset, StatementKind::kBreak);
  if (tag == "continue") return ParseLoopControl(offset, StatementKind::kContinue);
  if (tag == "print") {
    std::vector<const Expr*> values;
    while (current().type != TokenType::kBlockEnd) {
      if (!values.empty()) ExpectOperator(",");
      values.push_back(ParseExpression());
      CheckCount(values, kMaxChain, "values of one \"print\"");
    }
    return heap_.New(PrintStatement{{StatementKind::kPrint, offset}, MakeList(ExprKind::kConcat, offset, values)});
  }
  if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
    FailAt(offset, "the tag \"" + std::string(tag) + "\" is not supported: a chat template stands alone");
  }
  if (tag == "autoescape")
    FailAt(offset, "the tag \"autoescape\" is not supported: use the filter escape where text is escaped");
  if (tag.starts_with("end"))
    FailAt(offset, "\"" + ForMessage(tag, 60) + "\" closes nothing here: another block is open, or none");
  FailAt(offset, "unknown tag \"" + ForMessage(tag, 60) + "\"");
}

const Statement* Parser::ParseIf(uint32_t offset) {
  std::vector<const Expr*> tests;
  std::vector<Block> bodies;
  IfStatement statement{{StatementKind::kIf, offset}, {}, {}, {}};
  while (true) {
    tests.push_back(ParseTuple(false, false));
    bodies.push_back(ParseBlockOf({"elif", "else", "endif"}));
    if (SkipName("elif")) continue;
    if (SkipName("else")) {
      statement.else_body = ParseBlockOf({"endif"});
    }
    ExpectName("endif");
    break;
  }
  statement.tests = heap_.Copy(tests);
  statement.bodies = heap_.Copy(bodies);
  return heap_.New(statement);
}

const Statement* Parser::ParseFor(uint32_t offset) {
  ForStatement statement{{StatementKind::kFor, offset}, {}, nullptr, nullptr, {}, {}, false, false, false};
  statement.target = ParseTarget(true, false);
  ExpectName("in");
  statement.iterable = ParseTuple(false, false, "recursive");
  if (SkipName("if")) statement.condition = ParseExpression();
  statement.recursive = SkipName("recursive");
  statement.uses_loop = statement.recursive;
  ++loop_depth_;
  open_loops_.push_back(&statement);
  statement.body = ParseBlockOf({"else", "endfor"});
  open_loops_.pop_back();
  --loop_depth_;
  if (SkipName("else")) {
    const int outer_loops = std::exchange(loop_depth_, statement.recursive ? 0 : loop_depth_);
    statement.else_body = ParseBlockOf({"endfor"});
    loop_depth_ = outer_loops;
  }
  ExpectName("endfor");
  return heap_.New(statement);
}

Target Parser::ParseSingleTarget(bool allow_attribute) {
  Target target;
  target.offset = current().offset;
  const std::string_view name = ExpectAnyName();
  for (const std::string_view reserved : {"true", "True", "false", "False", "none", "None"}) {
    if (name == reserved) FailAt(target.offset, "cannot assign to \"" + std::string(name) + "\"");
  }
  if (name == "loop" && loop_depth_ > 0) FailAt(target.offset, "cannot assign to \"loop\" within a loop");
  target.name = Intern(name);
  if (allow_attribute && SkipOperator(".")) target.attribute = BorrowStr(heap_, ExpectAnyName(), false);
  return target;
}

Target Parser::ParseTarget(bool allow_tuple, bool allow_attribute) {
  const uint32_t offset = current().offset;
  std::vector<Target> elements;
  bool is_tuple = false;
  const Nesting nesting(*this);
  while (elements.empty() || is_tuple) {
    if (current().type != TokenType::kName && !AtOperator("(")) break;  // after a last comma
    if (AtName("in") && is_tuple) break;
    if (SkipOperator("(")) {
      elements.push_back(ParseTarget(true, allow_attribute));
      ExpectOperator(")");
    } else {
      elements.push_back(ParseSingleTarget(allow_attribute));
    }
    CheckCount(elements, kMaxChain, "targets of one assignment");
    if (!allow_tuple || !SkipOperator(",")) break;
    is_tuple = true;
  }
  if (elements.empty()) FailExpected("a name to assign to");
  if (!is_tuple) return elements.front();
  Target target;
  target.elements = heap_.Copy(elements);
  target.is_tuple = true;
  target.offset = offset;
  return target;
}

const Statement* Parser::ParseSet(uint32_t offset) {
  const Target target = ParseTarget(true, true);
  if (SkipOperator("=")) {
    const Expr* value = ParseTuple(true, false);
    return heap_.New(SetStatement{{StatementKind::kSet, offset}, target, value});
  }
  if (target.is_tuple) FailExpected("\"=\"");
  const std::vector<Suffix> filters = ParseFilters();
  const int outer_loops = std::exchange(loop_depth_, 0);
  const Block body = ParseBlockOf({"endset"});
  loop_depth_ = outer_loops;
  ExpectName("endset");
  return heap_.New(SetBlockStatement{{StatementKind::kSetBlock, offset}, target, heap_.Copy(filters), body});
}

void Parser::ParseSignature(std::vector<NameId>& parameters, std::vector<const Expr*>& defaults) {
  ExpectOperator("(");
  while (!AtOperator(")")) {
    const uint32_t offset = current().offset;
    const std::string_view name = ExpectAnyName();
    const NameId id = Intern(name);
    if (std::find(parameters.begin(), parameters.end(), id) != parameters.end()) {
      FailAt(offset, "the parameter \"" + std::string(name) + "\" stands twice");
    }
    parameters.push_back(id);
    CheckCount(parameters, kMaxChain, "parameters of one macro");
    if (SkipOperator("=")) {
      defaults.push_back(ParseExpression());
    } else if (!defaults.empty()) {
      FailHere("a parameter without a default follows one with a default");
    }
    if (!AtOperator(")")) ExpectOperator(",");
  }
  ExpectOperator(")");
}

void Parser::ParseMacroBody(MacroStatement& macro, std::string_view end) {
  const int outer_loops = std::exchange(loop_depth_, 0);
  open_macros_.push_back(&macro);
  for (ForStatement* loop : open_loops_) loop->has_macro = true;
  macro.body = ParseBlockOf({end});
  open_macros_.pop_back();
  loop_depth_ = outer_loops;
  ExpectName(end);
}

const Statement* Parser::ParseMacro(uint32_t offset) {
  MacroStatement macro{{StatementKind::kMacro, offset}, 0, nullptr, {}, {}, {}, false, false, false};
  const std::string_view name = ExpectAnyName();
  macro.name = Intern(name);
  macro.name_text = BorrowStr(heap_, name, false);
  std::vector<NameId> parameters;
  std::vector<const Expr*> defaults;
  ParseSignature(parameters, defaults);
  macro.parameters = heap_.Copy(parameters);
  macro.defaults = heap_.Copy(defaults);
  ParseMacroBody(macro, "endmacro");
  return heap_.New(macro);
}

const Statement* Parser::ParseCallBlock(uint32_t offset) {
  MacroStatement caller{
      {StatementKind::kMacro, offset}, 0, BorrowStr(heap_, "caller", false), {}, {}, {}, false, false, false};
  std::vector<NameId> parameters;
  std::vector<const Expr*> defaults;
  if (AtOperator("(")) ParseSignature(parameters, defaults);
  caller.parameters = heap_.Copy(parameters);
  caller.defaults = heap_.Copy(defaults);
  const Expr* call = ParseExpression();
  const auto* postfix = call->kind == ExprKind::kPostfix ? static_cast<const PostfixExpr*>(call) : nullptr;
  if (postfix == nullptr || postfix->suffixes.back().kind != SuffixKind::kCall)
    FailAt(offset, "expected a call after \"call\"");
  ParseMacroBody(caller, "endcall");
  return heap_.New(CallBlockStatement{{StatementKind::kCallBlock, offset}, postfix, heap_.New(caller)});
}

const Statement* Parser::ParseFilterBlock(uint32_t offset) {
  std::vector<Suffix> filters;
  Suffix first{
      SuffixKind::kFilter, false, current().offset, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  ReadFilterName(first);
  filters.push_back(first);
  for (const Suffix& filter : ParseFilters()) filters.push_back(filter);
  const int outer_loops = std::exchange(loop_depth_, 0);
  const Block body = ParseBlockOf({"endfilter"});
  loop_depth_ = outer_loops;
  ExpectName("endfilter");
  return heap_.New(FilterBlockStatement{{StatementKind::kFilterBlock, offset}, heap_.Copy(filters), body});
}

const Statement* Parser::ParseWith(uint32_t offset) {
  std::vector<Target> targets;
  std::vector<const Expr*> values;
  while (current().type != TokenType::kBlockEnd) {
    if (!targets.empty()) ExpectOperator(",");
    targets.push_back(ParseSingleTarget(false));
    CheckCount(targets, kMaxChain, "names of one \"with\"");
    ExpectOperator("=");
    values.push_back(ParseExpression());
  }
  const Block body = ParseBlockOf({"endwith"});
  ExpectName("endwith");
  return heap_.New(WithStatement{{StatementKind::kWith, offset}, heap_.Copy(targets), heap_.Copy(values), body});
}

// {% generation %} marks what the assistant said, for training. It only renders, in a scope of its own.
const Statement* Parser::ParseGeneration(uint32_t offset) {
  const int outer_loops = std::exchange(loop_depth_, 0);
  const Block body = ParseBlockOf({"endgeneration"});
  loop_depth_ = outer_loops;
  ExpectName("endgeneration");
  return heap_.New(ScopeStatement{{StatementKind::kScope, offset}, body, false});
}

// {% block name %} is what a template that extends this one would replace; here it renders in its place.
const Statement* Parser::ParseNamedBlock(uint32_t offset) {
  const std::string_view name = ExpectAnyName();
  if (std::find(block_names_.begin(), block_names_.end(), name) != block_names_.end())
    FailAt(offset, "the block \"" + ForMessage(name, 60) + "\" stands twice");
  block_names_.push_back(name);
  CheckCount(block_names_, kMaxChain, "blocks");
  const bool scoped = SkipName("scoped");
  if (AtName("required")) FailHere("a required block is not supported: a chat template stands alone");
  const int outer_loops = std::exchange(loop_depth_, 0);
  const Block body = ParseBlockOf({"endblock"});
  loop_depth_ = outer_loops;
  ExpectName("endblock");
  SkipName(name);
  return heap_.New(ScopeStatement{{StatementKind::kScope, offset}, body, !scoped});
}

const Statement* Parser::ParseLoopControl(uint32_t offset, StatementKind kind) {
  if (loop_depth_ == 0) FailAt(offset, "\"break\" or \"continue\" outside a loop");
  return heap_.New(Statement{kind, offset});
}

ParsedTemplate Parse(Heap& heap, std::string_view source, int max_nesting) {
  return Parser(heap, source, max_nesting).Run();
}

}  // namespace tidemill::jinja
