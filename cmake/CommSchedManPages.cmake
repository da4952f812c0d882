# A manual page for each tool, made of what the tool prints for --help (scripts/man_page.py), and the completion of bash. `man` finds
# the pages of the build tree through the folder bin beside them. The wheel makes its own ones (python/CMakeLists.txt).
set(COMMSCHED_MAN_DIR "${PROJECT_BINARY_DIR}/share/man/man1")
set(COMMSCHED_MAN_SCRIPT "${PROJECT_SOURCE_DIR}/scripts/man_page.py")
get_property(tools GLOBAL PROPERTY COMMSCHED_TOOLS)

# commsched_man_page(TOOL DEPENDS file ... COMMAND word ...)
function(commsched_man_page tool)
  cmake_parse_arguments(ARG "" "" "DEPENDS;COMMAND" ${ARGN})
  add_custom_command(OUTPUT "${COMMSCHED_MAN_DIR}/${tool}.1"
    COMMAND "${Python3_EXECUTABLE}" -B "${COMMSCHED_MAN_SCRIPT}" ${tool} --version ${PROJECT_VERSION}
      -o "${COMMSCHED_MAN_DIR}/${tool}.1" -- ${ARG_COMMAND}
    DEPENDS ${ARG_DEPENDS} "${COMMSCHED_MAN_SCRIPT}" VERBATIM)
endfunction()

set(pages)
foreach(tool IN LISTS tools)
  commsched_man_page(${tool} DEPENDS ${tool} COMMAND $<TARGET_FILE:${tool}>)
  list(APPEND pages "${COMMSCHED_MAN_DIR}/${tool}.1")
  install(FILES "${PROJECT_SOURCE_DIR}/scripts/completion.bash"
    DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" RENAME ${tool})
endforeach()
install(FILES ${pages} DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")

# The checker is installed by the wheel alone, and has a page in the build tree.
file(GLOB checker CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/python/commsched_verify/*.py")
commsched_man_page(commsched-verify DEPENDS ${checker}
  COMMAND ${CMAKE_COMMAND} -E env "PYTHONPATH=${PROJECT_SOURCE_DIR}/python" "${Python3_EXECUTABLE}" -B -m commsched_verify)
add_custom_target(man-pages ALL DEPENDS ${pages} "${COMMSCHED_MAN_DIR}/commsched-verify.1")
