// SPDX-License-Identifier: MIT
#include "train/sparsify_step.h"

#include <algorithm>

#include "kernels/loss.h"
#include "model/output.h"
#include "model/run.h"

namespace clearhead {
namespace {

Keep KeepOf(const StepShape& shape) { return shape.recompute ? Keep::kInputs : Keep::kAll; }

// Before the buffers are made.
const SparsifyStepOptions& Checked(const ModelConfig& config, const SparsifyStepOptions& options) {
  CheckStepShape(config, options.shape);
  return options;
}

double Mean(const float* values, std::int64_t count) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < count; ++i) sum += values[i];
  return sum / static_cast<double>(count);
}

}  // namespace

SparsifyStep::SparsifyStep(const ModelConfig& config, const SparsifyStepOptions& options)
    : options_(Checked(config, options)),
      student_(config, options.shape.batch, options.shape.context, KeepOf(options.shape),
               LogitRows(options.shape.batch * options.shape.context)),
      teacher_logits_(student_.logit_rows * config.vocabulary),
      starts_(static_cast<std::size_t>(options.shape.batch)),
      teacher_losses_(options.shape.batch * options.shape.context),
      divergences_(teacher_losses_.size()),
      inputs_(static_cast<std::size_t>(teacher_losses_.size())),
      targets_(inputs_.size()) {
  if (options.shape.bf16) packed_student_ = std::make_unique<PackedWeights>();
  if (options.stored == nullptr) {
    teacher_.emplace(config, options.shape.batch, options.shape.context, Keep::kNothing, 0);
  }
}

// Rows of the batch, whose sequences are `context` long; stored ones have one token more, the last
// target.
void SparsifyStep::TeacherLogits(const Pass& teacher, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t C = teacher.config().width, V = teacher.config().vocabulary;
  if (teacher_) {
    return LogitsForward(teacher, rows, teacher_->ln_f + first_row * C, teacher_logits_.data());
  }
  for (std::int64_t row = 0; row < rows;) {
    const std::int64_t sequence = (first_row + row) / teacher.length;
    const std::int64_t position = (first_row + row) % teacher.length;
    const std::int64_t count = std::min(teacher.length - position, rows - row);
    options_.stored->Read(starts_[static_cast<std::size_t>(sequence)] + position, count,
                          teacher_logits_.data() + row * V);
    row += count;
  }
}

SparsifyStepResult SparsifyStep::Gradients(Optimizer& optimizer, const Model& dense,
                                           Batches& batches, std::int64_t step, double beta) {
  const StepShape& shape = options_.shape;
  const std::int64_t rows = shape.batch * shape.context, C = dense.config.width;
  const std::int64_t V = dense.config.vocabulary;
  if (packed_student_) {
    packed_student_->Pack(optimizer.model());
    if (teacher_ && !packed_teacher_) {
      packed_teacher_ = std::make_unique<PackedWeights>();
      packed_teacher_->Pack(dense);
    }
  }
  const double share = 1.0 / static_cast<double>(shape.accumulation);
  const double weight = share / (1.0 + beta);
  const Pass teacher{.model = dense,
                     .batch = shape.batch,
                     .length = shape.context,
                     .packed = packed_teacher_.get()};
  SparsifyStepResult result;
  double open = 0.0, probability = 0.0;
  for (std::int64_t part = 0; part < shape.accumulation; ++part) {
    const std::int64_t first = (step * shape.accumulation + part) * shape.batch;
    batches.Fill(first, shape.batch, inputs_.data(), targets_.data());
    CheckVocabulary(targets_, V);
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      starts_[static_cast<std::size_t>(b)] = batches.Start(first + b);
    }
    GateRun gates{.mode = GateMode::kSampled};
    gates.noise = {.seed = options_.seed,
                   .step = static_cast<std::uint64_t>(step),
                   .first_sample = static_cast<std::uint64_t>(first)};
    gates.penalty_weight = static_cast<float>(weight * beta);
    const Pass student{.model = optimizer.model(),
                       .batch = shape.batch,
                       .length = shape.context,
                       .gates = gates,
                       .packed = packed_student_.get()};

    if (teacher_) ForwardToFinalNorm(teacher, inputs_.data(), *teacher_);
    ForwardToFinalNorm(student, inputs_.data(), student_);
    for (std::int64_t at = 0; at < rows; at += student_.logit_rows) {
      const std::int64_t n = std::min(student_.logit_rows, rows - at);
      TeacherLogits(teacher, at, n);
      LogitsForward(student, n, student_.ln_f + at * C, student_.logits);
      DistilledCrossEntropy(
          {.rows = n,
           .vocabulary = V,
           .targets = targets_.data() + at,
           .teacher_logits = teacher_logits_.data(),
           .distill = options_.distill,
           .gradient_scale = static_cast<float>(weight / static_cast<double>(rows))},
          student_.logits,
          {student_.losses + at, teacher_losses_.data() + at, divergences_.data() + at});
      LogitsBackward(student, n, at, student_,
                     OutputMatrix(student.config(), optimizer.gradients()), &scratch_);
    }
    BackwardFromFinalNorm(student, inputs_.data(), student_, &optimizer.gradients(), &scratch_);

    result.loss += share * Mean(student_.losses, rows);
    result.dense_loss += share * Mean(teacher_losses_.data(), rows);
    result.divergence += share * Mean(divergences_.data(), rows);
    for (const std::int64_t edges : student_.open_edges) open += static_cast<double>(edges);
    for (const double sum : student_.gate_probability_sum) probability += sum;
  }
  const double pairs = static_cast<double>(student_.open_edges.size() * shape.accumulation) * 0.5 *
                       static_cast<double>(shape.context) * static_cast<double>(shape.context + 1);
  result.open_share = open / pairs;
  result.penalty = probability / pairs;
  result.gradient_norm = optimizer.GradientNorm();
  return result;
}

}  // namespace clearhead
