# SPDX-License-Identifier: Apache-2.0
# Which GPUs the kernels are built for. CMAKE_CUDA_ARCHITECTURES may be "native" (the default: the
# GPUs of this machine), "all" (every one that has a path), or a list such as 86;90a. CMake's own
# "native" would say 90 on Hopper, which leaves its matrix instructions (90a) out.
set(COPPICE_CUDA_ALL 75 80 86 89 90a 120)

# The architectures of the GPUs in this machine, empty without one.
function(coppice_cuda_native out)
    set(found)
    find_program(NVIDIA_SMI nvidia-smi)
    if(NVIDIA_SMI)
        execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
            OUTPUT_VARIABLE text RESULT_VARIABLE failed ERROR_QUIET)
        if(NOT failed)
            string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${text}")
            foreach(capability IN LISTS capabilities)
                string(REPLACE "." "" arch ${capability})
                if(arch STREQUAL 90)
                    set(arch 90a)
                endif()
                list(APPEND found ${arch})
            endforeach()
            list(REMOVE_DUPLICATES found)
        endif()
    endif()
    set(${out} "${found}" PARENT_SCOPE)
endfunction()

# Sets CMAKE_CUDA_ARCHITECTURES, and COPPICE_CUDA_BUILT to the same list as text for the program.
macro(coppice_cuda_architectures)
    set(cuda_wanted "${CMAKE_CUDA_ARCHITECTURES}")
    if(NOT cuda_wanted OR cuda_wanted STREQUAL native)
        coppice_cuda_native(cuda_wanted)
        if(NOT cuda_wanted)
            message(STATUS "No GPU found here; kernels are built for all architectures")
            set(cuda_wanted all)
        endif()
    endif()
    if(cuda_wanted STREQUAL all)
        set(cuda_wanted ${COPPICE_CUDA_ALL})
    endif()
    set(CMAKE_CUDA_ARCHITECTURES "${cuda_wanted}")
    string(REPLACE ";" " " COPPICE_CUDA_BUILT "${cuda_wanted}")
    message(STATUS "CUDA architectures: ${COPPICE_CUDA_BUILT}")
endmacro()
