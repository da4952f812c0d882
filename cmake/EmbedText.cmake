# Writes text files as C++ string literals: cmake -D OUT=file.inc -D STYLE=... -D HTML=... -D "SCRIPT=a.js b.js" -P EmbedText.cmake
# A literal of its own per file keeps each below the 65,536 characters that every compiler takes.
function(read_literal path result)
  file(READ "${path}" text)
  set(${result} "R\"page(${text})page\"" PARENT_SCOPE)
endfunction()

separate_arguments(scripts UNIX_COMMAND "${SCRIPT}")
read_literal("${HTML}" html)
read_literal("${STYLE}" style)
set(parts "")
foreach(script IN LISTS scripts)
  read_literal("${script}" part)
  string(APPEND parts "    ${part},\n")
endforeach()
file(WRITE "${OUT}" "// Made by cmake/EmbedText.cmake.
static constexpr char kPageHtml[] = ${html};
static constexpr char kPageStyle[] = ${style};
static constexpr const char *kPageScript[] = {
${parts}};
")
