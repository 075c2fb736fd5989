package io.millrace.executor;

import java.io.Serializable;

/** The body of a loop whose iterations run on many workers. */
@FunctionalInterface
public interface IterativeTask extends Serializable {
    /** Runs one iteration. */
    void call(int index) throws Exception;
}
