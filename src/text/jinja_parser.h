// Builds the tree of a template. Recursive descent with one counter for every kind of nesting.
#ifndef TIDEMILL_TEXT_JINJA_PARSER_H_
#define TIDEMILL_TEXT_JINJA_PARSER_H_

#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace tidemill::jinja {

inline constexpr size_t kMaxChain = 1000;   // operands of one chain, filters on one value, parameters of one call
inline constexpr size_t kMaxList = 100000;  // elements of one list written in the template

// Throws TemplateError with an offset into `source`, which is normalised (jinja_lexer.h) and outlives the tree, as does
// `heap`. `max_nesting` counts brackets, prefix operators, conditional expressions and blocks within one another.
ParsedTemplate Parse(Heap& heap, std::string_view source, int max_nesting);

class Parser {
 public:
  Parser(Heap& heap, std::string_view source, int max_nesting)
      : heap_(heap), tokens_(Tokenize(heap, source)), max_nesting_(max_nesting) {}

  ParsedTemplate Run();

 private:
  class Nesting;  // counts one level while it lives

  [[noreturn]] void FailHere(std::string message) const;
  [[noreturn]] void FailAt(uint32_t offset, std::string message) const;
  [[noreturn]] void FailExpected(std::string_view what) const;

  const Token& current() const { return tokens_[next_]; }
  const Token& following() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  void Advance() { next_ = std::min(next_ + 1, tokens_.size() - 1); }
  bool AtOperator(std::string_view text) const {
    return current().type == TokenType::kOperator && current().text == text;
  }
  bool AtName(std::string_view text) const { return current().type == TokenType::kName && current().text == text; }
  bool SkipOperator(std::string_view text);
  bool SkipName(std::string_view text);
  void ExpectOperator(std::string_view text);
  void ExpectName(std::string_view text);
  void ExpectBlockEnd();
  std::string_view ExpectAnyName();
  NameId Intern(std::string_view name);
  template <typename T>
  void CheckCount(const std::vector<T>& items, size_t limit, std::string_view what) const {
    if (items.size() > limit) FailCount(limit, what);
  }
  [[noreturn]] void FailNesting() const;
  [[noreturn]] void FailCount(size_t limit, std::string_view what) const;

  // jinja_parser.cc: statements
  Block ParseBody(std::initializer_list<std::string_view> ends);     // stops at "{% end": the name is the current token
  Block ParseBlockOf(std::initializer_list<std::string_view> ends);  // the same after the "%}" of the opening tag
  const Statement* ParseStatement();
  const Statement* ParseIf(uint32_t offset);
  const Statement* ParseFor(uint32_t offset);
  const Statement* ParseSet(uint32_t offset);
  const Statement* ParseMacro(uint32_t offset);
  const Statement* ParseCallBlock(uint32_t offset);
  const Statement* ParseFilterBlock(uint32_t offset);
  const Statement* ParseWith(uint32_t offset);
  const Statement* ParseGeneration(uint32_t offset);
  const Statement* ParseNamedBlock(uint32_t offset);
  const Statement* ParseLoopControl(uint32_t offset, StatementKind kind);
  void ParseSignature(std::vector<NameId>& parameters, std::vector<const Expr*>& defaults);
  // Fills the body and what it uses. The current token is the "%}" of the opening tag.
  void ParseMacroBody(MacroStatement& macro, std::string_view end);
  Target ParseTarget(bool allow_tuple, bool allow_attribute);
  Target ParseSingleTarget(bool allow_attribute);

  // jinja_parser_expressions.cc
  const Expr* ParseExpression();  // with "a if b else c"
  const Expr* ParseTuple(bool with_condition, bool in_parentheses, std::string_view end_name = {});
  const Expr* ParseOr();
  const Expr* ParseAnd();
  const Expr* ParseNot();
  const Expr* ParseCompare();
  const Expr* ParseSum();
  const Expr* ParseConcat();
  const Expr* ParseProduct();
  const Expr* ParsePower();
  const Expr* ParseUnary(bool with_filters);
  const Expr* ParsePrimary();
  const Expr* ParseList();
  const Expr* ParseDict();
  const Expr* ParseSuffixes(const Expr* base, bool with_filters);
  Suffix ParseSubscript();
  Suffix ParseFilter();
  void ReadFilterName(Suffix& filter);  // name and arguments, after the "|"
  Suffix ParseTest();
  std::vector<Suffix> ParseFilters();  // "|a|b", may be empty
  const Arguments* ParseArguments();
  const Expr* MakeChain(ExprKind kind, uint32_t offset, const Expr* first, const std::vector<Operator>& operators,
                        const std::vector<const Expr*>& items);
  const Expr* MakeList(ExprKind kind, uint32_t offset, const std::vector<const Expr*>& items);

  Heap& heap_;
  std::vector<Token> tokens_;
  size_t next_ = 0;
  int nesting_ = 0;
  int max_nesting_;
  int loop_depth_ = 0;  // loops around the current statement, within the current macro
  std::vector<MacroStatement*> open_macros_;
  std::vector<ForStatement*> open_loops_;
  std::vector<std::string_view> block_names_;
  std::vector<std::string_view> names_;
  std::unordered_map<std::string_view, NameId> name_ids_;
};

// Counts one level of nesting while it lives.
class Parser::Nesting {
 public:
  explicit Nesting(Parser& parser) : parser_(parser) {
    if (++parser_.nesting_ > parser_.max_nesting_) parser_.FailNesting();
  }
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser& parser_;
};

}  // namespace tidemill::jinja

#endif  // TIDEMILL_TEXT_JINJA_PARSER_H_
