// SPDX-License-Identifier: MIT
// A dense and a sparse model built by hand that continue "03453" with 4 (digits are tokens), and
// prompts for them: what the circuit command can find a circuit in.
#pragma once

#include "circuits/toy_models.h"
#include "cli/small_model.h"
#include "core/file.h"

namespace clearhead {

// Writes `folder`/dense, `folder`/sparse and `folder`/digits.csv.
inline void MakeInductionPair(const std::filesystem::path& folder) {
  const std::string text = SmallText();
  const std::vector<std::string_view> texts = {text};
  const Tokenizer tokenizer = TrainBpe(texts, {.vocabulary_size = 270});
  std::vector<std::int32_t> digits;
  for (const char* digit : {"0", "1", "2", "3", "4", "5", "6", "7"}) {
    const std::vector<std::int32_t> ids = tokenizer.Encode(digit);
    Check(ids.size() == 1, "a digit is a token");
    digits.push_back(ids[0]);
  }
  for (const auto& [name, attention] :
       {std::pair{"dense", AttentionKind::kSoftmax}, std::pair{"sparse", AttentionKind::kGated}}) {
    SaveModel(InductionModel(attention, digits, tokenizer.vocabulary_size()), folder / name);
    tokenizer.Save(folder / name);
  }
  std::string csv = "clean,corrupted,correct_idx,incorrect_idx\n";
  for (const TaskItem& item : InductionTask(24, 5).items) {
    const auto prompt = [](const std::vector<std::int32_t>& ids) {
      std::string digits_text;
      for (const std::int32_t id : ids) digits_text += std::to_string(id);
      return digits_text;
    };
    csv += fmt::format("{},{},{},{}\n", prompt(item.clean), prompt(item.corrupted),
                       digits[static_cast<std::size_t>(item.answers[0])],
                       digits[static_cast<std::size_t>(item.wrongs[0])]);
  }
  WriteFile(folder / "digits.csv", csv);
}

}  // namespace clearhead
