package io.millrace.executor;

import java.io.Serializable;

/** A serializable {@link Runnable}; a lambda that is passed to a {@link CloudThread} is one. */
@FunctionalInterface
public interface RemoteRunnable extends Runnable, Serializable {}
