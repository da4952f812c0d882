//===- AbiTest.cpp - Comparison of lowered calls with the runtime's header --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Walks both sides: the functions of Runtime.h, by the types that the compiler saw, and the calls in lowered programs.
// It fails if either changes alone.
//
//===------------------------------------------------------------------------------------------===//

#include "CommSched/Conversion/Passes.h"
#include "CommSched/Dialect/Comm/CommDialect.h"
#include "CommSched/InitAll.h"
#include "CommSched/Runtime/Runtime.h"
#include "RuntimeCalls/RuntimeCalls.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Regex.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace commsched;

namespace {

/// The letter of a C type as RuntimeSignature has it; '?' for what compiled code cannot pass.
template <typename T> char letterOf() {
  if constexpr (std::is_pointer_v<T>)
    return 'p';
  else if constexpr (std::is_void_v<T>)
    return 'v';
  else if constexpr (std::is_integral_v<T>)
    return sizeof(T) == 8 ? 'l' : sizeof(T) == 4 ? 'i' : '?';
  else if constexpr (std::is_same_v<T, double>)
    return 'd';
  else
    return '?';
}

template <typename R, typename... A> std::string lettersOf(R (*)(A...)) { return {letterOf<R>(), letterOf<A>()...}; }

/// What the compiler makes of the header. The macro's name and the function are one text, so they cannot differ.
#define ENTRY(name) {#name, lettersOf(&name)}
const llvm::StringMap<std::string> &headerTypes() {
  static const llvm::StringMap<std::string> types = {
      ENTRY(commrt_current),
      ENTRY(commrt_rank),
      ENTRY(commrt_check_abi),
      ENTRY(commrt_program_begin_packed),
      ENTRY(commrt_program_messages_packed),
      ENTRY(commrt_group_create),
      ENTRY(commrt_group_find),
      ENTRY(commrt_group_rank),
      ENTRY(commrt_stream_get),
      ENTRY(commrt_set_stream),

      ENTRY(commrt_event_record),
      ENTRY(commrt_event_await),
      ENTRY(commrt_all_gather_start),
      ENTRY(commrt_all_reduce_start),
      ENTRY(commrt_all_reduce_one_shot_start),
      ENTRY(commrt_reduce_scatter_start),
      ENTRY(commrt_all_to_all_start),
      ENTRY(commrt_all_to_all_v_start),
      ENTRY(commrt_check_rows),
      ENTRY(commrt_broadcast_start),
      ENTRY(commrt_reduce_start),
      ENTRY(commrt_gather_start),
      ENTRY(commrt_scatter_start),
      ENTRY(commrt_permute_start),
      ENTRY(commrt_send_start),
      ENTRY(commrt_recv_start),
      ENTRY(commrt_barrier_start),
      ENTRY(commrt_coalesce_begin),
      ENTRY(commrt_coalesce_end),
      ENTRY(commrt_wait),
      ENTRY(commrt_token_output),
      ENTRY(commrt_token_release),
      ENTRY(commrt_progress),
      ENTRY(commrt_alloc),
      ENTRY(commrt_arena_create),
      ENTRY(commrt_arena_find),
      ENTRY(commrt_free),
      ENTRY(commrt_mark),
      ENTRY(commrt_release_since),
      ENTRY(commrt_last_error),
      ENTRY(commrt_abort),
      ENTRY(commrt_compute),
      ENTRY(commrt_constant_create),
      ENTRY(commrt_copy),
      ENTRY(commrt_image_load),
      ENTRY(commrt_image_find),
      ENTRY(commrt_kernel_launch),
  };
  return types;
}
#undef ENTRY

/// A status is an i32.
std::string plain(StringRef letters) {
  std::string text = letters.str();
  if (text[0] == 's')
    text[0] = 'i';
  return text;
}

std::string lettersOf(LLVM::LLVMFunctionType type) {
  auto letter = [](Type type) {
    return isa<LLVM::LLVMPointerType>(type) ? 'p'
           : type.isInteger(64)             ? 'l'
           : type.isInteger(32)             ? 'i'
           : type.isF64()                   ? 'd'
           : isa<LLVM::LLVMVoidType>(type)  ? 'v'
                                            : '?';
  };
  std::string letters(1, letter(type.getReturnType()));
  for (Type argument : type.getParams())
    letters += letter(argument);
  return letters;
}

std::string readSource(StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(Twine(COMMSCHED_SOURCE_DIR "/") + path);
  EXPECT_TRUE(buffer) << path.str();
  return buffer ? (*buffer)->getBuffer().str() : "";
}

TEST(Abi, EverySignatureIsTheHeaders) {
  llvm::StringSet<> known;
  for (const RuntimeSignature &signature : getRuntimeSignatures()) {
    EXPECT_TRUE(known.insert(signature.name).second) << signature.name << " is listed twice";
    auto found = headerTypes().find(signature.name);
    ASSERT_NE(found, headerTypes().end()) << signature.name << " is called but not compared";
    EXPECT_EQ(plain(signature.types), found->second) << signature.name;
  }
  for (const auto &entry : headerTypes())
    EXPECT_TRUE(known.contains(entry.getKey())) << entry.getKey().str() << " is compared but not called";
}

// The header's starts cannot grow without the lowering: each is called.
TEST(Abi, EveryStartOfTheHeaderIsCalled) {
  std::string header = readSource("include/CommSched/Runtime/Runtime.h");
  llvm::Regex start("COMMRT_API int32_t (commrt_[a-z_]+_start)\\(");
  StringRef rest = header;
  SmallVector<StringRef> match;
  int64_t count = 0;
  for (; start.match(rest, &match); ++count) {
    EXPECT_TRUE(headerTypes().contains(match[1])) << match[1].str();
    rest = rest.drop_front(match[1].end() - rest.begin());
  }
  EXPECT_EQ(count, 14);
}

// The calls themselves, in programs with every operation of the dialect.
TEST(Abi, EveryCallOfALoweredProgramIsTheHeaders) {
  DialectRegistry registry;
  mlir::registerAllDialects(registry);
  mlir::registerAllExtensions(registry);
  commsched::registerAllDialects(registry);
  commsched::registerAllExtensions(registry);
  MLIRContext context(registry);
  llvm::StringSet<> called;
  for (StringRef path :
       {"test/Run/collectives.mlir", "test/Run/every-operation.mlir", "test/Run/prefetch.mlir",
        "test/Run/dynamic-splits.mlir", "test/Run/Inputs/symmetric.mlir", "test/Conversion/streams.mlir"})
    for (bool device : {false, true}) {
      auto module = parseSourceString<ModuleOp>(readSource(path), &context);
      ASSERT_TRUE(module) << path.str();
      PassManager pm(&context);
      LowerToRuntimeOptions options;
      options.device = device;
      buildLowerToRuntimePipeline(pm, options);
      ASSERT_TRUE(succeeded(pm.run(*module))) << path.str();
      module->walk([&](LLVM::CallOp call) {
        StringRef name = call.getCallee().value_or("");
        if (!name.starts_with("commrt_"))
          return;
        called.insert(name);
        auto found = headerTypes().find(name);
        ASSERT_NE(found, headerTypes().end()) << name.str();
        EXPECT_EQ(lettersOf(call.getCalleeFunctionType()), found->second) << name.str();
        auto function = module->lookupSymbol<LLVM::LLVMFuncOp>(name);
        EXPECT_EQ(lettersOf(function.getFunctionType()), found->second) << name.str();
      });
    }
  for (const RuntimeSignature &signature : getRuntimeSignatures())
    EXPECT_TRUE(called.contains(signature.name)) << "no program here calls " << signature.name;
}

// Numbers that compiled code passes.
TEST(Abi, NumbersOfKindsAndReductionsAgree) {
  for (int32_t kind = 0; kind <= COMMRT_BARRIER; ++kind)
    EXPECT_EQ(stringify(static_cast<CollectiveKind>(kind)).str(), commrt_kind_name(kind));
  for (int32_t reduction = 0; reduction <= COMMRT_SCALED_SUM; ++reduction) {
    auto spelled = comm::symbolizeReductionKind(reduction);
    ASSERT_TRUE(spelled);
    EXPECT_EQ(comm::stringifyReductionKind(*spelled).str(), commrt_reduction_name(reduction));
  }
  EXPECT_FALSE(comm::symbolizeReductionKind(COMMRT_SCALED_SUM + 1));
}

} // namespace
