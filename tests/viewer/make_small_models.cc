// SPDX-License-Identifier: MIT
// make_small_models FOLDER: a dense and a gated model of one shape with features, for tests outside
// C++. And a pair with as many heads as GPT-2 and room for 512 tokens, but narrow: what a browser
// has to draw. And a pair that has a circuit, with prompts for it.
#include "cli/induction_pair.h"
#include "viewer/small_features.h"

namespace clearhead {

void MakeManyHeads(const std::filesystem::path& folder, const Tokenizer& tokenizer, bool gated) {
  ModelConfig config = SmallConfig(tokenizer);
  config.layers = 12;
  config.heads = 12;
  config.width = 48;
  config.inner = 64;
  config.positions = 512;
  if (gated) config.attention = AttentionKind::kGated;
  SaveModel(LivelyModel(config, 72), folder);
  tokenizer.Save(folder);
}

}  // namespace clearhead

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path folder = argv[1];
  clearhead::MakeSmallModel(folder / "dense");
  clearhead::MakeSmallModel(folder / "gated", /*gated=*/true);
  clearhead::MakeSmallFeatures(folder / "dense");
  clearhead::MakeSmallFeatures(folder / "gated");
  const clearhead::Tokenizer tokenizer = clearhead::Tokenizer::Load(folder / "dense");
  clearhead::MakeManyHeads(folder / "many-dense", tokenizer, /*gated=*/false);
  clearhead::MakeManyHeads(folder / "many-gated", tokenizer, /*gated=*/true);
  clearhead::MakeInductionPair(folder / "induction");
  return 0;
}
