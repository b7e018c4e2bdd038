// SPDX-License-Identifier: MIT
// Taps: public names for every intermediate value of a forward pass, TransformerLens's names. Axes
// of the shapes: B sequences, T positions, H heads, K key/value heads, D head size, C width, F
// inner width.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"
#include "model/config.h"

namespace clearhead {

enum class Tap {
  kEmbed,     // hook_embed                    [B,T,C]   embedding of each token
  kPosEmbed,  // hook_pos_embed                [B,T,C]   embedding of each position; learned
              // positions
  kResidPre,  // blocks.l.hook_resid_pre       [B,T,C]
  kQInput,    // blocks.l.hook_q_input         [B,T,H,C] resid_pre as each head's queries see it
  kKInput,    // blocks.l.hook_k_input         [B,T,K,C]
  kVInput,    // blocks.l.hook_v_input         [B,T,K,C]
  kLn1Scale,  // blocks.l.ln1.hook_scale       [B,T,1]   the divisor
  kLn1Normalized,  // blocks.l.ln1.hook_normalized  [B,T,C]   after gain and bias
  kQ,              // blocks.l.attn.hook_q          [B,T,H,D]
  kK,              // blocks.l.attn.hook_k          [B,T,K,D]
  kV,              // blocks.l.attn.hook_v          [B,T,K,D]
  kRotQ,           // blocks.l.attn.hook_rot_q      [B,T,H,D] as scores see them; rotary models
  kRotK,           // blocks.l.attn.hook_rot_k      [B,T,K,D]
  kScores,         // blocks.l.attn.hook_attn_scores [B,H,T,T] scaled; -infinity in the future
  kGateProb,    // blocks.l.attn.hook_gate_prob  [B,H,T,T] sigmoid(score + bias); gated models only
  kSparseMask,  // blocks.l.attn.hook_sparse_mask [B,H,T,T] 1 where the gate is open; gated only
  kPattern,     // blocks.l.attn.hook_pattern    [B,H,T,T] the weights that meet the values
  kZ,           // blocks.l.attn.hook_z          [B,T,H,D]
  kResult,    // blocks.l.attn.hook_result     [B,T,H,C] each head's share of attn_out, without bias
  kAttnOut,   // blocks.l.hook_attn_out        [B,T,C]
  kResidMid,  // blocks.l.hook_resid_mid       [B,T,C]
  kMlpIn,     // blocks.l.hook_mlp_in          [B,T,C]   resid_mid as the MLP sees it
  kLn2Scale,  // blocks.l.ln2.hook_scale       [B,T,1]
  kLn2Normalized,      // blocks.l.ln2.hook_normalized  [B,T,C]
  kMlpPre,             // blocks.l.mlp.hook_pre         [B,T,F]
  kMlpPreLinear,       // blocks.l.mlp.hook_pre_linear  [B,T,F] the other factor; gated MLPs
  kMlpPost,            // blocks.l.mlp.hook_post        [B,T,F]
  kMlpOut,             // blocks.l.hook_mlp_out         [B,T,C]
  kResidPost,          // blocks.l.hook_resid_post      [B,T,C]
  kLnFinalScale,       // ln_final.hook_scale           [B,T,1]
  kLnFinalNormalized,  // ln_final.hook_normalized      [B,T,C]
};
inline constexpr int kTapCount = static_cast<int>(Tap::kLnFinalNormalized) + 1;

// What an axis of a tap counts: tells interventions where batch, position, head and key are.
enum class TapAxes { kPosition, kPositionHead, kHeadQueryKey };  // [B,T,*], [B,T,H,*], [B,H,T,T]

struct TapId {
  Tap tap = Tap::kEmbed;
  std::int64_t layer = 0;  // 0 for the taps outside the blocks
  auto operator<=>(const TapId&) const = default;
};

TapAxes AxesOf(Tap tap);
bool IsPerLayer(Tap tap);
bool HasGradient(Tap tap);  // all but the scales of the norms and the gate probability
Shape TapShape(Tap tap, const ModelConfig& config, std::int64_t batch, std::int64_t length);

std::string TapName(TapId id);
std::optional<TapId> ParseTap(std::string_view name, const ModelConfig& config);

// Every tap of this model in the order of the forward pass.
std::vector<TapId> AllTaps(const ModelConfig& config);

// The taps matched by a comma list of names, in which * stands for any run of characters; "all" is
// every tap. A pattern that matches nothing is refused.
std::vector<TapId> MatchTaps(std::string_view patterns, const ModelConfig& config);

// The same over any names: which of them are matched. Messages show `example`, the look of a name.
std::vector<bool> MatchNames(std::string_view patterns, const std::vector<std::string>& names,
                             std::string_view example);

}  // namespace clearhead
