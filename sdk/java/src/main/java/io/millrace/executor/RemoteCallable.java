package io.millrace.executor;

import java.io.Serializable;
import java.util.concurrent.Callable;

/** A {@link Callable} that travels; a lambda that a {@link ServerlessExecutorService} is given is one. */
@FunctionalInterface
public interface RemoteCallable<V> extends Callable<V>, Serializable {}
