package io.millrace.shared;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * The time limit of a method of a {@link Shared} class. After this time, its thread is interrupted; if the method does not end within a
 * second, the host ends its worker. In both cases, no field is changed.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
public @interface TimeLimit {
    /** The time limit in milliseconds. */
    int value();
}
