#include "text/jinja_lexer.h"

#include <gtest/gtest.h>

#include <string>

namespace tidemill::jinja::jinja_lexer_test {
namespace {

// The tokens on one line: data in quotes, delimiters and names as they are.
std::string Tokens(const std::string& source) {
  Heap heap(size_t{1} << 20, 1'000'000);
  const std::string normalized = NormalizeSource(source);
  std::string out;
  try {
    for (const Token& token : Tokenize(heap, normalized)) {
      switch (token.type) {
        case TokenType::kData: out += "'" + std::string(token.text) + "' "; break;
        case TokenType::kVariableBegin: out += "{{ "; break;
        case TokenType::kVariableEnd: out += "}} "; break;
        case TokenType::kBlockBegin: out += "{% "; break;
        case TokenType::kBlockEnd: out += "%} "; break;
        case TokenType::kName:
        case TokenType::kOperator: out += std::string(token.text) + " "; break;
        case TokenType::kString: out += "\"" + std::string(token.text) + "\" "; break;
        case TokenType::kInteger: out += std::to_string(token.integer) + " "; break;
        case TokenType::kFloat: out += std::to_string(token.real) + " "; break;
        case TokenType::kEnd: out += "end"; break;
      }
    }
  } catch (const TemplateError& error) {
    return "error at " + std::to_string(error.offset.value_or(999)) + ": " + error.message;
  }
  return out;
}

TEST(JinjaLexer, Delimiters_CutTextAndTags) {
  EXPECT_EQ(Tokens(""), "end");
  EXPECT_EQ(Tokens("a{{ b }}c"), "'a' {{ b }} 'c' end");
  EXPECT_EQ(Tokens("{%if a%}{#x#}b"), "{% if a %} 'b' end");
  EXPECT_EQ(Tokens("{ { }} %} #}"), "'{ { }} %} #}' end");
}

TEST(JinjaLexer, WhiteSpace_FollowsTrimBlocksAndLstripBlocks) {
  EXPECT_EQ(Tokens("a\n  {% b %}\n c"), "'a\n' {% b %} ' c' end");
  EXPECT_EQ(Tokens("a  {% b %} \n c"), "'a  ' {% b %} ' \n c' end");
  EXPECT_EQ(Tokens("a \n {%- b -%} \n c"), "'a' {% b %} 'c' end");
  EXPECT_EQ(Tokens("\n  {%+ b +%}\n c"), "'\n  ' {% b %} '\n c' end");
  EXPECT_EQ(Tokens("\n  {{ b }}\n c"), "'\n  ' {{ b }} '\n c' end");
  EXPECT_EQ(Tokens("  {# b #}\nc"), "'c' end");
  EXPECT_EQ(Tokens("a\r\nb\rc\n\n"), "'a\nb\nc\n' end");
}

TEST(JinjaLexer, Raw_IsText) {
  EXPECT_EQ(Tokens("{% raw %} {{ a }} {% endraw %}b"), "' {{ a }} ' 'b' end");
  EXPECT_EQ(Tokens("a {%- raw -%}  b  {%- endraw -%}  c"), "'a' 'b' 'c' end");
  EXPECT_EQ(Tokens("{% rawish %}"), "{% rawish %} end");
}

TEST(JinjaLexer, Numbers_AreReadAsPythonDoes) {
  EXPECT_EQ(Tokens("{{ 0 12 1_000 0x1F 0b101 0o17 }}"), "{{ 0 12 1000 31 5 15 }} end");
  EXPECT_EQ(Tokens("{{ 1.5 1e3 1.5e-1 a.1.2 }}"), "{{ 1.500000 1000.000000 0.150000 a . 1 . 2 }} end");
  EXPECT_EQ(Tokens("{{ 9223372036854775807 }}"), "{{ 9223372036854775807 }} end");
  EXPECT_EQ(Tokens("{{ 9223372036854775808 }}"), "error at 3: the integer 9223372036854775808 does not fit in 64 bits");
}

TEST(JinjaLexer, Strings_ResolveEscapes) {
  EXPECT_EQ(Tokens(R"({{ 'a\'b' "c\"d" '\n\x41\u00e9\U0001F999\101\q' }})"),
            "{{ \"a'b\" \"c\"d\" \"\nA\u00e9\U0001F999A\\q\" }} end");
  EXPECT_EQ(Tokens(R"({{ '\u12' }})"), "error at 5: a truncated escape in a string: expected 4 digits");
  EXPECT_EQ(Tokens(R"({{ 'a\)"), "error at 3: a string is not closed: expected '");
  EXPECT_EQ(Tokens("{{ '}}' }}"), "{{ \"}}\" }} end");
}

TEST(JinjaLexer, Brackets_MustMatch) {
  EXPECT_EQ(Tokens("{{ {'a': {}} }}"), "{{ { \"a\" : { } } }} end");
  EXPECT_EQ(Tokens("{{ (] }}"), "error at 4: expected \")\", found \"]\"");
  EXPECT_EQ(Tokens("{{ ) }}"), "error at 3: unexpected \")\"");
  EXPECT_EQ(Tokens("{{ $ }}"), "error at 3: unexpected character \"$\"");
}

}  // namespace
}  // namespace tidemill::jinja::jinja_lexer_test
