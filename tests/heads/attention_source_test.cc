// SPDX-License-Identifier: MIT
#include "heads/attention_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/json.h"
#include "core/safetensors.h"
#include "heads/head_map.h"
#include "model/model_testing.h"
#include "support/temporary_folder.h"

namespace clearhead {
namespace {

using testing::HasSubstr;

constexpr std::int64_t L = 2, H = 3, T = 5;

// [L,H,T,T]: each head's own mixture of the first token and itself.
std::vector<float> SmallMaps(std::int64_t batch = 1) {
  std::vector<float> maps;
  for (std::int64_t b = 0; b < batch; ++b) {
    for (std::int64_t h = 0; h < L * H; ++h) {
      const float own = 0.1f * static_cast<float>(h + b + 1);
      for (std::int64_t i = 0; i < T; ++i) {
        for (std::int64_t j = 0; j < T; ++j) {
          maps.push_back((j == i ? own : 0.0f) + (j == 0 ? 1.0f - own : 0.0f));
        }
      }
    }
  }
  return maps;
}

std::vector<float> Visited(const AttentionSource& source, std::size_t sequence = 0) {
  std::vector<float> all;
  const std::int64_t length = source.sequences[sequence].length;
  source.visit(sequence, [&](std::int64_t layer, const float* weights) {
    EXPECT_EQ(static_cast<std::int64_t>(all.size()), layer * source.heads * length * length);
    all.insert(all.end(), weights, weights + source.heads * length * length);
  });
  return all;
}

void WriteAttn(const std::filesystem::path& path, const std::vector<float>& maps,
               std::vector<std::int64_t> shape, DType dtype = DType::kF32) {
  WriteSafetensors(
      path, std::vector<TensorToWrite>{
                {.name = "attn", .dtype = dtype, .shape = std::move(shape), .data = maps.data()}});
}

TEST(AttentionFile, ReadsOneTensor) {
  const TemporaryFolder folder;
  WriteAttn(folder / "a.safetensors", SmallMaps(), {L, H, T, T});
  WriteFile(folder / "a.json", R"({"tokens": ["a", " b", "a", "c", " b"]})");
  const AttentionSource source = AttentionOfFile(folder / "a.safetensors", "A");
  EXPECT_EQ(source.label, "A");
  EXPECT_EQ(source.layers, L);
  EXPECT_EQ(source.heads, H);
  ASSERT_EQ(source.sequences.size(), 1u);
  EXPECT_EQ(source.sequences[0].length, T);
  EXPECT_EQ(source.sequences[0].ids, (std::vector<std::int32_t>{0, 1, 0, 2, 1}));
  EXPECT_EQ(source.token(0, 1), " b");
  EXPECT_EQ(Visited(source), SmallMaps());
}

TEST(AttentionFile, ReadsBatchesAndHalfPrecision) {
  const TemporaryFolder folder;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    WriteAttn(folder / "b.safetensors", SmallMaps(3), {3, L, H, T, T}, dtype);
    WriteFile(folder / "b.json", R"({"ids": [[1,2,3,4,5],[6,7,8,9,9],[1,1,1,1,1]]})");
    const AttentionSource source = AttentionOfFile(folder / "b.safetensors", "B");
    ASSERT_EQ(source.sequences.size(), 3u);
    EXPECT_EQ(source.sequences[1].ids, (std::vector<std::int32_t>{6, 7, 8, 9, 9}));
    const std::vector<float> all = SmallMaps(3), one = Visited(source, 2);
    const std::vector<float> expected(all.end() - static_cast<std::ptrdiff_t>(one.size()),
                                      all.end());
    EXPECT_LE(MaxAbsDifference(one, expected), dtype == DType::kF32 ? 0 : 4e-3);
    const AttentionSource last = OneSequence(source, 2);
    EXPECT_EQ(last.sequences.size(), 1u);
    EXPECT_EQ(Visited(last), one);
  }
}

TEST(AttentionFile, ReadsTransformerLensNames) {
  const TemporaryFolder folder;
  const std::vector<float> maps = SmallMaps();
  for (const bool batched : {false, true}) {
    std::vector<std::int64_t> shape = {H, T, T};
    if (batched) shape.insert(shape.begin(), 1);
    const float logits = 0;
    WriteSafetensors(
        folder / "t.safetensors",
        std::vector<TensorToWrite>{
            {.name = "logits", .shape = {}, .data = &logits},
            {.name = "blocks.1.attn.hook_pattern", .shape = shape, .data = maps.data() + H * T * T},
            {.name = "blocks.0.attn.hook_pattern", .shape = shape, .data = maps.data()}});
    const AttentionSource source = AttentionOfFile(folder / "t.safetensors", "");
    EXPECT_EQ(Visited(source), maps);
    EXPECT_EQ(source.token(0, 3), "3");  // no JSON beside it
    EXPECT_TRUE(source.sequences[0].ids.empty());
  }
}

TEST(AttentionFile, NamesTheFirstOffendingEntry) {
  const TemporaryFolder folder;
  const auto refuse = [&](std::int64_t layer, std::int64_t head, std::int64_t query,
                          std::int64_t key, float value, const std::string& what) {
    std::vector<float> maps = SmallMaps();
    maps[static_cast<std::size_t>(((layer * H + head) * T + query) * T + key)] = value;
    // A later one that must not be named.
    maps.back() = -1.0f;
    WriteAttn(folder / "bad.safetensors", maps, {L, H, T, T});
    const AttentionSource source = AttentionOfFile(folder / "bad.safetensors", "");
    const std::string message = ErrorOf([&] { Visited(source); });
    EXPECT_THAT(message, HasSubstr("bad.safetensors"));
    EXPECT_THAT(message, HasSubstr(fmt::format("layer {}, head {}, query {}", layer, head, query)));
    EXPECT_THAT(message, HasSubstr(what));
    EXPECT_EQ(message.find('\n'), std::string::npos);
  };
  refuse(1, 2, 3, 1, std::numeric_limits<float>::quiet_NaN(), "key 1: the weight is nan");
  refuse(0, 1, 2, 2, -0.25f, "key 2: the weight is -0.25");
  refuse(0, 0, 1, 0, std::numeric_limits<float>::infinity(), "key 0: the weight is inf");
  refuse(1, 0, 2, 4, 0.125f, "key 4: the weight is 0.125, but the key is in the future");
  refuse(0, 2, 4, 3, 0.5f, "the weights sum to 1.5");
}

TEST(AttentionFile, RowsBelowOneAreLegal) {
  const TemporaryFolder folder;
  std::vector<float> maps = SmallMaps();
  for (float& w : maps) w *= 0.25f;
  std::fill(maps.begin(), maps.begin() + T * T, 0.0f);
  WriteAttn(folder / "g.safetensors", maps, {L, H, T, T});
  EXPECT_EQ(Visited(AttentionOfFile(folder / "g.safetensors", "")), maps);
}

TEST(AttentionFile, RefusesOtherFiles) {
  const TemporaryFolder folder;
  const std::vector<float> maps = SmallMaps(2);
  const auto refuse = [&](const std::vector<TensorToWrite>& tensors, const std::string& json,
                          const std::string& what) {
    WriteSafetensors(folder / "x.safetensors", tensors);
    std::filesystem::remove(folder / "x.json");
    if (!json.empty()) WriteFile(folder / "x.json", json);
    EXPECT_THAT(ErrorOf([&] { AttentionOfFile(folder / "x.safetensors", ""); }), HasSubstr(what));
  };
  const TensorToWrite good{.name = "attn", .shape = {L, H, T, T}, .data = maps.data()};
  refuse({{.name = "weights", .shape = {5}, .data = maps.data()}}, "", "no attention");
  refuse({{.name = "attn", .shape = {T, T}, .data = maps.data()}}, "", "[5,5]");
  refuse({{.name = "attn", .shape = {L, H, T, T + 1}, .data = maps.data()}}, "", "[2,3,5,6]");
  refuse({{.name = "attn", .shape = {L, H, 0, 0}, .data = maps.data()}}, "", "[2,3,0,0]");
  refuse({{.name = "blocks.1.attn.hook_pattern", .shape = {H, T, T}, .data = maps.data()}}, "",
         "'blocks.0.attn.hook_pattern' is missing");
  refuse({{.name = "blocks.0.attn.hook_pattern", .shape = {H, T, T}, .data = maps.data()},
          {.name = "blocks.1.attn.hook_pattern", .shape = {H - 1, T, T}, .data = maps.data()}},
         "", "but layer 0 is");
  refuse({good}, "[]", "'tokens'");
  refuse({good}, R"({"tokens": ["a"]})", "1 entries");
  refuse({good}, R"({"tokens": [1,2,3,4,5]})", "not a text");
  refuse({good}, R"({"ids": ["a","b","c","d","e"]})", "not a whole number");
  refuse({{.name = "attn", .shape = {2, 1, H, T, T}, .data = maps.data()}},
         R"({"ids": [1,2,3,4,5]})", "for each of the 2 sequences");
}

TEST(AttentionModel, GivesThePatternsOfTheRun) {
  for (const bool gated : {false, true}) {
    const ModelConfig config = gated ? GatedConfig() : OddConfig();
    const Model model = LivelyModel(config, 5);
    const std::vector<std::int32_t> ids = RandomIds(config, 11, 3), other = RandomIds(config, 1, 4);
    const AttentionSource source = AttentionOfModel(model, {}, "m", {ids, other}, {});
    EXPECT_EQ(source.layers, config.layers);
    EXPECT_EQ(source.heads, config.heads);
    EXPECT_EQ(source.token(0, 2), std::to_string(ids[2]));
    std::vector<TapId> taps;
    for (std::int64_t layer = 0; layer < config.layers; ++layer)
      taps.push_back({Tap::kPattern, layer});
    const ModelRun run = RunModel(model, ids, 1, {.taps = taps});
    std::vector<float> expected;
    for (const TapId tap : taps) {
      const std::vector<float>& values = run.taps.at(tap).values;
      expected.insert(expected.end(), values.begin(), values.end());
    }
    const std::vector<float> visited = Visited(source);
    EXPECT_EQ(visited, expected);
    if (gated) {
      EXPECT_GT(std::count(visited.begin(), visited.end(), 0.0f),
                config.layers * config.heads * 11 * 10 / 2);
    }
    // What a model computes is attention.
    for (std::int64_t layer = 0; layer < config.layers; ++layer) {
      EXPECT_NO_THROW(CheckAttention(visited.data() + layer * config.heads * 11 * 11, config.heads,
                                     11, 1e-5, {}));
    }
    EXPECT_EQ(Visited(source, 1).size(), static_cast<std::size_t>(config.layers * config.heads));
  }
}

TEST(HeadMap, ReducesByMaximum) {
  constexpr std::int64_t kLength = 1024;
  std::vector<float> map(kLength * kLength, 0.0f);
  map[1000 * kLength + 3] = 0.75f;  // a single open edge
  const HeadMap reduced = ReduceMap({1, 2}, map.data(), kLength, 111);
  EXPECT_EQ(reduced.block, 10);
  EXPECT_EQ(reduced.cells, 103);
  EXPECT_EQ(reduced.weights[100 * 103 + 0], 0.75f);
  EXPECT_EQ(std::count(reduced.weights.begin(), reduced.weights.end(), 0.0f), 103 * 103 - 1);
  const std::vector<float> maps = SmallMaps();
  const HeadMap whole = ReduceMap({0, 0}, maps.data(), T, 5);
  EXPECT_EQ(whole.block, 1);
  EXPECT_EQ(whole.weights, std::vector<float>(maps.begin(), maps.begin() + T * T));
  EXPECT_EQ(ReduceMap({0, 0}, maps.data(), T, 1).cells, 1);
}

}  // namespace
}  // namespace clearhead
