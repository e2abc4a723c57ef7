// Settings that a model's files bring and nothing here obeys.
#ifndef TIDEMILL_RUNTIME_UNREAD_SETTINGS_H_
#define TIDEMILL_RUNTIME_UNREAD_SETTINGS_H_

#include <vector>

#include "formats/model_files.h"
#include "tidemill/model.h"

namespace tidemill {

// After everything was read: what nobody asked for, but for nulls, values that say what is so anyway, and keys that are known to have no
// effect on text. Files without such keys are left out. `text`: whether tokenizer and recommendation were read, too; else those files are
// left out. Throws std::bad_alloc.
std::vector<UnreadSettings> ListUnread(const ModelFiles& files, bool text);

// add_bos_token and add_eos_token of tokenizer_config.json count as read where the tokenizer does as they say.
void TakeWhatTokenizerDoes(const ModelFiles& files, const Tokenizer& tokenizer);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_UNREAD_SETTINGS_H_
