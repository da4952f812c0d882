# Installs the build into an empty folder, configures and builds the consumer with nothing but that folder's place, and runs it.
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGV}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

set(prefix "${WORK_DIR}/installed")
set(build "${WORK_DIR}/built")
file(REMOVE_RECURSE "${prefix}" "${build}")
run(${CMAKE_COMMAND} --install "${BUILD_DIR}" --prefix "${prefix}")
run(${PYTHON} -B "${RUNPATH_CHECK}" "${prefix}")
message(STATUS "${output}")

set(flags "")
if(SANITIZE)
  set(flags "-fsanitize=${SANITIZE} -fno-sanitize=vptr,function")
endif()
run(${CMAKE_COMMAND} -G Ninja -S "${PROJECT_DIR}" -B "${build}" "-DCMAKE_PREFIX_PATH=${prefix}"
  "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_C_COMPILER=${CC}" "-DCMAKE_CXX_FLAGS=${flags}" "-DCMAKE_C_FLAGS=${flags}"
  "-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=lld")
run(${CMAKE_COMMAND} --build "${build}")

foreach(program embed embed-c)
  run("${build}/${program}")
  if(NOT output MATCHES "comm.wait")
    message(FATAL_ERROR "${program} printed:\n${output}")
  endif()
  message(STATUS "${program} ran")
endforeach()

# Installed profiles name their schema by its place beside them.
if(NOT EXISTS "${prefix}/share/commsched/schemas/profile.schema.json")
  message(FATAL_ERROR "the schema of profiles was not installed beside the profiles")
endif()

# Each tool has a manual page and a completion.
file(GLOB programs RELATIVE "${prefix}/bin" "${prefix}/bin/comm*")
foreach(program IN LISTS programs)
  foreach(file "share/man/man1/${program}.1" "share/bash-completion/completions/${program}")
    if(NOT EXISTS "${prefix}/${file}")
      message(FATAL_ERROR "${file} was not installed")
    endif()
  endforeach()
endforeach()

# The installed tools and plug-in work from where they are.
run("${prefix}/bin/comm-opt" --version)
file(GLOB plugin "${prefix}/lib*/CommSchedPlugin.so" "${prefix}/lib*/*/CommSchedPlugin.so")
if(NOT plugin)
  message(FATAL_ERROR "the plug-in was not installed")
endif()
