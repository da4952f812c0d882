# How lit runs the project's IR tests: which files are tests, where the tools are, and which features a test may require.

import os

import lit.formats
from lit.llvm import llvm_config
from lit.llvm.subst import ToolSubst

config.name = "CommSched"
config.test_format = lit.formats.ShTest(not llvm_config.use_lit_shell)
config.suffixes = [".mlir", ".test", ".td"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.commsched_obj_root, "test")

# Folders that hold inputs of other tests, or tests that ctest runs by itself.
config.excludes = ["Inputs", "consumer", "docs", "lit.cfg.py", "CMakeLists.txt"]

config.substitutions.append(("%shlibext", config.llvm_shlib_ext))
config.substitutions.append(("%commsched_src_root", config.commsched_src_root))
config.substitutions.append(("%commsched_obj_root", config.commsched_obj_root))
config.substitutions.append(("%commsched_libs", config.commsched_lib_dir))
config.substitutions.append(("%python", config.python_executable))

llvm_config.with_system_environment(["HOME", "TMP", "TEMP", "PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"])
llvm_config.use_default_substitutions()
llvm_config.with_environment("PATH", config.llvm_tools_dir, append_path=True)
llvm_config.with_environment("PATH", config.commsched_tools_dir, append_path=True)

llvm_config.add_tool_substitutions(
    [
        "comm-opt",
        "commsched-hlo",
        ToolSubst("comm-run", unresolved="ignore"),
        ToolSubst("comm-calibrate", unresolved="ignore"),
        ToolSubst("comm-place", unresolved="ignore"),
        ToolSubst("comm-verify-spmd", unresolved="ignore"),
        ToolSubst("comm-reduce", unresolved="ignore"),
        ToolSubst("comm-lsp-server", unresolved="ignore"),
        "mlir-opt",
    ],
    [config.commsched_tools_dir, config.llvm_tools_dir],
)

# Features that a test asks for with REQUIRES.
if config.enable_mpi:
    config.available_features.add("mpi")
if config.enable_nccl:
    config.available_features.add("nccl")
if config.sanitize:
    config.available_features.add("sanitizer")
    config.available_features.update(config.sanitize.split(","))
    # As in CMakeLists.txt, for lit alone. Allocations that cannot be met return null, as they do without the sanitizer.
    config.environment.setdefault("ASAN_OPTIONS", "allow_user_poisoning=0:detect_leaks=0:detect_odr_violation=0:allocator_may_return_null=1")
