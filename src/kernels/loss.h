// SPDX-License-Identifier: MIT
// Softmax cross-entropy, in place on a block of logits, and draws from a softmax.
//   loss = log sum_v exp(logits[v]) - logits[target]
#pragma once

#include <cstdint>
#include <span>

namespace clearhead {

// loss[r] for each row of logits [rows, vocabulary]. Rows whose target is negative are skipped
// (loss 0). With `gradient_scale` != 0 the logits are overwritten by gradient_scale * (softmax -
// onehot(target)), zero for skipped rows; so forward and backward share one buffer.
void CrossEntropy(std::int64_t rows, std::int64_t vocabulary, const std::int32_t* targets,
                  float* logits, float* loss, float gradient_scale);

// Cross-entropy of a student together with its divergence from a teacher:
//   loss = CE(softmax(logits), target)     teacher_loss = CE(softmax(teacher), target)
//   divergence = KL(softmax(teacher) || softmax(logits))
struct DistilledRows {
  std::int64_t rows, vocabulary;
  const std::int32_t* targets;  // none negative
  const float* teacher_logits;  // [rows, vocabulary]
  float distill;                // weight of the divergence
  float gradient_scale;
  float label = 1.0f;  // weight of the loss
};
struct DistilledLosses {  // each [rows]
  float *loss, *teacher_loss, *divergence;
};

// Overwrites the student's logits by gradient_scale * d(label loss + distill divergence) / d
// logits.
void DistilledCrossEntropy(const DistilledRows& problem, float* logits, const DistilledLosses& out);

// The first i with  sum_{j <= i} softmax(logits / temperature)[j] > uniform:  a draw, where
// `uniform` is one from [0, 1]. The temperature is above 0, and there is a logit.
std::int64_t DrawFromSoftmax(std::span<const float> logits, double temperature, double uniform);

}  // namespace clearhead
