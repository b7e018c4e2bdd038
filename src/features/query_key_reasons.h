// SPDX-License-Identifier: MIT
// Why a head looks from a query to a key: its score as a sum over pairs of what is in the stream at
// the query and what is at the key. Each term is centred, divided as the norm divided in the run,
// and goes through W_Q or W_K (and through the norms of queries and keys and the rotation, where
// the model has them, at their frozen divisors); the norm's bias and b_Q, b_K are in the bias term.
//
//   matrix[a,b] = q_a . k_b * scale,    its sum is the score
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "features/frozen_prompt.h"

namespace clearhead {

enum class StreamTermKind { kToken, kPosition, kFeature, kError, kHead, kSkip, kBias };
std::string_view NameOf(StreamTermKind kind);  // "token", ...

// layer and index: of a feature its layer and number, of a head its layer and head, of errors and
// skips layer and position, of token and position -1 and the id or position.
struct StreamTerm {
  StreamTermKind kind = StreamTermKind::kBias;
  std::int64_t layer = -1, index = -1;
};

struct QueryKeyReasons {
  std::int64_t layer = 0, head = 0, query = 0, key = 0;
  double score = 0.0;  // from the stream as a whole, not from the matrix
  std::vector<StreamTerm> query_terms, key_terms;
  Buffer<float> matrix;  // [query terms, key terms]

  double At(std::int64_t a, std::int64_t b) const {
    return matrix[a * static_cast<std::int64_t>(key_terms.size()) + b];
  }
  std::vector<double> QuerySums() const;  // of each query term over all of the key
  std::vector<double> KeySums() const;
};

// What the stream in front of `layer` is made of at a position: terms and their vectors [terms,C],
// which add up to it. The bias is last.
struct StreamSum {
  std::vector<StreamTerm> terms;
  std::vector<float> vectors;
};
StreamSum StreamTermsAt(const FrozenPrompt& prompt, std::int64_t layer, std::int64_t position);

// Refuses positions that are no pair, heads that are not there, and queries or keys that the model
// clamps: a clamped sum is not the sum of its terms.
QueryKeyReasons ExplainScore(const FrozenPrompt& prompt, std::int64_t layer, std::int64_t head,
                             std::int64_t query, std::int64_t key);

// The pairs from the largest magnitude down, at most `count`, as (query term, key term).
struct TermPair {
  std::int64_t query, key;
  double value;
};
std::vector<TermPair> StrongestPairs(const QueryKeyReasons& reasons, std::int64_t count);

// Of a gated head: how far score + gate bias is from 0, where the gate turns, and the pairs without
// any one of which it would turn, strongest first.
struct GateMargin {
  double margin = 0.0;  // positive: open
  std::vector<TermPair> turning;
};
GateMargin MarginOfGate(const QueryKeyReasons& reasons, double gate_bias);

}  // namespace clearhead
