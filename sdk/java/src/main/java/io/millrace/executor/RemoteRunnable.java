package io.millrace.executor;

import java.io.Serializable;

/** A {@link Runnable} that travels; a lambda that a {@link CloudThread} is given is one. */
@FunctionalInterface
public interface RemoteRunnable extends Runnable, Serializable {}
