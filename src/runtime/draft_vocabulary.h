// Whether one model can guess for another: each id has to mean the same to both.
#ifndef TIDEMILL_RUNTIME_DRAFT_VOCABULARY_H_
#define TIDEMILL_RUNTIME_DRAFT_VOCABULARY_H_

#include "tidemill/result.h"
#include "tidemill/tokenizer.h"

namespace tidemill {

// Each id that both have stands for the same bytes and is special in both or in none. One may have more ids than the other, since files
// pad their vocabularies differently: those are never guessed. kInvalidArgument names the first five ids that differ, in both spellings.
Result<void> CheckDraftVocabulary(const Tokenizer& target, const Tokenizer& draft);

}  // namespace tidemill

#endif  // TIDEMILL_RUNTIME_DRAFT_VOCABULARY_H_
