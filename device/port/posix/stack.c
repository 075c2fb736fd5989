#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 700
#include "stack.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CHECKED 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define CHECKED 1
#endif
/* The address sanitizer wants to know which stack is used. */
#ifdef CHECKED
void __asan_unpoison_memory_region(void const volatile *at, size_t size);
void __sanitizer_start_switch_fiber(void **save, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *saved, const void **bottom, size_t *size);
static const void *outside_bottom;
static size_t outside_bytes;
static void *save;
#define LEAVING(save, bottom, size) __sanitizer_start_switch_fiber(save, bottom, size)
#define ARRIVED(saved, bottom, size) __sanitizer_finish_switch_fiber(saved, bottom, size)
#else
#define LEAVING(save, bottom, size) (void)0
#define ARRIVED(saved, bottom, size) (void)0
#endif

enum { SIGNALS = 4, SIGNAL_STACK = 64 * 1024 };

static const int crashes[SIGNALS] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static uint8_t *memory; /* a page that nothing may touch, then the stack */
static size_t guard, bytes;
static uint8_t signal_stack[SIGNAL_STACK];
static ucontext_t outside, within;
static volatile sig_atomic_t active;
static volatile int ended;
static volatile bool left;
static void (*called)(void *);
static void *passed;

static void leave(int why) {
    active = 0;
    ended = why;
    LEAVING(NULL, outside_bottom, outside_bytes);
    setcontext(&outside);
    _exit(70);
}

static void on_time(int number) {
    (void)number;
    if (active && mrd_may_end()) leave(MRD_RUN_TIMEOUT);
}

static void on_crash(int number, siginfo_t *about, void *context) {
    const uint8_t *at = (const uint8_t *)about->si_addr;
    (void)context;
    if (active && mrd_may_end()) leave(at >= memory && at < memory + guard ? MRD_RUN_STACK : MRD_RUN_FAULT);
    /* Not in a function, or in a call of the library: the process ends, as a board resets itself. */
    signal(number, SIG_DFL);
    raise(number);
}

static void limit(uint32_t first_ms) {
    struct itimerval timer;
    timer.it_value.tv_sec = (time_t)(first_ms / 1000);
    timer.it_value.tv_usec = (suseconds_t)(first_ms % 1000) * 1000;
    timer.it_interval.tv_sec = 0;
    timer.it_interval.tv_usec = first_ms > 0 ? 1000 : 0;
    setitimer(ITIMER_VIRTUAL, &timer, NULL);
}

static void enter(void) {
    ARRIVED(NULL, &outside_bottom, &outside_bytes);
    called(passed);
    active = 0;
    LEAVING(NULL, outside_bottom, outside_bytes);
}

static int run_on(void *context, void (*call)(void *), void *argument, uint32_t limit_ms) {
    (void)context;
#ifdef CHECKED
    /* A function that was ended has left its marks. */
    __asan_unpoison_memory_region(memory + guard, bytes);
#endif
    if (getcontext(&within) != 0) return MRD_RUN_STACK;
    within.uc_stack.ss_sp = memory + guard;
    within.uc_stack.ss_size = bytes;
    within.uc_link = &outside;
    called = call;
    passed = argument;
    ended = 0;
    makecontext(&within, enter, 0);
    limit(limit_ms);
    left = false;
    LEAVING(&save, memory + guard, bytes);
    if (getcontext(&outside) != 0) return MRD_RUN_STACK;
    if (!left) { /* comes here a second time when the function has ended */
        left = true;
        active = 1;
        setcontext(&within);
    }
    ARRIVED(save, NULL, NULL);
    limit(0);
    return ended;
}

int mrd_stack_begin(mrd_port *port, size_t stack_bytes) {
    struct sigaction action;
    stack_t own;
    if (!memory) {
        guard = (size_t)sysconf(_SC_PAGESIZE);
        bytes = (stack_bytes + guard - 1) / guard * guard;
        void *got = mmap(NULL, guard + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (got == MAP_FAILED || mprotect(got, guard, PROT_NONE) < 0) return -1;
        memory = (uint8_t *)got;
    }
    memset(&own, 0, sizeof own);
    own.ss_sp = signal_stack;
    own.ss_size = sizeof signal_stack;
    if (sigaltstack(&own, NULL) < 0) return -1;
    memset(&action, 0, sizeof action);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    action.sa_sigaction = on_crash;
    for (unsigned i = 0; i < SIGNALS; i++) {
        if (sigaction(crashes[i], &action, NULL) < 0) return -1;
    }
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    action.sa_handler = on_time;
    if (sigaction(SIGVTALRM, &action, NULL) < 0) return -1;
    port->run_on = run_on;
    return 0;
}
