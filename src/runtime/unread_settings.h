// Settings that a model's files bring and nothing here obeys.
#ifndef TIDEMILL_RUNTIME_UNREAD_SETTINGS_H_
#define TIDEMILL_RUNTIME_UNREAD_SETTINGS_H_

#include <vector>

#include "formats/model_files.h"
#include "tidemill/model.h"

namespace tidemill {

// Which part of a model's files was read: config.json and a GGUF file's settings, or tokenizer_config.json and a GGUF file's tokenizer, or
// all, generation_config.json and general.sampling.* too.
enum class ReadPart { kModel, kText, kAll };

// After that part was read: what nobody asked for in it, but for nulls, values that say what is so anyway, and keys that are known to have
// no effect on text. Files without such keys are left out. Throws std::bad_alloc.
std::vector<UnreadSettings> ListUnread(const ModelFiles& files, ReadPart part);

// Keys of tokenizer_config.json about what tokenizer.json says, too, count as read where both say the same: add_bos_token, add_eos_token,
// added_tokens_decoder, additional_special_tokens.
void TakeWhatTokenizerDoes(const ModelFiles& files, const Tokenizer& tokenizer);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_UNREAD_SETTINGS_H_
