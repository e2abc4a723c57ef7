// Chat templates that are not well formed, that ask for what there is not, and that mean harm.
#include <string>

#include "tests/malformed/malformed_tables.h"

namespace tidemill::testing {
namespace {

using std::string_literals::operator""s;

std::string Repeated(const std::string& text, size_t count) {
  std::string all;
  all.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

// What ChatTemplate::Parse refuses.
std::vector<MalformedRow> TemplateSyntaxRows() {
  return {
      {"empty expression", "{{ }}", kInvalid,
       "parse chat template: line 1, column 4: expected an expression, found \"}}\"", Question::kRender},
      {"unclosed expression", "Hello {{ messages", kInvalid,
       "parse chat template: line 1, column 7: an expression is not closed: expected \"}}\"", Question::kRender},
      {"unclosed tag", "{% if messages", kInvalid,
       "parse chat template: line 1, column 1: a tag is not closed: expected \"%}\"", Question::kRender},
      {"unclosed comment", "line\n{# note", kInvalid,
       "parse chat template: line 2, column 1: a comment is not closed: expected \"#}\"", Question::kRender},
      {"unclosed raw", "{% raw %}{{ x }}", kInvalid,
       "parse chat template: line 1, column 1: a raw block is not closed: expected \"{% endraw %}\"",
       Question::kRender},
      {"unclosed string", "{{ 'abc }}", kInvalid,
       "parse chat template: line 1, column 4: a string is not closed: expected '", Question::kRender},
      {"unclosed if", "{% if messages %}x", kInvalid,
       "parse chat template: line 1, column 18: a block is not closed: expected \"{% endif %}\"", Question::kRender},
      {"unclosed for", "{% for m in messages %}\n{{ m.content }}\n", kInvalid,
       "parse chat template: line 2, column 1: a block is not closed: expected \"{% endfor %}\"", Question::kRender},
      {"unclosed macro", "{% macro f(a) %}{{ a }}", kInvalid,
       "parse chat template: line 1, column 17: a block is not closed: expected \"{% endmacro %}\"", Question::kRender},
      {"crossed blocks", "{% for m in messages %}{% if m %}{% endfor %}{% endif %}", kInvalid,
       "parse chat template: line 1, column 37: \"endfor\" closes nothing here: another block is open, or none",
       Question::kRender},
      {"end without beginning", "{% endif %}", kInvalid,
       "parse chat template: line 1, column 4: \"endif\" closes nothing here: another block is open, or none",
       Question::kRender},
      {"unbalanced bracket", "{{ [1, 2) }}", kInvalid,
       "parse chat template: line 1, column 9: expected \"]\", found \")\"", Question::kRender},
      {"not UTF-8", "{{ '\xff' }}", kInvalid, "parse chat template: not valid UTF-8", Question::kRender},
      {"unknown tag", "{% frobnicate %}", kInvalid, "parse chat template: line 1, column 4: unknown tag \"frobnicate\"",
       Question::kRender},
      {"include", "{% include 'other.jinja' %}", kInvalid,
       "parse chat template: line 1, column 4: the tag \"include\" is not supported: a chat template stands alone",
       Question::kRender},
      {"autoescape", "{% autoescape true %}{% endautoescape %}", kInvalid,
       "parse chat template: line 1, column 4: the tag \"autoescape\" is not supported: use the filter escape where "
       "text is escaped",
       Question::kRender},
      {"block twice", "{% block a %}{% endblock %}{% block a %}{% endblock %}", kInvalid,
       "parse chat template: line 1, column 31: the block \"a\" stands twice", Question::kRender},
      {"assignment to a constant", "{% set true = 1 %}", kInvalid,
       "parse chat template: line 1, column 8: cannot assign to \"true\"", Question::kRender},
      {"integer beyond 64 bits", "{{ 99999999999999999999 }}", kInvalid,
       "parse chat template: line 1, column 4: the integer 99999999999999999999 does not fit in 64 bits",
       Question::kRender},
      {"surrogate", "{{ '\\ud800' }}", kInvalid,
       "parse chat template: line 1, column 6: an escape in a string that is no Unicode character", Question::kRender},
      {"deep brackets", "{{ "s + Repeated("(", 100000) + "1"s + Repeated(")", 100000) + " }}"s, kInvalid,
       "parse chat template: line 1, column 67: nested deeper than 64 levels", Question::kRender},
      {"deep ifs", Repeated("{% if 1 %}", 50000), kInvalid,
       "parse chat template: line 1, column 641: nested deeper than 64 levels", Question::kRender},
      {"deep recursive loops", Repeated("{% for a in [a] recursive %}", 30000), kInvalid,
       "parse chat template: line 1, column 1772: nested deeper than 64 levels", Question::kRender},
      {"long sum", "{{ 1"s + Repeated(" + 1", 100000) + " }}"s, kInvalid,
       "parse chat template: line 1, column 4006: more than 1000 terms in one sum", Question::kRender},
      {"larger than a megabyte", Repeated("a", 1048577), kInvalid,
       "parse chat template: expected at most 1048576 bytes, found 1048577", Question::kRender},
  };
}

// What is not there, and what the sandbox does not give.
std::vector<MalformedRow> TemplateSandboxRows() {
  return {
      {"unknown filter", "{{ messages | frobnicate }}", kCorrupt,
       "render chat template: line 1, column 15: unknown filter \"frobnicate\"", Question::kRender},
      {"unknown test", "{{ messages is frobnicated }}", kCorrupt,
       "render chat template: line 1, column 16: unknown test \"frobnicated\"", Question::kRender},
      {"unknown function", "{{ frobnicate(1) }}", kCorrupt,
       "render chat template: line 1, column 14: \"frobnicate\" is undefined and cannot be called", Question::kRender},
      {"unknown attribute of a message", "{{ messages[0].nope.x }}", kCorrupt,
       "render chat template: line 1, column 20: \"dict\" object has no attribute \"nope\"", Question::kRender},
      {"class", "{{ ''.__class__.__mro__ }}", kCorrupt,
       "render chat template: line 1, column 16: \"str\" object has no attribute \"__class__\"", Question::kRender},
      {"subclasses by subscript", "{{ ''['__class__']['__base__'] }}", kCorrupt,
       "render chat template: line 1, column 19: \"str\" object has no attribute \"__class__\"", Question::kRender},
      {"globals of a macro", "{% macro f() %}{% endmacro %}{{ f.__globals__['os'] }}", kCorrupt,
       "render chat template: line 1, column 46: \"Macro\" object has no attribute \"__globals__\"", Question::kRender},
      {"class by attr", "{{ (messages | attr('__class__')).__mro__ }}", kCorrupt,
       "render chat template: line 1, column 34: \"list\" object has no attribute \"__class__\"", Question::kRender},
      {"class by format", "{{ '{0.__class__.__mro__}'.format(1) }}", kCorrupt,
       "render chat template: line 1, column 34: \"int\" object has no attribute \"__class__\"", Question::kRender},
      {"class by map", "{{ [messages] | map(attribute='__class__.__mro__') | list }}", kCorrupt,
       "render chat template: line 1, column 17: \"list\" object has no attribute \"__class__\"", Question::kRender},
      {"append", "{{ messages.append(1) }}", kCorrupt,
       "render chat template: line 1, column 19: \"list\" object has no attribute \"append\" and cannot be called",
       Question::kRender},
      {"underscore in a namespace", "{% set ns = namespace() %}{% set ns._x = 1 %}", kCorrupt,
       "render chat template: line 1, column 34: an attribute of a namespace cannot begin with an underscore: \"_x\"",
       Question::kRender},
  };
}

// What goes past a bound, or wrong.
std::vector<MalformedRow> TemplateBoundRows() {
  return {
      {"macro that calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", kCorrupt,
       "render chat template: line 1, column 20: macro \"f\": calls nested deeper than 64 levels", Question::kRender},
      {"macros that call each other",
       "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}", kCorrupt,
       "render chat template: line 1, column 58: macro \"f\": calls nested deeper than 64 levels", Question::kRender},
      {"recursive loop without end", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", kCorrupt,
       "render chat template: line 1, column 36: a recursive loop: calls nested deeper than 64 levels",
       Question::kRender},
      {"loop that is not recursive", "{% for x in [1] %}{{ loop([1]) }}{% endfor %}", kCorrupt,
       "render chat template: line 1, column 26: the loop cannot be called: it is not marked as recursive",
       Question::kRender},
      {"huge range", "{% for i in range(10 ** 9) %}{% endfor %}", kCorrupt,
       "render chat template: line 1, column 18: range: more than 100000 numbers", Question::kRender},
      {"repeated text", "{{ 'x' * 10 ** 9 }}", kCorrupt,
       "render chat template: line 1, column 4: more than 268435456 bytes of intermediate values: the template makes "
       "too much text",
       Question::kRender},
      {"repeated list", "{{ [1] * 10 ** 9 }}", kCorrupt,
       "render chat template: line 1, column 4: more than 268435456 bytes of intermediate values: the template makes "
       "too much text",
       Question::kRender},
      {"wide format", "{{ '%1000000000d' % 1 }}", kCorrupt,
       "render chat template: line 1, column 4: format: a width or precision above 100000", Question::kRender},
      {"text that doubles",
       "{% set ns = namespace(t='aaaaaaaa') %}{% for i in range(100) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
       kCorrupt,
       "render chat template: line 1, column 87: more than 268435456 bytes of intermediate values: the template makes "
       "too much text",
       Question::kRender},
      {"lists within lists",
       "{% set ns = namespace(a=[]) %}{% for i in range(1000) %}{% set ns.a = [ns.a] %}{% endfor %}", kCorrupt,
       "render chat template: line 1, column 74: values nested deeper than 80", Question::kRender},
      {"much output", "{% set s = 'a' * 1000000 %}{% for i in range(17) %}{{ s }}{% endfor %}", kCorrupt,
       "render chat template: line 1, column 55: more than 16777216 bytes of output", Question::kRender},
      {"loops without end", "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
       kCorrupt,
       "render chat template: line 1, column 32: more than 150000000 steps of work: the template loops too long",
       Question::kRender},
      {"division by zero", "{{ 1 // 0 }}", kCorrupt, "render chat template: line 1, column 4: division by zero",
       Question::kRender},
      {"refusal", "{{ raise_exception('Roles must alternate') }}", kInvalid,
       "render chat template: line 1, column 19: the template refuses this conversation: Roles must alternate",
       Question::kRender},
  };
}

}  // namespace

std::vector<MalformedCase> TemplateCases() {
  std::vector<MalformedCase> cases;
  for (const std::vector<MalformedRow>& rows : {TemplateSyntaxRows(), TemplateSandboxRows(), TemplateBoundRows()}) {
    for (MalformedCase& c : CasesOf(rows, "chat_template.jinja", {}, "chat_template.jinja"))
      cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace tidemill::testing
