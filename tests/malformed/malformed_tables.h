// The tables of malformed files, one function each.
#ifndef TIDEMILL_TESTS_MALFORMED_MALFORMED_TABLES_H_
#define TIDEMILL_TESTS_MALFORMED_MALFORMED_TABLES_H_

#include <vector>

#include "tests/malformed/malformed_case.h"

namespace tidemill::testing {

std::vector<MalformedCase> GgufHeaderCases();
std::vector<MalformedCase> GgufMetadataCases();
std::vector<MalformedCase> GgufTensorCases();
std::vector<MalformedCase> GgufSettingsCases();    // metadata of another type or range than the model needs
std::vector<MalformedCase> GgufVocabularyCases();  // arrays of the tokenizer that do not fit each other
std::vector<MalformedCase> GgufPartCases();        // sets of several files
std::vector<MalformedCase> SafetensorsHeaderCases();
std::vector<MalformedCase> SafetensorsTensorCases();
std::vector<MalformedCase> ConfigCases();
std::vector<MalformedCase> GenerationConfigCases();
std::vector<MalformedCase> IndexCases();
std::vector<MalformedCase> FolderCases();     // what stands beside each other
std::vector<MalformedCase> TemplateCases();   // chat templates, also those that mean harm
std::vector<MalformedCase> TokenizerCases();  // tokenizer.json, the same

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_MALFORMED_MALFORMED_TABLES_H_
