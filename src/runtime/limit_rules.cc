#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>

#include "tidemill/measure.h"

namespace tidemill {
namespace {

constexpr const char* kAdvice = "the speeds hold, the shares do not: run it again when the machine is less busy";

std::string Number(double value, const char* format = "%.1f") {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string NameOf(Limit limit, size_t threads) {
  return "measure the machine's limits: " + std::string(LimitName(limit)) + ", " + std::to_string(threads) +
         (threads == 1 ? " thread" : " threads");
}

// As `rate` in a cycle, or one in as many cycles.
bool IsWhole(double rate) {
  const double number = rate >= 1 ? rate : 1 / rate;
  return std::abs(number - std::round(number)) <= kMaxDisagreement * std::round(number);
}

}  // namespace

std::string_view LimitName(Limit limit) {
  switch (limit) {
    case Limit::kRead: return "read";
    case Limit::kInt8: return "int8";
    case Limit::kBFloat16: return "bf16";
    case Limit::kF32: return "f32";
  }
  return "unknown";
}

std::string_view LimitUnit(Limit limit) {
  switch (limit) {
    case Limit::kRead: return "GB/s";
    case Limit::kInt8:
    case Limit::kBFloat16: return "Gop/s";
    case Limit::kF32: return "Gflop/s";
  }
  return "unknown";
}

Result<void> CheckLimit(Limit limit, size_t threads, const LimitRate& rate) {
  if (rate.absent) return {};
  if (rate.disagreement() > kMaxDisagreement) {
    return Error(ErrorCode::kFailedPrecondition, NameOf(limit, threads) + ": expected two loops to agree within " +
                                                     Number(kMaxDisagreement * 100, "%.0f") + " %, found " +
                                                     Number(rate.first) + " and " + Number(rate.second) + " " +
                                                     std::string(LimitUnit(limit)) + "; " + kAdvice);
  }
  if (rate.quiet_rounds == 0) {
    return Error(ErrorCode::kFailedPrecondition,
                 NameOf(limit, threads) +
                     ": expected every thread to keep its core at least once, found none of many " +
                     "short measurements where it did; " + kAdvice);
  }
  if (rate.instructions_per_cycle() > 0 && !IsWhole(rate.instructions_per_cycle())) {
    return Error(ErrorCode::kFailedPrecondition,
                 NameOf(limit, threads) + ": expected a whole number of instructions in a cycle, found " +
                     Number(rate.instructions_per_cycle(), "%.2f") + " (" + Number(rate.best()) + " " +
                     std::string(LimitUnit(limit)) + "); " + kAdvice);
  }
  return {};
}

Result<void> CheckLimits(const LimitSet& limits) {
  for (const Limit limit : kLimits) TIDEMILL_TRY_VOID(CheckLimit(limit, limits.threads, limits.of(limit)));
  return {};
}

Result<void> CheckLimits(const MachineLimits& limits) {
  TIDEMILL_TRY_VOID(CheckLimits(limits.one));
  return CheckLimits(limits.all);
}

LimitShares SharesOf(const StepWork& products, const StepWork& attention, double seconds, const LimitSet& limits) {
  for (const Limit limit : kLimits) {
    if ((limits.of(limit).best() <= 0 && !limits.of(limit).absent) || seconds <= 0) return {};
  }
  const auto least = [&](double amount, Limit limit) {
    return amount == 0 ? 0 : amount / (limits.of(limit).best() * 1e9);
  };
  struct Least {
    double seconds;
    Limit limit;
    bool operator<(const Least& other) const { return seconds < other.seconds; }
  };
  const auto longest = [&](const StepWork& work) {
    return std::max({Least{least(work.flops, Limit::kF32), Limit::kF32},
                     Least{least(work.bfloat16_ops, Limit::kBFloat16), Limit::kBFloat16},
                     Least{least(work.int8_ops, Limit::kInt8), Limit::kInt8}});
  };
  const Least products_least = longest(products), attention_least = longest(attention);
  LimitShares shares;
  shares.bandwidth = least(products.bytes + attention.bytes, Limit::kRead) / seconds;
  shares.arithmetic = (products_least.seconds + attention_least.seconds) / seconds;
  if (shares.arithmetic > shares.bandwidth) shares.binding = std::max(products_least, attention_least).limit;
  return shares;
}

Result<void> CheckShare(std::string_view figure, const LimitShares& shares, const LimitSet& limits) {
  if (shares.share() <= 1) return {};
  const double limit = limits.of(shares.binding).best();
  return Error(ErrorCode::kFailedPrecondition,
               std::string(figure) + ": expected at most 100 % of the " + std::string(LimitName(shares.binding)) +
                   " limit of " + std::to_string(limits.threads) + (limits.threads == 1 ? " thread, " : " threads, ") +
                   Number(limit) + " " + std::string(LimitUnit(shares.binding)) + ", found " +
                   Number(shares.share() * 100) + " %: the limit was measured too low, and " + kAdvice);
}

}  // namespace tidemill
