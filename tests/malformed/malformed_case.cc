#include "tests/malformed/malformed_case.h"

#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "tests/malformed/malformed_tables.h"

namespace tidemill::testing {

std::span<const MalformedGroup> MalformedGroups() {
  static constexpr MalformedGroup kGroups[] = {
      {"gguf-header", GgufHeaderCases},
      {"gguf-metadata", GgufMetadataCases},
      {"gguf-tensors", GgufTensorCases},
      {"gguf-settings", GgufSettingsCases},
      {"gguf-vocabulary", GgufVocabularyCases},
      {"gguf-parts", GgufPartCases},
      {"safetensors-header", SafetensorsHeaderCases},
      {"safetensors-tensors", SafetensorsTensorCases},
      {"config", ConfigCases},
      {"generation-config", GenerationConfigCases},
      {"index", IndexCases},
      {"folder", FolderCases},
      {"template", TemplateCases},
      {"tokenizer", TokenizerCases},
  };
  return kGroups;
}

std::vector<MalformedCase> CasesOf(std::span<const MalformedRow> rows, const std::string& file_name,
                                   const std::vector<MalformedFile>& others, const std::string& opened) {
  std::vector<MalformedCase> cases;
  for (const MalformedRow& row : rows) {
    MalformedCase& c = cases.emplace_back();
    c.name = row.name;
    c.files = others;
    c.files.push_back({file_name, row.recipe});
    c.opened = opened;
    c.code = row.code;
    c.message = row.message;
    c.question = row.question;
  }
  return cases;
}

std::string FolderName(std::string_view name) {
  std::string folder;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    const bool kept = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    if (upper) folder += static_cast<char>(c - 'A' + 'a');
    if (kept) folder += c;
    if (!upper && !kept && !folder.empty() && folder.back() != '-') folder += '-';
  }
  return folder;
}

std::string WriteFiles(const MalformedCase& c, const std::string& folder) {
  for (const MalformedFile& file : c.files) {
    const std::string path = folder + "/" + file.name;
    std::ofstream stream(path, std::ios::binary);
    stream << file.recipe.Make();
    stream.close();
    TIDEMILL_CHECK(stream.good());
    if (file.recipe.size() != 0) std::filesystem::resize_file(path, file.recipe.size());
  }
  return c.opened.empty() ? folder : folder + "/" + c.opened;
}

std::string ExpectedLine(const MalformedCase& c, const std::string& path) {
  if (c.question == Question::kRender) return c.message;
  std::string line = (c.question == Question::kInspect ? "inspect {path}: "
                      : c.question == Question::kText  ? "load tokenizer of {path}: "
                                                       : "load {path}: ") +
                     c.message;
  const std::string folder = path.substr(0, path.size() - (c.opened.empty() ? 0 : c.opened.size() + 1));
  for (const auto& [mark, text] :
       {std::pair<std::string_view, const std::string&>{"{path}", path}, {"{folder}", folder}}) {
    for (size_t at = 0; (at = line.find(mark, at)) != std::string::npos; at += text.size()) {
      line.replace(at, mark.size(), text);
    }
  }
  return line;
}

}  // namespace tidemill::testing
