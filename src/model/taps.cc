// SPDX-License-Identifier: MIT
#include "model/taps.h"

#include <algorithm>

#include "core/error.h"

namespace clearhead {
namespace {

enum class Last { kWidth, kHeadSize, kInner, kOne, kKeys };

struct TapInfo {
  Tap tap;
  std::string_view name;
  bool per_layer;
  TapAxes axes;
  Last last;
};

// In the order of enum Tap, which is the order of the forward pass.
constexpr TapInfo kTaps[kTapCount] = {
    {Tap::kEmbed, "hook_embed", false, TapAxes::kPosition, Last::kWidth},
    {Tap::kPosEmbed, "hook_pos_embed", false, TapAxes::kPosition, Last::kWidth},
    {Tap::kResidPre, "hook_resid_pre", true, TapAxes::kPosition, Last::kWidth},
    {Tap::kQInput, "hook_q_input", true, TapAxes::kPositionHead, Last::kWidth},
    {Tap::kKInput, "hook_k_input", true, TapAxes::kPositionHead, Last::kWidth},
    {Tap::kVInput, "hook_v_input", true, TapAxes::kPositionHead, Last::kWidth},
    {Tap::kLn1Scale, "ln1.hook_scale", true, TapAxes::kPosition, Last::kOne},
    {Tap::kLn1Normalized, "ln1.hook_normalized", true, TapAxes::kPosition, Last::kWidth},
    {Tap::kQ, "attn.hook_q", true, TapAxes::kPositionHead, Last::kHeadSize},
    {Tap::kK, "attn.hook_k", true, TapAxes::kPositionHead, Last::kHeadSize},
    {Tap::kV, "attn.hook_v", true, TapAxes::kPositionHead, Last::kHeadSize},
    {Tap::kRotQ, "attn.hook_rot_q", true, TapAxes::kPositionHead, Last::kHeadSize},
    {Tap::kRotK, "attn.hook_rot_k", true, TapAxes::kPositionHead, Last::kHeadSize},
    {Tap::kScores, "attn.hook_attn_scores", true, TapAxes::kHeadQueryKey, Last::kKeys},
    {Tap::kGateProb, "attn.hook_gate_prob", true, TapAxes::kHeadQueryKey, Last::kKeys},
    {Tap::kSparseMask, "attn.hook_sparse_mask", true, TapAxes::kHeadQueryKey, Last::kKeys},
    {Tap::kPattern, "attn.hook_pattern", true, TapAxes::kHeadQueryKey, Last::kKeys},
    {Tap::kZ, "attn.hook_z", true, TapAxes::kPositionHead, Last::kHeadSize},
    {Tap::kResult, "attn.hook_result", true, TapAxes::kPositionHead, Last::kWidth},
    {Tap::kAttnOut, "hook_attn_out", true, TapAxes::kPosition, Last::kWidth},
    {Tap::kResidMid, "hook_resid_mid", true, TapAxes::kPosition, Last::kWidth},
    {Tap::kMlpIn, "hook_mlp_in", true, TapAxes::kPosition, Last::kWidth},
    {Tap::kLn2Scale, "ln2.hook_scale", true, TapAxes::kPosition, Last::kOne},
    {Tap::kLn2Normalized, "ln2.hook_normalized", true, TapAxes::kPosition, Last::kWidth},
    {Tap::kMlpPre, "mlp.hook_pre", true, TapAxes::kPosition, Last::kInner},
    {Tap::kMlpPreLinear, "mlp.hook_pre_linear", true, TapAxes::kPosition, Last::kInner},
    {Tap::kMlpPost, "mlp.hook_post", true, TapAxes::kPosition, Last::kInner},
    {Tap::kMlpOut, "hook_mlp_out", true, TapAxes::kPosition, Last::kWidth},
    {Tap::kResidPost, "hook_resid_post", true, TapAxes::kPosition, Last::kWidth},
    {Tap::kLnFinalScale, "ln_final.hook_scale", false, TapAxes::kPosition, Last::kOne},
    {Tap::kLnFinalNormalized, "ln_final.hook_normalized", false, TapAxes::kPosition, Last::kWidth},
};

const TapInfo& Info(Tap tap) { return kTaps[static_cast<int>(tap)]; }

// Whether a model of this form has the value at all.
bool Exists(Tap tap, const ModelConfig& config) {
  switch (tap) {
    case Tap::kGateProb:
    case Tap::kSparseMask:
      return config.attention == AttentionKind::kGated;
    case Tap::kPosEmbed:
      return config.position == PositionKind::kLearned;
    case Tap::kRotQ:
    case Tap::kRotK:
      return config.position == PositionKind::kRotary;
    case Tap::kMlpPreLinear:
      return config.mlp == MlpKind::kGated;
    default:
      return true;
  }
}

// Keys and values have as many heads as are kept of them.
bool IsKeyOrValue(Tap tap) {
  return tap == Tap::kKInput || tap == Tap::kVInput || tap == Tap::kK || tap == Tap::kV ||
         tap == Tap::kRotK;
}

// Whether `text` matches `pattern` with * for any run of characters. Greedy with one backtrack
// point: linear in practice, never exponential.
bool Matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace

TapAxes AxesOf(Tap tap) { return Info(tap).axes; }
bool IsPerLayer(Tap tap) { return Info(tap).per_layer; }

bool HasGradient(Tap tap) { return Info(tap).last != Last::kOne && tap != Tap::kGateProb; }

Shape TapShape(Tap tap, const ModelConfig& config, std::int64_t batch, std::int64_t length) {
  const TapInfo& info = Info(tap);
  std::int64_t last = 1;
  switch (info.last) {
    case Last::kWidth:
      last = config.width;
      break;
    case Last::kHeadSize:
      last = config.head_size();
      break;
    case Last::kInner:
      last = config.inner;
      break;
    case Last::kKeys:
      last = length;
      break;
    case Last::kOne:
      last = 1;
      break;
  }
  switch (info.axes) {
    case TapAxes::kPosition:
      return {batch, length, last};
    case TapAxes::kPositionHead:
      return {batch, length, IsKeyOrValue(tap) ? config.kv_heads() : config.heads, last};
    case TapAxes::kHeadQueryKey:
      return {batch, config.heads, length, last};
  }
  return {};
}

std::string TapName(TapId id) {
  const TapInfo& info = Info(id.tap);
  return info.per_layer ? fmt::format("blocks.{}.{}", id.layer, info.name) : std::string(info.name);
}

std::vector<TapId> AllTaps(const ModelConfig& config) {
  std::vector<TapId> taps = {{Tap::kEmbed, 0}};
  if (Exists(Tap::kPosEmbed, config)) taps.push_back({Tap::kPosEmbed, 0});
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    for (const TapInfo& info : kTaps) {
      if (!info.per_layer || !Exists(info.tap, config)) continue;
      taps.push_back({info.tap, layer});
    }
  }
  taps.push_back({Tap::kLnFinalScale, 0});
  taps.push_back({Tap::kLnFinalNormalized, 0});
  return taps;
}

std::optional<TapId> ParseTap(std::string_view name, const ModelConfig& config) {
  for (const TapId id : AllTaps(config)) {
    if (TapName(id) == name) return id;
  }
  return std::nullopt;
}

std::vector<bool> MatchNames(std::string_view patterns, const std::vector<std::string>& names,
                             std::string_view example) {
  std::vector<bool> chosen(names.size(), false);
  std::size_t begin = 0;
  while (begin <= patterns.size()) {
    const std::size_t comma = std::min(patterns.find(',', begin), patterns.size());
    const std::string_view given = patterns.substr(begin, comma - begin);
    const std::string_view pattern = given == "all" ? "*" : given;
    bool any = false;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (Matches(pattern, names[i])) chosen[i] = any = true;
    }
    if (!any) {
      Fail("no tap of this model is named '{}'; names look like {}, and * matches any characters",
           given, example);
    }
    begin = comma + 1;
  }
  return chosen;
}

std::vector<TapId> MatchTaps(std::string_view patterns, const ModelConfig& config) {
  const std::vector<TapId> all = AllTaps(config);
  std::vector<std::string> names;
  for (const TapId id : all) names.push_back(TapName(id));
  const std::vector<bool> chosen = MatchNames(patterns, names, TapName({Tap::kPattern, 0}));
  std::vector<TapId> result;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (chosen[i]) result.push_back(all[i]);
  }
  return result;
}

}  // namespace clearhead
