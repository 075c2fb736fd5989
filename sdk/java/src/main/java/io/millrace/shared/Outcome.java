package io.millrace.shared;

import io.millrace.space.Thrown;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.List;

/** The outcome of a method call. */
final class Outcome {
    private static final long RETURNED = 0;

    private Outcome() {}

    /** Returns the method's result, or throws its exception, with the worker's stack trace above that of the caller. */
    static Object of(Object answer, Method method) throws Throwable {
        List<?> parts = (List<?>) answer;
        byte[] value = (byte[]) parts.get(1);
        if ((Long) parts.get(0) == RETURNED) {
            return Exact.decode(method.getReturnType(), value);
        }
        Throwable thrown = Thrown.opened(value);
        StackTraceElement[] there = thrown.getStackTrace();
        StackTraceElement[] here = new Throwable().getStackTrace();
        StackTraceElement[] both = Arrays.copyOf(there, there.length + here.length);
        System.arraycopy(here, 0, both, there.length, here.length);
        thrown.setStackTrace(both);
        throw thrown;
    }
}
