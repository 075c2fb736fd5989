package io.millrace.worker;

import io.millrace.shared.Exact;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** The fields of a shared class that the host keeps: all except static and transient ones. */
final class Fields {
    private static final ClassValue<Fields> ALL = new ClassValue<>() {
        @Override
        protected Fields computeValue(Class<?> type) {
            return new Fields(type);
        }
    };

    private final Class<?> type;
    private final Map<String, Field> fields = new LinkedHashMap<>();
    private final Constructor<?> blank;

    private Fields(Class<?> type) {
        this.type = type;
        for (Class<?> at = type; at != Object.class; at = at.getSuperclass()) {
            for (Field field : at.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !Modifier.isTransient(field.getModifiers())) {
                    field.setAccessible(true);
                    // A field that hides another one of a superclass has the short name.
                    String name = fields.containsKey(field.getName()) ? at.getName() + "." + field.getName() : field.getName();
                    fields.put(name, field);
                }
            }
        }
        try {
            // As serialization makes objects, without running a constructor of their class.
            Class<?> factory = Class.forName("sun.reflect.ReflectionFactory");
            Method make = factory.getMethod("newConstructorForSerialization", Class.class, Constructor.class);
            blank = (Constructor<?>) make.invoke(factory.getMethod("getReflectionFactory").invoke(null), type, Object.class.getConstructor());
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("this JDK lacks the module jdk.unsupported", error);
        }
    }

    static Fields of(Class<?> type) {
        return ALL.get(type);
    }

    /** An object with these fields. */
    Object object(Map<String, Object> values) throws ReflectiveOperationException {
        Object made = blank.newInstance();
        for (Map.Entry<String, Object> value : values.entrySet()) {
            Field field = fields.get(value.getKey());
            if (field == null) {
                throw new IllegalArgumentException(type.getName() + " has no field '" + value.getKey() + "'");
            }
            field.set(made, Exact.as(field.getType(), value.getValue()));
        }
        return made;
    }

    /** The fields of an object, encoded for the host. */
    Map<String, byte[]> encoded(Object object) throws IllegalAccessException {
        Map<String, byte[]> found = new LinkedHashMap<>();
        for (Map.Entry<String, Field> field : fields.entrySet()) {
            try {
                found.put(field.getKey(), Exact.encode(field.getValue().getType(), field.getValue().get(object)));
            } catch (IllegalArgumentException error) {
                throw new IllegalArgumentException("field '" + field.getKey() + "' of " + type.getName() + ": " + error.getMessage(), error);
            }
        }
        return found;
    }

    /** The fields that have changed; null for a field that was removed. */
    static Map<String, byte[]> changes(Map<String, byte[]> before, Map<String, byte[]> now) {
        Map<String, byte[]> changed = new LinkedHashMap<>();
        now.forEach((name, value) -> {
            if (!Arrays.equals(before.get(name), value)) {
                changed.put(name, value);
            }
        });
        before.keySet().stream().filter(name -> !now.containsKey(name)).forEach(name -> changed.put(name, null));
        return changed;
    }
}
