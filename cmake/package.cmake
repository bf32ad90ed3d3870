# SPDX-License-Identifier: Apache-2.0
# The shared library behind include/*.h, and what is installed so that other programs find it:
# header, pkg-config file, CMake package.
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
