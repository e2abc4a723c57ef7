#include <algorithm>
#include <cmath>

#include "text/jinja_interpreter.h"

namespace tidemill::jinja {
namespace {

[[noreturn]] void FailOperands(std::string_view symbol, const Value& a, const Value& b) {
  if (a.is_undefined()) Fail(UndefinedMessage(a));
  if (b.is_undefined()) Fail(UndefinedMessage(b));
  Fail("unsupported operand types for " + std::string(symbol) + ": '" + std::string(TypeName(a)) + "' and '" +
       std::string(TypeName(b)) + "'");
}

std::string_view Symbol(Operator op) {
  switch (op) {
    case Operator::kAdd: return "+";
    case Operator::kSub: return "-";
    case Operator::kMul: return "*";
    case Operator::kDiv: return "/";
    case Operator::kFloorDiv: return "//";
    case Operator::kMod: return "%";
    case Operator::kPow: return "**";
    default: return "comparison";
  }
}

int64_t IntPower(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
      Fail("the result of ** does not fit in 64 bits");
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) {
      Fail("the result of ** does not fit in 64 bits");
    }
  }
  return result;
}

Value IntArithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd: overflow = __builtin_add_overflow(a, b, &result); break;
    case Operator::kSub: overflow = __builtin_sub_overflow(a, b, &result); break;
    case Operator::kMul: overflow = __builtin_mul_overflow(a, b, &result); break;
    case Operator::kDiv:
      if (b == 0) Fail("division by zero");
      return Value::Float(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDiv:
    case Operator::kMod: {
      if (b == 0) Fail("division by zero");
      overflow = b == -1 && a == INT64_MIN;
      if (overflow) break;
      const bool round_down = a % b != 0 && (a % b < 0) != (b < 0);  // towards minus infinity, as Python does
      result = op == Operator::kFloorDiv ? a / b - (round_down ? 1 : 0) : a % b + (round_down ? b : 0);
      break;
    }
    default:
      if (b >= 0) {
        if (a == 0 || a == 1) return Value::Int(b == 0 ? 1 : a);
        if (a == -1) return Value::Int(b % 2 == 0 ? 1 : -1);
        return Value::Int(IntPower(a, b));
      }
      if (a == 0) Fail("zero cannot be raised to a negative power");
      return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  if (overflow) Fail("the result of " + std::string(Symbol(op)) + " does not fit in 64 bits");
  return Value::Int(result);
}

Value FloatArithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd: return Value::Float(a + b);
    case Operator::kSub: return Value::Float(a - b);
    case Operator::kMul: return Value::Float(a * b);
    case Operator::kDiv:
      if (b == 0) Fail("division by zero");
      return Value::Float(a / b);
    case Operator::kFloorDiv:
    case Operator::kMod: {
      if (b == 0) Fail("division by zero");
      double rest = std::fmod(a, b);
      double quotient = (a - rest) / b;
      if (rest != 0 && (rest < 0) != (b < 0)) {
        rest += b;
        quotient -= 1;
      }
      if (op == Operator::kMod) return Value::Float(rest == 0 ? std::copysign(0.0, b) : rest);
      if (quotient == 0) return Value::Float(std::copysign(0.0, a / b));
      const double floor = std::floor(quotient);
      return Value::Float(quotient - floor > 0.5 ? floor + 1 : floor);
    }
    default: {
      if (a == 0 && b < 0) Fail("zero cannot be raised to a negative power");
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
        Fail("a negative number to a fractional power is not real");
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) Fail("the result of ** is out of range");
      return Value::Float(result);
    }
  }
}

bool IsListLike(const Value& value) {
  return value.kind == Kind::kSequence &&
         (value.sequence->form == Sequence::Form::kList || value.sequence->form == Sequence::Form::kTuple ||
          value.sequence->form == Sequence::Form::kGroup);
}

Value Repeat(Heap& heap, const Value& what, int64_t count) {
  const uint64_t times = count > 0 ? static_cast<uint64_t>(count) : 0;
  if (what.is_string()) {
    TextBuilder text(heap);
    if (!what.text().empty() && times > heap.bytes_left() / what.text().size()) heap.Charge(SIZE_MAX);
    for (uint64_t i = 0; i < times && !what.text().empty(); ++i) text.Append(*what.str);
    heap.Work(what.text().empty() ? 0 : times / 8);
    return Value::Of(text.Finish(what.is_markup()));
  }
  const std::span<const Value> items = what.sequence->items;
  if (!items.empty() && times > heap.bytes_left() / sizeof(Value) / items.size()) heap.Charge(SIZE_MAX);
  const std::span<Value> repeated = heap.NewArray<Value>(items.empty() ? 0 : items.size() * times);
  heap.Work(repeated.size() / 8);
  for (size_t i = 0; i < repeated.size(); ++i) repeated[i] = items[i % items.size()];
  return NewSequence(heap, what.sequence->form, repeated, what.caller);
}

}  // namespace

