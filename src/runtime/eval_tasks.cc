#include "runtime/eval_tasks.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "runtime/eval_prose.h"

namespace tidemill {
namespace {

constexpr std::string_view kTaskNames[] = {"repetition", "passkey", "codes", "choice", "notes", "functions", "bpc"};
static_assert(std::size(kTaskNames) == kEvalTasks.size());

constexpr size_t kNumCodes = 8, kNumNotes = 4;
constexpr size_t kMinPeople = 8, kMaxPeople = 64;  // 7 to 63 confusing passages
constexpr size_t kMinFunctions = 4;

Error TooSmall(const EvalItemSpec& spec, size_t needed) {
  return Error(ErrorCode::kInvalidArgument, "make a context of " + std::string(EvalTaskName(spec.task)) +
                                                ": expected at least " + std::to_string(needed) + " tokens, found " +
                                                std::to_string(spec.context_tokens) +
                                                "; choose a larger --context-tokens");
}

struct Assembled {
  std::string text;
  size_t fillers = 0;  // how many are in it, the first ones
};

// `head`, then `needed` at drawn places between as many fillers as there is room for. A filler is made from its number; empty: there are no more.
Result<Assembled> Assemble(const EvalItemSpec& spec, const TokenCounter& count, EvalRandom& random,
                           const std::string& head, const std::vector<std::string>& needed,
                           const std::function<std::string(size_t)>& filler) {
  TIDEMILL_TRY(used, count(head));
  for (const std::string& text : needed) {
    TIDEMILL_TRY(tokens, count(text));
    used += tokens;
  }
  if (used > spec.context_tokens) return TooSmall(spec, used);
  std::vector<std::string> fillers;
  for (;;) {
    std::string text = filler(fillers.size());
    if (text.empty()) break;
    TIDEMILL_TRY(tokens, count(text));
    if (used + tokens > spec.context_tokens) break;
    used += tokens;
    fillers.push_back(std::move(text));
  }
  std::vector<size_t> places;  // of needed ones: behind so many fillers
  for (size_t i = 0; i < needed.size(); ++i) places.push_back(random.Below(fillers.size() + 1));
  std::sort(places.begin(), places.end());
  // Parts may have fewer tokens apart than together.
  for (;;) {
    Assembled made = {.text = head, .fillers = fillers.size()};
    size_t next = 0;
    for (size_t i = 0; i <= fillers.size(); ++i) {
      for (; next < needed.size() && (places[next] <= i || i == fillers.size()); ++next) made.text += needed[next];
      if (i < fillers.size()) made.text += fillers[i];
    }
    TIDEMILL_TRY(tokens, count(made.text));
    if (tokens <= spec.context_tokens) return made;
    if (fillers.empty()) return TooSmall(spec, tokens);
    fillers.pop_back();
  }
}

Result<EvalItem> MakePasskey(const EvalItemSpec& spec, const TokenCounter& count, EvalRandom& random) {
  const std::string answer = " is " + EightDigits(random) + ", and it opens " + PlaceName(random) + ".";
  const std::vector<std::string> needed = {"The secret key" + answer + " "};
  TIDEMILL_TRY(made, Assemble(spec, count, random, "A secret key is hidden in this text. Remember it.\n\n", needed,
                              [&](size_t) { return ProseSentence(random); }));
  return EvalItem{.context = std::move(made.text), .questions = {{.text = "\n\nThe secret key", .answer = answer}}};
}

Result<EvalItem> MakeCodes(const EvalItemSpec& spec, const TokenCounter& count, EvalRandom& random) {
  const std::vector<std::string> names = PeopleNames(random, kNumCodes);
  std::vector<std::string> answers, needed;
  for (const std::string& name : names) {
    answers.push_back(" is " + EightDigits(random) + ", and it opens " + PlaceName(random) + ".");
    needed.push_back("The code of " + name + answers.back() + " ");
  }
  TIDEMILL_TRY(made, Assemble(spec, count, random, "Some people have codes. Remember them.\n\n", needed,
                              [&](size_t) { return ProseSentence(random); }));
  EvalItem item = {.context = std::move(made.text), .questions = {}};
  for (const size_t i : random.Sample(kNumCodes, spec.num_questions))
    item.questions.push_back({.text = "\n\nThe code of " + names[i], .answer = answers[i]});
  return item;
}

Result<EvalItem> MakeChoice(const EvalItemSpec& spec, const TokenCounter& count, EvalRandom& random) {
  const std::vector<std::string> names = PeopleNames(random, kMaxPeople);
  const auto kinds = FactKinds();
  std::vector<std::vector<std::string_view>> values(names.size());
  for (auto& own : values) {
    for (const FactKind& kind : kinds) own.push_back(random.Pick(kind.values));
  }
  const auto passage = [&](size_t i) {
    std::string text;
    for (size_t f = 0; i < names.size() && f < kinds.size(); ++f)
      text += FillPattern(kinds[f].fact, names[i], values[i][f], {}) + (f + 1 < kinds.size() ? " " : "\n\n");
    return text;
  };
  TIDEMILL_TRY(made, Assemble(spec, count, random, "", {}, passage));
  if (made.fillers < kMinPeople) {
    size_t needed = 0;
    for (size_t i = 0; i < kMinPeople; ++i) {
      TIDEMILL_TRY(tokens, count(passage(i)));
      needed += tokens;
    }
    return TooSmall(spec, needed);
  }
  EvalItem item = {.context = std::move(made.text), .questions = {}};
  for (const size_t i : random.Sample(made.fillers, spec.num_questions)) {
    const size_t f = random.Below(kinds.size());
    const std::string_view right = values[i][f];
    std::string_view wrong = right;
    while (wrong == right) wrong = random.Pick(kinds[f].values);
    const bool right_first = random.Below(2) == 0;
    item.questions.push_back(
        {.text = "Question: " +
                 FillPattern(kinds[f].question, names[i], right_first ? right : wrong, right_first ? wrong : right) +
                 "\nAnswer:",
         .answer = FillPattern(kinds[f].answer, names[i], right, wrong)});
  }
  return item;
}

Result<EvalItem> MakeNotes(const EvalItemSpec& spec, const TokenCounter& count, EvalRandom& random) {
  std::string answer;
  std::vector<std::string> needed;
  for (size_t i = 0; i < kNumNotes; ++i) {
    needed.push_back("NOTE: the " + ThingName(random) + " is behind " + PlaceName(random) + ".\n");
    answer += needed.back();
  }
  TIDEMILL_TRY(made, Assemble(spec, count, random, "", needed, [&](size_t) {
                 std::string line = ProseSentence(random);
                 line.back() = '\n';
                 return line;
               }));
  return EvalItem{.context = std::move(made.text),
                  .questions = {{.text = "\nThe lines above that begin with NOTE, in their order:\n",
                                 .answer = std::move(answer)}}};
}

Result<EvalItem> MakeFunctions(const EvalItemSpec& spec, const TokenCounter& count, EvalRandom& random) {
  const std::vector<PythonFunction> functions = PythonFunctions(random, kMaxFunctions);
  const auto text = [&](size_t i) {
    return i < functions.size() ? "def " + functions[i].name + "(" + functions[i].rest + "\n\n" : std::string();
  };
  TIDEMILL_TRY(made, Assemble(spec, count, random, "", {}, text));
  if (made.fillers < kMinFunctions) {
    size_t needed = 0;
    for (size_t i = 0; i < kMinFunctions; ++i) {
      TIDEMILL_TRY(tokens, count(text(i)));
      needed += tokens;
    }
    return TooSmall(spec, needed);
  }
  EvalItem item = {.context = std::move(made.text), .questions = {}};
  for (const size_t i : random.Sample(made.fillers, spec.num_questions))
    item.questions.push_back({.text = "def " + functions[i].name + "(", .answer = functions[i].rest});
  return item;
}

bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// The end of the word that byte `from` is in, or of the text; a run without blanks ends after some bytes, between characters.
size_t WordEnd(std::string_view text, size_t from) {
  constexpr size_t kLongestWord = 64;
  const size_t last = std::min(text.size(), from + kLongestWord);
  while (from < last && IsBlank(text[from])) ++from;
  while (from < last && !IsBlank(text[from])) ++from;
  while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) ++from;
  return from;
}

// The end of a piece of some words, or of its line.
size_t PieceEnd(std::string_view text, size_t from) {
  constexpr size_t kPieceBytes = 160;
  const size_t begin = from;
  while (from < text.size() && from - begin < kPieceBytes) {
    const size_t end = WordEnd(text, from), line = text.find('\n', from);
    if (line != std::string_view::npos && line < end) return line + 1;
    from = end;
  }
  return from;
}

// The end of the words from `from` on that have so many tokens; none: the text ends before.
Result<std::optional<size_t>> EndAfterTokens(std::string_view text, size_t from, size_t tokens,
                                             const TokenCounter& count) {
  for (size_t end = from; end < text.size();) {
    end = WordEnd(text, end);
    TIDEMILL_TRY(found, count(text.substr(from, end - from)));
    if (found >= tokens) return std::optional(end);
  }
  return std::optional<size_t>();
}

// A stretch of the text of up to as many tokens as a context has, and where its pieces begin.
struct Stretch {
  std::string_view text;
  std::vector<size_t> pieces;
  size_t begin = 0;  // in the whole text
};

Result<std::optional<Stretch>> TakeStretch(const EvalItemSpec& spec, const TokenCounter& count, std::string_view text,
                                           size_t begin) {
  Stretch made = {.text = {}, .pieces = {}, .begin = begin};
  size_t used = 0;
  for (size_t at = begin;;) {
    if (at == text.size()) return std::optional<Stretch>();
    const size_t end = PieceEnd(text, at);
    TIDEMILL_TRY(tokens, count(text.substr(at, end - at)));
    if (used + tokens > spec.context_tokens) break;
    used += tokens;
    made.pieces.push_back(at - begin);
    at = end;
    made.text = text.substr(begin, at - begin);
  }
  for (;; made.text = made.text.substr(0, made.pieces.back()), made.pieces.pop_back()) {
    if (made.pieces.empty()) return std::optional<Stretch>();
    TIDEMILL_TRY(tokens, count(made.text));
    if (tokens <= spec.context_tokens) return std::optional(std::move(made));
  }
}

// From a drawn line on, or from the beginning where the text ends too early.
Result<Stretch> DrawStretch(const EvalItemSpec& spec, const TokenCounter& count, EvalRandom& random,
                            size_t tokens_behind) {
  const std::string_view text = spec.text;
  constexpr size_t kTries = 8;
  for (size_t i = 0; i <= kTries && !text.empty(); ++i) {
    const size_t drawn = i == kTries ? 0 : random.Below(text.size());
    const size_t line = drawn == 0 ? 0 : text.find('\n', drawn - 1);
    if (line == std::string_view::npos) continue;
    const size_t begin = drawn == 0 ? 0 : line + 1;
    TIDEMILL_TRY(stretch, TakeStretch(spec, count, text, begin));
    if (!stretch) continue;
    if (tokens_behind != 0) {
      TIDEMILL_TRY(end, EndAfterTokens(text, begin + stretch->text.size(), tokens_behind, count));
      if (!end) continue;
    }
    return *std::move(stretch);
  }
  TIDEMILL_TRY(tokens, count(text));
  return Error(ErrorCode::kInvalidArgument,
               "make a context of " + std::string(EvalTaskName(spec.task)) + ": the text: expected more than " +
                   std::to_string(spec.context_tokens + tokens_behind) + " tokens, found " + std::to_string(tokens) +
                   "; give a longer one with -f FILE");
}

Result<EvalItem> MakeRepetition(const EvalItemSpec& spec, const TokenCounter& count, EvalRandom& random) {
  constexpr size_t kSnippetBytes = 60, kTries = 64;
  std::string prose;
  std::optional<Stretch> stretch;
  if (spec.text.empty()) {
    // More than the context: pieces of it may have fewer tokens than sentences.
    for (size_t used = 0; used <= spec.context_tokens + spec.context_tokens / 4;) {
      std::string sentence = ProseSentence(random);
      if (random.Below(4) == 0) sentence.back() = '\n';
      TIDEMILL_TRY(tokens, count(sentence));
      used += tokens;
      prose += sentence;
    }
    TIDEMILL_TRY(taken_from_prose, TakeStretch(spec, count, prose, 0));
    stretch = std::move(taken_from_prose);
  } else {
    TIDEMILL_TRY(drawn, DrawStretch(spec, count, random, 0));
    stretch = std::move(drawn);
  }
  if (!stretch) return TooSmall(spec, 4 * spec.answer_tokens);
  EvalItem item = {.context = std::string(stretch->text), .questions = {}};
  const std::string_view text = item.context;
  std::vector<size_t> taken;
  for (size_t i = 0; i < kTries && item.questions.size() < spec.num_questions; ++i) {
    const size_t begin = stretch->pieces[random.Below(stretch->pieces.size())];
    if (begin < text.size() / 10 || begin > text.size() / 10 * 8) continue;
    if (std::find(taken.begin(), taken.end(), begin) != taken.end()) continue;
    size_t end = begin;
    while (end < text.size() && end - begin < kSnippetBytes) end = WordEnd(text, end);
    const std::string_view snippet = text.substr(begin, end - begin);
    if (text.find(snippet) != begin || text.find(snippet, begin + 1) != std::string_view::npos) continue;
    TIDEMILL_TRY(answer_end, EndAfterTokens(text, end, spec.answer_tokens, count));
    if (!answer_end) continue;
    taken.push_back(begin);
    item.questions.push_back(
        {.text = "\n\n" + std::string(snippet), .answer = std::string(text.substr(end, *answer_end - end))});
  }
  if (item.questions.empty()) return TooSmall(spec, 4 * spec.answer_tokens);
  return item;
}

Result<EvalItem> MakeBpc(const EvalItemSpec& spec, const TokenCounter& count, EvalRandom& random) {
  if (spec.text.empty())
    return Error(ErrorCode::kInvalidArgument,
                 "make a context of bpc: expected a text, found none; give one with -f FILE");
  const size_t before = 8;  // tokens of the text that are the question
  TIDEMILL_TRY(stretch, DrawStretch(spec, count, random, before + spec.answer_tokens));
  const std::string_view rest = spec.text.substr(stretch.begin + stretch.text.size());
  TIDEMILL_TRY(question, EndAfterTokens(rest, 0, before, count));
  TIDEMILL_TRY(end, EndAfterTokens(rest, question.value_or(0), spec.answer_tokens, count));
  const size_t middle = question.value_or(0);
  return EvalItem{.context = std::string(stretch.text),
                  .questions = {{.text = std::string(rest.substr(0, middle)),
                                 .answer = std::string(rest.substr(middle, end.value_or(rest.size()) - middle))}}};
}

}  // namespace

