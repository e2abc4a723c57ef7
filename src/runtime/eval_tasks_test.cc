#include "runtime/eval_tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/eval_prose.h"

namespace tidemill::eval_tasks_test {
namespace {

using ::testing::HasSubstr;

// About as a tokenizer would: a token for every four bytes of a word, and one for other marks.
Result<size_t> CountTokens(std::string_view text) {
  size_t tokens = 0, word = 0;
  for (const char c : text) {
    const bool is_letter = c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    word = is_letter ? word + 1 : 0;
    if (is_letter ? word % 4 == 1 : c != ' ') ++tokens;
  }
  return tokens;
}

size_t Tokens(std::string_view text) { return CountTokens(text).value(); }

// Lines of different words, as of a long text.
std::string LongText() {
  EvalRandom random(77, 1);
  std::string text;
  for (int i = 0; i < 600; ++i) {
    text += ProseSentence(random);
    if (i % 3 == 2) text.back() = '\n';
  }
  return text;
}

EvalItemSpec SpecOf(EvalTask task, std::string_view text) {
  return {.task = task,
          .seed = 5,
          .index = 2,
          .context_tokens = 1500,
          .num_questions = 3,
          .answer_tokens = 24,
          .text = text};
}

EvalItem Make(const EvalItemSpec& spec) {
  Result<EvalItem> item = MakeEvalItem(spec, CountTokens);
  if (!item.ok()) ADD_FAILURE() << EvalTaskName(spec.task) << ": " << item.error().message();
  return item.ok() ? std::move(item).value() : EvalItem{.context = "", .questions = {{.text = "", .answer = ""}}};
}

size_t Occurrences(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(EvalTasks, Names_AreReadBack) {
  for (const EvalTask task : kEvalTasks) EXPECT_EQ(ParseEvalTask(EvalTaskName(task)).value(), task);
  const auto bad = ParseEvalTask("recall");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(bad.error().message(), HasSubstr("repetition passkey codes choice notes functions bpc"));
}

TEST(EvalTasks, SameSeedAndIndex_SameItem) {
  const std::string text = LongText();
  for (const EvalTask task : kEvalTasks) {
    const EvalItemSpec spec = SpecOf(task, text);
    const EvalItem item = Make(spec), again = Make(spec);
    EXPECT_EQ(item.context, again.context);
    ASSERT_EQ(item.questions.size(), again.questions.size());
    EXPECT_EQ(item.questions[0].text + item.questions[0].answer, again.questions[0].text + again.questions[0].answer);
    EvalItemSpec other_index = spec, other_seed = spec;
    other_index.index = 3;
    other_seed.seed = 6;
    EXPECT_NE(Make(other_index).context, item.context) << EvalTaskName(task);
    EXPECT_NE(Make(other_seed).context, item.context) << EvalTaskName(task);
  }
}

TEST(EvalTasks, Context_FillsItsBudgetAndNoMore) {
  const std::string text = LongText();
  for (const EvalTask task : kEvalTasks) {
    for (const size_t budget : {700, 1500, 4000}) {
      EvalItemSpec spec = SpecOf(task, text);
      spec.context_tokens = budget;
      const size_t tokens = Tokens(Make(spec).context);
      EXPECT_LE(tokens, budget) << EvalTaskName(task);
      // There are 100 functions and 64 people.
      const bool has_all = (task == EvalTask::kFunctions || task == EvalTask::kChoice) && budget == 4000;
      EXPECT_GE(tokens, has_all ? 3000 : budget - 80) << EvalTaskName(task);
    }
  }
}

TEST(EvalTasks, Answers_StandInTheContext) {
  const std::string text = LongText();
  for (const EvalTask task : {EvalTask::kRepetition, EvalTask::kPasskey, EvalTask::kCodes, EvalTask::kFunctions}) {
    for (size_t index = 0; index < 8; ++index) {
      const bool has_prose = task == EvalTask::kRepetition && index % 2 == 0;
      EvalItemSpec spec = SpecOf(task, has_prose ? std::string_view() : std::string_view(text));
      spec.index = index;
      const EvalItem item = Make(spec);
      EXPECT_EQ(item.questions.size(), task == EvalTask::kPasskey ? 1U : 3U) << EvalTaskName(task);
      std::set<std::string> asked;
      for (const EvalQuestion& question : item.questions) {
        const std::string begins = question.text.substr(question.text.find_first_not_of('\n'));
        EXPECT_EQ(Occurrences(item.context, begins), 1U) << EvalTaskName(task) << ": " << begins;
        EXPECT_EQ(Occurrences(item.context, begins + question.answer), 1U)
            << EvalTaskName(task) << ": " << question.answer;
        EXPECT_GE(Tokens(question.answer), kMinAnswerTokens);
        EXPECT_TRUE(asked.insert(question.text).second) << "asked twice: " << question.text;
      }
    }
  }
}

TEST(EvalTasks, Choice_OneOfTwoIsAFactOfThePerson) {
  for (size_t index = 0; index < 8; ++index) {
    EvalItemSpec spec = SpecOf(EvalTask::kChoice, "");
    spec.index = index;
    const EvalItem item = Make(spec);
    const size_t passages = Occurrences(item.context, "\n\n");
    EXPECT_GE(passages, 8U);
    EXPECT_LE(passages, 64U);
    for (const EvalQuestion& question : item.questions) {
      // " Mara Velden was born in Tarn, and not in Ribe."
      const size_t comma = question.answer.find(',');
      EXPECT_EQ(Occurrences(item.context, question.answer.substr(1, comma - 1) + "."), 1U) << question.answer;
      const size_t last = question.answer.rfind(" and not ");
      ASSERT_NE(last, std::string::npos);
      std::string wrong = question.answer.substr(last + 9);
      wrong.pop_back();
      EXPECT_THAT(question.text, HasSubstr(wrong)) << question.answer;
      EXPECT_GE(Tokens(question.answer), kMinAnswerTokens);
    }
  }
}

TEST(EvalTasks, Notes_AreTheTaggedLinesInTheirOrder) {
  const EvalItem item = Make(SpecOf(EvalTask::kNotes, ""));
  std::string notes;
  for (size_t begin = 0; begin < item.context.size();) {
    const size_t end = item.context.find('\n', begin) + 1;
    const std::string line = item.context.substr(begin, end - begin);
    if (line.starts_with("NOTE")) notes += line;
    begin = end;
  }
  EXPECT_EQ(Occurrences(notes, "\n"), 4U);
  EXPECT_EQ(item.questions[0].answer, notes);
}

TEST(EvalTasks, Bpc_GoesOnWithTheText) {
  const std::string text = LongText();
  const EvalItem item = Make(SpecOf(EvalTask::kBpc, text));
  ASSERT_EQ(item.questions.size(), 1U);
  EXPECT_THAT(text, HasSubstr(item.context + item.questions[0].text + item.questions[0].answer));
  EXPECT_GE(Tokens(item.questions[0].answer), 24U);
}

TEST(EvalTasks, TooLittleRoomOrText_IsNamed) {
  const std::string text = LongText();
  for (const EvalTask task : kEvalTasks) {
    EvalItemSpec spec = SpecOf(task, task == EvalTask::kRepetition ? std::string_view() : std::string_view(text));
    spec.context_tokens = 12;
    if (task == EvalTask::kBpc) spec.context_tokens = 100000;
    const auto item = MakeEvalItem(spec, CountTokens);
    ASSERT_FALSE(item.ok()) << EvalTaskName(task);
    EXPECT_EQ(item.error().code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(item.error().message(),
                HasSubstr(task == EvalTask::kBpc ? "longer one with -f FILE" : "larger --context-tokens"));
  }
  EvalItemSpec spec = SpecOf(EvalTask::kRepetition, "a few words\n");
  EXPECT_THAT(MakeEvalItem(spec, CountTokens).error().message(), HasSubstr("expected more than 1500 tokens, found 5"));
  spec = SpecOf(EvalTask::kBpc, "");
  EXPECT_THAT(MakeEvalItem(spec, CountTokens).error().message(), HasSubstr("expected a text, found none"));
}

TEST(EvalTasks, CounterThatFails_EndsTheItem) {
  const std::string text = LongText();
  for (const EvalTask task : kEvalTasks) {
    const auto item = MakeEvalItem(
        SpecOf(task, text), [](std::string_view) -> Result<size_t> { return Error(ErrorCode::kOutOfMemory, "count"); });
    ASSERT_FALSE(item.ok()) << EvalTaskName(task);
    EXPECT_EQ(item.error().code(), ErrorCode::kOutOfMemory);
  }
}

TEST(EvalTasks, TextWithoutBlanks_IsCutBetweenCharacters) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += i % 7 == 0 ? "\xE4\xB8\x80" : "\xE4\xBA\x8C";
  EvalItemSpec spec = SpecOf(EvalTask::kBpc, text);
  const auto count = [](std::string_view part) -> Result<size_t> { return part.size() / 3; };
  const auto item = MakeEvalItem(spec, count);
  ASSERT_TRUE(item.ok()) << item.error().message();
  for (const std::string& part : {item->context, item->questions[0].text, item->questions[0].answer})
    EXPECT_EQ(part.size() % 3, 0U);
}

}  // namespace
}  // namespace tidemill::eval_tasks_test
