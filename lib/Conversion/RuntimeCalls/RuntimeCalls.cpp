//===- RuntimeCalls.cpp - Calls of the runtime's C ABI in the LLVM dialect --------------------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// Declarations, constants and calls.
//
//===------------------------------------------------------------------------------------------===//

#include "RuntimeCalls.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
using namespace commsched;

ArrayRef<RuntimeSignature> commsched::getRuntimeSignatures() {
  static constexpr RuntimeSignature signatures[] = {
      {"commrt_current", "p"},
      {"commrt_rank", "ip"},
      {"commrt_check_abi", "spi"},
      {"commrt_program_begin_packed", "splplp"},
      {"commrt_program_messages_packed", "spplp"},
      {"commrt_group_create", "spplppp"},
      {"commrt_group_find", "sppp"},
      {"commrt_group_rank", "ip"},
      {"commrt_stream_get", "spiip"},
      {"commrt_set_stream", "spp"},
      {"commrt_event_record", "sppp"},
      {"commrt_event_await", "sppp"},
      {"commrt_all_gather_start", "spppllilp"},
      {"commrt_reduce_scatter_start", "sppplliidlp"},
      {"commrt_all_reduce_start", "spppliidlp"},
      {"commrt_all_reduce_one_shot_start", "sppplilp"},
      {"commrt_all_to_all_start", "sppplllilp"},
      {"commrt_all_to_all_v_start", "spppppllilp"},
      {"commrt_check_rows", "sppll"},
      {"commrt_broadcast_start", "spppliilp"},
      {"commrt_reduce_start", "spppliidilp"},
      {"commrt_gather_start", "sppplliilp"},
      {"commrt_scatter_start", "sppplliilp"},
      {"commrt_permute_start", "sppplipllp"},
      {"commrt_send_start", "sppliillp"},
      {"commrt_recv_start", "sppliillp"},
      {"commrt_barrier_start", "splp"},
      {"commrt_coalesce_begin", "sp"},
      {"commrt_coalesce_end", "spp"},
      {"commrt_wait", "spp"},
      {"commrt_token_output", "splp"},
      {"commrt_token_release", "ip"},
      {"commrt_progress", "ip"},
      {"commrt_alloc", "spilp"},
      {"commrt_arena_create", "sppl"},
      {"commrt_arena_find", "sppp"},
      {"commrt_constant_create", "spppl"},
      {"commrt_copy", "sppplip"},
      {"commrt_free", "ipp"},
      {"commrt_mark", "lp"},
      {"commrt_release_since", "iplpl"},
      {"commrt_last_error", "ippl"},
      {"commrt_abort", "ipip"},
      {"commrt_compute", "spplppl"},
      {"commrt_image_load", "sppp"},
      {"commrt_image_find", "sppp"},
      {"commrt_kernel_launch", "spplllllllpp"},
  };
  return signatures;
}

LLVM::LLVMFuncOp RuntimeCalls::declare(StringRef name) {
  LLVM::LLVMFuncOp &function = functions[name];
  if (function)
    return function;
  function = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (function)
    return function;
  const auto *signature =
      llvm::find_if(getRuntimeSignatures(), [&](const RuntimeSignature &s) { return name == s.name; });
  assert(signature != getRuntimeSignatures().end() && "not a function of the runtime");
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  auto typeOf = [&](char letter) -> Type {
    switch (letter) {
    case 'p':
      return pointerType();
    case 'l':
      return builder.getI64Type();
    case 'i':
    case 's':
      return builder.getI32Type();
    default:
      return builder.getF64Type();
    }
  };
  SmallVector<Type> arguments;
  for (char letter : StringRef(signature->types).drop_front())
    arguments.push_back(typeOf(letter));
  function = LLVM::LLVMFuncOp::create(builder, module.getLoc(), name,
                                      LLVM::LLVMFunctionType::get(typeOf(signature->types[0]), arguments));
  return function;
}

Value RuntimeCalls::call(OpBuilder &builder, Location loc, StringRef name, ValueRange arguments) {
  return LLVM::CallOp::create(builder, loc, declare(name), arguments).getResult();
}

Value RuntimeCalls::integer(OpBuilder &builder, Location loc, int64_t value, unsigned width) {
  return LLVM::ConstantOp::create(builder, loc, builder.getIntegerType(width),
                                  builder.getIntegerAttr(builder.getIntegerType(width), value));
}

Value RuntimeCalls::real(OpBuilder &builder, Location loc, double value) {
  return LLVM::ConstantOp::create(builder, loc, builder.getF64Type(), builder.getF64FloatAttr(value));
}

Value RuntimeCalls::null(OpBuilder &builder, Location loc) { return LLVM::ZeroOp::create(builder, loc, pointerType()); }

Value RuntimeCalls::address(OpBuilder &builder, Location loc, LLVM::GlobalOp global) {
  return LLVM::AddressOfOp::create(builder, loc, pointerType(), global.getSymName());
}

LLVM::GlobalOp RuntimeCalls::stringGlobal(StringRef text) {
  LLVM::GlobalOp &global = strings[text];
  if (!global) {
    OpBuilder top = OpBuilder::atBlockBegin(module.getBody());
    std::string name = prefix + "_string_" + std::to_string(strings.size());
    std::string terminated = text.str() + '\0';
    global = LLVM::GlobalOp::create(top, module.getLoc(), LLVM::LLVMArrayType::get(top.getI8Type(), terminated.size()),
                                    /*isConstant=*/true, LLVM::Linkage::Internal, name, top.getStringAttr(terminated));
  }
  return global;
}

Value RuntimeCalls::string(OpBuilder &builder, Location loc, StringRef text) {
  return address(builder, loc, stringGlobal(text));
}

LLVM::GlobalOp RuntimeCalls::integersGlobal(ArrayRef<int64_t> values) {
  if (values.empty())
    return {};
  LLVM::GlobalOp &global = arrays[values.vec()];
  if (!global) {
    OpBuilder top = OpBuilder::atBlockBegin(module.getBody());
    auto size = static_cast<int64_t>(values.size());
    global = LLVM::GlobalOp::create(top, module.getLoc(), LLVM::LLVMArrayType::get(top.getI64Type(), size),
                                    /*isConstant=*/true, LLVM::Linkage::Internal,
                                    prefix + "_integers_" + std::to_string(arrays.size()),
                                    DenseElementsAttr::get(RankedTensorType::get({size}, top.getI64Type()), values));
  }
  return global;
}

Value RuntimeCalls::integers(OpBuilder &builder, Location loc, ArrayRef<int64_t> values) {
  LLVM::GlobalOp global = integersGlobal(values);
  return global ? address(builder, loc, global) : null(builder, loc);
}

Value RuntimeCalls::stackSlot(OpBuilder &builder, Location loc, Type type, int64_t count) {
  return LLVM::AllocaOp::create(builder, loc, pointerType(), type, integer(builder, loc, count));
}
