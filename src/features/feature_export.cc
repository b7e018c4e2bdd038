// SPDX-License-Identifier: MIT
#include "features/feature_export.h"

#include <algorithm>

#include "core/file.h"
#include "core/gzip.h"
#include "core/threads.h"

namespace clearhead {
namespace {

// The names that other makers of such files use.
std::string QuantileName(ExampleGroup group) {
  if (group == ExampleGroup::kTop) return "Top activations";
  return fmt::format("Subsample interval {}", static_cast<int>(group) - 1);
}

Json Texts(const Tokenizer& tokenizer, const TokenList& list) {
  Json texts = Json::array();
  for (const TokenScore& score : list) texts.push_back(tokenizer.TokenText(score.token));
  return texts;
}

// Activations between which the thirds of all firings lie, as exact as the bins are.
std::vector<float> Thirds(const FeatureFacts& facts) {
  std::vector<float> values = {0.0f};
  std::int64_t below = 0;
  for (std::size_t bin = 0; bin < facts.histogram.size(); ++bin) {
    below += facts.histogram[bin];
    while (values.size() < 3 &&
           3 * below >= static_cast<std::int64_t>(values.size()) * facts.fired) {
      values.push_back(static_cast<float>(bin + 1) * facts.bin_width);
    }
  }
  values.push_back(facts.largest);
  return values;
}

}  // namespace

Json FeatureFile(const FeatureFacts& facts, const IndexInfo& info, const Tokenizer& tokenizer,
                 const std::string& transcoder_id) {
  Json groups = Json::array();
  for (int g = 0; g < kExampleGroups; ++g) {
    Json examples = Json::array();
    for (const FeatureExample& example : facts.examples) {
      if (static_cast<int>(example.group) != g) continue;
      Json tokens = Json::array();
      for (const std::int32_t id : example.tokens) tokens.push_back(tokenizer.TokenText(id));
      examples.push_back({{"tokens_acts_list", example.activations},
                          {"train_token_ind", example.peak},
                          {"is_repeated_datapoint", false},
                          {"tokens", std::move(tokens)}});
    }
    if (examples.empty()) continue;
    groups.push_back({{"quantile_name", QuantileName(static_cast<ExampleGroup>(g))},
                      {"examples", std::move(examples)}});
  }
  return {{"transcoder_id", transcoder_id},
          {"index", facts.id.feature},
          {"examples_quantiles", std::move(groups)},
          {"top_logits", Texts(tokenizer, facts.tokens.promoted)},
          {"bottom_logits", Texts(tokenizer, facts.tokens.suppressed)},
          {"act_min", 0.0},
          {"act_max", facts.largest},
          {"quantile_values", Thirds(facts)},
          {"histogram", facts.histogram},
          {"activation_frequency",
           info.tokens == 0 ? 0.0
                            : static_cast<double>(facts.fired) / static_cast<double>(info.tokens)}};
}

ExportedFeatures ExportFeatures(const FeatureIndex& index, const Tokenizer& tokenizer,
                                const std::string& transcoder_id,
                                const std::filesystem::path& folder,
                                const std::function<void(std::int64_t)>& progress) {
  const IndexInfo& info = index.info();
  constexpr std::int64_t kBlock = 512;
  MakeDirectory(folder);
  ExportedFeatures result;
  Json layers = Json::object();
  for (std::int64_t l = 0; l < info.layers; ++l) {
    const std::string name = fmt::format("layer_{}.bin", l);
    AtomicFile file(folder / name);
    std::vector<std::int64_t> offsets = {0};
    for (std::int64_t first = 0; first < info.features; first += kBlock) {
      const std::int64_t count = std::min(kBlock, info.features - first);
      std::vector<std::string> files(static_cast<std::size_t>(count));
      ParallelFor(count, [&](std::int64_t i) {
        const FeatureFacts facts = index.Read({l, first + i});
        files[static_cast<std::size_t>(i)] =
            Gzip(ToText(FeatureFile(facts, info, tokenizer, transcoder_id), -1));
      });
      for (const std::string& bytes : files) {
        const auto size = static_cast<std::uint32_t>(bytes.size());
        file.Write(std::as_bytes(std::span(&size, 1)));
        file.Write(bytes);
        offsets.push_back(offsets.back() + static_cast<std::int64_t>(sizeof(size) + bytes.size()));
      }
      result.features += count;
      if (progress) progress(result.features);
    }
    file.Commit();
    result.bytes += offsets.back();
    layers[std::to_string(l)] = {{"filename", name}, {"offsets", offsets}};
  }
  WriteFile(folder / "index.json.gz", Gzip(ToText(layers, -1)));
  return result;
}

}  // namespace clearhead
