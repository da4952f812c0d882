//===- FakePjrt.h - PJRT's transformations, for plugins of the tests --------------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// What a plugin of PJRT hands to a transformation, and how one is registered. The layouts are written here a second
// time, from PJRT's headers.
//
//===------------------------------------------------------------------------------------------===//
#ifndef COMMSCHED_TEST_FRONTENDS_FAKEPJRT_H
#define COMMSCHED_TEST_FRONTENDS_FAKEPJRT_H

#include <cstddef>
#include <cstdint>

namespace commsched::hlo::test {

extern "C" {
struct PjrtText {
  const char *data;
  size_t size;
};
struct PjrtTransformArguments {
  size_t struct_size;
  int64_t api_version;
  void *data;
  void (*cleanup_fn)(void *);
  bool has_error;
  int code;
  PjrtText error_msg;
  PjrtText hlo_module;
  PjrtText transformed_hlo_module;
  bool changed;
};
struct PjrtTransformCallbacks {
  int64_t version;
  void (*dtor)(void *);
  void (*transform_hlo_module)(void *, void *);
};
struct PjrtTransformRegistration {
  size_t struct_size;
  const char *name;
  size_t name_size;
  int stage;
  PjrtTransformCallbacks *callbacks;
};
struct PjrtTransformExtension {
  size_t struct_size;
  int type;
  void *next;
  void *(*register_xla_transform)(void *);
  void *clear;
};
}

/// The type of the extension for transformations in PJRT's chain.
inline constexpr int kPjrtTransformExtension = 24;

} // namespace commsched::hlo::test

#endif // COMMSCHED_TEST_FRONTENDS_FAKEPJRT_H
