package io.millrace.shared;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * How long a method of a {@link Shared} class may take. After this time its thread is interrupted; if it does not end within a second, the host ends
 * its worker. In both cases the method has changed nothing.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
public @interface TimeLimit {
    /** How many milliseconds. */
    int value();
}
