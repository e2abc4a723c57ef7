// Many short texts in one buffer: 8 bytes for each besides its own, where a std::string takes 32.
#ifndef TIDEMILL_TEXT_TEXT_LIST_H_
#define TIDEMILL_TEXT_TEXT_LIST_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tidemill {

class TextList {
 public:
  void Reserve(size_t num_texts, size_t num_bytes) {
    ends_.reserve(num_texts);
    bytes_.reserve(num_bytes);
  }
  void Add(std::string_view text) {
    bytes_ += text;
    ends_.push_back(bytes_.size());
  }

  // The view is good until the list moves or grows past what was reserved.
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }
  size_t size() const { return ends_.size(); }
  size_t num_bytes() const { return bytes_.size(); }

 private:
  std::string bytes_;         // text after text
  std::vector<size_t> ends_;  // text i ends there, and the next begins
};

}  // namespace tidemill

#endif  // TIDEMILL_TEXT_TEXT_LIST_H_
