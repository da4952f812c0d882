# The target `portable`: what the Python wheel holds, in portable/ of the build tree. It is linked with LLVM's static archives, so
# that it runs where LLVM is not installed:
#
#   libCommSched-c.so   the C API and all tools in one, since each would bring the same 80 MB of MLIR and LLVM
#   libcommrt*.so       the runtime and its NCCL backend; backends that need a library of the system (MPI) are left out
#   bin/                the executables of the tools, which only call the library
#
# Nothing but four small files is compiled for it. Not part of `all`: linking takes seconds, but the results have 100 MB.

file(GLOB COMMSCHED_STATIC_MLIR "${LLVM_LIBRARY_DIR}/libMLIR*.a")
file(GLOB COMMSCHED_STATIC_LLVM "${LLVM_LIBRARY_DIR}/libLLVM*.a")
# Debian's archives were built against zlib and zstd, of which zlib is part of every Linux. The wheel's build copies zstd.
find_library(COMMSCHED_ZSTD NAMES libzstd.a libzstd.so libzstd.so.1)
if(NOT COMMSCHED_ZSTD OR NOT COMMSCHED_STATIC_MLIR OR NOT COMMSCHED_STATIC_LLVM OR NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR COMMSCHED_SANITIZE)
  message(STATUS "Left out: the target `portable`, which needs Linux, zstd, MLIR's and LLVM's static archives, and no sanitizer")
  return()
endif()

find_package(Threads REQUIRED)
set(COMMSCHED_PORTABLE_DIR "${PROJECT_BINARY_DIR}/portable")
set(COMMSCHED_PORTABLE_SOURCES "${PROJECT_BINARY_DIR}/CommSchedPortable")

# Passes of MLIR initialise every target that LLVM was built with, which makes half of the size. The library has the targets of
# the host and of NVIDIA's GPUs; initialising another one does nothing, and its passes say that the target is missing.
set(text "// Written by CommSchedPortable.cmake: targets of LLVM that the portable library does not have.\n")
foreach(target IN LISTS LLVM_TARGETS_TO_BUILD)
  if(NOT target STREQUAL LLVM_NATIVE_ARCH AND NOT target STREQUAL "NVPTX")
    foreach(part TargetInfo Target TargetMC AsmPrinter AsmParser Disassembler TargetMCA)
      string(APPEND text "void LLVMInitialize${target}${part}(void) {}\n")
    endforeach()
  endif()
endforeach()
file(CONFIGURE OUTPUT "${COMMSCHED_PORTABLE_SOURCES}/AbsentTargets.c" CONTENT "${text}" @ONLY)

# libstdc++ and LLVM call arc4random where the C library of the build machine has it (glibc 2.36). This one asks the kernel, so
# that the library needs glibc 2.34 only.
file(CONFIGURE OUTPUT "${COMMSCHED_PORTABLE_SOURCES}/Random.c" CONTENT "// Written by CommSchedPortable.cmake.
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
uint32_t arc4random(void) {
  uint32_t number;
  if (getrandom(&number, sizeof number, 0) != sizeof number)
    abort();
  return number;
}
" @ONLY)
file(CONFIGURE OUTPUT "${COMMSCHED_PORTABLE_SOURCES}/exports.map" CONTENT "{ global: commsched*; local: *; };\n" @ONLY)

# commsched_portable(NAME OBJECTS-OF): a target with the objects of another one, stripped, with libstdc++ inside.
function(commsched_portable target original)
  get_target_property(name ${original} OUTPUT_NAME)
  if(NOT name)
    set(name ${original})
  endif()
  get_target_property(soversion ${original} SOVERSION)
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON LIBRARY_OUTPUT_DIRECTORY "${COMMSCHED_PORTABLE_DIR}"
    OUTPUT_NAME "${name}" LINKER_LANGUAGE CXX BUILD_RPATH "$ORIGIN" INSTALL_RPATH "$ORIGIN"
    INSTALL_RPATH_USE_LINK_PATH OFF)
  if(soversion)
    set_target_properties(${target} PROPERTIES SUFFIX ".so.${soversion}")
    # A library of the version before would travel in the wheel, too.
    file(GLOB old "${COMMSCHED_PORTABLE_DIR}/lib${name}.so.*")
    list(REMOVE_ITEM old "${COMMSCHED_PORTABLE_DIR}/lib${name}.so.${soversion}")
    if(old)
      file(REMOVE ${old})
    endif()
  endif()
  target_link_options(${target} PRIVATE -static-libstdc++ -s -Wl,--gc-sections)
