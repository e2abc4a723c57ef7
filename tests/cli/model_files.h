// Small model files on disk for the tests of the program, good ones and ones that are wrong in one place.
#ifndef TIDEMILL_TESTS_CLI_MODEL_FILES_H_
#define TIDEMILL_TESTS_CLI_MODEL_FILES_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace tidemill::testing {

// A folder that is removed with all that is in it when the program ends.
const std::string& TestFolder();
// Writes a file into it and returns its path.
std::string WriteFile(const std::string& name, std::string_view bytes);
std::string ReadWholeFile(const std::string& path);

// Made once, by name.
const std::string& CountingModelFile();      // of 997 tokens and a context of 256: after t comes t + 1
const std::string& LongCountingModelFile();  // the same with room for 1 000 000 positions: it takes a while
const std::string& TinyLlamaFile();          // two layers of random weights

// Where the value of a key and the type number of a tensor stand in a GGUF file's bytes.
size_t ValueOffset(const std::string& bytes, const std::string& key);
size_t TensorTypeOffset(const std::string& bytes, const std::string& tensor, int dims);
// Makes element 0 of a tensor of f32 a NaN.
void PoisonTensor(std::string& bytes, const std::string& tensor);

}  // namespace tidemill::testing

#endif  // TIDEMILL_TESTS_CLI_MODEL_FILES_H_
