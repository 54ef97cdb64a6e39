# SPDX-License-Identifier: Apache-2.0
#
# Text files as constants of the program, so that it needs none of them where it runs:
#
#     cmake -DOUT=embed.c -DFILES=a.css,b.js -DNAMES=a_css,b_js -P embed.cmake
#
# writes `const char a_css[]`, ended by a zero byte, and so on.
string(REPLACE "," ";" files "${FILES}")
string(REPLACE "," ";" names "${NAMES}")
string(REPEAT "." 80 line)
set(text "/* Written by tools/embed.cmake. */\n")
foreach(file name IN ZIP_LISTS files names)
  file(READ "${file}" hex HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
  string(APPEND text "extern const char ${name}[];\nconst char ${name}[] = {\n${bytes}0};\n")
endforeach()
file(WRITE "${OUT}" "${text}")