endfunction()

# The runtime: the same libraries with another C++ library.
set(COMMSCHED_PORTABLE_TARGETS)
foreach(original CommSchedRuntime CommSchedRuntimeNccl)
  if(TARGET ${original})
    add_library(${original}Portable SHARED $<TARGET_OBJECTS:${original}>)
    commsched_portable(${original}Portable ${original})
    target_link_options(${original}Portable PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/lib/Runtime/exports.map")
    target_link_libraries(${original}Portable PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
    list(APPEND COMMSCHED_PORTABLE_TARGETS ${original}Portable)
  endif()
endforeach()
target_link_options(CommSchedRuntimePortable PRIVATE "LINKER:-soname,$<TARGET_SONAME_FILE_NAME:CommSchedRuntime>")
if(TARGET CommSchedRuntimeNcclPortable)
  target_link_options(CommSchedRuntimeNcclPortable PRIVATE -Wl,-z,nodelete)
  target_link_libraries(CommSchedRuntimeNcclPortable PRIVATE CommSchedRuntimePortable)
endif()

get_property(tools GLOBAL PROPERTY COMMSCHED_TOOLS)
set(objects)
foreach(tool IN LISTS tools)
  list(APPEND objects $<FILTER:$<TARGET_OBJECTS:${tool}>,EXCLUDE,/Main\\.cpp>)
endforeach()
add_library(CommSchedPortable SHARED
  $<TARGET_OBJECTS:CommSched-c>
  ${objects}
  "${COMMSCHED_PORTABLE_SOURCES}/AbsentTargets.c"
  "${COMMSCHED_PORTABLE_SOURCES}/Random.c"
)
commsched_portable(CommSchedPortable CommSched-c)
target_compile_options(CommSchedPortable PRIVATE -ffunction-sections)
target_link_options(CommSchedPortable PRIVATE "LINKER:--version-script=${COMMSCHED_PORTABLE_SOURCES}/exports.map"
  "LINKER:-soname,$<TARGET_SONAME_FILE_NAME:CommSched-c>")
# lld looks archives up in any order; a linker that does not gets them as one group.
target_link_libraries(CommSchedPortable PRIVATE CommSchedRuntimePortable CommSchedExecution CommSchedCalibration
  CommSchedCalibrationRules CommSchedHlo CommSchedInitAll
  -Wl,--start-group ${COMMSCHED_STATIC_MLIR} ${COMMSCHED_STATIC_LLVM} -Wl,--end-group
  -lz "${COMMSCHED_ZSTD}" Threads::Threads ${CMAKE_DL_LIBS})
list(APPEND COMMSCHED_PORTABLE_TARGETS CommSchedPortable)

# The tools' files have names of their own: Ninja would take `comm-opt` for either of two files of that name.
foreach(tool IN LISTS tools)
  add_executable(${tool}-portable "${PROJECT_SOURCE_DIR}/tools/Main.cpp") # without the header of MLIR
  get_target_property(main ${tool} COMMSCHED_MAIN)
  target_compile_definitions(${tool}-portable PRIVATE COMMSCHED_TOOL_MAIN=${main})
  set_target_properties(${tool}-portable PROPERTIES EXCLUDE_FROM_ALL ON OUTPUT_NAME ${tool}-portable LINKER_LANGUAGE CXX
    RUNTIME_OUTPUT_DIRECTORY "${COMMSCHED_PORTABLE_DIR}/bin" BUILD_RPATH "$ORIGIN/.." INSTALL_RPATH "$ORIGIN/.."
    INSTALL_RPATH_USE_LINK_PATH OFF)
  target_link_options(${tool}-portable PRIVATE -static-libstdc++ -s)
  target_link_libraries(${tool}-portable PRIVATE CommSchedPortable)
  list(APPEND COMMSCHED_PORTABLE_TARGETS ${tool}-portable)
endforeach()

add_custom_target(portable DEPENDS ${COMMSCHED_PORTABLE_TARGETS})
