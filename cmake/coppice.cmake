# SPDX-License-Identifier: Apache-2.0
# Flags of all our code (target coppice_flags) and the third-party libraries, found once.
add_library(coppice_flags INTERFACE)
set(c $<COMPILE_LANGUAGE:C>)
target_compile_options(coppice_flags INTERFACE
    $<${c}:-Wall> $<${c}:-Wextra> $<${c}:-Wconversion> $<${c}:-Wshadow> $<${c}:-Wvla>
    $<${c}:-ffp-contract=off> $<${c}:-fno-math-errno> $<${c}:-fno-trapping-math>)
# Constants are enums here, and some of them are times that meet doubles.
target_compile_options(coppice_flags INTERFACE
    $<$<COMPILE_LANG_AND_ID:C,Clang>:-Wno-enum-float-conversion>)
target_compile_definitions(coppice_flags INTERFACE _GNU_SOURCE)
# Warnings stop the build only with the compilers that they were cleaned up for: a newer one's new
# warning must not keep anybody from building.
set(known_compiler OFF)
if((CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION MATCHES "^12\\.") OR
   (CMAKE_C_COMPILER_ID STREQUAL Clang AND CMAKE_C_COMPILER_VERSION MATCHES "^19\\."))
    set(known_compiler ON)
endif()
if(COPPICE_WERROR AND known_compiler)
    target_compile_options(coppice_flags INTERFACE $<${c}:-Werror>)
endif()
if(COPPICE_SANITIZE)
    target_compile_options(coppice_flags INTERFACE -fsanitize=${COPPICE_SANITIZE}
        -fno-sanitize-recover=all -fno-omit-frame-pointer -g1) # lines for reports, no types: a sixth faster
    # gcc knows the ranges of numbers with -O2 only; the release build looks for what is cut off.
    target_compile_options(coppice_flags INTERFACE $<$<COMPILE_LANG_AND_ID:C,GNU>:-Wno-format-truncation>)
    target_compile_definitions(coppice_flags INTERFACE COPPICE_CHECKED)
    target_link_options(coppice_flags INTERFACE -fsanitize=${COPPICE_SANITIZE})
endif()
if(COPPICE_FUZZ)
    target_compile_options(coppice_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_include_directories(coppice_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)

# Kernels are C++ only in name: templates over integers and tags, and no C++ library to link with.
if(COPPICE_CUDA)
    include(cmake/cuda_architectures.cmake)
    coppice_cuda_architectures()
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(cu $<COMPILE_LANGUAGE:CUDA>)
    target_compile_options(coppice_flags INTERFACE $<${cu}:-fmad=false> $<${cu}:--expt-relaxed-constexpr>
        "$<${cu}:SHELL:-Xcompiler -Wall,-Wextra,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics>"
        "$<${cu}:SHELL:--Werror all-warnings>")
    if(COPPICE_GPU_PLAIN)
        target_compile_definitions(coppice_flags INTERFACE $<${cu}:GPU_PLAIN>)
    endif()
endif()

find_package(Threads REQUIRED)
if(NOT COPPICE_ENGINE_ONLY)
    find_package(PkgConfig REQUIRED)
    set(suffixes ${CMAKE_FIND_LIBRARY_SUFFIXES})
    if(COPPICE_FUZZ) # allocations of what is linked statically can be made to fail
        set(CMAKE_FIND_LIBRARY_SUFFIXES .a .so)
    endif()
    pkg_check_modules(DEPS REQUIRED IMPORTED_TARGET libpcre2-8)
    if(COPPICE_STATIC_UTF8PROC)
        set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
    endif()
    pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
    set(CMAKE_FIND_LIBRARY_SUFFIXES ${suffixes}) # json-c 0.16 does not survive that
    pkg_check_modules(JSON REQUIRED IMPORTED_TARGET json-c)
    pkg_check_modules(EVENT REQUIRED IMPORTED_TARGET libevent_core)
    if(COPPICE_CURL)
        pkg_check_modules(CURL IMPORTED_TARGET libcurl)
    else()
        unset(CURL_FOUND CACHE)
    endif()
    if(NOT CURL_FOUND)
        message(STATUS "libcurl is missing: models cannot be fetched, and serve cannot pass requests on")
    endif()
    pkg_check_modules(EDIT IMPORTED_TARGET libedit)
    if(NOT EDIT_FOUND)
        message(STATUS "libedit is missing: chat will read plain lines")
    endif()
    if(EDIT_LINK_LIBRARIES MATCHES "\\.a$") # a static one does not bring what it needs
        set(needed ${EDIT_STATIC_LIBRARIES} md)
        list(REMOVE_ITEM needed edit)
        foreach(name IN LISTS needed)
            find_library(EDIT_NEEDS_${name} ${name})
            if(EDIT_NEEDS_${name})
                target_link_libraries(PkgConfig::EDIT INTERFACE ${EDIT_NEEDS_${name}})
            endif()
        endforeach()
    endif()
endif()

# Gives a library the header commit.h, which says what it is built from.
function(coppice_add_commit library)
    find_package(Git QUIET)
    set(out ${PROJECT_BINARY_DIR}/commit)
    add_custom_target(commit BYPRODUCTS ${out}/commit.h COMMENT ""
        COMMAND ${CMAKE_COMMAND} -DOUT=${out}/commit.h -DSOURCE=${PROJECT_SOURCE_DIR}
            -DGIT=${GIT_EXECUTABLE} -DCOMMIT=${COPPICE_COMMIT}
            -P ${PROJECT_SOURCE_DIR}/cmake/commit.cmake VERBATIM)
    add_dependencies(${library} commit)
    target_include_directories(${library} PRIVATE ${out})
endfunction()

# Builds the manual page from the program's own tables, where scdoc is there to format it.
function(coppice_add_manual program)
    find_program(SCDOC scdoc)
    if(NOT SCDOC OR CMAKE_CROSSCOMPILING)
        return()
    endif()
    set(page ${PROJECT_BINARY_DIR}/coppice.1)
    add_custom_command(OUTPUT ${page}
        COMMAND $<TARGET_FILE:${program}> manual > ${page}.scd
        COMMAND ${SCDOC} < ${page}.scd > ${page}
        DEPENDS ${program} VERBATIM)
    add_custom_target(manual ALL DEPENDS ${page})
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endfunction()

# Writes the completions of three shells, in the folders where these look below a prefix.
function(coppice_add_completions program)
    if(CMAKE_CROSSCOMPILING)
        return()
    endif()
    set(folder ${PROJECT_BINARY_DIR}/completions)
    set(bash_file share/bash-completion/completions/coppice)
    set(zsh_file share/zsh/site-functions/_coppice)
    set(fish_file share/fish/vendor_completions.d/coppice.fish)
    set(files)
    foreach(shell bash zsh fish)
        set(out ${folder}/${${shell}_file})
        get_filename_component(parent ${out} DIRECTORY)
        file(MAKE_DIRECTORY ${parent})
        add_custom_command(OUTPUT ${out} COMMAND $<TARGET_FILE:${program}> completion ${shell} > ${out}
            DEPENDS ${program} VERBATIM)
        list(APPEND files ${out})
    endforeach()
    add_custom_target(completions ALL DEPENDS ${files})
    install(DIRECTORY ${folder}/share/ DESTINATION ${CMAKE_INSTALL_DATADIR})
endfunction()
