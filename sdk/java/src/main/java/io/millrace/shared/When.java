package io.millrace.shared;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Has calls of a method of a {@link Shared} class wait until a guard holds. A waiting call takes no thread of the host and no worker: it is an
 * entry of the object.
 *
 * <pre>{@code
 * private boolean hasRoom() {
 *     return items.size() < size;
 * }
 *
 * @When("hasRoom")
 * public void put(String item) {
 *     items.add(item);
 * }
 * }</pre>
 *
 * The guard is a method of the class that returns a {@code boolean}; it may be private. It has the parameters of the guarded method, or none. It
 * only reads the fields of its object: if it changes one, or calls another object, the caller gets an exception.
 *
 * <p>Waiting calls are tried in their order, each time a method has changed a field; one whose guard holds overtakes those whose guard does
 * not. The thread that calls waits uninterruptibly, unless the method declares {@link InterruptedException}.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
public @interface When {
    /** The name of the guard. */
    String value();

    /**
     * For how many milliseconds a call may wait until its method begins; 0 is without a limit. A call that waits for longer throws a {@link
     * java.util.concurrent.TimeoutException} if the method declares it; if not, an {@link IllegalStateException} with that as its cause. {@link
     * io.millrace.CallOptions#timeout} sets another time for single calls.
     */
    int timeoutMs() default 0;
}
