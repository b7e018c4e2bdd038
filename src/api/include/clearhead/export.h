// SPDX-License-Identifier: MIT
// What libclearhead.so shows; everything else in it is hidden.
#pragma once

#define CLEARHEAD_API __attribute__((visibility("default")))
