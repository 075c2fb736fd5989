package io.millrace.executor;

import java.io.Serializable;
import java.util.concurrent.Callable;

/** A serializable {@link Callable}; a lambda that is passed to a {@link ServerlessExecutorService} is one. */
@FunctionalInterface
public interface RemoteCallable<V> extends Callable<V>, Serializable {}
