# Turns migrations/sqlite/NNNN_name.sql into one C++ file that defines sqlite_migrations():
#   cmake -DOUT=embedded_migrations.cpp "-DFILES=0001_a.sql;0002_b.sql" -P EmbedMigrations.cmake
# A gap, a second file with one number, or a name of another shape stops the build: the number is the contract.
cmake_policy(VERSION 3.25)

# Compilers only promise literals of 65536 characters, so a file becomes several, cut after a line's end:
# a cut inside a line could fall into the middle of a UTF-8 character.
set(chunk_bytes 8000)
set(delimiter dbsql)

set(steps "")
set(version 0)
list(SORT FILES)
foreach(file IN LISTS FILES)
  math(EXPR version "${version} + 1")
  get_filename_component(name "${file}" NAME)
  string(LENGTH "${version}" digits)
  math(EXPR zeros "4 - ${digits}")
  string(REPEAT "0" ${zeros} padding)
  if(NOT name MATCHES "^${padding}${version}_[a-z0-9_]+\\.sql$")
    message(FATAL_ERROR "${file}: expected ${padding}${version}_name.sql here (lower-case name, numbers without a gap)")
  endif()

  file(READ "${file}" rest)
  string(FIND "${rest}" ")${delimiter}\"" clash)
  if(NOT clash EQUAL -1)
    message(FATAL_ERROR "${file}: contains the end of the C++ literal that it is put into")
  endif()
  file(SIZE "${file}" size)
  string(LENGTH "${rest}" length)
  if(size EQUAL 0 OR NOT length EQUAL size)
    message(FATAL_ERROR "${file}: is empty, or not plain text (${length} of ${size} bytes are readable)")
  endif()

  string(APPEND steps "    {${version}, \"${name}\",\n")
  while(length GREATER 0)
    set(cut ${length})
    if(length GREATER chunk_bytes)
      string(SUBSTRING "${rest}" 0 ${chunk_bytes} head)
      string(FIND "${head}" "\n" last_line_end REVERSE)
      if(last_line_end EQUAL -1)
        message(FATAL_ERROR "${file}: has a line of more than ${chunk_bytes} bytes")
      endif()
      math(EXPR cut "${last_line_end} + 1")
    endif()
    string(SUBSTRING "${rest}" 0 ${cut} head)
    string(SUBSTRING "${rest}" ${cut} -1 rest)
    string(LENGTH "${rest}" length)
    string(APPEND steps "R\"${delimiter}(${head})${delimiter}\"\n")
  endwhile()
  string(APPEND steps "    },\n")
endforeach()
if(version EQUAL 0)
  message(FATAL_ERROR "no migrations were given in FILES")
endif()

file(WRITE "${OUT}" "// Made by cmake/EmbedMigrations.cmake from migrations/sqlite; edit those files.
#include \"db/migrations.hpp\"

namespace doorbuster::db {
namespace {

constexpr Migration kSteps[] = {
${steps}};

}  // namespace

std::span<const Migration> sqlite_migrations() { return kSteps; }

}  // namespace doorbuster::db
")
