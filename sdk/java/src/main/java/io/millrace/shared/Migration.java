package io.millrace.shared;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Marks the static method of a {@link Shared} class that converts the fields of an older version. It gets a map of the fields by name and
 * the number of the older version, and returns a map of the new fields: {@code static Map<String, Object> migrate(Map<String, Object>
 * fields, int version)}. Whole numbers of primitive fields are in the map as {@link Long}.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
public @interface Migration {}