Value Arithmetic(Heap& heap, Operator op, const Value& a, const Value& b) {
  const bool caller = a.caller || b.caller;
  if (a.is_integral() && b.is_integral()) return IntArithmetic(op, a.AsInt(), b.AsInt()).FromCaller(caller);
  if (a.is_number() && b.is_number()) return FloatArithmetic(op, a.AsFloat(), b.AsFloat()).FromCaller(caller);
  if (op == Operator::kMod && a.is_string()) return FormatPercent(heap, *a.str, b);
  if (op == Operator::kAdd && a.is_string() && b.is_string()) {
    const bool markup = a.is_markup() || b.is_markup();
    if (a.text().size() >= kLongText && (a.is_markup() || !markup))
      return Value::Of(JoinStr(heap, *a.str, markup ? *EscapeStr(heap, *b.str) : *b.str, markup));
    TextBuilder text(heap);
    text.Append(markup ? *EscapeStr(heap, *a.str) : *a.str);
    text.Append(markup ? *EscapeStr(heap, *b.str) : *b.str);
    return Value::Of(text.Finish(markup));
  }
  if (op == Operator::kAdd && IsListLike(a) && IsListLike(b) &&
      (a.sequence->form == Sequence::Form::kList) == (b.sequence->form == Sequence::Form::kList)) {
    Sequence joined = *a.sequence;
    joined.items = heap.Extend(a.sequence->items, b.sequence->items);
    if (joined.form == Sequence::Form::kGroup) joined.form = Sequence::Form::kTuple;
    joined.caller = caller;
    joined.depth = std::max(a.sequence->depth, b.sequence->depth);
    return Value::Of(heap.New(joined));
  }
  if (op == Operator::kMul && b.is_integral() && (a.is_string() || IsListLike(a))) return Repeat(heap, a, b.AsInt());
  if (op == Operator::kMul && a.is_integral() && (b.is_string() || IsListLike(b))) return Repeat(heap, b, a.AsInt());
  FailOperands(Symbol(op), a, b);
}

bool CompareValues(Heap& heap, Operator op, const Value& a, const Value& b) {
  bool unordered = false;
  switch (op) {
    case Operator::kEq: return Equals(heap, a, b);
    case Operator::kNe: return !Equals(heap, a, b);
    case Operator::kLt: return Compare(heap, a, b, &unordered) < 0 && !unordered;
    case Operator::kLe: return Compare(heap, a, b, &unordered) <= 0 && !unordered;
    case Operator::kGt: return Compare(heap, a, b, &unordered) > 0 && !unordered;
    case Operator::kGe: return Compare(heap, a, b, &unordered) >= 0 && !unordered;
    case Operator::kIn: return Contains(heap, b, a);
    case Operator::kNotIn: return !Contains(heap, b, a);
    default: Fail("not a comparison");
  }
}

bool Contains(Heap& heap, const Value& container, const Value& item) {
  switch (container.kind) {
    case Kind::kString:
      if (item.is_undefined()) Fail(UndefinedMessage(item));
      if (!item.is_string())
        Fail("\"in\" a string needs a string on the left, not a '" + std::string(TypeName(item)) + "'");
      return FindText(heap, container.text(), item.text(), 0) != std::string_view::npos;
    case Kind::kMapping:
      if (!IsHashable(heap, item)) Fail("unhashable type: '" + std::string(TypeName(item)) + "'");
      return FindKey(heap, *container.mapping, item) != nullptr;
    case Kind::kUndefined: return false;
    case Kind::kSequence:
    case Kind::kGenerator: {
      for (const Value& element : Iterate(heap, container)) {
        heap.Work(1);
        if (Equals(heap, element, item)) return true;
      }
      return false;
    }
    default: Fail("\"in\" needs a container on the right, not a '" + std::string(TypeName(container)) + "'");
  }
}

}  // namespace tidemill::jinja
