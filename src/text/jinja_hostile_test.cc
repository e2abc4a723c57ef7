// Templates and inputs that mean harm: each ends with an error that says which bound it hit, on a stack of 256 KiB. The
// bounds are counts, so what these tests prove does not depend on the machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tidemill/chat.h"

namespace tidemill::jinja_hostile_test {
namespace {

using ::testing::HasSubstr;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kStackBytes = size_t{8} << 20;  // sanitizers make frames several times larger
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr size_t kStackBytes = size_t{8} << 20;
#else
constexpr size_t kStackBytes = size_t{256} << 10;
#endif
#else
constexpr size_t kStackBytes = size_t{256} << 10;
#endif

void RunOnSmallStack(const std::function<void()>& body) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kStackBytes), 0);
  pthread_t thread;
  const auto start = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, start, const_cast<std::function<void()>*>(&body)), 0);
  ASSERT_EQ(pthread_join(thread, nullptr), 0);
  pthread_attr_destroy(&attributes);
}

std::string Repeat(const std::string& text, size_t count) {
  std::string out;
  out.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) out += text;
  return out;
}

// Small, so that the tests are fast.
constexpr ChatTemplateLimits kLimits = {
    .steps = 1'000'000, .output_bytes = size_t{4} << 20, .value_bytes = size_t{64} << 20, .input_values = 200'000};

// The error of parsing, else of rendering with one message, else "ok: " and the size of the output.
std::string Outcome(const std::string& source, const std::string& json = R"([{"role": "user", "content": "hi"}])") {
  std::string outcome;
  RunOnSmallStack([&] {
    const Result<ChatTemplate> parsed = ChatTemplate::Parse(source, kLimits);
    if (!parsed.ok()) {
      outcome = parsed.error().message();
      return;
    }
    const Result<PromptText> prompt = parsed->RenderJson(json, {});
    outcome = prompt.ok() ? "ok: " + std::to_string(prompt->text.size()) : prompt.error().message();
  });
  return outcome;
}

struct Hostile {
  std::string name;
  std::string source;
  std::string expected;  // part of the error
};

std::vector<Hostile> HostileTemplates() {
  const std::string nesting = "nested deeper than 64 levels";
  const std::string steps = "more than 1000000 steps of work";
  const std::string bytes = "bytes of intermediate values";
  const std::string chain = "more than 1000 ";
  return {
      // parsing: depth
      {"deep parentheses", "{{ " + Repeat("(", 100000) + "1" + Repeat(")", 100000) + " }}", nesting},
      {"deep parentheses, unclosed", "{{ " + Repeat("(", 300000), "an expression is not closed"},
      {"deep lists", "{{ " + Repeat("[", 100000) + Repeat("]", 100000) + " }}", nesting},
      {"deep dicts", "{{ " + Repeat("{1:", 100000) + "1" + Repeat("}", 100000) + " }}", nesting},
      {"deep subscripts", "{{ a" + Repeat("[a", 100000) + Repeat("]", 100000) + " }}", nesting},
      {"deep calls", "{{ " + Repeat("f(", 100000) + Repeat(")", 100000) + " }}", nesting},
      {"deep filters", "{{ " + Repeat("1|d(", 100000) + Repeat(")", 100000) + " }}", nesting},
      {"deep tests", "{{ " + Repeat("1 is eq(", 100000) + Repeat(")", 100000) + " }}", nesting},
      {"deep minus", "{{ " + Repeat("-", 100000) + "1 }}", nesting},
      {"deep plus and minus", "{{ " + Repeat("+-", 100000) + "1 }}", nesting},
      {"deep not", "{{ " + Repeat("not ", 100000) + "1 }}", nesting},
      {"deep else", "{{ " + Repeat("1 if 0 else ", 50000) + "1 }}", nesting},
      {"many conditions", "{{ 1" + Repeat(" if 1", 100000) + " }}", "too many conditions"},
      {"deep if", Repeat("{% if 1 %}", 50000), nesting},
      {"deep for", Repeat("{% for a in b %}", 50000), nesting},
      {"deep macro", Repeat("{% macro f() %}", 50000), nesting},
      {"deep set", Repeat("{% set a %}", 50000), nesting},
      {"deep with", Repeat("{% with %}", 50000), nesting},
      {"deep filter block", Repeat("{% filter upper %}", 50000), nesting},
      {"deep call block", Repeat("{% call f() %}", 50000), nesting},
      {"deep generation", Repeat("{% generation %}", 50000), nesting},
      {"deep targets", "{% set " + Repeat("(", 100000) + "a" + Repeat(")", 100000) + " = 1 %}", nesting},
      {"mixed nesting", "{{ " + Repeat("not (-[{1: a[", 20000) + Repeat("]}])", 20000) + " }}", nesting},
      // parsing: length
      {"long sum", "{{ 1" + Repeat(" + 1", 100000) + " }}", chain + "terms in one sum"},
      {"long product", "{{ 1" + Repeat(" * 1", 100000) + " }}", chain + "factors"},
      {"long power", "{{ 1" + Repeat(" ** 1", 100000) + " }}", chain + "operands of \"**\""},
      {"long concatenation", "{{ 1" + Repeat(" ~ 1", 100000) + " }}", chain + "operands of \"~\""},
      {"long or", "{{ 0" + Repeat(" or 0", 100000) + " }}", chain + "operands of \"or\""},
      {"long and", "{{ 1" + Repeat(" and 1", 100000) + " }}", chain + "operands of \"and\""},
      {"long comparison", "{{ 1" + Repeat(" == 1", 100000) + " }}", chain + "comparisons"},
      {"long filters", "{{ 'a'" + Repeat("|upper", 100000) + " }}", chain + "filters and attributes"},
      {"long attributes", "{{ a" + Repeat(".a", 100000) + " }}", chain + "filters and attributes"},
      {"long calls", "{{ f" + Repeat("()", 100000) + " }}", chain + "filters and attributes"},
      {"many arguments", "{{ f(" + Repeat("1,", 100000) + ") }}", chain + "arguments"},
      {"many keywords", "{% macro f(" + Repeat("a,", 100000) + ") %}", "stands twice"},
      {"many targets", "{% set " + Repeat("a,", 100000) + "a = 1 %}", chain + "targets"},
      {"giant list", "{{ [" + Repeat("1,", 300000) + "] }}", "more than 100000 elements of one list"},
      {"giant tuple", "{{ (" + Repeat("1,", 300000) + ") }}", "more than 100000 elements of one tuple"},
      {"giant source", Repeat("a", (size_t{1} << 20) + 1), "expected at most 1048576 bytes, found 1048577"},
      {"open comments", Repeat("{#", 200000), "a comment is not closed"},
      {"open raw", "{% raw %}" + Repeat("{% endra", 100000), "a raw block is not closed"},
      {"open string", "{{ '" + Repeat("a", 500000), "a string is not closed"},
      {"not UTF-8", "{{ '\xC3\x28' }}", "not valid UTF-8"},
      {"surrogate escape", "{{ '\\ud800' }}", "no Unicode character"},
      {"huge integer", "{{ " + Repeat("9", 100000) + " }}", "does not fit in 64 bits"},
      // running: work
      {"macro that calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
       "calls nested deeper than 64 levels"},
      {"macros that call each other",
       "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", "nested deeper than"},
      {"macro that calls itself from a deep place",
       "{% macro f() %}" + Repeat("{% if 1 %}", 40) + "{{ " + Repeat("(1 + ", 20) + "f()" + Repeat(")", 20) + " }}" +
           Repeat("{% endif %}", 40) + "{% endmacro %}{{ f() }}",
       "nested deeper than"},
      {"caller that calls itself", "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{{ f() }}",
       "nested deeper than"},
      {"macro that branches",
       "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}", steps},
      {"nested loops",
       "{% set r = range(1000) %}{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}",
       steps},
      {"loop over a huge range", "{% for a in range(10 ** 9) %}{% endfor %}", "range: more than 100000 numbers"},
      {"range over everything", "{{ range(-9223372036854775807, 9223372036854775807) }}",
       "range: more than 100000 numbers"},
      {"many ranges", "{% for a in range(100000) %}{% set b = range(0, 200000, 2) %}{% endfor %}", bytes},
      {"nested filters over ranges", "{% for a in range(1000) %}{{ range(50000) | sum }}{% endfor %}", ""},
      {"sorting again and again",
       "{% set r = range(100000) | list %}{% for a in r %}{% set b = r | sort %}{% endfor %}", ""},
      {"comparing shared lists",
       "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
       "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
       steps},
      {"hashing shared tuples",
       "{% set ns = namespace(a=(1,)) %}{% for i in range(60) %}{% set ns.a = (ns.a, ns.a) %}"
       "{% endfor %}{{ {ns.a: 1} }}",
       steps},
      {"looking for what is not there",
       "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ ('a' * 500 + 'b') in s }}{% endfor %}", ""},
      {"looking for little", "{% set s = 'ab' * 500000 %}{% for i in range(100000) %}{{ 'abababac' in s }}{% endfor %}",
       steps},
      {"stripping much", "{% set s = ' ' * 1000000 %}{% for i in range(100000) %}{{ s.strip() }}{% endfor %}", steps},
      {"measuring much", "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s|length }}{{ s[-1] }}{% endfor %}",
       steps},
      {"filters within map", "{{ 'a' | map('map', " + Repeat("'map', ", 900) + "'list') | list }}",
       "nested deeper than"},
      // running: memory
      {"repeated string", "{{ 'a' * 10 ** 9 }}", bytes},
      {"repeated string, product that overflows", "{{ ('abcdefgh' * 1000000) * 9223372036854775807 }}", bytes},
      {"repeated list", "{{ [1] * 10 ** 9 }}", bytes},
      {"doubling string",
       "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
       bytes},
      {"doubling list",
       "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", bytes},
      {"replace that grows", "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}", bytes},
      {"replace between all", "{{ ('a' * 1000000).replace('', 'b' * 1000) }}", ""},
      {"join that grows", "{{ range(100000) | join('a' * 100000) }}", bytes},
      {"wide format", "{{ '%1000000000d' % 1 }}", "a width or precision above 100000"},
      {"precise format", "{{ '%.100000f' % 1 }}", "a precision above 400"},
      {"wide braces", "{{ '{:>99999999999}'.format(1) }}", "a width or precision above 100000"},
      {"wide padding", "{{ 'a'.center(10 ** 12) }}", bytes},
      {"wide indent", "{{ ('\\n' * 100000) | indent(10 ** 9, true, true) }}", bytes},
      {"wide JSON", "{{ [[[1]]] | tojson(indent=10 ** 9) }}", bytes},
      {"batch of nothing", "{{ [1] | batch(10 ** 12, 'x') | list }}", bytes},
      {"much output", "{% set s = 'a' * 1000000 %}{% for i in range(10) %}{{ s }}{% endfor %}",
       "more than 4194304 bytes of output"},
      {"much output in a macro",
       "{% macro f() %}{% for i in range(10) %}{{ 'a' * 1000000 }}{% endfor %}{% endmacro %}{{ f() }}",
       "more than 4194304 bytes of output"},
      {"text by doubling lists",
       "{% set ns = namespace(a=['x']) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}",
       ""},
      {"JSON by doubling lists",
       "{% set ns = namespace(a=['x']) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a | "
       "tojson }}",
       ""},
      {"lists within lists",
       "{% set ns = namespace(a=[]) %}{% for i in range(100000) %}{% set ns.a = [ns.a] %}{% endfor %}",
       "values nested deeper than 80"},
      {"namespace within itself", "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
       "nested too deeply to print"},
      {"namespaces that compare",
       "{% set a = namespace() %}{% set a.x = [a] %}{% set b = namespace() %}{% set b.x = [b] %}{{ a.x == b.x }}{{ a | "
       "tojson }}",
       "cannot be written as JSON"},
      // running: what the sandbox refuses
      {"append", "{% set l = [] %}{{ l.append(1) }}",
       "\"list\" object has no attribute \"append\" and cannot be called"},
      {"update", "{{ messages[0].update({'a': 1}) }}",
       "\"dict\" object has no attribute \"update\" and cannot be called"},
      {"class", "{{ ''.__class__.__mro__ }}", "no attribute \"__class__\""},
      {"globals", "{{ raise_exception.__globals__['os'] }}", "no attribute \"__globals__\""},
      {"format that reaches in", "{{ '{0.__class__.__mro__}'.format(1) }}",
       "\"int\" object has no attribute \"__class__\""},
      {"include", "{% include '/etc/passwd' %}", "the tag \"include\" is not supported"},
      {"clock that nobody gave", "{{ strftime_now('%Y') }}", "\"strftime_now\" is undefined"},
      {"division by zero", "{{ 1 // 0 }}", "division by zero"},
      {"smallest integer by -1", "{{ (0 - 9223372036854775807 - 1) // -1 }}", "does not fit in 64 bits"},
      {"smallest integer, remainder by -1", "{{ (0 - 9223372036854775807 - 1) % -1 }}", "does not fit in 64 bits"},
      {"power", "{{ 10 ** 100 }}", "does not fit in 64 bits"},
      {"power of two", "{{ 2 ** 63 }}", "the result of ** does not fit in 64 bits"},
      {"product", "{{ 9223372036854775807 * 2 }}", "the result of * does not fit in 64 bits"},
      {"fraction by zero", "{{ 1.5 / 0.0 }}", "division by zero"},
      {"remainder by zero", "{{ 1.5 % 0.0 }}", "division by zero"},
      {"zero to a negative power", "{{ 0 ** -1 }}", "zero cannot be raised to a negative power"},
      {"fraction zero to a negative power", "{{ 0.0 ** -1 }}", "zero cannot be raised to a negative power"},
      {"root of a negative number", "{{ (0 - 8.0) ** 0.5 }}", "a negative number to a fractional power is not real"},
      {"power of a fraction", "{{ 1e300 ** 2 }}", "the result of ** is out of range"},
      {"product of dictionaries", "{{ {} * {} }}", "unsupported operand types for *: 'dict' and 'dict'"},
      {"quotient of texts", "{{ 'a' / 'b' }}", "unsupported operand types for /: 'str' and 'str'"},
      {"slice over everything",
       "{{ 'abc'[-9223372036854775807:9223372036854775807:9223372036854775807] ~ raise_exception('end') }}", "end"},
  };
}

TEST(JinjaHostile, EveryTemplate_EndsWithItsError) {
  const std::vector<Hostile> templates = HostileTemplates();
  EXPECT_GE(templates.size(), 40u);
  for (const Hostile& hostile : templates) {
    const std::string outcome = Outcome(hostile.source);
    EXPECT_THAT(outcome, HasSubstr(hostile.expected)) << hostile.name;
    EXPECT_FALSE(outcome.starts_with("ok: ")) << hostile.name << ": " << outcome;
    EXPECT_LT(outcome.size(), 600u) << hostile.name;
    EXPECT_EQ(outcome.find('\n'), std::string::npos) << hostile.name << ": an error is one line";
  }
}

TEST(JinjaHostile, DeepestTemplates_StillRender) {
  EXPECT_EQ(Outcome("{{ " + Repeat("(", 60) + "1" + Repeat(")", 60) + " }}"), "ok: 1");
  EXPECT_EQ(Outcome("{{ " + Repeat("[", 60) + "1" + Repeat("]", 60) + " }}"), "ok: 121");
  EXPECT_EQ(Outcome(Repeat("{% if not 0 %}", 60) + "x" + Repeat("{% endif %}", 60)), "ok: 1");
  EXPECT_EQ(Outcome("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}.{% endmacro %}{{ f(63) }}"), "ok: 64");
  // every level of precedence within every other, as deep as it goes
  EXPECT_EQ(
      Outcome("{{ " + Repeat("0 or 1 and 1 != 0 - 0 - 2 * 1 ** (", 29) + "1" + Repeat(")", 29) + " }}").substr(0, 3),
      "ok:");
  EXPECT_EQ(Outcome("{% for a in [1] %}" + Repeat("{% for a in [1] %}", 55) + "{{ loop.index }}" +
                    Repeat("{% endfor %}", 56)),
            "ok: 1");
}

TEST(JinjaHostile, EveryInput_EndsWithItsError) {
  const std::string source = "{{ messages | tojson }}";
  const std::vector<std::pair<std::string, std::string>> inputs = {
      {"", "conversation: byte 0: expected JSON, found a syntax error"},
      {"[", "expected JSON, found a syntax error"},
      {"[] x", "expected JSON, found a syntax error"},
      {"[NaN]", "expected JSON, found NaN"},
      {"[1e999]", "expected a number within the range of a double"},
      {"{\"messages\": [], \"messages\": []}", "expected each key of an object once, found \"messages\""},
      {"[{\"role\": \"user\", \"r\\u006fle\": \"x\"}]", "expected each key of an object once, found \"role\""},
      {"[\"\xFF\"]", "ill-formed UTF-8 byte"},
      {"[\"\\ud800\"]", "expected JSON, found a syntax error"},
      {Repeat("[", 100000), "byte 64: expected at most 64 levels of nesting, found more"},
      {Repeat("[", 64) + Repeat("]", 64) + "]", "expected JSON, found a syntax error"},
      {"[" + Repeat("1,", 200000) + "1]", "expected at most 200000 values, found more"},
      {"[{\"a\": 1" + Repeat("0", 4300) + "}]", "expected a number within the range of a double, found a larger one"},
      {"5", "expected a JSON list of messages or an object"},
      {"{}", "the member \"messages\" is missing"},
      {"{\"messages\": [], \"surprise\": 1}", "the member \"surprise\" is unknown"},
      {"{\"messages\": \"hi\"}", "the member \"messages\" is unknown, of the wrong type"},
      {"{\"messages\": [], \"chat_template_kwargs\": {\"range\": 1}}", "the name of a function"},
      {"{\"messages\": [], \"chat_template_kwargs\": {\"raise_exception\": 1}}", "the name of a function"},
      {"{\"messages\": [], \"chat_template_kwargs\": {\"messages\": 1}}", "has a field of its own"},
      {"{\"messages\": [], \"chat_template_kwargs\": {\"bos_token\": \"<s>\"}}", "has a field of its own"},
      {"[\"" + Repeat("a", size_t{16} << 20) + "\"]", "expected at most 16777216 bytes"},
      {"[{\"a\": \"" + Repeat("a", size_t{5} << 20) + "\"}]", "more than 4194304 bytes of output"},
      {"[\"hi\"]", "a message is a 'str', not an object"},
      {"[[]]", "a message is a 'list', not an object"},
      {R"({"messages": [], "tools": ["f"]})", "a tool is a 'str', not an object"},
      {R"({"messages": [], "documents": [null]})", "a document is a 'NoneType', not an object"},
  };
  for (const auto& [json, expected] : inputs) {
    const std::string outcome = Outcome(source, json);
    EXPECT_THAT(outcome, HasSubstr(expected)) << json.substr(0, 80);
    EXPECT_LT(outcome.size(), 400u);
  }
  EXPECT_EQ(Outcome("{{ messages | length }}", R"([{"a": )" + Repeat("[", 62) + Repeat("]", 62) + "}]"), "ok: 1");
}

}  // namespace
}  // namespace tidemill::jinja_hostile_test