std::string_view EvalTaskName(EvalTask task) { return kTaskNames[static_cast<size_t>(task)]; }

Result<EvalTask> ParseEvalTask(std::string_view name) {
  std::string all;
  for (const EvalTask task : kEvalTasks) {
    if (EvalTaskName(task) == name) return task;
    all += (all.empty() ? "" : " ") + std::string(EvalTaskName(task));
  }
  return Error(ErrorCode::kInvalidArgument, "choose a task: '" + std::string(name) + "': expected one of " + all);
}

Result<EvalItem> MakeEvalItem(const EvalItemSpec& spec, const TokenCounter& count) {
  // Lengths of one index are different texts, too.
  EvalRandom random(spec.seed,
                    uint64_t{spec.index} << 32 | uint64_t{spec.context_tokens} << 4 | static_cast<uint64_t>(spec.task));
  switch (spec.task) {
    case EvalTask::kRepetition: return MakeRepetition(spec, count, random);
    case EvalTask::kPasskey: return MakePasskey(spec, count, random);
    case EvalTask::kCodes: return MakeCodes(spec, count, random);
    case EvalTask::kChoice: return MakeChoice(spec, count, random);
    case EvalTask::kNotes: return MakeNotes(spec, count, random);
    case EvalTask::kFunctions: return MakeFunctions(spec, count, random);
    case EvalTask::kBpc: return MakeBpc(spec, count, random);
  }
  return Error(ErrorCode::kInvalidArgument, "make a context: no such task");
}

}  // namespace tidemill
