# SPDX-License-Identifier: Apache-2.0
# Run at every build (cmake -P): writes the header OUT with the commit of the tree SOURCE, "-dirty"
# after it where files differ, and leaves the file alone while that has not changed, so that nothing
# is compiled again. COMMIT, if it is not empty, is taken as it is: for trees without their history.
set(commit "${COMMIT}")
if(NOT commit AND GIT AND EXISTS ${SOURCE}/.git) # not that of a repository around an unpacked archive
    execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
        OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT commit)
    set(commit unknown)
endif()
set(text "#define COPPICE_COMMIT \"${commit}\"\n")
set(old "")
if(EXISTS ${OUT})
    file(READ ${OUT} old)
endif()
if(NOT old STREQUAL text)
    file(WRITE ${OUT} "${text}")
endif()
