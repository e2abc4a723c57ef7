// The parsed template. Nodes live in the template's Heap, are trivially destructible and never change. Chains (a + b + c,
// a.b(c)|d is e) are flat arrays, so that the depth of the tree is the depth of nesting in the source.
#ifndef TIDEMILL_TEXT_JINJA_AST_H_
#define TIDEMILL_TEXT_JINJA_AST_H_

#include <cstdint>
#include <span>

#include "text/jinja_value.h"

namespace tidemill::jinja {

using NameId = uint32_t;  // index into ParsedTemplate::names

struct FilterInfo;    // jinja_builtins.h
struct TestInfo;      // jinja_builtins.h
struct FunctionInfo;  // jinja_builtins.h

// --- expressions ---

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kList,
  kTuple,
  kDict,
  kCond,
  kAnd,
  kOr,
  kNot,
  kNegate,
  kPlus,
  kArithmetic,
  kConcat,
  kCompare,
  kPostfix
};

struct Expr {
  ExprKind kind;
  uint32_t offset;  // in the normalised source
};
using Exprs = std::span<const Expr* const>;

struct ConstExpr : Expr {
  Value value;
};

struct NameExpr : Expr {
  NameId name;
  const FunctionInfo* function;  // the built-in of that name, or null
};

struct ListExpr : Expr {  // kList, kTuple, kAnd, kOr, kConcat
  Exprs items;
};

struct DictExpr : Expr {  // keys and values in turn
  Exprs items;
};

struct CondExpr : Expr {
  const Expr* test;
  const Expr* then_value;
  const Expr* else_value;  // may be null
};

struct UnaryExpr : Expr {  // kNot, kNegate, kPlus
  const Expr* operand;
};

enum class Operator : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFloorDiv,
  kMod,
  kPow,
  kEq,
  kNe,
  kLt,
  kLe,
  kGt,
  kGe,
  kIn,
  kNotIn
};

// first op[0] items[0] op[1] items[1] ...; kArithmetic from left to right, kCompare as Python chains comparisons.
struct ChainExpr : Expr {
  const Expr* first;
  std::span<const Operator> operators;
  Exprs items;
};

struct Arguments {
  Exprs positional;
  std::span<const Str* const> keyword_names;
  Exprs keyword_values;
  const Expr* star;       // *expr, or null
  const Expr* star_star;  // **expr, or null

  bool IsEmpty() const {
    return positional.empty() && keyword_names.empty() && star == nullptr && star_star == nullptr;
  }
};

enum class SuffixKind : uint8_t { kAttribute, kItem, kSlice, kCall, kFilter, kTest };

struct Suffix {
  SuffixKind kind;
  bool negated;  // kTest
  uint32_t offset;
  const Str* name;             // kAttribute, kFilter, kTest
  const Expr* item;            // kItem; kSlice: start, may be null
  const Expr* stop;            // kSlice, may be null
  const Expr* step;            // kSlice, may be null
  const Arguments* arguments;  // kCall, kFilter, kTest
  const FilterInfo* filter;    // null: no such filter
  const TestInfo* test;        // null: no such test
  bool may_be_method = true;   // kAttribute: some type has a method of that name
};

struct PostfixExpr : Expr {
  const Expr* base;
  std::span<const Suffix> suffixes;
};

// --- statements ---

enum class StatementKind : uint8_t {
  kText,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue
};

struct Statement {
  StatementKind kind;
  uint32_t offset;
};
using Block = std::span<const Statement* const>;

struct TextStatement : Statement {
  const Str* text;
};

struct PrintStatement : Statement {
  const Expr* value;
};

struct IfStatement : Statement {
  Exprs tests;
  std::span<const Block> bodies;  // one for each test
  Block else_body;
};

// What a value is assigned to: a name, an attribute of a namespace, or several of these.
struct Target {
  NameId name = 0;
  const Str* attribute = nullptr;    // of the namespace `name`
  std::span<const Target> elements;  // of a tuple; then `name` means nothing
  bool is_tuple = false;
  uint32_t offset = 0;
};

struct ForStatement : Statement {
  Target target;
  const Expr* iterable;
  const Expr* condition;  // may be null
  Block body;
  Block else_body;
  bool uses_loop;  // the variable "loop" stands somewhere in the body
  bool recursive;  // loop(items) runs the body for other items
  bool has_macro;  // a macro or a call block stands in the body, and keeps the variables of a turn
};

struct SetStatement : Statement {
  Target target;
  const Expr* value;
};

struct SetBlockStatement : Statement {
  Target target;
  std::span<const Suffix> filters;
  Block body;
};

struct MacroStatement : Statement {
  NameId name;
  const Str* name_text;
  std::span<const NameId> parameters;
  Exprs defaults;  // of the last parameters
  Block body;
  bool uses_varargs;
  bool uses_kwargs;
  bool uses_caller;
};

struct CallBlockStatement : Statement {
  const PostfixExpr* call;  // its last suffix is the call
  const MacroStatement* caller;
};

struct FilterBlockStatement : Statement {
  std::span<const Suffix> filters;
  Block body;
};

struct WithStatement : Statement {
  std::span<const Target> targets;
  Exprs values;
  Block body;
};

struct ScopeStatement : Statement {
  Block body;
  bool sees_top_only;  // a block that is not scoped: of the template's variables, not those of loops around it
};

// Names that mean something to the interpreter have fixed ids.
inline constexpr NameId kLoopName = 0;
inline constexpr NameId kCallerName = 1;
inline constexpr NameId kVarargsName = 2;
inline constexpr NameId kKwargsName = 3;

struct ParsedTemplate {
  Block body;
  std::span<const std::string_view> names;  // of all variables; NameId is the index
  std::span<const NameId> names_in_order;   // of their text
};

}  // namespace tidemill::jinja

#endif  // TIDEMILL_TEXT_JINJA_AST_H_
