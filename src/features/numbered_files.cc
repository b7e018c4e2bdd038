// SPDX-License-Identifier: MIT
#include "features/numbered_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "core/error.h"

namespace clearhead {
namespace {
constexpr std::string_view kEnding = ".safetensors";
}  // namespace

std::filesystem::path NumberedFile(const std::filesystem::path& folder, std::string_view prefix,
                                   std::int64_t number) {
  return folder / fmt::format("{}{}{}", prefix, number, kEnding);
}

std::vector<std::int64_t> NumbersOf(const std::filesystem::path& folder, std::string_view prefix) {
  std::vector<std::int64_t> numbers;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !name.ends_with(kEnding)) continue;
    std::int64_t number = 0;
    const char* begin = name.data() + prefix.size();
    std::from_chars(begin, name.data() + name.size(), number);
    // The name again, so that 07 and the like are other files.
    if (number >= 0 && name == fmt::format("{}{}{}", prefix, number, kEnding)) {
      numbers.push_back(number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::int64_t CountNumbered(const std::filesystem::path& folder, std::string_view prefix) {
  const std::vector<std::int64_t> numbers = NumbersOf(folder, prefix);
  for (std::size_t i = 0; i < std::max<std::size_t>(numbers.size(), 1); ++i) {
    const auto number = static_cast<std::int64_t>(i);
    if (i < numbers.size() && numbers[i] == number) continue;
    Fail("'{}': {}{}{} is missing; every layer from 0 on has a file{}", folder.string(), prefix,
         number, kEnding,
         numbers.empty() ? std::string() : fmt::format(", the last here is {}", numbers.back()));
  }
  return static_cast<std::int64_t>(numbers.size());
}

}  // namespace clearhead
