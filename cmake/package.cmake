# SPDX-License-Identifier: Apache-2.0
# What is installed besides the program: the shared library behind include/*.h with what other
# programs find it by (header, pkg-config file, CMake package), the unit of systemd. And the program
# in a form that needs nothing of the system.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

function(coppice_add_public_library)
    file(GLOB api CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/api/*.c)
    set(exports ${PROJECT_SOURCE_DIR}/src/api/exports.map)
    add_library(coppice-shared SHARED ${api})
    add_library(coppice::coppice ALIAS coppice-shared)
    set_target_properties(coppice-shared PROPERTIES OUTPUT_NAME coppice EXPORT_NAME coppice
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${exports}
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} LINKER_LANGUAGE C)
    target_include_directories(coppice-shared PUBLIC
        $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_compile_definitions(coppice-shared PRIVATE COPPICE_VERSION="${PROJECT_VERSION}")
    target_link_libraries(coppice-shared PRIVATE coppice)
    target_link_options(coppice-shared PRIVATE -Wl,--as-needed -Wl,--version-script=${exports})

    file(RELATIVE_PATH up /x/${CMAKE_INSTALL_LIBDIR}/pkgconfig /x)
    set(out ${PROJECT_BINARY_DIR}/package)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/coppice.pc.in ${out}/coppice.pc @ONLY)
    write_basic_package_version_file(${out}/coppice-config-version.cmake
        COMPATIBILITY SameMajorVersion)
    set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/coppice)
    install(TARGETS coppice-shared EXPORT coppice LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT coppice FILE coppice-config.cmake NAMESPACE coppice:: DESTINATION ${folder})
    install(FILES ${out}/coppice-config-version.cmake DESTINATION ${folder})
    install(FILES ${out}/coppice.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
    install(FILES ${PROJECT_SOURCE_DIR}/include/coppice.h
        ${PROJECT_SOURCE_DIR}/include/coppice_compress.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endfunction()

# The unit, which names the program where this installation puts it: the prefix is known then only.
function(coppice_add_unit)
    set(unit ${PROJECT_BINARY_DIR}/package/coppice.service)
    install(CODE "
        set(folder \"${CMAKE_INSTALL_BINDIR}\")
        if(NOT IS_ABSOLUTE \"\${folder}\")
            set(folder \"\${CMAKE_INSTALL_PREFIX}/\${folder}\")
        endif()
        file(READ \"${PROJECT_SOURCE_DIR}/packaging/coppice.service\" text)
        string(REPLACE /usr/bin/coppice \"\${folder}/coppice\" text \"\${text}\")
        file(WRITE \"${unit}\" \"\${text}\")")
    install(FILES ${unit} DESTINATION lib/systemd/system) # not the library folder: systemd's own
endfunction()

# The target coppice-static: the program with all libraries in it, the C library too, for systems
# that have others. It is linked from the same objects as the program; not built unless asked for.
function(coppice_add_static_program)
    set(archives)
    foreach(name pcre2-8 utf8proc json-c event_core edit tinfo bsd md)
        if(NOT EDIT_FOUND AND name MATCHES "^(edit|tinfo|bsd|md)$")
            continue()
        endif()
        find_library(COPPICE_STATIC_${name} lib${name}.a)
        mark_as_advanced(COPPICE_STATIC_${name})
        if(NOT COPPICE_STATIC_${name})
            message(STATUS "lib${name}.a is missing: there is no target coppice-static")
            return()
        endif()
        list(APPEND archives ${COPPICE_STATIC_${name}})
    endforeach()
    add_executable(coppice-static EXCLUDE_FROM_ALL
        ${PROJECT_SOURCE_DIR}/src/cli/main.c ${PROJECT_SOURCE_DIR}/packaging/static.c)
    set_target_properties(coppice-static PROPERTIES OUTPUT_NAME coppice
        RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/static LINKER_LANGUAGE C)
    add_dependencies(coppice-static coppice coppice_commands)
    target_link_options(coppice-static PRIVATE -static-pie)
    target_link_libraries(coppice-static PRIVATE coppice_flags $<TARGET_FILE:coppice_commands>
        $<TARGET_FILE:coppice> ${archives} m)
endfunction()
