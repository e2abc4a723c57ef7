#include <algorithm>
#include <array>

#include "text/jinja_builtins.h"
#include "text/jinja_parser.h"

namespace tidemill::jinja {

const Expr* Parser::MakeChain(ExprKind kind, uint32_t offset, const Expr* first, const std::vector<Operator>& operators,
                              const std::vector<const Expr*>& items) {
  if (items.empty()) return first;
  return heap_.New(ChainExpr{{kind, offset}, first, heap_.Copy(operators), heap_.Copy(items)});
}

const Expr* Parser::MakeList(ExprKind kind, uint32_t offset, const std::vector<const Expr*>& items) {
  return heap_.New(ListExpr{{kind, offset}, heap_.Copy(items)});
}

// a if b else c; without "else" the value is undefined when b is false. "a if b if c" groups from the left.
const Expr* Parser::ParseExpression() {
  const Nesting nesting(*this);
  const uint32_t offset = current().offset;
  const Expr* value = ParseOr();
  size_t conditions = 0;
  while (SkipName("if")) {
    if (++conditions > static_cast<size_t>(max_nesting_)) FailHere("too many conditions in one expression");
    const Expr* test = ParseOr();
    const Expr* else_value = SkipName("else") ? ParseExpression() : nullptr;
    value = heap_.New(CondExpr{{ExprKind::kCond, offset}, test, value, else_value});
  }
  return value;
}

const Expr* Parser::ParseOr() {
  const uint32_t offset = current().offset;
  const Expr* first = ParseAnd();
  if (!AtName("or")) return first;
  std::vector<const Expr*> items = {first};
  while (SkipName("or")) {
    CheckCount(items, kMaxChain, "operands of \"or\"");
    items.push_back(ParseAnd());
  }
  return MakeList(ExprKind::kOr, offset, items);
}

const Expr* Parser::ParseAnd() {
  const uint32_t offset = current().offset;
  const Expr* first = ParseNot();
  if (!AtName("and")) return first;
  std::vector<const Expr*> items = {first};
  while (SkipName("and")) {
    CheckCount(items, kMaxChain, "operands of \"and\"");
    items.push_back(ParseNot());
  }
  return MakeList(ExprKind::kAnd, offset, items);
}

const Expr* Parser::ParseNot() {
  if (!AtName("not")) return ParseCompare();
  const Nesting nesting(*this);
  const uint32_t offset = current().offset;
  Advance();
  return heap_.New(UnaryExpr{{ExprKind::kNot, offset}, ParseNot()});
}

const Expr* Parser::ParseCompare() {
  static constexpr std::array<std::pair<std::string_view, Operator>, 6> kComparisons = {{{"==", Operator::kEq},
                                                                                         {"!=", Operator::kNe},
                                                                                         {"<=", Operator::kLe},
                                                                                         {">=", Operator::kGe},
                                                                                         {"<", Operator::kLt},
                                                                                         {">", Operator::kGt}}};
  const uint32_t offset = current().offset;
  const Expr* first = ParseSum();
  std::vector<Operator> operators;
  std::vector<const Expr*> items;
  while (true) {
    const auto found = std::find_if(kComparisons.begin(), kComparisons.end(),
                                    [this](const auto& entry) { return AtOperator(entry.first); });
    if (found != kComparisons.end()) {
      Advance();
      operators.push_back(found->second);
    } else if (SkipName("in")) {
      operators.push_back(Operator::kIn);
    } else if (AtName("not") && following().type == TokenType::kName && following().text == "in") {
      Advance();
      Advance();
      operators.push_back(Operator::kNotIn);
    } else {
      return MakeChain(ExprKind::kCompare, offset, first, operators, items);
    }
    CheckCount(operators, kMaxChain, "comparisons in one chain");
    items.push_back(ParseSum());
  }
}

const Expr* Parser::ParseSum() {
  const uint32_t offset = current().offset;
  const Expr* first = ParseConcat();
  std::vector<Operator> operators;
  std::vector<const Expr*> items;
  while (AtOperator("+") || AtOperator("-")) {
    operators.push_back(current().text == "+" ? Operator::kAdd : Operator::kSub);
    CheckCount(operators, kMaxChain, "terms in one sum");
    Advance();
    items.push_back(ParseConcat());
  }
  return MakeChain(ExprKind::kArithmetic, offset, first, operators, items);
}

const Expr* Parser::ParseConcat() {
  const uint32_t offset = current().offset;
  const Expr* first = ParseProduct();
  if (!AtOperator("~")) return first;
  std::vector<const Expr*> items = {first};
  while (SkipOperator("~")) {
    CheckCount(items, kMaxChain, "operands of \"~\"");
    items.push_back(ParseProduct());
  }
  return MakeList(ExprKind::kConcat, offset, items);
}

const Expr* Parser::ParseProduct() {
  static constexpr std::array<std::pair<std::string_view, Operator>, 4> kFactors = {
      {{"*", Operator::kMul}, {"/", Operator::kDiv}, {"//", Operator::kFloorDiv}, {"%", Operator::kMod}}};
  const uint32_t offset = current().offset;
  const Expr* first = ParsePower();
  std::vector<Operator> operators;
  std::vector<const Expr*> items;
  while (true) {
    const auto found =
        std::find_if(kFactors.begin(), kFactors.end(), [this](const auto& entry) { return AtOperator(entry.first); });
    if (found == kFactors.end()) return MakeChain(ExprKind::kArithmetic, offset, first, operators, items);
    operators.push_back(found->second);
    CheckCount(operators, kMaxChain, "factors in one product");
    Advance();
    items.push_back(ParsePower());
  }
}

const Expr* Parser::ParsePower() {  // groups from the left, unlike Python
  const uint32_t offset = current().offset;
  const Expr* first = ParseUnary(true);
  std::vector<Operator> operators;
  std::vector<const Expr*> items;
  while (SkipOperator("**")) {
    operators.push_back(Operator::kPow);
    CheckCount(operators, kMaxChain, "operands of \"**\"");
    items.push_back(ParseUnary(true));
  }
  return MakeChain(ExprKind::kArithmetic, offset, first, operators, items);
}

// Filters bind to the whole of "-a", but attributes and calls to "a".
const Expr* Parser::ParseUnary(bool with_filters) {
  const uint32_t offset = current().offset;
  if (!AtOperator("-") && !AtOperator("+")) return ParseSuffixes(ParsePrimary(), with_filters);
  const Nesting nesting(*this);
  const ExprKind kind = current().text == "-" ? ExprKind::kNegate : ExprKind::kPlus;
  Advance();
  return ParseSuffixes(heap_.New(UnaryExpr{{kind, offset}, ParseUnary(false)}), with_filters);
}

const Expr* Parser::ParsePrimary() {
  const Token& token = current();
  const uint32_t offset = token.offset;
  const auto constant = [this, offset](Value value) { return heap_.New(ConstExpr{{ExprKind::kConst, offset}, value}); };
  switch (token.type) {
    case TokenType::kName: {
      Advance();
      if (token.text == "true" || token.text == "True") return constant(Value::Bool(true));
      if (token.text == "false" || token.text == "False") return constant(Value::Bool(false));
      if (token.text == "none" || token.text == "None") return constant(Value::None());
      if (token.text == "loop") {
        for (ForStatement* loop : open_loops_) loop->uses_loop = true;
      }
      for (MacroStatement* macro : open_macros_) {
        macro->uses_varargs = macro->uses_varargs || token.text == "varargs";
        macro->uses_kwargs = macro->uses_kwargs || token.text == "kwargs";
        macro->uses_caller = macro->uses_caller || token.text == "caller";
      }
      return heap_.New(NameExpr{{ExprKind::kName, offset}, Intern(token.text), FindFunction(token.text)});
    }
    case TokenType::kString: {
      Advance();
      if (current().type != TokenType::kString) return constant(Value::Of(BorrowStr(heap_, token.text, false)));
      std::string joined(token.text);  // adjacent strings are one
      for (; current().type == TokenType::kString; Advance()) joined += current().text;
      return constant(Value::Of(NewStr(heap_, joined, false)));
    }
    case TokenType::kInteger: Advance(); return constant(Value::Int(token.integer));
    case TokenType::kFloat: Advance(); return constant(Value::Float(token.real));
    default: break;
  }
  if (SkipOperator("(")) {
    const Expr* value = ParseTuple(true, true);
    ExpectOperator(")");
    return value;
  }
  if (AtOperator("[")) return ParseList();
  if (AtOperator("{")) return ParseDict();
  FailExpected("an expression");
}

// One expression, or several with commas between them: a tuple.
const Expr* Parser::ParseTuple(bool with_condition, bool in_parentheses, std::string_view end_name) {
  const uint32_t offset = current().offset;
  std::vector<const Expr*> items;
  bool is_tuple = false;
  while (true) {
    if (current().type == TokenType::kVariableEnd || current().type == TokenType::kBlockEnd || AtOperator(")") ||
        (!end_name.empty() && AtName(end_name))) {
      break;
    }
    items.push_back(with_condition ? ParseExpression() : ParseOr());
    CheckCount(items, kMaxList, "elements of one tuple");
    if (!SkipOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return items.front();
  if (!is_tuple && !in_parentheses) FailExpected("an expression");
  return MakeList(ExprKind::kTuple, offset, items);
}

const Expr* Parser::ParseList() {
  const uint32_t offset = current().offset;
  ExpectOperator("[");
  std::vector<const Expr*> items;
  while (!AtOperator("]")) {
    items.push_back(ParseExpression());
    CheckCount(items, kMaxList, "elements of one list");
    if (!AtOperator("]")) ExpectOperator(",");
  }
  ExpectOperator("]");
  return MakeList(ExprKind::kList, offset, items);
}

const Expr* Parser::ParseDict() {
  const uint32_t offset = current().offset;
  ExpectOperator("{");
  std::vector<const Expr*> items;
  while (!AtOperator("}")) {
    items.push_back(ParseExpression());
    ExpectOperator(":");
    items.push_back(ParseExpression());
    CheckCount(items, 2 * kMaxList, "elements of one dict");
    if (!AtOperator("}")) ExpectOperator(",");
  }
  ExpectOperator("}");
  return heap_.New(DictExpr{{ExprKind::kDict, offset}, heap_.Copy(items)});
}

// .name [item] (arguments), and with filters also |name and "is name". After the first filter or test only those and calls
// follow, as in Jinja.
const Expr* Parser::ParseSuffixes(const Expr* base, bool with_filters) {
  std::vector<Suffix> suffixes;
  bool filtered = false;
  while (true) {
    CheckCount(suffixes, kMaxChain, "filters and attributes on one value");
    if (!filtered && (AtOperator(".") || AtOperator("["))) {
      suffixes.push_back(ParseSubscript());
    } else if (AtOperator("(")) {
      const uint32_t offset = current().offset;
      Suffix call{SuffixKind::kCall, false, offset, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
      call.arguments = ParseArguments();
      suffixes.push_back(call);
    } else if (with_filters && AtOperator("|")) {
      suffixes.push_back(ParseFilter());
      filtered = true;
    } else if (with_filters && AtName("is")) {
      suffixes.push_back(ParseTest());
      filtered = true;
    } else {
      break;
    }
  }
  if (suffixes.empty()) return base;
  return heap_.New(PostfixExpr{{ExprKind::kPostfix, base->offset}, base, heap_.Copy(suffixes)});
}

Suffix Parser::ParseSubscript() {
  Suffix suffix{
      SuffixKind::kAttribute, false, current().offset, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  if (SkipOperator(".")) {
    const Token& name = current();
    if (name.type == TokenType::kName) {
      suffix.name = BorrowStr(heap_, name.text, false);
      suffix.may_be_method = IsMethodName(name.text);
    } else if (name.type == TokenType::kInteger) {
      suffix.kind = SuffixKind::kItem;
      suffix.item = heap_.New(ConstExpr{{ExprKind::kConst, name.offset}, Value::Int(name.integer)});
    } else {
      FailExpected("a name or a number after \".\"");
    }
    Advance();
    return suffix;
  }
  ExpectOperator("[");
  suffix.kind = SuffixKind::kItem;
  if (!AtOperator(":")) suffix.item = ParseExpression();
  if (SkipOperator(":")) {
    suffix.kind = SuffixKind::kSlice;
    if (!AtOperator("]") && !AtOperator(":")) suffix.stop = ParseExpression();
    if (SkipOperator(":") && !AtOperator("]")) suffix.step = ParseExpression();
  } else if (AtOperator(",")) {
    std::vector<const Expr*> items = {suffix.item};
    while (SkipOperator(",")) {
      if (AtOperator("]")) break;
      items.push_back(ParseExpression());
      CheckCount(items, kMaxChain, "elements of one subscript");
    }
    suffix.item = MakeList(ExprKind::kTuple, suffix.offset, items);
  }
  ExpectOperator("]");
  return suffix;
}

Suffix Parser::ParseFilter() {
  ExpectOperator("|");
  Suffix suffix{
      SuffixKind::kFilter, false, current().offset, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  ReadFilterName(suffix);
  return suffix;
}

void Parser::ReadFilterName(Suffix& filter) {
  const std::string_view name = ExpectAnyName();
  filter.name = BorrowStr(heap_, name, false);
  filter.filter = FindFilter(name);
  filter.arguments = AtOperator("(") ? ParseArguments() : heap_.New(Arguments{});
}

std::vector<Suffix> Parser::ParseFilters() {
  std::vector<Suffix> filters;
  while (AtOperator("|")) {
    filters.push_back(ParseFilter());
    CheckCount(filters, kMaxChain, "filters on one value");
  }
  return filters;
}

// "is [not] name", then arguments in parentheses or one argument without: "is divisibleby 3".
Suffix Parser::ParseTest() {
  ExpectName("is");
  Suffix suffix{SuffixKind::kTest, SkipName("not"), current().offset, nullptr, nullptr,
                nullptr,           nullptr,         nullptr,          nullptr, nullptr};
  const std::string_view name = ExpectAnyName();
  suffix.name = BorrowStr(heap_, name, false);
  suffix.test = FindTest(name);
  const TokenType type = current().type;
  const bool at_argument = type == TokenType::kString || type == TokenType::kInteger || type == TokenType::kFloat ||
                           AtOperator("[") || AtOperator("{") ||
                           (type == TokenType::kName && !AtName("else") && !AtName("or") && !AtName("and"));
  if (AtOperator("(")) {
    suffix.arguments = ParseArguments();
  } else if (at_argument) {
    if (AtName("is")) FailHere("tests cannot be chained with \"is\"");
    const std::array<const Expr*, 1> argument = {ParseSuffixes(ParsePrimary(), false)};
    suffix.arguments =
        heap_.New(Arguments{heap_.Copy(std::span<const Expr* const>(argument)), {}, {}, nullptr, nullptr});
  } else {
    suffix.arguments = heap_.New(Arguments{});
  }
  return suffix;
}

const Arguments* Parser::ParseArguments() {
  ExpectOperator("(");
  std::vector<const Expr*> positional;
  std::vector<const Str*> names;
  std::vector<const Expr*> values;
  Arguments arguments{};
  while (!AtOperator(")")) {
    if (SkipOperator("*")) {
      if (arguments.star != nullptr || arguments.star_star != nullptr)
        FailHere("a call takes one * and it stands before **");
      arguments.star = ParseExpression();
    } else if (SkipOperator("**")) {
      if (arguments.star_star != nullptr) FailHere("a call takes one **");
      arguments.star_star = ParseExpression();
    } else if (current().type == TokenType::kName && following().type == TokenType::kOperator &&
               following().text == "=") {
      if (arguments.star_star != nullptr) FailHere("a keyword argument cannot follow **");
      const std::string_view name = ExpectAnyName();
      ExpectOperator("=");
      for (const Str* earlier : names) {
        if (earlier->bytes == name) FailHere("the keyword argument \"" + std::string(name) + "\" is given twice");
      }
      names.push_back(BorrowStr(heap_, name, false));
      values.push_back(ParseExpression());
    } else {
      if (arguments.star != nullptr || arguments.star_star != nullptr || !names.empty()) {
        FailHere("a positional argument cannot follow a keyword argument, * or **");
      }
      positional.push_back(ParseExpression());
    }
    CheckCount(positional, kMaxChain, "arguments of one call");
    CheckCount(names, kMaxChain, "arguments of one call");
    if (!AtOperator(")")) ExpectOperator(",");
  }
  ExpectOperator(")");
  arguments.positional = heap_.Copy(positional);
  arguments.keyword_names = heap_.Copy(names);
  arguments.keyword_values = heap_.Copy(values);
  return heap_.New(arguments);
}

}  // namespace tidemill::jinja
