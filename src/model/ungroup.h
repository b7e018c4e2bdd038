// SPDX-License-Identifier: MIT
// A model of shared keys and values as one in which every head has its own: the same numbers, and
// each head's keys and values can be asked and changed by themselves, as circuits of edges do.
#pragma once

#include "model/model.h"

namespace clearhead {

// Itself where nothing is shared; otherwise with copies of the key and value matrices.
Model Ungroup(const Model& model);

}  // namespace clearhead
