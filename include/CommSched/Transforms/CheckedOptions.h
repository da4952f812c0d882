//===- CheckedOptions.h - Passes and pipelines that say what is wrong with their options ------===//
//
// Part of CommSched, under the Apache License v2.0 with LLVM Exceptions.
// See LICENSE for licence information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===------------------------------------------------------------------------------------------===//
//
// The bases of all passes and pipelines with options. One message says what to write instead, whoever builds the
// pipeline: comm-opt, mlir-opt with the plugin, C or Python.
//
//===------------------------------------------------------------------------------------------===//

#ifndef COMMSCHED_TRANSFORMS_CHECKEDOPTIONS_H
#define COMMSCHED_TRANSFORMS_CHECKEDOPTIONS_H

#include "CommSched/Support/OptionChecks.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassOptions.h"

namespace commsched {

/// A pass that checks its options before MLIR reads them. PassBase.td adds every option to the checks.
template <typename Base> class CheckedPass : public Base {
public:
  llvm::LogicalResult
  initializeOptions(llvm::StringRef options,
                    llvm::function_ref<llvm::LogicalResult(const llvm::Twine &)> errorHandler) override {
    if (std::string wrong = optionChecks.check(options); !wrong.empty())
      return errorHandler(this->getArgument() + ": " + wrong);
    return Base::initializeOptions(options, errorHandler);
  }

protected:
  using Base::Base;
  /// The options of a copy add themselves to the copy's checks.
  CheckedPass(const CheckedPass &other) : Base(other) {}

  OptionChecks optionChecks;
};

/// Options of a pipeline that are checked before MLIR reads them.
template <typename Derived> class CheckedPipelineOptions : public mlir::PassPipelineOptions<Derived> {
public:
  /// Reads "NAME=VALUE NAME=VALUE". Fails with what is wrong in `os`.
  llvm::LogicalResult parseFromString(llvm::StringRef options, llvm::raw_ostream &os = llvm::errs()) {
    if (std::string wrong = optionChecks.check(options); !wrong.empty()) {
      os << wrong << "\n";
      return llvm::failure();
    }
    return mlir::PassPipelineOptions<Derived>::parseFromString(options, os);
  }

protected:
  /// An option that adds itself to the checks.
  template <typename Data> struct Option : mlir::detail::PassOptions::Option<Data> {
    using Base = mlir::detail::PassOptions::Option<Data>;
    using Base::operator=;
    template <typename... Args>
    Option(Derived &parent, llvm::StringRef name, Args &&...args)
        : Base(parent, name, std::forward<Args>(args)..., CheckedBy(parent.optionChecks)) {}
  };
  template <typename Data> struct ListOption : mlir::detail::PassOptions::ListOption<Data> {
    using Base = mlir::detail::PassOptions::ListOption<Data>;
    using Base::operator=;
    template <typename... Args>
    ListOption(Derived &parent, llvm::StringRef name, Args &&...args)
        : Base(parent, name, std::forward<Args>(args)..., CheckedBy(parent.optionChecks)) {}
  };

  OptionChecks optionChecks;

private:
  CheckedPipelineOptions() = default;
  friend Derived;
};

} // namespace commsched

#endif // COMMSCHED_TRANSFORMS_CHECKEDOPTIONS_H
