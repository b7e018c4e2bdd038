# The same binaries on CPUs that they must run on too, emulated: Haswell has AVX2 and no AVX-512, Westmere
# has neither. Registered only where the emulator and x86-64 are there and no sanitizer is.
find_program(QEMU_X86_64 qemu-x86_64)
if(NOT QEMU_X86_64 OR CLEARHEAD_SANITIZE OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  message(STATUS "old-CPU tests: not registered (they need qemu-x86_64, an x86-64 build and no sanitizer)")
  return()
endif()

function(clearhead_old_cpu_test name cpu expected)
  set(command ${QEMU_X86_64} -cpu ${cpu} ${ARGN})
  if(expected)  # else the exit code tells all
    set(command ${CMAKE_COMMAND} -DEXPECTED=${expected} -P ${PROJECT_SOURCE_DIR}/tests/expect_output.cmake -- ${command})
  endif()
  add_test(NAME old_cpu.${name}.${cpu} COMMAND ${command})
  set_tests_properties(old_cpu.${name}.${cpu} PROPERTIES TIMEOUT 300)
endfunction()

set(golden_a ${PROJECT_SOURCE_DIR}/tests/data/golden/models/a)
foreach(cpu_and_target "Haswell;AVX2" "Westmere;SSE4")
  list(GET cpu_and_target 0 cpu)
  list(GET cpu_and_target 1 target)
  clearhead_old_cpu_test(info ${cpu} "Highway ${target}" $<TARGET_FILE:clearhead> info)
  # The first greedy continuation of a golden model.
  clearhead_old_cpu_test(generate ${cpu} "56 50 37 94 94 39 23 3" $<TARGET_FILE:clearhead> generate ${golden_a}
    --ids 2,46,34,58,34 --max-new 8)
  # Numbers of threads are no matter of instructions: the first of them is enough here.
  clearhead_old_cpu_test(kernels ${cpu} "" $<TARGET_FILE:kernels_test>
    --gtest_filter=-Threads/*/1:Threads/*/2:Threads/*/3:Threads/*/4)
  clearhead_old_cpu_test(attention ${cpu} "" $<TARGET_FILE:attention_test>
    --gtest_filter=*Golden*)
endforeach()
