//===- SameCall.h - Compares a declaration of ours with that of a library ----------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// A function of ours may stand for one of a library if a call passes the same registers: pointers for pointers,
// integers and enumerations of equal size, structures of equal size.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TEST_RUNTIME_SAMECALL_H
#define COMMSCHED_TEST_RUNTIME_SAMECALL_H

#include <type_traits>

template <typename Ours, typename Theirs> constexpr bool isSameArgument() {
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>)
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  else if constexpr (std::is_class_v<Ours> || std::is_class_v<Theirs>)
    return std::is_class_v<Ours> && std::is_class_v<Theirs> && sizeof(Ours) == sizeof(Theirs) &&
           alignof(Ours) == alignof(Theirs);
  else if constexpr (std::is_enum_v<Theirs>)
    return std::is_integral_v<Ours> && sizeof(Ours) == sizeof(Theirs);
  else
    return std::is_same_v<Ours, Theirs>;
}

template <typename Ours, typename Theirs> struct IsSameCall : std::false_type {};
template <typename R, typename... A, typename S, typename... B> struct IsSameCall<R (*)(A...), S (*)(B...)> {
  static constexpr bool compare() {
    if constexpr (sizeof...(A) == sizeof...(B))
      return isSameArgument<R, S>() && (isSameArgument<A, B>() && ...);
    else
      return false;
  }
  static constexpr bool value = compare();
};

/// Fails to compile if `member` of our table `Api` is not declared as the library declares `function`.
#define SAME(Api, member, function)                                                                                    \
  static_assert(IsSameCall<decltype(Api::member), decltype(&function)>::value, #function " is declared otherwise")

#endif // COMMSCHED_TEST_RUNTIME_SAMECALL_H
