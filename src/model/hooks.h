// SPDX-License-Identifier: MIT
// Hooks: how a caller sees and changes a forward or backward pass while it runs. Values pass by in
// the order of the forward pass (gradients in reverse); views are valid during the call only.
#pragma once

#include "core/tensor.h"
#include "model/taps.h"

namespace clearhead {

class Hooks {
 public:
  virtual ~Hooks() = default;

  // Whether Visit should be called. What nobody wants is not computed: the T×T matrices of
  // attention exist only where one of them is wanted.
  virtual bool Wants(TapId id) const = 0;
  // May read the value and change it in place; what follows uses the changed value.
  virtual void Visit(TapId id, const TensorView<float>& value) = 0;
  // Whether Visit may change the value: backward then keeps the original beside it.
  virtual bool Changes(TapId) const { return false; }
  // A place of the caller's where the value is to be computed, so that large matrices need no copy;
  // null for "anywhere". Visit is called with that same place.
  virtual float* Storage(TapId, const Shape&) { return nullptr; }

  // The same for d loss / d value in backward. Where Visit replaced the value, VisitGradient must
  // zero the gradient, since nothing before that point influences it.
  virtual bool WantsGradient(TapId) const { return false; }
  virtual void VisitGradient(TapId, const TensorView<float>&) {}
};

}  // namespace clearhead
