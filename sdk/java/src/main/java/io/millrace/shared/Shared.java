package io.millrace.shared;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Marks a class whose objects are shared. Its methods run in workers of a pool, one at a time for each object, and the host keeps the
 * fields. The class stays an ordinary class, and implements the interface that references to its objects have.
 *
 * <pre>{@code
 * @Shared
 * public class Gate implements Door {
 *     private final int size;
 *     private int inside;
 *
 *     public Gate(int size) {
 *         this.size = size;
 *     }
 *
 *     public int enter() {
 *         return ++inside;
 *     }
 * }
 *
 * Door front = farm.shared(Door.class, Gate.class).get("front", 3);
 * front.enter();
 * }</pre>
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.TYPE)
public @interface Shared {
    /** Raise it when the fields or the code change; a {@link Migration} then converts the fields of an older version. */
    int version() default 1;

    /** The time limit of methods without a {@link TimeLimit}, in milliseconds. */
    int timeLimitMs() default 10_000;

    /** Whether the changes of a method that throws an exception are undone; by default they are kept. */
    boolean rollback() default false;
}
